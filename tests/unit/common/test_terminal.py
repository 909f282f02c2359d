"""Text from files cannot steer a terminal, forge a line of output or become markup."""

from __future__ import annotations

import ast
import errno
import io
import json
import logging
import pickle
import runpy
import sys
import time
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from helpers.looped import looped

from embtrain import experiment
from embtrain.cli import entry_point, options
from embtrain.common import progress, terminal
from embtrain.common.errors import DataError, UsageError
from embtrain.common.types import Score
from embtrain.data.vectors import folders, vectors
from embtrain.data.vectors.vectors import Vectors
from embtrain.evaluate.words.neighbours import NeighbourList
from embtrain.experiment.inspect import neighbours
from embtrain.experiment.prediction import predict
from embtrain.experiment.prediction.base import Answer, Prediction
from embtrain.report import format
from embtrain.report.render import escape_markdown

PACKAGE = Path(__file__).resolve().parents[3] / "embtrain"
# C0, DEL, C1 (NEL, CSI), separators of lines, bidirectional overrides and isolates, a lone surrogate.
UNSAFE = ["\x00", "\n", "\r", "\x0b", "\x1b", "\x7f", "\x85", "\x9b", "\u2028", "\u2029", "\u202a", "\u202e", "\u2066",
          "\u2069", "\ud800", "\udfff"]
HOSTILE = "a\x1b[31mb\nembtrain: error: forged\x9b2J\u202ec"
SAFE = "a\\x1b[31mb\\nembtrain: error: forged\\x9b2J\\u202ec"


@looped("character", UNSAFE)
def test_an_unsafe_character_becomes_its_escape(character: str) -> None:
    assert terminal.plain(f"a{character}b") == f"a{repr(character)[1:-1]}b"
    assert terminal.plain(terminal.plain(character)) == terminal.plain(character)


@looped("text", ["naïve", "می\u200cخواهم", "क्\u200dष", "\u200f\u200eא", "e\u0301", "日本語",
                 "\\x1b", "\u00a0", "\U0001f600"])
def test_all_other_characters_stay(text: str) -> None:
    assert terminal.plain(text) == text


@pytest.mark.parametrize(("n", "text"), [
    (0, "0 epochs"), (1, "1 epoch"), (1.0, "1 epoch"), (0.6, "0.6 epochs"), (1.4, "1 epoch"), (0.9999, "1 epoch"),
    (0.0001, "0.0001 epochs"),
    (2000, "2,000 epochs")])
def test_one_thing_is_counted_in_the_singular(n: float, text: str) -> None:
    assert terminal.format_count(n, "epoch") == text
    assert terminal.format_count(n, "query", "queries") == text.replace("epochs", "queries").replace("epoch", "query")


@pytest.mark.parametrize(("n", "text"), [(0, "0 of 1,200 runs are"), (1, "1 of 1,200 runs is"),
                                         (1100, "1,100 of 1,200 runs are")])
def test_the_verb_of_a_part_is_that_of_its_number(n: int, text: str) -> None:
    assert terminal.format_part(n, 1200, "runs", "is", "are") == text


def test_only_warnings_of_embtrain_are_logged_once() -> None:
    names, root = ("embtrain", "embtrain.negatives", "pykeen"), logging.getLogger()
    streams = [io.StringIO(), io.StringIO()]
    handlers = [logging.StreamHandler(stream) for stream in streams]
    loggers = [logging.getLogger(name) for name in names]
    root.addHandler(handlers[0])
    loggers[0].addHandler(handlers[1])
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.INFO)
        for _ in range(2):          # each time again
            with terminal.without_repeated_warnings():
                for logger in [*loggers, *loggers]:
                    logger.warning("rare words of %s", logger.name)
                    logger.info("read")
    finally:
        root.removeHandler(handlers[0])
        loggers[0].removeHandler(handlers[1])
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
    for stream, n_pykeen in zip(streams, (4, 0), strict=True):
        lines = stream.getvalue().splitlines()
        assert [lines.count(f"rare words of {name}") for name in names] == [2, 2, n_pykeen]
        assert lines.count("read") == 8 + n_pykeen
    assert not any(handler.filters for handler in handlers)


@pytest.mark.parametrize(("logger", "start"), [
    ("embtrain", "embtrain"), ("embtrain.train.state.checkpoint", "embtrain"), ("pykeen.nn.representation", "pykeen")])
def test_a_log_line_begins_with_the_library_that_wrote_it(logger: str, start: str) -> None:
    record = logging.LogRecord(logger, logging.WARNING, "file.py", 1, "inferred %s", ("a",), None)
    assert terminal.OneLine().format(record) == f"{start}: inferred a"


@pytest.mark.parametrize(("file", "start"), [("mine.py", "mine"), ("library/part/code.py", "library"),
                                             ("library/__init__.py", "library")])
def test_a_log_line_of_the_root_logger_begins_with_the_package_of_its_caller(tmp_path: Path, file: str, start: str
                                                                            ) -> None:
    """Also that of a plugin, which may call logging.warning."""
    (tmp_path / "library" / "part").mkdir(parents=True)
    for folder in ("library", "library/part"):
        (tmp_path / folder / "__init__.py").touch()
    (tmp_path / file).write_text("import logging\nlogging.warning('%d odd', 3)\n")
    lines = io.StringIO()
    handler = logging.StreamHandler(lines)
    handler.setFormatter(terminal.OneLine())
    logging.getLogger().addHandler(handler)
    try:
        runpy.run_path(str(tmp_path / file))
    finally:
        logging.getLogger().removeHandler(handler)
    assert lines.getvalue() == f"{start}: 3 odd\n"


@pytest.mark.parametrize(("columns", "width"), [(80, 80), (100, 100), (20, 60), (500, 120)])
def test_lines_are_as_wide_as_the_terminal(monkeypatch: pytest.MonkeyPatch, columns: int, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert terminal.width() == terminal.WIDTH            # standard output is a file
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert terminal.width() == width


def test_only_line_feeds_of_embtrain_end_a_line() -> None:
    assert terminal.plain_lines("a\x1b\nb\r") == "a\\x1b\nb\\r"


def test_an_error_has_one_line_for_each_argument() -> None:
    assert str(DataError(HOSTILE)) == SAFE
    error = UsageError("first\n", "second")
    assert str(error) == "first\\n\nsecond" and error.args == ("first\\n", "second")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_long_line_of_an_error_keeps_both_ends() -> None:
    line = str(DataError(f"file:1: {'x' * 10_000_000}; remove it"))
    assert len(line) < 4_100 and line.startswith("file:1: xx") and line.endswith("xx; remove it")


@pytest.mark.parametrize("error", [DataError(HOSTILE), OSError(28, "No space left", HOSTILE), MemoryError(HOSTILE)])
def test_an_error_cannot_forge_a_line(error: Exception, monkeypatch: pytest.MonkeyPatch,
                                      capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(entry_point, "_command", fail)
    monkeypatch.setattr(sys, "argv", ["embtrain", "list"])
    assert entry_point.run() in (3, 4)
    assert capsys.readouterr().err.count("\n") == 1


def test_a_warning_is_one_line() -> None:
    record = logging.LogRecord("embtrain", logging.WARNING, "", 0, "%s: odd", (HOSTILE,), None)
    assert terminal.OneLine().format(record) == f"embtrain: {SAFE}: odd"


def test_progress_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.note(HOSTILE)
    assert capsys.readouterr().err == f"{SAFE}\n"


def test_neighbours_are_one_line_a_word() -> None:
    near = NeighbourList([(HOSTILE, 0.5)])
    near.found_as = HOSTILE
    result = {"w": near, HOSTILE: NeighbourList()}
    assert neighbours.format_text(result) == f"w (found as {SAFE}): {SAFE} 0.500\n{SAFE}: not in the vocabulary"


def test_predictions_are_one_line_each() -> None:
    one = Prediction(HOSTILE, [Answer(HOSTILE, 1.0)], place=HOSTILE, note=HOSTILE)
    assert predict.format_text(one) == f"{SAFE}  ({SAFE})\n     {SAFE}\n  1  {SAFE}      1.000"


def test_json_of_predictions_has_no_escape(capsys: pytest.CaptureFixture[str]) -> None:
    options.emit_json_stream([{"query": HOSTILE}, {"query": "b"}], "predictions", lambda: {"note": HOSTILE})
    text = capsys.readouterr().out
    assert not any(c in text for c in UNSAFE if c != "\n") and text.count("\n") == 4
    assert json.loads(text) == {"predictions": [{"query": HOSTILE}, {"query": "b"}], "note": HOSTILE}


def test_a_table_of_scores_has_no_escape() -> None:
    text = format.table([Score(HOSTILE, "m\x1b", 1.0, None, None, 3, "n\u202e")])
    assert not any(c in text for c in UNSAFE if c != "\n") and "\\u202e" in text


def test_words_of_a_file_of_vectors_are_escaped_on_the_terminal_and_whole_in_json(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    word = "b\x1b[2J\u202ex\x9b"
    vectors.write(tmp_path / "v.safetensors", Vectors(["a", word], np.eye(2, dtype=np.float32)), "safetensors")
    result = experiment.neighbours(tmp_path / "v.safetensors", ["a"], 1)
    options.emit(neighbours.as_tree(result), False, lambda: neighbours.format_text(result))
    assert capsys.readouterr().out == "a: b\\x1b[2J\\u202ex\\x9b 0.000\n"
    options.emit(neighbours.as_tree(result), True, lambda: neighbours.format_text(result))
    text = capsys.readouterr().out
    assert not any(c in text for c in UNSAFE if c != "\n")
    assert json.loads(text)[0]["neighbours"][0]["word"] == word


def test_names_of_tensors_cannot_forge_a_line(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("a\n")
    safetensors.numpy.save_file({HOSTILE: np.eye(1, dtype=np.float32)}, tmp_path / "model.safetensors")
    with pytest.raises(DataError) as wrong:
        folders.read_huggingface(tmp_path)
    assert "\n" not in str(wrong.value) and "\x1b" not in str(wrong.value) and "\\x1b[31mb" in str(wrong.value)


def test_data_is_unchanged_in_a_pipe_and_escaped_on_a_terminal(monkeypatch: pytest.MonkeyPatch,
                                                               capsys: pytest.CaptureFixture[str]) -> None:
    terminal.data_line("a\x1bb\u202e")
    assert capsys.readouterr().out == "a\x1bb\u202e\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    terminal.data_line("a\x1bb\u202e")
    assert capsys.readouterr().out == "a\\x1bb\\u202e\n"


# --- Markdown --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("text", "expected"), [
    ("sgns", "`sgns`"), ("a`b", "``a`b``"), ("``", "``` `` ```"), ("a\n# b", "`a\\n# b`"), ("", "`  `"),
])
def test_a_code_span_cannot_be_left(text: str, expected: str) -> None:
    assert escape_markdown.code(text) == expected


def test_a_code_block_cannot_be_left() -> None:
    assert escape_markdown.block("a: 1\n```\n# b\x1b", "yaml") == "````yaml\na: 1\n```\n# b\\x1b\n````"


@pytest.mark.parametrize(("text", "expected"), [
    ("<img src=x>", r"\<img src=x\>"), ("a|b", r"a\|b"), ("[x](y)", r"\[x\](y)"), ("a\n# b", r"a\\n\# b"),
    ("1. a", r"1\. a"), ("- a", r"\- a"),
])
def test_words_do_not_become_markup(text: str, expected: str) -> None:
    assert escape_markdown.words(text) == expected


def test_the_model_card_escapes_every_name(tmp_path: Path) -> None:
    from embtrain.experiment.inspect import export

    name = "x`<b>|\u202e"
    part = namedtuple("part", "name source")
    settings = namedtuple("settings", "model strategy negatives loss train corpus")(
        part(name, ""), name, part("", name), part(name, ""), namedtuple("train", "seed epochs parent")(1, 1, None),
        name)
    run: Any = namedtuple("run", "folder settings word_vectors scores")(
        tmp_path / name, settings, Vectors(["a"], np.eye(1, dtype=np.float32)),
        [Score(name, name, 1.0, None, None, 3, "")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "public_settings", lambda run: run.settings)
        patch.setattr(export, "dump", lambda tree: "a: |\n  ```\n  # b")
        patch.setattr(export.tasks, "corpus_hash", lambda folder: "0")
        card = export._card(run, run.word_vectors)
    lines = card.split("\n")
    assert lines[0] == r"# x\`\<b\>\|\\u202e"
    assert "model ``x`<b>|\\u202e``, strategy ``x`<b>|\\u202e``" in lines[2] and lines[2].endswith("seed 1, 1 epoch.")
    assert r"| x\`\<b\>\|\\u202e | x\`\<b\>\|\\u202e | 1.000 |  | 3 |" in lines
    assert lines.count("````yaml") == 1 and "\u202e" not in card


# --- a lost terminal ---------------------------------------------------------------------------------------------

class LostTerminal(io.StringIO):
    """Standard error whose terminal is gone once `is_lost` is set."""

    is_lost = False

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self.is_lost:
            raise OSError(errno.EIO, "Input/output error")
        return super().write(text)


def test_progress_outlives_its_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a run would end without the checkpoint that SIGHUP requests."""
    lost = LostTerminal()
    monkeypatch.setattr(sys, "stderr", lost)
    monkeypatch.setattr(progress, "DELAY", 0.0)
    monkeypatch.setattr(progress, "quiet", False)
    with progress.Progress("training", 10) as shown:
        shown.add(1)
        lost.is_lost = True
        time.sleep(0.15)                                     # tqdm writes every tenth of a second
        shown.add(1)
        terminal.note("a line")
    assert shown.done == 2


# --- one module prints -------------------------------------------------------------------------------------------

def test_only_one_module_prints() -> None:
    """cli/entry_point.py escapes the lines of errors itself; JSON is escaped before options.py prints it."""
    printing = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")
                for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"}
    assert printing == {"common/terminal.py", "cli/entry_point.py", "cli/options.py"}
