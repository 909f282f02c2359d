"""Continue a trained run of skip-gram or CBOW on another text, with a vocabulary that grows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from embtrain.common import shipped
from embtrain.common.config.shown import printable
from embtrain.common.errors import UsageError
from embtrain.experiment.api import Sets, corpus_or_lists, folder_argument, sets_argument
from embtrain.experiment.run import settings as run_settings
from embtrain.experiment.run.run import Run, fit
from embtrain.experiment.run.settings import Settings
from embtrain.experiment.run.started import require_trained
from embtrain.train.state.signals import protect_caller

FIXED_KEYS = ("corpus", "train.parent", "train.start", "strategy")


def continue_run(run: str | os.PathLike[str], corpus: str | Path | Iterable[Iterable[Any]], *, sets: Sets | None = None,
                 seed: int | None = None, threads: int | None = None, out: str | Path | None = None) -> Run:
    """`embtrain continue` from Python: train a new run from the state of a run, on another text.

    run: a finished run of skip-gram or CBOW, as a Run or its folder, which does not change. corpus: the name of a
    recipe, a path, or an iterable of lists of tokens, as in `embtrain.fit`. Lists need a run that was trained on lists,
    or the reading settings of its text in `sets`. sets: over the settings of `run`, a mapping or KEY=VALUE texts. seed:
    by default that of `run` plus 1, so that no random number is drawn again. out: a new folder. Raises UsageError,
    DataError or ResourceError, each with a one-line message. Ctrl-C saves the state of the run and raises Interrupted,
    a KeyboardInterrupt; SIGTERM and SIGHUP raise Stopped.
    """
    texts, parent = sets_argument(sets), Path(run)
    corpus, keys = corpus_or_lists(corpus, lambda: run_settings.from_run(parent))
    settings = continued_settings(parent, corpus, [*keys, *texts], seed, threads)
    return fit(settings, folder_argument(out))


continue_run_api = protect_caller()(continue_run)  # `embtrain.continue_run`; the command calls `continue_run`


def continued_settings(parent: Path, corpus: str | Path, sets: Sequence[str] = (), seed: int | None = None,
                       threads: int | None = None) -> Settings:
    """The settings of a run that continues `parent`: those of `parent` with its words, and a new rate."""
    if fixed := next((text for text in sets if text.partition("=")[0].strip() in FIXED_KEYS), None):
        raise UsageError(f"--set {fixed}: is set by the command; give the run and --corpus, or use embtrain fit")
    earlier = run_settings.from_run(parent)
    require_trained(parent)
    defaults = [f"train.seed={earlier.train.seed + 1 if seed is None else seed}"]
    if threads is not None:
        defaults.append(f"train.threads={threads}")
    names = {f"--set {printable(text)}": flag for text, flag in zip(defaults, ("--seed", "--threads"), strict=False)}
    settings = run_settings.from_run(parent, [*defaults, *sets], names)
    name = os.fspath(corpus)
    is_path = name not in shipped.names("corpora") and os.path.exists(name)
    train = settings.train.model_copy(update={"parent": str(parent.resolve()), "start": None})
    return settings.model_copy(update={"train": train, "corpus": os.path.abspath(name) if is_path else name})
