"""Numbers at the limit of floats, in every task and engine: a run stays finite, or stops in one line within a log
interval and keeps the last finite checkpoint."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from helpers.tiny_runs import EVERY, OF_LANGUAGES, OF_TEXT, TRAIN, blocks, config, learning, made, write

from embtrain import experiment
from embtrain.common.errors import UsageError
from embtrain.experiment.run import run
from embtrain.negatives.softmax.kernels.base import KernelSource
from embtrain.train.loop import is_finite
from embtrain.train.state import checkpoint

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("numbers"))


@pytest.mark.parametrize(("name", "engine"), EVERY)
def test_learning_rate_of_a_million(place: Path, tmp_path: Path, name: str, engine: str) -> None:
    settings = config(place, name, engine, "train.lr=1e6", "train.min_lr=1e6", "train.clip=null")
    stopped = None
    try:
        run.train_in_memory(settings, tmp_path)
    except UsageError as error:
        stopped = error
        assert error.code == 2 and str(error).startswith("train.lr: 1e+06: the ") and "\n" not in str(error)
        assert "; lower it" in str(error) and str(tmp_path / "checkpoints") in str(error)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert all(line["loss"] is not None and math.isfinite(line["loss"]) for line in lines if "loss" in line)
    kept = checkpoint.load(tmp_path / "checkpoints")
    assert is_finite(kept["model"]) and is_finite(kept["loss"]) and is_finite(kept["source"])
    if stopped is not None:                                  # the reported block is within an interval of the last line
        block = int(str(stopped).partition(" at block ")[2].partition(";")[0].replace(",", ""))
        assert kept["position"]["step"] <= block <= max([0, *(line["step"] for line in lines)]) + 2


def test_high_rate_stops_runs_of_both_engines(place: Path, tmp_path: Path) -> None:
    for engine in ("autograd", "fused"):
        settings = config(place, "skipgram", engine, "train.lr=1e17", "train.min_lr=1e17")
        with pytest.raises(UsageError, match=r"^train\.lr: 1e\+17: the "):
            run.train_in_memory(settings, tmp_path / engine)


@pytest.mark.parametrize(("name", "engine"), EVERY)
def test_vectors_of_zeros(place: Path, tmp_path: Path, name: str, engine: str) -> None:
    parts = made(config(place, name, engine))
    with torch.no_grad():
        for p in parts.model.parameters():
            p.zero_()
    training = learning(parts, tmp_path)
    blocks(training, 3)
    assert is_finite(training._learned_state())


@pytest.mark.parametrize("length", [0.0, 1e-30, 1e5])
@pytest.mark.parametrize("strategy", ["vmf", "vmf-released", "power-spherical", "cosine", "syn-margin-projection"])
def test_predictions_of_any_length(place: Path, tmp_path: Path, strategy: str, length: float) -> None:
    """κ = ‖ê‖ from zero to far beyond what training reaches."""
    settings = experiment.resolve(strategy, model="nmt", corpus="grammar", sets=[*TRAIN, *OF_LANGUAGES])
    parts = made(settings)
    with torch.no_grad():
        parts.model.head.weight.zero_()
        parts.model.head.bias.fill_(length / 6 ** 0.5)
    training = learning(parts, tmp_path)
    blocks(training, 3)
    assert is_finite(training._learned_state())


@pytest.mark.parametrize("strategy", ["rff", "rff-leaf", "maclaurin", "quadratic"])
def test_masses_that_are_all_negative(place: Path, tmp_path: Path, strategy: str,
                                      monkeypatch: pytest.MonkeyPatch) -> None:
    """Every feature of a candidate is below 0 and every one of a query above: each node is at its floor."""
    parts = made(experiment.resolve(strategy, corpus=str(place / "text"), sets=[
        *TRAIN, *OF_TEXT, "model.similarity=cosine", "train.engine=autograd"]))
    assert isinstance(parts.source, KernelSource)
    kind = type(parts.source.feature_map)
    encode_queries, encode_classes = kind.encode_queries, kind.encode_classes
    monkeypatch.setattr(kind, "encode_queries", lambda self, x: encode_queries(self, x).abs())
    monkeypatch.setattr(kind, "encode_classes", lambda self, y: -encode_classes(self, y).abs())
    training = learning(parts, tmp_path)
    blocks(training, 2)
    assert is_finite(training._learned_state())
    query = parts.model.encode(next(iter(training.read_blocks(0, 16, 0, True)))).detach()
    ids = torch.arange(parts.problem.n_candidates).unsqueeze(0)
    assert torch.allclose(parts.source.log_prob(query, ids).exp().sum(1), torch.ones(len(query)), atol=1e-4)
