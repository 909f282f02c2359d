"""Short seeded runs and draws equal those recorded for this machine in seeded_bits.json bit for bit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers import seeded_bits, source_worlds, tiny_runs

from embtrain.kernels.core import loader

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def recorded() -> dict[str, str]:
    known = json.loads(seeded_bits.FILE.read_text(encoding="utf-8"))
    if seeded_bits.machine() not in known:
        pytest.skip(f"bits: no hashes are recorded for {seeded_bits.machine()}")
    return known[seeded_bits.machine()]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_runs.write(tmp_path_factory.mktemp("bits"))


def recorded_hash(recorded: dict[str, str], name: str) -> str:
    if name not in recorded:                              # a case that was added on another machine
        pytest.skip(f"bits: no hash of {name} is recorded for {seeded_bits.machine()}")
    return recorded[name]


@pytest.mark.parametrize(("name", "engine"), tiny_runs.EVERY)
def test_parameters_of_a_run(recorded: dict[str, str], place: Path, name: str, engine: str) -> None:
    expected = recorded_hash(recorded, seeded_bits.run_name(name, engine))
    assert seeded_bits.of_run(place, name, engine) == expected


@pytest.mark.parametrize("case", source_worlds.CASES)
def test_draws_of_a_source(recorded: dict[str, str], case: str) -> None:
    assert seeded_bits.of_source(case) == recorded_hash(recorded, f"source {case}")


def test_the_machine_has_the_level_of_the_core_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashes of another level than the best are other hashes."""
    for level in loader.levels():
        monkeypatch.setenv("EMBTRAIN_CORE_LEVEL", level)
        assert f", core {level}, torch " in seeded_bits.machine()
    monkeypatch.setenv("EMBTRAIN_CORE", "off")
    assert ", core none, torch " in seeded_bits.machine()


def test_every_case_is_recorded_on_one_machine_and_no_other_name_is() -> None:
    names = {seeded_bits.run_name(name, engine) for name, engine in tiny_runs.EVERY}
    names |= {f"source {case}" for case in source_worlds.CASES}
    known = json.loads(seeded_bits.FILE.read_text(encoding="utf-8"))
    assert set().union(*known.values()) == names
