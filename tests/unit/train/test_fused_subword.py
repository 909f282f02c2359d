"""Subwords: the fused engine against the step, on one unit in which rows repeat and on units without common rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from helpers.looped import looped

from embtrain.common.types import ProblemSpec
from embtrain.data.text.windows import WindowBatch
from embtrain.losses import base as losses
from embtrain.models.words.skipgram import SkipGram, SkipGramConfig
from embtrain.negatives import base as sources
from embtrain.train.config import TrainConfig
from embtrain.train.engines import choose as engine
from embtrain.train.engines.autograd import Step
from embtrain.train.engines.compiled_windows import CompiledWindows
from embtrain.train.optimizers import make_optimizers

pytestmark = pytest.mark.long

APART = WindowBatch(torch.tensor([1, 30, 4]), torch.tensor([0, 2, 3, 6]), torch.tensor([50, 61, 72, 83, 94, 105]))
WINDOW = WindowBatch(torch.tensor([3]), torch.tensor([0, 4]), torch.tensor([1, 2, 0, 5]))
BLOCK = WindowBatch(torch.tensor([3, 6, 3]), torch.tensor([0, 4, 6, 7]), torch.tensor([1, 2, 0, 5, 1, 3, 4]))
SOURCES: dict[str, dict[str, Any]] = {
    "unigram": {}, "exp": {"exclude_target": False}, "ace": {"min_perplexity": 3, "hidden": 2, "generator_lr": 0.1}}
LOSSES: dict[str, dict[str, Any]] = {
    "logistic": {}, "nce": {}, "nce global": {"partition": "global"}, "nce context": {"partition": "context"},
    "sampled_softmax": {}, "sampled_softmax ranking": {"form": "ranking"}, "margin": {}, "gbce": {}, "alpha_nce": {},
}


def ngram_rows(min_n: int, max_n: int, buckets: int | str, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray, int]:
    """Three rows for each word. Of up to 10 words in 4 rows, so that they repeat, of more words each its own."""
    n = len(words)
    rows = np.arange(3 * n)
    return np.arange(0, 3 * n + 1, 3), rows % 4 if n <= 10 else rows, 4 if n <= 10 else 3 * n


def problem(v: int) -> ProblemSpec:
    counts = torch.arange(v, 0, -1).double() / v + 1
    return ProblemSpec(v, counts, n_contexts=v, raw_counts=counts, dim=5, seed=4, words=[str(i) for i in range(v)],
                       ngram_rows=ngram_rows)


def trained(kind: type[Step] | type[CompiledWindows], block: WindowBatch, source: str, share: str, loss: str,
            optimizer: str, pooling: str, seed: int) -> tuple[dict[str, torch.Tensor], float, torch.Tensor]:
    """Return every number that the update changes, the loss, and the ids of the draw."""
    spec = problem(7 if block is not APART else 2000)
    model = SkipGram(SkipGramConfig(dim=5, subword={"pooling": pooling}), spec)
    cost_class, source_class = losses.find(loss.split()[0]), sources.find(source)
    cost = cost_class(cost_class.Config(name=cost_class.name, **LOSSES[loss]), spec)
    config = source_class.Config(source=source, share_draws_by=share, share_size=3, k=3, **SOURCES[source])
    noise, train = source_class(config, spec), TrainConfig(lr=0.1, optimizer=optimizer)
    assert not engine.why_not_fused(model.config, source_class, config, cost.config, train, True)
    draw = torch.Generator().manual_seed(8)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=draw) * 0.7)
    noise.random.manual_seed(seed)
    run = kind(model, noise, cost, make_optimizers(model, cost, train), train)
    result = run(block.pairs() if kind is Step else block, keep_costs=True)
    values = {name: p.detach() for part in (model, cost) for name, p in part.named_parameters()}
    for name, p in model.named_parameters():
        state = run.optimizers[0].state.get(p, {})
        values |= {f"{name}.acc": state["acc"]} if "acc" in state else {}
    assert result.drawn is not None and result.drawn.ids is not None and result.cost is not None
    return values | {"cost": result.cost}, float(result.loss), result.drawn.ids


@looped("optimizer", ["sgd", "row-adagrad"])
@looped("pooling", ["mean", "sum"])
@looped("source, share", [(source, share) for source in SOURCES
                              for share in ("row", "window", "block") if (source, share) != (
                                  "exp", "block")])                       # exp draws for each query
def test_both_engines_make_the_same_update(source: str, share: str, pooling: str, optimizer: str) -> None:
    for loss in LOSSES if source == "unigram" else ["sampled_softmax", "nce"]:
        for block in (*[APART][source == "ace":], BLOCK if share == "block" else WINDOW):  # ace's probes repeat
            for seed in range(50):
                case = (block, source, share, loss, optimizer, pooling, seed)
                expected, value, ids = trained(Step, *case)
                used = torch.cat([ids.reshape(-1), block.target])
                if block is not APART or len(used.unique()) == len(used):
                    break
            else:
                raise AssertionError("no draw without repeated rows")
            actual, other, _ = trained(CompiledWindows, *case)
            torch.testing.assert_close(actual, expected, rtol=2e-4, atol=2e-6)
            assert other == pytest.approx(value, rel=1e-5)
