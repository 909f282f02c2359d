"""Classes of the user in other forms than plain methods: the checks apply to them, and refuse no correct one."""

from __future__ import annotations

import abc
import copy
import importlib
import pickle
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from embtrain.common import registry
from embtrain.common.config.foreign_classes import AbstractMethod
from embtrain.common.errors import UsageError, WrongClass
from embtrain.common.types import ProblemSpec
from embtrain.data.triples.examples import TripleBatch
from embtrain.models import base as models
from embtrain.negatives import base as negatives
from embtrain.negatives.plugin_checks import guard_object, guarded
from embtrain.negatives.static.uniform import Uniform

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from helpers.source_worlds import TableView, V, query, tiny_problem

START = """import abc, functools, threading, torch
from embtrain.negatives.base import NegativeSource
from embtrain.negatives.static.base import StaticSource
from embtrain.negatives.static.uniform import Uniform
class Call:
    def __call__(self, *args): return 5
"""
Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a file and names it in EMBTRAIN_PLUGINS."""
    def write_file(text: str) -> Path:
        path = tmp_path / "own.py"
        path.write_text(START + text)
        monkeypatch.setenv("EMBTRAIN_PLUGINS", str(path))
        return path
    return write_file


def _made(k: int = 4) -> Any:
    found = negatives.find("own")
    return found(found.Config(source="own", k=k), tiny_problem())


@pytest.mark.parametrize(("base", "body", "line", "message"), [
    ("StaticSource", "@functools.cache\n    def masses(self): return torch.ones(2)", 9, "masses returned"),
    ("StaticSource", "masses = functools.partialmethod(lambda self, n: torch.ones(n), 2)", 9, "masses returned"),
    ("Uniform", "draw = functools.partialmethod(lambda self, n, *_: n, 5)", 9, "draw returned int"),
    ("Uniform", "@classmethod\n    def draw(cls, query, k, view): return 5", 9, "draw returned int"),
    ("Uniform", "@staticmethod\n    def draw(query, k, view): return 5", 9, "draw returned int"),
    ("Uniform", "draw = Call()", 6, "draw returned int"),
    ("Uniform", "@functools.wraps(Call())\n    def draw(self, query, k, view): return 5", 9, "draw returned int"),
    ("Uniform", "@functools.wraps(max)\n    def draw(self, query, k, view): raise ValueError('no')", 10, "max: ValueE"),
])
def test_a_hook_that_is_no_plain_function_is_checked(write: Write, base: str, body: str, line: int, message: str
                                                     ) -> None:
    path = write(f"class Own({base}):\n    name = 'own'\n    {body}\n")
    with pytest.raises(UsageError, match=rf"^{path}:{line}: negatives\.source: own: {message}"):
        _made().draw(query(), 4, TableView())


@pytest.mark.parametrize("body", [
    "@functools.cache\n    def masses(self): return torch.ones(self.problem.n_candidates)",
    "masses = functools.partialmethod(lambda self, x: torch.full((self.problem.n_candidates,), x), 2.)",
    f"@classmethod\n    def masses(cls): return torch.ones({V})", "masses = lambda self: self.problem.counts"])
def test_a_correct_hook_of_any_form_has_no_error(write: Write, body: str) -> None:
    write(f"class Own(StaticSource):\n    name = 'own'\n    {body}\n")
    assert _made().draw(query(), 4, TableView()).ids.shape == (len(query()), 4)


def test_a_function_of_no_module_is_named_by_its_line_at_least(write: Write) -> None:
    write("made = {}\nexec('def draw(self, query, k, view): return 5', {}, made)\n"
          "class Own(Uniform):\n    name = 'own'\n    draw = made['draw']\n")
    with pytest.raises(UsageError, match=r"draw: negatives\.source: own: draw returned int; return Negatives$"):
        _made().draw(query(), 4, TableView())


@pytest.mark.parametrize("member", ["masses = None", "masses = property(lambda self: 3)",
                                    "def masses(self): return torch.ones(3, 7)"])
def test_a_name_is_a_hook_only_if_the_base_class_has_it(write: Write, member: str) -> None:
    write("class Own(NegativeSource):\n    name = 'own'\n"
          f"    def draw(self, query, k, view): return Uniform.draw(self, query, k, view)\n    {member}\n")
    source = _made()
    assert callable(source.masses) == member.startswith("def") and (not callable(source.masses)
                                                                   or source.masses().shape == (3, 7))


def test_an_attribute_that_is_no_hook_of_a_model_is_kept(write: Write) -> None:
    write("from embtrain.models.words.skipgram import SkipGram\nclass Own(SkipGram):\n    name = 'own'\n"
          "    geometry = None\n    def __init__(self, config, problem):\n        super().__init__(config, problem)\n"
          "        self.start, self.geometry = 7, 'cosine'\n")
    found = models.find("own")
    model: Any = found(found.Config(name="own", dim=4), ProblemSpec(V, torch.ones(V, dtype=torch.float64), V))
    assert (model.start, model.geometry) == (7, "cosine")


def test_an_instance_method_in_place_of_a_static_one_is_refused(write: Write) -> None:
    path = write("from embtrain.models.hierarchies.base import HierarchyModel\nclass Own(HierarchyModel):\n"
                 "    name = 'own'\n    def entailment_score(self, u, v, config): return u\n")
    with pytest.raises(WrongClass, match=rf"^{path}:10: Own\.entailment_score is called without an object; add @stat"):
        models.find("own")


def test_an_abstract_class_of_the_user_is_one_line(write: Write) -> None:
    path = write("class Own(Uniform, abc.ABC):\n    name = 'own'\n    @abc.abstractmethod\n    def more(self): ...\n")
    with pytest.raises(WrongClass, match=rf"^{path}: Own: does not implement more; define it there$"):
        negatives.find("own")


def test_a_constructor_that_a_dataclass_makes_is_named_by_its_class(write: Write) -> None:
    path = write("import dataclasses\n@dataclasses.dataclass\nclass Own(Uniform):\n    n: int = 3\n    name = 'own'\n")
    with pytest.raises(UsageError, match=rf"^{path}: Own\.__init__: negatives\.source: own: __init__: TypeError: "):
        _made()


class _Mine(Uniform):
    name = "mine"


class _Other(Uniform):
    name = "other"


def test_classes_with_checks_can_be_bases_together_and_with_an_abc() -> None:
    both = type("Both", (guarded(_Mine), guarded(_Other)), {"name": "both"})

    class Abstract(guarded(_Mine), abc.ABC):                         # type: ignore[misc]
        name = "abstract"
    for kind in (both, Abstract):
        source: Any = guarded(kind)(Uniform.Config(source=kind.name, k=3), tiny_problem())
        assert source.draw(query(), 3, TableView()).ids.shape == (len(query()), 3)
        assert type(copy.deepcopy(source)) is type(source) and source.name == kind.name
    assert pickle.loads(pickle.dumps(guarded(_Mine))) is copy.deepcopy(guarded(_Mine)) is guarded(_Mine)


class _Empty:
    __slots__ = ()


class _WithSlots(_Empty, _Mine):
    """A class whose first base has another layout than objects."""


def test_an_object_whose_first_base_has_slots_is_checked() -> None:
    source: Any = _WithSlots(Uniform.Config(source="mine", k=3), tiny_problem())
    guard_object(source)
    assert type(source) is guarded(_WithSlots) and source.draw(query(), 3, TableView()).ids.shape == (len(query()), 3)


def test_an_error_about_a_missing_method_crosses_a_process() -> None:
    error = AbstractMethod(_Mine, "draw")
    other = pickle.loads(pickle.dumps(error))
    assert str(other) == str(error) and isinstance(other, WrongClass) and other.code == error.code


class _Locked(Uniform):
    """A source that no copy can be made of, with a state of its own."""

    name = "locked"
    loaded: ClassVar[list[int]] = []

    def __init__(self, config: Any, problem: Any) -> None:
        super().__init__(config, problem)
        self.lock = threading.Lock()

    def state_dict(self) -> dict[str, Any]:
        return {"own": 1}

    def load_state_dict(self, state: Any) -> None:
        self.loaded.append(state["own"])


class _Counted(_Locked):
    name = "counted"
    loaded: ClassVar[list[int]] = []

    def __init__(self, config: Any, problem: Any) -> None:
        super().__init__(config, problem)
        del self.lock


def test_a_state_of_a_source_without_a_copy_is_accepted_and_tried_once_with_one() -> None:
    for kind, loaded in ((_Locked, []), (_Counted, [1])):
        source: Any = guarded(kind)(Uniform.Config(source=kind.name, k=3), tiny_problem())
        assert [source.state_dict() for _ in range(3)] == [{"own": 1}] * 3
        assert kind.loaded == loaded


@pytest.mark.parametrize(("masses", "message"), [
    ("torch.nn.Parameter(torch.ones(V))", r"a trained tensor; return a dense one that is not trained"),
    ("torch.ones(V).to_sparse()", "a sparse, quantized or meta tensor"),
    ("torch.ones(V, device='meta')", "a sparse, quantized or meta tensor")])
def test_masses_of_another_kind_of_tensor_are_one_line(write: Write, masses: str, message: str) -> None:
    path = write(f"V = {V}\nclass Own(StaticSource):\n    name = 'own'\n    def masses(self): return {masses}\n")
    with pytest.raises(UsageError, match=rf"^{path}:10: negatives\.source: own: masses returned {message}"):
        _made()


def test_a_frozen_vector_that_an_own_encoder_maps_is_accepted(write: Write) -> None:
    write("from embtrain.models.triples.distmult import DistMult\n"
          "class Own(DistMult):\n    name = 'own'\n    def __init__(self, config, problem):\n"
          "        super().__init__(config, problem)\n        self.map = torch.nn.Linear(config.dim, config.dim)\n"
          "    def query_vector(self, entity, relation, sign): return self.e[entity].detach()\n"
          "    def encode(self, batch):\n        found = super().encode(batch)\n"
          "        return found.with_vector(self.map(found.vector))\n")
    found, zeros = models.find("own"), torch.zeros(4, dtype=torch.int64)
    model: Any = found(found.Config(name="own", dim=4), ProblemSpec(
        V, torch.ones(V, dtype=torch.float64), V, context_sizes=(V, 4)))
    assert model.encode(TripleBatch(zeros, zeros, zeros, zeros)).vectors.requires_grad


@pytest.mark.parametrize(("body", "problem"), [
    ("geometry = None", "{}/wrong_geometry.py: Wrong: geometry = None"),
    ("encode = type('D', (), {'__get__': lambda *_: 1 / 0})()", "wrong_geometry:Wrong: ZeroDivisionError")])
def test_a_wrong_class_of_an_entry_point_stops_no_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str,
                                                       problem: str) -> None:
    info = tmp_path / "wrong-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: wrong\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[embtrain.models]\nwrong = wrong_geometry:Wrong\n")
    (tmp_path / "wrong_geometry.py").write_text("from embtrain.models.words.skipgram import SkipGram\n"
                                               f"class Wrong(SkipGram):\n    name = 'wrong'\n    {body}\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    registry.cached_classes.cache_clear()
    try:
        assert "wrong" not in models.names() and "skipgram" in models.names()
        with pytest.raises(UsageError, match=f"'wrong' cannot be loaded: {problem.format(tmp_path)}"):
            models.find("wrong")
    finally:
        sys.modules.pop("wrong_geometry", None)
        monkeypatch.undo()
        registry.cached_classes.cache_clear()


def test_an_error_of_embtrain_is_not_that_of_a_file_in_the_current_folder(
        write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write("class Own(Uniform):\n    name = 'own'\n")
    negatives.find("own")
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {"__name__": "embtrain.somewhere"}
    exec("def generated(): raise KeyError(1)", scope)       # as the constructor of a dataclass
    inner: BaseException = KeyError()
    try:
        scope["generated"]()
    except KeyError as error:
        assert error.__traceback__ is not None
        inner = error.with_traceback(error.__traceback__.tb_next)      # without the frame of this test
    assert registry.place_in_plugin(inner) is None
