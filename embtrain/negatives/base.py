"""Interface of negative sources: they draw candidates and report the probability of each draw.

`draw(query, k, view) -> Negatives` · `log_prob(query, ids)` · and, if the source learns from the cost of its negatives,
`learn(query, drawn, cost)`. A source receives a detached query and a read-only view, never a model.

Traits.density  exact: log_q is the probability with which an id was drawn, and Σ_id e^{log_q} = 1;
                conditional: given the ids that were shortlisted or excluded, E Σ_j w_j f(id_j) / (M q_j) =
                Σ_id f(id) with the total weight M = Σ_j w_j, and a target has no q; estimated: q, also that of targets,
                is estimated from the data; none: no density.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from embtrain.common import registry
from embtrain.common.config import Section
from embtrain.common.errors import UsageError
from embtrain.common.traits import refuse_attributes, trait
from embtrain.common.types import ModelView, Negatives, ProblemSpec, Query
from embtrain.negatives.plugin_checks import guarded


class NegativesConfig(Section):
    """Settings common to all sources. A source adds its own keys in its strategy's YAML."""

    source: str = Field("unigram", description="negative sampler, a module of embtrain.negatives")
    k: int = Field(5, ge=1, le=1_000_000, description="negatives per draw")
    filter: Literal["none", "target", "observed"] = Field(
        "target", description="known positives that are masked among the negatives; changes the optimum (see docs)")
    share_draws_by: Literal["row", "window", "block", "batch"] = Field("row", description="rows that share a draw")
    share_size: int = Field(
        64, ge=1, description="windows (or rows, without windows) that share a draw under share_draws_by: block")
    total_weight: float | None = Field(
        None, gt=0, description="sum of the weights of a row's negatives, total_weight/k each; null: k")
    replacement: bool = Field(True, description="draw with replacement")


@dataclass(frozen=True, kw_only=True)
class Traits:
    """Traits of a source, which decide how it may be used.

    A class declares them: `traits = Traits(learns=True)`. Its constructor sets those that depend on the settings:
    `self.traits = replace(self.traits, density="conditional")`. They do not change afterwards. A subclass of a source
    that has traits keeps them with `replace(Parent.traits, ...)`.
    """

    geometry: frozenset[str] = trait(frozenset(), "needs", "geometries of the model that it supports; empty: all")
    needs_frozen_table: bool = trait(False, "needs", "needs a frozen table with rows of length 1")
    uses_model: bool = trait(False, "needs", "reads `query.vector` or the view")
    uses_counts: bool = trait(False, "needs", "draws by the counts of the positives: built again when they change")
    redraws_each_update: bool = trait(False, "needs", "depends on the current query: a draw for each update")
    min_batch_size: int = trait(1, "needs", "rows that a batch needs for a draw")

    density: Literal["exact", "conditional", "estimated", "none"] = trait(
        "exact", "offers", "kind of the probability of a draw, as the module `embtrain.negatives.base` defines it")
    iid: bool = trait(True, "offers", "negatives are i.i.d. draws from one q, with weight 1")
    exhaustive: bool = trait(False, "offers", "every candidate is a negative")
    components: tuple[str, ...] = trait(("noise",), "offers", "origins of its negatives; empty: it draws none")
    supports_total_weight: bool = trait(
        False, "offers", "draws with replacement and supports `negatives.total_weight`")
    supports_without_replacement: bool = trait(False, "offers", "can draw without replacement")

    sharing_modes: tuple[str, ...] = trait(
        ("row", "window", "block", "batch"), "sharing", "allowed values of `negatives.share_draws_by`")
    sharing_limit: str = trait("draws for each query", "sharing", "why no others, for the error message")
    standard_layout: bool = trait(
        True, "sharing", "draws as `negatives.share_draws_by` sets, with one total weight for all rows")

    learns: bool = trait(False, "learning", "receives the cost of its negatives in `learn`")
    learns_per_row: bool = trait(False, "learning", "`learn` receives costs per row, not per draw")
    fits_to_queries: bool = trait(False, "learning", "its weights are fitted to the queries of earlier draws")


class NegativeSource:
    """Base class of all sources.

    A subclass sets its traits and implements `draw` and `log_prob`. The constructor raises UsageError for settings that
    the source does not support.
    """

    name: ClassVar[str]
    Config: ClassVar[type[NegativesConfig]] = NegativesConfig
    traits: Traits = Traits()
    floored_fraction: float | None = None         # measured share of weights at the floor (FeatureMap.positive)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        refuse_attributes(f"{cls.__module__}.{cls.__qualname__}", vars(cls), cls.traits)

    def __init__(self, config: NegativesConfig, problem: ProblemSpec):
        self.config, self.problem, traits = config, problem, self.traits
        if config.share_draws_by not in traits.sharing_modes:
            raise UsageError(
                f"negatives.share_draws_by: {self.name} {traits.sharing_limit}, so {config.share_draws_by!r} is not "
                f"possible; use {' or '.join(traits.sharing_modes)}"
            )
        if not config.replacement and not traits.supports_without_replacement:
            raise UsageError(f"negatives.replacement: {self.name} cannot draw without replacement; set it to true")
        if config.total_weight is not None and not (traits.supports_total_weight and config.replacement):
            raise UsageError(
                f"negatives.total_weight: {self.name} with these settings does not draw k negatives with replacement, "
                "as a shared mass requires; set negatives.total_weight: null"
            )
        self.random = torch.Generator(device=problem.device).manual_seed(problem.seed)
        self._weight_and_mass: dict[int, tuple[Tensor | None, Tensor]] = {}       # by k

    def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
        """Draw k negatives for each draw of the batch: ids (G, K), with log q, weight and total noise weight.

        query: B rows, detached. view: the current model, read-only. Rows share draws as set by
        `negatives.share_draws_by`.
        """
        raise TypeError(f"{type(self).__name__} does not implement draw")

    def log_prob(self, query: Query, ids: Tensor) -> Tensor:
        """log q of ids (1, K) or (B, K) for each row: (B, K), or broadcastable to it.

        Raises TypeError if the source has no density, UsageError if it needs the model and has not received it yet.
        """
        raise TypeError(f"{type(self).__name__} has no density")

    def learn(self, query: Query, drawn: Negatives, cost: Tensor) -> dict[str, float]:
        """Receive the cost of every drawn negative, and return metrics for the log.

        cost (G, K): the mean over the rows that share the draw, false negatives excluded; (B, K), one line per row, if
        `traits.learns_per_row`.

        query and drawn are those of one earlier `draw`, with false negatives added. Other data of that
        draw that this method needs are in `drawn.state`, which `draw` sets: other draws may have been made in between.
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

    def weight_and_mass(self, k: int) -> tuple[Tensor | None, Tensor]:
        """Weight of each of k negatives, (1, 1), or None if it is 1, and their total (1, 1)."""
        if k not in self._weight_and_mass:
            mass = float(k) if self.config.total_weight is None else self.config.total_weight
            weight = None if mass == k else torch.full((1, 1), mass / k, device=self.problem.device)
            self._weight_and_mass[k] = weight, torch.full((1, 1), mass, device=self.problem.device)
        return self._weight_and_mass[k]

    def draw_layout(self, query: Query) -> tuple[int, Tensor | None]:
        """Number of draws G that the batch needs under `share_draws_by`, and the draw of each row (B,).

        The latter is None if each row has its own draw or if G = 1.
        """
        n, share = len(query), self.config.share_draws_by
        if share == "batch" or n == 0:
            return 1, None
        if share == "block":
            window_index = torch.unique_consecutive(query.windows(), return_inverse=True)[1]
            size = self.config.share_size
            return math.ceil((int(window_index[-1]) + 1) / size), window_index // size
        if share == "window":
            if query.window is None:                                              # no windows: a draw per row
                return n, None
            if query.window_offsets is not None:
                return len(query.window_offsets) - 1, query.window
            window, draw_id = torch.unique_consecutive(query.window, return_inverse=True)
            return len(window), draw_id
        return n, None


def names() -> list[str]:
    """Names of all sources."""
    return list(registry.classes("embtrain.negatives", NegativeSource))


def find(name: str) -> type[NegativeSource]:
    """Source class of a name. Raises UsageError, which lists the names, if there is none.

    The draws of a class of another package are checked, and its exceptions are named (plugin_checks.py).
    """
    return guarded(registry.find("embtrain.negatives", NegativeSource, name, "negatives.source"))
