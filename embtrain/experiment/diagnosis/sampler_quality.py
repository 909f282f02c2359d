"""Quality of one negative sampler on some queries: distance to the softmax, gradient bias and cost.

p and q̄ are over the candidates other than the target. If a source states q of every candidate, negatives are drawn from
it with one uniform number each; if it corrects by a quantity of its own (resampled), it draws itself. If its q is an
estimate (in_batch), negatives are drawn at the frequency of the data's positives, which is what it estimates, and are
corrected by the estimate. An exhaustive source is the softmax: it costs as much as all scores. Definitions:
embtrain/evaluate/gradient_bias.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from embtrain.common.errors import UsageError
from embtrain.common.types import ModelView, ProblemSpec, Query
from embtrain.evaluate import gradient_bias
from embtrain.evaluate.gradient_bias import GradientError
from embtrain.negatives.base import NegativeSource
from embtrain.negatives.sampling import inner_product
from embtrain.negatives.softmax.kernels.rff import Rff
from embtrain.report.diagnosis.page import Measurement
from embtrain.train.engines.autograd import slices

MAX_SCORES_HELD = 4_000_000   # scores held at once
SECONDS = 0.3       # draws are timed for, after a first one
BOUNDS = ("lower", "upper")
N_BATCHES = 512       # of positives that an estimate is made from


def measure_sampler(source: NegativeSource, query: Query, timing_query: Query, view: ModelView, problem: ProblemSpec,
                    m: int,
                    batch: int = 128) -> SamplerQuality:
    """Prepare a source and return its SamplerQuality. m: negatives of a draw; batch: rows of an in-batch draw.

    A source that adapts to queries is fitted on `timing_query`, one that estimates q on batches of positives drawn at
    the frequency of the data. UsageError if it estimates frequencies and training counted none.
    """
    if source.traits.fits_to_queries:
        source.draw(timing_query, m, view)
    if source.traits.density == "estimated":
        if not problem.counts.sum() > 0:
            raise UsageError(f"negatives.source: {source.name} estimates the frequency of positives, but training has "
                             "counted none; remove it")
        random = torch.Generator().manual_seed(problem.seed)
        batch_query = timing_query.rows(torch.randint(len(timing_query), (batch,), generator=random))
        for _ in range(N_BATCHES):
            target = torch.multinomial(problem.counts, batch, replacement=True, generator=random)
            source.draw(replace(batch_query, target=target), m, view)
    return SamplerQuality(source, query, timing_query, view, problem)


@dataclass
class SamplerQuality:
    """Quality of a source on some queries; quantities that do not depend on m are computed once."""

    source: NegativeSource
    query: Query
    timing_query: Query    # queries that draws are timed on
    view: ModelView
    problem: ProblemSpec

    def __post_init__(self) -> None:
        source, target = self.source, self.query.target
        self.excludes_target = bool(getattr(source.config, "exclude_target", False))
        self.states_q = self.excludes_target or source.traits.density in ("exact", "estimated")   # for every candidate
        self.all_ids = torch.arange(self.view.n_candidates).unsqueeze(0)          # (1, V)
        self.c = inner_product.candidate_vectors(self.view)                                     # (V, D)
        self.row_slices = list(slices(len(target), max(1, MAX_SCORES_HELD // self.view.n_candidates)))

    def measurement(self, name: str, m: int, error: dict[str, float | None], note: str) -> Measurement:
        """All results of the source with m negatives.

        error: that of `error`, computed for every m before the first measurement. The clock decides how often the
        source draws for `milliseconds`, and a source may remember its draws.
        """
        bounds = {key: None if x is None else x / m for key, x in self.bounds.items()}
        values = {**error, **self.closeness, **bounds}
        milliseconds = self.milliseconds(m)       # after closeness, as a source may learn from its draws
        negative = self.source.floored_fraction   # after the draws, as the source checks its masses when it draws
        return Measurement(name, m, milliseconds, **values, negative=negative, note=note)

    def milliseconds(self, m: int) -> float:
        """Milliseconds per query of a draw of m columns; of all scores for an exhaustive source."""
        def score() -> None:
            for rows in slices(len(self.timing_query), max(1, MAX_SCORES_HELD // self.view.n_candidates)):
                self.view.score(self.timing_query.rows(rows), self.all_ids)

        call = score if self.source.traits.exhaustive else lambda: self.source.draw(self.timing_query, m, self.view)
        return gradient_bias.milliseconds(call, SECONDS) / len(self.timing_query)

    def error(self, m: int, draws: int) -> dict[str, float | None]:
        """Bias, noise floor and rmse relative to the gradient norm; empty if the source states no density."""
        if self.source.traits.exhaustive:
            return {"bias": 0.0, "floor": 0.0, "rmse": 0.0}
        if self.source.traits.density == "none":
            return {}
        errors = [self._error(rows, m, draws) for rows in self.row_slices]
        bias, floor, rmse, size = (torch.cat(x).square().mean() for x in zip(
            *((x.bias, x.floor, x.rmse, x.size) for x in errors), strict=True))
        return {key: _known((x.clamp(min=0) / size).sqrt())
                for key, x in (("bias", bias - floor), ("floor", floor), ("rmse", rmse))}

    @cached_property
    def closeness(self) -> dict[str, float | None]:
        """Quantities that do not depend on m: means of kl, tv and ess, medians of the theorems' quantities."""
        if self.source.traits.exhaustive:
            return {"kl": 0.0, "tv": 0.0, "ess": 1.0}
        means = ("kl", "tv", "ess")
        return {key: _known(x.mean() if key in means else x.median()) for key, x in self._quantities.items()
                if key not in BOUNDS}

    @cached_property
    def bounds(self) -> dict[str, float | None]:
        """Theorem 1's bounds on a coordinate of the bias of one column (m columns: an m-th). Medians over queries."""
        if self.source.traits.exhaustive or self.source.traits.density == "estimated" or not self.source.traits.iid:
            return {}
        return {key: _known(x.median()) for key, x in self._quantities.items() if key in BOUNDS and len(x)}

    @cached_property
    def _quantities(self) -> dict[str, Tensor]:
        """Every quantity of every query; of the upper bound, every coordinate where it holds."""
        collected: dict[str, list[Tensor]] = {}
        for rows in self.row_slices if self.states_q else ():
            query = self.query.rows(rows)
            o, drawing, target = self._scores(query), self._log_q(query), query.target.unsqueeze(1)
            log_q = gradient_bias.without_target(drawing, query.target)
            near = gradient_bias.closeness(o.scatter(1, target, -torch.inf), log_q)
            # for the draws whose bias is measured
            theorem1 = gradient_bias.theorem1(o, self.c, query.target, drawing, 1)
            quantities = {"kl": near.kl, "tv": near.tv, "ess": near.ess, "chi": theorem1.chi, "gap": theorem1.gap,
                          "away": theorem1.deviation,
                          "lower": theorem1.lower.flatten(), "upper": theorem1.upper[theorem1.g >= 0]}
            if (nu := self._nu()) is not None:
                others = torch.ones_like(o, dtype=torch.bool).scatter(1, target, False)
                rest, q = (x[others].view(len(o), -1) for x in (o, log_q))
                theorem2 = gradient_bias.theorem2(rest, q, self.view.tau, nu)
                quantities |= {"low": theorem2.low, "high": theorem2.high, "factor": theorem2.factor}
            for key, value in quantities.items():
                collected.setdefault(key, []).append(value)
        return {key: torch.cat(value) for key, value in collected.items()}

    def _scores(self, query: Query) -> Tensor:
        return self.view.score(query, self.all_ids).double()                      # (b, V)

    def _log_q(self, query: Query) -> Tensor:
        return self.source.log_prob(query, self.all_ids).double().expand(len(query), -1)

    def _nu(self) -> float | None:
        """ν if theorem 2 applies to this source: Fourier features alone, of unit vectors."""
        source = self.source
        if not isinstance(source, Rff) or self.view.geometry != "cosine":
            return None
        plain = source.config.leaf_size == 1 and source.config.prior_exponent == 0
        return source.feature_map.scale(self.view.tau) ** 2 if plain else None

    def _error(self, rows: slice, m: int, draws: int) -> GradientError:
        query = self.query.rows(rows)
        from_density = self.states_q and self.source.traits.iid
        draw = self._draw_from_density(query, m) if from_density else self._draw_from_source(query, m)
        return gradient_bias.error_of_draws(self._scores(query), self.c, query.target, m, draws, draw)

    def _draw_from_density(self, query: Query, m: int) -> Callable[[int], tuple[Tensor, Tensor]]:
        """Draw columns from the q that the source states, or from the frequencies it estimates."""
        log_q, random = self._log_q(query), torch.Generator().manual_seed(m)
        is_estimated = self.source.traits.density == "estimated"
        q = self.problem.counts.double().expand(len(query), -1) if is_estimated else log_q.exp()
        cdf = q.cumsum(1)
        last = (cdf < cdf[:, -1:]).sum(1, keepdim=True)                            # last candidate with mass
        log_m = torch.tensor(float(m), dtype=torch.float64).log()

        def draw(n: int) -> tuple[Tensor, Tensor]:
            u = torch.rand(len(query), n * m, generator=random, dtype=torch.float64) * cdf[:, -1:]
            ids = torch.searchsorted(cdf, u, right=True).minimum(last)
            return ids.view(-1, n, m), (log_q.gather(1, ids) + log_m).view(-1, n, m)
        return draw

    def _draw_from_source(self, query: Query, m: int) -> Callable[[int], tuple[Tensor, Tensor]]:
        """Columns that the source draws, with the mass each is corrected by; weight 0 adds nothing."""
        def draw_once() -> tuple[Tensor, Tensor]:
            drawn, n = self.source.draw(query, m, self.view), len(query)
            ids, log_q, weight = (drawn.per_row(x, n) for x in (drawn.ids, drawn.log_q, drawn.weight))
            assert ids is not None and log_q is not None and drawn.total_weight is not None
            log_mq = log_q.double() + drawn.total_weight.double().log()
            return ids, log_mq if weight is None else log_mq - weight.double().log()

        def draw(n: int) -> tuple[Tensor, Tensor]:
            ids, log_mq = zip(*(draw_once() for _ in range(n)), strict=True)
            return torch.stack(ids, 1), torch.stack(log_mq, 1)
        return draw


def _known(x: Tensor) -> float | None:
    value = float(x)
    return value if math.isfinite(value) else None
