"""embtrain trains embeddings with interchangeable sources of negatives.

    import embtrain
    run = embtrain.fit(negatives="ace")
    run.vectors.most_similar("king")
    embtrain.Run("runs/ace").vectors       # of a run that is there already
"""

import os
from typing import Any

# Torch asks for huge pages where it finds this at its first tensor. Arrays of megabytes come and go with each update:
# in small pages a good part of the time goes into being given them.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

# Threads of GNU's OpenMP that wait for each other look 300,000 times before they sleep. Where another process has the
# core of the one that they wait for, that was most of the time: DECISIONS.md has the figures.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")

__version__ = "0.1.0"
__all__ = ["Run", "__version__", "fit"]


def __getattr__(name: str) -> Any:
    # Lazy: `import embtrain` must cost nothing, for the command line answers `--help` through it.
    if name == "fit":
        from embtrain.experiment import fit_api

        return fit_api
    if name == "Run":
        from embtrain.experiment import Run

        return Run
    raise AttributeError(f"module 'embtrain' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), "Run", "fit"])
