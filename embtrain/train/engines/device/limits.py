"""Reasons against the kernels on a GPU, beyond those against the compiled core."""

from __future__ import annotations

from embtrain.kernels.device.support import MAX_TILE, max_negatives
from embtrain.models.base import ModelConfig
from embtrain.models.hierarchies.order import OrderConfig
from embtrain.models.triples.distmult import DistMultConfig
from embtrain.models.triples.transe import TransEConfig
from embtrain.models.words.cbow import CbowConfig
from embtrain.models.words.skipgram import SkipGramConfig
from embtrain.negatives.base import NegativesConfig
from embtrain.train.config import TrainConfig

MODELS = (SkipGramConfig, TransEConfig, DistMultConfig, OrderConfig)


def why_not_fused_on_gpu(model: ModelConfig, negatives: NegativesConfig, train: TrainConfig, has_kernels: bool
                         ) -> list[tuple[bool, str]]:
    """Reasons against the kernels on a GPU, beyond those of `why_not_fused`: (applies, message)."""
    limit, is_skip_gram = max_negatives(model.dim), isinstance(model, SkipGramConfig)
    return [
        (isinstance(model, CbowConfig) or not isinstance(model, MODELS),
         f"train.device: {train.device}: {model.name} has no kernel on a GPU"),
        (isinstance(model, SkipGramConfig) and model.subword is not None,
         "model.subword: the kernels on a GPU have no pooled rows"),
        (is_skip_gram and negatives.k > limit,
         f"negatives.k: {negatives.k}: the kernels on a GPU keep a draw in registers, where {limit} negatives of "
         f"{model.dim} dimensions fit"),
        (model.dim > MAX_TILE, f"model.dim: {model.dim}: the kernels on a GPU keep a row in registers, where "
                               f"{MAX_TILE} dimensions fit"),
        (not has_kernels, f"train.device: {train.device}: the kernels on a GPU need the package triton; pip install "
                          "'embtrain[gpu]'"),
    ]
