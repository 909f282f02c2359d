"""CBOW: the fused engine against the step, on one unit in which rows repeat and on units without common rows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers.looped import looped

from embtrain.common.types import ProblemSpec
from embtrain.data.text.windows import ContextBatch
from embtrain.data.vectors.subword_table import ngram_rows
from embtrain.losses import base as losses
from embtrain.models.words.cbow import Cbow, CbowConfig
from embtrain.negatives import base as sources
from embtrain.train.config import TrainConfig
from embtrain.train.engines import choose as engine
from embtrain.train.engines.autograd import Step
from embtrain.train.engines.compiled_contexts import CompiledContexts
from embtrain.train.optimizers import make_optimizers

pytestmark = pytest.mark.long


def contexts(target: list[int], *words: list[int]) -> ContextBatch:
    size = torch.tensor([0, *map(len, words)])
    return ContextBatch(torch.tensor(target), torch.zeros(len(target), dtype=torch.int64), size.cumsum(0),
                        torch.tensor([word for one in words for word in one]))


APART = contexts([50, 61, 72], [1], [30, 4, 5, 6], [7, 8, 9])
ONE = contexts([3], [1, 2, 1, 5])
BLOCK = contexts([3, 6, 3], [1, 2, 0, 5], [1, 1], [6])
SOURCES: dict[str, dict[str, Any]] = {
    "unigram": {}, "exp": {"exclude_target": False}, "ace": {"min_perplexity": 3, "hidden": 2, "generator_lr": 0.1}}
LOSSES: dict[str, dict[str, Any]] = {
    "logistic": {}, "nce": {}, "nce global": {"partition": "global"}, "nce context": {"partition": "context"},
    "sampled_softmax": {}, "sampled_softmax ranking": {"form": "ranking"}, "margin": {}, "gbce": {}, "alpha_nce": {},
}


def trained(kind: type[Step] | type[CompiledContexts], block: ContextBatch, source: str, share: str, loss: str,
            optimizer: str, has_subwords: bool, seed: int) -> tuple[dict[str, torch.Tensor], float, torch.Tensor]:
    """Return every number that the update changes, the loss, and the ids of the draw."""
    v = 7 if block is not APART else 2000
    counts = torch.arange(v, 0, -1).double() / v + 1
    spec = ProblemSpec(v, counts, n_contexts=v, raw_counts=counts, dim=5, seed=4, ngram_rows=ngram_rows,
                       words=[chr(97 + i) * 3 if v == 7 else chr(0x4e00 + i) for i in range(v)])
    model = Cbow(CbowConfig(dim=5, subword={"buckets": "exact"} if has_subwords else None), spec)
    cost_class, source_class = losses.find(loss.split()[0]), sources.find(source)
    cost = cost_class(cost_class.Config(name=cost_class.name, **LOSSES[loss]), spec)
    config = source_class.Config(source=source, share_draws_by=share, share_size=3, k=3, **SOURCES[source])
    noise, train = source_class(config, spec), TrainConfig(lr=0.1, optimizer=optimizer)
    assert not engine.why_not_fused(model.config, source_class, config, cost.config, train, True)
    draw = torch.Generator().manual_seed(8)
    with torch.no_grad():
        for p in (*model.parameters(), *cost.parameters()):
            p.copy_(torch.randn(p.shape, generator=draw) * 0.7)
    noise.random.manual_seed(seed)
    run = kind(model, noise, cost, make_optimizers(model, cost, train), train)
    result = run(block, keep_costs=True)
    values = {name: p.detach() for part in (model, cost) for name, p in part.named_parameters()}
    for name, p in model.named_parameters():
        state = run.optimizers[0].state.get(p, {})
        values |= {f"{name}.acc": state["acc"]} if "acc" in state else {}
    assert result.drawn is not None and result.drawn.ids is not None and result.cost is not None
    return values | {"cost": result.cost}, float(result.loss), result.drawn.ids


@looped("optimizer", ["sgd", "row-adagrad"])
@looped("has_subwords", [False, True])
@looped("source, share", [(source, share) for source in SOURCES
                              for share in ("row", "window", "block") if (source, share) != (
                                  "exp", "block")])                       # exp draws for each query
def test_both_engines_make_the_same_update(source: str, share: str, has_subwords: bool, optimizer: str) -> None:
    for loss in LOSSES if source == "unigram" else ["sampled_softmax", "nce context"]:
        for block in (*[APART][source == "ace":], BLOCK if share == "block" else ONE):  # ace's probes repeat
            for seed in range(50):
                case = (block, source, share, loss, optimizer, has_subwords, seed)
                expected, value, ids = trained(Step, *case)
                used = torch.cat([ids.reshape(-1), block.target])
                if block is not APART or len(used.unique()) == len(used):
                    break
            else:
                raise AssertionError("no draw without repeated rows")
            actual, other, _ = trained(CompiledContexts, *case)
            torch.testing.assert_close(actual, expected, rtol=2e-4, atol=2e-6)
            assert other == pytest.approx(value, rel=1e-5)


def tables(threads: int) -> list[torch.Tensor]:
    """Return u and v after an update of contexts without common rows."""
    v, before, draw = 4000, torch.get_num_threads(), torch.Generator().manual_seed(1)
    spec = ProblemSpec(v, torch.ones(v).double(), v, raw_counts=torch.ones(v).double(), dim=8, seed=2)
    model, source, cost = Cbow(CbowConfig(dim=8), spec), sources.find("unigram"), losses.find("logistic")
    noise, loss = source(source.Config(k=1), spec), cost(cost.Config(), spec)
    ids, train = torch.randperm(v, generator=draw), TrainConfig(lr=0.1, optimizer="sgd")
    torch.nn.init.normal_(model.v, generator=draw)
    torch.set_num_threads(threads)
    try:
        run = CompiledContexts(model, noise, loss, make_optimizers(model, loss, train), train)
        noise.draw_ids = lambda n, k: ids[2500:2500 + n * k].view(n, k)                     # type: ignore[method-assign]
        run(contexts(ids[1500:2000].tolist(), *ids[:1500].view(500, 3).tolist()))
    finally:
        torch.set_num_threads(before)
    return [model.u.detach(), model.v.detach()]


def test_threads_update_every_row() -> None:
    """Hogwild: contexts without common rows are updated as by one thread."""
    torch.testing.assert_close(tables(2), tables(1), rtol=1e-6, atol=1e-7)
