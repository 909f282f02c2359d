"""Cache of generator rows between two steps, and the gradient collected for the next step.

Between two generator steps g(.|x) depends only on x. log Z_x, the greedy candidate and the data needed to sample from
g(.|x) are therefore computed once per x and reused until the next step. Draws are collected with their coefficients
a_i (generator.py): the sparse part of the gradient is summed at once, the dense part is computed before the step, once
per x. With a step after each block this is plain REINFORCE; with one after several, the same on a larger batch.

On a CPU in float32 the kernels draw, otherwise PyTorch. The kernels only need the cumulative sums of a row's blocks.
The rows themselves are recomputed for the gradient, which is faster than reading them from memory.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from embtrain.common.types import GENERATOR, NOISE, PROBE, Query
from embtrain.kernels.sampling import generator as kernel, reinforce
from embtrain.negatives.adversarial.generator import Generator, argmax_rows, draw_rows
from embtrain.negatives.sampling.alias import AliasTable, acceptance_bits
from embtrain.negatives.sampling.context_index import ContextIndex

MAX_SCORES_PER_PRODUCT = 1 << 18  # scores per matrix product, so that they stay in the cache
MAX_ROWS_PER_PRODUCT = 1024       # maximum number of rows per product
MIN_ROWS_PER_PRODUCT = 128        # minimum number; fewer are slow


class GeneratorDraw(NamedTuple):
    """K columns of G rows, (G, K) each."""

    ids: Tensor       # int64
    origin: Tensor    # int8  NOISE, GENERATOR or PROBE
    log_g: Tensor
    log_q: Tensor


class GeneratorCache:
    """Rows of the generator for the contexts drawn since its last step.

    noise, p: alias table and probabilities (V,) of the noise. mix: λ.
    """

    def __init__(self, generator: Generator, noise: AliasTable, p: Tensor, mix: float):
        self.generator, self.noise, self.p, self.mix = generator, noise, p.float(), mix
        device, c = p.device, generator.shortlist
        self.uses_core = device.type == "cpu" and generator.w.dtype == torch.float32
        if self.uses_core:
            self.word = kernel.pack_words(c.klass.numpy(), c.log_within.numpy(), self.p.numpy())
            self._panel = kernel.to_panels(generator.w.detach().numpy())
            self._fixed_tables = (self.word, noise.accept_bits, noise.alias_ids, c.members.numpy(),
                                  c.class_start.numpy(), acceptance_bits(c.accept.numpy()), c.alias.numpy())
        self.context_index = ContextIndex(generator.sizes, device)          # row of x, or -1
        self.n_rows, self.key_batches, self.n_draws = 0, list[Tensor](), 0  # key_batches: keys by call
        self.generation: object = object()                                  # another one once the rows are dropped
        self._max_rows = max(MIN_ROWS_PER_PRODUCT,
                             min(MAX_ROWS_PER_PRODUCT, MAX_SCORES_PER_PRODUCT // max(1, c.n_classes)))
        self.grad_w = torch.zeros_like(generator.w, requires_grad=False)                    # (C, H)
        self._allocate(0)

    # -- rows ---------------------------------------------------------------------------------------------------

    def find_rows(self, context: Tensor) -> Tensor:
        """Row of each context, (n,) or (n, columns): (n,). Rows for new contexts are computed."""
        key = self.context_index.key(context)
        row = self.context_index.find(key)
        if len(row) and int(row.min()) < 0:
            self._add(self.context_index.missing(key))
            row = self.context_index.find(key)
        return row

    @contextlib.contextmanager
    def rows_for(self, query: Query) -> Iterator[None]:
        """Drop the rows that are computed inside the block, unless the queries train."""
        n_rows, n_batches = self.n_rows, len(self.key_batches)
        try:
            yield
        finally:
            if not query.is_training and self.n_rows > n_rows:
                self.context_index.truncate(n_rows)
                self.n_rows, self.key_batches = n_rows, self.key_batches[:n_batches]

    @torch.no_grad()
    def _add(self, new: Tensor) -> None:
        """Compute rows for new keys."""
        begin, end = self.n_rows, self.n_rows + len(new)
        c, w = self.generator.shortlist, self.generator.w
        if self.uses_core and begin == 0:  # parameters may have changed
            self._panel = kernel.to_panels(w.numpy())
        if end > len(self.z):
            self._allocate(max(end, min(2 * len(self.z), self.context_index.n_keys)))
        self.key_batches.append(new)
        self.n_rows = end
        self.context_index.add(new, begin)
        self.z[begin:end] = self.generator.z(self.context_index.context(new))
        rows = slice(begin, end)
        if self.uses_core:
            best = torch.empty(len(new), dtype=torch.int64, device="cpu")
            kernel.summarize_rows(self.z[rows].numpy(), self._panel, c.log_best.numpy(), kernel.GeneratorRows(
                self.ends[rows].numpy().view(np.uint32), self.log_z[rows].numpy(), best.numpy(),
                self.log_best[rows].numpy()), torch.get_num_threads())
            self.greedy[rows] = c.likeliest[best]
            return
        for rows in self._chunks(begin, end):
            logits = self.z[rows] @ w.T                                                     # (m, C)
            self.g[rows] = g = logits.softmax(1)
            best = argmax_rows(g * c.log_best.exp())
            best_column = best.unsqueeze(1)
            log_g = g.gather(1, best_column).log().squeeze(1)
            self.log_z[rows] = logits.gather(1, best_column).squeeze(1) - log_g
            self.log_best[rows] = log_g + c.log_best[best]
            self.greedy[rows] = c.likeliest[best]

    def _chunks(self, begin: int, end: int) -> list[slice]:
        step = self._max_rows
        return [slice(start, min(end, start + step)) for start in range(begin, end, step)]

    def _allocate(self, rows: int) -> None:
        """Allocate tables for `rows` rows, and keep the first n_rows.

        The tables are reused from step to step, because new memory pages are slow.
        """
        def grow(name: str, shape: tuple[int, ...], dtype: torch.dtype, fill: bool) -> Tensor:
            allocate = torch.zeros if fill else torch.empty
            new = allocate(shape, dtype=dtype, device=self.grad_w.device)
            if self.n_rows:
                new[:self.n_rows] = getattr(self, name)[:self.n_rows]
            return new
        real, hidden = self.generator.w.dtype, self.generator.w.shape[1]
        self.z = grow("z", (rows, hidden), real, False)
        if self.uses_core:
            self.ends = grow("ends", (rows, kernel.n_ends(self.generator.shortlist.n_classes)), torch.int32, False)
        else:
            self.g = grow("g", (rows, self.generator.shortlist.n_classes), real, False)
        self.log_z = grow("log_z", (rows,), real, False)
        self.greedy = grow("greedy", (rows,), torch.int64, False)                          # argmax_y g(y|x)
        self.log_best = grow("log_best", (rows,), real, False)                             # its log g
        self.total = grow("total", (rows,), real, True)                                    # A_x
        self.count = grow("count", (rows,), real, True)                                    # number of draws of x
        self.grad_z = grow("grad_z", (rows, hidden), real, True)

    def _tables(self) -> kernel.GeneratorTables:
        def used_rows(x: Tensor) -> np.ndarray:
            return x[:self.n_rows].numpy()

        return kernel.GeneratorTables(
            used_rows(self.z), self.generator.w.detach().numpy(), self._panel, used_rows(self.log_z),
            used_rows(self.ends).view(np.uint32), used_rows(self.greedy), used_rows(self.log_best),
            *self._fixed_tables, self.mix)

    # -- draws and densities ------------------------------------------------------------------------------------

    def draw(self, row: Tensor, k: int, by_noise: int | None, probe: bool, random: torch.Generator) -> GeneratorDraw:
        """Draw k negatives for each row (G,), and with `probe` append its greedy candidate.

        The noise draws the first `by_noise` negatives, or each with probability λ (None).
        """
        if self.uses_core:
            seed = int(torch.randint(2**62, (), generator=random, device="cpu"))
            arrays = kernel.draw(self._tables(), row.numpy(), k, by_noise, probe, seed)
            return GeneratorDraw(*map(torch.from_numpy, arrays))
        shape, device, c = (len(row), k), row.device, self.generator.shortlist
        if by_noise is None:
            is_noise = torch.rand(shape, generator=random, dtype=torch.float32, device=device) < self.mix
        else:
            is_noise = (torch.arange(k, device=device) < by_noise).expand(shape)
        ids = torch.empty(shape, dtype=torch.int64, device=device)
        ids[is_noise] = self.noise.draw((int(is_noise.sum()),), random)
        klass = draw_rows(self.g[:self.n_rows], row[(~is_noise).nonzero()[:, 0]], random)
        v = torch.rand(len(klass), generator=random, device=device, dtype=torch.float64)
        ids[~is_noise] = c.sample_member(klass, v)
        origin = torch.where(is_noise, NOISE, GENERATOR).to(torch.int8)
        if probe:
            ids = torch.cat([ids, self.greedy[row].unsqueeze(1)], 1)
            origin = torch.cat([origin, origin.new_full((len(row), 1), PROBE)], 1)
        return GeneratorDraw(ids, origin, *self.density(ids, row))

    def density(self, ids: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        """log g and log q of ids (n, K) for the rows (n,): (n, K) each."""
        if self.uses_core:
            n, k = ids.shape
            result = kernel.density(self._tables(), ids.reshape(-1).numpy(), row.contiguous().numpy(),
                                    np.arange(0, n * k + 1, k) if k else np.zeros(n + 1, np.int64))
            return torch.from_numpy(result[0]).view(n, k), torch.from_numpy(result[1]).view(n, k)
        c, w = self.generator.shortlist, self.generator.w.detach()
        log_g = torch.einsum("nkh,nh->nk", w[c.klass[ids]], self.z[row]) - self.log_z[row].unsqueeze(1)
        log_g = log_g + c.log_within[ids]
        return log_g, self.mixture(log_g, ids)

    def log_q(self, ids: Tensor, row: Tensor, start: Tensor) -> Tensor:
        """log q of ids (N,): ids start[i] to start[i + 1] belong to row[i]. (N,)."""
        if self.uses_core:
            result = kernel.density(self._tables(), ids.contiguous().numpy(), row.numpy(), start.numpy())
            return torch.from_numpy(result[1])
        return self.density(ids.unsqueeze(1), row.repeat_interleave(start.diff()))[1].squeeze(1)

    def mixture(self, log_g: Tensor, ids: Tensor) -> Tensor:
        """log(λ p + (1 - λ) g) of ids, from their log g."""
        log_p = self.p[ids].log()
        if self.mix == 0:
            return log_g
        if self.mix == 1:
            return log_p
        return torch.logaddexp(math.log(self.mix) + log_p, math.log1p(-self.mix) + log_g)

    # -- learning -----------------------------------------------------------------------------------------------

    def collect(self, ids: Tensor, row: Tensor, a: Tensor) -> None:
        """Collect draws (G, K) of rows (G,) with coefficients a (G, K)."""
        self.n_draws += len(row)
        total, grad_z, count = self.total[:self.n_rows], self.grad_z[:self.n_rows], self.count[:self.n_rows]
        if self.uses_core:
            reinforce.collect(self._tables(), ids.numpy(), row.numpy(), a.contiguous().numpy(), reinforce.GradientSums(
                self.grad_w.numpy(), grad_z.numpy(), total.numpy(), count.numpy()))
            return
        count += torch.bincount(row, minlength=self.n_rows)
        klass, rows = self.generator.shortlist.klass[ids].reshape(-1), row.repeat_interleave(ids.shape[1])
        a_column = a.reshape(-1, 1)
        grad_z.index_add_(0, rows, -a_column * self.generator.w.detach()[klass])
        self.grad_w.index_add_(0, klass, -a_column * self.z[rows])
        total.index_add_(0, rows, a_column[:, 0])

    @torch.no_grad()
    def gradient(self, scale: float, beta: float, limit: float) -> tuple[float, float]:
        """Set the gradient of -(scale Σ_i a_i log g(y_i|x_i) - β mean_x max(0, limit - H_x)), the mean over draws.

        Returns the mean of H and of the hinge. Consumes the rows: `invalidate` must follow.
        """
        n, eta = self.n_rows, self.generator.shortlist.eta.to(self.generator.w.dtype)
        self.grad_w *= scale
        self.grad_z[:n] *= scale
        total, share = scale * self.total[:n], self.count[:n] / max(1, self.n_draws)          # (n,) each
        if self.uses_core:
            objective = kernel.EntropyObjective(total.numpy(), share.numpy(), eta.numpy(), beta, limit)
            entropy = torch.from_numpy(kernel.gradient(self._tables(), objective, self.grad_w.numpy(),
                                                       self.grad_z[:n].numpy(), torch.get_num_threads()))
        else:
            entropy = self._dense_gradient(total, beta * share, limit, eta)
        grad_e = (self.grad_z[:n] * (1 - self.z[:n].square()))[:, :-1]
        self.generator.w.grad = self.grad_w.clone()
        self.generator.e.grad = torch.zeros_like(self.generator.e)
        if n:
            context = self.context_index.context(torch.cat(self.key_batches))
            for embedding_row in self.generator.embedding_rows(context).T:
                self.generator.e.grad.index_add_(0, embedding_row, grad_e)
        return float((share * entropy).sum()), float((share * (limit - entropy).clamp(min=0)).sum())

    def _dense_gradient(self, total: Tensor, weight: Tensor, limit: float, eta: Tensor) -> Tensor:
        """Add the dense half of the gradient (generator.py). Returns H, (n,). weight (n,): h where H is below limit."""
        entropy, w = torch.empty_like(total), self.generator.w
        for rows in self._chunks(0, len(total)):
            g, z = self.g[rows], self.z[rows]                                                     # (m, C), (m, H)
            entropy[rows] = own = self.log_z[rows] - (z * (g @ w)).sum(1) + g @ eta
            h = torch.where(own < limit, weight[rows], 0.0).unsqueeze(1)
            log_g = g.clamp(min=torch.finfo(g.dtype).tiny).log()
            slope = g * (total[rows].unsqueeze(1) + h * (log_g - eta + own.unsqueeze(1)))         # (m, C)
            self.grad_z[rows] += slope @ w
            self.grad_w.addmm_(slope.T, z)
        return entropy

    def invalidate(self) -> None:
        """Drop all rows and all that was collected, after a step."""
        self.context_index.clear()
        for table in (self.total, self.count, self.grad_z):
            table[:self.n_rows] = 0
        self.grad_w.zero_()
        self.n_rows, self.key_batches, self.n_draws, self.generation = 0, [], 0, object()

    # -- state --------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """State of the collected gradient, and the groups in which keys were added.

        The last bits of a matrix product depend on its shape, so rows are recomputed in the same groups.
        """
        n = self.n_rows
        return {"keys": torch.cat(self.key_batches) if self.key_batches else self.context_index.keys[:0].clone(),
                "together": torch.tensor([len(x) for x in self.key_batches], dtype=torch.int64, device="cpu"),
                "drawn": self.n_draws, "total": self.total[:n].clone(), "count": self.count[:n].clone(),
                "into_z": self.grad_z[:n].clone(), "into_w": self.grad_w.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore, after the parameters of the generator: recomputes the rows."""
        self.invalidate()
        for new in state["keys"].to(self.grad_w.device).split(state["together"].tolist()):
            self._add(new)
        self.n_draws = state["drawn"]
        for name, table in (("total", self.total), ("count", self.count), ("into_z", self.grad_z)):
            table[:self.n_rows] = state[name]
        self.grad_w.copy_(state["into_w"])
