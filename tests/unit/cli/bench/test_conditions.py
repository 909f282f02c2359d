"""The conditions of benches of a text, `about`: settings and benchmarks are those of the runs."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from embtrain.cli import bench
from embtrain.cli.bench.harness import words
from embtrain.cli.bench.harness.base import Timed
from embtrain.cli.bench.text import budget, group, ppmi, rare, skipgram, subword
from embtrain.experiment.tasks.windows import WindowsTask

CASES = {"ace": "ace-own", "budget": "equal", "group": "n1", "ppmi": "PAIR", "quality": "PAIR", "rare": "PAIR",
         "skipgram": "PAIR-d100", "subword": "PAIR"}                          # one of each bench that trains on a text


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """200 words, each 40 times, of which some are words of WordSim353."""
    monkeypatch.setenv("EMBTRAIN_CACHE", str(tmp_path / "cache"))
    known = "king queen tiger cat book paper computer keyboard money cash car train stock market".split()
    made = ["".join(letters) for letters in product("bdfghklm", "aeiou", "bdfgh")]
    lines = ["".join(f"{word} " for word in [*known, *made[i::40]]) + "\n" for i in range(40)] * 40
    (tmp_path / "tiny.txt").write_text("".join(lines))
    return tmp_path / "tiny.txt"


def score(benchmarks: Sequence[str]) -> Timed:
    return Timed(1.0, 1.0, dict.fromkeys(benchmarks, 0.5))


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, Any]]:
    """Runs that train nothing; returns the settings of each run of embtrain."""
    runs: list[Mapping[str, Any]] = []

    def ours(file: Path, strategy: str, min_count: int, threads: int, sets: Mapping[str, Any],
             benchmarks: Sequence[str] = words.BENCHMARKS, **_: Any) -> Timed:
        runs.append({**words.OURS, **sets})
        return score(benchmarks)

    def of_group(case: group.Case, rate: float, seed: int) -> Timed:
        config = case.text.settings(case.name, rate, seed)
        runs.append({"train.lr": config.train.lr, "train.epochs": config.train.epochs})
        return Timed(1.0, 1.0, {group.LIKELIHOOD: -1.0})

    def gensim(*_: Any, benchmarks: Sequence[str] = words.BENCHMARKS, **__: Any) -> Timed:
        return score(benchmarks)

    monkeypatch.setattr(words, "ours", ours)
    monkeypatch.setattr(words, "gensim", gensim)
    monkeypatch.setattr(subword, "gensim", lambda file, threads, benchmarks, names, *_, **__: score(benchmarks))
    monkeypatch.setattr(subword, "fasttext", lambda file, threads, benchmarks, names: score(benchmarks))
    monkeypatch.setattr(ppmi, "best", lambda *_: budget.Choice(gensim, 1.0, {"shift 1": 0.5}))
    monkeypatch.setattr(group.Case, "_train", of_group)
    monkeypatch.setattr(group, "_predicted", lambda *_: {})
    monkeypatch.setattr(skipgram, "_bound", lambda *_: {})
    monkeypatch.setattr(words, "quality", lambda vectors, names: dict.fromkeys(names, 0.5))
    for module in (rare, subword):
        monkeypatch.setattr(module, "BENCHMARKS", ("wordsim353",))                        # which ships with gensim
    return runs


@pytest.mark.parametrize("name", [*CASES, "skipgram on a GPU"])
def test_the_settings_of_a_summary_are_those_of_its_runs(name: str, text: Path,
                                                         trained: list[Mapping[str, Any]]) -> None:
    summary = (bench.measure(name, 1, [CASES[name]], [1], str(text)) if name in CASES
               else skipgram.on_gpu(1, [1], ["PAIR"], str(text), "cpu"))
    settings = summary["about"]["settings"]
    assert trained and settings["text.window"] == 5
    assert {key: value for key, value in settings.items() for run in trained if run.get(key, value) != value} == {}


@pytest.mark.parametrize("name", ["budget", "group", "ppmi", "quality"])
def test_benchmarks_that_a_text_does_not_cover_are_left_out_with_a_warning(
        name: str, text: Path, trained: list[Mapping[str, Any]], monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture) -> None:
    """One half of MEN is covered, and no pair of the others but WordSim353."""
    monkeypatch.setattr(words, "quality", lambda vectors, names: {
        name: 0.5 for name in names if name.startswith("wordsim353") or name == "men.odd"})
    summary = bench.measure(name, 1, [CASES[name]], [1], str(text))
    assert summary["about"]["benchmarks"] == ["wordsim353"]
    names = {"quality": "simlex999, men"}.get(name, "simlex999, men, rareword in one half")
    assert caplog.messages[-1:] == [f"--corpus: {text}: it covers fewer than two pairs of {names}, not scored here; "
                                    "give a text of everyday English to score them"]


@pytest.mark.parametrize("name", ["group", "quality"])
def test_warnings_on_a_text_are_logged_once(name: str, text: Path, trained: list[Mapping[str, Any]],
                                            monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Although every training reads it."""
    monkeypatch.setattr(words, "scored", lambda vocabulary, names, *_, **__: list(names))
    read = WindowsTask.read

    def warn(config: Any) -> WindowsTask:
        logging.getLogger("embtrain").warning("text: odd")
        return read(config)

    monkeypatch.setattr(WindowsTask, "read", warn)
    bench.measure(name, 1, [CASES[name]], [1], str(text))
    assert caplog.messages.count("text: odd") == 1
