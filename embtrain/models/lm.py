"""LSTM language model: predicts word w_i of a text from all previous words.

    x_i = drop(u_{w_{i−1}})        y_i = drop(LSTM_n( ... drop(LSTM_1(x_i)) ... ))        h_i = W y_i
    s(i, b) = τ cos(h_i, v_b)      (`similarity: cosine`: the normalized output of Rawat et al. 2019)
    s(i, b) = h_i · v_b            (`similarity: dot`)

u and v are the input and output tables (V, D) of V words, one table if `tied`; b is a candidate for the next word. v
can be initialized and frozen by models/output_table.py. The outputs y_i have H = `hidden` numbers; W (D, H) exists only
if H is not D. τ (`tau`) multiplies the cosine: it is an inverse temperature, and a large one gives a sharp softmax.

The text is cut into S streams, contiguous pieces that are read in parallel. A batch is a block: the next T words of
each stream, in time-major order, so row t S + s is word t of stream s and B = T S. The state of a stream, the hidden
and cell state of each LSTM layer, is carried from one block to the next without gradient; it is 0 at the beginning of a
text. In training the state moves on after the update (`after_update`), so a block that is only encoded leaves it as it
was. A block in which all streams begin, like a held-out text, starts from 0 in any case.

Dropout masks depend on the seed and the number of updates only. Hochreiter and Schmidhuber 1997; dropout between
layers, not in time: Zaremba, Sutskever and Vinyals 2014; tied: Press and Wolf 2017.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from embtrain.common.errors import UsageError
from embtrain.common.types import Batch, ProblemSpec, Query
from embtrain.models.base import Model, ModelConfig
from embtrain.models.output_table import OutputTableConfig, initial_table, register_table
from embtrain.models.products import cosine_scores, dot_scores

MAX_WORDS_READ = 65_536  # per call of the LSTM, to bound its memory: a held-out text is one long stream and one block


class LmConfig(ModelConfig):
    """Configuration keys of the language model."""

    name: str = Field("lm", description="model, a module of embtrain.models")
    dim: int = Field(200, ge=1, le=65_536, description="D, embedding dimension")
    layers: int = Field(1, ge=1, le=16, description="n, number of LSTM layers")
    hidden: int | None = Field(None, ge=1, le=65_536, description="state size of a layer; null: D")
    dropout: float = Field(
        0.2, ge=0, lt=1, description="dropout probability of the input of each layer and of the last output; 0: none")
    tied: bool = Field(True, description="one table for input and output words")
    similarity: Literal["dot", "cosine"] = Field("cosine", description="inner product, or cosine scaled by tau")
    tau: float = Field(11.1, gt=0, le=10_000, description="inverse temperature of cosine")
    output_table: OutputTableConfig = Field(
        OutputTableConfig(), description="initialization of the output table v, if it is not tied")


class Lm(Model):
    """LSTM language model, with V candidates and the dimensions D and H of its settings.

    Initialization: u, v ~ U(−1, 1) √(3/D), of length about 1 (dot: a tenth of it); LSTMs ~ U(−1, 1) / √H, forget
    biases + 1.
    """

    name: ClassVar[str] = "lm"
    Config = LmConfig
    task: ClassVar[str] = "language"
    config: LmConfig

    def __init__(self, config: LmConfig, problem: ProblemSpec):
        super().__init__(config, problem)
        self.geometry = config.similarity
        self.tau = config.tau if config.similarity == "cosine" else 1.0
        D, H, V = config.dim, config.hidden or config.dim, problem.n_candidates
        random = torch.Generator().manual_seed(problem.seed)
        def uniform(shape: tuple[int, ...], span: float) -> Tensor:
            return (torch.rand(shape, generator=random, dtype=torch.float32, device="cpu") * 2 - 1) * span
        span = (3 / D) ** 0.5 * (1.0 if config.similarity == "cosine" else 0.1)
        self.u = nn.Parameter(uniform((V, D), span))
        table = initial_table(config.output_table, problem, D)
        if config.tied and table is not None:
            raise UsageError(f"model.output_table.kind: {config.output_table.kind}: a given output table cannot be "
                             "tied to the input table; set model.tied: false")
        self.v: Tensor | None
        if config.tied:
            self.v = None
        else:
            register_table(self, "v", uniform((V, D), span) if table is None else table, config.output_table.frozen)
        self.has_frozen_table = config.output_table.frozen
        # on the meta device, because initialization would use the global generator
        self.lstm = nn.ModuleList(nn.LSTM(H if i else D, H, device="meta").to_empty(device="cpu")
                                  for i in range(config.layers))
        self.w = None if H == D else nn.Parameter(uniform((D, H), H ** -0.5))
        with torch.no_grad():
            for name, p in self.lstm.named_parameters():
                p.copy_(uniform(tuple(p.shape), H ** -0.5))
                if "bias_ih" in name:
                    p[H:2 * H] += 1
        self.to(problem.device)
        self.state: Tensor | None = None       # (2, n, S, H)  hidden and cell state of each layer before a block
        self.updates = 0
        self._encoded: tuple[Batch, Tensor] | None = None  # the last batch encoded in training, and the state after it

    def encode(self, batch: Batch) -> Query:
        """Return the queries h_i (B, D) of a block; its fields are those of `LanguageBatch` in data/text/streams.py.

        `batch.word` (B,) holds w_{i−1}, `batch.streams` is S, and `batch.begins` (B,) is true at rows without a word
        before them.
        """
        word, streams = batch.word, batch.streams                                # type: ignore[attr-defined]
        assert len(batch) % streams == 0, "a batch contains as many words of each stream"
        if len(batch) == 0:
            return Query(vectors=self.u.new_zeros(0, self.config.dim), context=word, target=batch.target,
                         slot=batch.slot)
        x = nn.functional.embedding(word, self.u, sparse=self.sparse)            # (B, D)
        state, y = self._initial_state(batch.begins[:streams]), []                       # type: ignore[attr-defined]
        random = torch.Generator(x.device).manual_seed(_dropout_seed(self.problem.seed, self.updates))
        for piece in x.view(-1, streams, x.shape[1]).split(max(1, MAX_WORDS_READ // streams)):
            out, state = self._run_layers(piece, state, random)
            y.append(out)
        if self.training:
            self._encoded = batch, state.detach()
        outputs = torch.cat(y).flatten(0, 1)                                     # (B, H)
        return Query(vectors=outputs if self.w is None else outputs @ self.w.T, context=word, target=batch.target,
                     slot=batch.slot)

    def _run_layers(self, x: Tensor, state: Tensor, random: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return the outputs of the last layer (T, S, H) for x (T, S, D), and the state after them."""
        ends = []
        for layer, hidden, cell in zip(self.lstm, *state, strict=True):          # (S, H) each
            x, end = layer(self._dropout(x, random), (hidden.unsqueeze(0), cell.unsqueeze(0)))
            ends.append(torch.cat(end))                                          # (2, S, H)
        return self._dropout(x, random), torch.stack(ends, 1)

    def _dropout(self, x: Tensor, random: torch.Generator) -> Tensor:
        p = self.config.dropout
        if not self.training or p == 0:
            return x
        is_kept = torch.rand(x.shape, generator=random, dtype=torch.float32, device=x.device) >= p
        return x * (is_kept.float() / (1 - p))

    def _initial_state(self, begins: Tensor) -> Tensor:
        """Return the states of S streams, (2, n, S, H): those after the last block, 0 for streams that `begin` (S,).

        A stream begins if the first row of the block has no word before it. Raises UsageError if the number of streams
        has changed.
        """
        shape = (2, self.config.layers, len(begins), self.config.hidden or self.config.dim)
        if self.state is None or bool(begins.all()):
            return self.u.new_zeros(shape)
        if self.state.shape != shape:
            raise UsageError(f"language.streams: {len(begins)}, but this run was trained on {self.state.shape[2]} "
                             "streams; restore the old value in config.yaml")
        return torch.where(begins[:, None], 0.0, self.state)

    def score(self, query: Query, candidates: Tensor) -> Tensor:
        """Return s(i, b) of candidates b, (B, K): ids (1, K) for all rows or (B, K), or vectors (B, K, D)."""
        if self.config.similarity == "dot":
            return dot_scores(query.vector, self.table(), candidates, self.sparse)
        return cosine_scores(query.vector, self.table(), candidates, self.sparse, self.tau)

    def table(self) -> Tensor:
        return self.u if self.v is None else self.v

    def vectors(self, which: str = "input") -> Tensor:
        """Return u, the exported vectors. `which` is for models that export several tables; this one has no choice."""
        return self.u

    def after_update(self, batch: Batch) -> None:
        assert self._encoded is not None and self._encoded[0] is batch, "the batch of the update is encoded last"
        self.state, self._encoded = self._encoded[1], None
        self.updates += 1

    def get_extra_state(self) -> dict[str, Any]:
        return {"state": self.state, "updates": self.updates}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        saved = state["state"]
        self.state, self.updates = None if saved is None else saved.to(self.u.device), int(state["updates"])


def _dropout_seed(seed: int, updates: int) -> int:
    """Return the seed of one update's dropout masks."""
    return int(np.random.SeedSequence([seed, updates, *b"drop"]).generate_state(1)[0])
