"""Subsampling of token ids, permutations and skip-gram windows, in NumPy.

  subsample    keep occurrence i of word w if the upper 31 bits of u(seed, i) are below limit[w]; u: splitmix64
  permutation  a bijection of 0..n-1: six rounds of a Feistel network over Z_a × Z_b, ab ≥ n (Black and Rogaway 2002)
  pairs        the window at position p reaches b = 1 + ⌊W u(seed, p)⌋ words to each side, inside its sequence

kernels/text/windows.py runs this file if the compiled core is missing; the integers are equal, bit for bit.
"""

from __future__ import annotations

import numpy as np

from embtrain.kernels.reference import splitmix64

ROUNDS = 6
_M1, _M2 = np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35)
_HALF = np.uint64(32)


def subsample(ids: np.ndarray, sequence: np.ndarray, limit: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    begin, end = int(sequence[0]), int(sequence[-1])
    i = np.arange(begin, end, dtype=np.uint64)
    kept = (splitmix64(seed, i) >> np.uint64(33)) < limit[ids[begin:end]]            # (N,)
    upto = np.concatenate([[0], np.cumsum(kept)]).astype(np.int64)
    return ids[begin:end][kept], upto[sequence - begin]


def expected_targets(ids: np.ndarray, sequence: np.ndarray, keep: np.ndarray, inside: np.ndarray) -> np.ndarray:
    begin, end = int(sequence[0]), int(sequence[-1])
    x, p = np.arange(len(inside)), keep[ids[begin:end]]                              # (W+1,)  (N,)
    upto = np.concatenate([[0.0], np.cumsum(p)])
    sequence_id = np.repeat(np.arange(len(sequence) - 1), np.diff(sequence))  # (N,)  the sequence of each
    before = upto[:-1] - upto[sequence[sequence_id] - begin]
    after = upto[sequence[sequence_id + 1] - begin] - upto[1:]
    pairs = p * (np.interp(before, x, inside) + np.interp(after, x, inside))
    return np.bincount(ids[begin:end], weights=pairs, minlength=len(keep))


def permutation(n: int, begin: int, end: int, seed: int) -> np.ndarray:
    a = _root(n)
    b = -(-n // a)
    key = (splitmix64(seed, np.arange(ROUNDS, dtype=np.uint64)) >> _HALF).astype(np.uint32)
    x = np.arange(begin, end, dtype=np.int64)
    todo = np.arange(len(x))
    while len(todo):
        x[todo] = _feistel(x[todo], a, b, key)
        todo = todo[x[todo] >= n]
    return x


def _root(n: int) -> int:
    """⌈√n⌉, at least 1."""
    a = max(int(n ** 0.5) - 1, 1)
    while a * a < n:
        a += 1
    return a


def _feistel(x: np.ndarray, a: int, b: int, key: np.ndarray) -> np.ndarray:
    left, right = x // b, x % b                                                      # x = left · b + right
    for r in range(ROUNDS):
        if r % 2 == 0:
            left = (left + _below(right, key[r], a)) % a
        else:
            right = (right + _below(left, key[r], b)) % b
    return left * b + right


def _below(x: np.ndarray, key: np.uint32, n: int) -> np.ndarray:
    h = x.astype(np.uint32) + key
    h = (h ^ (h >> np.uint32(16))) * _M1
    h = (h ^ (h >> np.uint32(13))) * _M2
    h ^= h >> np.uint32(16)
    return ((h.astype(np.uint64) * np.uint64(n)) >> _HALF).astype(np.int64)


def reach(positions: np.ndarray, window: int, seed: int) -> np.ndarray:
    u = splitmix64(seed, positions.astype(np.uint64)) >> _HALF
    return 1 + ((u * np.uint64(window)) >> _HALF).astype(np.int64)


def pairs(ids: np.ndarray, first: np.ndarray, positions: np.ndarray, window: int, seed: int | None
          ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    begins = np.unpackbits(first.view(np.uint8), bitorder="little", count=len(ids) + 1)
    b = np.full(len(positions), window) if seed is None else reach(positions, window, seed)
    o = np.arange(1, window + 1)                                                     # (W,)
    p = positions[:, None]                                                           # (C, 1)
    # A word o places away is out of reach if a sequence boundary is between it and the centre.
    near = o <= b[:, None]
    left = near & (np.maximum.accumulate(begins[np.maximum(p - o + 1, 0)], axis=1) == 0)
    right = near & (np.maximum.accumulate(begins[np.minimum(p + o, len(ids))], axis=1) == 0)
    offsets = np.concatenate([-o[::-1], o])                                          # (2W,)
    inside = np.concatenate([left[:, ::-1], right], axis=1)                          # (C, 2W)
    size = inside.sum(axis=1)
    target = ids[(p + offsets)[inside]].astype(np.int64)
    start = np.concatenate([[0], np.cumsum(size[size > 0])]).astype(np.int64)
    return ids[positions[size > 0]].astype(np.int64), start, target
