"""Word vectors pooled from a row of the word and the rows of its character n-grams [bojanowski2017].

    h_a = Σ_r u_r      pooling: sum; divided by the number n of rows under mean
    rows: row a of u, and row V + g for every n-gram g of `<a>`, repeated ones counted again

u has V + B rows, B: number of n-gram rows. All start from U(-1/D, 1/D), as in fastText. Under mean each row receives
the gradient of h_a itself, not 1/n of it, as in fastText: otherwise a row would learn more slowly in long words.
Sharing n-grams, rare words learn from frequent ones, and an unknown word has a vector
(data/vectors/subword_table.py).
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from embtrain.common.config import Section
from embtrain.common.errors import UsageError
from embtrain.common.types import ProblemSpec
from embtrain.kernels.core.tables import zeros_on_huge_pages
from embtrain.kernels.training.skipgram import RowPool
from embtrain.models.products import sparse_gradient
from embtrain.models.tables import fill_uniform

CHUNK = 1 << 14  # rows or words that are processed at once


class SubwordConfig(Section):
    """Configuration keys under `model.subword`."""

    min_n: int = Field(3, ge=1, le=64, description="minimum characters of an n-gram, < and > around the word included")
    max_n: int = Field(6, ge=1, le=64, description="maximum characters of an n-gram")
    buckets: int | Literal["exact"] = Field(
        2_000_000, description="rows that the n-grams are hashed to; exact: a row for each n-gram of the vocabulary")
    pooling: Literal["mean", "sum"] = Field("mean", description="vector of a word: mean or sum of its rows")

    @model_validator(mode="after")
    def _is_possible(self) -> SubwordConfig:
        if self.min_n > self.max_n:
            raise ValueError(f"min_n: {self.min_n}: is above max_n: {self.max_n}; lower it")
        if self.buckets != "exact" and not 1 <= self.buckets < 2**31:
            raise ValueError(f"buckets: {self.buckets}: give exact, or 1 to {2**31 - 1:,}")
        return self


class SubwordPool(nn.Module):
    """The rows of each of V words and the pooled vectors. The rows follow from the words and are not in the state."""

    start: Tensor  # (V + 1,) int64  word i has the rows row[start[i]:start[i + 1]], its own first
    row: Tensor    # (R,) int64

    def __init__(self, config: SubwordConfig, problem: ProblemSpec):
        """Find the rows of the problem's words. UsageError if it has none."""
        super().__init__()
        if problem.ngram_rows is None or problem.words is None:
            raise UsageError("model.subword: needs words, but the candidates of this corpus are not words; set "
                             "model.subword: null")
        self.config, n = config, len(problem.words)
        starts, rows, self.n_ngrams = problem.ngram_rows(config.min_n, config.max_n, config.buckets, problem.words)
        start = starts + np.arange(n + 1)
        row = np.empty(start[-1], np.int64)
        is_ngram = np.ones(len(row), bool)
        is_ngram[start[:-1]] = False
        row[start[:-1]], row[is_ngram] = np.arange(n), rows + n
        self.register_buffer("start", torch.from_numpy(start), persistent=False)
        self.register_buffer("row", torch.from_numpy(row), persistent=False)

    def __len__(self) -> int:
        return len(self.start) - 1

    @property
    def is_mean(self) -> bool:
        return self.config.pooling == "mean"

    def initial_table(self, dim: int, generator: torch.Generator, problem: ProblemSpec) -> Tensor:
        """Draw u (V + B, D), on huge pages if it is in memory.

        Rows are not padded: at D = 100 that would take 12% more memory, and the kernel is equally fast.
        """
        n = len(self) + self.n_ngrams
        table = torch.from_numpy(zeros_on_huge_pages(n * dim)).view(-1, dim) if problem.new_table is None \
            else problem.new_table(n, dim, False)
        return fill_uniform(table, generator, lambda x: x.mul_(2).sub_(1).div_(dim))

    def forward(self, u: Tensor, words: Tensor, sparse: bool) -> Tensor:
        """Return the vectors (n, D) of words (n,), differentiable in u. sparse: whether its gradient is sparse."""
        size, place = self.places(words)
        return PooledRows.apply(u, self.row[place], size, self.is_mean, sparse, None)

    def places(self, words: Tensor) -> tuple[Tensor, Tensor]:
        """The number of rows of each word, (n,), and the places of these rows in `row`, one word after the other."""
        begin = self.start[words]
        size = self.start[words + 1] - begin
        shift = (begin - size.cumsum(0) + size).repeat_interleave(size)
        return size, torch.arange(len(shift), device=shift.device) + shift

    def vectors(self, u: Tensor) -> Tensor:
        """The vectors of all words, (V, D), without gradient."""
        words = torch.arange(len(self), device=u.device)
        return torch.cat([self(u.detach(), part, False) for part in words.split(CHUNK)])

    def earlier_rows(self, earlier: SubwordPool, row: Tensor) -> Tensor:
        """Return the row of u that each row of u had in a pool over fewer words, (V + B,) int64, -1 for a new one.

        row (V,): the earlier id of each word, of which all earlier words have one. A word has the same n-grams in both
        pools, in the same order. Hashed n-grams keep their rows, used or not.
        """
        rows = torch.full((len(self) + self.n_ngrams,), -1, dtype=torch.int64, device="cpu")
        if self.config.buckets != "exact":
            rows[len(self):] = len(earlier) + torch.arange(self.n_ngrams, device="cpu")
        words = (row >= 0).nonzero()[:, 0]
        rows[self.row.cpu()[self.places(words.to(self.start.device))[1].cpu()]] = \
            earlier.row.cpu()[earlier.places(row[words].to(earlier.start.device))[1].cpu()]
        return rows

    @torch.no_grad()
    def compose(self, u: Tensor, words: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
        """Return the vectors of words (n,) from their n-grams alone, and which have one: (m, D), and m of the words.

        known (V + B,) bool: the rows of u that may be used; a word without any is left out.
        """
        size, place = self.places(words)
        row = self.row[place]
        used = (row >= len(self)) & known[row]
        n = torch.bincount(torch.arange(len(words), device=u.device).repeat_interleave(size)[used],
                           minlength=len(words))
        total = nn.functional.embedding_bag(row[used], u, n.cumsum(0) - n, mode="sum")
        found = n > 0
        return (total / n.clamp(min=1).unsqueeze(1) if self.is_mean else total)[found], words[found]

    def kernel_rows(self) -> RowPool:
        return RowPool(self.start.numpy(), self.row.numpy(), self.is_mean)

    @torch.no_grad()
    def fit_ngrams(self, u: Tensor, words: Tensor, given: Tensor) -> None:
        """Set the rows of the n-grams of words (n,), all different, from their given vectors (n, D).

        A word's vector is divided equally among its rows, and the row of an n-gram becomes the mean of its shares.
        """
        size, place = self.places(words)
        is_ngram = self.row[place] >= len(self)
        word = torch.arange(len(words), device=u.device).repeat_interleave(size)[is_ngram]   # (N,) of each n-gram
        rows, row = torch.unique(self.row[place][is_ngram], return_inverse=True)
        total = u.new_zeros(len(rows), u.shape[1])
        for entries, to in zip(word.split(CHUNK), row.split(CHUNK), strict=True):
            share = given[entries]
            total.index_add_(0, to, share if self.is_mean else share / size[entries].unsqueeze(1))
        u[rows] = total / torch.bincount(row).unsqueeze(1)

    @torch.no_grad()
    def set_vectors(self, u: Tensor, words: Tensor, given: Tensor) -> None:
        """Set the rows of words (n,), all different, so that their vectors are the given ones, (n, D)."""
        u[words] = 0
        rest = given - self(u, words, False)
        u[words] = rest * self.places(words)[0].unsqueeze(1) if self.is_mean else rest


class PooledRows(torch.autograd.Function):
    """Sums h (B, D) of rows of u, or their means; (R,) rows, (B,) numbers of rows, (R,) bool or None: frozen rows.

    Every row that is not frozen receives ∂L/∂h as its gradient; that of PyTorch's embedding_bag would be divided under
    mean.
    """

    @staticmethod
    def forward(ctx: Any, u: Tensor, rows: Tensor, size: Tensor, is_mean: bool, sparse: bool, is_frozen: Tensor | None
                ) -> Tensor:
        ctx.save_for_backward(rows, size, is_frozen)
        ctx.shape, ctx.sparse = u.shape, sparse
        h = nn.functional.embedding_bag(rows, u, size.cumsum(0) - size, mode="sum")
        return h / size.unsqueeze(1) if is_mean else h

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None, None]:
        rows, size, is_frozen = ctx.saved_tensors
        values = gradient.repeat_interleave(size, dim=0, output_size=len(rows))                 # (R, D)
        if is_frozen is not None:
            values = values.masked_fill(is_frozen.unsqueeze(1), 0)
        table = sparse_gradient(rows, values, ctx.shape) if ctx.sparse \
            else gradient.new_zeros(ctx.shape).index_add_(0, rows, values)
        return table, None, None, None, None, None
