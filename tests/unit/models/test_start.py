"""Starting from given vectors: matched words, both tables of a run, frozen rows, resuming, and errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import tiny_runs
from helpers.in_process import WORDS

from embtrain import experiment
from embtrain.common.errors import DataError, EmbtrainError, UsageError
from embtrain.common.files import read_json
from embtrain.data.vectors import vectors as vector_files
from embtrain.data.vectors.vectors import Vectors
from embtrain.experiment.run import stored
from embtrain.models.hierarchies.cone import Cone, min_norm
from embtrain.models.words.skipgram import SkipGram

pytestmark = pytest.mark.long
RATE = "train.lr=1e-9"                                      # so small that rows show where they started


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tiny_runs.write(tmp_path)


def tables(run: experiment.Run) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Rows of u and v by word."""
    parts = stored.open_run(run.folder)
    assert isinstance(parts.model, SkipGram) and parts.problem.words is not None
    u, v = (dict(zip(parts.problem.words, x.detach().numpy(), strict=True)) for x in (parts.model.u, parts.model.v))
    return u, v


def fit(place: Path, out: str, *sets: str, engine: str = "autograd") -> experiment.Run:
    return experiment.fit(tiny_runs.config(place, "skipgram", engine, *sets), place / out)


def given(place: Path, words: list[str], dim: int = 6) -> Path:
    table = np.arange(len(words) * dim, dtype=np.float32).reshape(len(words), dim) / 100
    vector_files.write(place / "given.vec", Vectors(words, table), "word2vec")
    return place / "given.vec"


@pytest.mark.parametrize("engine", [pytest.param("autograd", marks=pytest.mark.slow), "fused"])
@pytest.mark.parametrize("new_rows", ["random", "mean"])
def test_words_start_from_their_vectors(place: Path, engine: str, new_rows: str) -> None:
    """Exact spelling first, then another case; other words as initialized, or at the mean. v is not given."""
    words = [WORDS[0], WORDS[1].upper(), "elsewhere"]
    file = given(place, words)
    run = fit(place, "run", f"train.start={file}", f"train.start_new_rows={new_rows}", RATE, engine=engine)
    u, v = tables(run)
    rows = vector_files.read(file).table
    assert np.allclose(u[WORDS[0]], rows[0], atol=1e-4) and np.allclose(u[WORDS[1]], rows[1], atol=1e-4)
    others = np.stack([row for word, row in u.items() if word not in WORDS[:2]])
    assert np.allclose(others, rows[:2].mean(0), atol=1e-4) if new_rows == "mean" else np.abs(others).max() < 0.1
    assert all(np.abs(row).max() < 1e-3 for row in v.values())
    found = read_json(run.folder / "start.json")
    assert (found["exact"], found["other_case"], found["new"]) == (1, 1, len(u) - 2)
    assert found["from"] == str(file) and 0 < found["running_share"] < 1 and not found["output_table"]


@pytest.mark.slow
def test_a_run_gives_both_tables(place: Path) -> None:
    first = fit(place, "first", "train.lr=0.05")
    second = fit(place, "second", f"train.start={first.folder}", RATE, "train.seed=9")
    for mine, other in zip(tables(second), tables(first), strict=True):
        assert all(np.allclose(mine[word], other[word], atol=1e-4) for word in other)
        assert max(np.abs(row).max() for row in other.values()) > 1e-3
    assert read_json(second.folder / "start.json")["output_table"]


@pytest.mark.parametrize(("freeze", "optimizer"), [
    ("known", "sgd"), *(pytest.param(*case, marks=pytest.mark.slow)
                        for case in (("all", "sgd"), ("known", "adam"), ("known", "row-adagrad"),
                                     ("known", "lazy-adam")))])
def test_frozen_rows_keep_their_bits(place: Path, freeze: str, optimizer: str) -> None:
    file = given(place, WORDS[:5])
    run = fit(place, "run", f"train.start={file}", f"model.freeze={freeze}", "train.lr=0.05",
              f"train.optimizer={optimizer}")
    u, v = tables(run)
    rows = vector_files.read(file).table
    assert all(np.array_equal(u[word], row) for word, row in zip(WORDS[:5], rows, strict=True))
    start = fit(place, "start", f"train.start={file}", f"model.freeze={freeze}", "train.lr=1e-17",
                f"train.optimizer={optimizer}")
    has_moved = {word: not np.array_equal(row, u[word]) for word, row in tables(start)[0].items()}
    assert any(has_moved.values()) == (freeze == "known")
    assert any(np.abs(row).max() > 1e-3 for row in v.values())                   # v is trained


@pytest.mark.slow
def test_it_resumes_without_the_file(place: Path) -> None:
    """The start is part of the first checkpoint: a run goes on with the same bits after the file is gone."""
    file = given(place, WORDS[:5])
    straight = tables(fit(place, "straight", f"train.start={file}", "model.freeze=known"))
    run = fit(place, "cut", f"train.start={file}", "model.freeze=known", "train.keep=99")
    for path in sorted((run.folder / "checkpoints").iterdir())[2:]:           # all but the first pair of files
        path.unlink()
    file.unlink()
    again = tables(experiment.resume(run.folder))
    for mine, other in zip(again, straight, strict=True):
        assert all(np.array_equal(mine[word], other[word]) for word in other)


@pytest.mark.parametrize(("sets", "kind", "words"), [
    (["train.start=missing.vec"], EmbtrainError, "missing.vec"),
    (["train.start=GIVEN", "model.dim=7"], UsageError, "train.start: .*vectors of 6 numbers.*set model.dim: 6"),
    (["train.start=FOREIGN"], DataError, "train.start: .*contains none of the"),
    (["train.start=BROKEN"], DataError, "NaN or infinity"),
    (["model.freeze=known"], UsageError, "model.freeze: known: needs given vectors; set train.start"),
    (["train.start=GIVEN", "model.freeze=all", "train.engine=fused"], UsageError, "model.freeze: the kernels"),
])
def test_a_mistake_is_one_line_and_leaves_no_run(place: Path, sets: list[str], kind: type[EmbtrainError],
                                                 words: str) -> None:
    names = {"GIVEN": str(given(place, WORDS[:3]))}
    vector_files.write(place / "foreign.vec", Vectors(["ξ"], np.ones((1, 6), np.float32)), "word2vec")
    (place / "broken.vec").write_text(f"1 6\n{WORDS[0]} nan 0 0 0 0 0\n")
    names |= {"FOREIGN": str(place / "foreign.vec"), "BROKEN": str(place / "broken.vec")}
    for key, value in names.items():
        sets = [text.replace(key, value) for text in sets]
    with pytest.raises(kind, match=words) as found:
        fit(place, "run", *sets)
    assert "\n" not in str(found.value)
    assert not (place / "run" / "config.yaml").exists()


def test_other_models_do_not_start_from_words(place: Path) -> None:
    settings = tiny_runs.config(place, "transe", "autograd", f"train.start={given(place, WORDS[:3])}")
    with pytest.raises(UsageError, match=r"train\.start: model\.name: transe"):
        experiment.fit(settings, place / "run")


def test_frozen_rows_have_no_gradient() -> None:
    """The gradient of a frozen row is 0, and that of another row is the one without freezing."""
    from embtrain.common.types import ProblemSpec
    from embtrain.models.words.skipgram import SkipGramConfig

    problem = ProblemSpec(5, torch.ones(5, dtype=torch.float64), 5, dim=3)
    plain, frozen = (SkipGram(SkipGramConfig(dim=3, freeze=value), problem) for value in ("none", "known"))
    assert frozen.frozen is not None
    frozen.frozen[2] = True
    gradients = []
    for model in (plain, frozen):
        torch.nn.init.ones_(model.v)
        batch = type("B", (), {"centre": torch.tensor([0, 2, 2, 4]), "window": None, "target": torch.arange(4),
                               "slot": torch.zeros(4, dtype=torch.int64)})()
        model.score(model.encode(batch), torch.tensor([[1, 3]])).sum().backward()
        assert model.u.grad is not None
        gradients.append(model.u.grad.to_dense())
    assert (gradients[1][2] == 0).all() and gradients[0][2].abs().max() > 0
    gradients[0][2] = 0
    assert torch.equal(gradients[0], gradients[1])


def test_concepts_start_from_scaled_vectors(place: Path) -> None:
    """In their direction, at least at the smallest norm of a cone; other concepts start as without given vectors."""
    sets = ["train.epochs=1", "train.threads=1", "model.dim=6", "train.chunk=16", "train.batch=8", "pairs.valid=3",
            "pairs.test=3", "evaluate.resamples=0", RATE]

    def fit_cones(out: str, *more: str) -> dict[str, np.ndarray]:
        run = experiment.fit(experiment.resolve(None, model="cone", corpus=str(place / "pairs.tsv"),
                                                sets=[*sets, *more]), place / out)
        parts = stored.open_run(run.folder)
        assert isinstance(parts.model, Cone)
        return dict(zip(parts.task.candidate_names(), parts.model.x.detach().numpy(), strict=True))

    file = given(place, ["c1", "c2", "elsewhere"])
    rows, random = vector_files.read(file).table, fit_cones("random")
    scaled = fit_cones("scaled", f"train.start={file}", "model.start_scale=0.5")
    smallest = min_norm(0.1)
    assert np.linalg.norm(rows[0]) / 2 < smallest < np.linalg.norm(rows[1]) / 2
    np.testing.assert_allclose(scaled["c1"], rows[0] * smallest / np.linalg.norm(rows[0]), atol=1e-6)
    np.testing.assert_allclose(scaled["c2"], rows[1] / 2, atol=1e-6)
    np.testing.assert_allclose(scaled["c3"], random["c3"], atol=1e-6)
