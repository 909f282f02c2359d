"""Encoder-decoder that predicts the vector of the next word from the source and the previous words.

    x_s = u_{source_s}      y_t = W v_{word_t−1} (`tied`) or w_{word_t−1}
    h_t = decoder state (recurrent.py, transformer.py)      ê_t = O drop(h_t) + b  (D numbers)
    s(t, b) = τ cos(ê_t, v_b)      (`similarity: cosine`)
    s(t, b) = ê_t · v_b            (`similarity: dot`)

v (V, D) is frozen (models/output_table.py) or trained. Losses receive one row per predicted word, with ê_t not
normalized. The start of a translation has an embedding of its own that cannot be predicted. Dropout masks depend on the
seed and the number of updates only.
Kumar and Tsvetkov 2019; Bhat, Kumar and Tsvetkov 2019.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from embtrain.common.types import Batch, ProblemSpec, Query
from embtrain.models.base import Model, ModelConfig
from embtrain.models.nmt.network import DecoderState, Dropout, Memory, Net, init_parameters
from embtrain.models.nmt.recurrent import Recurrent
from embtrain.models.nmt.transformer import Transformer
from embtrain.models.output_table import OutputTableConfig, initial_table, register_table
from embtrain.models.products import cosine_scores, dot_scores

MAX_POSITIONS = 16_384  # words per piece in evaluation


class NmtConfig(ModelConfig):
    """Configuration keys of the translation model."""

    name: str = Field("nmt", description="model, a module of embtrain.models")
    dim: int = Field(300, ge=1, le=65_536, description="D, embedding dimension")
    net: Literal["recurrent", "transformer"] = Field("recurrent", description="LSTMs with attention, or a Transformer")
    hidden: int = Field(256, ge=2, le=65_536, multiple_of=2, description="H, hidden size")
    embed: int = Field(192, ge=1, le=65_536, description="E, embedding dimension of the input words")
    input_feeding: bool = Field(
        False, description="recurrent: input feeding of the last attention state; slower, word by word")
    layers: int = Field(2, ge=1, le=64, description="transformer: number of encoder layers and of decoder layers")
    heads: int = Field(4, ge=1, le=1024, description="transformer: attention heads")
    dropout: float = Field(0.1, ge=0, lt=1, description="dropout probability of words, states and outputs; 0: none")
    tied: bool | None = Field(
        None, description="embed previous target words by the output table; null: if that table is frozen")
    similarity: Literal["dot", "cosine"] = Field("dot", description="inner product, or cosine scaled by tau")
    tau: float = Field(1.0, gt=0, le=10_000, description="inverse temperature of cosine")
    output_table: OutputTableConfig = Field(
        OutputTableConfig(kind="sphere"), description="initialization of the output table")

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        if self.net == "transformer" and self.hidden % self.heads:
            raise ValueError(f"hidden {self.hidden} is not a multiple of heads {self.heads}")
        return self


class Nmt(Model):
    """Translation model.

    u, w ~ U(−1, 1) √(3/E), of length about 1; v, if trained, the same over D (dot: a tenth of it).
    """

    name: ClassVar[str] = "nmt"
    Config = NmtConfig
    task: ClassVar[str] = "translation"
    config: NmtConfig

    def __init__(self, config: NmtConfig, problem: ProblemSpec):
        super().__init__(config, problem)
        assert problem.n_features is not None, "the source words are counted there"
        self.geometry = config.similarity
        self.tau = config.tau if config.similarity == "cosine" else 1.0
        D, E, H, V = config.dim, config.embed, config.hidden, problem.n_candidates
        random = torch.Generator().manual_seed(problem.seed)
        def uniform(shape: tuple[int, int], scale: float = 1.0) -> Tensor:
            toss = torch.rand(shape, generator=random, dtype=torch.float32, device="cpu")
            return (toss * 2 - 1) * (3 / shape[1]) ** 0.5 * scale
        self.u = nn.Parameter(uniform((problem.n_features, E)))
        table = initial_table(config.output_table, problem, D)
        register_table(self, "v", uniform((V, D), 1.0 if config.similarity == "cosine" else 0.1)
                       if table is None else table, config.output_table.frozen)
        self.has_frozen_table = config.output_table.frozen
        tied = self.has_frozen_table if config.tied is None else config.tied
        self.v: Tensor
        with torch.device("meta"):                           # PyTorch's initialization would use the global generator
            self.read_w = nn.Linear(D, E, bias=False) if tied else None
            self.net: Net = (Recurrent(E, H, config.input_feeding) if config.net == "recurrent"
                             else Transformer(E, H, config.layers, config.heads))
            self.head = nn.Linear(H, D)
        self.w = nn.Parameter(uniform((1 if tied else V + 1, D if tied else E)))  # last row: start of a translation
        for part in (self.read_w, self.net, self.head):
            if part is not None:
                init_parameters(part.to_empty(device="cpu"), random)
        self.to(problem.device)
        self.updates = 0

    # --- training and evaluation: all words of a batch at once ------------------------------------------------------

    def encode(self, batch: Batch) -> Query:
        drop = self._dropout()
        if self.training:
            h = drop(self._decoder_states(batch, drop))
        else:
            pieces = [self._decoder_states(piece, drop) for piece in batch.pieces(MAX_POSITIONS)]  # type: ignore[attr-defined]
            h = torch.cat(pieces) if pieces else self.u.new_zeros(0, self.config.hidden)
        prev_tokens = batch.prev_tokens.flatten()[batch.position]                           # type: ignore[attr-defined]
        return Query(self.head(h), prev_tokens, batch.target, batch.slot, None, batch.window)  # type: ignore[attr-defined]

    def _decoder_states(self, batch: Batch, drop: Dropout) -> Tensor:
        """Return the decoder state of each predicted word, (B, H), without padding, to save work in the head.
        """
        memory = self.encode_source(batch.source, batch.length, drop)                # type: ignore[attr-defined]
        states, _ = self.net.decode(memory, self._embed_targets(batch.prev_tokens), drop)  # type: ignore[attr-defined]
        return states.flatten(0, 1)[batch.position]                               # type: ignore[attr-defined]

    def _embed_targets(self, tokens: Tensor) -> Tensor:
        """Embed previous target words (...): (..., E)."""
        if self.read_w is None:
            return nn.functional.embedding(tokens, self.w, sparse=self.sparse)
        V = self.problem.n_candidates
        rows = nn.functional.embedding(
            tokens.clamp(max=V - 1), self.v, sparse=self.sparse and not self.has_frozen_table
        )
        return self.read_w(torch.where((tokens == V).unsqueeze(-1), self.w[0], rows))

    def _dropout(self) -> Dropout:
        """Return the dropout function of this update; the identity in evaluation."""
        p = self.config.dropout
        if not self.training or p == 0:
            return lambda x: x
        random = torch.Generator(self.u.device).manual_seed(_dropout_seed(self.problem.seed, self.updates))
        def drop(x: Tensor) -> Tensor:
            is_kept = torch.rand(x.shape, generator=random, dtype=torch.float32, device=x.device) >= p
            return x * (is_kept.float() / (1 - p))
        return drop

    def after_update(self, batch: Batch) -> None:
        self.updates += 1

    # --- beam search: word by word ----------------------------------------------------------------------------------

    def encode_source(self, source: Tensor, length: Tensor, drop: Dropout = lambda x: x) -> Memory:
        """Encode source ids (n, S) of sentences with `length` (n,) words."""
        return self.net.encode(nn.functional.embedding(source, self.u, sparse=self.sparse), length, drop)

    def decode_step(self, memory: Memory, word: Tensor, state: DecoderState) -> tuple[Query, Tensor, DecoderState]:
        """Decode one word (n,), V at the start: return the queries, the attention (n, S) and the next state."""
        h, attention, state = self.net.decode_step(memory, self._embed_targets(word), state, lambda x: x)
        zeros = torch.zeros_like(word)
        return Query(self.head(h), word, zeros, zeros), attention, state

    # --- scores -----------------------------------------------------------------------------------------------------

    def score(self, query: Query, candidates: Tensor) -> Tensor:
        if self.config.similarity == "dot":
            return dot_scores(query.vector, self.v, candidates, self.sparse and not self.has_frozen_table)
        if self.has_frozen_table and not candidates.is_floating_point():               # its rows already have length 1
            return dot_scores(self.tau * nn.functional.normalize(query.vector, dim=1), self.v, candidates, False)
        return cosine_scores(query.vector, self.v, candidates, self.sparse and not self.has_frozen_table, self.tau)

    def table(self) -> Tensor:
        return self.v

    def get_extra_state(self) -> dict[str, Any]:
        return {"updates": self.updates}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.updates = int(state["updates"])


def _dropout_seed(seed: int, updates: int) -> int:
    """Return the seed of one update's dropout masks."""
    return int(np.random.SeedSequence([seed, updates, *b"drop"]).generate_state(1)[0])
