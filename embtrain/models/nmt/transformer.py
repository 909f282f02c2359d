"""A small Transformer: n layers read, n layers write; each adds to its input what it makes of the normed input.

    x ← x + A(norm x)       A: heads of softmax(q k / √d) v over the words of the source, or those written so far
    x ← x + C(norm x)       C: the same over the source that was read; in the writing layers
    x ← x + W' relu(W norm x)

Places are told by sines and cosines; words are normed before they meet, or places would drown them.
Vaswani et al. 2017; norms before the layers: Xiong et al. 2020.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from embtrain.models.nmt.network import Drop, Memory, Net, State, attend, behind


class Heads(nn.Module):
    """Attention by several heads, each over its share of the numbers."""

    def __init__(self, H: int, heads: int):
        super().__init__()
        self.heads, self.scale = heads, (H // heads) ** -0.5
        self.norm, self.q, self.kv, self.out = nn.LayerNorm(H), nn.Linear(H, H), nn.Linear(H, 2 * H), nn.Linear(H, H)

    def forward(self, x: Tensor, kv: Tensor, masked: Tensor) -> tuple[Tensor, Tensor]:
        """What x (n, T, H), normed, sees in kv (n, S, 2H); masked broadcasts to (n, heads, T, S)."""
        q, (k, v) = self._parted(self.q(x)) * self.scale, (self._parted(part) for part in kv.chunk(2, 2))
        seen, a = attend(q, k, v, masked)                                    # (n, heads, T, ·)
        return self.out(seen.transpose(1, 2).flatten(2)), a.mean(1)

    def _parted(self, x: Tensor) -> Tensor:
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)              # (n, heads, ·, d)


class Layer(nn.Module):
    def __init__(self, H: int, heads: int):
        super().__init__()
        self.own = Heads(H, heads)
        self.norm, self.wide, self.narrow = nn.LayerNorm(H), nn.Linear(H, 4 * H), nn.Linear(4 * H, H)

    def think(self, x: Tensor, drop: Drop) -> Tensor:
        return x + drop(self.narrow(torch.relu(self.wide(self.norm(x)))))


class Writing(Layer):
    def __init__(self, H: int, heads: int):
        super().__init__(H, heads)
        self.source = Heads(H, heads)


class Transformer(Net):
    def __init__(self, E: int, H: int, layers: int, heads: int):
        super().__init__()
        self.H = H
        self.enter, self.begin = nn.Linear(E, H), nn.Linear(E, H)
        self.reads, self.writes = [Layer(H, heads) for _ in range(layers)], [Writing(H, heads) for _ in range(layers)]
        self.layers = nn.ModuleList([*self.reads, *self.writes])
        self.norm_x, self.norm_y, self.norm_read, self.norm_written = (nn.LayerNorm(H) for _ in range(4))

    def read(self, x: Tensor, length: Tensor, drop: Drop) -> Memory:
        beyond = behind(length, x.shape[1])
        x = drop(self.norm_x(self.enter(x)) + self._places(0, x.shape[1], x))
        for layer in self.reads:
            normed = layer.own.norm(x)
            x = x + drop(layer.own(normed, layer.own.kv(normed), beyond[:, None, None])[0])
            x = layer.think(x, drop)
        x = self.norm_read(x)
        keys = torch.cat([layer.source.kv(x) for layer in self.writes], 2)   # (n, S, layers · 2H)
        none = x.new_zeros(len(x), 0, 2 * self.H)
        return Memory(x, keys, beyond, tuple(none for _ in self.writes))

    def states(self, memory: Memory, y: Tensor, drop: Drop) -> tuple[Tensor, Tensor]:
        found, a, _ = self._write(memory, y, memory.start, drop)
        return found, a

    def step(self, memory: Memory, y: Tensor, state: State, drop: Drop) -> tuple[Tensor, Tensor, State]:
        found, a, state = self._write(memory, y.unsqueeze(1), state, drop)
        return found[:, 0], a[:, 0], state

    def _write(self, memory: Memory, y: Tensor, state: State, drop: Drop) -> tuple[Tensor, Tensor, State]:
        """Some words more (n, T, E), after those whose keys and values `state` holds, (n, t, 2H) of each layer."""
        t, T = state[0].shape[1], y.shape[1]
        later = torch.arange(t + T, device=y.device) > torch.arange(t, t + T, device=y.device).unsqueeze(1)
        x, kept, a = drop(self.norm_y(self.begin(y)) + self._places(t, T, y)), [], y
        for layer, before, kv in zip(self.writes, state, memory.keys.chunk(len(self.writes), 2), strict=True):
            normed = layer.own.norm(x)
            kept.append(torch.cat([before, layer.own.kv(normed)], 1))
            x = x + drop(layer.own(normed, kept[-1], later)[0])
            seen, a = layer.source(layer.source.norm(x), kv, memory.beyond[:, None, None])
            x = layer.think(x + drop(seen), drop)
        return self.norm_written(x), a, tuple(kept)

    def _places(self, begin: int, n: int, like: Tensor) -> Tensor:
        """(n, H): what tells a place."""
        half = torch.arange(self.H // 2, dtype=torch.float32, device=like.device)
        angle = torch.arange(begin, begin + n, device=like.device).unsqueeze(1) * torch.exp(
            half * (-math.log(10_000.0) / max(1, self.H // 2 - 1)))
        return torch.cat([angle.sin(), angle.cos()], 1).to(like.dtype)
