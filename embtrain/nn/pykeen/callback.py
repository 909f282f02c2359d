"""Training callback of PyKEEN: gives a sampler the model, and a source that learns the costs of its negatives.

PyKEEN's loop passes no scores to callbacks. The callback therefore reads them at the loss: during each batch it shadows
the method `process_slcwa_scores` of the one loss object, stores the scores that the loop computed, and calls the
method. Nothing is scored twice. No callback runs after an exception or an interrupt in a batch, so the epoch of the
loop is wrapped, and restores the loss in any case.
"""

from __future__ import annotations

from typing import Any

import torch
from pykeen.losses import (
    AdversarialBCEWithLogitsLoss,
    BCEAfterSigmoidLoss,
    BCEWithLogitsLoss,
    NSSALoss,
    SoftplusLoss,
)
from pykeen.sampling import NegativeSampler, negative_sampler_resolver
from pykeen.training import SLCWATrainingLoop, TrainingCallback
from pykeen.training.callbacks import callback_resolver
from torch import Tensor

from embtrain.common.errors import UsageError
from embtrain.losses.base import softplus
from embtrain.nn.pykeen.samplers import SAMPLERS, EmbtrainNegativeSampler
from embtrain.nn.pykeen.view import Connection

CROSS_ENTROPIES = (AdversarialBCEWithLogitsLoss, BCEAfterSigmoidLoss, BCEWithLogitsLoss, SoftplusLoss)


class EmbtrainTrainingCallback(TrainingCallback):
    """Connects a sampler of embtrain with the training loop, and logs the metrics of its source after each epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.connection: Connection | None = None
        self.scores = list[Tensor]()  # of the negatives of the batch, a tensor for each part of it
        self.metrics: dict[str, float] = {}

    @property
    def sampler(self) -> EmbtrainNegativeSampler:
        """The sampler that drew the current batch."""
        assert self.connection is not None
        return self.connection.sampler

    def register_training_loop(self, training_loop: Any) -> None:
        """Connect the loop's sampler. Raises UsageError if the loop draws none of embtrain's negatives."""
        super().register_training_loop(training_loop)
        hint = getattr(training_loop, "negative_sampler", None)  # an instance, a class, a name or None
        kind = type(hint) if isinstance(hint, NegativeSampler) else negative_sampler_resolver.lookup(hint)
        if not isinstance(training_loop, SLCWATrainingLoop) or not issubclass(kind, EmbtrainNegativeSampler):
            raise UsageError("callbacks: embtrain: needs training_loop='sLCWA' and one of embtrain's negative "
                             "samplers; set negative_sampler, or remove the callback")
        training_loop._train_epoch = self._train_epoch
        self.connection = Connection(training_loop)
        if isinstance(hint, NegativeSampler):
            hint.connect(self.connection)
        else:
            kwargs = training_loop.negative_sampler_kwargs or {}
            training_loop.negative_sampler_kwargs = {**kwargs, "connection": self.connection}

    def _train_epoch(self, *args: Any, **kwargs: Any) -> Any:
        """Train an epoch with the method of the loop, and restore the loss, also if a batch fails."""
        try:
            return type(self.training_loop)._train_epoch(self.training_loop, *args, **kwargs)
        finally:
            self.loss.__dict__.pop("process_slcwa_scores", None)

    def pre_batch(self, **kwargs: Any) -> None:
        """Begin to read scores at the loss. Raises UsageError if another process drew the batch."""
        if self.sampler is None or self.sampler.last is None:
            raise UsageError("training_kwargs: num_workers: the callback embtrain needs draws in the process that "
                             "trains; set num_workers: 0")
        if self.sampler.source.traits.learns:
            self.scores.clear()
            self.loss.process_slcwa_scores = self._read_scores

    def _read_scores(self, *, negative_scores: Tensor, batch_filter: Tensor | None = None, **arguments: Any) -> Any:
        """Store the scores of a part of the batch, (b, K) or flat without masked ones, and return the loss."""
        scores = negative_scores.detach()
        if batch_filter is not None:
            scores = scores.new_zeros(batch_filter.shape).masked_scatter(batch_filter, scores)
        self.scores.append(scores)
        return type(self.loss).process_slcwa_scores(self.loss, negative_scores=negative_scores,
                                                    batch_filter=batch_filter, **arguments)

    def pre_step(self, **kwargs: Any) -> None:
        """Return the costs of the batch to the source, before the optimizer changes the model."""
        sampler = self.sampler
        if sampler.source.traits.learns:
            del self.loss.process_slcwa_scores
            cost, probes = costs(self.loss, torch.cat(self.scores).float().cpu()), sampler.probes()
            self.metrics = sampler.learn(cost, None if probes is None else costs(self.loss, probes))
        sampler.last = None

    def post_epoch(self, epoch: int, epoch_loss: float, **kwargs: Any) -> None:
        """Log the latest metrics, and start the next epoch of the source."""
        self.result_tracker.log_metrics(self.metrics, step=epoch, prefix=self.sampler.name)
        self.sampler.start_epoch()


def costs(loss: Any, scores: Tensor) -> Tensor:
    """Return the costs of negatives with scores (B, K), as embtrain's loss of the same formula defines them.

    softplus(s) for binary cross-entropies (CROSS_ENTROPIES), softplus(margin + s) for NSSALoss, s for all others.
    """
    if isinstance(loss, NSSALoss):
        return softplus(loss.margin + scores)
    return softplus(scores) if isinstance(loss, CROSS_ENTROPIES) else scores


def register() -> None:
    """Add the samplers and the callback to PyKEEN's names, as it has no entry points for either.

    `negative_sampler="embtrain-bernoulli"`, `-degree`, `-nscaching`, `-kbgan` or `-ace`; `callbacks="embtrain"`.
    """
    for sampler in SAMPLERS:
        negative_sampler_resolver.register(sampler, raise_on_conflict=False)
    callback_resolver.register(EmbtrainTrainingCallback, raise_on_conflict=False)
