"""`embtrain compare` from Python, also on several machines."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from embtrain.common.config.arguments import number_of_at_least, renamed_flags, whole_number
from embtrain.common.errors import UsageError
from embtrain.experiment.api import (
    Sets,
    corpus_argument,
    folder_argument,
    path_argument,
    sets_argument,
    short_arguments,
)
from embtrain.experiment.comparison import compare as comparing
from embtrain.experiment.comparison.compare import Comparison
from embtrain.experiment.comparison.grid import MAX_SEEDS
from embtrain.experiment.comparison.shared.sharing import ALONE, STALE_AFTER, Sharing
from embtrain.train.state.signals import protect_caller

Names = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@protect_caller()
def compare(negatives: Names | None = None, *, seeds: int | Sequence[int] | None = None,
            model: Names | None = None, corpus: str | Path | None = None, loss: Names | None = None,
            sets: Sets | None = None, epochs: int | None = None, dim: int | None = None,
            benchmarks: Names | None = None, metric: str | None = None,
            baseline: str | None = None, search: Names | None = None, trials: int | None = None,
            config: str | Path | None = None, out: str | Path | None = None, parallel: int | None = None,
            threads: int = 0, cpu_seconds: float | None = None, join: bool = False, executor: Any = None,
            lease_seconds: float = STALE_AFTER) -> Comparison:
    """`embtrain compare` from Python: `print(embtrain.compare("sgns,nce", seeds=3, corpus="my.txt").table())`.

    Names are given as one text, separated by commas, or as a list. Called again with the same `out`, it continues.

    negatives: strategies, or paths of YAML files. seeds: their number, counted from 1, or a list; default 5. model: as
    in `embtrain.fit`. corpus: the name of a recipe, or a path. loss: losses to combine with each strategy; `own` is the
    strategy's. sets, epochs, dim: settings of every run, as in `embtrain.fit`. benchmarks: names of evals/, or paths of
    your own tables and recipes. metric: the primary one, BENCHMARK/METRIC. baseline: the strategy that the others are
    compared with; default: the one stored in `out`, else the first. search: `KEY=LOW:HIGH` and similar, tuned for each
    strategy by `trials` runs. config: YAML file of a grid. out: folder; default runs/STAMP-compare. parallel: runs at a
    time. threads: total number of cores, 0: all. cpu_seconds: limit of CPU seconds for each run.

    join: train the runs together with all processes that execute the same call with the same `out`, a folder that
    their machines share. executor: submit each run to it, for example a `concurrent.futures.ProcessPoolExecutor`,
    Dask's `client.get_executor()` or submitit's `AutoExecutor`; its workers must see `out` under the same path.
    `threads` are then those of a run (0: one) and `parallel` the number of runs submitted at a time (default: all).
    lease_seconds: after this time without a sign of life, a run is taken over from its machine; at least 1.

    Failed runs are run again in a repeated call, except with `join`. Raises UsageError, DataError or ResourceError
    (embtrain.common.errors), each with a one-line message. Ctrl-C saves the states of the runs and raises Interrupted,
    a KeyboardInterrupt; SIGTERM and SIGHUP raise Stopped.
    """
    if parallel is not None:
        whole_number("parallel", parallel, 1)
    whole_number("threads", threads)
    number_of_at_least("lease_seconds", lease_seconds, 1)
    if executor is not None and (isinstance(executor, type) or not callable(getattr(executor, "submit", None))):
        raise UsageError(f"executor: {executor!r}: should be an object with a method `submit`, for example "
                         "ProcessPoolExecutor()")
    if join and executor is not None:
        raise UsageError("executor: cannot be combined with join; remove one")
    if executor is not None and out is None:
        raise UsageError("executor: needs a folder that its workers share; give it with out")
    losses = _names(loss, "loss")
    short, names = short_arguments(epochs, dim)
    grid = {"strategies": _names(negatives, "negatives"), "models": _names(model, "model"),
            "losses": None if losses is None else [None if name == "own" else name for name in losses],
            "corpus": None if corpus is None else corpus_argument(corpus),
            "seeds": None if seeds is None else _seeds(seeds), "baseline": baseline,
            "metric": metric, "benchmarks": _names(benchmarks, "benchmarks"), "cpu_seconds": cpu_seconds,
            "sets": [*short, *sets_argument(sets)] or None,
            "search": None if search is None else _texts(search, "search", "texts or paths, in a list"),
            "trials": trials}
    file, folder = path_argument("config", config), folder_argument(out)
    sharing = Sharing(lease_seconds, executor is not None, executor) if join or executor is not None else ALONE
    with renamed_flags(names):
        return comparing.compare(comparing.read_grid(grid, file, folder), folder, parallel, threads, sharing=sharing)


def _names(names: Names | None, key: str) -> list[str] | None:
    """A list of names; a text is split at commas. UsageError for an empty name and for other values."""
    if names is None:
        return None
    expected = "names, in a list or separated by commas"
    several = [name.strip() for name in names.split(",")] if isinstance(names, str) else names
    if not all(listed := _texts(several, key, expected)):
        raise UsageError(f"{key}: {names!r:.60}: should be {expected}")
    return listed


def _texts(values: Any, key: str, expected: str) -> list[str]:
    """Texts and paths of a list, or a single one, as texts. UsageError for other values."""
    several = [values] if isinstance(values, str | os.PathLike) else values
    listed: list[Any]
    try:
        listed = [several] if isinstance(several, Mapping) else list(several)
    except TypeError:                                        # not iterable, as an array without a dimension
        listed = [several]
    if not all(isinstance(value, str | os.PathLike) for value in listed):
        raise UsageError(f"{key}: {values!r:.60}: should be {expected}")
    return [os.fspath(value) for value in listed]


def _seeds(seeds: Any) -> int | list[int]:
    """The number of seeds, or a list of them. UsageError for other values."""
    try:
        several = None if isinstance(seeds, str | bytes) else list(seeds)
    except TypeError:
        several = None
    if several is None:
        return whole_number("seeds", seeds, 1, MAX_SEEDS)
    return [whole_number("seeds", seed) for seed in several]
