"""Runs the rules of the contract on a source class."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import Any, NamedTuple

from embtrain.common.errors import EmbtrainError, class_error, described_error, place
from embtrain.negatives.base import NegativeSource
from embtrain.testing import density_rules, draw_rules, state_rules
from embtrain.testing.case import ContractError, SourceCase

Applies = Callable[[NegativeSource], bool]


class RuleResult(NamedTuple):
    """The result of one rule for one source."""

    source: str
    rule: str
    about: str            # the rule in one line
    problem: str | None   # how the source breaks it; "": it keeps it; None: the rule does not apply to it


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
    density_rules.independent_rows: lambda source: (source.traits.density != "none"
                                                    and type(source).log_prob is not NegativeSource.log_prob),
    state_rules.seeds: lambda source: True,
    state_rules.state: lambda source: True,
    state_rules.evaluation: lambda source: True,
    state_rules.unchanged_model: lambda source: True,
    state_rules.declared_use_of_model: lambda source: not source.traits.uses_model,
    state_rules.declared_use_of_counts: lambda source: not source.traits.uses_counts,
    state_rules.probes: lambda source: source.traits.learns,
    state_rules.masked_costs: lambda source: source.traits.learns,
    state_rules.learning: lambda source: (source.traits.learns and source.traits.learns_from == "cost"
                                          and source.traits.density == "exact"),
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
        _check(case, rule)


def check_rules(case: SourceCase, skipped: Container[str] = ()) -> Iterator[RuleResult]:
    """Check every rule, also after a broken one, and yield its result as soon as it is known.

    skipped: names of rules that do not apply. Raises the EmbtrainError of the source's constructor, and
    DataError with file and line for another exception there.
    """
    applicable = [rule for rule in rules_of(_built(case)) if rule.__name__ not in skipped]
    for rule in RULES:
        problem: str | None = None
        if rule in applicable:
            try:
                _check(case, rule)
                problem = ""
            except ContractError as error:
                problem = error.problem
        yield RuleResult(case.source.name, rule.__name__, (rule.__doc__ or "").split("\n")[0], problem)


def _built(case: SourceCase) -> NegativeSource:
    """The source of a case; DataError or WrongClass with file and line if its constructor raises another error."""
    try:
        return case.build()
    except EmbtrainError:
        raise
    except (Exception, SystemExit) as error:
        where = place(error, case.source.__module__)
        raise class_error(error)(f"{where}: {described_error(error)}; correct it there") from error


def _check(case: SourceCase, rule: Callable[[SourceCase], None]) -> None:
    """Check one rule; ContractError for any exception."""
    try:
        rule(case)
    except ContractError:
        raise
    except (Exception, SystemExit) as error:                   # an exit would end the command as if all rules held
        raise ContractError(case.source.name, rule.__name__, described_error(error)) from error
