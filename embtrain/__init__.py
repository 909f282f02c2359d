"""embtrain trains embeddings with interchangeable negative samplers.

    import embtrain
    run = embtrain.fit(negatives="ace")     # embtrain.Run("runs/ace"): an existing run
    run.vectors.most_similar("king")        # with embtrain.silence(): ... prints no progress

    cli/         the command `embtrain`           testing/       checks for components of other packages
    nn/          losses as PyTorch modules        gensim/        gensim's Word2Vec
    experiment/  runs and comparisons             report/        reports and charts
    train/       training steps and loop          evaluate/      scores of models and of vectors
    models/      queries and scores               negatives/     negative samplers
    losses/      losses of scores                 data/          readers of data files
    kernels/     compiled kernels                 common/        records, errors, files, configuration
"""

import importlib
import os
from typing import Any

# PyTorch allocates huge pages if this is set before its first tensor. Each update allocates and frees arrays of
# megabytes, and with small pages a good part of the time is spent on page faults.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

# Waiting threads of GNU OpenMP spin 300,000 times before they sleep. If another process occupies the core of the
# awaited thread, most of the time was spent spinning: docs/decisions/training/095-short-spinning.md has the figures.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")

__version__ = "0.1.0"
_MODULES = {  # public name: its module, and the name there
    "RandomFourierSoftmaxFeatures": ("experiment.estimators", "RandomFourierSoftmaxFeatures"),
    "Run": ("experiment.run.run", "Run"),
    "SkipGramEmbedder": ("experiment.estimators", "SkipGramEmbedder"),
    "align": ("experiment.inspect.align", "align_api"),
    "compare": ("experiment.comparing", "compare"),
    "continue_run": ("experiment.continuation", "continue_run_api"),
    "fit": ("experiment.api", "fit"),
    "silence": ("common.progress", "silence"),
}
_PACKAGES = ("gensim", "nn", "testing")  # `import embtrain` is enough for them
__all__ = [*sorted(_MODULES), "__version__"]  # noqa: PLE0604  all are names


def __getattr__(name: str) -> Any:
    # Lazy, because `import embtrain` must be fast: `embtrain --help` goes through it.
    if name in _PACKAGES:
        return importlib.import_module(f"embtrain.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module 'embtrain' has no attribute {name!r}")
    module, attribute = _MODULES[name]
    return getattr(importlib.import_module(f"embtrain.{module}"), attribute)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PACKAGES})
