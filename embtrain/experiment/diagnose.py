"""What sources of negatives would draw for a trained model: near the exact softmax, and at what cost. And its table.

The model is that of a run; the questions are pairs of its held-out text. Each source sees the model anew. What the
run's own source has learnt is kept; another that learns is new here. Questions beside those that are measured are what
draws are timed on, and what a source has heard before that fits itself to questions. Definitions:
embtrain/evaluate/sampling.py.

p and q̄ are over the candidates other than the right answer. Where a source states q of every candidate, columns are
drawn from that by one number each; where it corrects by what it alone knows (resampled), it draws itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from embtrain.errors import DataError, UsageError
from embtrain.evaluate import hubness, sampling
from embtrain.evaluate.sampling import GradientError
from embtrain.experiment import judge, parts, settings
from embtrain.experiment.parts import Parts
from embtrain.experiment.run import Run, check_corpus
from embtrain.experiment.settings import Settings
from embtrain.experiment.tasks import base as tasks
from embtrain.negatives import base as negatives
from embtrain.negatives import product
from embtrain.negatives.base import NegativesConfig, NegativeSource
from embtrain.negatives.rff import Rff
from embtrain.progress import Progress
from embtrain.report import diagnosis
from embtrain.report.diagnosis import Diagnosis, Line
from embtrain.train import checkpoint
from embtrain.train.step import ReadOnly, slices
from embtrain.types import Query, View

CELLS = 4_000_000   # scores held at once
SECONDS = 0.3       # a draw is timed for, but not its first


def diagnose(folder: Path, strategies: Sequence[str], sizes: Sequence[int], most: int = 64, draws: int = 400,
             threads: int | None = None, out: Path | None = None) -> Diagnosis:
    """Measure the table of what is asked for, and each strategy's source at each m; write diagnosis.json, .md and .html
    into `out` (or the run's folder `diagnosis`). threads: None takes those that the run was set to."""
    config, made = opened(folder, strategies, sizes, threads)
    used = torch.get_num_threads()
    view = ReadOnly(made.model)
    table = hubness.hubness(view.table(), made.world.counts, made.world.words)
    if strategies and view.geometry not in product.GEOMETRIES:
        raise UsageError(f"{folder}: scores of model.name: {config.model.name} are no inner products, and the gradient "
                         "of inner products is what is measured")
    query, beside, part = questions(made, most) if strategies else (None, None, "")
    sources = [source_of(name, made, config, view, sizes) for name in strategies]
    lines = []
    with Progress("diagnosing", len(sources) * len(sizes), "measurements", 0) as progress:
        for name, (source, note) in zip(strategies, sources, strict=True):
            if source.density == "none":
                note = "states no probabilities, so its columns are not corrected"
            elif source.density == "estimated":
                note = "measured as if its columns were independent draws from the q that it estimates"
            assert query is not None and beside is not None
            if source.hears:
                source.draw(beside, max(sizes), view)
            of = _Measured(source, query, beside, view)
            for m in sizes:
                lines.append(of.line(name, m, draws, note))
                progress.add(1, name)
    found = Diagnosis(folder.resolve().name, config.model.name, config.corpus, part, 0 if query is None else len(query),
                      made.world.n_candidates, draws, used, lines, table)
    diagnosis.write(out or folder / "diagnosis", found)
    return found


def opened(folder: Path, strategies: Sequence[str], sizes: Sequence[int], threads: int | None = None
           ) -> tuple[Settings, Parts]:
    """A run's settings and parts as it left them; where its own strategy is asked, with room for so many columns.
    Torch gets as many threads, or those of train.threads."""
    config = Run(folder).settings
    parts.use_threads(config.train.threads if threads is None else threads)
    config = config.model_copy(update={"train": config.train.model_copy(update={"engine": "step", "device": "cpu"})})
    if config.strategy in strategies:
        config = config.model_copy(update={"negatives": _widest(config.negatives, sizes)})
    task = tasks.read(config)
    check_corpus(folder, task)
    made = parts.build(config, task)
    best = config.train.patience and (folder / "best").is_dir()
    _load(folder, made, checkpoint.load(folder / ("best" if best else "checkpoints")))
    return config, made


def _load(folder: Path, made: Parts, state: dict) -> None:
    try:
        made.model.load_state_dict(state["model"])
        made.source.load_state_dict(state["source"])
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise DataError(f"{folder}: its checkpoint is of another model or source than config.yaml names; give the "
                        "run's own config.yaml back") from error


def questions(made: Parts, most: int) -> tuple[Query, Query, str]:
    """Held-out pairs, evenly spread, and those that lie between them (the same, where none do); of the test part where
    there is one."""
    for part in ("test", "valid"):
        batch = made.task.heldout(part)
        if len(batch):
            rows = torch.linspace(0, len(batch) - 1, min(most, len(batch))).round().long()
            between = (rows[:-1] + rows[1:]) // 2
            between = between[between != rows[:-1]]
            asked = judge.ask(made, batch)
            return asked.rows(rows), asked.rows(between if len(between) else rows), part
    task = made.task
    raise DataError(f"the run holds no questions out: {task.unheld(task.settings, 'test') or 'they are none'}")


def source_of(name: str, made: Parts, config: Settings, view: View, sizes: Sequence[int]
              ) -> tuple[NegativeSource, str]:
    """The source of a strategy, and what there is to know of it."""
    if name == config.strategy:
        source, note = made.source, "has learnt with this model" if made.source.learns else ""
    else:
        of = _widest(settings.resolve(name).negatives, sizes)
        source = negatives.find(of.source)(of, made.world)
        note = "learns while it trains, and is new here" if source.learns else ""
    if not source.components:
        raise UsageError(f"--negatives: {name} draws nothing that could be measured")
    if source.geometry and view.geometry not in source.geometry:
        raise UsageError(f"--negatives: {name} needs scores that are one of {', '.join(sorted(source.geometry))}, and "
                         f"this run's model scores by {view.geometry}")
    source.refresh(view)
    return source, note


def _widest(config: NegativesConfig, sizes: Sequence[int]) -> NegativesConfig:
    """With as many columns as will be drawn, so that a source can refuse them."""
    return config.model_copy(update={"k": max(sizes)})


@dataclass
class _Measured:
    """A source before some questions."""

    source: NegativeSource
    query: Query
    beside: Query    # what draws are timed on
    view: View

    def __post_init__(self) -> None:
        source, target = self.source, self.query.target
        self.without = bool(getattr(source.config, "exclude_target", False))
        self.states_q = self.without or source.density in ("exact", "estimated")   # of every candidate
        self.everyone = torch.arange(self.view.n_candidates).unsqueeze(0)          # (1, V)
        self.c = product.candidates(self.view)                                     # (V, D)
        self.parts = list(slices(len(target), max(1, CELLS // self.view.n_candidates)))
        self.near = self._near() if self.states_q else {}

    def line(self, name: str, m: int, draws: int, note: str) -> Line:
        error: dict[str, float | None] = {}
        if self.source.complete:
            error = {"bias": 0.0, "floor": 0.0, "rmse": 0.0}
        elif self.source.density != "none":
            of = [self._error(rows, m, draws) for rows in self.parts]
            bias, floor, rmse, size = (torch.cat(x).square().mean() for x in zip(
                *((x.bias, x.floor, x.rmse, x.size) for x in of), strict=True))
            error = {key: _known((x.clamp(min=0) / size).sqrt())
                     for key, x in (("bias", bias - floor), ("floor", floor), ("rmse", rmse))}
        ms = sampling.milliseconds(lambda: self.source.draw(self.beside, m, self.view), SECONDS)
        return Line(name, m, ms / len(self.beside), **error, **self.near, negative=self.source.negative_share,
                    note=note)

    def _scores(self, query: Query) -> Tensor:
        return self.view.score(query, self.everyone).double()                      # (b, V)

    def _log_q(self, query: Query) -> Tensor:
        return self.source.log_prob(query, self.everyone).double().expand(len(query), -1)

    def _near(self) -> dict[str, float | None]:
        """What does not depend on m: means of closeness, medians of the theorems' quantities."""
        kept: dict[str, list[Tensor]] = {}
        for rows in self.parts:
            query = self.query.rows(rows)
            o, log_q = self._scores(query), sampling.without_target(self._log_q(query), query.target)
            target = query.target.unsqueeze(1)
            near = sampling.closeness(o.scatter(1, target, -torch.inf), log_q)
            one = sampling.theorem1(o, self.c, query.target, log_q, 1)
            found = {"kl": near.kl, "tv": near.tv, "ess": near.ess, "chi": one.chi, "gap": one.gap, "away": one.away}
            if (nu := self._nu()) is not None:
                others = torch.ones_like(o, dtype=torch.bool).scatter(1, target, False)
                rest, q = (x[others].view(len(o), -1) for x in (o, log_q))
                two = sampling.theorem2(rest, q, self.view.tau, nu)
                found |= {"low": two.low, "high": two.high, "factor": two.factor}
            for key, value in found.items():
                kept.setdefault(key, []).append(value)
        means = ("kl", "tv", "ess")
        joined = {key: torch.cat(value) for key, value in kept.items()}
        return {key: _known(x.mean() if key in means else x.median()) for key, x in joined.items()}

    def _nu(self) -> float | None:
        """ν where theorem 2 speaks of this source: Fourier features alone, of unit vectors."""
        source = self.source
        if not isinstance(source, Rff) or self.view.geometry != "cosine":
            return None
        plain = source.config.leaf == 1 and source.config.prior == 0
        return source.map.scale(self.view.tau) ** 2 if plain else None

    def _error(self, rows: slice, m: int, draws: int) -> GradientError:
        query = self.query.rows(rows)
        draw = self._stated(query, m) if self.states_q and self.source.iid else self._own(query, m)
        return sampling.error_of_draws(self._scores(query), self.c, query.target, m, draws, draw)

    def _stated(self, query: Query, m: int) -> Callable[[int], tuple[Tensor, Tensor]]:
        """Columns from the q that the source states, by one number each."""
        log_q, random = self._log_q(query), torch.Generator().manual_seed(m)
        cdf = log_q.exp().cumsum(1)
        last = (cdf < cdf[:, -1:]).sum(1, keepdim=True)                            # no candidate beyond it has mass
        log_m = torch.tensor(float(m), dtype=torch.float64).log()

        def draw(n: int) -> tuple[Tensor, Tensor]:
            u = torch.rand(len(query), n * m, generator=random, dtype=torch.float64) * cdf[:, -1:]
            ids = torch.searchsorted(cdf, u, right=True).minimum(last)
            return ids.view(-1, n, m), (log_q.gather(1, ids) + log_m).view(-1, n, m)
        return draw

    def _own(self, query: Query, m: int) -> Callable[[int], tuple[Tensor, Tensor]]:
        """Columns that the source draws, with the mass that it corrects each by; one of weight 0 counts nothing."""
        def once() -> tuple[Tensor, Tensor]:
            drawn, n = self.source.draw(query, m, self.view), len(query)
            ids, log_q, weight = (drawn.per_row(x, n) for x in (drawn.ids, drawn.log_q, drawn.weight))
            assert ids is not None and log_q is not None and drawn.mass is not None
            log_mq = log_q.double() + drawn.mass.double().log()
            return ids, log_mq if weight is None else log_mq - weight.double().log()

        def draw(n: int) -> tuple[Tensor, Tensor]:
            ids, log_mq = zip(*(once() for _ in range(n)), strict=True)
            return torch.stack(ids, 1), torch.stack(log_mq, 1)
        return draw


def _known(x: Tensor) -> float | None:
    value = float(x)
    return value if math.isfinite(value) else None
