"""Base of the losses with drawn negatives, for any PyTorch program.

    loss = embtrain.nn.SampledSoftmax("cluster", num_classes=V, num_sampled=64)
    loss(query, weight, target).backward()           # query (B, D), weight (V, D), target (B,)

Source, scores, masks and loss are the objects of the trainer (`embtrain.train.engines.autograd.Step`), so a module and
a run have the same gradient for the same draws.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, cast

import torch
from torch import Tensor, nn

from embtrain.common.config.arguments import whole_number
from embtrain.common.errors import UsageError
from embtrain.common.types import LossInput, LossOutput, Negatives, Query
from embtrain.negatives.base import NegativeSource
from embtrain.nn.arguments import MAX_SEED, in_arguments, one_of, outside_inference, scale_of, source_call, truth
from embtrain.nn.candidates import Candidates, as_draw
from embtrain.nn.duplicates import copied, restored
from embtrain.nn.rows import (
    BatchPositives,
    OutputLayer,
    Rows,
    Weight,
    check_probabilities,
    check_query,
    for_source,
    id_rows,
    in_float32,
    is_on,
    make_rows,
    masks_by_weight,
    table_of,
    without_targets,
)
from embtrain.nn.source import StreamCounts, context_sizes_of, fixed_counts, make_loss, samples, spec_of, spec_of_source
from embtrain.nn.state import VectorFormat, check_fit, check_vectors, from_tensor, load, to_tensor
from embtrain.nn.table import TableModel
from embtrain.train.checks.compatibility import incompatibilities
from embtrain.train.config import TrainConfig
from embtrain.train.engines.autograd import Step
from embtrain.train.engines.draws import costs_for_source, costs_per_example
from embtrain.train.engines.false_negatives import mark_false_negatives


class SampledLoss(nn.Module):
    """A loss of embtrain over negatives of one of its sources.

    negatives: name of a source (`embtrain list`), or a source, which has all settings of its own. num_classes: V.
    num_sampled: negatives per draw; None: 64, or those of a source that does not sample (every, none).
    loss: name of a loss; loss_options: its keys. options: keys of the source, e.g. exponent=0.75.
    counts: (V,) how often each class is a target; None: counted during training, from 1 each.
    share: rows with the same negatives: "row", "query" (all targets of a query), "block" or "batch"; None: "batch" if
    the source can and does not learn. filter: "none", "target" (a drawn class that is the row's target is masked),
    "observed" (any target of the row's query is masked); None: as the loss requires.
    similarity: "dot", or "cosine" times `scale`. frozen: the weight has rows of length 1 and is not trained, as
    losses of continuous outputs need. num_contexts: number of values of `context`, or of each of its columns.
    sparse: sparse gradients of a weight that is a tensor; an nn.Embedding sets its own. refresh: training calls between
    two rebuilds of what a source derives from the weight, in addition to its own intervals; 0: none.
    reduction: "mean", "sum" or "none". ignore_index: targets without a row. seed: of draws and of parameters; another
    one for each process that trains the model.

    Raises UsageError for wrong types and values, and for combinations that do not exist. A module belongs to the device
    of its first call.
    """

    loss_name: ClassVar[str] = "sampled_softmax"
    loss_defaults: ClassVar[Mapping[str, Any]] = {}
    default_filter: ClassVar[Literal["none", "target"]] = "target"

    def __init__(self, negatives: str | NegativeSource = "unigram", *, num_classes: int, num_sampled: int | None = None,
                 loss: str | None = None, counts: Tensor | Sequence[float] | None = None,
                 share: Literal["row", "query", "block", "batch"] | None = None,
                 filter: Literal["none", "target", "observed"] | None = None,
                 similarity: Literal["dot", "cosine"] = "dot", scale: float = 1.0, frozen: bool = False,
                 num_contexts: int | Sequence[int] | None = None, sparse: bool = False, refresh: int = 1000,
                 reduction: Literal["mean", "sum", "none"] = "mean", ignore_index: int | None = None, seed: int = 0,
                 loss_options: Mapping[str, Any] | None = None, **options: Any):
        super().__init__()
        self.num_classes = num_classes = whole_number("num_classes", num_classes, 2)
        one_of("similarity", similarity, ("dot", "cosine"))
        one_of("reduction", reduction, ("mean", "sum", "none"))
        seed, self.refresh = whole_number("seed", seed, 0, MAX_SEED), whole_number("refresh", refresh)
        self.sparse, self._frozen, self.reduction = truth("sparse", sparse), truth("frozen", frozen), reduction
        self.ignore_index = None if ignore_index is None else whole_number("ignore_index", ignore_index, None)
        self._similarity, self._scale = similarity, scale_of(scale, similarity)
        if isinstance(negatives, NegativeSource):
            own = {"num_sampled": num_sampled, "counts": counts, "share": share, "filter": filter,
                   "num_contexts": num_contexts, **options}
            self._spec = spec_of_source(negatives, num_classes, seed, own)
            self._given: NegativeSource | None = negatives
            self._counts: Tensor | None = negatives.problem.counts                    # (V,)
        else:
            self._spec = spec_of(negatives, num_sampled, options, share, self.default_filter if filter is None
                                 else filter, seed, context_sizes_of(num_contexts))
            self._given, self._counts = None, None if counts is None else fixed_counts(counts, num_classes)
        self._stream = StreamCounts(num_classes) if self._counts is None and self._given is None else None
        known = torch.ones(num_classes, dtype=torch.float64, device="cpu") if self._counts is None else self._counts
        self.loss = make_loss(self.loss_name if loss is None else loss, self.loss_defaults, loss_options,
                              self._spec.problem(known, 0, torch.device("cpu")))
        self._step: Step | None = None                       # built at the first call, which has D and the device
        self._pending: Mapping[str, Any] | None = None       # state that was loaded before the first call
        self._vectors: VectorFormat | None = None            # of the latest call
        self._n_calls, self._learnt = 0, dict[str, float]()
        self._new_seed: int | None = None                    # of `reseed`, until the next call

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def forward(self, query: Tensor, weight: Weight, target: Tensor, bias: Tensor | None = None,
                candidates: Candidates | Tensor | None = None, *, context: Tensor | None = None) -> Tensor:
        """Return the loss: (), or the shape of `target` with reduction="none". Without a target, 0: nothing is drawn.

        query: (B, D). weight: (V, D), an nn.Embedding or an nn.Linear. target: (B,) or (B, T) int64. bias: (V,).
        candidates: the negatives of this call, instead of drawn ones. context: ids that the queries were made from,
        (B,) or (B, C), for sources that learn a distribution for each (ace, kbgan). Raises UsageError.
        """
        table = table_of(weight, bias, self.sparse, self.num_classes, self._similarity == "dot")
        rows = make_rows(query, table, target, context, self.ignore_index, self._spec.context_sizes)
        if not len(rows.query):
            return rows.zero_loss(table, self.parameters(), self.reduction)
        step = self._prepare(rows, table)
        try:
            scored, output, drawn = self._loss(step, rows, candidates)
            if candidates is None and self.training and torch.is_grad_enabled() and step.source.traits.learns \
                    and output.per_example.requires_grad:
                self._learn_in_backward(step.source, rows.query, drawn, scored, output)
        finally:
            cast(TableModel, step.model).release()
        return rows.reduce(output.per_example, self.reduction)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    @torch.no_grad()
    def log_prob(self, query: Tensor, weight: Weight, ids: Tensor, bias: Tensor | None = None, *,
                 target: Tensor | None = None, context: Tensor | None = None) -> Tensor:
        """Return log q of ids (K,) or (B, K) under the source, (B, K). Draws nothing.

        target: (B,), for a source that never draws it. UsageError if it is missing, or if the source has no density.
        """
        table = table_of(weight, bias, self.sparse, self.num_classes, self._similarity == "dot")
        check_query(query, table)
        ids = id_rows("ids", ids, len(query), self.num_classes, table.weight.device)
        zero = torch.zeros(len(query), dtype=torch.int64, device=query.device)
        rows = make_rows(query, table, zero if target is None else target, context, None, self._spec.context_sizes)
        if len(rows.query) != len(query):
            raise UsageError(f"target: has the shape {rows.shape}; it should be ({len(query)},)")
        source = (step := self._prepare(rows, table, is_training=False)).source
        if source.traits.density == "none" or type(source).log_prob is NegativeSource.log_prob:
            raise UsageError(f"negatives: {source.name} has no probability of a draw; use another source")
        if target is None and getattr(source.config, "exclude_target", False):
            raise UsageError(f"target: is missing, and {source.name} never draws it; pass it, or make the module with "
                             "exclude_target=False")
        try:
            with source_call(table.weight.device):
                source.prepare_log_prob(step.view)
                return source.log_prob(for_source(rows.query), ids).expand(len(query), -1)
        finally:
            cast(TableModel, step.model).release()

    @property
    def source(self) -> NegativeSource | None:
        """The source; None before the first call."""
        return self._given if self._step is None else self._step.source

    def reseed(self, seed: int) -> None:
        """Draw by another seed from the next call on. Processes that load one state need a seed each."""
        self._new_seed = whole_number("seed", seed, 0, MAX_SEED)

    def metrics(self) -> dict[str, float]:
        """Values of the source and of the loss at the latest call, for a log."""
        return {**self._learnt, **({} if self.source is None else self.source.metrics()), **self.loss.metrics()}

    # -- one call -------------------------------------------------------------------------------------------------

    def _loss(self, step: Step, rows: Rows, candidates: Candidates | Tensor | None
              ) -> tuple[LossInput, LossOutput, Negatives]:
        """Draw or take the negatives, mask, score, and compute the loss."""
        query, source = rows.query, step.source
        if candidates is None and len(query) < source.traits.min_batch_size:
            raise UsageError(f"query: {len(query)} row with a target; {source.name} takes the other targets of the "
                             "batch as negatives and needs two or more; make the batch larger or leave it out")
        reader = for_source(query, self.training)
        with torch.no_grad(), source_call(query.target.device):
            drawn = source.draw(reader, source.config.k, step.view) if candidates is None \
                else as_draw(candidates, rows, self.num_classes, self.loss.traits.needs_q)
        check_probabilities(drawn.log_q_target, query.target, source, self.loss)
        by_weight = masks_by_weight(source, self.loss, drawn, query.vector.device)
        if not by_weight:
            drawn = mark_false_negatives(drawn, replace(reader, context=rows.owner), source.config.filter,
                                         BatchPositives(rows.targets))
        scored = replace(step.score(query, drawn), query=in_float32(query))
        scored = without_targets(scored) if by_weight else scored
        with torch.autocast(query.vector.device.type, enabled=False), \
                in_arguments(has_candidates=candidates is not None):
            return scored, self.loss(scored), drawn

    def _learn_in_backward(self, source: NegativeSource, query: Query, drawn: Negatives, scored: LossInput,
                           output: LossOutput) -> None:
        """Pass the costs of the negatives to the source when the gradient of this call is computed, once."""
        waiting = [costs_for_source(source, costs_per_example(output, scored, len(query)), drawn)]

        def learn(_: Tensor) -> None:
            if waiting:
                with torch.enable_grad(), source_call(query.target.device):       # a generator may compute a gradient
                    self._learnt = source.learn(for_source(query), drawn, waiting.pop())

        output.per_example.register_hook(learn)  # type: ignore[no-untyped-call]

    # -- building -------------------------------------------------------------------------------------------------

    @outside_inference()                                    # all that is created here also serves training
    def _prepare(self, rows: Rows, table: OutputLayer, is_training: bool | None = None) -> Step:
        """The step of this call, with the source built or refreshed. is_training: None: as the module is."""
        training = self.training if is_training is None else is_training
        if (vectors := VectorFormat.read(rows.query.vector, table)) != self._vectors:
            check_vectors(vectors, self._vectors, self._spec, self._source_state())
            self._vectors = vectors
        if self._pending is not None:                        # it fits the counts before those of this call
            self._build(table.weight.device)
        is_due = self._stream is not None and training and self._stream.add(rows.query.target.detach())
        is_renewed = is_due and self._step is not None and self._step.source.traits.uses_counts
        if self._step is None or is_renewed:
            self._build(table.weight.device)
        assert self._step is not None
        if not is_on(table.weight.device, device := self._step.source.problem.device):
            raise UsageError(f"weight: is on {table.weight.device}, but the source is on {device}; make one module for "
                             "each device")
        if self._new_seed is not None:
            self._step.source.reseed(self._new_seed)
            self._new_seed = None
        cast(TableModel, self._step.model).use(table.weight, table.bias, table.sparse)
        if training:
            if self._n_calls == 0 or is_renewed or (self.refresh and self._n_calls % self.refresh == 0):
                with source_call(table.weight.device):
                    self._step.source.on_epoch_start(self._step.view)
            self._n_calls += 1
        return self._step

    def _build(self, device: torch.device) -> None:
        """Build the source, or build it again for new counts; it then keeps what does not depend on them."""
        counts = self._stream.used if self._stream is not None else self._counts
        assert counts is not None and self._vectors is not None
        with in_arguments():
            source = self._given or self._spec.build(counts.cpu(), self._vectors.n_columns, device)
            model = TableModel(source.problem, self._similarity, self._scale, self._frozen)
            if reasons := incompatibilities(source, self.loss, model):
                raise UsageError(*reasons)
        if self._stream is not None and source.traits.learns and source.traits.uses_counts:
            raise UsageError(f"counts: {source.name} learns a distribution over classes in the order of their counts; "
                             "pass counts=, a number for each class")
        if self._step is not None:
            source.grow_from(self._step.source, torch.arange(self.num_classes, device=device))
        elif self._pending is not None:
            load(source, self._pending)
        self._pending, self._step = None, Step(model, source, self.loss, [], TrainConfig(engine="autograd"))

    # -- state ----------------------------------------------------------------------------------------------------

    def extra_repr(self) -> str:
        k = f", num_sampled={self._spec.config.k}" if samples(self._spec.source_class) else ""
        return f"{self._spec.source_class.name}, num_classes={self.num_classes}{k}"

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles have the state as bytes for a spawned process, or a source object of the user."""
        return copied(self.__dict__, self._given, self._saved)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state := restored(state))  # type: ignore[no-untyped-call]
        self.set_extra_state(torch.frombuffer(bytearray(state["_pending"]), dtype=torch.uint8))

    def _source_state(self) -> Mapping[str, Any] | None:
        """State of the source; None before it is built."""
        return self._pending if self.source is None or self._pending is not None else self.source.state_dict()

    def get_extra_state(self) -> Tensor:
        """State of the source and of the counts as one tensor (n,) uint8. n grows when the source is built."""
        return self._saved()

    def _saved(self, kept: NegativeSource | None = None) -> Tensor:
        return to_tensor({
            "negatives": self._spec.source_class.name, "classes": self.num_classes, "settings": self._spec.config.own(),
            "contexts": self._spec.context_sizes, "calls": self._n_calls,
            "source": self._source_state() if kept is None else self._pending,
            "vectors": None if self._vectors is None else tuple(self._vectors), "new_seed": self._new_seed,
            "counts": None if self._stream is None else self._stream.state_dict()})

    @outside_inference()
    def set_extra_state(self, saved: Tensor) -> None:
        """Restore `get_extra_state`. A source that is not built yet receives its state at the first call."""
        state = from_tensor(saved)
        check_fit(state, self._spec, self.num_classes, self._stream is not None)
        if self._stream is not None:
            self._stream.load_state_dict(state["counts"])
        self._vectors = None if state["vectors"] is None else VectorFormat(*state["vectors"])
        self._pending, self._step = state["source"], None
        self._n_calls, self._new_seed = state["calls"], state["new_seed"]
