"""The training loop: blocks of examples, log lines, evaluations and checkpoints.

(seed, epoch, block) alone determine a block. A run that was interrupted therefore continues from its last checkpoint
with the same blocks and the same draws, and on one thread with the same bits.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from embtrain.common.errors import Stopped, UsageError
from embtrain.common.progress import Progress
from embtrain.losses.base import Loss
from embtrain.models.base import Model
from embtrain.negatives.base import NegativeSource
from embtrain.train.checks.divergence_remedies import not_finite_error
from embtrain.train.checks.finite import is_finite
from embtrain.train.checks.target_metric import parse_threshold
from embtrain.train.checks.warmup import warn_if_too_long
from embtrain.train.config import TrainConfig
from embtrain.train.engines import choose
from embtrain.train.engines.base import Examples, StepResult
from embtrain.train.engines.false_negatives import KnownPositives
from embtrain.train.hardness import hardness
from embtrain.train.optimizers import make_optimizers
from embtrain.train.state import checkpoint
from embtrain.train.state.checkpoint import StateMismatch
from embtrain.train.state.lease import check_held
from embtrain.train.state.metrics_log import MetricsLog
from embtrain.train.state.position import Position
from embtrain.train.state.signals import Stop
from embtrain.train.stopwatch import Stopwatch

Evaluate = Callable[[], dict[str, float]]


class Trainer:
    """The training loop and all state that training changes.

    `config.engine` was resolved by train/engines/choose.py; `auto` means `autograd` here. `watched_metric` is the value
    of `evaluate()` that early stopping watches (higher is better). `on_checkpoint` receives the log's size in bytes.
    """

    def __init__(self, model: Model, source: NegativeSource, loss: Loss, examples: Examples, config: TrainConfig,
                 folder: Path, evaluate: Evaluate, known_positives: KnownPositives | None = None,
                 watched_metric: str = "valid/log_likelihood", on_checkpoint: Callable[[int], None] = lambda _: None):
        self.model, self.source, self.loss, self.examples, self.config = model, source, loss, examples, config
        self.folder, self.evaluate, self.position = folder, evaluate, Position()
        self.n_blocks, self.stopwatch = 0, Stopwatch()  # n_blocks: of the current epoch
        self.settings: Mapping[str, str] = {}   # that the run must keep, by dotted key; checkpoints record them
        self.is_first = True     # of the processes of a group; it alone warns
        self.watched_metric, self.on_checkpoint = watched_metric, on_checkpoint
        self.optimizers = make_optimizers(model, loss, config)
        engine = choose.engine_class(config, model.task)
        self.step = engine(model, source, loss, self.optimizers, config, known_positives)
        self.read_blocks = partial(self.step.batches, examples)
        self.block_size = choose.block_size(config, engine.name, source.traits.uses_model, model.task)
        self.metrics = MetricsLog(folder / "metrics.jsonl")
        self.threshold = parse_threshold(config.track_until) if config.track_until else None

    def run(self) -> Position:
        """Train from the current position to the end. Raises Stopped on a signal, UsageError for non-finite numbers."""
        position, epochs = self.position, self.config.epochs
        self.n_blocks = n = self.examples.n_blocks(min(position.epoch, epochs - 1), self.block_size)
        if self.is_first and position.epoch < epochs:
            warn_if_too_long(self.config, n * epochs)
        with Stop() as stop, Progress("training", n * epochs, "blocks", position.step) as progress:
            with contextlib.suppress(Stopped):  # raised again below, after saving
                self._train(stop, progress)
            self.save()
            self._check_stop(stop)
        return position

    def _check_stop(self, stop: Stop) -> None:
        """Raise Stopped if a signal ended the training."""
        stop.check()

    def _train(self, stop: Stop, progress: Progress) -> None:
        """Run the loop. If it raises Stopped, `save` finds a state from which the run continues unchanged."""
        config, position = self.config, self.position
        last_save, seconds_before, cpu_seconds_before = time.monotonic(), position.seconds, position.cpu_seconds
        self.stopwatch.start()
        if self.threshold is not None and position.step == 0:
            self._require_key(self.threshold[0], self._scores(stop))  # before training, not an hour later
        while True:
            self._evaluate_if_due(stop)  # after an epoch, or due since a signal
            if self.has_ended():
                return
            with stop.interruptible():
                self.n_blocks = n = self.examples.n_blocks(position.epoch, self.block_size)
            if position.block == 0:
                self.source.on_epoch_start(self.step.view)
            for block in self.read_blocks(position.epoch, self.block_size, position.block, config.shuffle):
                self._set_rate((position.epoch + position.block / n) / config.epochs)
                log = position.block + 1 == n or (position.step + 1) % config.log_every == 0
                result = self.run_step(block, log)
                # waits for a GPU, before the clock is read
                loss = float(result.loss) if log or position.step == 0 else math.nan
                if position.step == 0:
                    position.first_loss = loss
                position.block += 1
                position.step += 1
                position.examples += len(block.target)
                seconds, cpu_seconds = self.stopwatch.read()
                position.seconds, position.cpu_seconds = seconds_before + seconds, cpu_seconds_before + cpu_seconds
                if log:
                    self.log(result)
                progress.add(1, f"loss {loss:.4f}" if log else "")
                self._evaluate_if_due(stop)
                stop.check()
                if time.monotonic() - last_save >= config.checkpoint_every:
                    self.save()
                    last_save = time.monotonic()
                if self._should_stop():
                    return
            position.epoch, position.block = position.epoch + 1, 0

    def run_step(self, block: Any, keep_costs: bool = False) -> StepResult:
        """Run one step. If it fails because of non-finite numbers, raise UsageError before the next log line would."""
        try:
            return self.step(block, keep_costs=keep_costs)
        except (RuntimeError, ValueError, IndexError, OverflowError):
            self._require_finite()
            raise

    # -- periodic work ---------------------------------------------------------------------------------------------

    def _set_rate(self, progress: float) -> None:
        """Linear decay from lr to min_lr; a linear warm-up over the first `warmup` blocks, a tenth in burn-in epochs.

        `progress` is the fraction of the epochs done, or of the CPU seconds if more of them is used.
        """
        config = self.config
        progress = max(progress, self._budget_used())
        rate = config.lr - (config.lr - min(config.lr, config.min_lr)) * progress
        if self.position.step < config.warmup:
            rate *= (self.position.step + 1) / config.warmup
        if self.position.epoch < config.burn_in:
            rate /= 10
        for group in self.optimizers[0].param_groups:
            group["lr"] = rate

    def log(self, result: StepResult) -> None:
        """Append a log line. UsageError if the loss is not finite."""
        loss = float(result.loss)
        self._require_finite(f"the loss is {loss}" if not math.isfinite(loss) else "")
        fields: dict[str, Any] = self._progress_fields()
        fields |= {"lr": self.optimizers[0].param_groups[0]["lr"], "loss": loss}
        if result.cost is not None and result.query is not None and result.drawn is not None:
            fields |= hardness(result.query, result.drawn, result.cost, self.step.view)
            n_masked = 0 if result.drawn.false_negatives is None else result.drawn.false_negatives.shape[1]
            fields["masked"] = n_masked / max(1, len(result.query) * result.drawn.k)
        fields |= {f"source/{name}": value for name, value in (result.source | self.source.metrics()).items()}
        fields |= {f"loss/{name}": value for name, value in self.loss.metrics().items()}
        self.metrics.append(fields)

    def _require_finite(self, problem: str = "") -> None:
        """Raise UsageError if there is a `problem` already, or if a table is not finite."""
        names = [name for name, state in self._learned_state().items() if not is_finite(state)]
        if problem or names:
            sections: dict[str, BaseModel] = {"model": self.model.config, "negatives": self.source.config,
                                              "loss": self.loss.config}
            raise not_finite_error(problem or f"the {names[0]} is no longer finite", self.position.step,
                                   self.folder / "checkpoints", self.config, sections)

    def _evaluate_if_due(self, stop: Stop) -> None:
        """Evaluate and record the scores. Stopped leaves no trace: the evaluation is due again after a resume."""
        position = self.position
        if not self._is_evaluation_due():
            return
        self._require_finite()
        scores = self._scores(stop)
        if self.threshold is not None:
            key, passes = self.threshold
            self._require_key(key, scores)
            if passes(scores[key]):
                position.reached = self.config.track_until
        self.metrics.append(self._progress_fields() | scores)
        position.evaluated = position.step
        if self.config.patience:
            if self.watched_metric not in scores:
                raise UsageError(f"train.patience: no evaluation gives a finite {self.watched_metric}; set "
                                 "train.patience: 0")
            if scores[self.watched_metric] > position.best:
                position.best, position.best_step = scores[self.watched_metric], position.step
                position.evaluations_since_best = 0
                self.save()           # first: a killed run never resumes from before its best
                self.save("best")
            else:
                position.evaluations_since_best += 1

    def _scores(self, stop: Stop) -> dict[str, float]:
        with self.stopwatch.paused(), stop.interruptible():
            return self.evaluate()

    def _is_evaluation_due(self) -> bool:
        position, every = self.position, self.config.evaluate_every
        not_due = position.step % every if every else position.block
        is_due = not not_due or self._budget_used() >= 1 or self._needs_last_scores()
        return position.step != position.evaluated and is_due

    def _needs_last_scores(self) -> bool:
        """Whether the last step was trained, and early stopping or a target not reached before needs its scores."""
        is_needed = self.config.patience > 0 or self.config.track_until not in (None, self.position.reached)
        return is_needed and self.position.epoch >= self.config.epochs

    @staticmethod
    def _require_key(key: str, scores: dict[str, float]) -> None:
        if key not in scores:
            raise UsageError(f"train.track_until: no evaluation gives {key!r}; there are: {', '.join(sorted(scores))}")

    def has_ended(self) -> bool:
        """Whether no step is left to train."""
        return self.position.epoch >= self.config.epochs or self._should_stop()

    def _should_stop(self) -> bool:
        """Whether training ends before its last epoch."""
        return 0 < self.config.patience <= self.position.evaluations_since_best or self._budget_used() >= 1

    def _budget_used(self) -> float:
        """The fraction of `cpu_seconds` that is used; 0 without a limit."""
        return 0.0 if self.config.cpu_seconds is None else self.position.cpu_seconds / self.config.cpu_seconds

    def _progress_fields(self) -> dict[str, Any]:
        position = self.position
        epoch = position.epoch + (0 < position.block == self.n_blocks)
        return {"step": position.step, "epoch": epoch, "examples": position.examples,
                "seconds": round(position.seconds, 3), "cpu_seconds": round(position.cpu_seconds, 3)}

    # -- state ----------------------------------------------------------------------------------------------------

    def _learned_state(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), "loss": self.loss.state_dict(), "source": self.source.state_dict()}

    def save(self, subfolder: str = "checkpoints") -> None:
        """Write a checkpoint, unless the state is not finite: the newest checkpoint is then the last finite one.

        LeaseLost if another machine has taken over the run (lease.py).
        """
        with self.stopwatch.paused():
            check_held()
            learned = self._learned_state()
            if is_finite(learned):
                self._write(learned, subfolder)

    def _write(self, learned: dict[str, Any], subfolder: str) -> None:
        self.position.log_offset = self.metrics.sync()
        state = learned | self._other_states() | {
            "optimizers": [o.state_dict() for o in self.optimizers],
            "position": self.position.state_dict(),
            "settings": dict(self.settings),
        }
        n_kept = 1 if subfolder == "best" else self.config.keep
        checkpoint.save(self.folder / subfolder, self.position.step, state, n_kept)
        if subfolder == "checkpoints":
            self.on_checkpoint(self.position.log_offset)

    def _other_states(self) -> dict[str, Any]:
        """States of other processes that a checkpoint contains."""
        return {}

    def _read_state(self, subfolder: str) -> dict[str, Any]:
        return checkpoint.load(self.folder / subfolder, in_memory=self.config.tables == "memory")

    def load(self, subfolder: str = "checkpoints") -> None:
        """Restore the newest complete checkpoint and drop the log lines written after it. Raises StateMismatch."""
        state = self._read_state(subfolder)
        try:
            self.model.load_state_dict(state["model"])
            self.loss.load_state_dict(state["loss"])
            if state["source"].keys() != self.source.state_dict().keys():
                raise ValueError("another source")
            self.source.load_state_dict(state["source"])
            for optimizer, saved_state in zip(self.optimizers, state["optimizers"], strict=True):
                if saved_state["param_groups"][0].keys() != optimizer.param_groups[0].keys():
                    raise ValueError("another optimizer")
                optimizer.load_state_dict(saved_state)
            position = Position.from_state(state["position"])
        except (KeyError, IndexError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            raise StateMismatch(
                f"{self.folder / subfolder}: its checkpoint belongs to another model, source, loss or optimizer than "
                "config.yaml describes; restore the run's own config.yaml") from error
        if subfolder == "checkpoints":
            self.position = position
            self.metrics.truncate(self.position.log_offset)
            if position.best_step == position.step > 0:
                self.save("best")     # the run was killed between the two saves
