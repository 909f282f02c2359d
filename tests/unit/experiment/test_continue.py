"""Runs that continue another on a further text: words, counts, rows, state, drift, resuming, and errors."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.in_process import WORDS, small_text
from helpers.runs import assert_same_run, cache, command, interrupted, no_page, state, stop_at  # noqa: F401

import embtrain
from embtrain import experiment
from embtrain.common.errors import DataError, EmbtrainError, Stopped, UsageError
from embtrain.common.files import read_json
from embtrain.data.text.vocabulary import Vocabulary
from embtrain.data.vectors import vectors as vector_files
from embtrain.experiment import Run
from embtrain.experiment.continuation import continue_run, continued_settings
from embtrain.experiment.run import settings as run_settings, stored
from embtrain.negatives.adversarial.ace import Ace
from embtrain.negatives.static.unigram import Unigram
from embtrain.train.state import checkpoint

pytestmark = pytest.mark.long
SETS = ["text.valid=0.1", "text.test=0.1", "text.min_count=3", "text.sample=0.01", "model.dim=6", "train.epochs=2",
        "train.chunk=256", "train.batch=300", "train.engine=autograd", "train.log_every=2",
        "train.checkpoint_every=1e9", "evaluate.benchmarks=[]", "evaluate.heldout_pairs=60", "evaluate.resamples=0",
        "evaluate.neighbours=[bal]"]
ACE = ["negatives.min_perplexity=20", "negatives.hidden=4", "negatives.generator_lr=0.05",
       "negatives.update_every=500"]
CASES: dict[str, tuple[str, list[str]]] = {
    "sgns": ("sgns", []),
    "log Z of each context, row-adagrad": ("nce-learned-z", ["loss.partition=context", "train.optimizer=row-adagrad"]),
    "ace, adam": ("ace", [*ACE, "negatives.shortlist=null", "train.optimizer=adam", "train.lr=0.01"]),
    "ace with a shortlist, lazy-adam": ("ace", [*ACE, "negatives.shortlist=20", "negatives.groups=4",
                                                "train.optimizer=lazy-adam", "train.lr=0.01"]),
    "in-batch, streaming, adagrad": ("in-batch-streaming", ["negatives.k=63", "train.optimizer=adagrad"]),
    "kbgan": ("kbgan", ["negatives.hidden=4"]),
    "a mixture": ("defensive-cluster", ["train.optimizer=row-adagrad"]),
    "a softmax": ("softmax", []),
    "any engine": ("sgns", ["train.engine=auto", "train.optimizer=row-adagrad"]),
}


@pytest.fixture(autouse=True)
def _no_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    no_page(monkeypatch)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two texts: `new` has fewer of the words of `text`, in other proportions, and two new words."""
    place = small_text(tmp_path_factory.mktemp("continue"), 8)
    (place / "new").mkdir()
    random = np.random.default_rng(1)
    words = [*WORDS[5:25], "neu", "selten"]
    for d in range(12):
        lines = [" ".join(random.choice(words, 12, p=np.arange(22, 0, -1) / 253)) for _ in range(8)]
        (place / "new" / f"{d:02}.txt").write_text("\n".join(lines) + ("\nrare bal" if d == 3 else ""))
    return place


@pytest.fixture(scope="module")
def parents(place: Path) -> Any:
    """The run of a case on `text`, trained once."""
    made: dict[str, Run] = {}

    def parent(case: str = "sgns") -> Path:
        if case not in made:
            strategy, sets = CASES[case]
            config = experiment.resolve(strategy, corpus=str(place / "text"), threads=1, sets=[*SETS, *sets])
            made[case] = experiment.fit(config, place / f"parent {len(made)}")
        return made[case].folder
    return parent


def hashes(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(folder.rglob("*")) if path.is_file()}


def tables(saved: dict[str, Any], n: int) -> dict[str, torch.Tensor]:
    """All tensors of a checkpoint with one entry for each word, by their place; not what a source collects for a step.
    """
    found: dict[str, torch.Tensor] = {}

    def visit(place: str, node: Any) -> None:
        if isinstance(node, torch.Tensor):
            if node.ndim and len(node) == n:
                found[place] = node
        elif isinstance(node, dict | list | tuple):
            for key, child in node.items() if isinstance(node, dict) else enumerate(node):
                visit(f"{place}/{key}", child)
    visit("", {key: saved[key] for key in ("model", "loss", "optimizers")})
    visit("/source", {key: value for key, value in saved["source"].items() if key not in ("snapshot", "inner")})
    return found


# --- the vocabulary and the counts ------------------------------------------------------------------------------------

def test_words_and_counts_are_those_of_both_texts(place: Path, parents: Any, tmp_path: Path) -> None:
    parent = parents()
    before = hashes(parent)
    run = continue_run(parent, place / "new", out=tmp_path / "run", threads=1)
    old, both = (Vocabulary.read(folder / "vocabulary.txt") for folder in (parent, run.folder))
    alone = experiment.resolve("sgns", corpus=str(place / "new"), sets=[*SETS, "text.min_count=1"])
    new = Vocabulary.read(experiment.fit(alone, tmp_path / "alone").folder / "vocabulary.txt")
    count = dict(zip(old.words, old.counts.tolist(), strict=True))
    added = dict(zip(new.words, new.counts.tolist(), strict=True))
    assert set(both.words) == set(old.words) | {"neu", "selten"}              # "rare" occurs once, min_count is 3
    assert dict(zip(both.words, both.counts.tolist(), strict=True)) \
        == {word: count.get(word, 0) + added.get(word, 0) for word in both.words}
    assert both.words == sorted(both.words, key=lambda word: (-both.counts[both.index[word]], word))
    assert both.words[:len(old)] != old.words                                 # rows had to move
    assert hashes(parent) == before

    parts = stored.open_run(run.folder)
    assert isinstance(parts.source, Unigram)
    q = both.counts.astype(float) ** 0.75
    assert np.allclose(parts.source.log_q.exp().numpy(), q / q.sum(), rtol=1e-5)
    assert np.array_equal(parts.problem.raw_counts.numpy(), both.counts)      # type: ignore[union-attr]
    assert parts.problem.counts.sum() > stored.open_run(parent).problem.counts.sum()


def test_the_record_names_the_parent_and_all_texts(place: Path, parents: Any, tmp_path: Path,
                                                   caplog: pytest.LogCaptureFixture) -> None:
    first = continue_run(parents(), place / "new", out=tmp_path / "first", threads=1)
    assert "was trained on this text" not in caplog.text
    second = continue_run(first.folder, place / "text", out=tmp_path / "second", threads=1)
    assert "first was trained on this text before; its counts are added again" in caplog.text
    record = read_json(second.folder / "parent.json")
    texts = [read_json(folder / "identity.json")["corpus"]["settings"]["content"]
             for folder in (parents(), first.folder)]
    assert record["parent"] == str(first.folder)
    assert [text["name"] for text in record["texts"]] == ["text", "new", "text"]
    assert [text["sha256"] for text in record["texts"]] == [*texts, texts[0]]
    assert record["new_words"] == 0 and record["starts_again"] == []
    assert (first.settings.train.seed, second.settings.train.seed) == (2, 3)
    total = [Vocabulary.read(folder / "vocabulary.txt").counts.sum() for folder in (parents(), first.folder,
                                                                                    second.folder)]
    assert total[2] - total[1] == total[0]                                    # the same text again
    identities = {read_json(run.folder / "identity.json")["corpus"]["sha256"] for run in (first, second)}
    assert len(identities) == 2 and identities.isdisjoint(texts)
    experiment.export(second.folder, "huggingface", tmp_path / "hub")
    card = (tmp_path / "hub" / "README.md").read_text()
    assert all(card.count(f"`{sha256}`") == n for sha256, n in zip(texts, (2, 1), strict=True))
    assert str(tmp_path) not in card and str(tmp_path) not in (tmp_path / "hub" / "config.json").read_text()


def test_a_limit_of_the_size_drops_no_earlier_word(place: Path, parents: Any, tmp_path: Path) -> None:
    old = Vocabulary.read(parents() / "vocabulary.txt").words
    for size, new in ((10, 0), (len(old) + 1, 1)):
        run = continue_run(parents(), place / "new", sets=[f"text.max_size={size}"], out=tmp_path / str(size),
                           threads=1)
        assert len(Vocabulary.read(run.folder / "vocabulary.txt")) == len(old) + new


# --- rows and state ---------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("case", "new_rows"), [*((case, "random") for case in CASES), ("sgns", "mean")])
def test_the_first_checkpoint_has_the_rows_and_the_state_of_the_parent(
        place: Path, parents: Any, tmp_path: Path, case: str, new_rows: str) -> None:
    parent = parents(case)
    run = continue_run(parent, place / "new", out=tmp_path / "run", threads=1,
                       sets=["train.keep=999", f"train.start_new_rows={new_rows}"])
    words, old_words = (Vocabulary.read(folder / "vocabulary.txt").words for folder in (run.folder, parent))
    saved = checkpoint.load(run.folder / "checkpoints/step-0000000000.json")
    old = checkpoint.load(parent / "checkpoints")
    here, there = tables(saved, len(words)), tables(old, len(old_words))
    assert here.keys() == there.keys() >= {"/model/u", "/model/v"}
    expected = {"in-batch, streaming, adagrad": "/source/gap", "kbgan": "/source/optimizer/state/1/exp_avg",
                "ace with a shortlist, lazy-adam": "/source/generator/e"}
    assert expected.get(case, "/model/u") in here
    if "log Z" in case:
        assert {"/loss/c", "/optimizers/0/state/0/acc", "/optimizers/1/state/0/exp_avg"} <= here.keys()
    row = [old_words.index(word) if word in old_words else -1 for word in words]
    known = np.array(row) >= 0
    for name, table in here.items():
        if name == "/source/classes":     # those of the new counts, to which the generator's rows have moved
            continue
        assert torch.equal(table[known], there[name][[r for r in row if r >= 0]]), name
        fresh = table[~known]
        if "/optimizer" in name or name in ("/source/seen", "/source/last", "/source/gap"):
            assert (fresh == 0).all(), name
        elif name.startswith("/model") and new_rows == "mean":
            assert torch.allclose(fresh, there[name].mean(0).expand_as(fresh), atol=1e-6), name
    if new_rows == "random":
        assert here["/model/u"][~known].abs().max() <= 0.5 / 6 and (here["/model/v"][~known] == 0).all()
    assert torch.equal(saved["source"]["random"], old["source"]["random"])    # no number is drawn twice
    notes = read_json(run.folder / "parent.json")["starts_again"]
    assert notes == (["the state of cluster starts again"] if case == "a mixture" else [])
    assert saved["position"]["step"] == 0 and state(run.folder)["position"]["epoch"] == 2


def test_the_generator_of_ace_prefers_the_same_words(place: Path, parents: Any, tmp_path: Path) -> None:
    """Without a shortlist, g(y|x) / g(z|x) of earlier words is that of the parent: rows moved with their words."""
    parent = parents("ace, adam")
    run = continue_run(parent, place / "new", out=tmp_path / "run", threads=1, sets=["train.keep=999"])
    parts, old = stored.open_run(run.folder), stored.open_run(parent)
    parts.source.load_state_dict(checkpoint.load(run.folder / "checkpoints/step-0000000000.json")["source"])
    assert isinstance(parts.source, Ace) and isinstance(old.source, Ace)
    words, old_words = list(parts.problem.words or ()), list(old.problem.words or ())
    ids = torch.tensor([words.index(word) for word in old_words])
    with torch.no_grad():
        g, before = parts.source.generator(ids)[:, ids], old.source.generator(torch.arange(len(old_words)))
    assert torch.allclose(g - g[:, :1], before - before[:, :1], atol=1e-5) and before.std(0).max() > 0.01
    assert parts.source.reward_sd == old.source.reward_sd and parts.source.reward_mean == old.source.reward_mean


def test_a_change_of_optimizer_or_source_is_reported(place: Path, parents: Any, tmp_path: Path,
                                                     capsys: pytest.CaptureFixture[str]) -> None:
    run = continue_run(parents("ace, adam"), place / "new", out=tmp_path / "run", threads=1,
                       sets=["train.optimizer=sgd", "negatives.hidden=5", "negatives.k=3"])
    expected = ["the optimizer state of the tables starts again",
                "the state of ace starts again, because its settings differ"]
    assert read_json(run.folder / "parent.json")["starts_again"] == expected
    assert [line for line in capsys.readouterr().err.splitlines() if "starts again" in line] \
        == [f"continue: {line}" for line in expected]


def test_earlier_rows_stay_without_a_rate(place: Path, parents: Any, tmp_path: Path) -> None:
    """The drift of vectors that did not move: cosines of 1, and all neighbours."""
    run = continue_run(parents(), place / "new", sets=["train.lr=1e-12"], out=tmp_path / "run", threads=1)
    before, after = vector_files.read(parents() / "vectors.safetensors"), run.word_vectors
    assert np.allclose(after.table[after.find(before.words)], before.table, atol=1e-9)
    drift = {row.metric: row for row in run.scores if row.benchmark == "drift"}
    assert drift["mean cosine"].value == pytest.approx(1) and drift["aligned mean cosine"].n == len(before)
    record = read_json(run.folder / "drift.json")
    assert record["by_neighbours"] == record["by_cosine"] == []                  # no word moved


def test_without_the_parent_there_is_no_drift(place: Path, parents: Any, tmp_path: Path,
                                              caplog: pytest.LogCaptureFixture) -> None:
    run = continue_run(parents(), place / "new", out=tmp_path / "run", threads=1)
    (parents() / "vectors.safetensors").rename(tmp_path / "away")
    again = experiment.resume(run.folder)
    (tmp_path / "away").rename(parents() / "vectors.safetensors")
    assert "the drift of the earlier words is not measured" in caplog.text
    assert not [row for row in again.scores if row.benchmark == "drift"]


# --- interruptions ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("case", ["sgns", "log Z of each context, row-adagrad", "ace with a shortlist, lazy-adam",
                                  "any engine"])
def test_a_resumed_run_is_bitwise_equal(place: Path, parents: Any, tmp_path: Path, case: str) -> None:
    config = continued_settings(parents(case), place / "new", threads=1)
    experiment.fit(config, tmp_path / "whole")
    interrupted(config, tmp_path / "cut", *((2, 2) if case != "any engine" else (1,)))
    assert_same_run(tmp_path / "whole", tmp_path / "cut", ("vocabulary.txt", "parent.json", "drift.json"))


def test_a_run_without_a_checkpoint_starts_again(place: Path, parents: Any, tmp_path: Path) -> None:
    config = continued_settings(parents(), place / "new", threads=1)
    experiment.fit(config, tmp_path / "whole")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(OSError, match="killed"):
        def killed(*_: Any) -> None:
            raise OSError("killed")
        patch.setattr("embtrain.train.loop.Trainer.save", killed)
        experiment.fit(config, tmp_path / "cut")
    experiment.resume(tmp_path / "cut")
    assert_same_run(tmp_path / "whole", tmp_path / "cut", ("vocabulary.txt", "parent.json"))


def test_other_counts_of_the_parent_are_refused(place: Path, parents: Any, tmp_path: Path) -> None:
    config = continued_settings(parents(), place / "new", threads=1)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped):
        stop_at(2, patch)
        experiment.fit(config, tmp_path / "cut")
    path = parents() / "vocabulary.txt"
    text = path.read_text()
    path.write_text(text.replace("\t", "\t1", 1))
    with pytest.raises(DataError, match="is not the one this run was trained on"):
        experiment.resume(tmp_path / "cut")
    path.write_text(text)


# --- errors, and the command ------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("corpus", "sets", "kind", "message"), [
    ("new", ["text.lower=false"], UsageError, "text.lower: False: .*was read with True.*set text.lower=True"),
    ("new", ["text.phrases=1"], UsageError, "text.phrases: 1: .*was read with 0.*set text.phrases=0"),
    ("new", ["text.tokenizer=whitespace"], UsageError, "text.tokenizer: 'whitespace'.*set text.tokenizer=words"),
    ("new", ["model.dim=7"], UsageError, "model.dim: is 7, but 6 in .*parent"),
    ("new", ["evaluate.vectors=sum"], UsageError, "evaluate.vectors: is sum, but input in .*parent"),
    ("new", ["train.parent=x"], UsageError, "--set train.parent=x: is set by the command"),
    ("foreign.txt", [], DataError, "contain no word of the earlier vocabulary, and no new word 3 times"),
    ("missing.txt", [], DataError, "missing.txt.*is neither a file or folder nor a recipe"),
])
def test_a_mistake_is_one_line_and_leaves_no_run(place: Path, parents: Any, tmp_path: Path, corpus: str,
                                                 sets: list[str], kind: type[EmbtrainError], message: str) -> None:
    (place / "foreign.txt").write_text("\n".join(f"ξ{'abcdefgh'[i % 8]}{'xyz'[i % 3]} η" [:4] for i in range(24)))
    with pytest.raises(kind, match=message) as found:
        continue_run(parents(), place / corpus, sets=sets, out=tmp_path / "run", threads=1)
    assert "\n" not in str(found.value) and len(found.value.args) == 1 and not (tmp_path / "run").exists()


def test_all_settings_that_give_other_words_are_reported_at_once(parents: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as found:
        continue_run(parents(), [["new_york", "bal"]], sets=["text.phrases=1"], out=tmp_path / "run", threads=1)
    problems = [line.partition("; ")[::2] for line in found.value.args]
    assert [line.partition(": the text of ")[0] for line, _ in problems] == [
        "text.lower: False", "text.tokenizer: 'whitespace'", "text.phrases: 1"]
    assert [remedy for _, remedy in problems] == [
        "set text.lower=True", "set text.tokenizer=words; the tokens are then split again", "set text.phrases=0"]


@pytest.mark.parametrize(("splitting", "tokenizer"), [
    ({"tokenizers": ["words"], "subwords": None}, "words"), (None, "auto"),
    ({"tokenizers": ["wiki", "words"], "subwords": None}, "auto"),
    ({"tokenizers": ["words"], "subwords": "@@"}, "auto")])
def test_the_tokenizer_that_split_all_of_a_text_splits_a_further_one(parents: Any, tmp_path: Path, splitting: Any,
                                                                     tokenizer: str) -> None:
    """Marks like <unk> select whitespace, so that the words of the new text were others."""
    (tmp_path / "marks.txt").write_text("<unk> bal neu-zeit\n" * 40)
    parent = shutil.copytree(parents(), tmp_path / "parent")
    identity = read_json(parent / "identity.json")
    assert identity["corpus"]["splitting"] == {"tokenizers": ["words"], "subwords": None, "split_subwords": None}
    identity["corpus"]["splitting"] = splitting
    (parent / "identity.json").write_text(json.dumps(identity))
    run = continue_run(parent, tmp_path / "marks.txt", out=tmp_path / "run", threads=1)
    new = {*Vocabulary.read(run.folder / "vocabulary.txt").words} - {*Vocabulary.read(parent / "vocabulary.txt").words}
    assert new == ({"unk", "neu", "zeit"} if tokenizer == "words" else {"<unk>", "neu-zeit"})
    assert read_json(run.folder / "identity.json")["corpus"]["settings"]["tokenizer"] == tokenizer
    assert run.settings.data == run_settings.from_run(parent).data


def test_subwords_of_a_further_text_are_joined(parents: Any, tmp_path: Path,
                                               caplog: pytest.LogCaptureFixture) -> None:
    """The tokenizer that `auto` selected for the first text is set, but nothing else that `auto` does is off."""
    (tmp_path / "subwords.txt").write_text("bal neu@@ zeit sel@@ ten\n" * 40)
    run = continue_run(parents(), tmp_path / "subwords.txt", out=tmp_path / "run", threads=1)
    words, earlier = (Vocabulary.read(folder / "vocabulary.txt").words for folder in (run.folder, parents()))
    assert {*words} - {*earlier} == {"neuzeit", "selten"}
    assert "subwords marked with @@ are joined into words" in caplog.text
    corpus = read_json(run.folder / "identity.json")["corpus"]
    assert corpus["settings"]["tokenizer"] == "words" and corpus["splitting"]["subwords"] == "@@"
    (tmp_path / "more.txt").write_text("bal alt@@ stadt\n" * 40)
    third = continue_run(run.folder, tmp_path / "more.txt", out=tmp_path / "third", threads=1)
    assert {*Vocabulary.read(third.folder / "vocabulary.txt").words} - {*words} == {"altstadt"}


SPLIT = "bal neu@@ zeit sel@@ ten"


def first_run(text: str, folder: Path, tokenizer: str) -> Path:
    """Train on a text with a tokenizer that the user set."""
    folder.with_suffix(".txt").write_text(text)
    sets = [*SETS, f"text.tokenizer={tokenizer}"]
    config = experiment.resolve("sgns", corpus=str(folder.with_suffix(".txt")), threads=1, sets=sets)
    return experiment.fit(config, folder).folder


def next_run(parent: Path, text: str, folder: Path) -> tuple[set[str], dict[str, Any]]:
    """Continue a run on a text; return the words of both texts, and how the text was split."""
    folder.with_suffix(".txt").write_text(text)
    continue_run(parent, folder.with_suffix(".txt"), sets=["text.tokenizer=auto"], out=folder, threads=1)
    identity = read_json(folder / "identity.json")
    return {*Vocabulary.read(folder / "vocabulary.txt").words}, identity["corpus"]["splitting"]


def forget_sign(folder: Path) -> None:
    """Remove the sign from a run, as in those of earlier versions."""
    identity = read_json(folder / "identity.json")
    identity["corpus"]["splitting"].pop("split_subwords", None)
    (folder / "identity.json").write_text(json.dumps(identity))


@pytest.mark.parametrize("tokenizer", ["whitespace", "words", "wiki"])
@pytest.mark.parametrize(("sign", "line"), [
    ("@@", SPLIT), ("##", "bal neu ##zeit sel ##ten"), ("▁", "▁bal ▁neu zeit ▁sel ten ▁alt"), ("￭", "bal neu￭ zeit")])
def test_subwords_stay_split_if_the_user_set_the_tokenizer_of_the_first_text(tmp_path: Path, tokenizer: str, sign: str,
                                                                             line: str) -> None:
    """Its vocabulary contains the subwords. `words` and `wiki` remove the sign. A third text is read as the second."""
    parent = first_run(f"{line}\n" * 40, tmp_path / "first", tokenizer)
    words = {*Vocabulary.read(parent / "vocabulary.txt").words}
    assert {"bal", "zeit"} <= {word.strip("@#▁￭") for word in words}
    for name in ("second", "third"):
        assert next_run(parent, f"{line}\n" * 40, tmp_path / name) == (
            words, {"tokenizers": [tokenizer], "subwords": None, "split_subwords": sign})
        parent = tmp_path / name


@pytest.mark.parametrize("tokenizer", ["whitespace", "words"])
def test_subwords_are_joined_if_the_first_text_has_whole_words(tmp_path: Path, tokenizer: str) -> None:
    """The user set its tokenizer, but the first vocabulary contains no subword, and fragments would be new words."""
    parent = first_run("bal neuzeit selten stadt\n" * 40, tmp_path / "first", tokenizer)
    for name in ("second", "third"):
        assert next_run(parent, f"{SPLIT}\n" * 40, tmp_path / name) == (
            {"bal", "neuzeit", "selten", "stadt"},
            {"tokenizers": [tokenizer], "subwords": "@@", "split_subwords": None})
        parent = tmp_path / name


def test_subwords_of_the_first_text_stay_split_after_a_text_without_them(tmp_path: Path) -> None:
    parent = first_run(f"{SPLIT}\n" * 40, tmp_path / "first", "words")
    next_run(parent, "bal zeit stadt\n" * 40, tmp_path / "second")
    assert "neuzeit" not in next_run(tmp_path / "second", f"{SPLIT}\n" * 40, tmp_path / "third")[0]


@pytest.mark.parametrize(("tokenizer", "line", "is_joined"), [
    ("words", SPLIT, False), ("words", "bal neuzeit", False), ("whitespace", "bal neuzeit", True),
    ("whitespace", SPLIT, False)])
def test_the_first_text_of_an_earlier_version_has_no_sign(tmp_path: Path, tokenizer: str, line: str, is_joined: bool
                                                          ) -> None:
    """The words decide, unless the tokenizer removes the sign: their occurrences, as few of the words can have it."""
    rare = " ".join(f"w{i}" for i in range(400))
    parent = first_run(f"{line}\n" * 1000 + f"{rare}\n" * 3 * 4, tmp_path / "first", tokenizer)
    for name in ("second", "third"):
        forget_sign(parent)
        words, splitting = next_run(parent, f"{SPLIT}\n" * 40, tmp_path / name)
        assert ("neu@@" if tokenizer == "whitespace" and not is_joined else "bal") in words
        assert splitting["subwords"] == ("@@" if is_joined else None)
        parent = tmp_path / name


def test_phrases_of_the_parent_cannot_change(place: Path, tmp_path: Path) -> None:
    phrases = ["text.phrases=1", "text.phrase_threshold=0.5"]
    config = experiment.resolve("sgns", corpus=str(place / "text"), threads=1, sets=[*SETS, *phrases])
    parent = experiment.fit(config, tmp_path / "parent").folder
    assert any("_" in word for word in (parent / "vocabulary.txt").read_text().split())
    for key, earlier, value in (("phrases", 1, 0), ("phrases", 1, 2), ("phrase_threshold", 0.5, 9.0),
                                ("phrase_min_count", 5, 4)):
        message = f"text.{key}: {value}: .*was read with {earlier}.*set text.{key}={earlier}"
        with pytest.raises(UsageError, match=message):
            continue_run(parent, place / "new", sets=[f"text.{key}={value}"], out=tmp_path / "run", threads=1)
    continue_run(parent, place / "new", sets=["text.phrase_max_vocab_size=1000000"], out=tmp_path / "run", threads=1)


def test_other_models_and_unfinished_runs_are_refused(place: Path, parents: Any, tmp_path: Path,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "graph.tsv").write_text("".join(f"{a}\tnext\t{b}\n" for a, b in zip("abcdefg", "bcdefga", strict=True)))
    graph = embtrain.fit(model="transe", corpus=place / "graph.tsv", threads=1, out=tmp_path / "graph",
                         sets={"model.dim": 4, "train.epochs": 1, "evaluate.resamples": 0})
    with pytest.raises(UsageError, match=r"model\.name: transe cannot be continued on another text"):
        continue_run(graph.folder, place / "new", out=tmp_path / "run")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped):
        stop_at(2, patch)
        experiment.fit(experiment.resolve("sgns", corpus=str(place / "text"), threads=1, sets=SETS), tmp_path / "cut")
    with pytest.raises(DataError, match=f"^{tmp_path}/cut: has not finished; finish it with: embtrain resume /"):
        continue_run(tmp_path / "cut", place / "new", out=tmp_path / "run")
    monkeypatch.chdir(tmp_path)                              # as the user names it
    with pytest.raises(DataError, match=r"^cut: has not finished; finish it with: embtrain resume cut$"):
        continue_run("cut", place / "new", out=tmp_path / "run")
    with pytest.raises(DataError, match="nowhere: file or folder not found"):
        continue_run(tmp_path / "nowhere", place / "new", out=tmp_path / "run")


def test_a_parent_that_is_gone_is_named(place: Path, parents: Any, tmp_path: Path) -> None:
    parent = shutil.copytree(parents(), tmp_path / "parent")
    run = continue_run(parent, place / "new", out=tmp_path / "run", threads=1)
    shutil.rmtree(parent)
    with pytest.raises(DataError, match=r"train\.parent: .*parent: folder not found; restore the run that this one"):
        run.resume()


@pytest.mark.parametrize(("name", "content", "message"), [
    ("parent.json", b'{"texts": [{"name": 5}]}', r"parent\.json: does not contain the texts of the run"),
    ("corpus.safetensors", None, r"corpus\.safetensors: has no counts of the 60 words of vocabulary\.txt"),
    ("vocabulary.txt", b"bal\n", r"vocabulary\.txt:1: expected a word, a TAB and a count"),
    ("vocabulary.txt", b"", r"vocabulary\.txt: is empty; restore the file that training wrote"),
    ("vectors.safetensors", None, r"parent: has not finished; finish it with: embtrain resume"),
])
def test_a_damaged_parent_is_one_line(place: Path, parents: Any, tmp_path: Path, name: str, content: bytes | None,
                                      message: str) -> None:
    parent = shutil.copytree(parents(), tmp_path / "parent")
    (parent / name).unlink(missing_ok=True)
    if content is not None:
        (parent / name).write_bytes(content)
    with pytest.raises(DataError, match=message) as found:
        continue_run(parent, place / "new", out=tmp_path / "run", threads=1)
    assert "\n" not in str(found.value)


def test_fit_with_a_parent_needs_no_other_start(place: Path, parents: Any, tmp_path: Path) -> None:
    config = experiment.resolve("sgns", corpus=str(place / "new"), threads=1,
                                sets=[*SETS, f"train.parent={parents()}", f"train.start={parents()}"])
    with pytest.raises(UsageError, match=r"train\.start: .*set train.start: null"):
        experiment.fit(config, tmp_path / "run")


def test_the_command_prints_the_rate_and_the_new_words(place: Path, parents: Any, tmp_path: Path,
                                                       monkeypatch: pytest.MonkeyPatch,
                                                       capsys: pytest.CaptureFixture[str]) -> None:
    out = command(monkeypatch, capsys, "continue", str(parents()), "--corpus", str(place / "new"), "--out",
                  str(tmp_path / "run"), "--threads", "1", "--json", sets=["train.lr=0.01"])
    tree = json.loads(out)
    assert tree["run"] == str(tmp_path / "run") and any(row["benchmark"] == "drift" for row in tree["scores"])
    assert "embtrain: error" in command(monkeypatch, capsys, "continue", str(parents()), "--corpus",
                                        str(place / "new"), "--out", str(tmp_path / "run"), code=2)


def test_a_dry_run_prints_the_plan_and_the_new_words(place: Path, parents: Any, tmp_path: Path,
                                                     monkeypatch: pytest.MonkeyPatch,
                                                     capsys: pytest.CaptureFixture[str]) -> None:
    before = hashes(parents())
    monkeypatch.chdir(tmp_path)
    tree = json.loads(command(monkeypatch, capsys, "continue", str(parents()), "--corpus", str(place / "new"),
                              "--dry-run", "--threads", "1", "--json"))
    assert tree["settings"]["train"]["parent"] == str(parents()) and tree["settings"]["train"]["seed"] == 2
    assert "62 words" in tree["corpus"] and tree["blocks"] > 0 and tree["memory"]["training"] > 0
    assert hashes(parents()) == before and not list(tmp_path.iterdir())
    experiment.plan(continued_settings(parents(), place / "new", threads=1))
    assert "62 words, of which 2 are new" in capsys.readouterr().err


def test_continued_runs_of_several_seeds_are_one_kind(place: Path, parents: Any, tmp_path: Path) -> None:
    """Their parents differ; a run from the beginning is another kind, and cannot be compared by another vocabulary."""
    from embtrain.experiment.comparison import join

    runs = [continue_run(parents(), place / "new", seed=seed, threads=1, out=tmp_path / f"c{seed}") for seed in (4, 5)]
    other = continue_run(runs[0].folder, place / "new", seed=5, threads=1, out=tmp_path / "grandchild")
    settings = {run.folder: run.settings for run in (*runs, other)}
    assert set(join._labels(settings).values()) == {"sgns"}
    plain = experiment.fit(experiment.resolve("sgns", corpus=str(place / "new"), threads=1, sets=SETS), tmp_path / "p")
    labels = join._labels({runs[0].folder: runs[0].settings, plain.folder: plain.settings})
    assert list(labels.values()) == ["sgns (train.parent=a run)", "sgns (train.parent=None)"]
    with pytest.raises(DataError, match="was trained on another corpus than"):
        join.join([runs[0].folder, plain.folder], tmp_path / "joined")
