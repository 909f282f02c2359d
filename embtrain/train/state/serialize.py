"""A nested state as a JSON tree and a safetensors file.

The file contains the tensors under the names 0, 1, 2, … The tree is the state without its tensors. A node is

    null, true, 3, 0.5, "text"     itself
    [node, …]                      a list
    {"tuple": [node, …]}           a tuple
    {"dict": [[key, node], …]}     keys are str or int
    {"float": "7ff0000000000000"}  inf or nan, by its bits
    {"tensor": 3}                  tensor 3 of the file
    {"tensor": 3, "dtype": "complex64", "shape": [2, 5]}   the same, for a dtype that the file stores as plain bytes
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import re
import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor

from embtrain.common.errors import DataError
from embtrain.common.files import write_atomically

MAX_DEPTH = 50   # levels; each takes up to three levels of JSON
CHUNK_BYTES = 1 << 22  # bytes

_NATIVE = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
           torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8",
           torch.bool: "BOOL"}
_AS_BYTES = {str(dtype).removeprefix("torch."): dtype for dtype in (
    torch.complex64, torch.complex128, torch.uint16, torch.uint32, torch.uint64,
    torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz)}


class _BadNode(Exception):
    """A node that `encode` never writes."""


def encode(state: dict) -> tuple[Any, list[Tensor]]:
    """The tree of a state and its tensors. Raises TypeError or ValueError for values that a tree cannot contain."""
    tensors: list[Tensor] = []
    return _encode(state, tensors, "state", MAX_DEPTH), tensors


def decode(node: Any, path: Path, views: Collection[str] = ()) -> dict:
    """The state of a tree and its tensor file. Raises DataError.

    views: keys of the state whose tensors are views of the mapped file, instead of copies.
    """
    try:
        with safe_open(str(path), framework="pt", device="cpu") as file:
            unread = set(file.keys())
            state = _decode(node, file, unread, MAX_DEPTH, views=views)
    except (SafetensorError, _BadNode) as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"{path}: it and its manifest are not a checkpoint: {reason}") from error
    if unread or not isinstance(state, dict):
        raise DataError(f"{path}: it and its manifest are not a checkpoint: a dict must use every tensor of the file")
    return state


def entry(node: Any, key: str) -> Any:
    """One value of an encoded state that contains no tensor; None if there is none, or if it is not readable."""
    match node:
        case {"dict": list(pairs)}:
            values = [pair[1] for pair in pairs if isinstance(pair, list) and len(pair) == 2 and pair[0] == key]
            with contextlib.suppress(_BadNode):
                return _decode(values[0], None, set(), MAX_DEPTH) if values else None
    return None


def to_bytes(state: dict) -> bytes:
    """The state as bytes: a little-endian u64, that many bytes of its tree, and its tensors as a safetensors file."""
    tree, tensors = encode(state)
    text = json.dumps(tree, allow_nan=False, separators=(",", ":")).encode()
    native = (x.detach().cpu().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
              for x in tensors)
    named = {str(i): x if x.dtype in _NATIVE else x.reshape(-1).view(torch.uint8) for i, x in enumerate(native)}
    return struct.pack("<Q", len(text)) + text + save(named)


def from_bytes(content: bytes, name: str) -> dict:
    """The state of `to_bytes`. Raises DataError that starts with `name`."""
    try:
        size, = struct.unpack_from("<Q", content)
        tree = json.loads(content[8:8 + size])
        with torch.device("cpu"):                                  # empty tensors are made on the default device
            file = _Loaded(load(content[8 + size:]))
        state = _decode(tree, file, unread := set(file.tensors), MAX_DEPTH, copy=False)
    except (SafetensorError, _BadNode, struct.error, ValueError, RecursionError) as error:
        raise DataError(f"{name}: is not a state that was saved: {' '.join(str(error).split())[:200]}") from error
    if unread or not isinstance(state, dict):
        raise DataError(f"{name}: is not a state that was saved: a dict must use every tensor")
    return state


@dataclass(frozen=True)
class _Loaded:
    """Tensors by name, read as from a file."""

    tensors: dict[str, Tensor]

    def get_tensor(self, name: str) -> Tensor:
        return self.tensors[name]


def write(path: Path, tensors: list[Tensor]) -> tuple[int, str]:
    """Write a safetensors file atomically; returns its size in bytes and its sha256.

    The format is a little-endian u64, that many bytes of JSON, and the tensors' bytes. It is written here because the
    library's writers need the whole file in memory or a path of their own, reject tensors that share memory, and
    compute no hash. Here only a chunk of rows of one tensor is copied at a time.
    """
    # Widest dtype first, as in the library: each tensor then starts at a multiple of its element size.
    order = sorted(range(len(tensors)), key=lambda i: -tensors[i].element_size() if tensors[i].dtype in _NATIVE else 0)
    header, end = {}, 0
    for i in order:
        tensor, start = tensors[i], end
        end = start + tensor.numel() * tensor.element_size()
        shape = list(tensor.shape) if tensor.dtype in _NATIVE else [end - start]
        header[str(i)] = {"dtype": _NATIVE.get(tensor.dtype, "U8"), "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)

    def chunks() -> Iterator[Any]:
        yield struct.pack("<Q", len(text)) + text
        for i in order:
            for rows in _chunks(tensors[i].detach().resolve_conj().resolve_neg()):
                yield rows.to("cpu").contiguous().reshape(-1).view(torch.uint8).numpy().data

    digest = hashlib.sha256()
    with write_atomically(path) as file:
        for chunk in chunks():
            file.write(chunk)
            digest.update(chunk)
    return 8 + len(text) + end, digest.hexdigest()


def _chunks(tensor: Tensor) -> Iterator[Tensor]:
    """Chunks of rows: a table of padded rows, or one on a device, is never copied whole."""
    if tensor.ndim == 0:
        yield tensor
        return
    step = max(1, CHUNK_BYTES // max(1, tensor[:1].numel() * tensor.element_size()))
    yield from tensor.split(step)


def _encode(value: Any, tensors: list[Tensor], where: str, depth: int) -> Any:
    """The node of a value; its tensors are appended to `tensors`."""
    if depth == 0:
        raise ValueError(f"{where[:200]}: more than {MAX_DEPTH} levels deep")
    if isinstance(value, Tensor):
        return _encode_tensor(value, tensors, where)
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str | int) or isinstance(key, bool):
                raise TypeError(f"{where}: the key {key!r} is neither str nor int")
        return {"dict": [[k, _encode(v, tensors, f"{where}[{k!r}]", depth - 1)] for k, v in value.items()]}
    if isinstance(value, list | tuple):
        nodes = [_encode(v, tensors, f"{where}[{i}]", depth - 1) for i, v in enumerate(value)]
        return {"tuple": nodes} if isinstance(value, tuple) else nodes
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": struct.pack(">d", value).hex()}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{where}: a checkpoint cannot contain a {type(value).__name__}")


def _encode_tensor(tensor: Tensor, tensors: list[Tensor], where: str) -> dict:
    """The node of a tensor, which is appended to `tensors`."""
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
        raise TypeError(f"{where}: a checkpoint cannot contain sparse, quantized or meta tensors")
    node: dict[str, Any] = {"tensor": len(tensors)}
    if tensor.dtype not in _NATIVE:
        if tensor.dtype not in _AS_BYTES.values():
            raise TypeError(f"{where}: a checkpoint cannot contain tensors of {tensor.dtype}")
        node |= {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape)}
    tensors.append(tensor)
    return node


def _decode(node: Any, file: Any, unread: set[str], depth: int, copy: bool = True, views: Collection[str] = ()) -> Any:
    """The value of a node. Each tensor may be used once, so that a tree needs no more memory than the file.

    copy: False leaves tensors in the file, also those below the keys `views` of this node.
    """
    if depth == 0:
        raise _BadNode(f"more than {MAX_DEPTH} levels deep")
    if isinstance(node, list):
        return [_decode(n, file, unread, depth - 1, copy) for n in node]
    if not isinstance(node, dict):
        return node
    match node:
        case {"dict": list(pairs)} if len(node) == 1:
            out = {}
            for pair in pairs:
                match pair:
                    case [str() | int() as key, value] if not isinstance(key, bool):
                        out[key] = _decode(value, file, unread, depth - 1, copy and key not in views)
                    case _:
                        raise _BadNode("an entry of a dict is not a pair of key and value")
            return out
        case {"tuple": list(nodes)} if len(node) == 1:
            return tuple(_decode(n, file, unread, depth - 1, copy) for n in nodes)
        case {"float": str(bits)} if re.fullmatch(r"[0-9a-f]{16}", bits):
            return struct.unpack(">d", bytes.fromhex(bits))[0]
        case {"tensor": int(number)} if str(number) in unread:
            unread.remove(str(number))
            # A copy in its own memory: the file mapping has another alignment, which can change sums.
            tensor = file.get_tensor(str(number))
            return _decode_tensor(tensor.clone() if copy else tensor, node)
    raise _BadNode(f"unknown node {json.dumps(node)[:80]}")


def _decode_tensor(tensor: Tensor, node: dict) -> Tensor:
    """Restore dtype and shape of a tensor that was stored as bytes."""
    if len(node) == 1:
        return tensor
    match node:
        case {"dtype": str(name), "shape": list(shape)} if name in _AS_BYTES and all(type(n) is int for n in shape):
            dtype = _AS_BYTES[name]
            if tensor.dtype == torch.uint8 and tensor.ndim == 1 and min(shape, default=0) >= 0 \
                    and math.prod(shape) * dtype.itemsize == len(tensor):
                return tensor.view(dtype).reshape(shape)
    raise _BadNode(f"dtype or shape of a tensor do not fit its bytes: {json.dumps(node)[:80]}")
