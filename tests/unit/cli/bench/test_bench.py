"""Benches: rounds, ratios and the last line; refusals; each bench once on a tiny text."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import json
import math
import os
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gensim.models import KeyedVectors
from helpers.cores import needs_core
from helpers.graphs import a_folder

from embtrain import cli
from embtrain.cli import bench
from embtrain.cli.bench import nn, ranking, start, transe, walks
from embtrain.cli.bench.harness import base, bounds, words
from embtrain.cli.bench.harness.base import Group, Timed, choose, last_line, run
from embtrain.cli.bench.hierarchies import hierarchy
from embtrain.cli.bench.softmax import kernels, kmeans, samplers
from embtrain.cli.bench.text import (
    budget,
    conflicts,
    group,
    judging,
    ppmi,
    quality,
    rare,
    reading,
    skipgram,
    subword,
)
from embtrain.common import progress
from embtrain.common.errors import ResourceError, UsageError
from embtrain.data.text.corpus import Corpus, TextConfig
from embtrain.data.text.vocabulary import Vocabulary
from embtrain.negatives.sampling.alias import AliasTable
from embtrain.train.group.config import SyncConfig

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[4]
FORMATS = (ROOT / "docs" / "reference" / "formats.md").read_text(encoding="utf-8")
NAMES = ["ace", "budget", "conflicts", "group", "hierarchy", "judging", "kernels", "kmeans", "nmt", "nn", "order",
         "ppmi", "quality", "ranking", "rare", "reading", "samplers", "skipgram", "start", "subword", "transe", "vmf",
         "walks"]


# --- rounds and ratios ---------------------------------------------------------------------------------------------

class Played:
    """Contestants with results from lists, and the order of their calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __call__(self, name: str, seconds: Sequence[float],
                 quality: Sequence[dict[str, float]] = ()) -> Callable[[], Timed]:
        rest = iter(seconds)
        worth = iter(quality)

        def work() -> Timed:
            self.calls.append(name)
            wall = next(rest)
            return Timed(wall, wall * 3, next(worth, {}))

        return work


def three_rounds(log: list[str] | None = None) -> tuple[dict[str, Any], list[str]]:
    play = Played()
    groups = [
        Group(1, {"one": play("one", [1, 10, 2], [{"rho": 0.1, "early": 1.0}, {"rho": 0.2}, {"rho": 0.6}]),
                  "two": play("two", [4, 4, 4])},
              {"theirs": play("theirs", [3, 100, 5], [{"rho": 0.5}] * 3), "other": play("other", [8, 8, 8])}),
        Group(2, {"alone": play("alone", [7, 7, 7])}),
    ]
    return run("played", "s", groups, 3, {"corpus": "none"}, (log if log is not None else []).append), play.calls


def test_rivals_and_ours_alternate_in_every_round() -> None:
    assert three_rounds()[1] == ["theirs", "other", "one", "two", "alone"] * 3


def test_ratios_use_medians_and_every_round_is_stored() -> None:
    summary, _ = three_rounds()
    assert summary["ours"] == {"one": [1, 10, 2], "two": [4, 4, 4], "alone": [7, 7, 7]}
    assert summary["rivals"] == {"theirs": {"one": [3, 100, 5], "two": [3, 100, 5]},
                                 "other": {"one": [8, 8, 8], "two": [8, 8, 8]}}
    assert summary["ours_cpu"]["one"] == [3, 30, 6] and summary["rivals_cpu"]["theirs"]["two"] == [9, 300, 15]
    assert summary["ratio"] == summary["ratio_cpu"] == {"one": 2.5, "two": 1.25}
    assert summary["ratio_others"] == {"other": {"one": 4.0, "two": 2.0}} and summary["ratio_rival"] == "theirs"


def test_quality_is_the_mean_over_rounds() -> None:
    summary, _ = three_rounds()
    assert summary["quality"]["one"] == {"ours": {"rho": 0.3}, "theirs": {"rho": 0.5}, "other": {}}


def test_a_case_without_rivals_has_times_and_no_ratio() -> None:
    summary, _ = three_rounds()
    assert summary["threads"] == {"one": 1, "two": 1, "alone": 2} and "alone" not in summary["ratio"]
    assert summary["quality"]["alone"] == {"ours": {}}
    own = run("alone", "s", [Group(1, {"alone": Played()("alone", [1])})], 1, {}, [].append)
    assert own["ratio"] == own["ratio_others"] == own["rivals"] == {} and own["ours"] == {"alone": [1]}
    assert own["ratio_rival"] is None


def test_the_rival_of_the_ratio_is_that_of_the_first_case_and_others_are_apart() -> None:
    """As in the bench nmt, whose decoders have another rival than its losses."""
    play = Played()
    groups = [Group(1, {"alone": play("alone", [1])}),
              Group(1, {"vmf": play("vmf", [2])}, {"cross-entropy": play("cross-entropy", [6])}),
              Group(1, {"decode": play("decode", [2])}, {"beam-5": play("beam-5", [8])})]
    summary = run("played", "s", groups, 1, {}, [].append)
    assert (summary["ratio_rival"], summary["ratio"]) == ("cross-entropy", {"vmf": 3.0})
    assert summary["ratio_others"] == {"beam-5": {"decode": 4.0}}


def test_a_rival_that_is_not_installed_is_named_with_its_remedy(caplog: pytest.LogCaptureFixture) -> None:
    assert base.find_rival("nosuch", "no-package", "other") == (False, "not installed: pip install no-package")
    assert caplog.messages == ["bench: nosuch is not installed, and is not timed; pip install no-package"]
    caplog.clear()
    assert base.find_rival("numpy", "no-package", "numpy") == (True, np.__version__) and not caplog.messages


def test_each_run_is_printed_with_its_round_and_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    log: list[str] = []
    three_rounds(log)
    assert len(log) == 3 * 5
    assert log[7] == "round 2 · one · 1 thread · 10.000 s, 30.000 CPU-s · 10.00× theirs · 0.80× other"
    assert log[-1].startswith("round 3 · alone · 2 threads · 7.000 s")


@pytest.mark.parametrize(("cores", "shown"), [(16, "16 threads"), (15, "16 threads on 15 cores"),
                                              (1, "16 threads on 1 core")])
def test_more_threads_than_cores_are_reported(monkeypatch: pytest.MonkeyPatch, cores: int, shown: str) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    log: list[str] = []
    run("x", "s", [Group(16, {"many": Played()("many", [2])})], 1, {}, log.append)
    assert log == [f"round 1 · many · {shown} · 2.000 s, 6.000 CPU-s"]


def test_a_small_ratio_keeps_four_digits() -> None:
    play = Played()
    assert run("x", "s", [Group(1, {"slow": play("slow", [81])}, {"fast": play("fast", [1])})], 1, {}, [].append)[
        "ratio"] == {"slow": 0.01235}


def test_the_last_line_is_one_line_of_json() -> None:
    summary, _ = three_rounds()
    line = last_line(summary)
    assert "\n" not in line and json.loads(line) == summary
    with pytest.raises(ValueError):
        last_line({"ratio": float("nan")})


def test_the_keys_are_documented() -> None:
    section = FORMATS.split("## The output of a bench")[1].split("\n## ")[0]
    documented = {key for row in re.findall(r"^\| (`.+?) \|", section, re.MULTILINE) for key in re.findall(r"`(\w+)`",
                                                                                                           row)}
    assert documented == {*three_rounds()[0], "times_sgns", "megabytes_per_second", "spearman", "difference",
                    "pairs_per_second", "words_per_second", "growth", "build", "megabytes", "outside", "bound",
                    "rate", "trials", "predicted"}
    assert {"processor", "cores", "load", "embtrain", "corpus"} <= set(three_rounds()[0]["about"])


# --- names and cases -----------------------------------------------------------------------------------------------

def test_every_bench_is_found_by_its_name() -> None:
    assert bench.names() == NAMES
    modules = [bench.find(name).__module__ for name in NAMES]
    assert [module.rpartition(".")[2] for module in modules] == NAMES
    assert all(bench.find(name) is importlib.import_module(module).bench for name, module in zip(NAMES, modules,
                                                                                              strict=True))


@pytest.mark.parametrize(("name", "message"), [("skipgrams", "did you mean 'skipgram'?"),
                                               ("base", "ace, budget, conflicts, group, hierarchy, judging, kernels"),
                                               ("words", "there are: ace"), ("../x", "no '../x'")])
def test_an_unknown_name_lists_the_known_ones(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        bench.find(name)


def test_the_help_lists_and_describes_the_benches(embtrain_bench: Bench) -> None:
    code, lines, _ = embtrain_bench("--help")
    text = " ".join(" ".join(lines).split())
    assert code == 0 and all(f" {name} {bench.documentation(name)[:20]}" in text for name in NAMES)
    code, lines, _ = embtrain_bench("nn", "--rounds", "3", "--help")
    assert code == 0 and "\n".join(lines).endswith((nn.__doc__ or "").rstrip())


@pytest.mark.parametrize("args", [("--corpus", "walks", "ace"), ("ace", "--only", "walks"), ("--corpus=walks", "ace"),
                                  ("--only", "walks", "--", "ace")])
def test_the_help_describes_the_name_and_no_value_of_an_option(embtrain_bench: Bench, args: tuple[str, ...]) -> None:
    code, lines, _ = embtrain_bench(*args, "--help") if "--" not in args else embtrain_bench("--help", *args)
    assert code == 0 and "\n".join(lines).endswith(bench.documentation("ace").rstrip())


def test_the_help_with_values_alone_lists_the_benches(embtrain_bench: Bench) -> None:
    code, lines, _ = embtrain_bench("--corpus", "walks", "--help")
    assert code == 0 and any(line.startswith("  walks ") for line in lines)


def test_every_bench_has_a_line_of_documentation() -> None:
    for name in NAMES:
        first, _, rest = bench.documentation(name).partition("\n")
        assert first.endswith(".") and rest.startswith("\n"), name


@pytest.mark.parametrize("name", NAMES)
def test_the_help_has_numbers_and_words_in_place_of_names_of_the_code(name: str) -> None:
    module = importlib.import_module(bench.find(name).__module__)
    documented = bench.documentation(name)
    capitals = re.findall(r"\b[A-Z][A-Z0-9_]+\b", documented)
    assert [word for word in capitals if "_" in word or hasattr(module, word)] == []
    assert re.findall(r"\S+\.(?:py|h)\b", documented) == []


def listed(values: Sequence[float], last: str) -> str:
    """The values as a sentence has them: 1, 2 or 3."""
    return f"{', '.join(f'{value:g}' for value in values[:-1])} {last} {values[-1]:g}"


@pytest.mark.parametrize(("name", "phrases"), [
    ("budget", [f"gensim trains {budget.EPOCHS} epochs", *budget.SHARES, *budget.LAYOUTS, listed(budget.RATES, "or"),
                listed(budget.GENSIM_RATES, "or")]),
    ("conflicts", [f"next {conflicts.AT_ONCE} at", f"{conflicts.AT_ONCE // 16} of a thread"]),
    ("group", [listed(group.RATES, "and"), *(f"n{size}" for size in group.SIZES), group.ALL_ROWS, group.FOUR_BLOCKS]),
    ("hierarchy", [f"batches of {hierarchy.BATCH} pairs", *hierarchy.CASES]),
    ("judging", [f"first {judging.SAMPLE:,} pairs, {judging.ROWS} at once", *judging.RIVALS]),
    ("nn", [listed(list(nn.SECONDS.values()), "or"), "10,000, 50,000, 200,000 or a million classes",
            f"least {nn.MIN_STEPS} steps", listed(nn.RATES, "and"), f"{nn.FASTER:g} times shorter"]),
    ("ppmi", [listed(ppmi.SHIFTS, "or"), listed(ppmi.EXPONENTS, "or"), listed(budget.RATES, "or"), *budget.LAYOUTS]),
    ("quality", [f"train {quality.EPOCHS} epochs", *(f"{layout} " for layout in quality.LAYOUTS), "`-order`"]),
    ("ranking", [f"first {ranking.SAMPLE:,} triples", f"{ranking.BATCH} triples at once"]),
    ("reading", [f"{reading.LINE_WORDS} to an object"]),
    ("samplers", [f"{samplers.BATCHES} batches of {samplers.QUERIES} queries, {samplers.DRAWS} draws"]),
    ("skipgram", [f"train {skipgram.EPOCHS} epochs", *skipgram.LAYOUTS]),
    ("walks", [f"the {walks.TOP} nearest", *walks.LAYOUTS]),
])
def test_the_numbers_and_cases_of_the_help_are_those_of_the_code(name: str, phrases: list[str]) -> None:
    documented = " ".join(bench.documentation(name).split())
    assert [phrase for phrase in phrases if phrase not in documented] == []


CASES = ["PAIR-d100-t1", "PAIR-nce-d100-t1", "PAIR-d300-t1", "PAIR-d100-t2"]


@pytest.mark.parametrize(("only", "chosen"), [
    (None, CASES), (["PAIR"], CASES), (["PAIR-d100"], [CASES[0], CASES[3]]), (["PAIR-nce-d100-t1"], [CASES[1]]),
    (["PAIR-d300", "PAIR-d100-t2"], CASES[2:]),
])
def test_cases_are_chosen_by_name_or_beginning(only: list[str] | None, chosen: list[str]) -> None:
    assert choose(CASES, only) == chosen


@pytest.mark.parametrize("only", [["PAI"], ["PAIR", "CENTRE"], ["pair"], ["PAIR-d10"], ["t1"]])
def test_an_unknown_case_is_refused_with_the_list(only: list[str]) -> None:
    with pytest.raises(UsageError, match=f"--only: there is no case '{only[-1]}'; there are: {', '.join(CASES)}"):
        choose(CASES, only)


# --- the text of a bench -------------------------------------------------------------------------------------------

def test_a_prefix_ends_with_the_line_that_holds_its_last_word() -> None:
    corpus = Corpus(np.array([0, 1, 1, 2, 0, 2], np.int32), np.array([0, 2, 3, 6]), np.array([0, 6]),
                    Vocabulary(["a", "b", "ä"], np.array([2, 2, 2]), 6), {}, TextConfig())
    whole = ["a b\n", "b\n", "ä a ä\n"]
    for tokens, lines in ((0, 3), (99, 3), (6, 3), (4, 3), (3, 2), (2, 1), (1, 1)):
        assert [line.decode() for line in words._lines(corpus, tokens)] == whole[:lines], tokens


# --- the command ---------------------------------------------------------------------------------------------------

Bench = Callable[..., tuple[int, list[str], str]]


@pytest.fixture
def embtrain_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Bench:
    """`embtrain bench` in this process: exit code, lines of stdout, stderr."""
    monkeypatch.setenv("EMBTRAIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(progress, "quiet", False)
    monkeypatch.chdir(tmp_path)  # folder of crash reports

    def call(*args: str) -> tuple[int, list[str], str]:
        monkeypatch.setattr(sys, "argv", ["embtrain", "bench", *args])
        code = cli.run()
        out, err = capsys.readouterr()
        return code, out.splitlines(), err

    return call


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """600 words, each 8 times: as many as an adversary of 500 modes needs."""
    drawn = np.random.default_rng(0).permutation(np.repeat(np.arange(600), 8)).reshape(-1, 12)
    path = tmp_path_factory.mktemp("text") / "tiny.txt"
    words = ["".join(letters) for letters in product("bdfghklmnp", "aeiou", "bdfghklmnprt")]
    path.write_text("".join(" ".join(words[i] for i in line) + "\n" for line in drawn), encoding="utf-8")
    return path


def timed(embtrain_bench: Bench, name: str, text: Path, *args: str) -> dict[str, Any]:
    """Return the summary of one round; every round was printed before."""
    code, lines, err = embtrain_bench(name, "--corpus", str(text), "--rounds", "1", "--threads", "1", *args)
    assert code == 0, err
    summary: dict[str, Any] = json.loads(lines[-1])
    assert (summary["bench"], summary["rounds"]) == (name, 1) and set(summary["ours"]) == set(summary["ratio"])
    assert all(line.startswith("round 1 · ") for line in lines[:-1]) and len(lines) > len(summary["ours"]) + 1
    assert all(len(times) == 1 and times[0] > 0 for times in summary["ours"].values())
    return summary


@needs_core
def test_skipgram_against_gensim(embtrain_bench: Bench, text: Path) -> None:
    summary = timed(embtrain_bench, "skipgram", text, "--only", "CENTRE-d100,CENTRE-once")
    ours = {case: times[0] for case, times in summary["ours"].items()}
    assert list(ours) == ["CENTRE-d100-t1", "CENTRE-once-d100-t1"] and list(summary["rivals"]) == ["gensim"]
    outside = ours["CENTRE-once-d100-t1"] / ours["CENTRE-d100-t1"]
    assert summary["outside"] == {"CENTRE-d100-t1": pytest.approx(outside, rel=0.01)}
    (shares,) = summary["bound"].values()
    assert list(summary["bound"]) == ["CENTRE-d100-t1"] and shares.keys() == {"rows", "arithmetic", "draws"}
    assert min(shares.values()) > 0
    assert summary["about"]["tokens"] == 4800 and summary["about"]["words"] == 600


def test_a_text_whose_pairs_are_subsampled_away_is_refused_before_the_rounds(embtrain_bench: Bench, tmp_path: Path
                                                                             ) -> None:
    (tmp_path / "same.txt").write_text("the same words again and again\n" * 200)
    code, lines, err = embtrain_bench("skipgram", "--corpus", "same.txt", "--rounds", "1", "--only", "PAIR-d100")
    assert (code, lines) == (3, []) and err.splitlines()[-1] == (
        "embtrain: error: --corpus: same.txt: fewer than 1,000 pairs of words remain after text.sample, too few to be "
        "timed; give a longer text, or one with more words")


@needs_core
def test_wide_windows_are_compared_with_sgns(embtrain_bench: Bench, text: Path) -> None:
    summary = timed(embtrain_bench, "skipgram", text, "--only", "PAIR-d100,CENTRE-d100,CENTRE-ranking-nce-k20")
    ours = {case: times[0] for case, times in summary["ours"].items()}
    wide = "CENTRE-ranking-nce-k20-d100-t1"
    assert set(ours) == {"PAIR-d100-t1", "CENTRE-d100-t1", wide}
    assert summary["times_sgns"] == {wide: pytest.approx(ours[wide] / ours["PAIR-d100-t1"], rel=0.01)}


def test_only_the_wide_cases_have_other_numbers_of_negatives() -> None:
    settings = {name: case[4] for name, case in skipgram.cases([1]).items()}
    assert {name: settings[name]["negatives.k"] for name in settings if "-k20" in name or "-k64" in name} == {
        f"CENTRE-{strategy}-k{k}-d100-t1": k for strategy in ("sampled-softmax", "ranking-nce") for k in (20, 64)}
    assert settings["CENTRE-d100-t1"]["negatives.k"] == settings["CENTRE-nce-d100-t1"]["negatives.k"] == 5


@needs_core
def test_cbow_against_gensim(embtrain_bench: Bench, text: Path) -> None:
    summary = timed(embtrain_bench, "skipgram", text, "--only", "cbow-PAIR")
    assert list(summary["ours"]) == ["cbow-PAIR-d100-t1"] and list(summary["rivals"]) == ["gensim"]
    assert summary["bound"] == {} == summary["outside"]


def test_conflicts_grow_with_the_threads(embtrain_bench: Bench, text: Path) -> None:
    code, lines, err = embtrain_bench("conflicts", "--corpus", str(text), "--rounds", "1", "--threads", "1,2,8")
    assert code == 0, err
    summary = json.loads(lines[-1])
    found = {case: shares["ours"] for case, shares in summary["quality"].items()}
    assert list(found) == [f"{layout}-t{n}" for n in (1, 2, 8) for layout in ("PAIR", "CENTRE")]
    assert found["PAIR-t1"] == found["CENTRE-t1"] == {"output": 0, "copied": 0, "input": 0}
    assert 0 < found["PAIR-t2"]["output"] < found["PAIR-t8"]["output"] < 1
    assert found["PAIR-t8"]["copied"] < found["PAIR-t8"]["output"]


def test_a_failure_of_fasttext_gives_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def train_unsupervised(*_: object, **__: object) -> None:
        raise RuntimeError("Encountered NaN.")

    monkeypatch.setitem(sys.modules, "fasttext", SimpleNamespace(train_unsupervised=train_unsupervised))
    with pytest.raises(ResourceError, match=r"fastText: its training ended with Encountered NaN; repeat the command"):
        subword.fasttext(tmp_path / "text.txt", 1, (), ())


@needs_core
def test_subword_against_gensim(embtrain_bench: Bench, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(subword.SUBWORD, "buckets", 100)
    monkeypatch.setattr(subword, "BENCHMARKS", ("wordsim353",))
    summary = timed(embtrain_bench, "subword", text, "--only", "CENTRE")
    assert list(summary["ours"]) == list(summary["words_per_second"]) == ["CENTRE-t1"]
    assert "gensim" in summary["rivals"] and summary["about"]["unknown"] > 400      # no word of the benchmark occurs
    is_missing = summary["about"]["fasttext"].startswith("not installed: ")
    assert summary["ratio_rival"] == ("gensim" if is_missing else "fasttext")
    quality = summary["quality"]["CENTRE-t1"]
    assert quality["ours"].keys() == quality["gensim"].keys() == {"wordsim353"}


@needs_core
def test_rare_words_against_gensim(embtrain_bench: Bench, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both programs judge every pair, also of words that the text lacks, once for each seed."""
    monkeypatch.setitem(subword.SUBWORD, "buckets", 100)
    monkeypatch.setattr(rare, "BENCHMARKS", ("wordsim353",))        # which ships with gensim
    judged: list[tuple[int, list[str]]] = []
    of_vectors = words.quality
    monkeypatch.setattr(words, "quality", lambda vectors, names: (
        judged.append((len(vectors), list(names))), of_vectors(vectors, names))[1])
    seeds: list[int] = []
    ours, theirs = words.ours, subword.gensim
    monkeypatch.setattr(words, "ours", lambda *a, seed, **more: (seeds.append(seed), ours(*a, seed=seed, **more))[1])
    monkeypatch.setattr(subword, "gensim", lambda *a, seed: (seeds.append(seed), theirs(*a, seed=seed))[1])
    code, lines, err = embtrain_bench("rare", "--corpus", str(text), "--rounds", "2", "--threads", "1",
                                      "--only", "CENTRE-t1")
    assert (code, seeds) == (0, [1, 1, 2, 2]), err
    summary = json.loads(lines[-1])
    n = summary["about"]["words"] + summary["about"]["unknown"]
    assert judged == [(n, ["wordsim353"])] * 4 and summary["about"]["unknown"] > 400
    of_ours, of_theirs = (summary["spearman"][system] for system in ("CENTRE-t1", "gensim-t1"))
    assert len(set(of_ours)) == len(set(of_theirs)) == 2            # other seeds, other vectors
    assert summary["difference"]["CENTRE-t1"]["mean"] == pytest.approx(
        sum(a - b for a, b in zip(of_ours, of_theirs, strict=True)) / 2, abs=1e-4)


@needs_core
@pytest.mark.slow
def test_processes_in_turns(embtrain_bench: Bench, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each case has a rate of its own, and a prediction follows from its bytes and seconds."""
    code, lines, err = embtrain_bench("group", "--corpus", str(text))
    assert code == 3 and err.endswith(f"--corpus: {text}: is too short to hold text out; give a longer one\n")
    long_text = text.with_name("long.txt")
    long_text.write_text(text.read_text(encoding="utf-8") * 20, encoding="utf-8")
    for name, value in (("CHUNK", 512), ("HELD_OUT", 0.2), ("MIN_COUNT", 1), ("DIM", 8),
                        ("RATES", (0.01, 0.05)), ("SIZES", (1, 3)), ("BENCHMARKS", ("wordsim353",)), ("EPOCHS", 1)):
        monkeypatch.setattr(group, name, value)
    monkeypatch.setattr(SyncConfig, "interval", lambda self, chunk, engine: 1)
    monkeypatch.setitem(words.OURS, "train.sync.frequent_rows", 20)
    code, lines, err = embtrain_bench("group", "--corpus", str(long_text), "--rounds", "2", "--threads", "1")
    assert code == 0, err
    summary = json.loads(lines[-1])
    assert set(summary["ours"]) == {"n1", "n3", "n3-all", "n3-blocks4"} == set(summary["rate"])
    for name, trials in summary["trials"].items():
        assert summary["rate"][name] == float(max(trials, key=lambda rate: trials[rate]["test/log_likelihood"]))
    quality_of = {name: of_case["ours"] for name, of_case in summary["quality"].items()}
    assert "sync_megabytes" not in quality_of["n1"]
    assert 0 < quality_of["n3"]["sync_megabytes"] < quality_of["n3-all"]["sync_megabytes"]
    assert set(summary["difference"]) == {"n3", "n3-all", "n3-blocks4"}
    difference = summary["difference"]["n3"]["test/log_likelihood"]
    assert difference["mean"] == pytest.approx(quality_of["n3"]["test/log_likelihood"]
                                               - quality_of["n1"]["test/log_likelihood"], abs=1e-3)
    assert len(summary["predicted"]) == 32
    slow, fast = (summary["predicted"][f"16 machines of 1 cores, {speed} Gb/s, 1 blocks"] for speed in (10, 25))
    assert 0 < slow["speed_up"] < fast["speed_up"] < fast["hidden"] <= 16
    measured = quality_of["n3"]
    assert measured["sync_serial_seconds"] > 0 and measured["sync_cpu_seconds"] > 0
    assert all(measured[f"{part}_ms_{threads}"] > 0 for part in ("pack", "fold", "apply") for threads in (1, 2))
    alone = slow["seconds"] * slow["speed_up"]
    assert alone == pytest.approx(fast["seconds"] * fast["speed_up"], rel=1e-3)


@needs_core
def test_walks_against_gensim(embtrain_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walks, "NODES", 90)
    monkeypatch.setattr(walks, "OUTSIDE", 1)
    monkeypatch.setitem(walks.SETTINGS, "vector_size", 16)
    monkeypatch.setitem(walks.SETTINGS, "epochs", 8)
    code, lines, err = embtrain_bench("walks", "--rounds", "1", "--threads", "1")
    assert code == 0, err
    summary = json.loads(lines[-1])
    assert list(summary["ours"]) == ["PRIVATE-t1", "SHARED-t1", "SHARED10-t1"] and list(summary["rivals"]) == ["gensim"]
    shares = [share for of in summary["quality"].values() for share in (of["ours"], of["gensim"])]
    assert all(share["neighbours"] > 0.8 for share in shares)
    assert (summary["about"]["nodes"], summary["about"]["tokens"]) == (90, 90 * 10 * 40)
    assert embtrain_bench("walks", "--corpus", "x.txt")[0] == 2


def test_right_neighbours_are_those_of_the_community(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walks, "COMMUNITY", 3)
    monkeypatch.setattr(walks, "TOP", 2)
    vectors = KeyedVectors(2)
    vectors.add_vectors([str(i) for i in range(6)], np.array([[1, 0], [1, .1], [1, .2], [0, 1], [.1, 1], [1, .15]]))
    assert walks.right_neighbours(vectors) == pytest.approx((1 + 1 + 1 + 1 + 1 + 0) / 12)


def test_the_necessary_work_of_an_epoch_is_counted(monkeypatch: pytest.MonkeyPatch, text: Path) -> None:
    """With a second for each row, multiply-add and draw."""
    windows = words.read(text, 1).windows
    pairs, centres = 0, 0
    for block in windows.windows(0, 100, shuffle=False):
        pairs, centres = pairs + len(block.target), centres + len(block.centre)
    monkeypatch.setattr(bounds, "_each", lambda work, n: 1.0)
    found = bounds.of_epoch(windows, 7, {"a": bounds.Layout("row", 5, 1), "b": bounds.Layout("window", 5, 1),
                                         "c": bounds.Layout("block", 16, 8)})
    assert found == {"a": {"rows": 6 * pairs, "arithmetic": 21 * 6 * pairs, "draws": 5 * pairs},
                     "b": {"rows": pairs + 5 * centres, "arithmetic": 21 * (pairs + 5 * centres),
                           "draws": 5 * centres},
                     "c": {"rows": pairs + 2 * centres, "arithmetic": 21 * (pairs + 16 * centres),
                           "draws": 2 * centres}}


def test_negatives_drawn_once() -> None:
    table = AliasTable(torch.tensor([0.5, 0.5], dtype=torch.float64), torch.device("cpu"))
    random = torch.Generator().manual_seed(1)
    once = words.Once(table)
    first = once.draw((4, 3), random)
    assert first.shape == (4, 3) and torch.equal(once.draw((2, 3), random), first[:2])
    assert once.draw((50, 3), random).shape == (50, 3)


def test_starts_of_fresh_processes(embtrain_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "RIVALS", {"python": "pass"})                        # the others import for seconds
    code, lines, err = embtrain_bench("start", "--rounds", "2", "--threads", "1", "--only", "import,help")
    assert code == 0, err
    summary = json.loads(lines[-1])
    assert list(summary["ours"]) == ["import-t1", "help-t1"] and list(summary["rivals"]) == ["python"]
    assert all(cpu > 0 for times in summary["ours_cpu"].values() for cpu in times)


@pytest.mark.parametrize(("only", "before"), [
    ("import-t1,help-t2", ["pass", "import embtrain", "--help"]), ("import", ["pass", "import embtrain"])])
def test_each_case_starts_once_before_the_first_round(monkeypatch: pytest.MonkeyPatch, only: str, before: list[str]
                                                      ) -> None:
    """Also a case of the second group, which has another number of threads."""
    calls: list[str] = []
    monkeypatch.setattr(start, "RIVALS", {"python": "pass"})
    monkeypatch.setattr(start, "_start", lambda environment, *code: calls.append(code[-1]))
    monkeypatch.setattr(start, "run", lambda *_: {"calls": list(calls)})
    assert sorted(bench.measure("start", 1, only.split(","), [1, 2])["calls"]) == sorted(before)


@pytest.mark.parametrize(("code", "line"), [
    ("raise SystemExit(3)", "error: raise SystemExit(3): exit code 3: it printed no error"),
    ("import nosuch", "error: import nosuch: exit code 1: ModuleNotFoundError: No module named 'nosuch'")])
def test_a_start_that_fails_is_not_timed(embtrain_bench: Bench, monkeypatch: pytest.MonkeyPatch, code: str,
                                         line: str) -> None:
    monkeypatch.setattr(start, "RIVALS", {"python": "pass"})
    monkeypatch.setitem(start.CASES, "import", (code,))
    found = embtrain_bench("start", "--rounds", "1", "--threads", "1", "--only", "import")
    assert found == (3, [], f"embtrain: {line}\n")


@needs_core
@pytest.mark.slow
def test_the_start_of_fit_ends_at_its_first_update(embtrain_bench: Bench, text: Path,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that ends before it, or never updates, has another exit code."""
    summary = timed(embtrain_bench, "start", text)
    assert list(summary["ours"]) == ["import-t1", "help-t1", "fit-help-t1", "fit-t1", "fit-files-t1"]
    assert list(summary["rivals"]) == ["gensim", "torch", "python"] and summary["about"]["corpus"] == str(text)
    monkeypatch.setattr(start, "RIVALS", {"python": "pass"})
    monkeypatch.setitem(start.CASES, "fit", (start.UNTIL_UPDATE, "fit", "--help"))
    code, _, err = embtrain_bench("start", "--corpus", str(text), "--rounds", "1", "--threads", "1", "--only", "fit")
    assert code == 3 and "exit code 0: it printed no error" in err


def test_reading_against_gensim(embtrain_bench: Bench, text: Path) -> None:
    summary = timed(embtrain_bench, "reading", text, "--only", "read,second-start,json-lines")
    assert list(summary["ours"]) == list(summary["megabytes_per_second"]) == ["read-t1", "second-start-t1",
                                                                              "json-lines-t1"]
    found = {"words": 600, "tokens": 4800}
    assert summary["quality"] == {case: {"ours": found, "gensim": found} for case in summary["ours"]}


def test_judging_against_products(embtrain_bench: Bench, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "SAMPLE", 100)
    monkeypatch.setattr(judging, "ROWS", 7)
    long_text = text.with_name("judged.txt")
    long_text.write_text(text.read_text(encoding="utf-8") * 10, encoding="utf-8")
    summary = timed(embtrain_bench, "judging", long_text)
    assert list(summary["ours"]) == ["text-t1", "distinct-t1"] and list(summary["rivals"]) == ["torch", "numpy", "sort"]
    assert summary["about"]["pairs"] > summary["about"]["centres"] > 100 == summary["about"]["sample"]
    for programs in summary["quality"].values():
        ours = programs["ours"]
        assert 1 < ours["mean_rank"] < summary["about"]["words"]
        assert all(theirs == pytest.approx(ours, abs=1e-3) for theirs in programs.values())


@pytest.mark.parametrize(("name", "reason"), [("conflicts", "no word has a neighbour in its window"),
                                              ("judging", "no pair of words is held out for the test")])
def test_a_text_without_pairs_ends_with_one_line(embtrain_bench: Bench, tmp_path: Path, name: str, reason: str) -> None:
    text = tmp_path / "words.txt"
    text.write_text("\n".join("abcdefgh" * 50), encoding="utf-8")
    code, lines, err = embtrain_bench(name, "--corpus", str(text), "--rounds", "1", "--threads", "2")
    assert code == 3 and lines == [] and f"words.txt: {reason}" in err


def test_every_way_of_judging_gives_the_same_ranks() -> None:
    """Also of equal scores, which are many: seven values among 90 candidates."""
    draw = torch.Generator().manual_seed(3)
    z = torch.randint(-3, 4, (40, 90), generator=draw).float()
    target = torch.randint(90, (40,), generator=draw)
    s = z.gather(1, target[:, None]).double()
    for judge in judging.RIVALS.values():
        log_p, rank = judge(z, target)
        assert torch.equal(rank.double(), ((z > s).sum(1) + ((z >= s).sum(1) + 1)).double() / 2)
        torch.testing.assert_close(log_p.double(), s[:, 0] - z.double().logsumexp(1), atol=1e-5, rtol=0)


@needs_core
def test_ace_against_sgns(embtrain_bench: Bench, text: Path) -> None:
    summary = timed(embtrain_bench, "ace", text)
    assert list(summary["ours"]) == ["ace-own-t1", "ace-full-own-t1"] and list(summary["rivals"]) == ["sgns"]
    for case, times in summary["times_sgns"].items():
        assert times == pytest.approx(1 / summary["ratio"][case], rel=0.02)
    assert summary["about"]["texts"]["own"] == {"corpus": str(text), "tokens": 4800, "words": 600, "epochs": 3}


@needs_core
def test_quality_against_gensim(embtrain_bench: Bench, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Differences are those of the means over seeds in the last line."""
    worth = iter([0.0, 0.5, 0.2, 0.4, 0.3])  # calls before the rounds; gensim, ours; gensim, ours
    monkeypatch.setattr(words, "quality", lambda vectors, names: {name: x for x in [next(worth)] for name in names})
    seeds: list[int] = []
    ours = words.ours
    monkeypatch.setattr(words, "ours", lambda *a, seed, **more: (seeds.append(seed), ours(*a, seed=seed, **more))[1])
    code, lines, err = embtrain_bench("quality", "--corpus", str(text), "--rounds", "2", "--threads", "1",
                                      "--only", "PAIR-t1")
    summary = json.loads(lines[-1])
    assert (code, seeds) == (0, [1, 2]), err
    assert summary["spearman"]["PAIR-t1/mean"] == [0.2, 0.3] and summary["spearman"]["gensim-t1/men"] == [0.5, 0.4]
    d = summary["difference"]["PAIR-t1"]
    assert d["mean"] == pytest.approx(-0.2) and d["low"] == pytest.approx(-0.2 - 12.706 * 0.1, rel=1e-3)
    assert d["high"] == pytest.approx(-0.2 + 12.706 * 0.1, rel=1e-3)


@needs_core
def test_a_text_without_benchmark_words_is_refused_before_training(
        embtrain_bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "gensim", lambda *_, **__: pytest.fail("it trained"))
    monkeypatch.setattr(quality, "BENCHMARKS", ("wordsim353",))      # which ships with gensim
    (tmp_path / "t.txt").write_text("blorp snark wug dax\n" * 200)
    code, out, err = embtrain_bench("quality", "--corpus", str(tmp_path / "t.txt"), "--rounds", "1", "--threads", "1",
                                    "--only", "PAIR")
    assert (code, out) == (3, []) and "t.txt: it covers fewer than two pairs of wordsim353" in err


@needs_core
def test_poincare_embeddings_against_gensim(embtrain_bench: Bench, tmp_path: Path,
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    """A binary tree of 15 concepts, whose pairs are known hypernyms: every program reconstructs part of them."""
    monkeypatch.setattr(hierarchy, "CASES", {"mammals": ("none", 30, 5, True), "nouns": ("none", 1, 0, False)})
    monkeypatch.setattr(hierarchy, "K", 4)
    pairs = "".join(f"{i}\t{(i - 1) // 2}\n" for i in range(1, 15))
    parts = {"vocab": "".join(f"{i}\tc{i}\n" for i in range(15)), "train_10percent": pairs, "train_0percent": pairs,
             "valid": "7\t1\n", "valid_neg": "7\t2\n", "test": "8\t1\n", "test_neg": "8\t2\n"}
    split = tmp_path / "split"
    split.mkdir()
    for name, lines in parts.items():
        (split / f"tree_closure.tsv.{name}").write_text(lines)
    summary = timed(embtrain_bench, "hierarchy", split)
    assert list(summary["ours"]) == ["mammals-t1", "nouns-t1"]
    assert list(summary["rivals"]) == ["gensim", "torch-sparse-sgd"]
    assert summary["about"]["pairs"] == {"mammals-t1": 14, "nouns-t1": 14}
    for reached in summary["quality"]["mammals-t1"].values():
        assert 1 <= reached["mean rank"] < 7 and 0 < reached["map"] <= 1      # 7: about that of chance
    assert summary["quality"]["nouns-t1"] == {"ours": {}, "gensim": {}, "torch-sparse-sgd": {}}


def test_reconstruction_ranks_among_unknown_candidates() -> None:
    """On a line: u = 0 at 0, its hypernyms 1 and 3, the others 2 and 4 farther and farther away."""
    x = np.array([[0.0], [0.1], [0.2], [0.3], [0.4]])
    assert hierarchy.reconstruction(x, np.array([[0, 1], [0, 3]])) == pytest.approx((1.5, (1 + 2 / 3) / 2))


@needs_core
def test_ranking_against_torch(embtrain_bench: Bench, tmp_path: Path) -> None:
    summary = timed(embtrain_bench, "ranking", a_folder(tmp_path / "kg"))
    assert list(summary["ours"]) == ["l1-d50-t1", "l2-d50-t1"] and "torch" in summary["rivals"]
    assert summary["about"]["triples"] == 10 and summary["about"]["pykeen"]
    for measured in summary["quality"].values():
        assert all(theirs == pytest.approx(measured["ours"], abs=1e-3) for theirs in measured.values())


@pytest.mark.parametrize("there", [True, False])
def test_transe_against_pykeen(embtrain_bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool,
                              ) -> None:
    """With and without the rival; its own time is simulated, because PyKEEN is not required."""
    draw = np.random.default_rng(0)
    lines = ["\t".join((f"e{h}", f"r{r}", f"e{t}")) for h, r, t in zip(
        draw.integers(0, 60, 900), draw.integers(0, 5, 900), draw.integers(0, 60, 900), strict=True)]
    (tmp_path / "tiny.tsv").write_text("\n".join(dict.fromkeys(lines)) + "\n", encoding="utf-8")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if there else None)
    monkeypatch.setattr(transe, "pykeen", lambda task, case, threads: Timed(100.0, 99.0, {}))
    code, out, err = embtrain_bench("transe", "--corpus", "tiny.tsv", "--rounds", "1", "--threads", "1", "--only",
                                     "k64")
    assert code == 0, err
    summary = json.loads(out[-1])
    assert list(summary["ours"]) == ["k64-l1-t1", "k64-l2-shared-t1"] and summary["about"]["entities"] == 60
    assert set(summary["ratio"]) == (set(summary["ours"]) if there else set())
    assert summary["ratio_rival"] == ("pykeen" if there else None)
    assert there or summary["about"]["pykeen"] == "not installed: pip install pykeen"
    speed = summary["quality"]["k64-l1-t1"]["ours"]["positives_per_cpu_second"]
    assert speed == pytest.approx(1e6 / summary["ours_cpu"]["k64-l1-t1"][0], rel=1e-3)


def test_warnings_of_pykeen_are_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyKEEN pins memory also on a machine without an accelerator, and PyTorch warns of that."""
    def train(task: Any, case: Any, positives: Any, optimizer: str, batch: int) -> Timed:
        warnings.warn("'pin_memory' argument is set as true but no accelerator is found", UserWarning, stacklevel=2)
        return Timed(1.0, float(batch), {})

    monkeypatch.setattr(transe, "_pykeen", train)
    monkeypatch.setattr(transe, "epoch_triples", lambda task: (torch.zeros(4, dtype=torch.int64),) * 3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert transe.pykeen(SimpleNamespace(), transe.CASES["k1-l1"], 1).cpu_seconds == 256  # type: ignore[arg-type]
    assert caught == []


@needs_core
def test_whole_runs_of_transe_rank_the_test_triples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the GPU's cases, with the CPU in its place."""
    runs = {name: (strategy, {**sets, "model.dim": 8, "negatives.k": 8, "train.epochs": 2})
            for name, (strategy, sets) in transe.RUNS.items()}
    monkeypatch.setattr(transe, "RUNS", runs)
    summary = transe.on_gpu(1, [1], ["softmax"], str(a_folder(tmp_path / "graph")), "cpu")
    assert list(summary["ours"]) == ["softmax-l2-d128-t1"] and summary["about"]["device"] == "cpu"
    mine, core = summary["quality"]["softmax-l2-d128-t1"].values()
    assert 0 < mine["mrr"] == core["mrr"] <= 1 and mine["hits@10"] >= mine["hits@1"]
    assert 0 < mine["training_seconds"] < summary["ours"]["softmax-l2-d128-t1"][0]


def full_w2v(folder: Path, monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    """Put a program named FULL-W2V first on the PATH; its lines of Python have the options as `given`."""
    program = folder / "bin" / "FULL-W2V"
    program.parent.mkdir(exist_ok=True)
    program.write_text("\n".join([f"#!{sys.executable}", "import struct, sys",
                                  "given = dict(zip(sys.argv[1::2], sys.argv[2::2]))", *lines]))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")


@needs_core
def test_windows_on_a_gpu_are_compared_with_full_w2v(text: Path, tmp_path: Path,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    """With the CPU in the GPU's place, and a program that gives each word a random vector."""
    full_w2v(tmp_path, monkeypatch, "import random", "words = sorted(set(open(given['-train']).read().split()))",
             "out, dim = open(given['-output'], 'wb'), int(given['-size'])",
             "out.write(b'%d %d\\n' % (len(words), dim))",
             "for word in words:",
             "    row = [random.gauss(0, 1) for _ in range(dim)]",
             "    out.write(word.encode() + b' ' + struct.pack(f'{dim}f', *row) + b'\\n')",
             "assert {len(line.split()) for line in open(given['-train'])} == {800, 1000}",
             "assert (given['-negative'], given['-window'], given['-iter'], given['-threads']) == ('5', '3', '2', '1')",
             "print('\\nOverall Words: 7\\nOverall time: 0.250000')")
    monkeypatch.setattr(words, "quality", lambda vectors, names: {"words": len(vectors.words)})
    summary = skipgram.on_gpu(1, [1], ["PAIR", "CENTRE"], str(text), "cpu")
    assert summary["rivals"]["FULL-W2V"] == {"CENTRE-d100-t1": [0.25]}
    assert set(summary["rivals"]["compiled core"]) == {"PAIR-d100-t1", "CENTRE-d100-t1"}
    assert summary["ratio_others"]["FULL-W2V"]["CENTRE-d100-t1"] == pytest.approx(
        0.25 / summary["ours"]["CENTRE-d100-t1"][0], rel=0.05)
    assert summary["quality"]["CENTRE-d100-t1"]["FULL-W2V"] == summary["quality"]["CENTRE-d100-t1"]["ours"]


def test_full_w2v_that_fails_is_named_with_its_last_line(text: Path, tmp_path: Path,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    full_w2v(tmp_path, monkeypatch, "sys.exit('reading\\nno device')")
    with pytest.raises(ResourceError, match="FULL-W2V: ended with status 1: no device; run it alone on "):
        words.full_w2v(str(tmp_path / "bin" / "FULL-W2V"), text, 1, 1, 8, 1)


def test_the_triples_of_an_epoch_are_given_as_head_relation_and_tail() -> None:
    class Played:
        """Two triples: (1, 0, 2) with open tail, (3, 1, 4) with open head."""

        class Examples:
            def n_blocks(self, epoch: int, block: int) -> int:
                return 2

            def blocks(self, epoch: int, block: int) -> Any:
                fields = {"entity": [1, 4], "relation": [0, 1], "slot": [0, 1], "target": [2, 3]}
                yield SimpleNamespace(**{name: torch.tensor(x) for name, x in fields.items()})

        examples = Examples()

    assert [x.tolist() for x in transe.epoch_triples(Played())] == [[1, 3], [0, 1], [2, 4]]  # type: ignore[arg-type]


def test_growth_is_of_medians() -> None:
    """Two rounds: the median is the mean of both."""
    small, *_, large = samplers.SIZES
    summary = {"ours": {f"x-{small}-t1": [1.0, 3.0], f"x-{large}-t1": [2.0, 10.0]},
               "rivals": {"exp": {f"x-{small}-t1": [1.0, 1.0], f"x-{large}-t1": [5.0, 7.0]}}}
    chosen = {f"x-{size}-t1": ("x", size, 1) for size in (small, large)}
    assert samplers.growth(summary, chosen) == {"x-t1": 3.0, "exp-t1": 6.0}


def test_samplers_against_exp(embtrain_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samplers, "SIZES", {"a": 100, "b": 300})
    monkeypatch.setattr(samplers, "BATCHES", 3)
    code, lines, err = embtrain_bench("samplers", "--rounds", "1", "--threads", "1")
    assert code == 0, err
    summary = json.loads(lines[-1])
    assert list(summary["ours"]) == [f"{case}-{size}-t1" for size in "ab" for case in samplers.CASES]
    assert set(summary["ratio"]) == set(summary["ours"]) == set(summary["build"]) == set(summary["megabytes"]) - {
        "rff-D1000-500k"}
    assert set(summary["growth"]) == {f"{name}-t1" for name in ("exp", *samplers.CASES)}
    assert 25 < summary["megabytes"]["rff-D1000-500k"] < 150
    worth = {case.removesuffix("-b-t1"): row["ours"]["KL"] for case, row in summary["quality"].items() if "-b-" in case}
    assert worth["cluster"] < worth["rff"] < worth["unigram"] and worth["cluster"] < 0.2
    assert lines[0].startswith("round 1 · exp · ") and len(lines) == 2 * (1 + len(samplers.CASES)) + 1


def test_trees_of_other_widths_run_if_they_are_named(embtrain_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samplers, "SIZES", {"a": 100})
    monkeypatch.setattr(samplers, "BATCHES", 2)
    code, lines, err = embtrain_bench("samplers", "--rounds", "1", "--threads", "1",
                                      "--only", "quadratic,rff-tree,tree")
    assert code == 0, err
    summary = json.loads(lines[-1])
    held = summary["megabytes"]
    trees = [f"{tree}-a-t1" for tree in ("tree-D50", "rff-tree", "tree-D500", "tree-D1000")]
    assert set(summary["ours"]) == {"quadratic-a-t1", "rff-tree-float32-a-t1", *trees}
    widths = [held[tree] for tree in trees]
    assert widths == sorted(set(widths)), "a wider map takes more"
    assert held["rff-tree-float32-a-t1"] > 1.5 * held["rff-tree-a-t1"]


def test_kmeans_against_scikit_learn(embtrain_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samplers, "SIZES", {"a": 400, "b": 900})
    code, lines, err = embtrain_bench("kmeans", "--rounds", "2", "--threads", "1", "--only", "b")
    assert code == 0, err
    summary = json.loads(lines[-1])
    assert list(summary["ours"]) == ["b-t1"] and next(iter(summary["rivals"])) == "scikit-learn"
    found = summary["quality"]["b-t1"]
    assert found["ours"]["inertia"] < 1.05 * found["scikit-learn"]["inertia"] < 1
    assert 900 / 120 <= found["ours"]["largest"] < 900
    assert embtrain_bench("kmeans", "--corpus", "x.txt")[0] == 2


def test_means_run_once_on_few_vectors_before_the_first_round(embtrain_bench: Bench, monkeypatch: pytest.MonkeyPatch
                                                              ) -> None:
    monkeypatch.setattr(samplers, "SIZES", {"a": 400})
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)             # no faiss
    calls: dict[str, list[tuple[int, int]]] = {"kmeans": [], "by_scikit_learn": []}
    for name, stored in calls.items():
        monkeypatch.setattr(kmeans, name, lambda x, k, seed, stored=stored: (
            stored.append((len(x), seed)), torch.arange(len(x)) % k)[1])
    assert embtrain_bench("kmeans", "--rounds", "2", "--only", "a")[0] == 0
    expected = [(kmeans.WARM_UP[0], 0), (400, 1), (400, 2)]
    assert calls == {"kmeans": expected, "by_scikit_learn": expected}


def test_exp_is_drawn_and_reported_as_the_softmax() -> None:
    model = samplers.Planted(200)
    exact, h = samplers.ExactSoftmax(model, 1), samplers.TAU * model.batches[0].vector
    log_p = (h @ model.c.T).log_softmax(1)
    seen = torch.zeros(samplers.QUERIES, 200)
    for _ in range(500):
        ids, log_q = exact.draw(h)
        torch.testing.assert_close(log_q.float(), log_p.gather(1, ids), atol=1e-4, rtol=0)
        seen.scatter_add_(1, ids, torch.ones(ids.shape))
    assert float((seen / 5000 - log_p.exp()).abs().sum(1).max()) < 0.25


def test_kernels_by_their_error(embtrain_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = torch.Generator().manual_seed(1)
    h, c = (torch.nn.functional.normalize(torch.randn(300, 16, generator=draw), dim=1) for _ in range(2))
    monkeypatch.setattr(kernels, "pairs", lambda: (h, c))
    monkeypatch.setattr(kernels, "TAUS", (0.5, 1.0))
    code, lines, err = embtrain_bench("kernels", "--rounds", "1", "--threads", "1", "--only",
                                      "quadratic,rff-100,rff-1000,orthogonal-1000,positive-1000,maclaurin-1000")
    assert code == 0, err
    worth = {case: values["ours"] for case, values in json.loads(lines[-1])["quality"].items()}
    for values in worth.values():
        assert values["exp τ=1"] == pytest.approx(values["gauss τ=1"] * math.exp(2), rel=1e-3)
    error = {case: values["gauss τ=0.5"] for case, values in worth.items()}
    # With D frequencies: (1 + K(2δ) - 2 K(δ)²) / 2D, δ = h - c (Sutherland and Schneider 2015).
    k = (0.5 * ((h * c).sum(1) - 1)).exp()
    assert error["rff-100-t1"] == pytest.approx(float((1 + k ** 4 - 2 * k ** 2).mean()) / 200 * 1e6, rel=0.15)
    assert error["orthogonal-1000-t1"] < 0.5 * error["rff-1000-t1"] < 0.1 * error["rff-100-t1"]
    assert 0 < error["positive-1000-t1"] < error["rff-100-t1"] and error["maclaurin-1000-t1"] > 0
    square = (h * c).sum(1).double().square()
    left = np.polyfit(square, k.double(), 1, full=True)[1][0] / len(k)
    assert error["quadratic-t1"] == pytest.approx(1e6 * left, rel=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_no_bench_ignores_an_option(embtrain_bench: Bench, name: str) -> None:
    """It uses the options that are its parameters, and the others are refused before it runs."""
    function = bench.find(name)
    parameters = inspect.signature(function).parameters
    assert set(parameters) <= {"rounds", "only", *bench.NEUTRAL} and {"rounds", "only"} <= set(parameters)
    body = ast.parse(inspect.getsource(function)).body[0].body                                # type: ignore[attr-defined]
    used = {node.id for part in body for node in ast.walk(part) if isinstance(node, ast.Name)}
    assert set(parameters) <= used
    given = {"threads": "2", "corpus": "x.txt", "device": "cuda"}
    for option in bench.NEUTRAL.keys() - parameters.keys():
        code, out, err = embtrain_bench(name, f"--{option}", given[option])
        assert (code, out) == (2, []) and err.startswith(f"embtrain: error: --{option}: the bench {name} "), err


def test_one_thread_is_a_number_of_threads_for_every_bench(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "find", lambda name: lambda rounds, only: {"rounds": rounds, "only": only})
    assert bench.measure("kmeans", 3, ["b"], [1]) == {"rounds": 3, "only": ["b"]}
    with pytest.raises(UsageError, match=r"^--threads: the bench kmeans runs on one thread; remove it, or give 1$"):
        bench.measure("kmeans", 3, None, [1, 2])


@pytest.mark.parametrize("args", [("group", "--threads", "1,2"), ("start", "--only", "help", "--corpus", "x.txt")])
def test_values_that_a_bench_would_ignore_are_refused(embtrain_bench: Bench, args: tuple[str, ...]) -> None:
    code, out, err = embtrain_bench(*args)
    assert (code, out) == (2, []) and f"the bench {args[0]}" in err


def test_losses_as_modules_against_cross_entropy(embtrain_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step takes as long as every other, so that all methods make the same 40 steps."""
    monkeypatch.setattr(nn, "SIZES", {"Va": 300})
    monkeypatch.setattr(nn, "SECONDS", {"Va": 40.0})
    monkeypatch.setattr(nn, "BATCHES", {"B64": 64})
    monkeypatch.setattr(nn, "RATES", (1e-6, 0.2))
    monkeypatch.setattr(nn, "timed", lambda work, wait: (1.0, 1.0, work()))
    code, lines, err = embtrain_bench("nn", "--rounds", "3", "--threads", "1", "--only", "Va-B64")
    assert code == 0, err
    chosen = [line for line in err.splitlines() if line.startswith("bench: choosing the learning rate of ")]
    assert len(chosen) == len(nn.RIVALS) + len(nn.OURS)
    assert chosen[0].endswith(" cross-entropy: 2 trainings of 40 s each, or a little more")
    summary = json.loads(lines[-1])
    cases = [f"Va-B64-{method}-t1" for method in nn.OURS]
    assert list(summary["ours"]) == list(summary["difference"]) == cases
    assert list(summary["rivals"]) == ["cross-entropy", "in-batch"] and summary["ours"][cases[0]] == [100.0] * 3
    optimum = summary["about"]["optimum"]["Va"]
    for case, method in zip(cases, nn.OURS, strict=True):
        assert summary["about"]["rates"][case] == {"cross-entropy": 0.2, "in-batch": 0.2, method: 0.2}
        own, rival = summary["quality"][case]["ours"], summary["quality"][case]["cross-entropy"]
        assert own["steps"] == rival["steps"] == 40 and own["recall@10"] == own["recall@10-same-steps"]
        assert -math.log(300) < own["log-likelihood"] < optimum["log-likelihood"]
        assert own["recall@10"] > 0.5 * optimum["recall@10"]
        for metric in ("log-likelihood", "recall@10"):
            found = summary["difference"][case][metric]
            assert found["mean"] == pytest.approx(own[metric] - rival[metric], abs=2e-4)
            assert found["low"] < found["mean"] < found["high"]
    theirs = summary["quality"][cases[0]]["in-batch"]
    assert theirs["log-likelihood"] < theirs["log-likelihood-plus-log-q"]


@pytest.mark.slow
def test_a_translator_against_cross_entropy_and_a_beam(embtrain_bench: Bench) -> None:
    for case, rival, measure in (("cosine-v6000-t1", "cross-entropy", "pairs_per_second"),
                                 ("decode-v6000-t1", "beam-5", "sentences_per_second"),
                                 ("decode-bfloat16-v6000-t1", "beam-5", "sentences_per_second")):
        summary = timed(embtrain_bench, "nmt", Path("grammar"), "--only", case)
        assert list(summary["ours"]) == [case] and set(summary["quality"][case]) == {"ours", rival}
        assert all(speed[measure] > 0 for speed in summary["quality"][case].values())


@pytest.mark.parametrize(("case", "message"), [("cosine-v6000", "has 1 of the 7 blocks of training pairs needed"),
                                               ("decode-v6000", "has 1 of the 200 test sentences needed")])
def test_a_translator_of_few_sentences_is_not_timed(embtrain_bench: Bench, tmp_path: Path, case: str,
                                                    message: str) -> None:
    lines = [f"satz {i} mit {i % 7} worten\tsentence {i} of {i % 7} words\n" for i in range(60)]
    (tmp_path / "pairs.tsv").write_text("".join(lines))
    code, out, err = embtrain_bench("nmt", "--corpus", str(tmp_path / "pairs.tsv"), "--rounds", "1", "--threads", "1",
                                    "--only", case)
    assert (code, out) == (3, []) and f"pairs.tsv: {message}" in err


def test_vmf_against_scipy(embtrain_bench: Bench) -> None:
    """Both measure the same: loss and gradient are equal to four digits."""
    code, lines, _ = embtrain_bench("vmf", "--rounds", "1", "--threads", "1")
    summary = json.loads(lines[-1])
    assert code == 0 and list(summary["ratio"]) == ["loss-d300-t1", "normaliser-d300-t1"] == list(summary["ours"])
    for measured in summary["quality"].values():
        assert measured["ours"] == pytest.approx(measured["scipy"], rel=1e-5)
        assert measured["ours"]["gradient"] > 1


def test_only_some_cases_of_reading(embtrain_bench: Bench, text: Path) -> None:
    assert list(timed(embtrain_bench, "reading", text, "--only", "read")["ours"]) == ["read-t1"]


def test_without_pyarrow_parquet_is_left_out_with_a_warning(embtrain_bench: Bench, text: Path,
                                                            caplog: pytest.LogCaptureFixture,
                                                            monkeypatch: pytest.MonkeyPatch) -> None:
    remedy = "pip install 'embtrain[parquet]'"
    monkeypatch.setattr(reading, "find_spec", lambda name: None)
    monkeypatch.setattr(reading, "run", lambda bench, unit, groups, *_: {
        "ours": {case: [1.0] for one in groups for case in one.ours}})
    summary = bench.measure("reading", 1, None, [1], str(text))
    assert list(summary["ours"]) == [f"{kind}-t1" for kind in reading.KINDS if kind != "parquet"]
    assert caplog.messages == [f"bench: pyarrow is not installed, so parquet is not timed; {remedy}"]
    code, _, err = embtrain_bench("reading", "--only", "parquet")
    assert (code, err) == (2, f"embtrain: error: --only: parquet: pyarrow is not installed; {remedy}\n")


@pytest.mark.parametrize("args", [
    ("skipgram", "--threads", "0"), ("reading", "--threads", "1,0"), ("ace", "--threads", "two"),
    ("skipgram", "--threads", "1025"), ("skipgram", "--threads", "1,"), ("nothing",),
    *((name, "--only", "NOTHING") for name in NAMES), ("skipgram", "--only", "PAIR,PAIR-d200"),
    ("skipgram", "--only", "PAIR-nce-d300"), ("ace", "--corpus", "x.txt", "--only", "ace-small"),
    ("vmf", "--corpus", "x.txt"),
])
def test_impossible_timings_end_with_one_line(embtrain_bench: Bench, args: tuple[str, ...]) -> None:
    code, out, err = embtrain_bench(*args)
    assert (code, out, len(err.splitlines())) == (2, [], 1), err
    assert err.startswith("embtrain: error: ")


def test_a_repeated_number_of_threads_counts_once(embtrain_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(bench, "find", lambda name: lambda rounds, threads, only: calls.append(threads) or {})
    assert embtrain_bench("skipgram", "--threads", "2,1,2")[:2] == embtrain_bench("skipgram")[:2] == (0, ["{}"])
    assert calls == [[2, 1], (1, 2)]


def test_quiet_prints_the_summary_alone(embtrain_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    work = Group(1, {"one": lambda: Timed(1, 1, {})})
    monkeypatch.setattr(bench, "find", lambda name: lambda rounds, only: run("x", "s", [work], rounds, {}))
    code, out, err = embtrain_bench("x", "--rounds", "3", "--quiet")
    assert (code, len(out), err) == (0, 1, "") and json.loads(out[0])["ours"] == {"one": [1, 1, 1]}
    assert len(embtrain_bench("x", "--rounds", "3")[1]) == 4
    code, out, err = embtrain_bench("x", "--rounds", "3", "--json")
    assert (code, len(err.splitlines())) == (0, 3) and len(out) > 4 and json.loads("\n".join(out))["ours"]


def test_the_machine_is_described() -> None:
    assert {"embtrain", "python", "machine", "processor", "cores", "load"} == set(base.machine())
