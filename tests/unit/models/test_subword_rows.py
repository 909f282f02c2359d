"""Rows of words and n-grams that a model takes over: from a run with fewer words, and from vectors with subwords."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import tiny_runs
from helpers.in_process import WORDS, small_text
from helpers.looped import looped

from embtrain import experiment
from embtrain.common.errors import UsageError
from embtrain.common.types import ProblemSpec
from embtrain.data.vectors import vectors as vector_files
from embtrain.data.vectors.fasttext_file import write_fasttext
from embtrain.data.vectors.fasttext_model import FastTextModel, FastTextSettings
from embtrain.data.vectors.subword_table import make_ngrams, ngram_rows
from embtrain.data.vectors.vectors import Vectors
from embtrain.experiment.continuation import continue_run
from embtrain.experiment.run import stored
from embtrain.models.words.skipgram import SkipGram, SkipGramConfig
from embtrain.models.words.start import GivenVectors, start_from
from embtrain.train.state import checkpoint

OLD, NEW = ["cat", "dog", "catalogue", "a"], ["dogs", "catalogue", "dog", "xyzzy", "a", "cat", "cats"]
ROW = torch.tensor([OLD.index(word) if word in OLD else -1 for word in NEW])


def model(words: list[str], seed: int = 3, **subword: Any) -> SkipGram:
    n = len(words)
    problem = ProblemSpec(n, torch.ones(n, dtype=torch.float64), n, dim=4, words=words, ngram_rows=ngram_rows,
                          seed=seed)
    return SkipGram(SkipGramConfig(dim=4, subword=subword or None), problem)


def given(source: SkipGram, words: list[str], has_subwords: bool = True) -> GivenVectors:
    from embtrain.experiment.tasks.windows import subwords_of

    return GivenVectors("given", Vectors(words, source.vectors().detach().numpy()), None,
                        lambda: subwords_of(source, words) if has_subwords else None)


def unknown(source: SkipGram, words: list[str], wanted: list[str]) -> np.ndarray:
    return given(source, words).subwords().compose(wanted)                          # type: ignore[union-attr]


@pytest.mark.parametrize("buckets", [500, "exact"])
def test_rows_move_with_their_words_and_ngrams(buckets: int | str) -> None:
    old, new = model(OLD, buckets=buckets), model(NEW, buckets=buckets)
    rows = new.earlier_rows(old, ROW)
    assert torch.equal(rows["v"], ROW) and torch.equal(rows["u"][:len(NEW)], ROW) and len(rows["u"]) == len(new.u)
    if buckets != "exact":
        assert rows["u"][len(NEW):].tolist() == list(range(len(OLD), len(OLD) + 500))      # those without a word too
        return
    texts, old_texts = (make_ngrams(3, 6, "exact", words).texts() for words in (NEW, OLD))
    assert texts is not None and old_texts is not None
    assert rows["u"][len(NEW):].tolist() == [len(OLD) + old_texts.index(text) if text in old_texts else -1
                                             for text in texts]
    assert 0 < (rows["u"][len(NEW):] < 0).sum() < len(texts)


@pytest.mark.parametrize("pooling", ["mean", "sum"])
def test_composed_vectors_use_known_ngrams_alone(pooling: str) -> None:
    """Hashed, the vectors of new words are those of fastText; exact, new n-grams do not count."""
    for buckets in (11, "exact"):
        old, new = model(OLD, buckets=buckets, pooling=pooling), model(NEW, buckets=buckets, pooling=pooling)
        rows = new.earlier_rows(old, ROW)["u"]
        with torch.no_grad():
            new.u[rows >= 0] = old.u[rows[rows >= 0]]
        assert new.pool is not None
        words = torch.tensor([0, 3, 6])                                              # dogs, xyzzy, cats
        vectors, found = new.pool.compose(new.u, words, rows >= 0)
        assert found.tolist() == ([0, 3, 6] if buckets == 11 else [0, 6])              # no n-gram of xyzzy is known
        np.testing.assert_allclose(vectors.detach(), unknown(old, OLD, [NEW[i] for i in found]), atol=1e-6)


@looped("ours", [None, {"buckets": 11}, {"buckets": 12}, {"buckets": "exact", "pooling": "sum"}])
@looped("buckets", [11, "exact"])
def test_missing_words_start_from_given_subwords(buckets: int | str, ours: dict[str, Any] | None) -> None:
    old, new = model(OLD, buckets=buckets), model(NEW, 4, **(ours or {}))
    before = new.vectors().clone()
    start_from(new, given(old, OLD), NEW, torch.ones(len(NEW)), "subword")
    np.testing.assert_allclose(new.vectors().detach()[[5, 2, 1, 4]], old.vectors(), rtol=1e-4, atol=1e-6)
    expected = unknown(old, OLD, ["dogs", "xyzzy", "cats"])
    if not expected[1].any():                                         # without n-grams it stays random
        expected[1] = new.vectors().detach()[3]
        assert ours is not None or torch.equal(new.vectors()[3], before[3])
    np.testing.assert_allclose(new.vectors().detach()[[0, 3, 6]], expected, rtol=1e-4, atol=1e-6)
    if ours == {"buckets": buckets}:
        assert torch.equal(new.u[len(NEW):], old.u[len(OLD):])        # copied, so that unseen words keep their vectors


def test_missing_words_start_from_fitted_ngrams() -> None:
    """Of a plain file: the n-grams that its words have, and no others."""
    plain, new = model(OLD), model(NEW, 4, buckets="exact")
    start_from(new, given(plain, OLD, has_subwords=False), NEW, torch.ones(len(NEW)), "subword")
    assert new.pool is not None
    cat, catalogue = (set(make_ngrams(3, 6, "exact", [word]).texts() or ()) for word in ("cat", "catalogue"))
    cats = set(make_ngrams(3, 6, "exact", ["cats"]).texts() or ()) & (cat | catalogue)
    table = dict(zip(make_ngrams(3, 6, "exact", NEW).texts() or (), new.u.detach()[len(NEW):], strict=True))
    torch.testing.assert_close(new.vectors().detach()[6], torch.stack([table[text] for text in sorted(cats)]).mean(0))


def test_no_subwords_are_refused() -> None:
    with pytest.raises(UsageError, match=r"train\.start_new_rows: subword: given has no subwords.*set random or mean"):
        start_from(model(NEW), given(model(OLD), OLD, False), NEW, torch.ones(len(NEW)), "subword")


# -- runs -------------------------------------------------------------------------------------------------------------

SETS = ["text.valid=0", "text.test=0", "text.min_count=1", "text.sample=0", "model.dim=6", "train.epochs=1",
        "train.lr=0.05", "evaluate.benchmarks=[]", "evaluate.heldout_pairs=0", "evaluate.resamples=0",
        "evaluate.neighbours=[]", "train.optimizer=row-adagrad", "train.engine=fused", "train.checkpoint_every=1e9"]


@pytest.mark.long
@pytest.mark.parametrize(("buckets", "new_rows"), [("50", "subword"), ("exact", "subword"), ("exact", "mean")])
def test_a_run_with_subwords_continues(tmp_path: Path, buckets: str, new_rows: str) -> None:
    place = small_text(tmp_path, 2)
    (place / "new.txt").write_text(f"{WORDS[3]} {WORDS[0]}s {WORDS[1]}s {WORDS[3]} ξψζ {WORDS[2]}\n" * 9)
    parent = experiment.fit(experiment.resolve("sgns", corpus=str(place / "text"), threads=1,
                                               sets=[*SETS, f"model.subword={{buckets: {buckets}}}"]), place / "parent")
    run = continue_run(parent.folder, place / "new.txt", out=place / "run", threads=1,
                       sets=["train.keep=999", f"train.start_new_rows={new_rows}"])
    parts, old = stored.open_run(run.folder), stored.open_run(parent.folder)
    assert isinstance(parts.model, SkipGram) and isinstance(old.model, SkipGram)
    first, last = (checkpoint.load(folder / "checkpoints/step-0000000000.json" if folder == run.folder else
                                   folder / "checkpoints") for folder in (run.folder, parent.folder))
    parts.model.load_state_dict(first["model"])
    words, old_words = list(parts.problem.words or ()), list(old.problem.words or ())
    assert len(words) == len(old_words) + 3
    row = torch.tensor([old_words.index(word) if word in old_words else -1 for word in words])
    rows = parts.model.earlier_rows(old.model, row)["u"]
    for saved, table in ((first, last), (first["optimizers"][0]["state"][0], last["optimizers"][0]["state"][0])):
        here, there = (x["model"]["u"] if "model" in x else x["acc"] for x in (saved, table))
        is_new = rows < 0
        assert torch.equal(here[~is_new], there[rows[~is_new]]) and there[rows[~is_new]].abs().max() > 0
        if "acc" in saved:
            assert (here[is_new] == 0).all() and is_new.any()
    vectors, names = parts.model.vectors().detach().numpy(), [WORDS[0] + "s", WORDS[1] + "s", "ξψζ"]
    found = vectors[[words.index(name) for name in names]]
    composed = parent.word_vectors.compose(names)
    expected = np.tile(old.model.vectors().numpy().mean(0), (3, 1)) if new_rows == "mean" else composed
    known = expected.any(1)
    assert known.sum() == (2 if (buckets, new_rows) == ("exact", "subword") else 3) and found.any(1).all()
    np.testing.assert_allclose(found[known], expected[known], atol=1e-6)
    assert run.word_vectors.subwords is not None                                  # the new run has them too


@pytest.mark.long
def test_a_plain_run_continues_without_subwords(tmp_path: Path) -> None:
    place = small_text(tmp_path, 2)
    settings = experiment.resolve("sgns", corpus=str(place / "text"), threads=1, sets=SETS)
    parent = experiment.fit(settings, place / "parent")
    with pytest.raises(UsageError, match=r"train\.start_new_rows: subword: .*has no subwords; set random or mean"):
        continue_run(parent.folder, place / "text", out=place / "run", sets=["train.start_new_rows=subword"])


@pytest.mark.long
def test_a_plain_run_starts_from_a_file_of_fasttext(tmp_path: Path) -> None:
    place, draw = tiny_runs.write(tmp_path), np.random.default_rng(6)
    u, g, v = (draw.normal(size=(n, 6)).astype(np.float32) for n in (5, 400, 5))
    trained = FastTextModel(FastTextSettings(6, bucket=400, minn=3, maxn=5), WORDS[:5], np.arange(9, 4, -1), u, g, v)
    write_fasttext(place / "m.bin", trained)
    run = experiment.fit(tiny_runs.config(place, "skipgram", "fused", f"train.start={place / 'm.bin'}",
                                          "train.start_new_rows=subword", "train.lr=1e-9"), place / "run")
    found, read = run.word_vectors, vector_files.read(place / "m.bin")
    others = [word for word in found.words if word not in read.index]
    assert len(others) > 20
    np.testing.assert_allclose(found.table[found.find(others)], read.compose(others), atol=1e-4)
