"""Chooses the training engine and gives the reasons against the compiled one.

autograd   PyTorch: every model, source, loss and optimizer, on any device; an update covers a batch.
fused  the compiled core on the CPU: skip-gram, CBOW, TransE, DistMult, order embeddings, Poincaré embeddings, cones and
       shadow cones; an update covers one window of text, one query of a triple or one pair of concepts, or those that
       share a draw. On a GPU, Triton kernels: skip-gram, TransE, DistMult, order.

On a window, query or pair without repeated rows both make the same update.
"""

from __future__ import annotations

from embtrain.common.errors import ResourceError, UsageError
from embtrain.kernels.core.loader import core
from embtrain.kernels.device.support import has_triton
from embtrain.losses.base import LossConfig
from embtrain.models import base as models
from embtrain.models.base import ModelConfig
from embtrain.models.hierarchies.cone import ConeConfig
from embtrain.models.hierarchies.order import OrderConfig
from embtrain.models.hierarchies.poincare import PoincareConfig
from embtrain.models.hierarchies.shadow_cone import ShadowConeConfig
from embtrain.models.triples.distmult import DistMultConfig
from embtrain.models.triples.transe import TransEConfig
from embtrain.models.words.cbow import CbowConfig
from embtrain.models.words.skipgram import SkipGramConfig
from embtrain.negatives.base import NegativesConfig, NegativeSource
from embtrain.train.config import TrainConfig
from embtrain.train.engines import base, compiled_pairs
from embtrain.train.engines.base import Engine
from embtrain.train.engines.device.limits import why_not_fused_on_gpu

FLOAT64_MODELS = (ConeConfig, ShadowConeConfig, PoincareConfig)
PAIR_MODELS = (OrderConfig, *FLOAT64_MODELS)
MODELS = (SkipGramConfig, CbowConfig, TransEConfig, DistMultConfig, *PAIR_MODELS)
LOSSES = ("logistic", "nce", "sampled_softmax", "margin", "gbce")
WORD_LOSSES = (*LOSSES, "alpha_nce")
TRIPLE_LOSSES = (*LOSSES, "self_adversarial")
OPTIMIZERS = ("sgd", "row-adagrad")
MAX_UNITS_PER_DRAW = 1024  # windows or queries that may share a draw: they are updated at once


def why_not_fused(model: ModelConfig, source: type[NegativeSource], negatives: NegativesConfig, loss: LossConfig,
                  train: TrainConfig, compiled: bool) -> list[str]:
    """Reasons why the compiled engine cannot train this, with the keys at fault; empty if it can.

    A model of another package or of the user has a reason even if it derives from a model that the kernels support.

    compiled: whether the kernels of the device are there, as `has_kernels` returns.
    """
    if not isinstance(model, MODELS):  # then no other key can help
        return [f"model.name: {model.name}: the kernels support only {', '.join(m().name for m in MODELS)}"]
    if models.find(model.name).__module__.partition(".")[0] != __name__.partition(".")[0]:
        return [f"model.name: {model.name}: is not a model of embtrain, and the kernels would replace methods that it "
                "may override"]
    losses = TRIPLE_LOSSES if not isinstance(model, SkipGramConfig) else \
        WORD_LOSSES if train.device == "cpu" else LOSSES
    checks = [
        (isinstance(model, SkipGramConfig) and model.similarity != "dot",
         "model.similarity: cosine: the kernels score by dot"),
        (isinstance(model, SkipGramConfig) and model.output_table.frozen,
         "model.output_table.frozen: the kernels train both tables"),
        (isinstance(model, SkipGramConfig) and model.freeze != "none", "model.freeze: the kernels train every row"),
        (isinstance(model, DistMultConfig) and model.penalty > 0,
         "model.penalty: the kernels have no regularizer; 0 turns it off"),
        (source.traits.exhaustive or not source.traits.components,
         f"negatives.source: {negatives.source}: the kernels need a few drawn negatives, not all and not none"),
        ("synthetic" in source.traits.components,
         f"negatives.source: {negatives.source}: its negatives are vectors, but the kernels need ids"),
        (not source.traits.standard_layout,
         f"negatives.source: {negatives.source}: its draws are shared by a batch; the kernels need draws according to "
         "negatives.share_draws_by"),
        (not source.traits.equal_total_weights
         and not (isinstance(model, PAIR_MODELS) and compiled_pairs.takes_any_total_weight(loss, train)),
         f"negatives.source: {negatives.source}: its draws have a total weight for each row; the kernels need the same "
         "one for all, except those of pairs with hinges"),
        (negatives.share_draws_by == "batch", "negatives.share_draws_by: batch: there are no batches; share_draws_by: "
                                              "block is closest"),
        (negatives.share_draws_by == "block" and negatives.share_size > MAX_UNITS_PER_DRAW,
         f"negatives.share_size: {negatives.share_size}: at most {MAX_UNITS_PER_DRAW} windows are updated together"),
        *(compiled_pairs.why_not_fused_pairs(model, source, negatives, loss) if isinstance(model, PAIR_MODELS) else
          [(loss.name not in losses, f"loss.name: {loss.name}: the kernels support {', '.join(losses)}")]),
        (getattr(loss, "absolute", False), "loss.absolute: the kernels compute the softmax of scores, not of absolute "
                                           "scores"),
        (loss.penalty > 0, "loss.penalty: the kernels have no exact log Z; 0 turns it off"),
        (train.optimizer not in OPTIMIZERS, f"train.optimizer: {train.optimizer}: the kernels support "
                                            f"{' and '.join(OPTIMIZERS)}"),
        (train.clip is not None, "train.clip: the gradient of a whole update is never formed, so it cannot be clipped"),
        (train.reduction != "sum", f"train.reduction: {train.reduction}: there is no batch to reduce over"),
        *(why_not_fused_on_gpu(model, negatives, train, compiled) if train.device != "cpu" else
          [(not compiled, "there is no compiled core; `embtrain doctor` shows why and how to get it")]),
    ]
    return [reason for applies, reason in checks if applies]


def choose(model: ModelConfig, source: type[NegativeSource], negatives: NegativesConfig, loss: LossConfig,
           train: TrainConfig) -> tuple[TrainConfig, list[str]]:
    """Resolve the engine and the block size of `train`.

    Returns the resolved config, and why `auto` did not choose `fused`. Raises UsageError if `fused` was requested and
    cannot be used, ResourceError if only the compiled library, or Triton for a GPU, is missing.
    """
    compiled = has_kernels(train)
    reasons = [] if train.engine == "autograd" else why_not_fused(model, source, negatives, loss, train, compiled)
    if train.engine == "fused" and reasons:
        kind = UsageError if why_not_fused(model, source, negatives, loss, train, compiled=True) else ResourceError
        raise kind(*(f"train.engine: fused: {reason}" for reason in reasons))
    engine = "autograd" if train.engine == "autograd" or reasons else "fused"
    chunk = block_size(train, engine, source.traits.uses_model, models.find(model.name).task)
    return train.model_copy(update={"engine": engine, "chunk": chunk}), reasons


def why_not_by_rows(source: type[NegativeSource], loss: LossConfig, train: TrainConfig) -> list[str]:
    """Reasons why updates by autograd do not read and write a few rows alone, with the keys at fault."""
    checks = [
        (train.optimizer not in OPTIMIZERS, f"train.optimizer: {train.optimizer}: it keeps a table of its own; set "
                                            f"{' or '.join(OPTIMIZERS)}"),
        (source.traits.exhaustive or not source.traits.components,
         f"negatives.source: {source.name}: each update reads every row; choose a source that draws a few"),
        (loss.penalty > 0, "loss.penalty: the exact log Z reads every row; 0 turns it off"),
    ]
    return [reason for applies, reason in checks if applies]


def require_tables_in_files(model: ModelConfig, source: type[NegativeSource], negatives: NegativesConfig,
                            loss: LossConfig, train: TrainConfig) -> None:
    """Raise UsageError if the tables should be in files, which is possible only where updates on the CPU read and write
    a few rows: by the compiled engine, or by autograd for models whose `updates_rows` is set."""
    if train.tables == "memory":
        return
    reasons = why_not_by_rows(source, loss, train) if model.updates_rows else \
        why_not_fused(model, source, negatives, loss, train, has_kernels(train))
    if train.device != "cpu":
        reasons = [f"train.device: {train.device}: only the CPU trains tables in files"]
    if isinstance(model, FLOAT64_MODELS):
        reasons = [f"model.name: {model.name}: only tables of float32 can be in files"]
    if train.engine == "autograd" and not model.updates_rows:
        reasons = ["train.engine: autograd: only the compiled engine trains tables in files"]
    if reasons:
        raise UsageError(*(f"train.tables: {train.tables}: {why}; or set train.tables: memory" for why in reasons))


def has_kernels(train: TrainConfig) -> bool:
    """Whether the kernels of the device are there: the compiled core, or Triton."""
    return core() is not None if train.device == "cpu" else has_triton()


def block_size(train: TrainConfig, engine: str, uses_model: bool, task: str) -> int:
    """Centres or queries per block, for the models of a task.

    A call of the core costs as much as a hundred windows, so `fused` uses larger blocks. A source that uses the model
    draws from the model as of the start of the block, so it gets the same block size under both engines. On a GPU a
    block should take longer than the host needs to prepare the next one.
    """
    if train.chunk is not None:
        return train.chunk
    return Engine.default_block_size if uses_model else _find(engine, train.device, task).default_block_size


def engine_class(train: TrainConfig, task: str) -> type[Engine]:
    """Return the class of the engine that trains the models of a task. `auto` means `autograd` here."""
    return _find("autograd" if train.engine == "auto" else train.engine, train.device, task)


def _find(engine: str, device: str, task: str) -> type[Engine]:
    return base.find(engine).for_task(task, "cpu" if device == "cpu" else "cuda")
