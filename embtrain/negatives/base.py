"""A source draws candidates and says with what probability it drew them.

`draw(query, k, view) -> Negatives` · `log_prob(query, ids)` · and, where it learns from what its answers cost,
`learn(query, drawn, cost)`. A source sees a detached query and a read-only view, never a model.

density  exact: log_q is the probability with which an id was drawn, and Σ_id e^{log_q} = 1;
         conditional: given what was shortlisted or excluded, E Σ_j w_j f(id_j) / (mass q_j) = Σ_id f(id), and a
         target has no q; estimated: q, the target's too, is read off the data; none: the draw has no density.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from embtrain.common import registry
from embtrain.common.config import Section
from embtrain.common.errors import UsageError
from embtrain.common.types import ModelView, Negatives, ProblemSpec, Query


class NegativesConfig(Section):
    """Keys that every source has. A source's own keys stand beside them, in its strategy's YAML."""

    source: str = Field("unigram", description="who draws: a file of embtrain/negatives")
    k: int = Field(5, ge=1, le=1_000_000, description="columns drawn for each draw")
    mask: Literal["none", "target", "observed"] = Field(
        "target", description="which drawn right answers are forgiven; it moves the optimum (see docs)")
    share: Literal["row", "window", "block", "batch"] = Field("row", description="who shares a draw")
    block: int = Field(64, ge=1, description="windows (rows, where there are none) that share a draw under block")
    mass: float | None = Field(None, gt=0, description="noise mass per positive: columns weigh mass/k; null: k")
    replacement: bool = Field(True, description="draw with replacement")


class NegativeSource:
    """Base of every source. A sub-class states the class attributes and implements `draw` and `log_prob`."""

    name: ClassVar[str]
    Config: ClassVar[type[NegativesConfig]] = NegativesConfig
    density: Literal["exact", "conditional", "estimated", "none"] = "exact"
    iid: bool = True                                # columns are independent draws from one q, with weight 1
    geometry: frozenset[str] = frozenset()          # geometries of the model that it needs; empty: any
    needs_frozen_table: ClassVar[bool] = False             # the table must have rows of length 1 that stay as they are
    learns: ClassVar[bool] = False
    learns_per_row: bool = False  # learn gets what each row paid, not the mean over a draw's rows
    fits_to_queries: bool = False                             # its masses are fitted to questions of draws before
    min_batch_size: int = 1                            # rows that a batch must have for anything to be drawn
    n_logits: int = 0                                # logits that what it learns makes for one question
    exhaustive: ClassVar[bool] = False                # every candidate is a column
    components: ClassVar[tuple[str, ...]] = ("noise",)
    floored_fraction: float | None = None             # of its masses drawn by a floor, see FeatureMap.positive
    uses_model: ClassVar[bool] = False                   # it reads query.vector or the view
    redraws_each_update: ClassVar[bool] = False  # its columns are of the query as it is: a draw for each update
    supports_total_weight: ClassVar[bool] = False  # it draws with replacement and honours negatives.mass
    supports_without_replacement: ClassVar[bool] = False  # it can draw without replacement
    sharing_modes: ClassVar[tuple[str, ...]] = (
        "row",
        "window",
        "block",
        "batch",
    )  # what it can bear as negatives.share
    sharing_limit: ClassVar[str] = "draws for each question"                       # why it bears no other
    standard_layout: ClassVar[bool] = True                  # as many draws as `share` says, and one mass for all rows

    def __init__(self, config: NegativesConfig, world: ProblemSpec):
        self.config, self.world = config, world
        if config.share not in self.sharing_modes:
            raise UsageError(
                f"negatives.share: {self.name} {self.sharing_limit}, so {config.share!r} is not possible; use "
                f"{' or '.join(self.sharing_modes)}"
            )
        if not config.replacement and not self.supports_without_replacement:
            raise UsageError(f"negatives.replacement: {self.name} cannot draw without replacement; set it to true")
        if config.mass is not None and not (self.supports_total_weight and config.replacement):
            raise UsageError(f"negatives.mass: {self.name} as set does not draw k columns with replacement, and "
                             "nothing else can share a mass; set negatives.mass: null")
        self.random = torch.Generator(device=world.device).manual_seed(world.seed)
        self._weight_and_mass: dict[int, tuple[Tensor | None, Tensor]] = {}       # of k columns

    def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
        """k columns for each draw of the batch. The query is detached."""
        raise TypeError(f"{type(self).__name__} does not implement draw")

    def log_prob(self, query: Query, ids: Tensor) -> Tensor:
        """log q of ids (1, K) or (B, K) for each row: (B, K) or broadcastable to it."""
        raise TypeError(f"{type(self).__name__} has no density")

    def learn(self, query: Query, drawn: Negatives, cost: Tensor) -> dict[str, float]:
        """What each drawn column cost the model comes back, one line per draw (G, K): the mean over the rows that share
        it, those left out whose right answer it is; with `learns_per_row` one line per row (B, K). Metrics go out."""
        return {}

    def prepare_log_prob(self, view: ModelView) -> None:
        """So that `log_prob` can be asked without a draw: take what is still missing from the model. What will be drawn
        stays as it would have been."""

    def on_epoch_start(self, view: ModelView) -> None:
        """Rebuild what was derived from the model's table. Called when an epoch begins; `draw` sees the view too, for
        sources that keep another pace."""

    def metrics(self) -> dict[str, float]:
        """What there is to tell of the last draw, for the log."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {"random": self.random.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.random.set_state(state["random"])

    def weight_and_mass(self, k: int) -> tuple[Tensor | None, Tensor]:
        """Weight of each of k columns, (1, 1) or None where it is 1, and their mass (1, 1)."""
        if k not in self._weight_and_mass:
            mass = float(k) if self.config.mass is None else self.config.mass
            weight = None if mass == k else torch.full((1, 1), mass / k, device=self.world.device)
            self._weight_and_mass[k] = weight, torch.full((1, 1), mass, device=self.world.device)
        return self._weight_and_mass[k]

    def draw_layout(self, query: Query) -> tuple[int, Tensor | None]:
        """How many draws G the batch needs under `share`, and the draw of each row (B,) (None: own draw, or G = 1)."""
        n, share = len(query), self.config.share
        if share == "batch" or n == 0:
            return 1, None
        if share == "block":
            window_index = torch.unique_consecutive(query.windows(), return_inverse=True)[1]
            return math.ceil((int(window_index[-1]) + 1) / self.config.block), window_index // self.config.block
        if share == "window":
            if query.window is None:                                              # each row has its own
                return n, None
            if query.start is not None:
                return len(query.start) - 1, query.window
            window, draw_id = torch.unique_consecutive(query.window, return_inverse=True)
            return len(window), draw_id
        return n, None


def names() -> list[str]:
    return list(registry.classes("embtrain.negatives", NegativeSource))


def find(name: str) -> type[NegativeSource]:
    """The source class of a name; UsageError that lists the names where there is none."""
    return registry.find("embtrain.negatives", NegativeSource, name, "negatives.source")
