"""Modules with a source of the user: they are saved and copied, and the source stays checked."""

from __future__ import annotations

import copy
import importlib
import io
import math
import multiprocessing
import os
import pickle
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from embtrain.common import registry
from embtrain.common.errors import DataError, UsageError
from embtrain.common.types import ModelView, Negatives, ProblemSpec, Query
from embtrain.negatives import base as negatives
from embtrain.negatives.base import NegativesConfig, NegativeSource
from embtrain.negatives.plugin_checks import guarded
from embtrain.nn import SampledLoss

B, D, V = 6, 8, 30
Call = tuple[Tensor, Tensor, Tensor]


class Own(NegativeSource):
    """Draws uniformly, with a wrong number of negatives for k = 7."""

    name = "own"

    def draw(self, query: Query, k: int, view: ModelView | None) -> Negatives:
        n, group = self.draw_layout(query)
        ids = torch.randint(V, (n, k - (k == 7)), generator=self.random)
        return Negatives(ids, draw_id=group, log_q=torch.full((1, 1), -math.log(V)),
                         log_q_target=torch.full((len(query),), -math.log(V)),
                         total_weight=torch.full((1, 1), float(k)))

    def log_prob(self, query: Query, ids: Tensor) -> Tensor:
        return torch.full(ids.shape, -math.log(V)).expand(len(query), -1)


class Reduced(Own):
    """Sets the form of its pickle, which names the class."""

    name = "reduced"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.config, self.problem), {"random": self.random}


class OfMethod(Own):
    """Is built by a class method, and contains its class."""

    name = "of_method"

    def __init__(self, config: NegativesConfig, problem: ProblemSpec):
        super().__init__(config, problem)
        self.kind = type(self)

    @classmethod
    def make(cls, config: NegativesConfig, problem: ProblemSpec) -> OfMethod:
        return cls(config, problem)

    def __reduce__(self) -> tuple[Any, ...]:
        return self.kind.make, (self.config, self.problem), {"random": self.random, "kind": self.kind}


class OfFunction(Own):
    """Is built by a function, whose last argument is the class."""

    name = "of_function"

    def __reduce__(self) -> tuple[Any, ...]:
        return _make, (self.config, self.problem, type(self)), {"random": self.random}


def _make(config: NegativesConfig, problem: ProblemSpec, kind: type[NegativeSource]) -> NegativeSource:
    return kind(config, problem)


class WithTensors(nn.Module, Own):
    """A module of PyTorch too, whose methods come first."""

    name = "with_tensors"

    def __init__(self, config: NegativesConfig, problem: ProblemSpec):
        nn.Module.__init__(self)
        Own.__init__(self, config, problem)
        self.logits = nn.Parameter(torch.zeros(V))


class WithState(WithTensors):
    """Returns the state of a source without arguments, and that of a module with them."""

    name = "with_state"

    def state_dict(self, *args: Any, **options: Any) -> dict[str, Any]:
        if args or options:
            return nn.Module.state_dict(self, *args, **options)
        return {**Own.state_dict(self), "logits": self.logits.detach()}

    def load_state_dict(self, state: Any, *args: Any, **options: Any) -> Any:
        if "random" in state:
            return Own.load_state_dict(self, state)
        return nn.Module.load_state_dict(self, state, *args, **options)


class WithOptions(Own):
    """Hooks with arguments of their own."""

    name = "with_options"

    def draw(self, query: Query, k: int, view: ModelView | None, *, extra: int = 0) -> Negatives:
        return super().draw(query, k, view) if extra else self.draw(query, k, view, extra=1)

    def log_prob(self, query: Query, ids: Tensor, extra: int = 0) -> Tensor:
        return super().log_prob(query, ids) if extra else self.log_prob(query, ids, 1)


def built(kind: type[NegativeSource] = Own, k: int = 5) -> Any:
    return kind(NegativesConfig(source=kind.name, k=k), ProblemSpec(V, torch.ones(V).double()))


@pytest.fixture
def call() -> Call:
    random = torch.Generator().manual_seed(0)
    return (torch.randn(B, D, generator=random), torch.randn(V, D, generator=random),
            torch.randint(V, (B,), generator=random))


def saved(module: SampledLoss) -> SampledLoss:
    torch.save(module, buffer := io.BytesIO())
    buffer.seek(0)
    loaded: SampledLoss = torch.load(buffer, weights_only=False)
    return loaded


@pytest.mark.parametrize("kind", [Own, Reduced])
@pytest.mark.parametrize("is_called", [False, True])
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda loss: pickle.loads(pickle.dumps(loss)), saved])
def test_a_module_with_a_source_object_of_the_user_is_saved(
        duplicate: Callable[[SampledLoss], SampledLoss], is_called: bool, kind: type[NegativeSource], call: Call
) -> None:
    loss = SampledLoss(built(kind), num_classes=V)
    if is_called:
        loss(*call)
    other = duplicate(loss)
    assert torch.equal(loss(*call), other(*call)) and isinstance(other.source, kind)
    with pytest.raises(UsageError, match=r"draw returned 6 negatives, but k is 7"):
        duplicate(SampledLoss(built(kind, k=7), num_classes=V))(*call)


@pytest.mark.parametrize("kind", [Own, Reduced, OfMethod, OfFunction])
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda source: pickle.loads(pickle.dumps(source)),
                                       lambda source: pickle.loads(pickle.dumps(source, 0))])
def test_a_copy_of_a_checked_source_is_checked(duplicate: Callable[[Any], Any], kind: type[NegativeSource]) -> None:
    other = duplicate(source := built(guarded(kind)))
    assert type(other) is type(source) is not kind and getattr(other, "kind", type(other)) is type(other)
    assert torch.equal(other.random.get_state(), source.random.get_state())


@pytest.mark.parametrize("k", [5, 7])
def test_a_module_with_a_source_of_a_file_of_the_user_is_saved(k: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                               call: Call) -> None:
    (path := tmp_path / "of_file.py").write_text(
        "import torch\nfrom embtrain.negatives.static.uniform import Uniform\nclass InFile(Uniform):\n"
        "    name = 'in_file'\n    def draw(self, query, k, view):\n"
        "        return super().draw(query, k - (k == 7), view)\n")
    monkeypatch.setenv("EMBTRAIN_PLUGINS", str(path))
    loss = SampledLoss("in_file", num_classes=V, num_sampled=k)
    for duplicate in (copy.deepcopy, lambda loss: pickle.loads(pickle.dumps(loss)), saved):
        other = duplicate(loss)
        if k == 5:
            assert torch.equal(copy.deepcopy(loss)(*call), other(*call))
            continue
        with pytest.raises(UsageError, match=r"draw returned 6 negatives, but k is 7"):
            other(*call)


def test_a_new_process_loads_a_module_with_a_source_of_a_file(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call) -> None:
    for folder in ("old", "new"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "of_folder.py").write_text(
            "from embtrain.negatives.static.uniform import Uniform\nclass InFolder(Uniform):\n"
            f"    name, folder = 'in_folder', {folder!r}\n")
    (first := tmp_path / "first.py").write_text("")

    def names(*paths: Path) -> None:
        monkeypatch.setenv("EMBTRAIN_PLUGINS", os.pathsep.join(map(str, paths)))

    def load(is_new: bool = True) -> Any:
        """Load in this process, or in the state of a new one."""
        if is_new:
            for module in [module for module in sys.modules if module.startswith(registry.PLUGIN_MODULE)]:
                monkeypatch.delitem(sys.modules, module)
            registry.import_plugin.cache_clear()
            registry.cached_classes.cache_clear()
        loss = pickle.loads(data)
        loss(*call)
        return loss.source

    names(tmp_path / "old" / "of_folder.py")
    (loss := SampledLoss("in_folder", num_classes=V, num_sampled=5))(*call)
    data = pickle.dumps(loss)
    for paths in ([tmp_path / "old" / "of_folder.py"], [first, tmp_path / "old" / "of_folder.py"]):
        names(*paths)
        assert load().folder == "old" and type(load(is_new=False)) is negatives.find("in_folder")
    names(tmp_path / "new" / "of_folder.py")
    assert load(is_new=False).folder == "old" and negatives.find("in_folder").folder == "new"
    assert load().folder == "new" and type(load(is_new=False)) is negatives.find("in_folder")
    assert pickle.loads(pickle.dumps(negatives.find("in_folder"))) is negatives.find("in_folder")
    names(first)
    with pytest.raises(DataError, match=r"^EMBTRAIN_PLUGINS: lacks of_folder\.py, which defines .*; add the path"):
        load()
    names(tmp_path / "gone.py")
    with pytest.raises(DataError, match=r"^EMBTRAIN_PLUGINS: .*gone\.py: does not exist"):
        load()


def test_a_package_with_the_prefix_of_the_files_of_the_user_may_lack_a_module(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (folder := tmp_path / "embtrain_plugin_extra").mkdir()
    (folder / "__init__.py").write_text(
        "try:\n    from embtrain_plugin_extra import _fast\nexcept ImportError:\n    _fast = None\n")
    assert importlib.import_module("embtrain_plugin_extra")._fast is None
    sys.modules.pop("embtrain_plugin_extra")
    for name in ("embtrain_plugin_0123ABCD_of", "embtrain_plugin_other", "embtrain_plugin_0123abcd"):
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(name)
    with pytest.raises(DataError, match=r"lacks of_file\.py"):
        importlib.import_module("embtrain_plugin_0123abcd_of_file")


def test_a_class_that_the_user_derives_from_a_checked_one_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    derived = type("Derived", (guarded(Own),), {"__module__": __name__})
    monkeypatch.setattr(sys.modules[__name__], "Derived", derived, raising=False)
    assert pickle.loads(pickle.dumps([derived, guarded(Own), Own])) == [derived, guarded(Own), Own]


def test_a_source_that_is_a_module_has_a_state_in_another_module(call: Call) -> None:
    loss = nn.Sequential(SampledLoss(built(WithState), num_classes=V))
    for _ in range(2):                                            # before and after the first call
        state = loss.state_dict()
        loss.load_state_dict(state)
        loss[0](*call)
    assert loss[0].source.state_dict().keys() == {"random", "logits"}
    assert "0._given.logits" in state


def test_the_methods_of_pytorch_are_not_checked() -> None:
    source = built(WithTensors)
    before = {name: getattr(source, name).__func__ for name in ("state_dict", "load_state_dict", "train", "to")}
    SampledLoss(source, num_classes=V)
    assert before == {name: getattr(source, name).__func__ for name in before}
    with pytest.raises(RuntimeError, match="Missing key"):
        source.load_state_dict({})


def test_a_hook_has_arguments_of_its_own(call: Call) -> None:
    assert SampledLoss(built(WithOptions), num_classes=V)(*call).isfinite()


class WithNumPy(Own):
    """Has a generator of NumPy, whose state is a dict."""

    name = "with_numpy"

    def state_dict(self) -> dict[str, Any]:
        return {"random": np.random.default_rng(0).bit_generator.state}


def test_a_source_with_a_generator_of_numpy_is_built_again_for_new_counts() -> None:
    assert built(WithNumPy).grow_from(built(WithNumPy), torch.arange(V)) == ""


class Limited(Own):
    """Draws below a limit, an argument besides config and problem."""

    name = "limited"

    def __init__(self, config: NegativesConfig, problem: ProblemSpec, allowed: int = V):
        super().__init__(config, problem)
        self.allowed = allowed


class Passing(Limited):
    """Passes on its arguments."""

    name = "passing"

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)


class Short(Own):
    """Makes config and problem itself."""

    name = "short"

    def __init__(self, allowed: int, k: int = 3):
        super().__init__(NegativesConfig(source=self.name, k=k), built().problem)
        self.allowed = allowed


class Learned(Own):
    """Saves and loads its limit, and has a lock, which cannot be copied."""

    name, allowed = "learned", V

    def __init__(self, config: NegativesConfig, problem: ProblemSpec):
        super().__init__(config, problem)
        self.lock = threading.Lock()

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "allowed": self.allowed}

    def load_state_dict(self, state: Any) -> None:
        super().load_state_dict(state)
        self.allowed = state["allowed"]


class Scheduled(Learned):
    """Has a function that cannot be pickled."""

    name = "scheduled"

    def __init__(self, config: NegativesConfig, problem: ProblemSpec):
        Own.__init__(self, config, problem)
        self.schedule = lambda: 1


class Nested(Scheduled):
    """Has values inside others that cannot be pickled or copied."""

    name = "nested"

    def __init__(self, config: NegativesConfig, problem: ProblemSpec):
        super().__init__(config, problem)
        self.schedule = [lambda: 1]                                        # type: ignore[assignment]
        self.leaf = torch.ones(2, dtype=torch.float32, requires_grad=True)
        self.other = weakref.ref(self.leaf), self.leaf * 2


class Referring(Own):
    """Refers to the network that contains its module."""

    name = "referring"
    n_copies: ClassVar[list[int]] = []
    network: nn.Module

    def __getstate__(self) -> dict[str, Any]:
        self.n_copies.append(1)
        return self.__dict__


def limited(kind: type[NegativeSource], **options: Any) -> NegativeSource:
    """A source with the limit 7."""
    if kind is Short:
        return Short(7)
    source = kind(NegativesConfig(source=kind.name, k=3), built().problem, **options)
    source.allowed = 7
    return source


@pytest.mark.parametrize("make", [lambda: limited(Limited, allowed=7), lambda: limited(Passing, allowed=7),
                                  lambda: limited(Short), lambda: limited(Own), lambda: limited(Learned),
                                  lambda: limited(Scheduled), lambda: limited(Nested)],
                         ids=["argument", "passed_on", "others", "attribute", "lock", "function", "nested"])
@pytest.mark.parametrize("is_called", [False, True])
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda loss: pickle.loads(pickle.dumps(loss)), saved])
def test_a_copy_has_what_the_source_object_has(duplicate: Callable[[SampledLoss], SampledLoss], is_called: bool,
                                               make: Callable[[], Any], call: Call) -> None:
    loss = SampledLoss(make(), num_classes=V)
    if is_called:
        loss(*call)
    other = duplicate(loss)
    assert torch.equal(loss(*call), other(*call))
    assert other.source.allowed == 7 and other.source is not loss.source    # type: ignore[union-attr]
    other.load_state_dict(loss.state_dict())
    assert torch.equal(loss(*call), other(*call))


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda network: pickle.loads(pickle.dumps(network))])
def test_a_source_may_refer_to_the_network_that_contains_it(duplicate: Callable[[Any], Any], call: Call) -> None:
    network = nn.Sequential(SampledLoss(source := limited(Referring), num_classes=V))
    source.network = network                                                # type: ignore[attr-defined]
    network[0](*call)
    Referring.n_copies.clear()
    other = duplicate(network)
    assert other[0].source.network is other and torch.equal(network[0](*call), other[0](*call))
    assert len(Referring.n_copies) <= 2                                     # a trial, and the copy


class LockedReferring(Referring):
    """Refers to the network, and contains a lock."""

    name = "locked_referring"

    def __init__(self, config: NegativesConfig, problem: ProblemSpec):
        super().__init__(config, problem)
        self.lock = threading.Lock()


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda network: pickle.loads(pickle.dumps(network))])
def test_sources_that_refer_to_their_network_have_one_trial_each(duplicate: Callable[[Any], Any]) -> None:
    kinds = [LockedReferring, Referring, LockedReferring, *[Referring] * 5]
    network = nn.Sequential(*(SampledLoss(limited(kind), num_classes=V) for kind in kinds))
    for module in network:
        module.source.network = network                                     # type: ignore[union-attr]
    Referring.n_copies.clear()
    other = duplicate(network)
    assert len(Referring.n_copies) <= 2 * len(kinds)
    for kind, module in zip(kinds, other, strict=True):
        assert kind is LockedReferring or module.source.network is other    # type: ignore[union-attr]


class Locked(Limited):
    """Has an argument of its own and a lock."""

    name = "locked"

    def __init__(self, config: NegativesConfig, problem: ProblemSpec, allowed: int):
        super().__init__(config, problem, allowed)
        self.lock = threading.Lock()


class Computed(Limited):
    """Has an argument of its own and a tensor that can be pickled, but not copied."""

    name = "computed"

    def __init__(self, config: NegativesConfig, problem: ProblemSpec, allowed: int):
        super().__init__(config, problem, allowed)
        self.other = torch.ones(2, dtype=torch.float32, device="cpu", requires_grad=True) * 2


def test_a_source_that_can_be_neither_copied_nor_built_again_is_refused() -> None:
    module = SampledLoss(limited(Locked, allowed=7), num_classes=V)
    for duplicate in (copy.deepcopy, pickle.dumps):
        with pytest.raises(UsageError, match=r"negatives: locked \(.*Locked in .*: cannot be copied or saved with its "
                                             r"module: TypeError: cannot pickle '_thread\.lock' object; leave "):
            duplicate(module)
    module = SampledLoss(limited(Computed, allowed=7), num_classes=V)
    assert pickle.loads(pickle.dumps(module)).source.allowed == 7
    with pytest.raises(UsageError, match=r"computed .*: cannot be copied or saved with its module: RuntimeError: Only"):
        copy.deepcopy(module)


class OfFunctions(pickle._Pickler):                                         # type: ignore[name-defined,misc]
    """Pickles a class in a function, as cloudpickle does."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, type) and "<locals>" in value.__qualname__:
            return type, (value.__name__, value.__bases__, {"name": value.name})      # type: ignore[attr-defined]
        return NotImplemented


def test_a_source_that_another_pickler_can_save_is_left_to_it() -> None:
    class InFunction(Limited):
        name = "in_function"

    module = SampledLoss(limited(InFunction, allowed=7), num_classes=V)
    OfFunctions(file := io.BytesIO()).dump(module)
    assert pickle.loads(file.getvalue()).source.allowed == 7
    with pytest.raises((AttributeError, pickle.PicklingError), match=r"InFunction"):
        pickle.dumps(module)


def test_a_copy_of_a_source_that_cannot_be_pickled_has_its_attributes(caplog: pytest.LogCaptureFixture, call: Call
                                                                        ) -> None:
    class InFunction(Limited):
        name = "in_function"

    loss: Any = SampledLoss(limited(Scheduled), num_classes=V)
    loss.source.boost = 5
    for duplicate in (copy.deepcopy, copy.copy):
        other = duplicate(loss)
        assert other.source.boost == 5 and other.source.schedule() == 1
    assert (copy.copy(loss).source is loss.source) and copy.deepcopy(loss).source is not loss.source
    local: Any = SampledLoss(limited(InFunction, allowed=7), num_classes=V)
    assert copy.deepcopy(local).source.allowed == 7
    assert caplog.messages == []
    loss(*call)
    assert not hasattr(pickle.loads(pickle.dumps(loss)).source, "boost")
    (message,) = caplog.messages
    assert message.startswith("negatives: scheduled (") and message.endswith(
        "; it is built again from config, problem and state_dict, without other attributes")


@pytest.mark.parametrize("is_called", [False, True])
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda loss: pickle.loads(pickle.dumps(loss)), saved])
def test_a_source_that_is_a_module_is_copied_once(duplicate: Callable[[SampledLoss], SampledLoss], is_called: bool,
                                                  call: Call) -> None:
    loss = SampledLoss(built(WithState), num_classes=V)
    loss.source.logits.data += 1                                            # type: ignore[union-attr]
    if is_called:
        loss(*call)
    other = duplicate(loss)
    assert torch.equal(loss(*call), other(*call))
    assert [name for name, _ in other.named_modules()] == [name for name, _ in loss.named_modules()]
    assert other.source is other._given and other.state_dict().keys() == loss.state_dict().keys()
    assert torch.equal(other.source.logits, loss.source.logits)             # type: ignore[union-attr]


def test_a_pickle_contains_the_source_once(call: Call) -> None:
    loss = SampledLoss(source := limited(Learned), num_classes=V)
    del source.lock                                                         # type: ignore[attr-defined]
    source.table = torch.arange(100_000, dtype=torch.int64, device="cpu")   # type: ignore[attr-defined]
    loss(*call)
    assert len(pickle.dumps(loss)) < 1_000_000


@pytest.mark.parametrize("name", ["cluster", "rff"])
def test_a_source_derived_from_one_with_pointers_is_built_again(name: str, call: Call) -> None:
    derived = type("Mine", (negatives.find(name),), {"name": "mine", "__module__": __name__})
    source = derived(derived.Config(source="mine", k=3), ProblemSpec(
        V, torch.ones(V, dtype=torch.float64, device="cpu"), dim=D))
    loss = SampledLoss(source, num_classes=V)
    loss(*call)
    other = copy.deepcopy(loss)
    assert torch.equal(loss(*call), other(*call))


class Counting(Own):
    """Counts its draws in a tensor, and has random numbers of its own."""

    name = "counting"

    def __init__(self, config: NegativesConfig, problem: ProblemSpec, allowed: int):
        super().__init__(config, problem)
        self.allowed, self.count = allowed, torch.zeros(V, dtype=torch.int64, device="cpu")
        self.other_random = torch.Generator(device="cpu").manual_seed(9)

    def draw(self, query: Query, k: int, view: ModelView | None) -> Negatives:
        self.count += self.allowed
        torch.randint(9, (1,), generator=self.other_random, dtype=torch.int64, device="cpu")
        return super().draw(query, k, view)


def _call_twice(values: Any, loss: SampledLoss, call: Call) -> None:
    loss(*call)
    source: Any = loss.source
    values.put((loss(*call).item(), source.count.tolist(), source.other_random.get_state().tolist()))


def test_a_spawned_process_has_a_source_of_its_own(call: Call) -> None:
    loss = SampledLoss(source := Counting(built().config, built().problem, allowed=7), num_classes=V)
    context = multiprocessing.get_context("spawn")
    values = context.SimpleQueue()
    process = context.Process(target=_call_twice, args=(values, loss, call))
    process.start()
    process.join()
    assert process.exitcode == 0 and not source.count.any()
    received = values.get()
    _call_twice(values, loss, call)
    assert received == values.get()
