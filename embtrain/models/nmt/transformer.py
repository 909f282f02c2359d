"""A small Transformer: n encoder and n decoder layers, pre-norm with residual connections.

    x ← x + A(norm x)       A: heads of softmax(q k / √d) v over the source, or over the target words so far
    x ← x + C(norm x)       C: the same over the encoded source; in the decoder layers
    x ← x + W' relu(W norm x)

Positions are sinusoidal. Word embeddings are normalized before positions are added, which would otherwise dominate.
Vaswani et al. 2017; norms before the layers: Xiong et al. 2020.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from embtrain.models.nmt.network import DecoderState, Dropout, Memory, Net, attend, padding_mask


class MultiHeadAttention(nn.Module):
    """Multi-head attention."""

    def __init__(self, H: int, heads: int):
        super().__init__()
        self.heads, self.scale = heads, (H // heads) ** -0.5
        self.norm, self.q, self.kv, self.out = nn.LayerNorm(H), nn.Linear(H, H), nn.Linear(H, 2 * H), nn.Linear(H, H)

    def forward(self, x: Tensor, kv: Tensor, masked: Tensor) -> tuple[Tensor, Tensor]:
        """Attend from normalized x (n, T, H) to keys and values kv (n, S, 2H); `masked` broadcasts to (n, heads, T, S).

        Returns the output (n, T, H) and the attention averaged over heads (n, T, S).
        """
        q, (k, v) = self._split_heads(self.q(x)) * self.scale, (self._split_heads(part) for part in kv.chunk(2, 2))
        context, a = attend(q, k, v, masked)                                    # (n, heads, T, ·)
        return self.out(context.transpose(1, 2).flatten(2)), a.mean(1)

    def _split_heads(self, x: Tensor) -> Tensor:
        """Reshape (n, ·, H) to (n, heads, ·, d)."""
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)              # (n, heads, ·, d)


class TransformerLayer(nn.Module):
    """Self-attention and a feed-forward block: a layer of the encoder."""

    def __init__(self, H: int, heads: int):
        super().__init__()
        self.own = MultiHeadAttention(H, heads)
        self.norm, self.wide, self.narrow = nn.LayerNorm(H), nn.Linear(H, 4 * H), nn.Linear(4 * H, H)

    def feed_forward(self, x: Tensor, drop: Dropout) -> Tensor:
        return x + drop(self.narrow(torch.relu(self.wide(self.norm(x)))))


class DecoderLayer(TransformerLayer):
    """A layer of the decoder, with attention to the source."""

    def __init__(self, H: int, heads: int):
        super().__init__(H, heads)
        self.source = MultiHeadAttention(H, heads)


class Transformer(Net):
    """Transformer encoder-decoder."""

    def __init__(self, E: int, H: int, layers: int, heads: int):
        super().__init__()
        self.H = H
        self.enter, self.begin = nn.Linear(E, H), nn.Linear(E, H)
        self.encoder_layers, self.decoder_layers = ([TransformerLayer(H, heads) for _ in range(layers)],
                                                    [DecoderLayer(H, heads) for _ in range(layers)])
        self.layers = nn.ModuleList([*self.encoder_layers, *self.decoder_layers])
        self.norm_x, self.norm_y, self.norm_read, self.norm_written = (nn.LayerNorm(H) for _ in range(4))

    def encode(self, x: Tensor, length: Tensor, drop: Dropout) -> Memory:
        is_padding = padding_mask(length, x.shape[1])
        x = drop(self.norm_x(self.enter(x)) + self._position_encodings(0, x.shape[1], x))
        for layer in self.encoder_layers:
            normed = layer.own.norm(x)
            x = x + drop(layer.own(normed, layer.own.kv(normed), is_padding[:, None, None])[0])
            x = layer.feed_forward(x, drop)
        x = self.norm_read(x)
        keys = torch.cat([layer.source.kv(x) for layer in self.decoder_layers], 2)   # (n, S, layers · 2H)
        empty = x.new_zeros(len(x), 0, 2 * self.H)
        return Memory(x, keys, is_padding, tuple(empty for _ in self.decoder_layers))

    def decode(self, memory: Memory, y: Tensor, drop: Dropout) -> tuple[Tensor, Tensor]:
        output, a, _ = self._decode(memory, y, memory.start, drop)
        return output, a

    def decode_step(self, memory: Memory, y: Tensor, state: DecoderState,
                    drop: Dropout) -> tuple[Tensor, Tensor, DecoderState]:
        output, a, state = self._decode(memory, y.unsqueeze(1), state, drop)
        return output[:, 0], a[:, 0], state

    def _decode(self, memory: Memory, y: Tensor, state: DecoderState,
                drop: Dropout) -> tuple[Tensor, Tensor, DecoderState]:
        """Decode more words (n, T, E) after those whose keys and values are in `state`, (n, t, 2H) per layer."""
        t, T = state[0].shape[1], y.shape[1]
        later = torch.arange(t + T, device=y.device) > torch.arange(t, t + T, device=y.device).unsqueeze(1)
        x, cache, a = drop(self.norm_y(self.begin(y)) + self._position_encodings(t, T, y)), [], y
        source_kv = memory.keys.chunk(len(self.decoder_layers), 2)
        for layer, past, kv in zip(self.decoder_layers, state, source_kv, strict=True):
            normed = layer.own.norm(x)
            cache.append(torch.cat([past, layer.own.kv(normed)], 1))
            x = x + drop(layer.own(normed, cache[-1], later)[0])
            context, a = layer.source(layer.source.norm(x), kv, memory.is_padding[:, None, None])
            x = layer.feed_forward(x + drop(context), drop)
        return self.norm_written(x), a, tuple(cache)

    def _position_encodings(self, first: int, n: int, like: Tensor) -> Tensor:
        """Return the sinusoidal encodings of n positions from `first`, (n, H)."""
        half = torch.arange(self.H // 2, dtype=torch.float32, device=like.device)
        angle = torch.arange(first, first + n, device=like.device).unsqueeze(1) * torch.exp(
            half * (-math.log(10_000.0) / max(1, self.H // 2 - 1)))
        return torch.cat([angle.sin(), angle.cos()], 1).to(like.dtype)
