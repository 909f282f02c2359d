"""A translator that answers with a vector: which word comes next, given a source and the words before?

    x_s = u_{source_s}      y_t = W v_{word_t−1} (`tied`) or w_{word_t−1}      h_t: state of the net (nmt_recurrent.py,
    s(t, b) = τ cos(ê_t, v_b)      (`similarity: cosine`)                                           nmt_transformer.py)
    s(t, b) = ê_t · v_b            (`similarity: dot`)                         ê_t = O drop(h_t) + b,  a number for each
                                                                               of the D of a word's vector
v (V, D) is given and stays (models/output_table.py), or is trained. Losses see a row for each answer, ê_t as it is:
length
and all. Where a translation begins stands a vector of its own, which cannot be answered. Dropout masks follow from the
seed and the number of updates.
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
from embtrain.models.nmt.network import Drop, Memory, Net, State, init_parameters
from embtrain.models.nmt.recurrent import Recurrent
from embtrain.models.nmt.transformer import Transformer
from embtrain.models.output_table import TargetsConfig, hold, targets
from embtrain.models.products import cosine_scores, dot_scores

PLACES = 16_384  # of words read at once where nothing is trained


class NmtConfig(ModelConfig):
    name: str = Field("nmt", description="the model: a file of embtrain/models")
    dim: int = Field(300, ge=1, le=65_536, description="D, the number of dimensions")
    net: Literal["recurrent", "transformer"] = Field("recurrent", description="LSTMs with attention, or a Transformer")
    hidden: int = Field(256, ge=2, le=65_536, multiple_of=2, description="H, numbers in a state")
    embed: int = Field(192, ge=1, le=65_536, description="E, numbers of a word that is read")
    feeding: bool = Field(False, description="recurrent: the last state is read with the next word; a slower loop")
    layers: int = Field(2, ge=1, le=64, description="transformer: layers that read, and as many that write")
    heads: int = Field(4, ge=1, le=1024, description="transformer: heads of attention")
    dropout: float = Field(0.1, ge=0, lt=1, description="share of words, states and outputs left out while training")
    tied: bool | None = Field(None, description="the words before an answer are read from the table that is answered "
                                                "from; null: where that table is frozen")
    similarity: Literal["dot", "cosine"] = Field("dot", description="dot, or cosine times tau")
    tau: float = Field(1.0, gt=0, le=10_000, description="inverse temperature of cosine")
    targets: TargetsConfig = Field(TargetsConfig(kind="sphere"), description="where the table comes from")

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        if self.net == "transformer" and self.hidden % self.heads:
            raise ValueError(f"hidden {self.hidden} is no multiple of heads {self.heads}")
        return self


class Nmt(Model):
    """u, w ~ U(−1, 1) √(3/E), of length about 1; v, where it is learnt, the same over D (dot: a tenth of it)."""

    name: ClassVar[str] = "nmt"
    Config = NmtConfig
    task: ClassVar[str] = "translation"
    config: NmtConfig

    def __init__(self, config: NmtConfig, world: ProblemSpec):
        super().__init__(config, world)
        assert world.n_features is not None, "the words of the source are counted there"
        self.geometry = config.similarity
        self.tau = config.tau if config.similarity == "cosine" else 1.0
        D, E, H, V = config.dim, config.embed, config.hidden, world.n_candidates
        random = torch.Generator().manual_seed(world.seed)
        def uniform(shape: tuple[int, int], scale: float = 1.0) -> Tensor:
            return (torch.rand(shape, generator=random) * 2 - 1) * (3 / shape[1]) ** 0.5 * scale
        self.u = nn.Parameter(uniform((world.n_features, E)))
        given = targets(config.targets, world, D)
        hold(self, "v", uniform((V, D), 1.0 if config.similarity == "cosine" else 0.1) if given is None else given,
             config.targets.frozen)
        self.has_frozen_table = config.targets.frozen
        tied = self.has_frozen_table if config.tied is None else config.tied
        self.v: Tensor
        with torch.device("meta"):                           # their own beginnings would draw from the global generator
            self.read_w = nn.Linear(D, E, bias=False) if tied else None
            self.net: Net = (Recurrent(E, H, config.feeding) if config.net == "recurrent"
                             else Transformer(E, H, config.layers, config.heads))
            self.head = nn.Linear(H, D)
        self.w = nn.Parameter(uniform((1 if tied else V + 1, D if tied else E)))  # last: the beginning
        for part in (self.read_w, self.net, self.head):
            if part is not None:
                init_parameters(part.to_empty(device="cpu"), random)
        self.to(world.device)
        self.updates = 0

    # --- in training and judgement: all answers of a batch ------------------------------------------------------

    def encode(self, batch: Batch) -> Query:
        drop = self._drop()
        if self.training:
            h = drop(self._states(batch, drop))
        else:
            pieces = [self._states(piece, drop) for piece in batch.pieces(PLACES)]  # type: ignore[attr-defined]
            h = torch.cat(pieces) if pieces else self.u.new_zeros(0, self.config.hidden)
        before = batch.before.flatten()[batch.position]                           # type: ignore[attr-defined]
        return Query(self.head(h), before, batch.target, batch.slot, None, batch.window)  # type: ignore[attr-defined]

    def _states(self, batch: Batch, drop: Drop) -> Tensor:
        """The state of each answer (B, H): chosen before the head, which then does nothing in vain."""
        memory = self.read(batch.source, batch.length, drop)                # type: ignore[attr-defined]
        states, _ = self.net.states(memory, self._words(batch.before), drop)  # type: ignore[attr-defined]
        return states.flatten(0, 1)[batch.position]                               # type: ignore[attr-defined]

    def _words(self, before: Tensor) -> Tensor:
        """What is read of the words before, (..., E)."""
        if self.read_w is None:
            return nn.functional.embedding(before, self.w, sparse=self.sparse)
        V = self.world.n_candidates
        rows = nn.functional.embedding(
            before.clamp(max=V - 1), self.v, sparse=self.sparse and not self.has_frozen_table
        )
        return self.read_w(torch.where((before == V).unsqueeze(-1), self.w[0], rows))

    def _drop(self) -> Drop:
        p = self.config.dropout
        if not self.training or p == 0:
            return lambda x: x
        random = torch.Generator(self.u.device).manual_seed(_seed(self.world.seed, self.updates))
        return lambda x: x * ((torch.rand(x.shape, generator=random, device=x.device) >= p) / (1 - p))

    def after_update(self, batch: Batch) -> None:
        self.updates += 1

    # --- in a search: word by word ------------------------------------------------------------------------------

    def read(self, source: Tensor, length: Tensor, drop: Drop = lambda x: x) -> Memory:
        """Source ids (n, S), read."""
        return self.net.read(nn.functional.embedding(source, self.u, sparse=self.sparse), length, drop)

    def ask(self, memory: Memory, word: Tensor, state: State) -> tuple[Query, Tensor, State]:
        """After one more word (n,), V at the beginning: what is asked, attention (n, S), where the net stands then."""
        h, attention, state = self.net.step(memory, self._words(word), state, lambda x: x)
        none = torch.zeros_like(word)
        return Query(self.head(h), word, none, none), attention, state

    # --- answers ------------------------------------------------------------------------------------------------

    def score(self, query: Query, candidates: Tensor) -> Tensor:
        if self.config.similarity == "dot":
            return dot_scores(query.vector, self.v, candidates, self.sparse and not self.has_frozen_table)
        if self.has_frozen_table and not candidates.is_floating_point():               # its rows have length 1 already
            return dot_scores(self.tau * nn.functional.normalize(query.vector, dim=1), self.v, candidates, False)
        return cosine_scores(query.vector, self.v, candidates, self.sparse and not self.has_frozen_table, self.tau)

    def table(self) -> Tensor:
        return self.v

    def get_extra_state(self) -> dict[str, Any]:
        return {"updates": self.updates}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.updates = int(state["updates"])


def _seed(seed: int, updates: int) -> int:
    """Of one update's dropout."""
    return int(np.random.SeedSequence([seed, updates, *b"drop"]).generate_state(1)[0])
