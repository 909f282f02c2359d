"""Errors in a bench name what its options can change, since it has no --set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from embtrain.cli import bench
from embtrain.common import shipped
from embtrain.common.errors import DataError, EmbtrainError, ResourceError, UsageError

LARGER = "; embtrain bench has no --set: give another --corpus, for example a larger one, or other cases with --only"


@pytest.mark.parametrize("name", ["budget", "group", "judging", "nmt", "ppmi", "quality", "rare", "subword"])
def test_a_text_that_is_too_short_or_of_another_kind(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                                     ) -> None:
    monkeypatch.setenv("EMBTRAIN_CACHE", str(tmp_path / "cache"))
    (tmp_path / "tiny.txt").write_text("a b c d\n" * 3)
    with pytest.raises(DataError) as caught:
        bench.measure(name, 1, None, [1], str(tmp_path / "tiny.txt"))
    (line,) = caught.value.args
    assert line.endswith(LARGER) and line.count("; embtrain bench") == 1


@pytest.mark.parametrize(("error", "remedy"), [
    (UsageError("train.chunk: 9: 4 processes cannot share an epoch of 1 block; set train.chunk: 1"), LARGER),
    (DataError("corpus: genesis: its reader is text, and model.name: nmt learns from pairs; choose another"), LARGER),
    (ResourceError("model.dim: 300: needs 9 GiB, and 1 GiB is free; lower model.dim"), LARGER.replace("larg", "small")),
    (DataError("--corpus: x: fewer than 1,000 pairs remain after text.sample; give a longer text"), ""),
    (DataError("bench ppmi: text.window: too few pairs; give a longer text: --corpus"), ""),
    (DataError("text.txt:3: has one column"), ""),
    (UsageError("train.engine: fused: there is no compiled core; `embtrain doctor` shows why"), "")])
def test_errors_that_name_keys_get_the_options_of_a_bench(monkeypatch: pytest.MonkeyPatch, error: EmbtrainError,
                                                          remedy: str) -> None:
    def fail(rounds: int, only: Any, corpus: Any) -> None:
        raise error

    monkeypatch.setattr(bench, "find", lambda name: fail)
    with pytest.raises(type(error)) as caught:
        bench.measure("x", 1)
    assert caught.value.args == (f"{error.args[0]}{remedy}",)


def test_a_bench_with_data_of_its_own_has_no_other_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(rounds: int, only: Any) -> None:
        raise DataError("text.min_count: 5: too high", "a second line")

    monkeypatch.setattr(bench, "find", lambda name: fail)
    with pytest.raises(DataError) as caught:
        bench.measure("x", 1)
    assert caught.value.args == (
        "text.min_count: 5: too high; embtrain bench has no --set: give other cases with --only", "a second line")


def test_the_keys_of_settings_are_those_of_the_shipped_files() -> None:
    keys = shipped.setting_keys()
    assert {"train", "train.chunk", "text.min_count", "translation.columns", "model.name"} <= set(keys)
    assert len(keys) == len(set(keys)) and "text.txt" not in keys
