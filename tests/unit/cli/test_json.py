"""`--json` and `--quiet`: every command has both. With `--json` stdout is one JSON value and nothing else, with the
keys that docs/reference/formats.md lists."""

from __future__ import annotations

import io
import itertools
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer.main
from helpers.in_process import small_text

import embtrain
from embtrain import cli
from embtrain.cli import bench, options
from embtrain.cli.commands import app
from embtrain.common import progress, shipped
from embtrain.common.errors import UsageError
from embtrain.experiment.comparison import compare, join
from embtrain.experiment.comparison.compare import Comparison
from embtrain.experiment.inspect import sentences, submission
from embtrain.experiment.paper import reproduce
from embtrain.experiment.prediction import translator
from embtrain.experiment.run import stored

pytestmark = pytest.mark.long

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "formats.md"
KEYS = {"text.valid": 0.1, "text.test": 0.1, "text.min_count": 1, "text.sample": 0.01, "model.dim": 6,
        "train.epochs": 1, "train.chunk": 512, "evaluate.heldout_pairs": 100, "evaluate.benchmarks": [],
        "evaluate.resamples": 0, "evaluate.neighbours": []}
SETS = " ".join(f"--set {key}={str(value).replace(' ', '')}" for key, value in KEYS.items())
# Command -> argument lists, each with the beginning of its row of the page.
DATA = {
    "fit": [(f"--corpus text {SETS} --out fitted", "fit"), (f"--corpus text {SETS} --dry-run", "fit --dry-run")],
    "resume": [("run", "resume")],
    "continue": [("run --corpus text --out continued", "continue"),
                 ("run --corpus text --dry-run", "continue --dry-run")],
    "compare": [("--negatives sgns,nce", "compare")],
    "reproduce": [("", "reproduce"), ("nce_note_k", "reproduce NAME")],
    "diagnose": [("run --negatives sgns --m 3 --queries 4 --draws 5", "diagnose"),
                 ("run --negatives sgns --m 3 --dump-negatives drawn.tsv", "diagnose --dump-negatives")],
    "bench": [("reading", "bench")],
    "evaluate": [("run --on wordsim353", "evaluate")],
    "neighbours": [("run bal", "neighbours"), ("run bal nowhere", "neighbours")],
    "align": [("run run --count 3", "align")],
    "predict": [("graph a next _", "predict"), ("graph queries.tsv", "predict")],
    "list": [("", "list"), ("--combinations", "list --combinations")],
    "check": [(str(shipped.path("configs", "sgns", "strategies")), "check FILE")],
    "doctor": [("", "doctor")],
    "data list": [("", "data list")],
    "data fetch": [("wordsim353", "data fetch")],
    "data verify": [("wordsim353", "data verify")],
    "translate": [("run sentences.txt", "translate")],
    "export": [("run --out exported.txt", "export"),
               ("run --out exported.safetensors --format safetensors --dtype float16", "export")],
    "report": [("run", "report"), ("run --figures svg", "report")],
    "submit": [("run --out board.jsonl", "submit")],
    "data sentences": [("text", "data sentences"), ("text --out lines.txt", "data sentences --out")],
    "config show": [("negatives.k", "config show")],
    "config schema": [("", "config schema"), ("--out schema.json", "config schema --out")],
    "data encode": [("text --workers 1", "data encode"), ("text --dry-run", "data encode --dry-run")],
}

def commands(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{name} ")
        else:
            yield before + name, command


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = small_text(tmp_path_factory.mktemp("json"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EMBTRAIN_CACHE", str(place / "cache"))
        patch.setattr("embtrain.experiment.run.run.report.write", lambda run: (run / "report.html").write_text("run"))
        embtrain.fit("sgns", corpus=place / "text", sets=KEYS, seed=1, threads=1, out=place / "run")
        (place / "graph.tsv").write_text("".join(f"{a}\tnext\t{b}\n" for a, b in itertools.pairwise("abcdefga")))
        (place / "queries.tsv").write_text("a\tnext\t_\nz\tnext\t_\na\tnext\tb\n")
        embtrain.fit(model="transe", corpus=place / "graph.tsv", threads=1, out=place / "graph",
                     sets={"model.dim": 4, "train.epochs": 1, "evaluate.resamples": 0})
    return place


@pytest.fixture
def output_of(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.chdir(place)
    monkeypatch.setenv("EMBTRAIN_CACHE", str(place / "cache"))
    monkeypatch.setattr(progress, "quiet", True)
    monkeypatch.setattr("embtrain.experiment.run.run.report.write", lambda run: (run / "report.html").write_text("run"))
    for module, name in ((compare, "compare"), (reproduce, "reproduce")):
        monkeypatch.setattr(module, name, lambda *options: Comparison(place / "done"))
    monkeypatch.setattr(bench, "find", lambda name: lambda rounds, **options: (print("round 1"), {"bench": name})[1])
    monkeypatch.setattr(join, "write", lambda *options: place / "run" / "report.html")
    monkeypatch.setattr(stored, "open_translator", lambda *options: (None, None))
    monkeypatch.setattr(translator, "translate_file", lambda *options: iter(["eins", 'zw"ei']))
    monkeypatch.setattr(sentences, "sentences", lambda *options: iter(["eins", 'zw"ei']))
    monkeypatch.setattr(submission, "describe", lambda *options: SimpleNamespace(
        command="embtrain fit", metric="test/mrr", scores={"test/mrr": 0.5}))
    monkeypatch.setattr(submission, "append", lambda *options: None)
    (place / "done").mkdir(exist_ok=True)
    (place / "done" / "results.json").write_text('{"plan": {}}')

    def run_line(line: str) -> str:
        monkeypatch.setattr(sys, "argv", ["embtrain", *line.split()])
        assert cli.run() == 0, capsys.readouterr().err
        return capsys.readouterr().out

    return run_line


def documented_keys() -> dict[str, list[str]]:
    """Return the table of the page: command -> keys of its output."""
    section = PAGE.read_text(encoding="utf-8").split("## Output of --json")[1].split("\n## ")[0]
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in section.splitlines() if line.startswith("| `")]
    return {name: re.findall(r"`([^`]+)`", text) for row, text in rows for name in re.findall(r"`([^`]+)`", row)}


def test_every_command_has_both_options_with_one_meaning() -> None:
    every = dict(commands(typer.main.get_command(app)))
    assert every.keys() == DATA.keys()
    for name, command in every.items():
        helps = {parameter.opts[0]: parameter.help for parameter in command.params if parameter.opts}
        assert helps.get("--json") == "Print the result as one JSON value.", name
        assert helps.get("--quiet") == "Do not print progress; warnings and errors remain.", name


@pytest.mark.parametrize("name", [name for name, _ in commands(typer.main.get_command(app))])
def test_every_command_turns_progress_off_first(place: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    states: list[bool] = []

    def configure(quiet: bool) -> None:
        states.append(quiet)
        raise UsageError("the test ends the command here")

    monkeypatch.chdir(place)
    monkeypatch.setattr(options, "configure_output", configure)
    for flag in ("", " --quiet"):
        monkeypatch.setattr(sys, "argv", f"embtrain {name} {DATA[name][0][0]}{flag}".split())
        assert cli.run() == UsageError.code
    assert states == [False, True]


def test_the_page_lists_each_command() -> None:
    assert set(documented_keys()) == {row for ways in DATA.values() for _, row in ways}


@pytest.mark.parametrize(("line", "row"), [(f"{name} {args}", row) for name, ways in DATA.items()
                                           for args, row in ways])
def test_stdout_is_one_value_with_the_documented_keys(output_of: Any, line: str, row: str) -> None:
    value = json.loads(output_of(f"{line} --json"))
    documented = documented_keys()[row]
    first = value[0] if isinstance(value, list) else value
    assert first and set(first) >= set(documented) and (documented or row in ("doctor", "bench", "config schema"))
    if row not in ("compare", "reproduce NAME", "doctor", "bench", "diagnose", "config schema"):  # documented elsewhere
        assert set(first) == set(documented)


@pytest.mark.parametrize("rows", [[], ["eins"]])
def test_streams_of_any_length_are_one_object(capsys: pytest.CaptureFixture[str], rows: list[str]) -> None:
    options.emit_json_stream(iter(rows), "translations", lambda: {"n": len(rows)})
    assert json.loads(capsys.readouterr().out) == {"translations": rows, "n": len(rows)}


PLAIN, LETTERS = rb'"\u017c\ud83d\ude00"', '"\u017c\U0001f600"'.encode()


@pytest.mark.parametrize(("encoding", "raw"), [("ascii", PLAIN), ("latin-1", PLAIN), ("utf-8", LETTERS),
                                               ("UTF8", LETTERS)])
def test_it_is_json_for_every_terminal_encoding(monkeypatch: pytest.MonkeyPatch, encoding: str, raw: bytes) -> None:
    there = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(there, encoding=encoding, errors="backslashreplace"))
    options.emit("\u017c\U0001f600", True, str)
    sys.stdout.flush()
    assert there.getvalue() == raw + b"\n" and json.loads(there.getvalue()) == "\u017c\U0001f600"


def test_the_json_and_the_text_agree(output_of: Any) -> None:
    (result,) = json.loads(output_of("neighbours run bal --count 2 --json"))
    assert output_of("neighbours run bal --count 2") == "bal: " + ", ".join(
        f"{row['word']} {row['cosine']:.3f}" for row in result["neighbours"]) + "\n"
    [result] = json.loads(output_of("predict graph a next _ --json"))["predictions"]
    head, note, *listed = output_of("predict graph a next _").splitlines()
    assert (head, note.strip()) == (result["query"], result["note"])
    assert [row["name"] for row in result["answers"]] == [line.split()[1] for line in listed]
    assert [row["known"] for row in result["answers"]] == ["in training" in line for line in listed]
    assert output_of("bench reading") == 'round 1\n{"bench": "reading"}\n'
    python = json.loads(output_of("doctor --json"))["python"]
    assert output_of("doctor").splitlines()[1].split() == ["python", *python.split()]
