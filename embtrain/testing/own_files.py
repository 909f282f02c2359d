"""Sources to check in a file of the user: classes of a Python file, or the source of a strategy with its settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import create_model

from embtrain.common.config import Layer, Section, build, read_yaml
from embtrain.common.errors import DataError, UsageError
from embtrain.common.registry import import_file
from embtrain.common.shipped import require_source
from embtrain.common.terminal import plain
from embtrain.common.traits import default_settings, require_defaults
from embtrain.negatives import base as negatives
from embtrain.negatives.base import NegativeSource
from embtrain.testing.case import SourceCase
from embtrain.testing.check import RuleResult, check_rules

MODULE = "embtrain_checked"     # name under which the file is imported
MAX_K = 4                       # negatives per draw of a strategy
NOT_OF_SETTINGS = {"learning"}  # rules on a class alone: the learning rate of a strategy suits its own problem


def check_file(path: Path, deterministic: bool = False) -> Iterator[RuleResult]:
    """Check the sources of a file and yield the result of each rule. Raises as `read_cases` does."""
    for case in read_cases(path, deterministic):
        yield from check_rules(case, () if path.suffix == ".py" else NOT_OF_SETTINGS)


def format_line(result: RuleResult) -> str:
    """One line for a terminal: `ok`, `broken` with the violation, or `-` for a rule that does not apply."""
    mark = "-" if result.problem is None else "broken" if result.problem else "ok"
    return plain(f"{mark:<6}  {result.source}: {result.rule}: {result.problem or result.about}")


def read_cases(path: Path, deterministic: bool = False) -> list[SourceCase]:
    """Return a case for each source of a file: .py, or .yaml of a strategy.

    A Python file is imported, which runs it. deterministic: the sources draw the same under every seed. UsageError for
    another kind of file or wrong settings, DataError if the file does not exist, cannot be imported or has no source.
    """
    if not path.is_file():
        raise DataError(f"{path}: file not found; give the Python file of a source or the YAML file of a strategy")
    if path.suffix in (".yaml", ".yml"):
        return [_strategy_case(path)]
    if path.suffix != ".py":
        raise UsageError(f"{path}: is neither Python nor YAML; give the file of a source (.py) or strategy (.yaml)")
    sources = [value for value in vars(import_file(path, MODULE)).values() if isinstance(value, type)
               and issubclass(value, NegativeSource) and value.__module__ == MODULE and "name" in vars(value)]
    if not sources:
        raise DataError(f"{path}: contains no source; derive a class from embtrain.negatives.base.NegativeSource and "
                        "give it a name")
    return [SourceCase(require_defaults(source, NegativeSource), {}, deterministic) for source in sources]


def _strategy_case(path: Path) -> SourceCase:
    """The source of a strategy with its settings, and at most MAX_K negatives: the checks draw from 40 candidates.

    `deterministic`, because whether seeds matter depends on the class and not on the settings.
    """
    layer = read_yaml(path)
    require_source(layer)
    settings = layer.tree["negatives"]
    if not isinstance(settings, dict) or not isinstance(name := settings["source"], str):
        raise UsageError(f"{layer.name}: negatives.source: is not a name; give that of a source")
    source = negatives.find(name)
    keys = create_model("Keys", __base__=Section, negatives=(source.Config, default_settings(source.Config)))
    config: Any = build(keys, [Layer(layer.name, {"negatives": settings}, layer.marks)])  # refuses unknown keys
    return SourceCase(source, settings | {"k": min(config.negatives.k, MAX_K)}, deterministic=True)
