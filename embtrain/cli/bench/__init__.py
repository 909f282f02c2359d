"""Benchmarks of speed: one module each, with `bench(rounds, threads, only, corpus) -> summary`.

    text/         reading, skip-gram, CBOW       start.py    imports and commands
    softmax/      samplers, k-means              walks.py    node2vec walks, against gensim
    ace.py        adversarial training           ranking.py  link prediction
    transe.py     an epoch of TransE             vmf.py      the von Mises-Fisher loss
    hierarchies/  order, Poincaré embeddings     nn.py       losses as PyTorch modules
    nmt.py        decoders of translation        harness/    parts that all of them use
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from embtrain.cli.bench import hierarchies, softmax, text
from embtrain.common.errors import ResourceError, UsageError, did_you_mean

Bench = Callable[[int, Sequence[int], Sequence[str] | None, str | None], dict[str, Any]]


def names() -> list[str]:
    return sorted(_modules())


def find(name: str, device: str = "cpu") -> Bench:
    """The benchmark with that name, on a device. A `bench` with the argument `device` can measure a GPU.

    Raises UsageError with all names if there is none of that name, or if it cannot measure that device; ResourceError
    if there is no GPU.
    """
    if name not in names():
        raise UsageError(f"bench: there is no {name!r}{did_you_mean(name, names())}; there are: {', '.join(names())}")
    bench = importlib.import_module(_modules()[name]).bench
    if device == "cpu":
        return cast(Bench, bench)
    if device != "cuda":
        raise UsageError(f"--device: {device!r}: cpu or cuda expected")
    if "device" not in inspect.signature(bench).parameters:
        raise UsageError(f"--device: the bench {name} measures the CPU; nn, skipgram and transe measure a GPU")
    import torch

    if not torch.cuda.is_available():
        raise ResourceError("--device: no CUDA device is available; use cpu")
    return partial(bench, device=device)


def _modules() -> dict[str, str]:
    """The full name of the module of each benchmark."""
    packages = (sys.modules[__name__], hierarchies, softmax, text)
    return {module.name: f"{package.__name__}.{module.name}" for package in packages
            for module in pkgutil.iter_modules(package.__path__) if not module.ispkg}
