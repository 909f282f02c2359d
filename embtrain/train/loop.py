"""The loop: block after block through the text, one line of metrics now and then, a checkpoint every minute.

What a block holds follows from (seed, epoch, block) alone, so a run that was cut off goes on from its last checkpoint
as if nothing had happened: the same blocks, the same draws, on one thread the same bits.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from embtrain.common.errors import Stopped, UsageError
from embtrain.common.progress import Progress
from embtrain.common.types import Batch
from embtrain.data.text.windows import WindowBatch
from embtrain.losses.base import Loss
from embtrain.models.base import Model
from embtrain.negatives.base import NegativeSource
from embtrain.train.checks.divergence_remedies import not_finite
from embtrain.train.checks.target_metric import target
from embtrain.train.config import TrainConfig
from embtrain.train.engines import choose
from embtrain.train.engines.autograd import Step, Told
from embtrain.train.engines.compiled import Compiled
from embtrain.train.engines.compiled_tasks import FUSED
from embtrain.train.engines.compiled_windows import Fused
from embtrain.train.engines.false_negatives import KnownPositives
from embtrain.train.hardness import hardness
from embtrain.train.optimizers import Adam, LazyAdam, RowAdagrad, suit
from embtrain.train.state import checkpoint
from embtrain.train.state.checkpoint import OtherState
from embtrain.train.state.metrics_log import Metrics
from embtrain.train.state.signals import Stop


class Examples(Protocol):
    """The training data: blocks of examples that (epoch, block) alone determines."""

    def n_blocks(self, epoch: int, block: int) -> int: ...
    def blocks(self, epoch: int, block: int, start: int = 0, shuffle: bool = True) -> Iterator[Batch]: ...
    def windows(self, epoch: int, block: int, start: int = 0, shuffle: bool = True) -> Iterator[WindowBatch]: ...


@dataclass
class Position:
    """How far a run has come. Everything else that a checkpoint holds belongs to its owner."""

    epoch: int = 0
    block: int = 0
    step: int = 0                 # blocks in all
    examples: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    best: float = -math.inf       # of `better`, in the evaluations so far
    best_step: int = 0            # when that was
    waited: int = 0               # evaluations since the best
    evaluated: int = 0            # the step of the last evaluation
    reached: dict[str, float] = field(default_factory=dict)  # steps and seconds to train.target
    log_offset: int = 0
    first_loss: float | None = None  # mean over the first block


Evaluate = Callable[[], dict[str, float]]


class Trainer:
    """Everything that training changes, and the loop that changes it.

    config.engine has been chosen by train/engines/choose.py; `auto` is step here. better: the value of `evaluate` that
    early stopping looks at, higher is better. kept: is told up to which byte a checkpoint keeps the log.
    """

    def __init__(self, model: Model, source: NegativeSource, loss: Loss, examples: Examples, config: TrainConfig,
                 folder: Path, evaluate: Evaluate, answers: KnownPositives | None = None,
                 better: str = "valid/log_likelihood", kept: Callable[[int], None] = lambda _: None):
        self.model, self.source, self.loss, self.examples, self.config = model, source, loss, examples, config
        self.folder, self.evaluate, self.better, self.kept, self.at = folder, evaluate, better, kept, Position()
        self.optimizers = optimizers(model, loss, config)
        fused = config.engine == "fused"
        made: type[Step | Compiled] = FUSED[model.task] if fused else Step
        self.step = made(model, source, loss, self.optimizers, config, answers)
        self.read: Callable[..., Iterator[Any]] = examples.windows if made is Fused else examples.blocks
        self.block = choose.block_of(config, "fused" if fused else "step", source.uses_model)
        self.metrics = Metrics(folder / "metrics.jsonl")
        self.goal = target(config.target) if config.target else None

    def run(self) -> Position:
        """Train from where we stand to the end. Raises Stopped on a signal, UsageError where a number is not finite."""
        at, epochs = self.at, self.config.epochs
        n = self.examples.n_blocks(min(at.epoch, epochs - 1), self.block)
        with Stop() as stop, Progress("training", n * epochs, "blocks", at.step) as progress:
            with contextlib.suppress(Stopped):  # raised again below, when all is saved
                self._train(stop, progress)
            self.save()
            stop.check()
        return at

    def _train(self, stop: Stop, progress: Progress) -> None:
        """The loop. Wherever it raises Stopped, `save` finds a state from which the run goes on as if never stopped."""
        config, at = self.config, self.at
        begun, cpu, saved = time.monotonic(), time.process_time(), time.monotonic()
        spent, spent_cpu = at.seconds, at.cpu_seconds
        if self.goal is not None and at.step == 0:
            with stop.at_once():
                self._require_key(self.goal[0], self.evaluate())  # not after an hour of training
        while True:
            self._evaluate_if_due(stop)  # the epoch that ended, or what a signal left undone
            if at.epoch >= config.epochs or self._should_stop():
                return
            with stop.at_once():
                n = self.examples.n_blocks(at.epoch, self.block)
            if at.block == 0:
                self.source.on_epoch_start(self.step.view)
            for block in self.read(at.epoch, self.block, at.block, config.shuffle):
                self._set_rate((at.epoch + at.block / n) / config.epochs)
                log = at.block + 1 == n or (at.step + 1) % config.log_every == 0
                told = self.take(block, log)
                if at.step == 0:
                    at.first_loss = float(told.loss)
                at.block, at.step, at.examples = at.block + 1, at.step + 1, at.examples + len(block.target)
                at.seconds = spent + time.monotonic() - begun
                at.cpu_seconds = spent_cpu + time.process_time() - cpu
                if log:
                    self.log(told)
                progress.add(1, f"loss {float(told.loss):.4f}" if log else "")
                self._evaluate_if_due(stop)
                stop.check()
                if time.monotonic() - saved >= config.checkpoint_every:
                    self.save()
                    saved = time.monotonic()
                if self._should_stop():
                    return
            at.epoch, at.block = at.epoch + 1, 0

    def take(self, block: Any, keep_costs: bool = False) -> Told:
        """One step; UsageError where it stumbles over numbers that are not finite, before the next line would tell."""
        try:
            return self.step(block, keep_costs=keep_costs)
        except (RuntimeError, ValueError, IndexError, OverflowError):
            self._require_finite()
            raise
    # -- what happens now and then --------------------------------------------------------------------------------

    def _set_rate(self, done: float) -> None:
        """Linear decay from lr to min_lr over the run, under a linear warm-up over the first `warmup` blocks.

        The run is as far as its epochs, or as its CPU seconds where more of them is used up.
        """
        config = self.config
        done = max(done, self._spent())
        rate = config.lr - (config.lr - min(config.lr, config.min_lr)) * done
        if self.at.step < config.warmup:
            rate *= (self.at.step + 1) / config.warmup
        for group in self.optimizers[0].param_groups:
            group["lr"] = rate

    def log(self, told: Told) -> None:
        loss = float(told.loss)
        self._require_finite(f"the loss is {loss}" if not math.isfinite(loss) else "")
        line: dict[str, Any] = self._place()
        line |= {"lr": self.optimizers[0].param_groups[0]["lr"], "loss": loss}
        if told.cost is not None and told.query is not None and told.drawn is not None:
            line |= hardness(told.query, told.drawn, told.cost, self.step.view)
            forgiven = 0 if told.drawn.false_negatives is None else told.drawn.false_negatives.shape[1]
            line["forgiven"] = forgiven / max(1, len(told.query) * told.drawn.k)
        line |= {f"source/{name}": value for name, value in (told.source | self.source.metrics()).items()}
        line |= {f"loss/{name}": value for name, value in self.loss.metrics().items()}
        self.metrics.append(line)

    def _require_finite(self, wrong: str = "") -> None:
        """UsageError where something is `wrong` already, or a table is not finite."""
        names = [name for name, state in self._learnt().items() if not finite(state)]
        if wrong or names:
            raise not_finite(wrong or f"the {names[0]} is no longer finite", self.at.step, self.folder / "checkpoints",
                             self.config, {"model": self.model.config, "negatives": self.source.config,
                                           "loss": self.loss.config})

    def _evaluate_if_due(self, stop: Stop) -> None:
        """Evaluate and note what was reached. Stopped leaves no trace: the evaluation is due again after a resume."""
        at, every = self.at, self.config.evaluate_every
        if at.step == at.evaluated or (self._spent() < 1 and (at.step % every if every else at.block)):
            return
        self._require_finite()
        with stop.at_once():
            found = self.evaluate()
        if self.goal is not None and not at.reached:
            key, passes = self.goal
            self._require_key(key, found)
            if passes(found[key]):
                at.reached = {"step": at.step, "seconds": at.seconds, "cpu_seconds": at.cpu_seconds}
        self.metrics.append(self._place() | found)
        at.evaluated = at.step
        if self.config.patience:
            if self.better not in found:
                raise UsageError(f"train.patience: no evaluation gives {self.better} a finite value to watch; "
                                 "set train.patience: 0")
            if found[self.better] > at.best:
                at.best, at.best_step, at.waited = found[self.better], at.step, 0
                self.save()           # first: a run that is killed never goes on from before its best
                self.save("best")
            else:
                at.waited += 1

    @staticmethod
    def _require_key(key: str, found: dict[str, float]) -> None:
        if key not in found:
            raise UsageError(f"train.target: no evaluation gives {key!r}; there are: {', '.join(sorted(found))}")

    def _should_stop(self) -> bool:
        """Whether training ends before its epochs do."""
        return 0 < self.config.patience <= self.at.waited or self._spent() >= 1

    def _spent(self) -> float:
        """The share of the CPU seconds that is used up; 0 where there is no limit."""
        return 0.0 if self.config.cpu_seconds is None else self.at.cpu_seconds / self.config.cpu_seconds

    def _place(self) -> dict[str, Any]:
        at = self.at
        return {"step": at.step, "epoch": at.epoch, "examples": at.examples,
                "seconds": round(at.seconds, 3), "cpu_seconds": round(at.cpu_seconds, 3)}

    # -- state ----------------------------------------------------------------------------------------------------

    def _learnt(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), "loss": self.loss.state_dict(), "source": self.source.state_dict()}

    def save(self, where: str = "checkpoints") -> None:
        """A checkpoint, unless what was learnt is no longer finite: the last finite one is then the newest."""
        learnt = self._learnt()
        if not finite(learnt):
            return
        self.at.log_offset = self.metrics.sync()
        state = learnt | {"optimizers": [o.state_dict() for o in self.optimizers], "position": vars(self.at)}
        checkpoint.save(self.folder / where, self.at.step, state, 1 if where == "best" else self.config.keep)
        if where == "checkpoints":
            self.kept(self.at.log_offset)

    def load(self, where: str = "checkpoints") -> None:
        """Go back to the newest whole checkpoint; metrics written after it are dropped."""
        state = checkpoint.load(self.folder / where)
        try:
            self.model.load_state_dict(state["model"])
            self.loss.load_state_dict(state["loss"])
            if state["source"].keys() != self.source.state_dict().keys():
                raise ValueError("another source")
            self.source.load_state_dict(state["source"])
            for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
                if saved["param_groups"][0].keys() != optimizer.param_groups[0].keys():
                    raise ValueError("another optimizer")
                optimizer.load_state_dict(saved)
            position = Position(**state["position"])
        except (KeyError, IndexError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            raise OtherState(f"{self.folder / where}: its checkpoint is of another model, source, loss or optimizer "
                            "than config.yaml names; give the run's own config.yaml back") from error
        if where == "checkpoints":
            self.at = position
            self.metrics.truncate(self.at.log_offset)
            if position.best_step == position.step > 0:
                self.save("best")     # killed between the two


def finite(state: Any) -> bool:
    """Whether every number of a nested state's tensors is finite."""
    if isinstance(state, Tensor):
        # One number that is not finite makes the sum so; torch.isfinite takes three times the table's memory.
        return not state.is_floating_point() or math.isfinite(float(state.sum(dtype=torch.float64)))
    if isinstance(state, Mapping):
        return all(map(finite, state.values()))
    return not isinstance(state, list | tuple) or all(map(finite, state))


def optimizers(model: Model, loss: Loss, config: TrainConfig) -> list[torch.optim.Optimizer]:
    """The model's optimiser first (it follows the schedule); the loss's own parameters, such as log Z, have Adam."""
    tables = list(model.parameters())
    suit(model, config.optimizer)
    chosen: torch.optim.Optimizer
    if config.optimizer == "sgd":
        chosen = torch.optim.SGD(tables, lr=config.lr)
    elif config.optimizer == "adagrad":
        torch.sparse.check_sparse_tensor_invariants.disable()  # said aloud, or torch warns of its own sparse tensors
        chosen = torch.optim.Adagrad(tables, lr=config.lr)
    elif config.optimizer == "row-adagrad":
        chosen = RowAdagrad(tables, lr=config.lr)
    elif config.optimizer == "lazy-adam":
        chosen = LazyAdam(tables, lr=config.lr)
    else:
        chosen = Adam(tables, lr=config.lr)
    own = list(loss.parameters())
    return [chosen, torch.optim.Adam(own, lr=config.loss_lr)] if own else [chosen]
