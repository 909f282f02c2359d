"""Configuration -> objects -> training -> evaluation -> report: the one part of embtrain that imports all others.

    run         one run: settings, components, training, scoring, resuming, dry run
    tasks       one file per kind of data: how it is read, split and scored
    prediction  predictions of a trained model from its run folder
    comparison  several strategies and seeds: grid, worker processes, statistics, tuning
    paper       claims of papers, reproduced as comparisons
    diagnosis   how close samplers come to the softmax on a trained model
    inspect     evaluate, list neighbours of and export an existing run or vector file
    catalogue   `embtrain list`: the components and their combinations
    api         `embtrain.fit`
    comparing   `embtrain.compare`
    grouped     one run trained by the processes that torchrun starts
    continuation  continue a run on another text
    estimators  scikit-learn estimators
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from embtrain.experiment.grouped import fit as fit_in_group, resume as resume_in_group
    from embtrain.experiment.inspect.evaluate import evaluate, export, interval_share
    from embtrain.experiment.inspect.neighbours import neighbours
    from embtrain.experiment.run.dry_run import plan
    from embtrain.experiment.run.run import Run, fit, resume
    from embtrain.experiment.run.settings import Settings, resolve

__all__ = ["Run", "Settings", "evaluate", "export", "fit", "fit_in_group", "interval_share", "neighbours",
           "plan", "resolve", "resume", "resume_in_group"]
# name -> module that defines it
_MODULES = {"Run": "run.run", "Settings": "run.settings", "evaluate": "inspect.evaluate", "export": "inspect.evaluate",
            "fit": "run.run", "neighbours": "inspect.neighbours", "plan": "run.dry_run",
            "interval_share": "inspect.evaluate", "fit_in_group": "grouped", "resolve": "run.settings",
            "resume": "run.run", "resume_in_group": "grouped"}


def __getattr__(name: str) -> Any:
    # Lazy, because `embtrain list` and `embtrain neighbours` import a module below and need no PyTorch.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"embtrain.experiment.{_MODULES[name]}"), name.removesuffix("_in_group"))
