"""Continuous bag of words: predicts the centre word b from the mean of the rows of the words around it.

    s(a, b) = h_a · v_b,  h_a = (1 / n) Σ_r u_r        (`similarity: cosine`: τ cos(h_a, v_b))
    rows: those of the words of window a; with `subword`, the rows of each word and of its n-grams, in one mean

Each row receives the gradient of h_a itself, not 1/n of it, as in the C program of word2vec, gensim (`cbow_mean=1`) and
fastText, and as with the subwords of skip-gram: otherwise a row would learn more slowly in wide windows.

Sources and losses that use the id of a context receive the word in the middle of the window, the one before the centre,
as they receive the last word of a language model.
Mikolov et al., Efficient Estimation of Word Representations in Vector Space, ICLR workshop 2013.
"""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import model_validator
from torch import Tensor, nn

from embtrain.common.types import Batch, Query
from embtrain.kernels.training.skipgram import RowPool
from embtrain.models.words.skipgram import SkipGram, SkipGramConfig
from embtrain.models.words.subword import PooledRows


class CbowConfig(SkipGramConfig):
    """Configuration keys of CBOW."""

    name: str = "cbow"

    @model_validator(mode="after")
    def _is_mean(self) -> Self:
        if self.subword is not None and self.subword.pooling != "mean":
            raise ValueError(f"subword.pooling: {self.subword.pooling}: cbow takes one mean over the rows of all words "
                             "of a window; set mean")
        return self


class Cbow(SkipGram):
    """CBOW with the two tables of skip-gram, u and v (V, D), initialized in the same way."""

    name: ClassVar[str] = "cbow"
    Config = CbowConfig
    task: ClassVar[str] = "contexts"

    def encode(self, batch: Batch) -> Query:
        """Return the queries h (B, D) of a ContextBatch (data/text/windows.py)."""
        words, start = batch.context, batch.start                                # type: ignore[attr-defined]
        start, rows, is_frozen = self._rows(start, words)
        vector = PooledRows.apply(self.u, rows, start.diff(), True, self.sparse, is_frozen)  # (B, D)
        return Query(vector, batch.middle, batch.target, batch.slot)             # type: ignore[attr-defined]

    def _rows(self, start: Tensor, words: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the rows of u of contexts of words: offsets (B + 1,), rows (R,), and which are frozen, if any."""
        is_frozen = None if self.frozen is None else self.frozen[words]
        if self.pool is None:
            return start, words, is_frozen
        size, place = self.pool.places(words)
        offsets = nn.functional.pad(size.cumsum(0), (1, 0))
        return offsets[start], self.pool.row[place], \
            None if is_frozen is None else is_frozen.repeat_interleave(size)

    def kernel_rows(self, start: Tensor, words: Tensor) -> RowPool:
        """Return the rows of contexts of words, start (B + 1,) and words (P,), in the form of the kernel."""
        start, rows, _ = self._rows(start, words)
        return RowPool(start.contiguous().numpy(), rows.contiguous().numpy(), True)
