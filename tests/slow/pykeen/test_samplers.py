"""Samplers of PyKEEN: their draws are those of embtrain's sources, and wrong settings are refused in one line."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor

pytest.importorskip("pykeen", reason="peers: PyKEEN is not installed; pip install 'embtrain[pykeen]'")

from helpers.nations import BATCH, NAMES, TRAINING, TRIPLES, E, R, Scores, connected
from pykeen.models import DistMult, TransE
from pykeen.sampling import BasicNegativeSampler, BernoulliNegativeSampler, negative_sampler_resolver
from pykeen.training import LCWATrainingLoop, SLCWATrainingLoop

from embtrain.common import shipped
from embtrain.common.config import read_yaml
from embtrain.common.errors import UsageError
from embtrain.common.types import ProblemSpec, Query
from embtrain.negatives import base as negatives
from embtrain.nn.pykeen import SAMPLERS, EmbtrainNegativeSampler, EmbtrainTrainingCallback, register
from embtrain.train.engines.draws import costs_for_source

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # warnings of PyKEEN and of its imports

P = .001 / 8  # level of a test of frequencies; there are eight


def changed_side(positives: Tensor, drawn: Tensor) -> Tensor:
    """Return the column that differs between positives (B, 3) and negatives (B, K, 3), 0 or 2; -1 if none does: (B,).
    """
    differs = (positives.unsqueeze(1) != drawn).any(1)
    assert not differs[:, 1].any() and not (differs[:, 0] & differs[:, 2]).any()
    return torch.where(differs[:, 0], 0, torch.where(differs[:, 2], 2, -1))


# --- draws ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", NAMES)
def test_negatives_of_a_positive_replace_one_side_of_it(name: str) -> None:
    sampler, _ = connected(name, num_negs_per_pos=7)
    drawn = sampler.corrupt_batch(BATCH)
    assert drawn.shape == (40, 7, 3) and drawn.dtype == torch.int64
    assert drawn.min() >= 0 and drawn[..., [0, 2]].max() < E
    assert set(changed_side(BATCH, drawn).tolist()) == {0, 2}
    assert sampler.corrupt_batch(BATCH.view(8, 5, 3)).shape == (8, 5, 7, 3)
    assert sampler.sample(BATCH[:1])[0].shape == (1, 7, 3) and sampler.sample(BATCH)[1] is None


@pytest.mark.parametrize("name", NAMES)
def test_draws_equal_those_of_the_source(name: str) -> None:
    model = DistMult(triples_factory=TRAINING, embedding_dim=8, random_seed=1)
    sampler, callback = connected(name, model, num_negs_per_pos=3)
    tree = read_yaml(shipped.path("configs", sampler.strategy, "strategies")).tree["negatives"]
    kind = negatives.find(tree["source"])
    mixture = {"sampling": "mixture"} if name == "embtrain-ace" else {}
    counts = TRIPLES[:, [0, 2]].flatten().bincount(minlength=E).double()
    if name == "embtrain-bernoulli":  # uniform: q does not depend on the counts
        counts = torch.ones(E, dtype=torch.float64)
    source = kind(kind.Config(**{**tree, **mixture, "k": 3, "filter": "none"}),
                  ProblemSpec(E, counts / 2, context_sizes=(E, 2 * R), seed=5))
    for step in range(6):
        batch = TRIPLES[step * 50:step * 50 + 30]
        drawn = sampler.corrupt_batch(batch)
        side = sampler.last.query.slot  # type: ignore[union-attr]
        known = torch.where(side == 1, batch[:, 2], batch[:, 0])
        target = torch.where(side == 1, batch[:, 0], batch[:, 2])
        context = torch.stack([known, batch[:, 1] + R * side], 1)
        query_id = torch.unique(context, dim=0, return_inverse=True)[1]
        query = Query(torch.zeros(30, 0), context, target, side, query_id)
        own = source.draw(query, 3, Scores(model))  # type: ignore[arg-type]
        assert own.ids is not None
        assert torch.equal(torch.where(side.view(-1, 1) == 1, drawn[..., 0], drawn[..., 2]), own.ids[:, :3])
        if source.traits.learns:
            every = Scores(model).score(query, own.ids)
            source.learn(query, own, costs_for_source(source, every, own))
            callback.pre_batch()
            callback.scores.append(every[:, :3])
            callback.pre_step()


@pytest.mark.parametrize(("name", "kwargs"), [
    ("embtrain-bernoulli", {}), ("embtrain-degree", {}), ("embtrain-degree", {"exponent": -1.0}),
    ("embtrain-ace", {}), ("embtrain-ace", {"mix": 0.1, "exponent": 1.0})])
def test_frequencies_follow_log_q(name: str, kwargs: dict[str, Any]) -> None:
    sampler, _ = connected(name, num_negs_per_pos=50, **kwargs)
    counted, expected = torch.zeros(2, E), torch.zeros(2, E, dtype=torch.float64)
    positive = BATCH[:1].expand(400, 3)
    drawn = sampler.corrupt_batch(positive)
    query = sampler.last.query  # type: ignore[union-attr]
    q = sampler.source.log_prob(query, torch.arange(E).unsqueeze(0)).expand(400, -1).double().exp()
    for slot, column in ((0, 2), (1, 0)):
        rows = query.slot == slot
        counted[slot] = drawn[rows][..., column].flatten().bincount(minlength=E)
        expected[slot] = 50 * q[rows].sum(0)
    assert torch.allclose(q.sum(1), torch.ones(400, dtype=torch.float64), atol=1e-4) and expected.min() > 50
    statistic = ((counted - expected).square() / expected).sum()
    assert stats.chi2.sf(float(statistic), 2 * (E - 1)) > P


@pytest.mark.parametrize("side", ["bernoulli", "random"])
def test_sides_follow_the_rule_of_pykeen(side: str) -> None:
    sampler, _ = connected("embtrain-bernoulli", side=side)
    p = BernoulliNegativeSampler(mapped_triples=TRIPLES, num_entities=E, num_relations=R).corrupt_head_probability
    p = p if side == "bernoulli" else torch.full((R,), .5)
    assert torch.allclose(sampler.queries.p_head.float(), p)
    relation = int((p - .5).abs().argmax())
    positive = TRIPLES[TRIPLES[:, 1] == relation][:1].expand(4000, 3)
    sampler.corrupt_batch(positive)
    n_heads = int(sampler.last.query.slot.sum())  # type: ignore[union-attr]
    assert stats.binomtest(n_heads, 4000, float(p[relation])).pvalue > P


def test_a_sampler_without_seed_follows_the_global_seed() -> None:
    def draws(global_seed: int, seed: int | None = None) -> Tensor:
        torch.random.default_generator.manual_seed(global_seed)
        return SAMPLERS[1](mapped_triples=TRIPLES, seed=seed).corrupt_batch(BATCH)

    assert torch.equal(draws(1), draws(1)) and not torch.equal(draws(1), draws(2))
    assert torch.equal(draws(1, 3), draws(2, 3))


def test_a_filterer_masks_known_positives() -> None:
    sampler, _ = connected("embtrain-kbgan", num_negs_per_pos=6, filterer="python-set")
    drawn, mask = sampler.sample(BATCH)
    known = {tuple(triple) for triple in TRIPLES.tolist()}
    assert mask is not None
    assert mask.tolist() == [[tuple(triple) not in known for triple in row] for row in drawn.tolist()]
    assert 0 < int(mask.sum()) < mask.numel()


# --- errors --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("name", "kwargs", "line"), [
    ("embtrain-nscaching", {"cache_sizes": 3},
     "negative_sampler_kwargs: cache_sizes: unknown key (did you mean 'cache_size'?"),
    ("embtrain-kbgan", {"hidden": "x"}, "negative_sampler_kwargs: hidden: should be a valid integer"),
    ("embtrain-kbgan", {"generator": "complex", "hidden": 7},
     "negative_sampler_kwargs: hidden: 7: must be even for complex"),
    ("embtrain-bernoulli", {"replacement": False, "num_negs_per_pos": 20}, "num_negs_per_pos: 20 negatives cannot be "
     "drawn without replacement from 14 candidates; draw fewer, or set negative_sampler_kwargs: replacement: true"),
    ("embtrain-kbgan", {"replacement": False}, "negative_sampler_kwargs: replacement: kbgan cannot draw without"),
    ("embtrain-degree", {"nonsense": 1}, "negative_sampler_kwargs: nonsense: unknown key (keys here: share_draws_by, "),
    ("embtrain-degree", {"filters": 1}, "negative_sampler_kwargs: filters: unknown key (did you mean filtered=True?"),
    ("embtrain-degree", {"k": 3}, "negative_sampler_kwargs: k: 3: is not a key of PyKEEN; set num_negs_per_pos"),
    ("embtrain-degree", {"filter": "observed"},
     "negative_sampler_kwargs: filter: 'observed': is not a key of PyKEEN; set filtered=True"),
    *(("embtrain-degree", {"num_negs_per_pos": n}, f"num_negs_per_pos: {n!r}: should be a whole number of at least 1")
      for n in (0, "3", True, 1.5)),
    ("embtrain-degree", {"side": "both"}, "negative_sampler_kwargs: side: 'both': should be bernoulli or random"),
    ("embtrain-degree", {"seed": -1}, "negative_sampler_kwargs: seed: -1: should be a whole number of at least 0"),
    ("embtrain-degree", {"seed": 1.5}, "negative_sampler_kwargs: seed: 1.5: should be a whole number of at least 0"),
    ("embtrain-degree", {"seed": 2**70}, f"negative_sampler_kwargs: seed: {2**70}: should be at most {2**64 - 1}"),
    ("embtrain-degree", {"num_entities": "5"}, "num_entities: '5': should be a whole number of at least 1"),
    ("embtrain-degree", {"num_entities": 5}, "mapped_triples: 13 is not one of the ids, 0 to 4 (num_entities = 5)"),
    ("embtrain-degree", {"num_relations": 5}, "mapped_triples: 54 is not one of the ids, 0 to 4 (num_relations = 5)"),
    *(("embtrain-bernoulli", {"mapped_triples": triples}, "mapped_triples: ")
      for triples in (TRIPLES[:0], TRIPLES - 1, TRIPLES[0], TRIPLES[:, :2], TRIPLES.float(), TRIPLES.tolist(), None)),
    ("embtrain-degree", {"corruption_scheme": ("h",)}, "negative_sampler_kwargs: corruption_scheme: unknown key"),
])
def test_a_wrong_setting_is_one_line(name: str, kwargs: dict[str, Any], line: str) -> None:
    with pytest.raises(UsageError) as caught:
        connected(name, **kwargs)
    assert str(caught.value).startswith(line) and len(caught.value.args) == 1


@pytest.mark.parametrize("batch", [BATCH + E, BATCH - 1, BATCH + torch.tensor([0, R, 0]), BATCH[:, :2], BATCH.float(),
                                   BATCH.tolist(), None])
def test_a_wrong_batch_is_one_line(batch: Any) -> None:
    for name in NAMES:
        sampler, _ = connected(name)
        for draw in (sampler.corrupt_batch, sampler.sample):
            with pytest.raises(UsageError, match=r"^positive_batch: "):
                draw(batch)


@pytest.mark.parametrize(("name", "kwargs"), [("embtrain-ace", {"sampling": "stratified"}),
                                              ("embtrain-degree", {"total_weight": 1.0})])
def test_weights_are_refused(name: str, kwargs: dict[str, Any]) -> None:
    sampler, _ = connected(name, num_negs_per_pos=2, **kwargs)
    with pytest.raises(UsageError, match=f"^negative_sampler_kwargs: {name}: these settings weight the "):
        sampler.corrupt_batch(BATCH)


@pytest.mark.parametrize("name", ["embtrain-nscaching", "embtrain-kbgan", "embtrain-ace"])
def test_a_missing_callback_is_one_line(name: str) -> None:
    register()
    sampler = negative_sampler_resolver.make(name, mapped_triples=TRIPLES)
    with pytest.raises(UsageError, match=f"^negative_sampler: {name}: needs scores of the model; set training_kwargs="):
        sampler.corrupt_batch(BATCH)


@pytest.mark.parametrize(("loop", "kwargs"), [
    (SLCWATrainingLoop, {}), (SLCWATrainingLoop, {"negative_sampler": BasicNegativeSampler}),
    (SLCWATrainingLoop, {"negative_sampler": BasicNegativeSampler(mapped_triples=TRIPLES)}), (LCWATrainingLoop, {})])
def test_a_callback_without_sampler_is_one_line(loop: Any, kwargs: dict[str, Any]) -> None:
    model = TransE(triples_factory=TRAINING, embedding_dim=8, random_seed=1)
    with pytest.raises(UsageError, match=r"^callbacks: embtrain: needs training_loop='sLCWA' and one of embtrain's"):
        loop(model=model, triples_factory=TRAINING, **kwargs).train(TRAINING, callbacks=EmbtrainTrainingCallback())


def test_a_source_that_reads_vectors_is_refused() -> None:
    class ClusterNegativeSampler(EmbtrainNegativeSampler):
        name, strategy = "cluster", "cluster"

    connection = connected("embtrain-ace")[1].connection
    sampler = ClusterNegativeSampler(mapped_triples=TRIPLES, seed=0, connection=connection)
    with pytest.raises(UsageError, match=r"^negative_sampler: cluster: reads vectors of candidates, but "):
        sampler.corrupt_batch(BATCH)
