"""Twin of embtrain/kernels/source/sampling/reinforce.cpp, to float32 tolerance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from embtrain.kernels.reference.sampling.generator import LEAST, MOST

if TYPE_CHECKING:
    from embtrain.kernels.sampling.generator import Tables
    from embtrain.kernels.sampling.reinforce import Columns, Into, Rule


def factors(rule: Rule, word: np.ndarray, columns: Columns) -> tuple[np.ndarray, list[float]]:
    ids, origin, log_g, cost, wrong = columns
    mine, noise = (origin == 1).astype(np.float64), origin == 0
    reward: np.ndarray = (cost - np.float32(rule.centre)) * np.float32(1 / rule.scale)
    if wrong is not None:
        reward = wrong * reward - (1 - wrong) * np.float32(rule.penalty)
    b: np.ndarray = np.full((1, 1), rule.baseline, np.float32)
    if rule.critic == "last":
        b = reward[:, -1:]
    elif rule.critic == "others":
        n = mine.sum()
        b = ((reward * mine).sum() - reward * mine) / np.maximum(n - mine, 1) if n > 1 else np.zeros_like(reward)
    advantage = (reward - b).astype(np.float32)
    ratio = np.minimum(np.exp(np.clip(log_g, LEAST, MOST)) / word["p"][ids], np.float32(rule.clip))
    rho = np.where(noise & rule.importance, ratio, mine).astype(np.float32)
    told = (mine.sum(), (rho > 0).sum(), noise.sum(), (noise & (rho >= np.float32(rule.clip))).sum(),
            0 if wrong is None else ((1 - wrong) * mine).sum(), (cost * mine).sum(),
            (np.square(cost, dtype=np.float64) * mine).sum(), (advantage * mine).sum(),
            (np.square(advantage, dtype=np.float64) * mine).sum())
    return rho * advantage, list(map(float, told))


def collect(t: Tables, ids: np.ndarray, row: np.ndarray, a: np.ndarray, into: Into) -> None:
    klass, rows = t.word["klass"][ids].reshape(-1), np.repeat(row, ids.shape[1])
    flat = a.reshape(-1, 1)
    np.add.at(into.w, klass, -flat * t.z[rows])
    np.add.at(into.z, rows, -flat * t.w[klass])
    np.add.at(into.total, rows, flat[:, 0])
    np.add.at(into.draws, row, np.float32(1))
