"""Arguments of the kernels on trees of sums: the tree, its blocks, and requests."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np

from embtrain.kernels.arguments.cells import CellMembers
from embtrain.kernels.arguments.draws import A, DrawRequest
from embtrain.kernels.core.binding import address, check_array, fields

MAX_FAN = 64


class TreeTask(ctypes.Structure):
    """struct TreeTask of source/sampling/trees/tree_nodes.h."""

    _fields_ = (*fields("sums scale prior count phi least query_id position mass share wanted",
                        "levels fan leaf width candidates n_queries n"),
                ("seed", ctypes.c_uint64), ("first", ctypes.c_int64))


class SumLevels:
    """Levels of sums, top level first: S (places, W) float32; the sums of `fan` places make one above. Validated once.

    With scales s (places,) float32 the sums are b (places, W) uint8. All arrays are read in place, so later writes by
    their owner take effect.
    """

    def __init__(self, sums: Sequence[np.ndarray], fan: int, scale: Sequence[np.ndarray] | None = None):
        if not sums or fan < 1:
            raise ValueError(f"tree: {len(sums)} levels with {fan} children a node")
        if scale is not None and len(scale) != len(sums):
            raise ValueError(f"tree: scales of {len(scale)} levels of {len(sums)}")
        self.sums, self.fan, self.scale = list(sums), fan, None if scale is None else list(scale)
        self.width, parents = sums[0].shape[1], 0
        for level, s in enumerate(sums):
            places = len(s)
            if level and (places % fan or places // fan > parents):
                raise ValueError(f"tree: a level of {places} places below {parents}, {fan} to each")
            check_array("tree: sums", s, np.float32 if scale is None else np.uint8, (places, self.width))
            if scale is not None:
                check_array("tree: scale", scale[level], np.float32, (places,))
            parents = places
        self.pointers = [None if arrays is None else (ctypes.c_void_p * len(arrays))(*map(address, arrays))
                         for arrays in (sums, scale)]
        self.task = TreeTask(*(None if p is None else ctypes.addressof(p) for p in self.pointers))  # without requests
        self.task.levels, self.task.fan, self.task.width = len(sums), fan, self.width


class TreeLevels(SumLevels):
    """The arrays of a tree: its sums, P float64 and |N| int64 (places,), top level first."""

    def __init__(self, sums: Sequence[np.ndarray], prior: Sequence[np.ndarray], count: Sequence[np.ndarray], fan: int,
                 leaf: int, scale: Sequence[np.ndarray] | None = None):
        if not (0 < len(sums) == len(prior) == len(count) and 2 <= fan <= MAX_FAN and leaf >= 1):
            raise ValueError(f"tree: {len(sums)} levels with {fan} children a node and {leaf} candidates a block")
        if len(sums[0]) != fan:
            raise ValueError(f"tree: a level of {len(sums[0])} places below 1, {fan} to each")
        super().__init__(sums, fan, scale)
        self.prior, self.count, self.leaf = list(prior), list(count), leaf
        for s, p, n in zip(sums, prior, count, strict=True):
            check_array("tree: prior", p, np.float64, (len(s),))
            check_array("tree: count", n, np.int64, (len(s),))
        self.candidates = int(count[-1].sum())
        more = [(ctypes.c_void_p * len(arrays))(*map(address, arrays)) for arrays in (prior, count)]
        self.pointers += more
        self.task.prior, self.task.count = map(ctypes.addressof, more)
        self.task.leaf, self.task.candidates = leaf, self.candidates


class WalkRequest(NamedTuple):
    """N requests for Q queries. With a target to exclude: its place, w and p."""

    phi: np.ndarray                     # (Q, W) float32   φ(h)
    floor: np.ndarray                   # (Q,) float64     ε(h), least mass of a node per unit of its prior
    query_id: np.ndarray                # (N,) int64
    position: np.ndarray | None = None  # (N,) int64
    target_mass: np.ndarray | None = None   # (N,) float64  w = π_t φ(h)·φ(c_t)
    target_prior: np.ndarray | None = None  # (N,) float64  p = π_t

    def check(self, width: int) -> None:
        q, r = len(self.floor), len(self.query_id)
        check_array("tree: phi", self.phi, np.float32, (q, width))
        check_array("tree: floor", self.floor, np.float64, (q,))
        check_array("tree: query_id", self.query_id, np.int64, (r,))
        if self.position is not None and self.target_mass is not None and self.target_prior is not None:
            check_array("tree: position", self.position, np.int64, (r,))
            check_array("tree: target_mass", self.target_mass, np.float64, (r,))
            check_array("tree: target_prior", self.target_prior, np.float64, (r,))
        elif not (self.position is None and self.target_mass is None and self.target_prior is None):
            raise ValueError("tree: a target needs a position, a target_mass and a target_prior")


class TreeDrawTask(ctypes.Structure):
    """struct TreeDrawTask of source/sampling/trees/tree_draw.cpp."""

    _fields_ = (*fields("w order place_of prior h phi least mass draw_query row_query target touched",
                        "frequencies dim n_queries draws k rows exclude"),
                ("seed", ctypes.c_uint64), ("seed_inside", ctypes.c_uint64),
                *fields("", "first", "tau stretch floor largest"))


@dataclass(frozen=True, eq=False)
class TreeBlocks:
    """The state that persists between draws. All arrays are read in place, so later writes by their owner take effect.
    """

    levels: TreeLevels
    members: CellMembers | None  # members of the blocks; None: a block is one candidate
    order: np.ndarray              # (V,) int64    the candidate of each place (not checked)
    place_of: np.ndarray           # (V,) int64    the place of each candidate (not checked)
    prior: np.ndarray              # (V,) float64  π by place
    w: np.ndarray | None = None    # (D, d) float32  frequencies of Fourier features; None: the request has φ and ε
    compiled: ctypes.CDLL | None = None  # the core; None: looked up at each call

    @cached_property
    def dim(self) -> int:
        """Dimension of queries; 0: any."""
        return self.w.shape[1] if self.w is not None else self.members.table.shape[1] if self.members is not None else 0

    @cached_property
    def task(self) -> TreeDrawTask:
        """The C++ struct without a request, validated once."""
        v = self.levels.candidates
        if (self.members is None) != (self.levels.leaf == 1):
            members = "with" if self.members is not None else "without"
            raise ValueError(f"tree_draw: blocks of {self.levels.leaf} candidates {members} members")
        if self.members is not None and len(self.members.order) != v:
            raise ValueError(f"tree_draw: {len(self.members.order)} members of {v} candidates")
        for name, x, dtype in (("order", self.order, np.int64), ("place_of", self.place_of, np.int64),
                               ("prior", self.prior, np.float64)):
            check_array(f"tree_draw: {name}", x, dtype, (v,))
        task = TreeDrawTask(None, *map(address, (self.order, self.place_of, self.prior)))
        if self.w is not None:
            check_array("tree_draw: w", self.w, np.float32, (self.levels.width // 2, self.w.shape[-1]))
            task.w, (task.frequencies, task.dim) = address(self.w), self.w.shape
        return task


@dataclass(eq=False)
class TreeDrawRequest(DrawRequest[A]):
    stretch: float = 1.0               # s / τ: x = s h
    floor: float = 0.1
    largest: float = 0.0               # L
    phi: A | None = None               # (Q, W) float32
    least: A | None = None             # (Q,) float64
    mass: A | None = None              # (G,) float64  w, if φ is given and blocks have several candidates

    def subset(self, begin: int, end: int) -> Self:
        blocks: Any = super().subset(begin, end)
        return blocks if blocks.mass is None else replace(blocks, mass=blocks.mass[begin:end])
