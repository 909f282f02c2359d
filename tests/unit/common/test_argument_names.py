"""Errors of the Python interface begin with the name of an argument, those of the command line with its flag."""

from __future__ import annotations

import pytest
from helpers.looped import looped

from embtrain.common.config.arguments import named_arguments
from embtrain.common.errors import UnknownNames


@looped("line, expected", [
    ("--out: a is a run", "out: a is a run"),
    ("--cpu-seconds: nan: is no number", "cpu_seconds: nan: is no number"),
    ("--losses: x", "loss: x"),
    ("--set train.lr=0: should be above 0", "sets: train.lr=0: should be above 0"),
    ('--set a.b=["x", "--y"]: is wrong', 'sets: a.b=["x", "--y"]: is wrong'),
    ("--search train.lr: should be a range", "search: train.lr: should be a range"),
    ("--search and --trials must be set together", "search and trials must be set together"),
    ("--out: a is a run; choose another, or: embtrain fit --out b", "out: a is a run; choose another, or: embtrain fit "
                                                                   "--out b"),
    ("--format: csv: applies only to --out; add it", "format: csv: applies only to out; add it"),
    ("a.yaml:1:2: give --model", "a.yaml:1:2: give --model"), ("--", "--"), ("a--b", "a--b"),
])
def test_a_flag_becomes_an_argument(line: str, expected: str) -> None:
    error = UnknownNames(line, "x: --out")
    error.rows = [1]
    with pytest.raises(UnknownNames) as caught, named_arguments():
        raise error
    assert caught.value is error and error.args == (expected, "x: --out") and error.rows == [1]
