"""`embtrain.fit`: the command `embtrain fit`, called from Python."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from embtrain.common.config import as_sets
from embtrain.common.config.arguments import argument_sets
from embtrain.common.errors import UsageError
from embtrain.data.storage.folders import cache_folder
from embtrain.data.storage.token_lists import write_token_lists
from embtrain.experiment.run import run as runs
from embtrain.experiment.run.run import Run
from embtrain.experiment.run.settings import Settings, resolve
from embtrain.experiment.tasks import base as task_classes
from embtrain.train.state.signals import protect_caller

Sets = Mapping[str, Any] | Sequence[str]
MAX_NAME_BYTES = 255  # of a file on the usual file systems


@protect_caller()
def fit(negatives: str | None = None, *, model: str | None = None,
        corpus: str | Path | Iterable[Iterable[Any]] | None = None, loss: str | None = None,
        config: str | Path | None = None, sets: Sets | None = None, epochs: int | None = None, dim: int | None = None,
        seed: int | None = None, threads: int | None = None, device: str | None = None, out: str | Path | None = None,
        tuned: bool = False) -> Run:
    """`embtrain fit` from Python: `embtrain.fit("ace", corpus="my.txt", dim=50).vectors`.

    corpus: the name of a recipe, the path of a file or folder, or an iterable of lists of tokens. That is read once,
    into a text file in the cache folder, and its tokens are not changed; a task on text or walks can train on it.
    sets: settings, as a mapping or as KEY=VALUE texts. epochs, dim: short for train.epochs and model.dim, which `sets`
    overrides. tuned: use the tuned settings of this model and corpus.

    Raises UsageError, DataError or ResourceError (embtrain.common.errors), each with a one-line message. Ctrl-C
    saves the state of the run and raises Interrupted, a KeyboardInterrupt; SIGTERM and SIGHUP raise Stopped.
    """
    path = path_argument("config", config)
    short, names = short_arguments(epochs, dim)
    texts = [*short, *sets_argument(sets)]
    if corpus is not None:
        corpus, keys = corpus_or_lists(
            corpus, lambda: resolve(negatives, model, None, loss, path, texts, flag_names=names))
        texts = [*keys, *texts]
    settings = resolve(negatives, model, corpus, loss, path, texts, seed, threads, device, names, tuned)
    return runs.fit(settings, folder_argument(out))


def short_arguments(epochs: int | None, dim: int | None) -> tuple[list[str], dict[str, str]]:
    """Settings of these arguments as KEY=VALUE texts, and their names in errors; see `argument_sets`."""
    given = {name: value for name, value in (("epochs", epochs), ("dim", dim)) if value is not None}
    return argument_sets({"epochs": "train.epochs", "dim": "model.dim"}, given)


def folder_argument(out: str | Path | None) -> Path | None:
    """The folder of an argument `out`. UsageError for an empty text, which would be the current folder."""
    if out == "":
        raise UsageError("out: has an empty value; remove it or give a folder")
    return path_argument("out", out)


def path_argument(name: str, value: Any) -> Path | None:
    """The path of an argument. UsageError for another value than a text or a path."""
    if value is not None and not isinstance(value, str | os.PathLike):
        raise UsageError(f"{name}: {value!r:.60}: should be a path")
    return None if value is None else Path(value)


def sets_argument(sets: Sets | None) -> list[str]:
    """Settings as KEY=VALUE texts. UsageError if they are neither a mapping nor a sequence of texts."""
    if sets is None or isinstance(sets, Mapping):
        return as_sets(sets or {})
    if isinstance(sets, Sequence) and not isinstance(sets, str | bytes) and all(isinstance(text, str) for text in sets):
        return list(sets)
    raise UsageError(f'sets: {sets!r:.60}: should be a mapping like {{"model.dim": 50}}, or a list of texts like '
                     '["model.dim=50"]')


def corpus_or_lists(corpus: Any, settings: Callable[[], Settings]) -> tuple[str, list[str]]:
    """The name or path of a corpus, and the KEY=VALUE texts that its reader needs.

    Lists of tokens are written to a file of the cache. settings: of the run without its corpus, called for lists alone.
    Raises UsageError, DataError or ResourceError.
    """
    if not isinstance(corpus, Iterable) or isinstance(corpus, str | bytes | os.PathLike | Mapping):
        return corpus_argument(corpus), []
    task = task_classes.find(settings())
    if not task.token_list_keys:
        raise UsageError(f"corpus: takes no {type(corpus).__name__}, because the model learns from "
                         f"{task.corpus_kind}; give the path of a file or folder")
    keys = as_sets({f"{task.section}.{key}": value for key, value in task.token_list_keys.items()})
    return str(write_token_lists(corpus, cache_folder() / "lists")), keys


def corpus_argument(corpus: Any) -> str:
    """The name or path of a corpus. UsageError for another value, for example the text itself."""
    remedy = "give the name of a recipe or the path of a file or folder, and write texts to a file first"
    if not isinstance(corpus, str | os.PathLike) or not isinstance(name := os.fspath(corpus), str):
        raise UsageError(f"corpus: takes no {type(corpus).__name__}; {remedy}")
    size = max(len(part.encode("utf-8", "surrogatepass")) for part in name.split(os.sep))
    if size > MAX_NAME_BYTES or "\n" in name or "\0" in name:
        raise UsageError(f"corpus: {name[:40]!r} and so on is neither a name nor a path; {remedy}")
    return name
