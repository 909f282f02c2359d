"""Benchmarks of speed: one module each, with `bench(rounds, threads, only, corpus) -> summary`.

    text/        reading, skip-gram, CBOW          start.py     imports and commands
    softmax/     samplers, k-means                 walks.py     node2vec walks, against gensim
    ace.py       adversarial training
    transe.py    an epoch of TransE                ranking.py   link prediction
    order.py     an epoch of order embeddings      vmf.py       the von Mises-Fisher loss
    nmt.py       decoders of translation           nn.py        losses as PyTorch modules
    harness/     parts that all of them use
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Sequence
from typing import Any

from embtrain.cli.bench import softmax, text
from embtrain.common.errors import UsageError, did_you_mean


def names() -> list[str]:
    return sorted(_modules())


def find(name: str) -> Callable[[int, Sequence[int], Sequence[str] | None, str | None], dict[str, Any]]:
    """The benchmark with that name. Raises UsageError with all names if there is none."""
    if name not in names():
        raise UsageError(f"bench: there is no {name!r}{did_you_mean(name, names())}; there are: {', '.join(names())}")
    return importlib.import_module(_modules()[name]).bench


def _modules() -> dict[str, str]:
    """The full name of the module of each benchmark."""
    return {module.name: f"{package.__name__}.{module.name}" for package in (sys.modules[__name__], softmax, text)
            for module in pkgutil.iter_modules(package.__path__) if not module.ispkg}
