"""`embtrain check`: the contract of samplers on files of a user, rule by rule."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from embtrain import cli
from embtrain.common import shipped
from embtrain.testing.check import RULES

pytestmark = pytest.mark.long

HEAD = """from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from embtrain.common.types import Query
from embtrain.negatives.static.base import StaticSource


@dataclass
class Half:
    value: float


class Even(StaticSource):
    name = "even"

    def masses(self) -> Tensor:
        return torch.ones(self.problem.n_candidates, dtype=torch.float64)
"""
BROKEN = """

class Doubled(Even):
    name = "doubled"

    def log_prob(self, query: Query, ids: Tensor) -> Tensor:
        return super().log_prob(query, ids) + 0.7
"""


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    monkeypatch.chdir(tmp_path)

    def run(name: str, text: str | None = None, *options: str) -> tuple[int, list[str], str]:
        if text is not None:
            Path(name).write_text(text)
        monkeypatch.setattr(sys, "argv", ["embtrain", "check", name, *options])
        code = cli.run()
        out, err = capsys.readouterr()
        return code, out.splitlines(), err

    return run


def test_every_rule_is_printed_with_its_result(check) -> None:
    code, (*lines, last), err = check("even.py", HEAD)
    assert (code, err) == (0, "")
    assert [line.split()[1:3] for line in lines] == [["even:", f"{rule.__name__}:"] for rule in RULES]
    marks = {line.split()[2]: line.split()[0] for line in lines}
    assert marks["densities:"] == marks["seeds:"] == "ok" and marks["learning:"] == "-"
    assert set(marks.values()) == {"ok", "-"} and all(line.endswith(".") for line in lines)
    n = sum(mark == "ok" for mark in marks.values())
    assert last == f"even.py: {n} rules hold; {len(RULES) - n} do not apply (-)"


@pytest.mark.parametrize("error", ["SystemExit: 0", "ValueError: 1"])
def test_an_exit_or_error_of_the_constructor_is_one_line(check, error: str) -> None:
    raised = error.replace(": ", "(") + ")"
    code, lines, err = check("ends.py", f"{HEAD}\n    def __init__(self, config, problem):\n        raise {raised}\n")
    assert (code, lines) == (3, []) and err.endswith(f"ends.py:24: {error}; correct it there\n")


def test_an_exit_in_a_draw_breaks_the_rules(check) -> None:
    code, lines, _ = check("ends.py", f"{HEAD}\n    def draw(self, query, k, view):\n        raise SystemExit(0)\n")
    assert code == 3 and any("even: shapes: SystemExit: 0" in line for line in lines)


def test_a_broken_rule_is_named_and_the_others_are_still_checked(check) -> None:
    code, lines, err = check("two.py", HEAD + BROKEN)
    broken = [line for line in lines if line.startswith("broken")]
    assert code == 3 and len(lines) == 2 * len(RULES) and any("doubled: densities: " in line for line in broken)
    assert [line for line in broken if " doubled: " not in line] == []
    assert lines[-2].startswith("-") or lines[-2].startswith("ok")
    assert err.startswith(f"embtrain: error: two.py: {len(broken)} of ") and err.count("\n") == 1
    code, lines, _ = check("two.py", None, "--json")
    rows = json.loads("\n".join(lines))
    assert code == 3 and {row["rule"] for row in rows if row["problem"]} >= {"densities"}
    assert all(set(row) == {"source", "rule", "about", "problem"} for row in rows)


def test_a_source_without_randomness_is_declared(check) -> None:
    text = HEAD + "\n    def draw(self, query, k, view):\n        self.random.manual_seed(0)\n" \
                  "        return super().draw(query, k, view)\n"
    assert check("fixed.py", text)[0] == 3
    assert "broken  even: seeds: " in "\n".join(check("fixed.py", text)[1])
    assert "ok      even: seeds: " in "\n".join(check("fixed.py", text, "--deterministic")[1])


@pytest.mark.parametrize("name", ["sgns", "softmax", "ace", "ace-kg-shared", "syn-margin-difference"])
def test_shipped_strategies_keep_the_contract(check, name: str) -> None:
    code, lines, _ = check(str(shipped.path("configs", name, "strategies")))
    assert (code, len(lines)) == (0, len(RULES) + 1)


@pytest.mark.parametrize(("name", "text", "code", "message"), [
    ("nosuch.py", None, 3, "nosuch.py: file not found; give the Python file of a source or"),
    ("a.txt", "x", 2, "a.txt: is neither Python nor YAML; give the file of a source (.py) or strategy (.yaml)"),
    ("none.py", "x = 1\n", 3, "none.py: contains no source; derive a class from"),
    ("bad.py", "x = 1\ny = (\n", 3, "bad.py:2: SyntaxError: '(' was never closed; correct it there"),
    ("raises.py", "\n\n1 / 0\n", 3, "raises.py:3: ZeroDivisionError: division by zero; correct it there"),
    ("imports.py", "import nosuch\n", 3, "imports.py:1: ModuleNotFoundError: No module named 'nosuch'; correct"),
    ("a.yaml", "loss: {name: nce}\n", 2, "a.yaml: negatives.source: is missing; name the source of the strategy"),
    ("b.yaml", "negatives:\n  source: ace\n  entorpy: 1\n", 2,
     "b.yaml:3:3: negatives.entorpy: unknown key (did you mean 'entropy'?"),
    ("c.yaml", "negatives: {source: nosuch}\n", 2, "negatives.source: there is no 'nosuch'"),
    ("d.yaml", "negatives: {source: ace, mix: 2}\n", 2, "d.yaml:1:26: negatives.mix: should be less than or equal"),
])
def test_a_wrong_file_is_one_line(check, tmp_path: Path, name: str, text: str | None, code: int, message: str
                                  ) -> None:
    found, lines, err = check(name, text)
    assert (found, lines) == (code, []) and err.count("\n") == 1
    assert message in err.replace(f"{tmp_path}/", "")
