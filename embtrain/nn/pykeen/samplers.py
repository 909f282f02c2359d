"""Negative samplers of PyKEEN that draw from embtrain's sources.

All negatives of a positive (h, r, t) replace the same side of it, which is chosen for each positive as in embtrain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, get_args

import torch
from pykeen.sampling import NegativeSampler
from torch import Tensor
from torch.utils.data import get_worker_info

from embtrain.common import shipped
from embtrain.common.config import Layer, build, read_yaml
from embtrain.common.config.arguments import whole_number
from embtrain.common.errors import UsageError
from embtrain.common.types import Negatives, Query
from embtrain.negatives import base as negatives
from embtrain.nn.arguments import MAX_SEED, in_arguments
from embtrain.nn.pykeen.queries import PykeenQueries, Side, check_triples
from embtrain.nn.pykeen.view import Connection, PykeenView
from embtrain.train.engines.draws import costs_for_source

# Keys of a source that have another name in PyKEEN.
RENAMED = {"k": "num_negs_per_pos", "filter": "filtered=True", "source": "negative_sampler"}
# Arguments of PyKEEN in place of the keys of a run, in the order of their replacement.
ARGUMENTS = {**{f"negatives.{key}": argument for key, argument in RENAMED.items()},
             **{f"did you mean '{key}'?": f"did you mean {argument}?" for key, argument in RENAMED.items()},
             "num_negs_per_pos: k:": "num_negs_per_pos:", "keys here: source, k, filter, ": "keys here: ",
             "negatives.": "negative_sampler_kwargs: "}


class TripleDraw(NamedTuple):
    """A draw of a sampler that waits for its costs."""

    query: Query
    drawn: Negatives
    ids: Tensor          # (B, K) int64  entities of each row, probes included
    is_trained: Tensor   # (K,) bool  False: a probe, which PyKEEN does not score
    mask: Tensor | None  # (B, K) bool  False: a known positive; None: without a filterer


class EmbtrainNegativeSampler(NegativeSampler):
    """Base of the samplers. A subclass names a strategy, whose section `negatives` has the source and its settings.

    side: `bernoulli` or `random`, as `triples.slot`; None: that of the strategy, or random.
    seed: of the source and the sides; None: drawn from torch's global generator, which PyKEEN's `random_seed` seeds.
    connection: set by the callback. settings: keys of the source (`cache_size`). The other arguments are
    PyKEEN's: `num_negs_per_pos` is k, and `filtered=True` masks known positives.

    Raises UsageError for arguments of a wrong type or range, and for settings that the source or PyKEEN's losses cannot
    use.
    """

    name: ClassVar[str]      # in PyKEEN
    strategy: ClassVar[str]
    overrides: ClassVar[Mapping[str, Any]] = {}  # settings that differ from the strategy

    def __init__(self, *, mapped_triples: Tensor, num_entities: int | None = None, num_relations: int | None = None,
                 num_negs_per_pos: int | None = None, filtered: bool = False, filterer: Any = None,
                 filterer_kwargs: Mapping[str, Any] | None = None, side: Side | None = None, seed: int | None = None,
                 connection: Connection | None = None, **settings: Any):
        check_triples("mapped_triples", mapped_triples)
        if mapped_triples.ndim != 2 or len(mapped_triples) == 0:
            raise UsageError(f"mapped_triples: has the shape {tuple(mapped_triples.shape)}; it should be (n, 3) with n "
                             "of at least 1")
        num_entities, num_relations, num_negs_per_pos = (
            None if value is None else whole_number(name, value, 1)
            for name, value in (("num_entities", num_entities), ("num_relations", num_relations),
                                ("num_negs_per_pos", num_negs_per_pos)))
        super().__init__(mapped_triples=mapped_triples, num_entities=num_entities, num_relations=num_relations,
                         num_negs_per_pos=num_negs_per_pos, filtered=filtered, filterer=filterer,
                         filterer_kwargs=filterer_kwargs)
        check_triples("mapped_triples", mapped_triples, self.num_entities, self.num_relations)
        self.connection = connection
        source, config, slot = self._read_strategy(settings)
        side = side or (slot if slot in get_args(Side) else "random")
        if side not in get_args(Side):
            raise UsageError(f"negative_sampler_kwargs: side: {side!r}: should be {' or '.join(get_args(Side))}")
        if seed is None:
            seed = int(torch.randint(1 << 31, (1,), generator=torch.default_generator, device="cpu"))
        seed = whole_number("negative_sampler_kwargs: seed", seed, 0, MAX_SEED)
        self.queries = PykeenQueries(mapped_triples.cpu().numpy(), self.num_entities, self.num_relations, side, seed)
        with in_arguments(ARGUMENTS):
            self.source: negatives.NegativeSource = source(config, self.queries.problem_spec())
        self.view = PykeenView(self.name, self.num_entities, self.queries, connection)
        self.last: TripleDraw | None = None
        self.has_started = self.has_worker_seed = False

    def _read_strategy(self, settings: Mapping[str, Any]) -> tuple[type[negatives.NegativeSource], Any, Any]:
        """Return the class of the source, its configuration, and `triples.slot`."""
        for key in sorted(settings.keys() & RENAMED.keys()):
            raise UsageError(f"negative_sampler_kwargs: {key}: {settings[key]!r}: is not a key of PyKEEN; set "
                             f"{RENAMED[key]}")
        tree = read_yaml(shipped.path("configs", self.strategy, "strategies")).tree
        source = negatives.find(tree["negatives"]["source"])
        layers = [Layer(self.strategy, {**tree["negatives"], **self.overrides}),
                  Layer("negative_sampler_kwargs", dict(settings)),
                  Layer("num_negs_per_pos", {"k": self.num_negs_per_pos, "filter": "none"})]
        with in_arguments(ARGUMENTS):
            return source, build(source.Config, layers, "negatives"), tree.get("triples", {}).get("slot")

    def connect(self, connection: Connection) -> None:
        """Use the model of a training loop."""
        self.connection = connection
        self.view = PykeenView(self.name, self.num_entities, self.queries, connection)

    def sample(self, positive_batch: Tensor) -> tuple[Tensor, Tensor | None]:
        """Draw negatives of positives (B, 3): (B, K, 3), and a mask (B, K) that is False at known positives.

        The mask is None without a filterer. Raises the errors of `corrupt_batch`.
        """
        negative_batch = self.corrupt_batch(positive_batch)
        if self.filterer is None:
            return negative_batch, None
        assert self.last is not None
        mask = self.filterer(negative_batch=self.queries.triples(self.last.query, self.last.ids))
        self.last = self.last._replace(mask=mask)
        return negative_batch, mask[:, self.last.is_trained].to(positive_batch.device)

    def corrupt_batch(self, positive_batch: Tensor) -> Tensor:
        """Draw negatives of positives (..., 3): (..., K, 3), not filtered.

        Raises UsageError for other triples than those of the data, if the callback is missing, or if the settings give
        negatives unequal weights.
        """
        check_triples("positive_batch", positive_batch, self.num_entities, self.num_relations)
        traits = self.source.traits
        if self.connection is None and (traits.learns or traits.uses_model):
            raise UsageError(f"negative_sampler: {self.name}: needs scores of the model; set "
                             "training_kwargs=dict(callbacks='embtrain')")
        self._start()
        query = self.queries.queries(positive_batch.reshape(-1, 3).cpu())
        with in_arguments(ARGUMENTS):
            drawn = self.source.draw(query, self.num_negs_per_pos, self.view)
        ids = drawn.per_row(drawn.ids, len(query))
        assert ids is not None
        weight = drawn.per_row(drawn.weight, len(query))
        is_trained = torch.ones_like(ids[0], dtype=torch.bool) if weight is None else (weight != 0).any(0)
        if weight is not None and not bool((weight[:, is_trained] == 1).all()):
            raise UsageError(f"negative_sampler_kwargs: {self.name}: these settings weight the negatives, but PyKEEN's "
                             "losses count each once; remove sampling and total_weight")
        self.last = TripleDraw(query, drawn, ids, is_trained, None)
        if self.connection is not None:
            self.connection.sampler = self
        negative_batch = self.queries.triples(query, ids[:, is_trained]).to(positive_batch.device)
        return negative_batch.view(*positive_batch.shape[:-1], self.num_negs_per_pos, 3)

    def _start(self) -> None:
        """Start the first epoch, and in a worker process use its seed: all workers copy the same generators."""
        worker = get_worker_info()
        if worker is not None and not self.has_worker_seed:
            self.has_worker_seed = True
            self.source.random.manual_seed(worker.seed)
            self.queries.random.manual_seed(worker.seed + 1)
        if not self.has_started:
            self.start_epoch()

    def start_epoch(self) -> None:
        """Start an epoch of the source."""
        self.has_started = True
        with in_arguments(ARGUMENTS):
            self.source.on_epoch_start(self.view)

    def probes(self) -> Tensor | None:
        """Return the scores (B, P) of the last draw's probes, which PyKEEN does not score; None if there are none."""
        assert self.last is not None
        query, _, ids, is_trained, _ = self.last
        return None if bool(is_trained.all()) else self.view.score(query, ids[:, ~is_trained])

    def learn(self, cost: Tensor, probe_cost: Tensor | None) -> dict[str, float]:
        """Return the costs of the last draw, (B, K) and (B, P), to the source. Returns metrics for the log."""
        assert self.last is not None
        query, drawn, ids, is_trained, mask = self.last
        every_cost = torch.zeros(ids.shape, dtype=torch.float32, device="cpu")
        every_cost[:, is_trained] = cost
        if probe_cost is not None:
            every_cost[:, ~is_trained] = probe_cost
        if mask is not None:
            drawn = replace(drawn, false_negatives=torch.stack((~mask).nonzero(as_tuple=True)))
        with in_arguments(ARGUMENTS):
            return self.source.learn(query, drawn, costs_for_source(self.source, every_cost, drawn))


class EmbtrainBernoulliNegativeSampler(EmbtrainNegativeSampler):
    """Uniform entities on the side with fewer positives: the strategy `bernoulli`."""

    name, strategy = "embtrain-bernoulli", "bernoulli"


class EmbtrainDegreeNegativeSampler(EmbtrainNegativeSampler):
    """Entities by a power of their count as positives: the strategy `degree`."""

    name, strategy = "embtrain-degree", "degree"


class EmbtrainNSCachingNegativeSampler(EmbtrainNegativeSampler):
    """Entities from a cache of high scores per query: the strategy `nscaching`. Needs the callback."""

    name, strategy = "embtrain-nscaching", "nscaching"


class EmbtrainKBGANNegativeSampler(EmbtrainNegativeSampler):
    """Entities that an adversary picks from a uniform pool: the strategy `kbgan`. Needs the callback."""

    name, strategy = "embtrain-kbgan", "kbgan"


class EmbtrainACENegativeSampler(EmbtrainNegativeSampler):
    """Entities from a mixture of uniform noise and an adversary: the strategy `ace-kg`. Needs the callback.

    Draws from the mixture, because the strata of the strategy have weights.
    """

    name, strategy = "embtrain-ace", "ace-kg"
    overrides: ClassVar[Mapping[str, Any]] = {"sampling": "mixture"}


SAMPLERS = (EmbtrainBernoulliNegativeSampler, EmbtrainDegreeNegativeSampler, EmbtrainNSCachingNegativeSampler,
            EmbtrainKBGANNegativeSampler, EmbtrainACENegativeSampler)
