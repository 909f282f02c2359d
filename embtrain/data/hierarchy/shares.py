"""Training pairs of a share that a published split has no file of.

The files of Ganea et al. (2018) follow one rule. Training is the direct pairs and some of the implied pairs that are
neither in validation nor in test, drawn without replacement with equal probability. Their number is N % of all implied
pairs, held-out ones among them, rounded down. A tenth is held out, so 90 % is the largest share. WordNet's nouns are
published without the share of 50 % that [yu2024] reports.
"""

from __future__ import annotations

import logging

import numpy as np

from embtrain.common.errors import UsageError
from embtrain.data.hierarchy.closure import PairSet

_log = logging.getLogger("embtrain")


def draw_training_pairs(
    direct: np.ndarray, closed: np.ndarray, held: np.ndarray, n: int, percent: int, seed: int, where: str
) -> np.ndarray:
    """Return the direct pairs, then the drawn implied ones in the order of the closure, (m, 2) int64.

    direct: direct pairs (d, 2). closed: their closure (c, 2). held: pairs of validation and test (h, 2). n: number of
    concepts. Draws depend on `seed` and `percent`, so shares are not nested, as in the published files. UsageError if
    the pairs that are not held out are too few.
    """
    implied = closed[~PairSet(direct, n).contains(closed)]
    free = implied[~PairSet(held, n).contains(implied)]
    n_drawn = len(implied) * percent // 100
    if n_drawn > len(free):
        most = 100 * len(free) // len(implied)
        raise UsageError(f"pairs.percent: {percent}: {where} has only {most} % of its implied pairs outside of "
                         f"validation and test; set at most {most}")
    _log.warning("pairs.percent: %d: %s has no file of this share; its pairs are drawn as those of published files "
                 "are, with seed %d (pairs.split_seed)", percent, where, seed)
    rng = np.random.default_rng(np.random.SeedSequence([seed, percent]))
    drawn = np.sort(rng.permutation(len(free))[:n_drawn])
    return np.concatenate([direct, free[drawn]])
