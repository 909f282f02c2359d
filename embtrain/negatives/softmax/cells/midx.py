"""Inverted multi-index: a cell is a pair of codewords, and its weight needs only 2 K dot products with codewords.

    q(i|h) = M_c(h) / Σ_c' M_c'(h) · r(i|c, h)                                           (see base.py)
    product   M_{k1 k2}(h) = ω_{k1 k2} e^{h_1·a_{k1} + h_2·b_{k2}}    h = (h_1, h_2) in halves, a, b codewords
    residual  M_{k1 k2}(h) = ω_{k1 k2} e^{h·a_{k1} + h·b_{k2}}        b quantizes the residual c − a_{k1}
    ω_{k1 k2} = Σ_{i in cell} n(i)^α with within_cell: unigram, else the number of its candidates

Chen et al., Inverted multi-index softmax sampling, 2022 and 2025 (MIDX); Babenko and Lempitsky 2012. The exact inside
is not theirs: scoring the few candidates of the drawn cells compensates for the quantization error.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import Tensor

from embtrain.common.config.setting_keys import key
from embtrain.common.errors import UsageError
from embtrain.common.types import ProblemSpec
from embtrain.negatives.sampling.kmeans import group_means, kmeans
from embtrain.negatives.softmax.cells.base import Cells, CellsConfig, WithinCell


class MidxConfig(CellsConfig):
    """Settings of `midx`."""

    within_cell: WithinCell = Field("uniform", description="r, distribution of a candidate within its cell")
    codewords: int = Field(0, ge=0, le=4096, description="K of each codebook; 0: n^(3/8), 32 for n = 10,000")
    quantisation: Literal["product", "residual"] = Field("residual", description="input of the second codebook")


class Midx(Cells):
    """Draws by pairs of codewords."""

    name = "midx"
    Config = MidxConfig
    config: MidxConfig

    def __init__(self, config: MidxConfig, problem: ProblemSpec):
        super().__init__(config, problem)
        v = problem.n_candidates
        if config.codewords > v:
            raise UsageError(f"{key('codewords')}: {config.codewords:,} is more than the {v:,} candidates; set fewer")
        if config.quantisation == "product" and problem.dim == 1:
            raise UsageError(f"model.dim: 1: cannot be split into halves; set {key('quantisation')}: residual")
        self.codewords = config.codewords or max(1, round(v ** 0.375))
        self.n_cells_requested = min(v, self.codewords ** 2)

    def label(self, c: Tensor, seed: int) -> Tensor:
        K = self.codewords
        first, second = self._halves(c) if self.config.quantisation == "product" else (c, c)
        a = kmeans(first, K, seed)
        if self.config.quantisation == "residual":
            second = c - group_means(c, a, K)[a]
        return a * K + kmeans(second, K, seed + 1)

    def summarise(self, c: Tensor) -> tuple[Tensor, ...]:
        assert self.labels is not None
        K = self.codewords
        a, b = self.labels // K, self.labels % K         # (V,) each
        code = self.labels[self.index.order[self.index.start[:-1]]]  # (C,)  label of each cell
        size = self.index.totals.log().to(c.dtype)        # (C,) log ω
        first, second = self._halves(c) if self.config.quantisation == "product" else (c, c)
        codebook = group_means(first, a, K)
        if self.config.quantisation == "residual":
            second = c - codebook[a]
        return codebook, group_means(second, b, K), code // K, code % K, size

    def log_mass(self, h: Tensor) -> Tensor:
        codebook, second, a, b, size = self.summary
        first, second_half = self._halves(h) if self.config.quantisation == "product" else (h, h)
        return (first @ codebook.T)[:, a] + (second_half @ second.T)[:, b] + size                     # (Q, C)

    def _halves(self, x: Tensor) -> tuple[Tensor, Tensor]:
        half = x.shape[1] // 2
        return x[:, :half], x[:, half:]
