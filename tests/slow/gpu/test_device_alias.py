"""The Triton kernel of alias draws: the ids of the compiled core, bit for bit, and the frequencies of q."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.triton_kernels import DEVICE, alias, tensor
from scipy import stats

from embtrain.kernels.reference.sampling import alias as reference
from embtrain.negatives.sampling.alias import acceptance_bits, build_alias_table

pytestmark = pytest.mark.slow


def drawn(q: np.ndarray, n: int, seed: int) -> np.ndarray:
    accept, other = build_alias_table(q)
    words = tensor(acceptance_bits(accept).view(np.int64))
    ids = alias.draw(words, tensor(other), n, tensor(np.array([seed], np.uint64).view(np.int64)))
    assert ids.dtype == torch.int64 and ids.device.type == DEVICE
    return ids.cpu().numpy()


@pytest.mark.parametrize("seed", [0, 1, 2**63 - 1, 2**63, 2**64 - 1])
@pytest.mark.parametrize("v", [1, 2, 3, 1000, 70_001])
def test_ids_are_those_of_the_compiled_core(v: int, seed: int) -> None:
    q = np.random.default_rng(v).dirichlet(np.full(v, 0.5))
    accept, other = build_alias_table(q)
    for n in (1, 1023, 1024, 2500):
        np.testing.assert_array_equal(drawn(q, n, seed), reference.draw(acceptance_bits(accept), other, n, seed))


def test_frequencies_match_q() -> None:
    q = np.array([0.4, 0.0, 0.3, 0.05, 0.0, 0.25])
    n = 200_000
    observed = np.bincount(drawn(q, n, 7), minlength=len(q))
    assert not observed[q == 0].any()
    assert stats.chisquare(observed[q > 0], n * q[q > 0]).pvalue > 1e-3


def test_the_seed_determines_the_draw() -> None:
    q = np.full(100, 0.01)
    first, second = drawn(q, 5000, 3), drawn(q, 5000, 4)
    assert (first == drawn(q, 5000, 3)).all() and (first != second).mean() > 0.9
    assert len(drawn(q, 0, 3)) == 0 and (drawn(q, 5000, 3)[:70] == drawn(q, 70, 3)).all()


def test_mismatched_arguments_are_rejected() -> None:
    accept, other, seed = (torch.zeros(n, dtype=torch.int64, device=DEVICE) for n in (4, 4, 1))
    for bad in ((accept[:3], other, 1, seed), (accept.double(), other, 1, seed), (accept, other.int(), 1, seed),
                (accept, other, -1, seed), (accept, other, 1, seed.expand(2)), (accept, other, 1, seed.double()),
                (accept[:0], other[:0], 1, seed)):
        with pytest.raises(ValueError, match=r"^alias: "):
            alias.draw(*bad)
