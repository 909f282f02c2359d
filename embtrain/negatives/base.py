"""Interface of negative sources, the samplers that draw candidates and report the probability of each.

`draw(query, k, view) -> Negatives` · `log_prob(query, ids)` · and, if the source learns from the cost of its negatives,
`learn(query, drawn, cost)`. A source receives detached queries and a view, an object that reads the current model and
cannot change it; it never receives the model.

A batch has B rows: examples with a query (for word2vec the centre word) and a target. A draw is a set of K negatives
for one or more rows, and a batch needs G draws: G = B, or fewer if rows share one, as `negatives.share_draws_by` sets.
A window is the set of rows of one centre word; under `block`, `share_size` windows share a draw. A strategy is a YAML
file that names a source and a loss with their settings.

w_j is the weight of negative j of a row in the loss, M = Σ_j w_j its total weight (K if every weight is 1), q the noise
distribution, q_j the probability with which id_j was drawn. `Traits.density` is one of

exact         log_prob gives log q(id|x) for any id and query x, and Σ_id q(id|x) = 1
conditional   q_j is conditional on the ids that were shortlisted or excluded before. For any function f of an id, the
              expectation over the draw is E Σ_j w_j f(id_j) / (M q_j) = Σ_id f(id), over the ids that can be drawn
              then; the target has no q
estimated     q, also that of targets, is estimated from the data
none          q is unknown
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Protocol

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from embtrain.common import registry, shipped
from embtrain.common.config import Section
from embtrain.common.config.foreign_classes import AbstractMethod
from embtrain.common.config.setting_keys import key
from embtrain.common.errors import UsageError
from embtrain.common.traits import TraitRecord, refuse_misplaced_traits, trait
from embtrain.common.types import ModelView, Negatives, ProblemSpec, Query
from embtrain.negatives.plugin_checks import guarded


class NegativesConfig(Section):
    """Settings common to all sources. A source adds its own keys in its strategy's YAML."""

    source: str = Field("unigram", description="negative sampler, a module of embtrain.negatives")
    k: int = Field(5, ge=1, le=1_000_000, description="negatives per draw")
    filter: Literal["none", "target", "observed"] = Field(
        "target", description="negatives that are masked, i.e. left out of the loss: none, those equal to the row's "
                              "target, or all known (observed) positives of the query; changes the optimum (see docs)")
    share_draws_by: Literal["row", "window", "block", "batch"] = Field("row", description="rows that share a draw")
    share_size: int = Field(
        64, ge=1, description="windows (or rows, without windows) that share a draw under share_draws_by: block")
    total_weight: float | None = Field(
        None, gt=0, description="sum of the weights of a row's negatives, total_weight/k each; null: k")
    replacement: bool = Field(True, description="draw with replacement")

    def own(self) -> dict[str, Any]:
        """The settings by key that not all sources have: what a source has learned depends on them."""
        return self.model_dump(mode="json", exclude=set(NegativesConfig.model_fields))


@dataclass(frozen=True, kw_only=True)
class Traits(TraitRecord):
    """Traits of a source: what it needs, what it reports and how its draws may be shared.

    A class declares them: `traits = Traits(learns=True)`. Its constructor sets those that depend on the settings:
    `self.traits = replace(self.traits, density="conditional")`. They do not change afterwards. A subclass of a source
    that has traits keeps them with `replace(Parent.traits, ...)`.
    """

    geometry: frozenset[str] = trait(frozenset(), "needs", "geometries of the model that it supports; empty: all")
    needs_frozen_table: bool = trait(False, "needs", "needs a frozen table with rows of length 1")
    uses_model: bool = trait(False, "needs", "reads `query.vector` or the view of the model")
    uses_counts: bool = trait(False, "needs", "draws by the counts of the positives: built again when they change")
    redraws_each_update: bool = trait(False, "needs", "builds negatives from the query vectors: a draw for each update")
    min_batch_size: Annotated[int, Field(ge=1)] = trait(1, "needs", "rows that a batch needs for a draw")

    density: Literal["exact", "conditional", "estimated", "none"] = trait(
        "exact", "offers", "kind of the probability of a draw, as the module `embtrain.negatives.base` defines it")
    iid: bool = trait(True, "offers", "negatives are i.i.d. draws from one q, with weight 1")
    exhaustive: bool = trait(False, "offers", "every candidate is a negative")
    components: tuple[Literal["noise", "generator", "synthetic"], ...] = trait(
        ("noise",), "offers", "parts of the source that draw its negatives (noise, generator, synthetic), logged "
                              "separately; empty: it draws none")
    supports_total_weight: bool = trait(
        False, "offers", "draws with replacement and supports `negatives.total_weight`")
    supports_without_replacement: bool = trait(False, "offers", "can draw without replacement")

    sharing_modes: Annotated[tuple[Literal["row", "window", "block", "batch"], ...], Field(min_length=1)] = trait(
        ("row", "window", "block", "batch"), "sharing", "allowed values of `negatives.share_draws_by`")
    sharing_limit: str = trait(
        "draws for each query", "sharing", "why other modes are impossible: the error puts it after the source's name")
    standard_layout: bool = trait(
        True, "sharing", "G and the draw of each row follow `negatives.share_draws_by`")
    mixes_queries: bool = trait(False, "sharing", "rows with different queries share draws from the mean of their q")
    equal_total_weights: bool = trait(True, "sharing", "all rows have one M, the sum of the weights of the negatives")

    learns: bool = trait(False, "learning", "receives the cost of its negatives in `learn`")
    learns_from: Literal["cost", "targets"] = trait(
        "cost", "learning", "what `learn` uses: the cost of the negatives, or the targets of the batch")
    learns_per_row: bool = trait(False, "learning", "`learn` receives costs per row, not per draw")
    fits_to_queries: bool = trait(False, "learning", "its distribution q is fitted to the queries of earlier draws")


class Collective(Protocol):
    """The processes that train one run together."""

    def average(self, tensors: Sequence[Tensor]) -> None: ...             # float32, in place
    def gather_numbers(self, values: Sequence[float]) -> np.ndarray: ...  # (n,) of each process: (processes, n)


class NegativeSource:
    """Base class of all sources.

    A subclass sets its traits and implements `draw` and `log_prob`. The constructor raises UsageError for settings that
    the source does not support.
    """

    name: ClassVar[str]
    Config: ClassVar[type[NegativesConfig]] = NegativesConfig
    traits: Traits = Traits()
    floored_fraction: float | None = None         # random features: share of estimated weights raised to a floor
    is_target_q_read: bool = True  # whether the loss reads `Negatives.log_q_target`; if not, `draw` may leave it out

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        refuse_misplaced_traits(cls.__qualname__, cls)       # the import of a file of the user names the file

    def __init__(self, config: NegativesConfig, problem: ProblemSpec):
        self.config, self.problem, traits = config, problem, self.traits
        if config.share_draws_by not in traits.sharing_modes:
            raise UsageError(f"{key('share_draws_by')}: {self.name} {traits.sharing_limit}, so "
                             f"{config.share_draws_by!r} is not possible; use {' or '.join(traits.sharing_modes)}")
        if not config.replacement and not traits.supports_without_replacement:
            raise UsageError(f"{key('replacement')}: {self.name} cannot draw without replacement; set it to true")
        if config.total_weight is not None and not (traits.supports_total_weight and config.replacement):
            raise UsageError(f"{key('total_weight')}: {self.name} with these settings does not draw k negatives with "
                             f"replacement, as one total weight for all rows requires; set {key('total_weight')}: null")
        self.random = torch.Generator(device=problem.device).manual_seed(problem.seed)
        self._weight_and_total: dict[int, tuple[Tensor | None, Tensor]] = {}      # by k

    def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
        """Return G draws of K = k negatives for a batch: ids (G, K), with log q, weights and the total weight M.

        query: B rows, detached. view: reads the current model. Rows share draws as `negatives.share_draws_by` sets, see
        `draw_layout`. The q of a shared draw, also in log_q_target, is (1/n) Σ_r q(·|x_r), the mean over its n rows r.
        If `query.is_training` is False, as in a validation, a draw changes no state but the random numbers.
        """
        raise AbstractMethod(self, "draw")

    def log_prob(self, query: Query, ids: Tensor) -> Tensor:
        """log q(id|x) of ids (1, K) or (B, K), for the query x of each row: (B, K), or broadcastable to it.

        Does not depend on the other rows, whether or not rows share draws. Raises TypeError if the source has no
        density, UsageError if it needs the model and has not received it yet.
        """
        raise TypeError(f"{type(self).__name__} has no density")

    def learn(self, query: Query, drawn: Negatives, cost: Tensor) -> dict[str, float]:
        """Receive the cost of every drawn negative, and return metrics for the log.

        cost (G, K): the mean over the rows that share the draw, false negatives excluded; (B, K), one line per row, if
        `traits.learns_per_row`.

        query and drawn are those of one earlier `draw`; `drawn.false_negatives` now lists the negatives that
        `negatives.filter` leaves out of the loss, because they are known positives. Other data of that draw that this
        method needs are in `drawn.state`, which `draw` sets: other draws may have been made in between.
        """
        return {}

    def prepare_log_prob(self, view: ModelView) -> None:
        """Prepare `log_prob` without a draw: read the missing data from the model.

        Must not change later draws.
        """

    def on_epoch_start(self, view: ModelView) -> None:
        """Rebuild the data derived from the model's table. Called at the start of an epoch.

        `draw` also receives the view, for sources that rebuild at another interval.
        """

    def metrics(self) -> dict[str, float]:
        """Metrics of the last draw, for the log."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {"random": self.random.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.random.set_state(state["random"])

    def grow_from(self, earlier: NegativeSource, row: Tensor) -> str:
        """Take over the state of a source over fewer candidates, in a run that continues another.

        earlier: the trained source, of the same class. row (V,) int64: its id of each candidate and context, -1 for a
        new one. Returns which part of the state starts again, or ''. By default only the random numbers go on: a source
        that learns overrides this method.
        """
        state = earlier.state_dict()
        saved = state.get("random")
        if isinstance(saved, Tensor) and saved.shape == self.random.get_state().shape:    # else of another device
            self.random.set_state(saved)
        return "" if state.keys() == {"random"} else f"the state of {self.name} starts again"

    # -- several processes that train one run, each with a source of its own ------------------------------------

    def inner_sources(self) -> Iterator[NegativeSource]:
        """The sources inside this one."""
        return (value for value in vars(self).values() if isinstance(value, NegativeSource))

    def reseed(self, seed: int) -> None:
        """Start the random numbers of this source and of the sources inside it at a seed of their own."""
        self.random.manual_seed(seed)
        for i, source in enumerate(self.inner_sources()):
            source.reseed(int(np.random.SeedSequence([seed, i]).generate_state(1)[0]))

    def learn_with(self, group: Collective) -> bool:
        """Learn together with the sources of the other processes from now on. Returns whether the source can.

        A source that learns steps in `synchronize` alone, so that all processes keep the same parameters.
        """
        inner = [source.learn_with(group) for source in self.inner_sources()]
        return all(inner) and (not self.traits.learns or bool(inner))

    def synchronize(self) -> None:
        """Step with what all processes have collected: called after each synchronization of the model's tables."""
        for source in self.inner_sources():
            source.synchronize()

    def on_moved(self, ids: Tensor) -> None:
        """Receive the candidates (n,) whose vectors a synchronization changed."""
        for source in self.inner_sources():
            source.on_moved(ids)

    def weight_and_total(self, k: int) -> tuple[Tensor | None, Tensor]:
        """Weight of each of k negatives, (1, 1), or None if it is 1, and their total weight M, (1, 1)."""
        if k not in self._weight_and_total:
            total = float(k) if self.config.total_weight is None else self.config.total_weight
            mass = torch.full((1, 1), total, dtype=torch.float32, device=self.problem.device)
            self._weight_and_total[k] = None if total == k else torch.full_like(mass, total / k), mass
        return self._weight_and_total[k]

    def draw_layout(self, query: Query) -> tuple[int, Tensor | None]:
        """Number of draws G that the batch needs under `share_draws_by`, and the draw of each row, (B,) int64.

        The latter is None if each row has its own draw (row, and window for examples without windows) and under
        `batch`, where all rows read draw 0. Under window and block it is always a tensor, zeros if G = 1.

        `query.window` (B,) numbers the window of each row, ascending; None: the examples have no windows.
        `query.windows()` then makes each row its own window. `query.window_offsets` (W + 1,) holds the first row of
        each window, if known.
        """
        n, share = len(query), self.config.share_draws_by
        if share == "batch" or n == 0:
            return 1, None
        if share == "block":
            size = self.config.share_size
            if query.window is None:
                return math.ceil(n / size), query.windows() // size
            window_index = torch.unique_consecutive(query.window, return_inverse=True)[1]
            return math.ceil((int(window_index[-1]) + 1) / size), window_index // size
        if share == "window":
            if query.window is None:                                              # no windows: a draw per row
                return n, None
            if query.window_offsets is not None:
                return len(query.window_offsets) - 1, query.window
            window, draw_id = torch.unique_consecutive(query.window, return_inverse=True)
            return len(window), draw_id
        return n, None


def grow_source(source: NegativeSource, earlier: NegativeSource, row: Tensor) -> str:
    """Let a source take over the state of an earlier one, if both have the same settings; see `grow_from`."""
    general = NegativesConfig.model_fields.keys() - {"source"}       # k, masks and sharing are not part of a state
    if source.config.model_dump(exclude=general) != earlier.config.model_dump(exclude=general):
        return f"the state of {source.name} starts again, because its settings differ"
    return source.grow_from(earlier, row)


def names() -> list[str]:
    """Names of all sources."""
    return list(registry.classes("embtrain.negatives", NegativeSource))


def find(name: str) -> type[NegativeSource]:
    """Source class of a name. Raises UsageError, which lists the names, if there is none.

    A class of another package is returned as a subclass that checks its draws and names the line of its exceptions.
    """
    return guarded(registry.find("embtrain.negatives", NegativeSource, name, key("source"), _strategy_hint))


def _strategy_hint(name: str) -> str:
    """Return the source of a strategy, for the error about a strategy's name in place of a source's."""
    source = shipped.strategy_sources().get(name)
    return f": it is a strategy; its source is {source}" if source else ""
