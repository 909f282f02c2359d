"""Coverage-guided fuzzing of the text reader: `python fuzz_reader.py SECONDS`.

The core is not instrumented, but its reference implementation in Python is: bytes that reach new branches of the
reference are passed to both, and they must agree (tests/helpers/reference_reader.py).
"""

from __future__ import annotations

import os
import sys

import atheris

with atheris.instrument_imports(include=["embtrain.kernels.reference", "embtrain.data"]):
    from helpers.reference_reader import agree

from embtrain.kernels.core.loader import core

assert core() is not None, "the compiled core, which is compared with its reference, is missing"

if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    atheris.Setup([sys.argv[0], f"-max_total_time={sys.argv[1]}", "-max_len=400", "-seed=8", *sys.argv[2:]], agree)
    atheris.Fuzz()
