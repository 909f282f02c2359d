"""Rules on probabilities: log_prob, log_q, sampled frequencies and weighted estimates.

Tests on samples use fixed seeds and reject at p < 4e-6: 0.001 divided among at most 250 tests.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from scipy import stats
from torch import Tensor

from embtrain.common.errors import UsageError
from embtrain.common.types import Query
from embtrain.negatives.base import NegativeSource
from embtrain.testing.case import SourceCase, is_close, log_prob_of_all, per_row, q_of_draws
from embtrain.testing.worlds import TableView, V, query, trained

SIGNIFICANCE = 4e-6
N_DRAWS = 100_000        # draws of a chi-square test
MIN_EXPECTED = 50        # expected draws in each of its cells


def excludes_target(source: NegativeSource) -> bool:
    return source.traits.density == "conditional" and bool(getattr(source.config, "exclude_target", False))


def densities(case: SourceCase) -> None:
    """log_prob sums to 1 over all candidates; log_q and log_q_target of a draw are of the mean q of its rows."""
    source, batch = trained(case.build()), query()
    total = log_prob_of_all(source, batch).exp().sum(1)
    case.require(is_close(total, torch.ones_like(total)), "log_prob",
                 f"q sums to {float(total[(total - 1).abs().argmax()]):.6g} over all candidates; it must sum to 1")
    ids, _, log_q = per_row(drawn := source.draw(batch, source.config.k, TableView()), len(batch))
    draw_id, expected = drawn.draw_index(len(batch), "cpu"), q_of_draws(source, batch, drawn).log()
    expected = expected if draw_id is None else expected[draw_id]                             # (B, V)
    case.require(log_q is not None and is_close(expected.gather(1, ids), log_q), "log_q",
                 "log_q of a draw is not the log of the mean of exp(log_prob) over its rows")
    target = expected.gather(1, batch.target.unsqueeze(1))[:, 0]
    case.require(drawn.log_q_target is not None and is_close(target, drawn.log_q_target), "log_q",
                 "log_q_target is not the log of the mean of exp(log_prob) over the rows of the draw")


def same_query(rows: int, context: int) -> Query:
    """Rows with the same query, each in its own window."""
    zeros = torch.zeros(rows, dtype=torch.int64)
    return Query(query(1).vector.expand(rows, -1), torch.full((rows,), context), zeros, zeros, zeros,
                 torch.arange(rows))


def frequencies(case: SourceCase) -> None:
    """Sampled frequencies match log_prob (chi-square test on 100,000 draws for each of two contexts).

    A draw that rows with different queries may share has three rows, one of them with another query.
    """
    for context in (0, 4):
        source = trained(case.build())
        batch, k = same_query(N_DRAWS // source.config.k, context), source.config.k
        if source.config.share_draws_by in ("batch", "block"):
            other = torch.tensor([0, 1, 0])
            batch, k = replace(same_query(3, context), context=context + other, query_id=other), N_DRAWS
        _frequencies(case, source, batch, k)


def frequencies_without_target(case: SourceCase) -> None:
    """Sampled frequencies match log_prob, where the target is excluded and each row has its own draw."""
    source = trained(case.build())
    batch = same_query(N_DRAWS // source.config.k, 4)
    _frequencies(case, source, replace(batch, target=torch.full((len(batch),), 7)), source.config.k)


def _frequencies(case: SourceCase, source: NegativeSource, batch: Query, k: int) -> None:
    drawn = source.draw(batch, k, TableView())
    assert drawn.ids is not None
    ids = drawn.ids
    weight = torch.ones(1, ids.shape[1], dtype=torch.float64) if drawn.weight is None \
        else drawn.weight.double().expand(-1, ids.shape[1])
    weight = weight / weight.mean()  # total_weight may be small, and each cell needs enough draws
    counts = torch.bincount(ids.flatten(), weight.expand(ids.shape).flatten(), minlength=V)
    variance_scale = float(weight.square().sum() / weight.sum())
    p = q_of_draws(source, batch, drawn).mean(0)
    expected, found = pool_rare(p / p.sum(), counts)
    assert expected.min() >= MIN_EXPECTED
    # Negatives of two components are two strata, which vary less than draws from the mixture: the bound still holds.
    chi2 = float(((found - expected).square() / expected).sum()) / variance_scale
    p_value = float(stats.chi2.sf(chi2, len(expected) - 1))
    case.require(p_value > SIGNIFICANCE, "frequencies",
                 f"sampled frequencies differ from log_prob (chi-square, p = {p_value:.1e})")


def pool_rare(p: Tensor, counts: Tensor) -> list[Tensor]:
    """Expected and found counts, rare ids pooled until each cell expects at least MIN_EXPECTED draws."""
    order = p.argsort()
    expected, found = (p * counts.sum())[order], counts[order]
    n_cells, total, cell = 0, 0.0, torch.zeros(len(p), dtype=torch.int64)
    for i, e in enumerate(expected.tolist()):
        cell[i] = n_cells
        total += e
        if total >= MIN_EXPECTED:
            n_cells, total = n_cells + 1, 0.0
    cell.clamp_(max=n_cells - 1)
    return [torch.zeros(n_cells, dtype=torch.float64).index_add_(0, cell, x) for x in (expected, found)]


def weighted_estimate(case: SourceCase) -> None:
    """E Σ_j w_j f(id_j) / (total_weight q_j) = Σ_id f(id), within the standard error of 200 draws."""
    source, view, rows = trained(case.build()), TableView(), 60
    f = torch.rand(V, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    batch, estimates = query(rows), []
    for _ in range(200):
        drawn = source.draw(batch, source.config.k, view)
        ids, weight, log_q = per_row(drawn, rows)
        assert drawn.total_weight is not None and log_q is not None
        terms = torch.where(weight > 0, weight * f[ids] / (drawn.total_weight.double() * log_q.exp()), 0.0)
        estimates.append(terms.sum(1).mean())              # rows that share a draw are not independent, their mean is
    found = torch.stack(estimates)
    expected = f.sum() - f[batch.target] if excludes_target(source) else f.sum()
    error = float(found.mean() - expected.mean())
    if source.traits.exhaustive:
        case.require(abs(error) < 1e-4, "weighted estimate", f"the weighted sum is off by {error:.3g}")
        return
    p_value = 2 * float(stats.norm.sf(abs(error) / float(found.std() / math.sqrt(len(found)))))
    case.require(p_value > SIGNIFICANCE, "weighted estimate",
                 f"Σ w f / (total_weight q) estimates Σ f with a bias of {error:.3g} (p = {p_value:.1e})")


def conditional(case: SourceCase) -> None:
    """A source of density `conditional` reports no log_q_target."""
    drawn = case.build().draw(query(), 4, TableView())
    case.require(drawn.log_q_target is None, "conditional", "log_q_target is set under density conditional")


def excluded_target(case: SourceCase) -> None:
    """With exclude_target, a target is never drawn and has probability 0."""
    source, batch = trained(case.build()), query(400)
    ids, _, _ = per_row(source.draw(batch, 16, TableView()), len(batch))
    case.require(not (ids == batch.target.unsqueeze(1)).any(), "excluded target", "the target of a row is drawn for it")
    log_q = log_prob_of_all(source, batch).gather(1, batch.target.unsqueeze(1))
    case.require((log_q == -math.inf).all(), "excluded target", "log_prob of the target is not -inf")


def independent_rows(case: SourceCase) -> None:
    """log_prob of a row is that of the row alone, under every sharing of draws."""
    batch = query()
    ids = torch.randint(V, (len(batch), 7), generator=torch.Generator().manual_seed(3))
    for share in case.sharings():
        try:
            source = trained(case.build(share_draws_by=share))
        except UsageError:               # refused together with another setting
            continue
        together = source.log_prob(batch, ids).expand(len(batch), 7)
        alone = torch.cat([source.log_prob(batch.rows(slice(i, i + 1)), ids[i:i + 1]) for i in range(len(batch))])
        case.require(is_close(together, alone), "rows", "log_prob of a row changes with the other rows of the call")
