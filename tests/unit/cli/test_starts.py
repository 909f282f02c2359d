"""Commands that need no numerical library start without importing one. Modules are counted, not seconds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer.main
from helpers.in_process import small_text

from embtrain.cli import commands, entry_point
from embtrain.data.vectors import vectors
from embtrain.data.vectors.vectors import Vectors

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[3]
HEAVY = ("torch", "gensim", "scipy", "sklearn", "matplotlib")
# Runs each command of sys.argv[1] in turn and prints its exit code and the heavy modules that it was first to import.
RUN = f"""
import io, json, sys
from embtrain import cli
out, results, before = sys.stdout, [], set()
for words in json.loads(sys.argv[1]):
    sys.argv, sys.stdout = ["embtrain", *words], io.StringIO()
    code = cli.run()
    loaded = {{*{HEAVY!r}}} & set(sys.modules)
    results.append([words, code, sorted(loaded - before)])
    before |= loaded
print(json.dumps(results), file=out)
"""


def start(commands: list[list[str]], folder: Path) -> list[tuple[list[str], int, list[str]]]:
    """Run commands in one process; return each with its exit code and the heavy modules that it imported."""
    done = subprocess.run([sys.executable, "-c", RUN, json.dumps(commands)], cwd=folder, capture_output=True, text=True,
                          check=False, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr
    return [(words, code, loaded) for words, code, loaded in json.loads(done.stdout)]


def known(group: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every command and the words that call it."""
    for name, command in (group or typer.main.get_command(commands.app)).commands.items():
        if hasattr(command, "commands"):
            yield from known(command, (*path, name))
        else:
            yield (*path, name), command


def test_help_is_printed_before_anything_is_imported(tmp_path: Path) -> None:
    words = [[*path, "--help"] for path, _ in known()]
    assert len(words) > 15
    assert start([["--help"], ["--version"], *words], tmp_path) == [
        (line, 0, []) for line in [["--help"], ["--version"], *words]]


def mistyped() -> Iterator[list[str]]:
    """Yield each command with a path that does not exist as its first argument, or in an option."""
    for path, command in known():
        arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
        if arguments and arguments[0].metavar in ("RUN", "RUN...", "PATH"):
            required = [parameter for parameter in command.params if parameter.required][1:]
            yield [*path, "runs/nosuch", *(word for parameter in required for word in (
                [parameter.opts[0], "x"] if parameter.param_type_name == "option" else ["x"]))]
        for parameter in command.params:
            if parameter.name == "config" or (parameter.name == "corpus" and path[0] in ("fit", "compare")):
                yield [*path, parameter.opts[-1], "nosuch.yaml"]


def test_a_mistyped_path_is_reported_before_anything_is_imported(tmp_path: Path) -> None:
    words = list(mistyped())
    assert {line[0] for line in words} >= {"fit", "compare", "resume", "report", "diagnose", "evaluate", "translate",
                                           "neighbours", "predict", "export"}
    results = start(words, tmp_path)
    assert [(line, loaded) for line, _, loaded in results if loaded] == []
    assert {code for _, code, _ in results} == {2, 3}


def test_lists_and_neighbours_need_no_numerical_library(tmp_path: Path) -> None:
    table = Vectors(["king", "queen", "a"], np.eye(3, dtype=np.float32))
    (tmp_path / "run").mkdir()
    vectors.write(tmp_path / "run" / "vectors.safetensors", table, "safetensors")
    vectors.write(tmp_path / "text.txt", table, "word2vec")
    words = [["list"], ["list", "--json"], ["data", "list"], ["neighbours", "run", "king"],
             ["neighbours", "text.txt", "king"]]
    assert start(words, tmp_path) == [(line, 0, []) for line in words]


def test_the_import_of_a_command_that_trains_is_noticed(tmp_path: Path) -> None:
    (_, code, loaded), = start([["list", "--combinations"]], tmp_path)
    assert code == 0 and "torch" in loaded


def test_packages_of_the_interface_are_imported_at_their_first_use(tmp_path: Path) -> None:
    """The README writes `embtrain.nn.SampledSoftmax`, with `import embtrain` alone."""
    code = ("import sys, embtrain; light = not {'torch', 'numpy', 'embtrain.nn'} & set(sys.modules); "
            "listed = {'nn', 'gensim', 'testing'} <= set(dir(embtrain)); "
            "print(light, listed, embtrain.nn.SampledSoftmax.__name__, embtrain.gensim.models.Word2Vec.__name__, "
            "embtrain.testing.check_source.__name__, hasattr(embtrain, 'nowhere'))")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.stdout == "True True SampledSoftmax Word2Vec check_source False\n", done.stderr


def test_a_dry_run_imports_no_library_that_training_does_not_use(tmp_path: Path) -> None:
    """It trains some blocks, without SciPy, and evaluates; torch._dynamo alone takes as long as torch."""
    slow = {"torch._dynamo", "sympy", "scipy.stats", "networkx", "matplotlib", "sklearn", "gensim"}
    words = ["embtrain", "fit", "--dry-run", "--corpus", str(small_text(tmp_path) / "text"), "--threads", "1", "--set",
             "text.min_count=1", "--set", "model.dim=4", "--set", "evaluate.benchmarks=[]"]
    code = ("import sys; from embtrain import cli; from embtrain.train.loop import Trainer; early = set(); "
            "step = Trainer.run_step; Trainer.run_step = lambda *given, **more: "
            "(early.update({'scipy'} & set(sys.modules)), step(*given, **more))[1]; "
            f"sys.argv = {words!r}; code = cli.run(); print(code, *early, *({slow!r} & set(sys.modules)))")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHONPATH": str(ROOT), "EMBTRAIN_CACHE": str(tmp_path / "cache")})
    assert "engine: fused" in done.stdout and done.stdout.splitlines()[-1] == "0", done.stdout + done.stderr


def test_a_start_builds_the_options_of_one_command_alone() -> None:
    everything: Any = typer.main.get_command(commands.app)
    for name, command in everything.commands.items():
        built: Any = typer.main.get_command(entry_point._narrowed([name]))
        assert [*built.commands] == [*["fit"] * (name == "submit"), name] and built.params[0].name == "version"
        assert [p.opts for p in built.commands[name].params] == [p.opts for p in command.params]
        assert built.commands[name].help == command.help
    for words in ([], ["--version"], ["fti"]):
        assert entry_point._narrowed(words) is commands.app


def test_an_engine_is_found_in_a_process_that_imported_no_other_module(tmp_path: Path) -> None:
    """An engine chooses among its imported subclasses, so all are imported before it does."""
    code = "from embtrain.train.engines import base; print(base.find('fused').for_task('windows', 'cuda').__name__)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.stdout == "DeviceWindows\n", done.stderr
