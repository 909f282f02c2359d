"""Options that texts of the package name: some command has each, and an error names those of its own command."""

from __future__ import annotations

import ast
import re
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import typer.main
from helpers.looped import looped

import embtrain
from embtrain import cli
from embtrain.cli import commands

PACKAGE = Path(embtrain.__file__).parent
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]\b")
OTHER_COMMAND = re.compile(r"embtrain ([a-z]+) [^;`]*")           # a remedy that is a command line
FOREIGN = {"--max-restarts", "--always", "--dirty", "--abbrev", "--exclude", "--sanitize"}  # torchrun, git, build_core


def options_of(command: Any) -> set[str]:
    return {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}


def all_commands(group: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        yield f"{path}{name}", command
        if hasattr(command, "commands"):
            yield from all_commands(command, f"{path}{name} ")


COMMANDS = dict(all_commands(typer.main.get_command(commands.app)))
KNOWN = set[str]().union(*map(options_of, COMMANDS.values()), {"--version"})


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the value of every text in Python code, except docstrings."""
    tree = ast.parse(source)
    docs = {id(node.body[0].value) for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and node.body
            and isinstance(node.body[0], ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.lineno, node.value


def unknown_options(source: str) -> list[str]:
    return [f"{line}: {option}" for line, text in texts(source) for option in OPTION.findall(text)
            if option not in KNOWN | FOREIGN]


@looped("path", [path for path in (path.relative_to(PACKAGE).as_posix() for path in sorted(PACKAGE.rglob("*.py")))
                 if not path.startswith("report/")])           # its style sheets have variables like --ink
def test_every_option_in_a_text_exists(path: str) -> None:
    assert unknown_options((PACKAGE / path).read_text(encoding="utf-8")) == []


def test_an_option_that_no_command_has_is_found() -> None:
    assert unknown_options('"""--doc"""\nx = f"set --klimit {3}, --limit 3 or a--b"\n') == ["2: --klimit"]


# File or folder -> the commands that run it: each has every option that its texts name outside of a command line.
TRAINING = ("fit", "compare")
RUN_BY = {
    "data/text": (*TRAINING, "data encode"), "data/inventory": (*TRAINING, "data encode", "data sentences"),
    "data/parallel": (*TRAINING, "data sentences"),
    **dict.fromkeys(("data/triples", "data/hierarchy", "data/labels", "data/walks", "data/formats", "models", "losses",
                     "negatives"), TRAINING),
    "experiment/inspect/align.py": ("align",), "experiment/inspect/export.py": ("export",),
    "experiment/inspect/benchmarks.py": ("evaluate",), "experiment/inspect/sentences.py": ("data sentences",),
}


def options_that_are_lacking(source: str, names: tuple[str, ...]) -> list[str]:
    return [f"{line}: {name} has no {option}" for line, text in texts(source)
            for option in OPTION.findall(OTHER_COMMAND.sub("", text)) for name in names
            if option not in options_of(COMMANDS[name])]


@looped("place", RUN_BY)
def test_each_command_has_the_options_that_its_files_name(place: str) -> None:
    paths = [PACKAGE / place] if place.endswith(".py") else sorted((PACKAGE / place).rglob("*.py"))
    assert paths and [f"{path.name}:{line}" for path in paths for line in
                      options_that_are_lacking(path.read_text(encoding="utf-8"), RUN_BY[place])] == []


def test_an_option_of_another_command_is_found() -> None:
    source = 'x = "lower --workers, set --set, or: embtrain data encode FILE --workers 1"'
    assert options_that_are_lacking(source, ("fit", "data encode")) == ["1: fit has no --workers"]


# --- vector files: an error names options of its own command ----------------------------------------------------------

GLOVE = b"the 0.1 0.25\nof 0.3 0.45\nking 0.5 0.55\n"
BINARY = b"3 2\n" + b"".join(word + b" " + struct.pack("<2f", 1, i + 1) for i, word in enumerate((b"a", b"b", b"c")))
FAULTS = {
    "cut": GLOVE[:-6], "header": b"9 2\n" + GLOVE, "many": b"2 2\n" + GLOVE, "cut binary": BINARY[:-3],
    "huge": b"900000000000 2\n" + GLOVE, "latin-1": "a 1 2\ncaf\u00e9 3 4\n".encode("latin-1"),
    "binary latin-1": BINARY.replace(b"b ", b"\xe9 "), "utf-16": GLOVE.decode().encode("utf-16"),
    "utf-32": GLOVE.decode().encode("utf-32-le"), "safetensors": b"",
}
LINES = {
    "neighbours": "faulty of", "export": "faulty --out out", "align": "faulty good",
    "evaluate": "faulty --on table.tsv",
    "fit": "--corpus text.txt --set train.start=faulty --set text.min_count=1 --set model.dim=2",
}


def named_options(error: str) -> dict[str, set[str]]:
    """Options by the command whose line names them; '': outside of a command line."""
    named: dict[str, set[str]] = {"": set(OPTION.findall(OTHER_COMMAND.sub("", error)))}
    for match in OTHER_COMMAND.finditer(error):
        named.setdefault(match[1], set()).update(OPTION.findall(match[0]))
    return named


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
            ) -> Callable[[str], tuple[int, str]]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EMBTRAIN_CACHE", str(tmp_path / "cache"))
    Path("good").write_bytes(GLOVE)
    Path("table.tsv").write_text("the\tof\t1\nof\tking\t2\nthe\tking\t3\n")
    Path("text.txt").write_text("the king of the king\n" * 40)

    def run_line(line: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["embtrain", *line.split(), "--quiet"])
        return cli.run(), capsys.readouterr().err
    return run_line


@pytest.mark.parametrize("name", LINES)
def test_an_error_names_options_that_the_command_has(command: Callable[[str], tuple[int, str]], name: str) -> None:
    named_somewhere = set[str]()
    for fault, content in FAULTS.items():
        Path("faulty").write_bytes(content)
        if fault == "safetensors":
            words = np.frombuffer(b"\xe9\nb", np.uint8)
            safetensors.numpy.save_file({"vectors": np.ones((2, 2), np.float32), "words": words}, "faulty")
        code, error = command(f"{name} {LINES[name]}")                     # a run without --out has a folder of its own
        assert code in (2, 3, 4) and error.count("\n") == 1 and "faulty" in error, (fault, code, error)
        for other, options in named_options(error).items():
            assert options <= options_of(COMMANDS[other or name]), (fault, error)
            named_somewhere |= {f"{other} {option}" for option in options}
    assert {f"{'export' if name == 'fit' else ''} {option}" for option in ("--limit", "--encoding")} <= named_somewhere
