"""A line on held-out parts that take far more of a text than their shares."""

import logging
from pathlib import Path

import numpy as np
import pytest

from embtrain.data.text import holdout, streams
from embtrain.data.text.corpus import TextConfig, load
from embtrain.data.text.streams import LanguageConfig

LINE = ("text.valid, text.test: 0.02, 0.02: 2,000 of 4,000 tokens (50%) are held out, because each part takes whole "
        "documents or pieces, at least one of 4; set text.valid and text.test to 0, or give more text or files")
KEYS = {"tokenizer": "whitespace", "min_count": 1}


@pytest.fixture(autouse=True)
def _short_pieces(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(holdout, "PIECE_TOKENS", 1000)
    caplog.set_level(logging.WARNING, "embtrain")


def write(path: Path, n_lines: int, first: int = 0) -> Path:
    """Write lines of ten words; no two lines are equal."""
    path.write_text("".join(f"new york n{first + i} " + "a b c d e f g\n" for i in range(n_lines)), encoding="utf-8")
    return path


def test_a_short_text_is_reported_once_also_from_the_cache(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path / "a.txt", 400)
    for _ in range(2):
        caplog.clear()
        load([path], "auto", TextConfig.model_validate(KEYS), tmp_path / "cache", "t")
        assert caplog.messages == [LINE]


def test_phrases_and_language_models_report_the_same(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path / "a.txt", 400)
    load([path], "auto", TextConfig.model_validate({**KEYS, "phrases": 2}), None, "t")
    nothing = "no pair scores above the threshold; lower phrase_threshold or phrase_min_count"  # no count is dropped
    assert caplog.messages == [LINE, *(f"t: text.phrases: pass {number}: {nothing}" for number in (1, 2))]
    caplog.clear()
    streams.load([path], "auto", LanguageConfig.model_validate(KEYS), None, "t")
    assert caplog.messages[0] == LINE.replace("text.", "language.")
    assert not any("tokens" in line for line in caplog.messages[1:])


def test_only_drawn_parts_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name, first in (("train.txt", 0), ("valid.txt", 400)):
        write(tmp_path / name, 400, first)
    load([tmp_path], "auto", TextConfig.model_validate(KEYS), None, "t")
    assert caplog.messages == ["text.test: 0.02: 1,000 of 4,000 tokens (25%) are held out, because each part takes "
                               "whole documents or pieces, at least one of 4; set text.test to 0, or give more text or "
                               "files"]


@pytest.mark.parametrize(("n_lines", "keys"), [
    (400, {"valid": 0, "test": 0}),
    (400, {"valid": 0.25, "test": 0.25}),   # as set
    (400, {"valid": 0.13, "test": 0.13}),   # less than twice the shares
    (2100, {}),                             # 2 of 21 pieces: less than a tenth of the text
])
def test_shares_as_set_are_not_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture, n_lines: int,
                                        keys: dict[str, float]) -> None:
    load([write(tmp_path / "a.txt", n_lines)], "auto", TextConfig.model_validate({**KEYS, **keys}), None, "t")
    assert caplog.messages == []


@pytest.mark.parametrize(("n_held", "part"), [(1, r"1 of 4 tokens (25%) is held out,"),
                                              (2, r"2 of 4 tokens (50%) are held out,")])
def test_one_token_is_reported_in_the_singular(n_held: int, part: str) -> None:
    line = holdout.excess_line(np.array([4 - n_held, n_held]), np.array([0, 1]), TextConfig())
    assert line is not None and part in line
