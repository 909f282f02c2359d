"""Configuration -> objects -> training -> evaluation -> report: the one part of embtrain that imports all others.

The command line and Python users call these functions.

    run         one run: settings, components, training, scoring, resuming, dry run
    tasks       one file per kind of data: how it is read, split and scored
    prediction  predictions of a trained model from its run folder
    comparison  several strategies and seeds: grid, worker processes, statistics, tuning
    paper       claims of papers, reproduced as comparisons
    diagnosis   how close samplers come to the softmax on a trained model
    inspect     evaluate, list neighbours of and export an existing run or vector file
    catalogue   `embtrain list`: the components and their combinations
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from embtrain.common.config import as_sets
from embtrain.experiment.inspect.evaluate import evaluate, export, neighbours
from embtrain.experiment.run.dry_run import plan
from embtrain.experiment.run.run import Run, fit, resume
from embtrain.experiment.run.settings import Settings, resolve

__all__ = ["Run", "Settings", "evaluate", "export", "fit", "fit_api", "neighbours", "plan", "resolve",
           "resume"]


def fit_api(negatives: str | None = None, *, model: str | None = None, corpus: str | Path | None = None,
            loss: str | None = None, config: str | Path | None = None, sets: Mapping[str, Any] | None = None,
            seed: int | None = None, threads: int | None = None, device: str | None = None,
            out: str | Path | None = None) -> Run:
    """`embtrain fit` from Python: `embtrain.fit("ace", corpus="my.txt", sets={"model.dim": 50}).vectors`.

    Raises UsageError, DataError or ResourceError (embtrain.common.errors), each with a one-line message.
    """
    settings = resolve(negatives, model, None if corpus is None else str(corpus), loss,
                       None if config is None else Path(config), as_sets(sets or {}), seed, threads, device)
    return fit(settings, None if out is None else Path(out))
