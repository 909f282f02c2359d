"""Any state is restored bit for bit, and what no file can contain is named."""

from __future__ import annotations

import json
import math
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.bits import same
from hypothesis import given, settings, strategies as st
from safetensors.torch import load_file

from embtrain.train.state import serialize
from embtrain.train.state.checkpoint import load, save

SCALARS = st.none() | st.booleans() | st.integers(-2**130, 2**130) | st.floats() | st.text(max_size=5)
DTYPES = [*serialize._NATIVE, *serialize._AS_BYTES.values()]


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    raw = draw(st.binary(min_size=math.prod(shape) * dtype.itemsize, max_size=math.prod(shape) * dtype.itemsize))
    raw = bytes(b & 1 for b in raw) if dtype == torch.bool else raw
    flat = torch.tensor(list(raw), dtype=torch.uint8)
    return flat.view(dtype).reshape(shape) if raw else torch.empty(shape, dtype=dtype)


KEYS = st.text(max_size=4) | st.integers(-3, 2**70)
TREES = st.dictionaries(KEYS, st.recursive(
    SCALARS | tensors(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3) | st.tuples(inner, inner),
    max_leaves=8), max_size=4)


@settings(max_examples=60)
@given(TREES)
def test_any_state_is_restored_bitwise(tmp_path_factory: pytest.TempPathFactory, state: dict) -> None:
    folder = tmp_path_factory.mktemp("c")
    save(folder, 3, state, keep=1)
    assert same(load(folder), state)
    shutil.rmtree(folder)


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan, -math.nan, -0.0, 5e-324, 0.1, 1e308,
                                    struct.unpack(">d", bytes.fromhex("7ff80000deadbeef"))[0]])
def test_floats_are_kept_exactly(tmp_path: Path, number: float) -> None:
    save(tmp_path, 0, {"x": number}, keep=1)
    assert struct.pack(">d", load(tmp_path)["x"]) == struct.pack(">d", number)


def test_types_that_json_confuses(tmp_path: Path) -> None:
    state = {1: 1, "1": "1", "one": 1.0, "yes": True, "none": None, "lone": "\ud800", "empty": {}, "list": [], "t": (),
             "dict": {"dict": [["a", 1]]}, "tensor": {"tensor": 0}}
    save(tmp_path, 0, state, keep=1)
    assert same(load(tmp_path), state)


def test_views_transposes_and_shared_memory(tmp_path: Path) -> None:
    base = torch.arange(24.0).reshape(4, 6)
    state = {"base": base, "same": base, "row": base[1], "columns": base.T, "every": base[:, ::2], "one": base.sum(),
             "expanded": base[0, :1].expand(5), "conjugate": torch.tensor([1 + 2j]).conj(),
             "parameter": torch.nn.Parameter(torch.ones(2))}
    save(tmp_path, 0, state, keep=1)
    back = load(tmp_path)
    assert all(torch.equal(back[name], value) for name, value in state.items())
    assert not back["parameter"].requires_grad
    back["base"].zero_()
    assert back["same"].sum() == base.sum()  # each has memory of its own
    assert all(x.data_ptr() % 64 == 0 for x in back.values())


def test_tensor_file_is_plain_safetensors(tmp_path: Path) -> None:
    path = save(tmp_path, 7, {"b": torch.tensor([1, 2], dtype=torch.uint8), "f": torch.tensor([[0.5]])}, keep=1)
    assert path.name == "step-0000000007.json"
    result = load_file(tmp_path / "step-0000000007.safetensors")
    assert same(dict(sorted(result.items())),
                {"0": torch.tensor([1, 2], dtype=torch.uint8), "1": torch.tensor([[0.5]])})


def test_every_tensor_is_aligned_to_its_element_size(tmp_path: Path) -> None:
    """Other readers map the file and need each tensor at a multiple of its element's size."""
    path = tmp_path / "x.safetensors"
    sizes = {"1": 8, "2": 2, "4": 4}
    for n in range(8):  # headers of other lengths
        serialize.write(path, [torch.ones(10**n // 2, dtype=torch.uint8), torch.ones(1, dtype=torch.float64),
                          torch.ones(1).half(), torch.ones(5, dtype=torch.complex64), torch.ones(3)])
        with open(path, "rb") as file:
            begin = 8 + struct.unpack("<Q", file.read(8))[0]
            header = json.loads(file.read(begin - 8))
        assert all((begin + header[name]["data_offsets"][0]) % size == 0 for name, size in sizes.items())


@pytest.mark.parametrize("make", [
    lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    lambda p: torch.optim.Adagrad(p, lr=0.1),
    lambda p: torch.optim.Adam(p, lr=0.1, amsgrad=True),
], ids=["sgd", "adagrad", "adam"])
def test_training_resumes_bitwise(tmp_path: Path, make: Callable) -> None:
    """Six steps at once, and three, a checkpoint, three more: the same tables, optimizer state and random stream."""
    def begin() -> tuple[torch.nn.Parameter, Any, torch.Generator]:
        table = torch.nn.Parameter(torch.linspace(-1, 1, 40).reshape(8, 5))
        return table, make([table]), torch.Generator().manual_seed(5)

    def go(table: torch.nn.Parameter, optimizer: Any, generator: torch.Generator) -> None:
        for _ in range(3):
            optimizer.zero_grad()
            (table * torch.randn(8, 5, generator=generator)).exp().sum().backward()
            optimizer.step()

    def state(table: torch.nn.Parameter, optimizer: Any, generator: torch.Generator) -> dict:
        return {"table": table.detach(), "optimizer": optimizer.state_dict(), "rng": generator.get_state()}

    whole = begin()
    go(*whole)
    go(*whole)
    first = begin()
    go(*first)
    save(tmp_path, 3, state(*first), keep=1)
    saved = load(tmp_path)
    assert same(saved, state(*first))
    table, optimizer, generator = begin()
    table.data.copy_(saved["table"])
    optimizer.load_state_dict(saved["optimizer"])
    generator.set_state(saved["rng"])
    go(table, optimizer, generator)
    assert same(state(table, optimizer, generator), state(*whole))


@pytest.mark.gpu
def test_tensor_of_another_device_is_restored_on_the_cpu(tmp_path: Path) -> None:
    x = torch.randn(5, 3, device="cuda").T
    save(tmp_path, 0, {"x": x}, keep=1)
    back = load(tmp_path)["x"]
    assert back.device.type == "cpu" and torch.equal(back, x.cpu())


@pytest.mark.parametrize(("state", "where"), [
    ({"a": {1.5: 0}}, "state['a']"), ({True: 0}, "True"), ({"a": [object()]}, "state['a'][0]"),
    ({"a": torch.ones(2).to_sparse()}, "state['a']"), ({"a": torch.ones(2, device="meta")}, "state['a']"),
    ({"a": {1, 2}}, "set"),
])
def test_unsupported_value_is_named(tmp_path: Path, state: dict, where: str) -> None:
    with pytest.raises(TypeError) as error:
        save(tmp_path, 0, state, keep=1)
    assert where in str(error.value) and os.listdir(tmp_path) == []


def test_state_that_contains_itself_and_invalid_numbers(tmp_path: Path) -> None:
    state: dict = {}
    state["self"] = state
    with pytest.raises(ValueError, match="50 levels"):
        save(tmp_path, 0, state, keep=1)
    for step, keep in [(-1, 1), (0, 0)]:
        with pytest.raises(ValueError, match="at least"):
            save(tmp_path, step, {}, keep=keep)
