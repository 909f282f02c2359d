"""Hashes of own benchmarks in identity.json, so that runs scored on different versions of one are not compared."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from embtrain.common.errors import DataError, UsageError, read_error
from embtrain.common.files import read_json, write_json
from embtrain.common.shipped import benchmark_label
from embtrain.common.terminal import format_part
from embtrain.data.benchmarks import find_benchmark
from embtrain.experiment.run.settings import Settings

KEY = "benchmarks"  # of identity.json
_log = logging.getLogger("embtrain")


def record(folder: Path, settings: Settings) -> None:
    """Write the hashes of the own benchmarks of a run, at the start, when it is resumed and before it is scored.

    Logs a warning for each that has changed. DataError if identity.json is damaged.
    """
    if not (hashes := _hashes(settings)):
        return
    identity, recorded = _read(folder)
    for label in _changed(recorded, hashes):
        _log.warning("%s: %s has changed since the run began; scores on it during training are of the version of their "
                     "time", folder, label)
    if recorded != hashes:
        write_json(folder / "identity.json", {**identity, KEY: hashes})


def require_unchanged(runs: Sequence[Path], settings: Settings) -> None:
    """Raise DataError if finished runs were scored on other versions of own benchmarks than those of now."""
    hashes = _hashes(settings)
    recorded = {run: _read(run)[1] for run in runs} if hashes else {}
    for label in hashes:
        if others := [run for run in recorded if label in _changed(recorded[run], hashes)]:
            part = format_part(len(others), len(runs), "finished runs", "was", "were")
            raise DataError(f"{label}: has changed since {part} scored on it, the first in {others[0]}; restore the "
                            "file, or give the comparison another folder")


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """identity.json, and the hashes in it. DataError if it is damaged."""
    path = folder / "identity.json"
    try:
        identity = read_json(path)
        return identity, dict(identity.get(KEY, {}))
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise read_error(path, error, f"is damaged: {error}; restore the file that training wrote") from error


def _changed(recorded: Mapping[str, Any], hashes: Mapping[str, str]) -> list[str]:
    return [label for label, sha256 in hashes.items() if recorded.get(label, sha256) != sha256]


def _hashes(settings: Settings) -> dict[str, str]:
    """The hash of each own benchmark, by its name in scores. UsageError, with its key, for one that is gone."""
    hashes = {}
    for key in ("benchmarks", "during_training"):
        for name in filter(os.path.isabs, getattr(settings.evaluate, key, [])):
            try:
                hashes[benchmark_label(name)] = find_benchmark(name).sha256()
            except UsageError as error:
                raise UsageError(f"evaluate.{key}: {error}") from error
    return hashes
