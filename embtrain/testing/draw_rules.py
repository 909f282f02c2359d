"""Rules on settings and draws: refused settings, shared draws, shapes, ids and weights."""

from __future__ import annotations

import torch

from embtrain.common.errors import UsageError
from embtrain.common.types import Negatives, Query
from embtrain.negatives.base import NegativeSource
from embtrain.negatives.draw_checks import id_problem, layout_problem, value_problem
from embtrain.testing.case import SourceCase, is_close, per_row
from embtrain.testing.worlds import FEW_STEPS, TableView, V, query, trained


def settings(case: SourceCase) -> None:
    """Settings that the source does not support raise UsageError in the constructor; the others draw."""
    source = case.source
    case.require("row" in source.traits.sharing_modes, "settings",
                 "traits.sharing_modes lacks 'row'; every source can draw per row")
    for share in ("row", "window", "block", "batch"):
        if "share_draws_by" in case.settings:
            break
        try:
            built = case.build(share_draws_by=share)
        except UsageError as error:
            is_refused = str(error).startswith("negatives.share_draws_by:")
            case.require(is_refused or share in source.traits.sharing_modes, "settings",
                         f"share: {share} raises {error}; begin the error with negatives.share_draws_by:")
            continue
        case.require(share in source.traits.sharing_modes, "settings",
                     f"share: {share} is not in traits.sharing_modes, and the constructor accepts it; call "
                     "super().__init__")
        layouts(case, built)
    if "replacement" not in case.settings:
        _replacement(case)


def _replacement(case: SourceCase) -> None:
    """Without replacement the ids of a draw are distinct, or the setting is refused."""
    is_supported = case.source.traits.supports_without_replacement
    try:
        built = case.build(replacement=False)
    except UsageError as error:
        case.require(is_supported or str(error).startswith("negatives.replacement:"), "settings",
                     f"replacement: false raises {error}; begin the error with negatives.replacement:")
        return
    case.require(is_supported, "settings", "the constructor accepts replacement: false; call super().__init__")
    ids = built.draw(query(), 4, TableView()).ids
    case.require(ids is not None and all(len(set(line)) == len(line) for line in ids.tolist()), "settings",
                 "replacement: false draws an id twice; draw distinct ids")


def layouts(case: SourceCase, source: NegativeSource) -> None:
    """A batch has one draw for each group of rows that `share_draws_by` puts together."""
    batch, rule = query(), "sharing"
    drawn = source.draw(batch, source.config.k, TableView())
    if drawn.ids is None or source.traits.exhaustive or drawn.k == 0:
        return
    n, draw_id = source.draw_layout(batch)
    case.require(not source.traits.standard_layout or len(drawn.ids) == n, rule,
                 f"{len(drawn.ids)} draws under share_draws_by: {source.config.share_draws_by}; "
                 f"draw_layout(query) gives {n}")
    case.require(len(drawn.ids) in (1, len(batch)) or drawn.draw_id is not None, rule,
                 f"{len(drawn.ids)} draws for {len(batch)} rows without draw_id; pass that of draw_layout(query)")
    if source.traits.standard_layout and draw_id is not None:
        case.require(drawn.draw_id is not None and torch.equal(drawn.draw_id, draw_id), rule,
                     "draw_id differs from that of draw_layout(query); pass it unchanged")


def shapes(case: SourceCase) -> None:
    """ids are int64 in 0..V-1, fields broadcast to them, nothing has a gradient, and weights sum to total_weight."""
    learner = trained(case.build(), FEW_STEPS) if case.source.traits.learns else None
    only_k = case.settings.get("k")
    for rows, k in ((30, 4), (1, 4), (30, 1), (1, 1)):
        if only_k not in (None, k):
            continue
        source, batch = learner or case.build(k=k), query(rows)
        _shapes(case, source, batch, source.draw(batch, k, TableView()))


def _shapes(case: SourceCase, source: NegativeSource, batch: Query, drawn: Negatives) -> None:
    rows, ids = len(batch), drawn.ids
    problem = layout_problem(drawn, rows, batch.target.device)
    case.require(not problem, "shapes", f"a draw {problem}")
    if ids is None:
        return
    problem = id_problem(drawn, V)
    case.require(not problem, "ids", f"a draw {problem}")
    case.require(drawn.draw_id is None or int(drawn.draw_id.max()) + 1 == len(ids), "shapes",
                 f"draw_id does not give each of {rows} rows one of {len(ids)} draws")
    problem = value_problem(drawn, can_be_empty=True)
    case.require(not problem, "weights", f"a draw {problem}")
    if source.traits.density != "none" or drawn.total_weight is not None:
        _weights(case, source, drawn, rows)


def _weights(case: SourceCase, source: NegativeSource, drawn: Negatives, rows: int) -> None:
    total = drawn.total_weight
    case.require(total is not None, "weights", "total_weight is None; return the sum of the weights of a row")
    assert total is not None
    if rows < source.traits.min_batch_size:                # no negatives: total_weight is any positive number
        case.require((total > 0).all(), "weights", "total_weight is 0 for a batch that is too small for a draw")
        return
    case.require(float(total.min()) > 0 or (source.traits.density == "none" and float(total.min()) == 0), "weights",
                 "total_weight is not positive")
    _, weight, _ = per_row(drawn, rows)
    if drawn.false_negatives is not None:                  # false negatives that the source reports are not noise
        weight = weight.clone()
        weight[drawn.false_negatives[0], drawn.false_negatives[1]] = 0
    case.require(is_close(weight.sum(1), total.double().expand(rows, 1)[:, 0], 1e-4), "weights",
                 "the weights of a row do not sum to total_weight")
