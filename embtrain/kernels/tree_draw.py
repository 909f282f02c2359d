"""Draws of candidates through a tree of sums, from queries to ids and log q in one call.

    q(i|h) = q(block|h) r(i|block, h),     q(block) as kernels/tree.py has it, r ∝ e^o as kernels/cells.py has it
    φ(h), ε(h) as given, or of x = s h:    φ(x) = D^{-1/2} [cos w_j·x …, sin w_j·x …],   ε = floor e^{-(‖x‖² + L)/2}

The target's w is π_t φ(h)·φ(c_t), with φ(c) = e^{(‖y‖² - L)/2} times that of y = s c, of its vector as it is now; where
a block is a candidate it is what stands in the sums. Request i of all draws takes number i of the streams of the seeds.
"""

from __future__ import annotations

import ctypes
from ctypes import byref
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, NamedTuple

import numpy as np

from embtrain.kernels import cells, tree
from embtrain.kernels.cells import A, Outs
from embtrain.kernels.core import address, as_array, checked, core, in_parts, out_of_range, succeed
from embtrain.kernels.reference import tree_draw as twin

GRAIN = 4096     # requests that are worth a thread


class _Task(ctypes.Structure):
    """struct TreeDrawTask of source/tree_draw.cpp."""

    _fields_ = (*((name, ctypes.c_void_p) for name in ("w", "order", "place_of", "prior", "h", "phi", "least", "mass",
                                                       "question", "asked", "target", "touched")),
                *((name, ctypes.c_int64) for name in ("frequencies", "dim", "questions", "draws", "k", "rows",
                                                      "exclude")),
                ("seed", ctypes.c_uint64), ("seed_inside", ctypes.c_uint64), ("first", ctypes.c_int64),
                *((name, ctypes.c_double) for name in ("tau", "stretch", "floor", "largest")))


@dataclass(frozen=True, eq=False)
class Blocks:
    """What stands between draws. All is read where it lies, so that what its owner writes into it is seen."""

    levels: tree.Levels
    members: cells.Members | None  # who is in which block; None: a block is a candidate
    order: np.ndarray              # (V,) int64    the candidate of each place: its maker's word
    place_of: np.ndarray           # (V,) int64    the place of each candidate: its maker's word
    prior: np.ndarray              # (V,) float64  π by place
    w: np.ndarray | None = None    # (D, d) float32  of Fourier features; None: φ and ε come with the questions
    loaded: ctypes.CDLL | None = None  # the core; None: asked for at each call

    @cached_property
    def dim(self) -> int:
        """Of questions; 0: any."""
        return self.w.shape[1] if self.w is not None else self.members.table.shape[1] if self.members is not None else 0

    @cached_property
    def _task(self) -> _Task:
        """Checked once."""
        v = self.levels.candidates
        if (self.members is None) != (self.levels.leaf == 1):
            raise ValueError(f"tree_draw: blocks of {self.levels.leaf} with members {self.members is not None}")
        if self.members is not None and len(self.members.order) != v:
            raise ValueError(f"tree_draw: {len(self.members.order)} members of {v} candidates")
        for name, x, dtype in (("order", self.order, np.int64), ("place_of", self.place_of, np.int64),
                               ("prior", self.prior, np.float64)):
            checked(f"tree_draw: {name}", x, dtype, (v,))
        task = _Task(None, *(x.ctypes.data for x in (self.order, self.place_of, self.prior)))
        if self.w is not None:
            checked("tree_draw: w", self.w, np.float32, (self.levels.width // 2, self.w.shape[-1]))
            task.w, (task.frequencies, task.dim) = self.w.ctypes.data, self.w.shape
        return task


class Asks(NamedTuple, Generic[A]):
    """G draws of Q questions, and the B targets that rows ask for."""

    h: A                               # (Q, d) float32
    question: A | None                 # (G,) int64    of each draw; None: G = Q, each draw its own
    asked: A | None                    # (B,) int64    the question of each row; None: B = Q
    target: A                          # (B,) int64
    tau: float = 0.0                   # above 0: τ h / ‖h‖ is to be taken for h
    stretch: float = 1.0               # s / τ: x = s h
    floor: float = 0.1
    largest: float = 0.0               # L
    phi: A | None = None               # (Q, W) float32
    least: A | None = None             # (Q,) float64
    mass: A | None = None              # (G,) float64  w, where φ is given and a block has several

    @property
    def draws(self) -> int:
        return len(self.h if self.question is None else self.question)

    def check(self, of: Blocks, exclude: bool) -> None:
        q, b, n = len(self.h), len(self.target), self.draws
        checked("tree_draw: h", self.h, np.float32, (q, of.dim or self.h.shape[-1]))
        checked("tree_draw: target", self.target, np.int64, (b,))
        if self.question is not None:
            checked("tree_draw: question", self.question, np.int64, (n,))
        if self.asked is not None:
            checked("tree_draw: asked", self.asked, np.int64, (len(self.asked),))
        if (q if self.asked is None else len(self.asked)) != b or (exclude and n != b):
            raise ValueError(f"tree_draw: {n} draws and rows of {q} questions for {b} targets")
        if of.w is None:
            if self.phi is None or self.least is None or (exclude and of.members is not None and self.mass is None):
                raise ValueError("tree_draw: without frequencies, phi, least and the targets' mass are wanted")
            checked("tree_draw: phi", self.phi, np.float32, (q, of.levels.width))
            checked("tree_draw: least", self.least, np.float64, (q,))
            if self.mass is not None:
                checked("tree_draw: mass", self.mass, np.float64, (n,))

    def named(self) -> Asks[np.ndarray]:
        """The same in arrays, with questions by number."""
        everyone = np.arange(len(self.h))
        h, question, asked, target, *given = map(as_array, (*self[:4], *self[8:]))
        return Asks(h, everyone if question is None else question, everyone if asked is None else asked, target,
                    *self[4:8], *given)

    def part(self, begin: int, end: int) -> Asks[np.ndarray]:
        """Some of the draws, each with its target where it has one of its own; of shared draws the first has all."""
        of: Any = self.named()
        rows = slice(begin, end) if self.draws == len(self.target) else slice(0, 0 if begin else None)
        part: Asks[np.ndarray] = of._replace(question=of.question[begin:end], asked=of.asked[rows],
                                             target=of.target[rows],
                                             mass=None if of.mass is None else of.mass[begin:end])
        return part


def draw(of: Blocks, asks: Asks[np.ndarray], k: int, exclude: bool, seeds: tuple[int, int],
         touched: np.ndarray | None = None, first: int = 0, threads: int = 1
         ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """k candidates for each draw and log q of them, (G, k) int64 and float32; log q of the targets, (B,) float32.

    exclude: draw i is of the candidates other than target i, and targets have no log q: (0,). touched (blocks,) bool is
    set for blocks of candidates drawn and of targets. first: the number of the first draw.
    """
    _check(of, asks, k, exclude, seeds, touched, first)
    if core() is not None:
        outs = Outs.empty(asks.draws, k, 0 if exclude else len(asks.target))
        draw_into(outs, of, asks, exclude, seeds, touched, first, threads)
        ids, log_q, log_target = map(as_array, outs.held)
        return ids, log_q, log_target
    asks = asks.named()
    for x, below in ((asks.question, len(asks.h)), (asks.asked, len(asks.h)), (asks.target, of.levels.candidates)):
        if x is not None and x.size and not (x.min() >= 0 and x.max() < below):
            raise out_of_range("tree_draw")
    return twin.draw(of, asks, k, exclude, seeds, touched, first)


def draw_into(outs: Outs, of: Blocks, asks: Asks[Any], exclude: bool, seeds: tuple[int, int],
              touched: Any = None, first: int = 0, threads: int = 1) -> None:
    """The same, written there by the core."""
    n, k, rows = outs.shape
    _check(of, asks, k, exclude, seeds, touched, first)
    begun = of._task
    if (n, rows) != (asks.draws, 0 if exclude else len(asks.target)):
        raise ValueError(f"tree_draw: room for {n} draws and {rows} targets, and {asks.draws} draws of "
                         f"{len(asks.target)} targets to make")
    if (library := of.loaded or core()) is None:
        raise ValueError("tree_draw: there is no core that could draw")

    def part(some: Asks, begin: int, to: Outs) -> None:
        task = _Task.from_buffer_copy(begun)
        task.h, task.question, task.asked, task.target, task.phi, task.least, task.mass, task.touched = map(
            address, (some.h, some.question, some.asked, some.target, some.phi, some.least, some.mass, touched))
        task.dim, task.questions, task.draws, task.k = some.h.shape[1], len(some.h), some.draws, k
        task.rows, task.exclude, task.first = len(some.target), exclude, first + begin
        task.seed, task.seed_inside = seeds
        task.tau, task.stretch, task.floor, task.largest = some[4:8]
        succeed("tree_draw", library.embtrain_tree_draw(
            byref(of.levels.task), None if of.members is None else byref(of.members.task), byref(task),
            *to.at))

    parts = min(threads, n * k // GRAIN)
    if parts <= 1:
        part(asks, 0, outs)
        return
    in_parts(lambda begin, end: part(asks.part(begin, end), begin, outs.part(begin, end, n == rows)), n, parts)


def _check(of: Blocks, asks: Asks[A], k: int, exclude: bool, seeds: tuple[int, int], touched: A | None,
           first: int) -> None:
    assert of._task                                        # made and checked at the first draw
    asks.check(of, exclude)
    if k < 1 or not 0 <= min(seeds) <= max(seeds) < 2 ** 64 or first < 0:
        raise ValueError(f"tree_draw: {k} draws from seeds {seeds}, the first of number {first}")
    if touched is not None:
        checked("tree_draw: touched", touched, np.bool_, (-(-of.levels.candidates // of.levels.leaf),))
