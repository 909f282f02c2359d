"""The loop over cases: every case, errors that name the case, fixtures."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.looped import looped

observed: list[tuple[int, str]] = []


@looped("n, letter", [(1, "a"), (2, "b")])
@pytest.mark.parametrize("more", ["x"])
def test_every_case_runs_with_the_fixtures_and_parameters(tmp_path: Path, n: int, letter: str, more: str) -> None:
    assert tmp_path.is_dir() and more == "x"
    assert len(observed) == n - 1
    observed.append((n, letter))


def test_an_error_names_its_case_and_ends_the_loop() -> None:
    calls = []

    @looped("b", ["x", "y"])
    @looped("a", [1, 2, 3])
    def fails(a: int, b: str) -> None:
        calls.append((a, b))
        assert (a, b) != (2, "y")

    with pytest.raises(AssertionError) as raised:
        fails()
    assert raised.value.__notes__ == ["case: a=2", "case: b='y'"]
    assert calls == [(1, "x"), (2, "x"), (3, "x"), (1, "y"), (2, "y")]


@looped("values", [[], [1], [(1, 2, 3)], [pytest.param(1, 2)]])
def test_no_case_a_wrong_number_of_values_and_marks_are_errors(values: list[object]) -> None:
    with pytest.raises((AssertionError, TypeError, ValueError)):
        looped("a, b", values)
