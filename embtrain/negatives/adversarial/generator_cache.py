"""g between two of its steps: exact rows for the questions asked so far, and what has been collected for the step.

While the parameters rest, g(.|x) depends on x alone. So log Z_x, the greedy answer and what draws from the row g(.|x)
need are worked out when x is first asked, and serve every later draw and density until the step; draws hand in their
factors a_i (generator.py), of which the sparse part of the gradient is added up at once and the dense part is paid
before it, once for each x. With a step after each block this is plain REINFORCE; with one after several, the same on a
larger batch.

On a CPU in float32 the draws go through the kernels, else through torch. The kernels need of a row the running sums of
its blocks alone; the rows themselves are made anew for the gradient, which is quicker than to fetch them from memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from embtrain.common.types import GENERATOR, NOISE, PROBE
from embtrain.kernels.sampling import generator as kernel, reinforce
from embtrain.negatives.adversarial.generator import Generator, argmax, draw_rows
from embtrain.negatives.sampling.alias import Alias, bits_of
from embtrain.negatives.sampling.context_index import ContextIndex

CELLS = 1 << 18  # scores of one matrix product: what it makes is read again while it is in the cache
LARGE = 1024     # rows of one at most
SMALL = 128      # and at least, or the product is slow


class Drawn(NamedTuple):
    """K columns of G rows, (G, K) each."""

    ids: Tensor       # int64
    origin: Tensor    # int8  NOISE, GENERATOR or PROBE
    log_g: Tensor
    log_q: Tensor


class GeneratorCache:
    def __init__(self, generator: Generator, noise: Alias, p: Tensor, mix: float):
        self.generator, self.noise, self.p, self.mix = generator, noise, p.float(), mix
        device, c = p.device, generator.classes
        self.native = device.type == "cpu" and generator.w.dtype == torch.float32
        if self.native:
            self.word = kernel.pack_words(c.klass.numpy(), c.log_within.numpy(), self.p.numpy())
            self._panel = kernel.to_panels(generator.w.detach().numpy())
            self._fixed = (self.word, noise.bits, noise.other, c.member.numpy(), c.first.numpy(),
                           bits_of(c.keep.numpy()), c.instead.numpy())
        self.slots = ContextIndex(generator.sizes, device)                                         # row of x, or -1
        self.n, self.asked, self.drawn = 0, list[Tensor](), 0                               # asked: keys
        self._at_once = max(SMALL, min(LARGE, CELLS // max(1, c.n)))
        self._scratch = torch.empty(self._at_once, c.n, dtype=generator.w.dtype, device=device)
        self.into_w = torch.zeros_like(generator.w, requires_grad=False)                    # (C, H)
        self._make_room(0)

    # -- rows ---------------------------------------------------------------------------------------------------

    def find(self, context: Tensor) -> Tensor:
        """The row of each context, (n,) or (n, columns); those not asked since the last step are worked out."""
        key = self.slots.key(context)
        row = self.slots.find(key)
        if len(row) and int(row.min()) < 0:
            self._add(self.slots.missing(key))
            row = self.slots.find(key)
        return row

    @torch.no_grad()
    def _add(self, new: Tensor) -> None:
        begin, end = self.n, self.n + len(new)
        c, w = self.generator.classes, self.generator.w
        if self.native and begin == 0:  # since the last row was made the parameters may have moved
            self._panel = kernel.to_panels(w.numpy())
        if end > len(self.z):
            self._make_room(max(end, min(2 * len(self.z), self.slots.n_keys)))
        self.asked.append(new)
        self.n = end
        self.slots.add(new, begin)
        self.z[begin:end] = self.generator.z(self.slots.context(new))
        for rows in self._chunks(begin, end):
            logits = self._logits(rows)                                                     # (m, C)
            if self.native:
                best = torch.empty(len(logits), dtype=torch.int64)
                kernel.summarize_rows(logits.numpy(), c.log_best.numpy(), kernel.GeneratorRows(
                    self.ends[rows].numpy().view(np.uint32), self.log_z[rows].numpy(), best.numpy(),
                    self.log_best[rows].numpy()))
            else:
                self.g[rows] = g = logits.softmax(1)
                best = argmax(g * c.log_best.exp())
                at = best.unsqueeze(1)
                log_g = g.gather(1, at).log().squeeze(1)
                self.log_z[rows] = logits.gather(1, at).squeeze(1) - log_g
                self.log_best[rows] = log_g + c.log_best[best]
            self.greedy[rows] = c.chief[best]

    def _logits(self, rows: slice) -> Tensor:
        return torch.mm(self.z[rows], self.generator.w.T, out=self._scratch[:rows.stop - rows.start])

    def _g(self, rows: slice, eta: Tensor) -> tuple[Tensor, Tensor]:
        """g of some rows (m, C), for a while: the next rows take their place; and Σ_c g_c η_c (m,)."""
        if not self.native:
            return self.g[rows], self.g[rows] @ eta
        g = self._logits(rows)
        return g, torch.from_numpy(kernel.soften(g.numpy(), self.log_z[rows].numpy(), eta.numpy()))

    def _chunks(self, begin: int, end: int) -> list[slice]:
        step = self._at_once
        return [slice(start, min(end, start + step)) for start in range(begin, end, step)]

    def _make_room(self, rows: int) -> None:
        """Tables for so many rows; what the first n hold stays. They are kept from step to step: new pages are slow."""
        def grown(name: str, shape: tuple[int, ...], dtype: torch.dtype, fill: bool) -> Tensor:
            make = torch.zeros if fill else torch.empty
            new = make(shape, dtype=dtype, device=self.into_w.device)
            if self.n:
                new[:self.n] = getattr(self, name)[:self.n]
            return new
        real, hidden = self.generator.w.dtype, self.generator.w.shape[1]
        self.z = grown("z", (rows, hidden), real, False)
        if self.native:
            self.ends = grown("ends", (rows, kernel.n_ends(self.generator.classes.n)), torch.int32, False)
        else:
            self.g = grown("g", (rows, self.generator.classes.n), real, False)
        self.log_z = grown("log_z", (rows,), real, False)
        self.greedy = grown("greedy", (rows,), torch.int64, False)                          # argmax_y g(y|x)
        self.log_best = grown("log_best", (rows,), real, False)                             # log g of it
        self.total = grown("total", (rows,), real, True)                                    # A_x
        self.count = grown("count", (rows,), real, True)                                    # draws of x
        self.into_z = grown("into_z", (rows, hidden), real, True)

    def _tables(self) -> kernel.GeneratorTables:
        def upto(x: Tensor) -> np.ndarray:
            return x[:self.n].numpy()
        return kernel.GeneratorTables(upto(self.z), self.generator.w.detach().numpy(), self._panel, upto(self.log_z),
                             upto(self.ends).view(np.uint32), upto(self.greedy), upto(self.log_best), *self._fixed,
                             self.mix)

    # -- draws and densities ------------------------------------------------------------------------------------

    def draw(self, row: Tensor, k: int, by_noise: int | None, probe: bool, random: torch.Generator) -> Drawn:
        """k columns of each row (G,), and with `probe` its greedy answer behind them. The noise draws the first
        `by_noise`, or each with probability λ (None)."""
        if self.native:
            seed = int(torch.randint(2**62, (), generator=random))
            return Drawn(*map(torch.from_numpy, kernel.draw(self._tables(), row.numpy(), k, by_noise, probe, seed)))
        shape, device, c = (len(row), k), row.device, self.generator.classes
        if by_noise is None:
            noise = torch.rand(shape, generator=random, device=device) < self.mix
        else:
            noise = (torch.arange(k, device=device) < by_noise).expand(shape)
        ids = torch.empty(shape, dtype=torch.int64, device=device)
        ids[noise] = self.noise.draw((int(noise.sum()),), random)
        klass = draw_rows(self.g[:self.n], row[(~noise).nonzero()[:, 0]], random)
        v = torch.rand(len(klass), generator=random, device=device, dtype=torch.float64)
        ids[~noise] = c.member_at(klass, v)
        origin = torch.where(noise, NOISE, GENERATOR).to(torch.int8)
        if probe:
            ids = torch.cat([ids, self.greedy[row].unsqueeze(1)], 1)
            origin = torch.cat([origin, origin.new_full((len(row), 1), PROBE)], 1)
        return Drawn(ids, origin, *self.density(ids, row))

    def density(self, ids: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        """log g and log q of ids (n, K), each line asked of a row (n,): (n, K) each."""
        if self.native:
            n, k = ids.shape
            found = kernel.density(self._tables(), ids.reshape(-1).numpy(), row.contiguous().numpy(),
                                   np.arange(0, n * k + 1, k) if k else np.zeros(n + 1, np.int64))
            return torch.from_numpy(found[0]).view(n, k), torch.from_numpy(found[1]).view(n, k)
        c, w = self.generator.classes, self.generator.w.detach()
        log_g = torch.einsum("nkh,nh->nk", w[c.klass[ids]], self.z[row]) - self.log_z[row].unsqueeze(1)
        log_g = log_g + c.log_within[ids]
        return log_g, self.mixture(log_g, ids)

    def log_q(self, ids: Tensor, row: Tensor, start: Tensor) -> Tensor:
        """log q of ids (N,), those from start[i] to start[i + 1] asked of row[i]: (N,)."""
        if self.native:
            found = kernel.density(self._tables(), ids.contiguous().numpy(), row.numpy(), start.numpy())
            return torch.from_numpy(found[1])
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
        """Draws (G, K) of rows (G,) with factors a (G, K)."""
        self.drawn += len(row)
        total, into_z, count = self.total[:self.n], self.into_z[:self.n], self.count[:self.n]
        if self.native:
            reinforce.collect(self._tables(), ids.numpy(), row.numpy(), a.contiguous().numpy(),
                              reinforce.GradientSums(
                self.into_w.numpy(), into_z.numpy(), total.numpy(), count.numpy()))
            return
        count += torch.bincount(row, minlength=self.n)
        klass, rows = self.generator.classes.klass[ids].reshape(-1), row.repeat_interleave(ids.shape[1])
        flat = a.reshape(-1, 1)
        into_z.index_add_(0, rows, -flat * self.generator.w.detach()[klass])
        self.into_w.index_add_(0, klass, -flat * self.z[rows])
        total.index_add_(0, rows, flat[:, 0])

    @torch.no_grad()
    def gradient(self, scale: float, beta: float, limit: float) -> tuple[float, float]:
        """Set the gradient of -(scale Σ_i a_i log g(y_i|x_i) - β mean_x max(0, limit - H_x)), the mean over draws;
        mean H and mean hinge. The rows are used up: `forget` must follow."""
        n, c, w = self.n, self.generator.classes, self.generator.w
        self.into_w *= scale
        self.into_z[:n] *= scale
        total, share = scale * self.total[:n], self.count[:n] / max(1, self.drawn)          # (n,) each
        entropy, eta = torch.empty_like(share), c.eta.to(w.dtype)
        for rows in self._chunks(0, n):
            (g, within), z = self._g(rows, eta), self.z[rows]                               # (m, C), (m,), (m, H)
            mean_w = g @ w                                                                  # (m, H)
            entropy[rows] = self.log_z[rows] - (z * mean_w).sum(1) + within
            into_z = total[rows].unsqueeze(1) * mean_w                                      # (m, H)
            factor = total[rows].unsqueeze(1)                                               # (m, 1) of g in the slope
            h = beta * share[rows] * (entropy[rows] < limit)
            if (pulled := (h > 0).unsqueeze(1)).any():
                self._slope(g, total[rows], h, entropy[rows], eta)
                into_z, factor = torch.where(pulled, g @ w, into_z), torch.where(pulled, 1.0, factor)
            self.into_z[rows] += into_z
            self.into_w.addmm_(g.T, factor * z)
        into_e = (self.into_z[:n] * (1 - self.z[:n].square()))[:, :-1]
        self.generator.w.grad = self.into_w.clone()
        self.generator.e.grad = torch.zeros_like(self.generator.e)
        if n:
            for place in self.generator.places(self.slots.context(torch.cat(self.asked))).T:
                self.generator.e.grad.index_add_(0, place, into_e)
        return float((share * entropy).sum()), float((share * (limit - entropy).clamp(min=0)).sum())

    def _slope(self, g: Tensor, a: Tensor, h: Tensor, entropy: Tensor, eta: Tensor) -> None:
        """g_c <- g_c (a + h (log g_c - η_c + H)) in the rows where h > 0."""
        if self.native:
            kernel.slope(g.numpy(), a.numpy(), h.numpy(), entropy.numpy(), eta.numpy())
            return
        which = h > 0
        part = g[which]
        log_g = part.clamp(min=torch.finfo(g.dtype).tiny).log()
        pull = h[which].unsqueeze(1) * (log_g - eta + entropy[which].unsqueeze(1))
        g[which] = part * (a[which].unsqueeze(1) + pull)

    def forget(self) -> None:
        """The parameters have moved: no row holds any more."""
        self.slots.clear()
        for table in (self.total, self.count, self.into_z):
            table[:self.n] = 0
        self.into_w.zero_()
        self.n, self.asked, self.drawn = 0, [], 0

    # -- state --------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """What was collected, and which questions were asked together: a product's last bits depend on its shape."""
        n = self.n
        return {"asked": torch.cat(self.asked) if self.asked else self.slots.keys[:0].clone(),
                "together": torch.tensor([len(x) for x in self.asked], dtype=torch.int64), "drawn": self.drawn,
                "total": self.total[:n].clone(), "count": self.count[:n].clone(), "into_z": self.into_z[:n].clone(),
                "into_w": self.into_w.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """After the generator's parameters were loaded: the rows are made of them again."""
        self.forget()
        for new in state["asked"].to(self.into_w.device).split(state["together"].tolist()):
            self._add(new)
        self.drawn = state["drawn"]
        for name in ("total", "count", "into_z"):
            getattr(self, name)[:self.n] = state[name]
        self.into_w.copy_(state["into_w"])
