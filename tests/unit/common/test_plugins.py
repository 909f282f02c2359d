"""Sources of other packages: an error in one gives one line with file and line number, and stops no other source."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import re
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from embtrain.cli import entry_point
from embtrain.common import registry
from embtrain.common.config.foreign_classes import unchecked
from embtrain.common.errors import DataError, UsageError, WrongClass
from embtrain.common.types import ProblemSpec, Score
from embtrain.experiment.catalogue import combinations, components, listing
from embtrain.experiment.comparison import results
from embtrain.experiment.comparison.outcome import CellOutcome
from embtrain.experiment.run import provenance
from embtrain.experiment.run.settings import resolve
from embtrain.losses import base as losses
from embtrain.models import base as models
from embtrain.negatives import base as negatives
from embtrain.negatives.plugin_checks import guard_object
from embtrain.testing import own_files

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from helpers import tiny_runs
from helpers.source_worlds import TableView, V, query, tiny_problem

SOURCE = """import math

import torch

from embtrain.negatives.base import NegativeSource
from embtrain.common.types import Negatives


class Mine(NegativeSource):
    name = "mine"

    def draw(self, query, k, view):
        n, group = self.draw_layout(query)
        v = self.problem.n_candidates
        ids = torch.randint(v, (n, k), generator=self.random)
        log_q = torch.full((1, 1), -math.log(v))
        return Negatives(ids, draw_id=group, log_q=log_q, total_weight=torch.full((1, 1), float(k)))

    def log_prob(self, query, ids):
        return torch.full(ids.shape, -math.log(self.problem.n_candidates)).expand(len(query), -1)
"""
Make = Callable[[str], Path]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Installs a package with the source `mine`; returns its file."""
    info = tmp_path / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[embtrain.negatives]\nmine = mine_noise:Mine\n")
    monkeypatch.syspath_prepend(tmp_path)

    def write(text: str) -> Path:
        path = tmp_path / "mine_noise.py"
        path.write_text(text)
        importlib.invalidate_caches()
        registry.cached_classes.cache_clear()
        return path
    yield write
    monkeypatch.undo()
    sys.modules.pop("mine_noise", None)
    registry.cached_classes.cache_clear()


def _draw(k: int = 4) -> None:
    result = negatives.find("mine")
    result(result.Config(source="mine", k=k), tiny_problem()).draw(query(), k, TableView())


def test_a_file_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    hint = r"; mine\.py is in this folder: set EMBTRAIN_PLUGINS=mine\.py, or install its package$"
    for written in (False, True):
        if written:
            Path("mine.py").write_text(SOURCE)
        with pytest.raises(UsageError, match=r"there is no 'mine'") as wrong:
            negatives.find("mine")
        assert (re.search(hint, str(wrong.value)) is not None) == written
    Path("mine.py").write_text(SOURCE.replace('"mine"', "'mine'"))
    with pytest.raises(UsageError, match=hint):
        negatives.find("mine")
    for text, is_plugin in ((SOURCE.replace('"mine"', '"other"'), True), (SOURCE.replace('"mine"', '"other"'), False),
                            ("", False)):
        Path("mine.py").write_text(text)
        monkeypatch.setenv("EMBTRAIN_PLUGINS", "mine.py" if is_plugin else "")
        with pytest.raises(UsageError, match=r"there is no 'mine'") as wrong:
            negatives.find("mine")
        assert "in this folder" not in str(wrong.value)


@pytest.mark.parametrize("find", [models.find, losses.find, models.default_settings])
def test_a_file_of_another_kind_of_component_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                      find: Callable[[str], object]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(SOURCE)
    with pytest.raises(UsageError, match=r"; mine\.py is in this folder: set EMBTRAIN_PLUGINS=mine\.py, or install"):
        find("mine")


@pytest.fixture
def plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Writes a file and names it in EMBTRAIN_PLUGINS."""
    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text)
        monkeypatch.setenv("EMBTRAIN_PLUGINS", str(path))
        return path
    return write


def test_a_file_of_the_user_adds_components(plug_in: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
                                            ) -> None:
    with pytest.raises(UsageError, match=r"there is no 'mine'.*; for one of your own set EMBTRAIN_PLUGINS to its file"):
        negatives.find("mine")
    plug_in("sources.py", SOURCE)                             # found although the name was unknown before
    _draw()
    assert negatives.find("mine").__name__ == "Mine" and negatives.find("unigram").__module__.endswith("unigram")
    assert "mine" in components.about_components("sources") and "mine" not in losses.names()
    monkeypatch.delenv("EMBTRAIN_PLUGINS")
    assert "mine" not in negatives.names()


def _built(source: str, **settings: object) -> negatives.NegativeSource:
    result = negatives.find(source)
    return result(result.Config(source=source, **settings), tiny_problem())


def _identity(source: negatives.NegativeSource, folder: Path, **others: object) -> dict[str, object]:
    """Writes the part of identity.json about the code of a run with that source. others: its model and loss."""
    parts: Any = SimpleNamespace(**{"model": None, "source": source, "loss": None} | others)
    record = {"embtrain": "0", "code": provenance.code_sha256.__wrapped__(),
              "plugins": provenance.plugin_hashes(parts)}
    (folder / "identity.json").write_text(json.dumps(record))
    return record


@pytest.mark.parametrize(("source", "settings", "is_used"), [
    ("mine", {}, True), ("derived", {}, True), ("hardest", {"inner": {"source": "mine"}}, True),
    ("unigram", {}, False)])
def test_only_a_file_that_a_run_uses_belongs_to_its_code(
        plug_in: Callable[[str, str], Path], tmp_path: Path, source: str, settings: dict[str, object], is_used: bool
        ) -> None:
    code = provenance.code_sha256.__wrapped__()
    path = plug_in("sources.py", SOURCE + "\n\nclass Derived(Mine):\n    name = 'derived'\n")
    for part in ("model", "loss"):
        assert _identity(_built("unigram"), tmp_path, **{part: _built("mine")})["plugins"]
    before = _identity(_built(source, **settings), tmp_path)
    hashes = {"sources.py": hashlib.sha256(path.read_bytes()).hexdigest()} if is_used else {}
    assert before["code"] == code and before["plugins"] == hashes and provenance.code_difference(tmp_path) == ""
    path.write_text(path.read_text() + "# changed\n")
    change = f"another version of sources.py started it, with sha256 {hashes['sources.py'][:12]}" if is_used else ""
    assert provenance.code_difference(tmp_path) == change


def test_a_file_that_defines_a_base_class_belongs_to_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other file imports it under its own name, not as a file of EMBTRAIN_PLUGINS."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    (base := tmp_path / "own_base.py").write_text(SOURCE)
    (derived := tmp_path / "derived.py").write_text("from own_base import Mine\nclass Derived(Mine):\n"
                                                    "    name = 'derived'\n")
    monkeypatch.setenv("EMBTRAIN_PLUGINS", f"{base}{os.pathsep}{derived}")
    try:
        record = _identity(_built("derived"), tmp_path)
    finally:
        sys.modules.pop("own_base", None)
    assert record["plugins"] == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (base, derived)}
    base.write_text(base.read_text() + "# changed\n")
    assert provenance.code_difference(tmp_path).startswith("another version of own_base.py started it")


def test_a_comparison_has_a_note_on_versions_of_a_file(tmp_path: Path) -> None:
    def cell(seed: int, **plugins: str) -> CellOutcome:
        return CellOutcome(f"a-seed{seed}", "a", None, "transe", seed, tmp_path, "a", code="code", plugins=plugins,
                           scores=[Score("test", "mrr", 0.5)])

    for cells, names in (([cell(1, a="1"), cell(2, a="1", b="2"), cell(3)], []),
                         ([cell(1, a="1", b="1"), cell(2, a="1", b="2"), cell(3, b="2")], ["b"])):
        results.write(tmp_path, {"metric": "test/mrr", "baseline": "a", "benchmarks": []}, cells)
        assert json.loads((tmp_path / "results.json").read_text())["notes"] == [
            f"the runs were not all trained by the same {name}: the hashes in their identity.json differ"
            for name in names]


@pytest.mark.parametrize(("name", "text", "message"), [
    ("taken.py", SOURCE.replace('"mine"', '"unigram"'), r"taken\.py: 'unigram' is also the name of another component"),
    ("fails.py", "x = 1\n1 / 0\n", r"fails\.py:2: ZeroDivisionError: division by zero; correct it there"),
    ("cut.py", "def f(:\n", r"cut\.py:1: SyntaxError: .*; correct it there"),
    ("table.py", "import json\njson.loads('{')\n", r"table\.py:2: JSONDecodeError: .* column 2 \(char 1\); correct"),
    ("own.py", "class E(Exception):\n    def msg(self): pass\nraise E('a')\n", r"own\.py:3: E: a; correct it there"),
    ("own.py", "class E(Exception):\n    def __init__(self): self.msg = 'only this'\nraise E()\n",
     r"own\.py:3: E: only this; correct it there"),
    ("own.py", "raise AssertionError\n", r"own\.py:1: AssertionError; correct it there"),
    ("own.py", "class E(Exception):\n    def __str__(self): raise OSError\nraise E()\n", r"own\.py:3: E; correct it"),
    ("module.py", "import nosuch\n", r"module\.py:1: ModuleNotFoundError: No module named 'nosuch'; correct it there"),
    ("quits.py", "raise SystemExit(7)\n", r"quits\.py:1: SystemExit: 7; correct it there"),
    ("twice.py", SOURCE + SOURCE.replace("class Mine", "class Other"),
     r"twice\.py: 'mine' is also the name of another component, Mine in .*twice\.py; rename yours, Other"),
    ("notes.txt", SOURCE, r"EMBTRAIN_PLUGINS: .*notes\.txt: is not a Python file; give the files of your components")])
def test_a_wrong_file_of_the_user_is_one_line(plug_in: Callable[[str, str], Path], name: str, text: str, message: str
                                              ) -> None:
    plug_in(name, text)
    for _ in range(2):                                        # an error is not cached as a result
        with pytest.raises(DataError, match=message) as wrong:
            negatives.find("unigram")
        assert "\n" not in str(wrong.value)


def test_a_file_listed_twice_is_imported_once(plug_in: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
                                              ) -> None:
    path = plug_in("mine.py", SOURCE + "Alias = Mine\n")
    (link := path.with_name("link.py")).symlink_to(path)
    monkeypatch.setenv("EMBTRAIN_PLUGINS", os.pathsep.join(map(str, (path, link, f"{path.parent}/../"
                                                                     f"{path.parent.name}/mine.py"))))
    assert "mine" in negatives.names()


def test_a_missing_file_of_the_user_is_reported_as_missing(plug_in: Callable[[str, str], Path]) -> None:
    plug_in("mine.py", SOURCE).unlink()
    with pytest.raises(DataError, match=r"^EMBTRAIN_PLUGINS: .*mine\.py: does not exist; give the files of"):
        negatives.find("unigram")


@pytest.mark.parametrize(("text", "is_wrong"), [
    ("import plugin_util\n", True), ("def f():\n    from plugin_util.a import b\n", True),
    ("import plugin_tools\n", True), ("x = 1\n", False), ("from . import plugin_util\n", None),
    ("import json, time\n", False)])
def test_a_module_of_the_folder_is_not_that_of_another_folder(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, is_wrong: bool | None) -> None:
    first, second = tmp_path / "first" / "one.py", tmp_path / "second" / "two.py"
    for path, imports in ((first, "import plugin_util\n"), (second, text)):
        path.parent.mkdir()
        path.write_text(imports)
        path.with_name("plugin_util.py").write_text("")
    second.with_name("plugin_tools.py").write_text("import plugin_util, plugin_tools\n")
    monkeypatch.setenv("EMBTRAIN_PLUGINS", f"{first}{os.pathsep}{second}")
    try:
        if is_wrong is False:
            assert "unigram" in negatives.names()
            return
        with pytest.raises(DataError) as wrong:
            negatives.names()
        names_both = f": plugin_util: would be {first.with_name('plugin_util.py')}, imported before, instead of " \
                     f"{second.with_name('plugin_util.py')}; rename" in str(wrong.value)
        assert names_both == bool(is_wrong) and "\n" not in str(wrong.value)
    finally:
        for name in ("plugin_util", "plugin_tools"):
            sys.modules.pop(name, None)


@pytest.mark.parametrize(("body", "message"), [
    ("raise RuntimeError('used\\ntwice')", r"RuntimeError: used\\ntwice"),
    ("return torch.zeros(2) @ torch.zeros(3)", "RuntimeError: inconsistent tensor size, .*"),
    ("return super().example(scored)", "AttributeError: 'NoneType' object has no attribute .*")])
@pytest.mark.parametrize("is_installed", [False, True])
def test_an_exception_in_an_own_loss_names_its_line(
        plug_in: Callable[[str, str], Path], make: Make, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str], body: str, message: str, is_installed: bool) -> None:
    text = "import torch\nfrom embtrain.losses.logistic import Logistic\nclass Own(Logistic):\n    name = 'own'\n" \
           f"    def example(self, scored):\n        {body}\n"
    path = make(text) if is_installed else plug_in("own.py", text)
    loss = importlib.import_module("mine_noise").Own if is_installed else losses.find("own")
    monkeypatch.setattr(entry_point, "_command", lambda: loss.example(object.__new__(loss), None))
    monkeypatch.setattr(sys, "argv", ["embtrain"])
    assert entry_point.run() == DataError.code
    assert re.fullmatch(rf"embtrain: error: {path}:6: {message}; correct it there\n", capsys.readouterr().err)


def test_an_exit_in_an_own_model_is_an_error(
        plug_in: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
        ) -> None:
    path = plug_in("own.py", "from embtrain.models.words.skipgram import SkipGram\nclass Own(SkipGram):\n"
                   "    name = 'own'\n    def encode(self, batch):\n        raise SystemExit(0)\n")
    model = models.find("own")
    monkeypatch.setattr(entry_point, "_command", lambda: model.encode(object.__new__(model), None))
    monkeypatch.setattr(sys, "argv", ["embtrain"])
    assert entry_point.run() == UsageError.code
    line = f"{path}:5: model.name: own: encode: SystemExit: 0; correct it there"
    assert capsys.readouterr().err == f"embtrain: error: {line}\n"


def test_an_error_in_a_module_next_to_a_file_of_the_user_has_its_line(
        plug_in: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
        tmp_path: Path) -> None:
    (tmp_path / "helper_of_own.py").write_text(
        "from embtrain.losses.logistic import Logistic\nclass Base(Logistic):\n    def example(self, scored):\n"
        "        return [][0]\n")
    plug_in("own.py", "import sys\nsys.path.insert(0, __file__.rpartition('/')[0])\nfrom helper_of_own import Base\n"
                      "class Own(Base):\n    name = 'own'\n")
    loss = losses.find("own")
    monkeypatch.setattr(entry_point, "_command", lambda: loss.example(object.__new__(loss), None))
    monkeypatch.setattr(sys, "argv", ["embtrain"])
    assert entry_point.run() == DataError.code
    assert f"{tmp_path}/helper_of_own.py:4: IndexError: list index out of range; correct" in capsys.readouterr().err


@pytest.mark.parametrize(("base", "method", "call"), [
    ("negatives.base.NegativeSource", "draw", lambda: _built("own").draw(query(), 3, TableView())),
    ("negatives.static.base.StaticSource", "masses", lambda: _built("own")),
    ("losses.base.Loss", "example", lambda: losses.find("own")(losses.LossConfig(name="own"), tiny_problem()).example(
        SimpleNamespace())),
    ("models.base.Model", "table", lambda: models.find("own")(models.ModelConfig(name="own"), tiny_problem()).table()),
    ("models.hierarchies.base.HierarchyModel", "start", lambda: models.find("own")(
        models.ModelConfig(name="own"), replace(tiny_problem(), context_sizes=(V, 2))))])
def test_a_class_without_a_required_method_is_one_line(
        plug_in: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
        base: str, method: str, call: Callable[[], object]) -> None:
    module, _, name = base.rpartition(".")
    path = plug_in("own.py", f"from embtrain.{module} import {name}\nclass Own({name}):\n    name = 'own'\n")
    monkeypatch.setattr(entry_point, "_command", call)
    monkeypatch.setattr(sys, "argv", ["embtrain"])
    assert entry_point.run() == UsageError.code
    assert capsys.readouterr().err == f"embtrain: error: {path}: Own: does not implement {method}; define it there\n"


def test_two_files_of_one_name_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text("")
    monkeypatch.setenv("EMBTRAIN_PLUGINS", f"{tmp_path}/one/mine.py{os.pathsep}{tmp_path}/two/mine.py")
    with pytest.raises(DataError, match=r"one/mine\.py and .*two/mine\.py: have one name, .*; rename one of them"):
        negatives.find("unigram")


def test_a_file_may_import_a_module_of_its_folder_later(plug_in: Callable[[str, str], Path], tmp_path: Path,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "its_helper.py").write_text("K = 3\n")
    plug_in("late.py", SOURCE.replace("v = self.problem.n_candidates",
                                      "import its_helper\n        assert its_helper.K == 3\n"
                                      "        v = self.problem.n_candidates"))
    _draw()
    (tmp_path / "time.py").write_text("")
    plug_in("clock.py", f"import time\n{SOURCE}")
    with pytest.raises(DataError, match=r"clock\.py:1: time: would be a module of Python instead of .*time\.py"):
        negatives.find("mine")


def test_a_correct_source_has_no_error(make: Make) -> None:
    make(SOURCE)
    _draw()
    assert negatives.find("mine").__name__ == "Mine" and negatives.find("unigram").__module__.endswith("unigram")


@pytest.mark.parametrize(("old", "new", "message"), [
    ("(n, k), generator", "(n, k + 1), generator", "returned 5 negatives, but k is 4"),
    ("generator=self.random)", "generator=self.random).int()", r"returned ids of torch\.int32"),
    ("generator=self.random)", "generator=self.random).double()", r"returned ids of torch\.float64"),
    ("torch.randint(v, (n", "v + torch.randint(v, (n", f"return ids from 0 to {V - 1}"),
    ("torch.randint(v, (n", "-1 - torch.randint(v, (n", f"return ids from 0 to {V - 1}"),
    ("(n, k), generator", "(n + 1, k), generator", "draws for .* rows without draw_id"),
    ("(1, 1), -math.log(v)", "(1, 1), math.nan", "returned log_q that is not finite"),
    ("(1, 1), -math.log(v)", "(1, 1), -math.inf", "returned log_q that is not finite"),
    ("(1, 1), -math.log(v)", "(3, 7), -math.log(v)", r"returned log_q of shape \(3, 7\)"),
    ("(1, 1), -math.log(v)", "(k,), -math.log(v)", r"returned log_q of shape \(4,\) .* or two dimensions that"),
    ("log_q=log_q", "log_q=log_q, weight=torch.ones(k)", r"returned weight of shape \(4,\)"),
    ("ids.shape, -math.log(self.problem.n_candidates)", "ids.shape, -1.0", "whose sum over all candidates is"),
    (", log_q=log_q,", ", log_q=-3.0,", "returned log_q of the type float; return a tensor"),
    ("log_q=log_q", "log_q=log_q.long()", r"returned log_q of torch\.int64; return floats"),
    ("log_q=log_q", "log_q=log_q.requires_grad_()", "returned log_q with a gradient; detach it"),
    ("log_q=log_q", "log_q=log_q.to('meta')", "returned log_q on meta, but the rows are on cpu; make it there"),
    ("log_q=log_q", "log_q=log_q, weight=2", "returned weight of the type int; return a tensor"),
    ("log_q=log_q", "log_q=log_q, weight=-torch.ones(1, 1)", "returned a weight that is negative or not finite"),
    ("log_q=log_q", "log_q=log_q, log_q_target=log_q.expand(n, 1)", r"returned log_q_target of shape \(\d+, 1\); "),
    ("log_q=log_q", "log_q=log_q, log_q_target=log_q[0]", r"returned log_q_target of shape \(1,\); return \(\d+,\)"),
    ("log_q=log_q", "log_q=log_q, origin='noise'", "returned origin of the type str; return a tensor"),
    ("log_q=log_q", "log_q=log_q, origin=torch.full((1, 1), 7)", "returned an origin outside of 0 to 3; return NOISE"),
    ("log_q=log_q", "log_q=log_q, origin=log_q", r"returned origin of torch\.float32; return int8"),
    ("draw_id=group", "draw_id=[0] * n", "returned draw_id of the type list; return a tensor"),
    ("draw_id=group", "draw_id=torch.zeros(n)", r"returned draw_id of torch\.float32 with shape .*; return int64"),
    ("draw_id=group", "draw_id=torch.arange(n) - 1", "returned a draw_id that is not one of its .* call draw_layout"),
    ("(ids, ", "(ids, false_negatives=torch.tensor([[0], [4]]), ", "false_negatives that are not pairs of one of"),
    ("(ids, ", "(ids, false_negatives=torch.zeros(3, 1).long(), ", "false_negatives that are not pairs of one of"),
    ("torch.full((1, 1), float(k))", "float(k)", "returned total_weight of the type float; return a tensor"),
    ("torch.full((1, 1), float(k))", "torch.tensor(4.0)", r"returned total_weight of shape \(\); return \(1, 1\)"),
    ("torch.full((1, 1), float(k))", "torch.ones(n)", r"returned total_weight of shape .*; return \(1, 1\), or"),
    ("torch.full((1, 1), float(k))", "torch.zeros(1, 1)", "returned a total_weight of 0; return the sum of the"),
    ("torch.full((1, 1), float(k))", "torch.full((1, 1), -2.0)", "returned a total_weight that is negative or not fi"),
    ("torch.full((1, 1), float(k))", "torch.full((1, 1), math.nan)", "returned a total_weight that is negative or not"),
    ("(ids, ", "(None, ", "returned neither ids nor vectors; return ids"),
    ("(ids, draw_id=group, log_q=log_q,", "(vectors=torch.zeros(n, k, 99),", "returned vectors of 99 dimensions"),
    ("(ids, draw_id=group, log_q=log_q,", "(vectors=torch.zeros(n, k),", r"vectors of shape .*; return \(\d+, k, D\)"),
    ("return Negatives(ids", "return (ids", "SyntaxError|returned tuple"),
])
def test_a_wrong_draw_is_one_line_with_file_and_line(make: Make, old: str, new: str, message: str) -> None:
    assert old in SOURCE
    if new == "return (ids":
        new, old = "return ids, ids\n        return Negatives(ids", "return Negatives(ids"
    path = make(SOURCE.replace(old, new))
    with pytest.raises(UsageError, match=rf"^{path}:12: negatives\.source: mine: draw .*({message})") as wrong:
        _draw()
    assert "\n" not in str(wrong.value)


@pytest.mark.parametrize(("result", "message"), [
    ("None", r"returned NoneType; return a dict of names and numbers, \{\} for none"), ("[1.0]", "returned list; "),
    ("{'a': torch.ones(())}", r"returned Tensor for 'a'; return a number for each name, as float\(value\)$"),
    ("{'a': 'high'}", "returned str for 'a'; return a number"), ("{1: 1.0}", "returned float for 1; return a number")])
@pytest.mark.parametrize(("hook", "arguments"), [("metrics", ()), ("learn", (None, None, None))])
def test_wrong_metrics_are_one_line(make: Make, hook: str, arguments: tuple[None, ...], result: str, message: str
                                    ) -> None:
    path = make(f"{SOURCE}\n    def {hook}(self, *arguments):\n        return {result}\n")
    with pytest.raises(UsageError, match=rf"^{path}:22: negatives\.source: mine: {hook} {message}") as wrong:
        getattr(_built("mine"), hook)(*arguments)
    assert "\n" not in str(wrong.value)


@pytest.mark.parametrize(("result", "message"), [
    ("None", r"returned NoneType; return a dict, \{\*\*super\(\)\.state_dict\(\), \.\.\.\}$"),
    ("{'m': 1}", r"lacks 'random', which load_state_dict reads; return \{\*\*super\(\)\.state_dict\(\), \.\.\.\}$"),
    ("{**super().state_dict(), 'm': torch.ones(3).numpy()}",
     r"returned ndarray at \['m'\], which a checkpoint cannot contain; return tensors, numbers or text, in dicts"),
    ("{**super().state_dict(), 'm': [{'n': {1}}]}", r"returned set at \['m'\]\[0\]\['n'\], which a checkpoint cannot "),
    ("{**super().state_dict(), 'm': len}", r"returned builtin_function_or_method at \['m'\], which a checkpoint ca"),
    ("{**super().state_dict(), 'm': self.random}", r"returned Generator at \['m'\], which a checkpoint cannot contain"),
    ("{**super().state_dict(), 'm': {1.5: 2}}", r"returned the key 1\.5 at \['m'\]; return keys that are str or int"),
    ("{**super().state_dict(), 'm': torch.eye(2).to_sparse()}", r"returned a sparse, .* meta tensor at \['m'\]; ")])
def test_a_state_that_no_checkpoint_can_contain_is_one_line(make: Make, result: str, message: str) -> None:
    path = make(f"{SOURCE}\n    def state_dict(self):\n        return {result}\n")
    with pytest.raises(UsageError, match=rf"^{path}:22: negatives\.source: mine: state_dict {message}"):
        _built("mine").state_dict()


def test_a_state_of_numbers_and_text_is_kept(make: Make) -> None:
    make(f"{SOURCE}\n    def state_dict(self):\n        return {{**super().state_dict(), 'm': (1, None, 'a', 2.5)}}\n")
    assert _built("mine").state_dict().keys() == {"random", "m"}


OWN_STATE = """
    def __init__(self, config, problem):
        super().__init__(config, problem)
        self.noise = torch.Generator().manual_seed(problem.seed)

    def state_dict(self):
        return {"noise": self.noise.get_state()}

    def load_state_dict(self, state):
        self.noise.set_state(state["noise"])
"""


def test_a_source_that_loads_its_state_itself_needs_no_key_of_the_base(make: Make) -> None:
    make(SOURCE.replace("generator=self.random", "generator=self.noise") + OWN_STATE)
    first, second = _built("mine"), _built("mine")
    first.draw(query(), 4, TableView())
    second.load_state_dict(first.state_dict())
    assert torch.equal(*(source.draw(query(), 4, TableView()).ids for source in (first, second)))
    row = torch.arange(tiny_problem().n_candidates)
    assert negatives.grow_source(second, first, row) == "the state of mine starts again"
    assert second.state_dict().keys() == {"noise"}


@pytest.mark.parametrize("text", [
    "    pass", "    def load_state_dict(self, state):\n        super().load_state_dict(state)"])
def test_a_source_that_derives_from_one_that_loads_its_state_itself_is_saved(make: Make, text: str) -> None:
    make(f"{SOURCE.replace('Mine', 'First').replace('mine', 'first')}{OWN_STATE}\n\n"
         f"class Mine(First):\n    name = 'mine'\n{text}\n")
    assert _built("mine").state_dict().keys() == {"noise"}


def test_a_source_that_loads_the_state_of_the_base_by_super_needs_its_keys(make: Make) -> None:
    path = make(SOURCE + OWN_STATE + "        super().load_state_dict(state)\n")
    with pytest.raises(UsageError, match=rf"^{path}:26: negatives\.source: mine: state_dict lacks 'random', which"):
        _built("mine").state_dict()


def test_a_source_that_nests_the_state_of_the_base_is_saved(make: Make) -> None:
    make(f"{SOURCE}\n    def state_dict(self):\n        return {{'base': super().state_dict(), 'n': 1}}\n"
         "    def load_state_dict(self, state):\n        super().load_state_dict(state['base'])\n")
    first, second = _built("mine"), _built("mine")
    first.draw(query(), 4, TableView())
    second.load_state_dict(first.state_dict())
    assert torch.equal(*(source.draw(query(), 4, TableView()).ids for source in (first, second)))


def test_a_state_without_a_key_that_is_loaded_by_the_name_of_the_base_is_refused(make: Make) -> None:
    path = make(f"{SOURCE}\n    def state_dict(self):\n        return {{'n': 1}}\n"
                "    def load_state_dict(self, state):\n        NegativeSource.load_state_dict(self, state)\n")
    with pytest.raises(UsageError, match=rf"^{path}:22: negatives\.source: mine: state_dict lacks 'random', which"):
        _built("mine").state_dict()


def test_hooks_can_be_called_in_a_form_of_the_class_itself(make: Make) -> None:
    make(SOURCE.replace("query, k, view):", "query, k, view=None):") + """
    def log_prob(self, query, ids=None):
        ids = torch.arange(self.problem.n_candidates).unsqueeze(0) if ids is None else ids
        return torch.full(ids.shape, -math.log(self.problem.n_candidates)).expand(len(query), -1)

    def both(self, query):
        return self.draw(query, 3).ids, self.log_prob(query, None)
""")
    mine: Any = _built("mine")
    ids, log_q = mine.both(query())
    assert ids.shape[1] == 3 and log_q.shape[-1] == V


STATIC = """from embtrain.negatives.static.base import StaticSource
class Mine(StaticSource):
    name = 'mine'
    def masses(self):
        counts = self.problem.counts
        return {}
"""


@pytest.mark.parametrize(("masses", "message"), [
    ("counts[:-1]", r"returned torch\.\w+ of shape \(\d+,\); return floats of shape \(\d+,\), the weight"),
    ("counts.tolist()", "returned list; return floats of shape"), ("counts.numpy()", "returned ndarray; return"),
    ("counts > 0", r"returned torch\.bool of shape"), ("counts - 1e9", "returned weights that are negative, not"),
    ("counts / 0", "returned weights that are negative, not finite or all 0; return weights of 0 or more"),
    ("counts * 0", "returned weights that are negative, not finite or all 0; return weights of 0 or")])
def test_wrong_masses_of_a_static_source_are_one_line(make: Make, masses: str, message: str) -> None:
    path = make(STATIC.format(masses))
    with pytest.raises(UsageError, match=rf"^{path}:4: negatives\.source: mine: masses {message}"):
        _built("mine")


@pytest.mark.parametrize("masses", ["counts", "counts.float()", "counts.double() ** .5", "(counts > 1).int()"])
def test_masses_of_a_static_source_can_be_any_real_numbers(make: Make, masses: str) -> None:
    make(STATIC.format(masses))
    assert torch.isclose(_built("mine").log_q.exp().sum(), torch.tensor(1.0))


REGISTRIES = {
    "hook": ("class Registered:\n    seen = []\n    def __init_subclass__(cls, *, label, **options):\n"
             "        super().__init_subclass__(**options)\n        if label in cls.seen:\n"
             "            raise ValueError(f'two classes of {label}')\n        cls.seen.append(label)\n",
             "(NegativeSource, Registered, label='Mine')"),
    "metaclass": ("class Meta(type):\n    seen = []\n    def __new__(meta, name, bases, members):\n"
                  "        if name in meta.seen:\n            raise ValueError(f'two classes of {name}')\n"
                  "        meta.seen.append(name)\n        return super().__new__(meta, name, bases, members)\n",
                  "(NegativeSource, metaclass=Meta)"),
    "abstract": ("from abc import ABCMeta\nclass Meta(ABCMeta):\n    seen = []\n"
                 "    def __init__(cls, name, bases, members):\n        super().__init__(name, bases, members)\n"
                 "        if name in cls.seen:\n            raise ValueError(f'two classes of {name}')\n"
                 "        cls.seen.append(name)\n", "(NegativeSource, metaclass=Meta)")}


@pytest.mark.parametrize("kind", REGISTRIES)
def test_a_registry_of_subclasses_contains_the_class_of_the_user_alone(make: Make, kind: str) -> None:
    definition, bases = REGISTRIES[kind]
    make(SOURCE.replace("class Mine", f"{definition}\nclass Mine").replace("(NegativeSource)", bases))
    _draw()
    found: Any = negatives.find("mine")
    own: Any = unchecked(found)
    assert found is not own and own.seen == ["Mine"]
    source = own(own.Config(source="mine"), tiny_problem())
    assert isinstance(_built("mine"), found) and not isinstance(source, found)
    guard_object(source)
    assert isinstance(source, found)
    types.new_class("Other", (found,), {"label": "Other"} if kind == "hook" else {})
    assert own.seen == ["Mine", "Other"]


@pytest.mark.parametrize("loads_alone", [False, True])
def test_a_state_lacks_no_key_that_the_base_loads(make: Make, loads_alone: bool) -> None:
    load = "    def load_state_dict(self, state):\n        self.random.set_state(state['random'])\n"
    make("from embtrain.negatives.memory import TargetMemory\nclass Mine(TargetMemory):\n    name = 'mine'\n"
         "    def state_dict(self):\n        return {'random': self.random.get_state()}\n" + load * loads_alone)
    mine = _built("mine")
    if loads_alone:
        mine.load_state_dict(mine.state_dict())
        return
    with pytest.raises(UsageError, match=r"lacks '\w+', .*which load_state_dict reads; return \{\*\*super"):
        mine.state_dict()


@pytest.mark.parametrize("result", ["None", "torch.zeros(3, 7)", "torch.zeros(ids.shape).long()"])
def test_a_wrong_log_prob_is_one_line(make: Make, result: str) -> None:
    path = make(SOURCE.replace("return torch.full(ids.shape", f"return {result}\n        return torch.full(ids.shape"))
    with pytest.raises(UsageError, match=rf"^{path}:19: negatives\.source: mine: log_prob returned .*; return floats"):
        _draw()


def test_a_log_prob_that_the_base_calls_with_one_id_per_row_is_not_refused(make: Make) -> None:
    make("from embtrain.negatives.memory import TargetMemory\nclass Mine(TargetMemory):\n    name = 'mine'\n"
         "    def log_prob(self, query, ids):\n        return super().log_prob(query, ids)\n")
    assert _built("mine", k=4).draw(query(), 4, TableView()).log_q_target is not None


def test_a_constructor_without_that_of_the_base_is_one_line(make: Make) -> None:
    init = "    def __init__(self, config, problem):\n        pass\n"
    path = make(SOURCE.replace("    def draw(", f"{init}\n    def draw("))
    with pytest.raises(UsageError, match=rf"^{path}:12: negatives\.source: mine: __init__ leaves out the base class"):
        _draw()


@pytest.mark.parametrize(("old", "new", "line", "message"), [
    ("v = self.problem.n_candidates", "v = 1 // 0", 14, "draw: ZeroDivisionError"),
    ("v = self.problem.n_candidates", "v = torch.zeros(2) @ torch.zeros(3)", 14, "draw: RuntimeError"),
    ("return torch.full(ids.shape", "raise OSError(2, 'gone')\n        return torch.full(ids.shape", 20,
     "log_prob: FileNotFoundError"),
    ("def draw(self, query, k, view)", "def draw(self, query)", 12, "draw: TypeError"),
    ("v = self.problem.n_candidates", "raise SystemExit(0)", 14, "draw: SystemExit"),
    ("    def draw(", "    def __init__(self, config, problem):\n        config.nothing\n\n    def draw(", 13,
     "__init__: AttributeError"),
])
def test_an_exception_names_the_file_and_line(make: Make, old: str, new: str, line: int, message: str) -> None:
    path = make(SOURCE.replace(old, new))
    with pytest.raises(UsageError, match=rf"^{path}:{line}: negatives\.source: mine: {message}: .*; correct it there$"):
        _draw()
    for part in ("plain", "inner"):
        place = rf"^{path}:{line}: negatives\.{part}\.source: mine: {message.partition(':')[0]}"
        with pytest.raises(UsageError, match=place):
            mixture = _built("mixture", **{"inner": {"source": "unigram"}, part: {"source": "mine"}})
            mixture.draw(query(), 3, TableView(1.0))


@pytest.mark.parametrize(("old", "new", "place"), [
    ('name = "mine"', 'name = "mine"\n    learns = True',
     r"negatives\.source: 'mine' cannot be loaded: {path}:9: Mine"),
    ("    def draw(", "    def __init__(self, config, problem):\n        super().__init__(config, problem)\n"
     "        self.learns = True\n\n    def draw(", r"{path}:12: negatives\.source: mine"),
])
def test_a_trait_outside_its_record_is_refused(make: Make, old: str, new: str, place: str) -> None:
    at = place.format(path=make(SOURCE.replace(old, new)))
    with pytest.raises(UsageError, match=rf"^{at}: learns = True is not read; .* = Traits\(learns=True\)") as error:
        _draw()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("values", "problem"), [
    ("density='Exact'", r"density: 'Exact': should be 'exact', 'conditional', 'estimated' or 'none'"),
    ("learns_from='cots'", r"learns_from: 'cots': should be 'cost' or 'targets'"),
    ("learns='yes'", r"learns: 'yes': should be a valid boolean"),
    ("learns=1", r"learns: 1: should be a valid boolean"),
    ("geometry='dot'", r"geometry: 'dot': should be a valid frozenset"),
    ("components=('mine',)", r"components: \('mine',\): should be 'noise', 'generator' or 'synthetic'"),
    ("components='noise'", r"components: 'noise': should be a valid tuple"),
    ("components={'noise': 1}", r"components: \{'noise': 1\}: should be a valid tuple"),
    ("components=[['noise']]", r"components: \[\['noise'\]\]: should be a valid tuple"),
    ("geometry=[['dot']]", r"geometry: \[\['dot'\]\]: should be a valid frozenset"),
    ("geometry=[1]", r"geometry: \[1\]: should be a valid string"),
    ("sharing_modes=['rows']", r"sharing_modes: \['rows'\]: should be 'row', 'window', 'block' or 'batch'"),
    ("sharing_modes=set()", r"sharing_modes: set\(\): .* at least 1 item.*"),
    ("learns=numpy.int64(1)", r"learns: \S+: should be a valid boolean"),
    ("sharing_modes=()", r"sharing_modes: \(\): .* at least 1 item.*"),
    ("sharing_modes=('rows',)", r"sharing_modes: \('rows',\): should be 'row', 'window', 'block' or 'batch'"),
    ("min_batch_size=0", r"min_batch_size: 0: should be greater than or equal to 1")])
def test_a_wrong_value_of_a_trait_is_refused(plug_in: Callable[[str, str], Path], make: Make, values: str, problem: str
                                             ) -> None:
    text = SOURCE.replace("NegativeSource\n", "NegativeSource, Traits\n", 1).replace("math\n\n", "math, numpy\n\n", 1)
    declared = text.replace('name = "mine"', f'name = "mine"\n    traits = Traits({values})')
    built = text.replace('name = "mine"', 'name = "mine"\n\n    def __init__(self, config, problem):\n        super().'
                                          f'__init__(config, problem)\n        self.traits = Traits({values})')
    path = make(declared)
    with pytest.raises(UsageError, match=rf"'mine' cannot be loaded: {path}:9: Mine: traits\.{problem}; correct it"):
        negatives.find("mine")
    path = make("")                                           # its entry point names no class any more
    path = plug_in("own.py", declared)
    for find in (lambda: negatives.find("unigram"), lambda: own_files.read_cases(path), resolve):
        with pytest.raises(WrongClass, match=rf"^{path}:9: Mine: traits\.{problem}; correct it there$") as wrong:
            find()
        assert wrong.value.code == UsageError.code
    path.write_text(built)
    with pytest.raises(UsageError, match=rf"^mine: traits\.{problem}$"):
        list(own_files.check_file(path))
    path = plug_in("own2.py", built)
    with pytest.raises(UsageError, match=rf"^{path}:12: negatives\.source: mine: traits\.{problem}$"):
        _draw()


@pytest.mark.parametrize(("head", "body"), [
    ("class Own(Traits):", "def __init__(self, *, color='red', **more): super().__init__(**more)"),
    ("@dataclass(frozen=True)\nclass Own(Traits):", "def __init__(self, color): super().__init__(learns=True)"),
    *(("@dataclass(frozen=True, kw_only=True)\nclass Own(Traits):", f"color: {annotation} = 'red'{more}")
      for annotation, more in (("str", ""), ("object", "\n    limit: object = None"), ("'Unknown'", ""),
                               ("str", "\n    name: str = 'x'"), ("str", "\n    count: typing.ClassVar[int] = 3"),
                               ("dataclasses.InitVar[str]", ""), ("type(lambda: 0)", "")))])
def test_traits_of_a_class_of_the_user_have_its_own_arguments(make: Make, head: str, body: str) -> None:
    make("import dataclasses, typing\nfrom dataclasses import dataclass\nfrom embtrain.negatives.base import Traits\n"
         f"{head}\n    {body}\n" + SOURCE.replace('name = "mine"', 'name = "mine"\n    traits = Own(color="blue")'))
    assert negatives.find("mine").traits.learns == ("learns=True" in body)


def test_an_unknown_trait_is_a_wrong_class(plug_in: Callable[[str, str], Path], make: Make) -> None:
    text = SOURCE.replace("NegativeSource\n", "NegativeSource, Traits\n", 1)
    declared = text.replace('name = "mine"', 'name = "mine"\n    traits = Traits(use_counts=True)')
    built = text.replace('name = "mine"', 'name = "mine"\n\n    def __init__(self, config, problem):\n        super().'
                                          '__init__(config, problem)\n        self.traits = Traits(use_counts=True)')
    problem = r"Traits: no trait 'use_counts' \(did you mean 'uses_counts'\?\); there are: .*correct it"
    path = make(declared)
    with pytest.raises(UsageError, match=rf"'mine' cannot be loaded: {path}:11: {problem}"):
        negatives.find("mine")
    path = make("")                                           # its entry point names no class any more
    path = plug_in("own.py", declared)
    with pytest.raises(WrongClass, match=rf"^{path}:11: {problem} there$") as wrong:
        negatives.find("unigram")
    assert wrong.value.code == UsageError.code
    path.write_text(built)
    with pytest.raises(WrongClass, match=rf"^{path}:14: {problem} there$") as wrong:
        list(own_files.check_file(path))
    assert wrong.value.code == UsageError.code
    path = plug_in("own2.py", built)
    with pytest.raises(UsageError, match=rf"^{path}:14: negatives\.source: mine: __init__: {problem} there$"):
        _draw()


@pytest.mark.parametrize(("record", "kind"), [
    ("LossTraits()", "LossTraits"), ("{'learns': True}", "dict"), ("Traits", "the class Traits"), ("None", "NoneType")])
def test_traits_that_are_not_the_record_of_a_source_are_refused(
        plug_in: Callable[[str, str], Path], record: str, kind: str) -> None:
    text = "from embtrain.losses.base import LossTraits\n" + SOURCE.replace("Source\n", "Source, Traits\n", 1)
    problem = rf"traits: is {kind}; set a record, traits = Traits\(\.\.\.\)"
    path = plug_in("own.py", text.replace('name = "mine"', f'name = "mine"\n    traits = {record}'))
    with pytest.raises(WrongClass, match=rf"^{path}:10: Mine: {problem}; correct it there$"):
        negatives.find("mine")
    path = plug_in("own2.py", text.replace('name = "mine"', f'name = "mine"\n\n    def __init__(self, *arguments):\n  '
                                           f'      super().__init__(*arguments)\n        self.traits = {record}'))
    with pytest.raises(UsageError, match=rf"^{path}:13: negatives\.source: mine: {problem}$"):
        _draw()


@pytest.mark.parametrize(("old", "new", "problem"), [
    ('name = "mine"', 'name = "mine"\n    traits = Traits(learns=Thing())',
     r"{path}:13: Mine: traits\.learns: <Thing object at \w+>: should be a valid boolean"),
    ('name = "mine"', 'name = "mine"\n    Config = Thing', r"{path}: Mine: Config = Thing: is not a subclass of "),
    ('name = "mine"', 'name = "mine"\n    Config = Thing()', r"{path}: Mine: Config = <Thing object at \w+>: is not "),
    ('name = "mine"', 'name = "mine"\n    class Config(NegativesConfig):\n        x: list[Thing] = []',
     r"{path}: Mine\.Config\.x: list\[Thing\]: pydantic cannot validate this type; use another")])
def test_an_error_in_a_class_contains_no_name_of_an_internal_module(
        plug_in: Callable[[str, str], Path], old: str, new: str, problem: str) -> None:
    text = SOURCE.replace("NegativeSource\n", "NegativeSource, NegativesConfig, Traits\n", 1)
    text = text.replace("\n\nclass Mine", "\n\nclass Thing:\n    pass\n\n\nclass Mine").replace(old, new)
    path = plug_in("own.py", text)
    for find in (lambda: negatives.find("mine"), lambda: own_files.read_cases(path)):
        with pytest.raises((UsageError, WrongClass), match=rf"^{problem.format(path=path)}"):
            find()


@pytest.mark.parametrize("values", [
    "sharing_modes=['row', 'batch']", "sharing_modes={'row'}", "geometry={'dot', 'cosine'}", "geometry=['dot']",
    "geometry=('dot',)", "components=['noise']", "components=frozenset({'noise'})", "learns=numpy.True_",
    "min_batch_size=numpy.int64(1)", "density=numpy.str_('exact')"])
def test_a_valid_value_of_a_trait_has_any_type_of_collection(
        plug_in: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch, values: str) -> None:
    text = SOURCE.replace("NegativeSource\n", "NegativeSource, Traits\n", 1).replace("math\n\n", "math, numpy\n\n", 1)
    plug_in("own.py", text.replace('name = "mine"', f'name = "mine"\n    traits = Traits({values})'))
    _draw()
    monkeypatch.setattr(negatives, "names", lambda: ["mine"])
    monkeypatch.setattr(losses, "names", lambda: ["logistic"])
    assert combinations.by_model().keys() <= {"mine"} and not combinations.by_loss()


def test_a_wrong_value_of_a_trait_of_a_loss_is_refused() -> None:
    traits = losses.LossTraits(needs_q="Target")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"^Mine: traits\.needs_q: 'Target': should be 'no', 'drawn' or 'target'$"):
        type("Mine", (losses.Loss,), {"traits": traits})


def test_a_trait_of_a_loss_outside_its_record_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^Mine: needs_q = 'target' is not read; .* LossTraits\(needs_q='target'\)$"):
        type("Mine", (losses.Loss,), {"needs_q": "target"})


def test_a_trait_that_a_loss_sets_as_an_attribute_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loss = losses.find("logistic")
    init = loss.__init__

    def set_attribute(self: losses.Loss, config: losses.LossConfig, problem: ProblemSpec) -> None:
        init(self, config, problem)
        self.needs_q = "target"

    monkeypatch.setattr(loss, "__init__", set_attribute)
    settings = tiny_runs.config(tiny_runs.write(tmp_path), "skipgram", "autograd")
    with pytest.raises(UsageError, match=r"^loss\.name: logistic: needs_q = 'target' is not read; "):
        tiny_runs.made(settings)


@pytest.mark.parametrize(("text", "place", "message"), [
    ("x = (\n", ":1", "SyntaxError"), ("import no_package_of_this_name\n", ":1", "ModuleNotFoundError"),
    ("x = 1\n1 / 0\n", ":2", "ZeroDivisionError"), ("Other = 1\n", "", "AttributeError"),
    ("class Mine: pass\n", "", "is not a subclass of NegativeSource"),
])
def test_a_file_that_cannot_be_loaded_stops_no_other(make: Make, caplog: pytest.LogCaptureFixture, text: str,
                                                     place: str, message: str) -> None:
    path = make(text)
    assert "unigram" in negatives.names() and "mine" not in negatives.names()
    assert len(caplog.messages) == 1 and message in caplog.messages[0]
    assert listing.listing()["sources"]
    where = "mine_noise:Mine" if "subclass" in message else f"{path}{place}"
    with pytest.raises(UsageError, match=rf"^negatives\.source: 'mine' cannot be loaded: {where}.*{message}"):
        negatives.find("mine")


LOSS = """from __future__ import annotations
from typing import TYPE_CHECKING
import torch
from pydantic import model_validator
from embtrain.losses.base import LossConfig
from embtrain.losses.logistic import Logistic
if TYPE_CHECKING:
    from numpy import ndarray
class OwnConfig(LossConfig):
    {field}
class Own(Logistic):
    name = "own"
    Config = {config}
"""


@pytest.mark.parametrize(("field", "config", "problem"), [
    ("rate: float", "OwnConfig", r"OwnConfig\.rate: has no default; give it one"),
    ("penalty: float", "OwnConfig", r"OwnConfig\.penalty: has no default; give it one"),
    ("rate: torch.Tensor = torch.zeros(1)", "OwnConfig", r"OwnConfig\.rate: .*Tensor.*: pydantic cannot validate "),
    ("rate: ndarray | None = None", "OwnConfig", r"OwnConfig\.rate: .*ndarray.*: pydantic cannot validate this type; "),
    ("@model_validator(mode='after')\n    def f(self):\n        raise ValueError('never')", "OwnConfig",
     r"OwnConfig: never; change the defaults"),
    ("rate: float = 1.0", "dict", r"Own: Config = dict: is not a subclass of LossConfig; derive it from that class"),
    ("rate: float = 1.0", "OwnConfig()", r"Own: Config = OwnConfig\(name='logistic', .*: is not a subclass of "),
])
def test_a_class_of_settings_has_defaults(plug_in: Callable[[str, str], Path], field: str, config: str, problem: str
                                          ) -> None:
    path = plug_in("own.py", LOSS.format(field=field, config=config))
    for settings in ("loss: {name: own, rate: 0.5}", "loss: {name: own}"):
        (file := path.with_name("own.yaml")).write_text(settings)
        with pytest.raises(UsageError, match=rf"^{file}:1:8: {path}: {problem}") as wrong:
            resolve(config=file)
        assert len(wrong.value.args) == 1 and resolve().loss.name == "logistic"


def test_a_source_in_another_one_and_a_checked_one_have_defaults(plug_in: Callable[[str, str], Path]) -> None:
    config = "from embtrain.negatives.base import NegativesConfig\n" \
             "class MineConfig(NegativesConfig):\n    rate: float\n"
    path = plug_in("mine.py", config + SOURCE.replace('name = "mine"', 'name = "mine"\n    Config = MineConfig'))
    problem = rf"^{path}: MineConfig\.rate: has no default; give it one$"
    with pytest.raises(UsageError, match=problem):
        _built("hardest", inner={"source": "mine", "rate": 1.0})
    with pytest.raises(UsageError, match=problem):
        own_files.read_cases(path)
