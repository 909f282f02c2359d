"""Runs the rules of the contract on a source class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from embtrain.negatives.base import NegativeSource
from embtrain.testing import density_rules, draw_rules, state_rules
from embtrain.testing.case import ContractError, SourceCase

Applies = Callable[[NegativeSource], bool]

#: Rules in the order of their checks, each with the sources that it applies to.
RULES: dict[Callable[[SourceCase], None], Applies] = {
    draw_rules.settings: lambda source: True,
    draw_rules.shapes: lambda source: True,
    density_rules.densities: lambda source: source.traits.density == "exact",
    density_rules.frequencies: lambda source: source.traits.density == "exact" and not source.traits.exhaustive,
    density_rules.conditional: lambda source: source.traits.density == "conditional",
    density_rules.excluded_target: density_rules.excludes_target,
    density_rules.frequencies_without_target: lambda source: (density_rules.excludes_target(source)
                                                              and source.config.share_draws_by == "row"),
    density_rules.weighted_estimate: lambda source: source.traits.density in ("exact", "conditional"),
    density_rules.independent_rows: lambda source: source.traits.density == "exact",
    state_rules.seeds: lambda source: True,
    state_rules.state: lambda source: True,
    state_rules.unchanged_model: lambda source: True,
    state_rules.declared_use_of_model: lambda source: not source.traits.uses_model,
    state_rules.declared_use_of_counts: lambda source: not source.traits.uses_counts,
    state_rules.probes: lambda source: source.traits.learns,
    state_rules.masked_costs: lambda source: source.traits.learns,
    state_rules.learning: lambda source: source.traits.learns and source.traits.density == "exact",
}


def rules_of(source: NegativeSource) -> list[Callable[[SourceCase], None]]:
    """Rules that apply to a source, in the order of their checks."""
    return [rule for rule, applies in RULES.items() if applies(source)]


def check_source(source: type[NegativeSource], *, deterministic: bool = False, **settings: Any) -> None:
    """Check that a negative source keeps the contract; for use in the tests of another package.

    settings: keys of its config as in a strategy's YAML, for example share_draws_by="window". deterministic: the source
    draws the same under every seed. Raises ContractError, an AssertionError, with one line that names the first broken
    rule.
    """
    case = SourceCase(source, settings, deterministic)
    for rule in rules_of(case.build()):
        try:
            rule(case)
        except ContractError:
            raise
        except Exception as error:
            raise ContractError(source.name, rule.__name__, f"{type(error).__name__}: {error}") from error
