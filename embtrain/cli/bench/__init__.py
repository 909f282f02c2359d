"""Benchmarks of speed: one module each. The parameters of its `bench(rounds, ...) -> summary` are its options.

    text/         reading, skip-gram, CBOW       start.py    imports and commands
    softmax/      samplers, k-means              walks.py    node2vec walks, against gensim
    ace.py        adversarial training           ranking.py  link prediction
    transe.py     an epoch of TransE             vmf.py      the von Mises-Fisher loss
    hierarchies/  order, Poincaré embeddings     nn.py       losses as PyTorch modules
    nmt.py        decoders of translation        harness/    parts that all of them use
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import pkgutil
import sys
from collections.abc import Callable, Sequence
from importlib.abc import InspectLoader
from typing import Any, cast

from embtrain.cli.bench import hierarchies, softmax, text
from embtrain.cli.bench.harness import remedies
from embtrain.common import terminal
from embtrain.common.errors import ResourceError, UsageError, did_you_mean

Bench = Callable[..., dict[str, Any]]
THREADS = (1, 2)  # numbers of threads of a bench that takes several
# Options that not every bench has: the value that changes nothing, and what a bench without the option does.
NEUTRAL: dict[str, tuple[object, str]] = {
    "threads": ([1], "runs on one thread; remove it, or give 1"),
    "corpus": (None, "uses data of its own; remove it"),
    "device": ("cpu", "measures the CPU; nn, skipgram and transe measure a GPU")}


def names() -> list[str]:
    return sorted(_modules())


def documentation(name: str) -> str:
    """Return the docstring of a benchmark's module, read from its source: an import takes seconds."""
    spec = importlib.util.find_spec(_modules()[name])
    source = spec.loader.get_source(spec.name) if spec and isinstance(spec.loader, InspectLoader) else None
    return ast.get_docstring(ast.parse(source or "")) or ""


def find(name: str) -> Bench:
    """Return the benchmark with that name. UsageError with all names if there is none."""
    if name not in names():
        raise UsageError(f"bench: there is no {name!r}{did_you_mean(name, names())}; there are: "
                         f"{', '.join(names())}; embtrain bench --help describes them")
    return cast(Bench, importlib.import_module(_modules()[name]).bench)


def measure(name: str, rounds: int, only: Sequence[str] | None = None, threads: Sequence[int] | None = None,
            corpus: str | None = None, device: str = "cpu") -> dict[str, Any]:
    """Run a benchmark and return its summary. threads: None for those of the bench.

    Raises UsageError for an option that the bench does not have, ResourceError if there is no GPU.
    """
    bench = find(name)
    if device not in ("cpu", "cuda"):
        raise UsageError(f"--device: {device!r}: cpu or cuda expected")
    has = inspect.signature(bench).parameters
    options: dict[str, object] = {"corpus": corpus, "device": device}
    if threads is not None:
        options["threads"] = list(threads)
    for option, value in options.items():
        neutral, use = NEUTRAL[option]
        if option not in has and value != neutral:
            raise UsageError(f"--{option}: the bench {name} {use}")
    if device == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise ResourceError("--device: no CUDA device is available; use cpu")
    if "threads" in has and has["threads"].default is inspect.Parameter.empty:
        options.setdefault("threads", THREADS)
    # A text is read for every training; no option of a bench sets a key that an error names.
    with terminal.without_repeated_warnings(), remedies.of_bench("corpus" in has):
        return bench(rounds, only=only, **{option: value for option, value in options.items() if option in has})


def _modules() -> dict[str, str]:
    """The full name of the module of each benchmark."""
    packages = (sys.modules[__name__], hierarchies, softmax, text)
    return {module.name: f"{package.__name__}.{module.name}" for package in packages
            for module in pkgutil.iter_modules(package.__path__) if not module.ispkg}
