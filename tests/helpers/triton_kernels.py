"""Triton kernels in tests: on a CUDA device if there is one, else in Triton's interpreter on the CPU.

Import this module before triton: the interpreter is chosen when a kernel is defined, and triton defines some itself.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from torch import Tensor

os.environ["TRITON_INTERPRET"] = "0" if torch.cuda.is_available() else "1"
pytest.importorskip("triton", reason="peers: triton is not installed; pip install 'embtrain[gpu]'")

from embtrain.kernels.device import alias as alias, skipgram as device
from helpers.skipgram_cases import Case

INTERPRET = "TRITON_INTERPRET"  # the environment variable
IS_INTERPRETED = not torch.cuda.is_available()
DEVICE = "cpu" if IS_INTERPRETED else "cuda"


def tensor(x: np.ndarray | None) -> Tensor | None:
    """A copy on the device; None stays None."""
    return None if x is None else torch.from_numpy(np.array(x)).to(DEVICE)


def negatives(case: Case) -> device.NegativeTensors:
    """The negatives of a case on the device, with false negatives as a mask."""
    n, is_masked = case.negatives, None
    if n.false_negatives is not None:
        mask = np.zeros((len(case.windows.target), n.ids.shape[1]), np.uint8)
        mask[n.false_negatives[0], n.false_negatives[1]] = 1
        is_masked = tensor(mask)
    ids = tensor(n.ids)
    assert ids is not None
    return device.NegativeTensors(ids, n.share, tensor(n.log_q), tensor(n.log_q_table), tensor(n.log_q_target),
                                  tensor(n.weight), n.total_weight, n.mask_target, is_masked)


def run(case: Case, keep_scores: bool = False, windows_at_once: int = device.WINDOWS_AT_ONCE
        ) -> tuple[device.TableTensors, device.TableTensors, device.DeviceResult]:
    """Update the tables of a case; rows are `case.pad` floats apart."""
    tables = []
    for x, acc in ((case.u_x, case.u_acc), (case.v_x, case.v_acc)):
        room = torch.full((len(x), x.shape[1] + case.pad), 7.0, device=DEVICE)
        room[:, :x.shape[1]] = tensor(x)
        tables.append(device.TableTensors(room[:, :x.shape[1]], tensor(acc)))
    windows = device.WindowTensors(*map(tensor, case.windows))  # type: ignore[arg-type]
    result = device.update(*tables, windows, negatives(case), case.rule, case.lr, tensor(case.rule.c), keep_scores,
                           windows_at_once)
    return tables[0], tables[1], result
