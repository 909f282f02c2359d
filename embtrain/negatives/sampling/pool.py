"""A source that works on what another source draws: the settings of that other one, how it is made and picked from.

The inner settings are those of its strategy (`source` and its own keys). It gets a seed of its own: two streams of one
seed would draw the same numbers, and which column comes from whom would say which candidate it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from embtrain.common.config import Layer, build
from embtrain.common.errors import UsageError
from embtrain.common.types import ModelView, Negatives, ProblemSpec, Query
from embtrain.negatives import base
from embtrain.negatives.base import NegativesConfig, NegativeSource

HELD = 8_000_000  # scores held at once


def make(settings: dict[str, Any], key: str, k: int | None, world: ProblemSpec) -> NegativeSource:
    """The source that `settings`, found under negatives.KEY, describe. k: what it must draw; None: as its own k says.

    UsageError in one line where they are no settings of a source.
    """
    name = settings.get("source", "unigram")
    if not isinstance(name, str):
        raise UsageError(f"negatives.{key}.source: should be the name of a source, got {name!r}")
    if k is not None and "k" in settings and settings["k"] != k:
        raise UsageError(f"negatives.{key}.k: it draws as many columns as negatives.k says, {k}; leave it out")
    found = base.find(name)
    tree = {"negatives": {key: settings | {"source": name} | ({} if k is None else {"k": k})}}
    try:
        config = build(found.Config, [Layer(f"negatives.{key}", tree["negatives"][key])])
    except UsageError as error:
        raise UsageError(error.args[0]) from error
    seed = int(np.random.SeedSequence([world.seed, *key.encode()]).generate_state(1)[0])
    return found(config, replace(world, seed=seed))


class PoolSource(NegativeSource):
    """Picks from what its inner source draws, for each row."""

    iid = False
    uses_model: ClassVar[bool] = True
    sharing_modes: ClassVar[tuple[str, ...]] = ("row",)
    most: ClassVar[int] = HELD                      # rows at a time

    def __init__(self, config: NegativesConfig, settings: dict[str, Any], world: ProblemSpec):
        super().__init__(config, world)
        self.inner = make(settings, "inner", None, world)
        self.geometry, self.fits_to_queries = self.inner.geometry, self.inner.fits_to_queries
        self.min_batch_size = self.inner.min_batch_size

    def _pick(self, query: Query, of: Negatives, k: int, view: ModelView) -> tuple[Tensor, Tensor]:
        """k ids of what was drawn, and what goes with each: (B, k) twice."""
        raise TypeError(f"{type(self).__name__} does not implement _pick")

    def _picked(self, query: Query, k: int, view: ModelView) -> tuple[Tensor, Tensor]:
        """The same of a draw, some rows at a time."""
        of, n, ids, found = self.inner.draw(query, self.inner.config.k, view), len(query), [], []
        step = max(1, min(self.most, HELD // max(1, of.k)))
        for i in range(0, n, step):
            rows = slice(i, min(n, i + step))
            chosen, with_each = self._pick(query.rows(rows), of.rows(rows), k, view)
            ids.append(chosen)
            found.append(with_each)
        return torch.cat(ids), torch.cat(found)

    @staticmethod
    def _pool(of: Negatives, n: int) -> Tensor:
        """The ids of n rows: (1, M) where they share them, else (n, M)."""
        assert of.ids is not None
        pool = of.ids if of.draw_id is None and len(of.ids) == 1 else of.per_row(of.ids, n)
        assert pool is not None
        return pool

    def prepare_log_prob(self, view: ModelView) -> None:
        self.inner.prepare_log_prob(view)

    def refresh(self, view: ModelView) -> None:
        self.inner.refresh(view)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "inner": self.inner.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.inner.load_state_dict(state["inner"])
