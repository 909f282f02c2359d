"""A fit with each numeric setting at a limit of its range trains, or ends with a one-line error of embtrain.

Every numeric key of the resolved settings of each run of tiny_runs is set, one at a time, to the smallest and largest
magnitude of a setting, to 0 and to -1.
"""

from __future__ import annotations

import signal
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from helpers import tiny_runs

from embtrain.common.config.tree import LARGEST, SMALLEST
from embtrain.common.errors import EmbtrainError
from embtrain.experiment.run import run

pytestmark = pytest.mark.slow

SECONDS = 20       # time limit of a fit: large counts (epochs, resamples) may train long
UNBOUNDED = {"train.threads"}  # the number of threads is tested in tests/unit/common/test_machine.py


class _Time(Exception):
    pass


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_runs.write(tmp_path_factory.mktemp("extreme"))


def numeric(tree: Any, prefix: str = "") -> Iterator[tuple[str, int | float]]:
    """Return dotted keys and values of all numbers in nested mappings."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from numeric(value, f"{prefix}{key}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}{key}", value


def tried(place: Path, name: str, engine: str, out: Path, key: str, value: object) -> str:
    """Return "trains", "refused" or "slow"; any exception that is not an error of embtrain is raised."""
    def late(number: int, frame: FrameType | None) -> None:
        raise _Time
    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            run.train_in_memory(tiny_runs.config(place, name, engine, f"{key}={value}"), out)
        return "trains"
    except EmbtrainError as error:
        assert "\n" not in str(error), f"{key}={value}: {error}"
        return "refused"
    except _Time:
        return "slow"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(("name", "engine"), tiny_runs.EVERY)
def test_limits_of_every_numeric_setting(place: Path, tmp_path: Path, name: str, engine: str) -> None:
    outcomes = dict[str, int]()
    keys = dict(numeric(tiny_runs.config(place, name, engine).model_dump(by_alias=True)))
    for key in sorted(keys.keys() - UNBOUNDED):
        for value in (0, -1, *((SMALLEST, LARGEST) if isinstance(keys[key], float) else (2**31 - 1,))):
            outcome = tried(place, name, engine, tmp_path / f"{key}={value}", key, value)
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
    print(name, engine, len(keys), "keys", outcomes)
    assert len(keys) > 20 and outcomes["trains"] > 10
