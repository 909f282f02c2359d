"""What the doors of draws share: who asks, where draws go, and threads.

Arrays may be somebody else's tensors, told as `Flat`: only what is parted among threads is made arrays of.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from ctypes import c_void_p
from dataclasses import dataclass, replace
from typing import Any, Generic, Self, TypeVar

import numpy as np

from embtrain.kernels.core.library import Flat, address, as_array, checked, in_parts, within

A = TypeVar("A", bound=np.ndarray | Flat)


@dataclass(eq=False)  # not frozen: one is made for each draw, and to freeze it would be seen
class Asks(Generic[A]):
    """G draws of Q questions, and the B targets that rows ask for."""

    h: A                         # (Q, d) float32
    question: A | None           # (G,) int64   of each draw; None: G = Q, each draw its own
    asked: A | None              # (B,) int64   the question of each row; None: B = Q
    target: A                    # (B,) int64
    tau: float = 0.0             # above 0: τ h / ‖h‖ is to be taken for h

    @property
    def draws(self) -> int:
        return len(self.h if self.question is None else self.question)

    def check(self, door: str, dim: int, k: int, exclude: bool, seeds: tuple[int, int], first: int) -> None:
        q, b = len(self.h), len(self.target)
        checked(f"{door}: h", self.h, np.float32, (q, dim))
        checked(f"{door}: target", self.target, np.int64, (b,))
        if self.question is not None:
            checked(f"{door}: question", self.question, np.int64, (len(self.question),))
        if self.asked is not None:
            checked(f"{door}: asked", self.asked, np.int64, (b,))
        elif b != q:
            raise ValueError(f"{door}: {q} questions of {b} rows")
        if exclude and self.draws != b:
            raise ValueError(f"{door}: {self.draws} draws without {b} targets")
        if k < 1 or not 0 <= min(seeds) <= max(seeds) < 2 ** 64 or first < 0:
            raise ValueError(f"{door}: {k} draws from seeds {seeds}, the first of number {first}")

    def fill(self, task: Any, k: int, exclude: bool, seeds: tuple[int, int], first: int) -> None:
        """The fields of the core's struct that every door of draws has."""
        task.h, task.question, task.asked, task.target = map(address, (self.h, self.question, self.asked, self.target))
        task.questions, task.draws, task.k, task.rows = len(self.h), self.draws, k, len(self.target)
        task.exclude, task.first, task.tau = exclude, first, self.tau
        task.seed, task.seed_inside = seeds

    def within(self, door: str, candidates: int) -> None:
        """Numbers of a twin's arrays; the core looks by itself."""
        for x, below in ((self.question, len(self.h)), (self.asked, len(self.h)), (self.target, candidates)):
            within(door, as_array(x), 0, below)

    def named(self) -> Self:
        """The same in arrays, with questions by number."""
        of: Any = type(self)(*map(as_array, vars(self).values()))
        everyone = np.arange(len(self.h))
        named: Self = replace(of, question=everyone if of.question is None else of.question,
                              asked=everyone if of.asked is None else of.asked)
        return named

    def part(self, begin: int, end: int) -> Self:
        """Some of the draws, each with its target where it has one of its own; of shared draws the first has all."""
        of: Any = self.named()
        rows = slice(begin, end) if self.draws == len(self.target) else slice(0, 0 if begin else None)
        part: Self = replace(of, question=of.question[begin:end], asked=of.asked[rows], target=of.target[rows])
        return part


class Outs:
    """Where draws go: ids (G, k) int64, log q of them (G, k) and of the targets (B,) float32. Checked once."""

    def __init__(self, ids: np.ndarray | Flat, log_q: np.ndarray | Flat, log_target: np.ndarray | Flat):
        shape = *ids.shape, *log_target.shape
        _check(ids, log_q, log_target, shape[:2], shape[2:])
        self._lie(ids, log_q, log_target)

    def _lie(self, ids: np.ndarray | Flat, log_q: np.ndarray | Flat, log_target: np.ndarray | Flat) -> None:
        self.held = ids, log_q, log_target
        self.shape = *ids.shape, *log_target.shape
        self.at = c_void_p(address(ids)), c_void_p(address(log_q)), c_void_p(address(log_target))

    @classmethod
    def stack(cls, ids: Flat, log_q: Flat, log_target: Flat) -> list[Outs]:
        """Of P times as much, (P, G, k) int64, (P, G, k) and (P, B) float32, each part."""
        many, n, k = ids.shape
        _check(ids, log_q, log_target, (many, n, k), (many, *log_target.shape[1:]))
        outs = []
        for parts in zip(*map(_parted, (ids, log_q, log_target)), strict=True):
            outs.append(of := cls.__new__(cls))
            of._lie(*parts)
        return outs

    @classmethod
    def empty(cls, n: int, k: int, rows: int) -> Outs:
        return cls(np.empty((n, k), np.int64), np.empty((n, k), np.float32), np.empty(rows, np.float32))

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        ids, log_q, log_target = map(as_array, self.held)
        return ids, log_q, log_target

    def take(self, door: str, asks: Asks[Any], rows: int, part: Callable[[Any, int, Outs], None], threads: int) -> None:
        """part(some of the asks, the number of the first of their draws, where they go), in so many threads."""
        n, _, room = self.shape
        if (n, room) != (asks.draws, rows):
            raise ValueError(f"{door}: room for {n} draws and {room} targets, and {asks.draws} draws of "
                             f"{len(asks.target)} targets to make")
        if threads <= 1:
            part(asks, 0, self)
            return
        ids, log_q, log_target = self.arrays()

        def some(begin: int, end: int) -> None:
            own = log_target[begin:end] if n == room else log_target
            part(asks.part(begin, end), begin, Outs(ids[begin:end], log_q[begin:end], own))

        in_parts(some, n, threads)


def _check(ids: np.ndarray | Flat, log_q: np.ndarray | Flat, log_target: np.ndarray | Flat, drawn: tuple[int, ...],
           asked: tuple[int, ...]) -> None:
    checked("draws: ids", ids, np.int64, drawn)
    checked("draws: log_q", log_q, np.float32, drawn)
    checked("draws: log_target", log_target, np.float32, asked)


def _parted(of: Flat) -> list[Flat]:
    """By its first axis."""
    nbytes = np.dtype(of.dtype).itemsize * math.prod(of.shape[1:])
    return [Flat(of.at + i * nbytes, of.dtype, of.shape[1:], of.owner) for i in range(len(of))]
