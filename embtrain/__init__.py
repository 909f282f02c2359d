"""embtrain trains embeddings with interchangeable negative samplers.

    import embtrain
    run = embtrain.fit(negatives="ace")     # embtrain.Run("runs/ace"): an existing run
    run.vectors.most_similar("king")

    cli/         the command `embtrain`           testing/       checks for components of other packages
    nn/          losses as PyTorch modules        gensim/        gensim's Word2Vec
    experiment/  runs and comparisons             report/        reports and charts
    train/       training steps and loop          evaluate/      scores of models and of vectors
    models/      queries and scores               negatives/     negative samplers
    losses/      losses of scores                 data/          readers of data files
    kernels/     compiled kernels                 common/        records, errors, files, configuration
    nn/          components for other programs
"""

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
__all__ = ["RandomFourierSoftmaxFeatures", "Run", "SkipGramEmbedder", "__version__", "compare", "fit"]


def __getattr__(name: str) -> Any:
    # Lazy, because `import embtrain` must be fast: `embtrain --help` goes through it.
    if name == "fit":
        from embtrain.experiment import fit_api

        return fit_api
    if name == "compare":
        from embtrain.experiment.comparing import compare_api

        return compare_api
    if name == "Run":
        from embtrain.experiment import Run

        return Run
    if name in ("RandomFourierSoftmaxFeatures", "SkipGramEmbedder"):
        from embtrain.experiment import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module 'embtrain' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
