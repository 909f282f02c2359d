"""Hashes of short seeded runs: parameters per model and engine, drawn ids and log q per source.

    PYTHONPATH=tests python -m helpers.seeded_bits

records the hashes of this machine in tests/helpers/seeded_bits.json.

Floating-point bits depend on the processor, the compiler and the version of torch, so that hashes are recorded per
machine; on a machine without any, tests/unit/test_seeded_bits.py skips. Record again only for a change that is meant
to change what a seeded run computes, and say so in CHANGELOG.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch

from embtrain.kernels.core import loader
from helpers import source_worlds, tiny_runs

FILE = Path(__file__).with_suffix(".json")


def machine() -> str:
    """Processor, level of the compiled core, and versions on which the bits of a run depend."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    processor = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "")
    level = loader.level().removeprefix("x86-64-")     # in use, also with EMBTRAIN_CORE_LEVEL
    return (f"{platform.system()} {platform.machine()}, {processor}, core {level}, "
            f"torch {torch.__version__}, numpy {np.__version__}")


def digest(tensors: Iterable[torch.Tensor]) -> str:
    """The first 16 hexadecimal digits of a SHA-256 over the bytes of the tensors, in order."""
    sha = hashlib.sha256()
    for tensor in tensors:
        sha.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return sha.hexdigest()[:16]


def run_name(name: str, engine: str) -> str:
    """Return the key of a run in the file of hashes, in which the engine autograd has its former name, step."""
    return f"run {name} {'step' if engine == 'autograd' else engine}"


def of_run(place: Path, name: str, engine: str) -> str:
    """Hash of the parameters after three epochs. `place`: where `tiny_runs.write` put the data."""
    components = tiny_runs.made(tiny_runs.config(place, name, engine))
    with tempfile.TemporaryDirectory() as folder:
        tiny_runs.learning(components, Path(folder)).run()
    return digest(parameter for _, parameter in sorted(components.model.named_parameters()))


def of_source(case: str) -> str:
    """Hash of ids, or vectors, and log q of one draw after 20 learning steps. `case`: a key of source_worlds.CASES."""
    source = source_worlds.source(case)
    source_worlds.trained(source, 20)
    query = source_worlds.query(60)
    drawn = source.draw(query, source.config.k, source_worlds.TableView())
    return digest(x for x in (drawn.ids, drawn.vectors, drawn.log_q) if x is not None)


def record() -> None:
    place = tiny_runs.write(Path(tempfile.mkdtemp()))
    torch.set_num_threads(1)
    hashes = {run_name(name, engine): of_run(place, name, engine) for name, engine in tiny_runs.EVERY}
    hashes |= {f"source {case}": of_source(case) for case in source_worlds.CASES}
    known = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    FILE.write_text(json.dumps(known | {machine(): hashes}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(record())
