"""The Triton kernels compile to machine code of NVIDIA GPUs, which needs no GPU. The interpreter accepts more.

The compiler runs in a process of its own, because the interpreter is chosen when a kernel is defined.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from helpers.triton_kernels import INTERPRET

pytestmark = pytest.mark.slow

COMPILE = '''
import json, re, sys
from triton import compile
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from embtrain.kernels.device import alias, distances, private_draws, shared_draws
from embtrain.kernels.device.pairs import units as pair_units
from embtrain.kernels.device.triples import units

FLOATS = ("u v u_acc v_acc log_q log_q_table log_q_target weight c loss c_slope target_slope slope centre_gradient "
          "scores e r e_acc r_acc row_weight scores_out negative_gradient row_gradient x acc gradient y g").split()
IDS = "centre start target ids accept alias seed out entity relation slot concept".split()
NUMBERS = "lr eps margin temperature positive_weight log_total".split()
TYPES = dict.fromkeys(FLOATS, "*fp32") | dict.fromkeys(IDS, "*i64") | dict.fromkeys(NUMBERS, "fp32")
KERNELS = {"private": private_draws.update_windows, "shared": shared_draws.update_units, "alias": alias._draw,
           "triples": units.update_units, "pairs": pair_units.update_rows, "distances": distances._scores,
           "slopes": distances._gradient}

for name, capability, constants, warps in json.load(sys.stdin):
    kernel, signature, values = KERNELS[name], {}, {}
    for place, argument in enumerate(kernel.arg_names):
        if argument in constants:
            signature[argument], values[place,] = "constexpr", constants[argument]
        else:
            signature[argument] = "*u8" if argument == "is_masked" else TYPES.get(argument, "i32")
            if argument == "out" and name != "alias":
                signature[argument] = "*fp32"
    source = ASTSource(kernel, signature, values)
    compiled = compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": warps})
    print(json.dumps([len(compiled.asm["cubin"]), len(re.findall(r"\\b(?:atom|red)\\.global", compiled.asm["ptx"])),
                      compiled.asm["ptx"].count("bar.sync")]))
'''
SHAPE = {"K": 5, "DIM": 100, "BLOCK_K": 8, "BLOCK_D": 128, "C_PER_CENTRE": True, "WEIGHT_PER_DRAW": True}
OPTIONAL = ["u_acc", "v_acc", "log_q", "log_q_target", "weight", "is_masked", "c", "c_slope", "scores"]
#: Of triples: 100 dimensions, the queries of a unit in two tiles.
TRIPLES = {"K": 5, "DIM": 100, "BLOCK_K": 8, "BLOCK_D": 128, "BLOCK_R": 8, "BLOCK_G": 16, "WEIGHT_PER_DRAW": True,
           "MASKS_TARGET": True}
PAIRS = {"K": 5, "DIM": 100, "BLOCK_K": 8, "BLOCK_D": 128, "WEIGHT_PER_DRAW": True, "MASKS_TARGET": True, "SHARE": 3}
OPTIONAL_OF_PAIRS = ["acc", "weight", "is_masked", "scores"]
OPTIONAL_OF_TRIPLES = ["e_acc", "r_acc", "row_weight", "log_q", "log_q_target", "weight", "is_masked", "c", "c_slope",
                       "scores_out"]


def cases() -> list[tuple[str, int, dict[str, object], int]]:
    """Kernel, compute capability, constant arguments and warps; all optional arguments present, then all absent."""
    result = list[tuple[str, int, dict[str, object], int]]()
    losses = {"logistic": False, "nce": True, "sampled_softmax": True, "margin": False, "gbce": False}
    for (loss, corrects), is_full in product(losses.items(), (True, False)):
        shape = {**SHAPE, "LOSS": loss, "CORRECTS": corrects, "CORRECTS_TARGET": loss == "nce", "MASKS_TARGET": True,
                 **({} if is_full else dict.fromkeys(OPTIONAL))}
        result.append(("private", 90, {**shape, "BLOCK_M": 4}, 4))
        for share in (1, 16):
            more = {} if share > 1 else {"centre_gradient": None}
            result.append(("shared", 90, {**shape, "SHARE": share, "BLOCK_M": 8, **more}, 4))
    for number, (loss, corrects) in enumerate({**losses, "self_adversarial": False}.items()):
        share, score = (1, 64)[number % 2], ("l1", "l2", "dot")[number // 2]
        result.append(("triples", 90, {
            **TRIPLES, **(dict.fromkeys(OPTIONAL_OF_TRIPLES) if number in (1, 4) else {}), "SHARE": share,
            "SCORE": score, "LOSS": loss, "CONSTRAINT": "sphere" if share > 1 else "free", "CORRECTS": corrects,
            "CORRECTS_TARGET": loss == "nce", "BLOCK_M": min(share, 32)}, 1 if share == 1 else 4))
    for loss, reads_abs in product(("order", "margin"), (True, False)):
        optional = dict.fromkeys(OPTIONAL_OF_PAIRS) if loss == "order" and reads_abs else {}
        result.append(("pairs", 90, {**PAIRS, **optional, "LOSS": loss, "READS_ABS": reads_abs}, 1))
    oldest = [(name, 80, values, warps) for name, _, values, warps in (*result[:3], *result[-6:-3])]
    result += [(name, 90, {"IS_COMPLEX": is_complex, "BLOCK": 32}, 4)
               for name in ("distances", "slopes") for is_complex in (True, False)]
    return [*result, *oldest, ("alias", 80, {"BLOCK": 1024}, 4), ("alias", 90, {"BLOCK": 1024}, 4)]


def test_every_kernel_compiles(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != INTERPRET}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    done = subprocess.run([sys.executable, "-c", COMPILE], input=json.dumps(cases()), text=True, capture_output=True,
                          env=environment, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == len(cases())
    for (name, *_), (size, atomics, barriers) in zip(cases(), results, strict=True):
        assert size > 1000
        if name in ("private", "shared"):
            assert atomics > 0 and barriers > 0
