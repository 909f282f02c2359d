"""Epochs of one call of `train`: the training loop of a run, without its folder.

The tables of the model are copied in before the first epoch, and out after each epoch that something reads; they are
copied in again if callbacks may have changed them.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from embtrain.common import progress
from embtrain.common.errors import DataError
from embtrain.common.progress import Progress
from embtrain.common.types import ProblemSpec
from embtrain.data.text.corpus import Corpus
from embtrain.data.text.vocabulary import Vocabulary
from embtrain.experiment import Settings
from embtrain.experiment.run import components, memory
from embtrain.experiment.run.components import Components
from embtrain.experiment.tasks import base as tasks
from embtrain.experiment.tasks.windows import WindowsTask
from embtrain.gensim.sentences import Ids
from embtrain.train.engines.base import StepResult
from embtrain.train.loop import Trainer
from embtrain.train.state.position import Position
from embtrain.train.state.signals import Stop

_log = logging.getLogger("embtrain")
Learned = dict[str, Any]  # states of the source and of the loss, and settings of the source, for the next call
Tables = tuple[Sequence[np.ndarray], np.ndarray]  # arrays of the consecutive rows of the input table; output table


@dataclass(frozen=True)
class Epoch:
    """The state after an epoch."""

    number: int        # from 0
    is_last: bool
    n_words: int       # centres that were trained
    loss: float        # sum over all pairs since the first epoch
    trainer: EpochTrainer | None = None  # None: the text has no pairs

    def copy_tables(self, inputs: Sequence[np.ndarray], contexts: np.ndarray) -> None:
        """Write the input table into arrays of its consecutive rows, (·, D), and the output table into one (V, D)."""
        if self.trainer is None:
            return
        model: Any = self.trainer.model
        for part, rows in zip(inputs, model.u.detach().split([len(part) for part in inputs]), strict=True):
            part[...] = rows.cpu().numpy()
        contexts[...] = model.v.detach().cpu().numpy()

    def set_tables(self, inputs: Sequence[np.ndarray], contexts: np.ndarray) -> None:
        """Continue with these tables, in the form of `copy_tables`."""
        if self.trainer is not None:
            _copy_in(self.trainer.model, (inputs, contexts))

    def set_rates(self, lr: float, min_lr: float) -> None:
        """Continue as if the rate had fallen from lr and would fall to min_lr."""
        if self.trainer is not None:
            self.trainer.config = self.trainer.config.model_copy(update={"lr": lr, "min_lr": min_lr})

    def learned(self) -> Learned | None:
        """Return what the next call needs of the source and the loss: a copy, because further epochs change it.

        None: the text has no pairs.
        """
        if self.trainer is None:
            return None
        source = self.trainer.source
        state = {"source": source.state_dict(), "settings": source.config.own(),
                 "loss": self.trainer.loss.state_dict()}
        return state if self.is_last else copy.deepcopy(state)


class EpochTrainer(Trainer):
    """The training loop in memory: it sums the loss, writes no checkpoints and leaves signals to the program.

    It calls `evaluate` after each epoch, also if subsampling has left no word of it.
    """

    loss_sum = 0.0
    n_evaluated = 0  # epochs

    def run(self) -> Position:
        with Progress("training", unit="blocks") as counter:
            self._train(Stop(), counter)  # installs handlers only as a context
        return self.position

    def run_step(self, block: Any, keep_costs: bool = False) -> StepResult:
        result = super().run_step(block, keep_costs)
        self.loss_sum += float(result.loss) * len(block.target)
        return result

    def _is_evaluation_due(self) -> bool:
        return self.position.epoch > self.n_evaluated

    def _scores(self, stop: Stop) -> dict[str, float]:
        self.n_evaluated = self.position.epoch
        return super()._scores(stop)

    def save(self, subfolder: str = "checkpoints") -> None:
        """Do nothing: the model is in memory."""


@progress.silence()
def train(settings: Settings, text: Ids, words: list[Any], counts: np.ndarray, tables: Tables,
          learned: Learned | None, folder: Path, on_epoch: Callable[[Epoch], None]) -> None:
    """Train on a text. One without pairs changes nothing.

    words: V, whose n-grams are those of their text, as in gensim. counts: (V,) of the vocabulary, which decide
    subsampling and noise. tables: only read. learned: from an earlier call over the same vocabulary; a state that does
    not fit is left out with a warning. on_epoch: called after each epoch. Raises UsageError, DataError, ResourceError.
    """
    n_threads_before = torch.get_num_threads()
    try:
        components.use_threads(settings.train.threads)
        vocabulary = Vocabulary([f"{word}" for word in words], np.maximum(counts, 1), text.n_words)
        corpus = Corpus(text.ids, text.sequence, text.sequence[[0, -1]], vocabulary, {}, (1, 1))
        last = settings.train.epochs - 1
        kind = cast(type[WindowsTask], tasks.find(settings))
        if len(words) < 2 or (task := kind(settings, corpus)).windows.examples_per_epoch < 1:
            _log.warning("Word2Vec: %d words, and less than one pair per epoch: nothing is trained; give more text, or "
                         "set sample=0", len(words))
            for number in range(last + 1):
                on_epoch(Epoch(number, number == last, 0, 0.0))
            return
        parts = _build(settings, task, vocabulary, tables, learned)

        def after_epoch() -> dict[str, float]:
            number = trainer.position.epoch - 1
            on_epoch(Epoch(number, number == last, task.windows.n_centres(number), trainer.loss_sum, trainer))
            return {}

        trainer = EpochTrainer(parts.model, parts.source, parts.loss, task.windows, parts.train, folder, after_epoch,
                               parts.known_positives)
        trainer.run()
    finally:
        torch.set_num_threads(n_threads_before)


def _build(settings: Settings, task: WindowsTask, vocabulary: Vocabulary, tables: Tables, learned: Learned | None
           ) -> Components:
    parts = components.build(settings, task, _spec(task, vocabulary, settings.train.device))
    memory.require_step(parts, settings, task.examples)
    _copy_in(parts.model, tables)
    if learned is None:
        return parts
    try:
        if learned["source"].keys() != parts.source.state_dict().keys():
            raise ValueError("it is that of another source")
        if learned["source"].keys() != {"random"} and learned["settings"] != parts.source.config.own():
            raise ValueError("the settings of the source differ")
        parts.source.load_state_dict(learned["source"])
        parts.loss.load_state_dict(learned["loss"])
    except (DataError, LookupError, AttributeError, TypeError, ValueError, RuntimeError) as error:
        _log.warning("Word2Vec: the state of %s starts again: that of the last call of `train` does not fit, because "
                     "the strategy or the device has changed (%.200s)", parts.source.name, " ".join(str(error).split()))
        return _build(settings, task, vocabulary, tables, None)  # the state may be loaded in part
    return parts


@torch.no_grad()
def _copy_in(model: Any, tables: Tables) -> None:
    inputs, contexts = tables
    for rows, part in zip(model.u.split([len(part) for part in inputs]), inputs, strict=True):
        rows.copy_(torch.from_numpy(part))
    model.v.copy_(torch.from_numpy(contexts))


def _spec(task: WindowsTask, vocabulary: Vocabulary, device: str) -> ProblemSpec:
    """Return the problem with the counts of the vocabulary, as gensim draws its noise.

    A word of the vocabulary that the text lacks has the smallest count of a target, so that every source can draw it.
    """
    spec = task.problem_spec(device)
    counts = spec.counts
    counts = torch.where(counts > 0, counts, counts[counts > 0].min())
    return replace(spec, counts=counts, raw_counts=torch.from_numpy(vocabulary.counts).double())
