"""Language models from the command line to the report: every kind of negatives, refusals, likelihood against a loop,
and interrupted runs."""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.in_process import in_process
from helpers.runs import assert_same_run, cache, command, fit, gain, interrupted, no_page, state, trained, value  # noqa: F401

from embtrain import experiment
from embtrain.common import machine
from embtrain.common.errors import DataError, UsageError
from embtrain.data.text import streams
from embtrain.evaluate.language import with_perplexity
from embtrain.experiment import Settings
from embtrain.experiment.run import components, scoring, started, stored
from embtrain.experiment.tasks import base as tasks

pytestmark = pytest.mark.long

WORDS = [a + b for a in "bdfk" for b in "aeiou"]
SETS = ["model.dim=8", "model.dropout=0", "language.streams=4", "train.chunk=40", "train.batch=40", "train.epochs=2",
        "train.lr=0.02", "language.valid=0.1", "language.test=0.1", "evaluate.resamples=40", "evaluate.piece=20",
        "train.log_every=2", "train.checkpoint_every=1e9"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten small documents where each word has one successor; lines begin and end at any word."""
    folder, draw = tmp_path_factory.mktemp("text"), np.random.default_rng(0)
    for d in range(10):
        lines = [" ".join(WORDS[(int(first) + i) % 20] for i in range(6)) for first in draw.integers(0, 20, 6)]
        (folder / f"{d}.txt").write_text("\n".join(lines) + "\n")
    return folder


def settings(corpus: Path, strategy: str, *more: str) -> Settings:
    return experiment.resolve(strategy, "lm", str(corpus), sets=[*SETS, *more], threads=1)


# --- combinations -------------------------------------------------------------------------------------------

def test_it_learns_a_repeating_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n".join([" ".join(WORDS[:7])] * 80) + "\n")
    config = settings(tmp_path / "a.txt", "softmax", "language.valid=0", "train.epochs=6", "train.lr=0.05")
    built = components.build(config, tasks.read(config))
    trained(built, 60, tmp_path)
    test = streams.heldout(built.task.train.ids, built.task.eos, 80)  # type: ignore[attr-defined]
    rows = with_perplexity(scoring.likelihood(built, test, "train", config.evaluate))  # type: ignore[arg-type]
    result = {row.metric: row.value for row in rows}
    assert 1 <= result["perplexity"] < 1.1 and result["hits@1"] > 0.95  # type: ignore[operator]


@pytest.mark.parametrize("strategy", [
    "sgns", "nce-learned-z", "ranking-nce", "uniform", "exp", "quadratic", "rff", "rff-leaf", "cluster", "in-batch",
    "cross-entropy", "semi-hard", "ace-full"])
def test_it_learns_from_every_kind_of_negatives(corpus: Path, tmp_path: Path, strategy: str) -> None:
    more = ["negatives.min_perplexity=5"] if strategy.startswith("ace") else []
    more += ["negatives.inner.k=15", "negatives.k=5"] if strategy == "semi-hard" else []
    config = settings(corpus, strategy, "train.lr=0.05", "train.chunk=80", "train.batch=80", *more)
    assert gain(config, 30, tmp_path) > 0.06


@pytest.mark.parametrize(("strategy", "sets", "message"), [
    ("sgns", ["negatives.filter=observed"], r"^negatives\.filter: observed: .* set negatives\.filter: none or target$"),
    ("sgns", ["train.chunk=null"], r"^train\.chunk: None: .* e\.g\. 140$"),
    ("sgns", ["train.chunk=3"], r"^train\.chunk: 3: a block contains a chunk of each of the 4 streams"),
    ("sgns", ["train.batch=10"], r"^train\.batch: 10: an update takes a whole block, or .* set train\.batch: 40$"),
    ("softmax", ["train.engine=fused"], r"train\.engine: fused: model\.name: lm: the kernels support only skipgram"),
    ("softmax", ["train.patience=1", "evaluate.words=0"], r"train\.patience: nothing is held out; set evaluate\.words"),
    ("softmax", ["text.window=2"], r"text: unknown key"),
])
def test_impossible_combinations_are_refused_before_training(corpus: Path, tmp_path: Path, strategy: str,
                                                             sets: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        fit(settings(corpus, strategy, *sets), tmp_path / "run")
    assert not (tmp_path / "run" / "scores.json").exists()


def test_a_text_too_short_for_its_streams_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a b a b\n" * 3)
    with pytest.raises(DataError, match=r"15 training words are too few for 40 streams; lower language\.streams"):
        tasks.read(settings(tmp_path / "a.txt", "softmax", "language.streams=40", "train.chunk=80"))


def test_updates_smaller_than_a_block_process_it_in_order(corpus: Path, tmp_path: Path) -> None:
    """Without negatives, blocks of 40 updated 20 words at a time equal blocks of 20."""
    tables = []
    for block, blocks in ((40, 4), (20, 8)):
        config = settings(corpus, "cross-entropy", f"train.chunk={block}", "train.batch=20", "train.shuffle=false")
        built = components.build(config, tasks.read(config))
        trained(built, blocks, tmp_path)
        tables.append(built.model)
    assert tables[0].updates == tables[1].updates == 8
    for one, other in zip(tables[0].parameters(), tables[1].parameters(), strict=True):
        torch.testing.assert_close(one, other)


# --- evaluation -----------------------------------------------------------------------------------------------

@torch.no_grad()
def by_hand(built: components.Components, part: str, noise: list[float] | None) -> list[float]:
    """Return log p of each word of a part from the scores of every candidate, with log q from `noise` added."""
    batch, out = built.task.heldout(part), []
    query = scoring.encode_heldout(built, batch)
    for i, target in enumerate(batch.target.tolist()):
        one = query.rows(slice(i, i + 1))
        z = [float(built.model.score(one, torch.tensor([[b]]))) for b in range(built.problem.n_candidates)]
        z = z if noise is None else [a + b for a, b in zip(z, noise, strict=True)]
        out.append(z[target] - math.log(sum(map(math.exp, z))))
    return out


@pytest.mark.parametrize(("encoding", "ranking"), [(10 << 20, 1 << 20), (1 << 20, 10 << 20)])
def test_evaluation_needs_the_larger_of_encoding_and_ranking(corpus: Path, monkeypatch: pytest.MonkeyPatch,
                                                             encoding: int, ranking: int) -> None:
    """While queries are ranked, of encoding only the queries are left."""
    built = components.build(config := settings(corpus, "softmax"), tasks.read(config))
    batch, peaks = built.task.heldout("valid"), [encoding, ranking]
    query = scoring.encode_heldout(built, batch)
    monkeypatch.setattr(machine, "measure_peak", lambda work: (work(), peaks.pop(0)))
    needed = scoring.evaluation_bytes(built, batch, len(batch))
    if encoding > ranking:
        assert needed == encoding
    else:
        assert needed == ranking + query.vector.nbytes + query.context.nbytes + query.target.nbytes + query.slot.nbytes


@pytest.mark.parametrize("strategy", ["softmax", "sgns"])
def test_perplexity_equals_a_loop_over_all_candidates(corpus: Path, tmp_path: Path, strategy: str) -> None:
    run = fit(settings(corpus, strategy), tmp_path / "run")
    built = components.build(run.settings, tasks.read(run.settings))
    stored.restore(run.folder, run.settings, built)
    counts = built.problem.counts ** 0.75
    noise = (counts / counts.sum()).log().tolist() if strategy == "sgns" else None
    log_p = by_hand(built, "test", noise)
    assert value(run, "perplexity") == pytest.approx(math.exp(-sum(log_p) / len(log_p)), rel=1e-4)
    assert scoring.read_items(run.folder / "items.safetensors")["test/log_p"].tolist() == pytest.approx(log_p, abs=1e-4)
    if strategy == "sgns":
        bare = by_hand(built, "test", None)
        assert value(run, "perplexity/scores") == pytest.approx(math.exp(-sum(bare) / len(bare)), rel=1e-4)
    row = next(row for row in run.scores if row[:2] == ("test", "perplexity"))
    assert row.low < row.value < row.high and "42 words" in row.note  # type: ignore[operator]


def test_the_number_of_scored_words_can_be_limited(corpus: Path, tmp_path: Path) -> None:
    config = settings(corpus, "softmax", "evaluate.words=7", "evaluate.log_z=true")
    built = components.build(config, tasks.read(config))
    rows = {row.metric: row for row in built.task.validate(built)}
    assert rows["perplexity"].n == 7 and rows["log_z_mean"].value is not None
    none = settings(corpus, "softmax", "evaluate.words=0")
    built = components.build(none, tasks.read(none))
    assert {(row.value, row.note) for row in built.task.validate(built)} == {(None, "no held-out words")}


# --- interrupted, compared, queried -----------------------------------------------------------------------------------

CASES = {
    "softmax, dropout, two layers": ("softmax", ["model.dropout=0.4", "model.layers=2"]),
    "nce, sgd, untied": ("nce", ["train.optimizer=sgd", "train.lr=0.5", "model.tied=false", "model.similarity=dot"]),
    "cluster, rows of adagrad, clipped": ("cluster", ["train.optimizer=row-adagrad", "train.lr=0.1", "train.clip=1"]),
    "adagrad, a state wider than D": ("sampled-softmax", ["train.optimizer=adagrad", "model.hidden=12"]),
}


@pytest.mark.parametrize("case", CASES)
def test_a_resumed_run_is_bitwise_equal(corpus: Path, tmp_path: Path, case: str,
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    no_page(monkeypatch)
    strategy, sets = CASES[case]
    config = settings(corpus, strategy, *sets)
    whole = experiment.fit(config, tmp_path / "whole").folder
    assert state(whole)["position"]["step"] > 14
    cut = interrupted(config, tmp_path / "cut", 4, 8).folder  # the second time after the end of the first epoch
    assert_same_run(whole, cut, ("items.safetensors", "vocabulary.txt"))


def test_another_vocabulary_is_refused(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(started, "check_settings", lambda *_: None)      # earlier versions store no settings to compare
    folder = fit(settings(corpus, "softmax", "train.epochs=1"), tmp_path / "run").folder
    text = (folder / "config.yaml").read_text()
    (folder / "config.yaml").write_text(text.replace("max_size: null", "max_size: 9"))
    with pytest.raises(DataError, match=r"vocabulary\.txt: differs from what the corpus gives with the settings"):
        experiment.resume(folder)


def test_the_commands(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                      capsys: pytest.CaptureFixture[str]) -> None:
    embtrain, run = partial(command, monkeypatch, capsys), str(tmp_path / "run")
    fitted = partial(embtrain, "fit", "--negatives", "softmax", "--model", "lm", "--corpus", str(corpus), "--threads",
                     "1", sets=SETS)
    assert "336 training words in 4 streams, 42 and 42 held out, 21 in the vocabulary" in fitted("--dry-run")
    assert "perplexity" in fitted("--out", run, "--quiet")
    assert "perplexity" in embtrain("resume", run, "--quiet")
    page = (tmp_path / "run" / "report.html").read_text()
    assert "perplexity" in page and 'id="neighbours"' not in page and "neighbours.json" not in page
    assert "exp" in embtrain("diagnose", run, "--negatives", "exp,rff", "--m", "5", "--queries", "4", "--draws", "20",
                             "--threads", "1", "--quiet")
    embtrain("export", run, "--format", "word2vec", "--out", str(tmp_path / "v.txt"))
    assert (tmp_path / "v.txt").read_text().startswith("21 8\n")
    assert "ba: " in embtrain("neighbours", run, "ba", "--count", "2")
    assert "lm" in embtrain("list")


def test_a_comparison_is_paired(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                capsys: pytest.CaptureFixture[str]) -> None:
    in_process(monkeypatch, tmp_path)
    command(monkeypatch, capsys, "compare", "--negatives", "softmax,uniform", "--model", "lm", "--corpus", str(corpus),
            "--seeds", "2", "--threads", "1", "--out", str(tmp_path / "cmp"), "--quiet",
            sets=[*SETS, "train.chunk=80", "train.batch=80"])
    result = json.loads((tmp_path / "cmp" / "results.json").read_text())
    assert result["plan"]["metric"] == "test/perplexity"
    over = {(d["kind"], d["metric"]): d for d in result["differences"]}
    seeds, items = over["seeds", "test/perplexity"], over["items", "test/log_likelihood"]
    assert not seeds["higher_better"] and items["higher_better"] and items["n"] > 1
    assert seeds["mean"] > 0 > items["mean"]                # uniform negatives are worse by both
