"""Interface of an encoder-decoder: it encodes a source and returns one decoder state per target word.

    encode       x (n, S, E), lengths (n,) -> memory
    decode       memory, y (n, T, E): previous target words -> states (n, T, H), attention (n, T, S)
    decode_step  memory, y (n, E), state -> state of the word (n, H), attention (n, S), next decoder state

`decode` equals many steps at once. All tensors of a memory and of a decoder state have one sentence per row, so that
beam search can select rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from embtrain.common.config.foreign_classes import AbstractMethod

Dropout = Callable[[Tensor], Tensor]
DecoderState = tuple[Tensor, ...]  # state of a decoder, one sentence per row


@dataclass(frozen=True)
class Memory:
    """An encoded source of n sentences."""

    values: Tensor       # (n, S, H)
    keys: Tensor         # (n, S, ·)
    is_padding: Tensor   # (n, S) bool  positions after the end of the sentence
    start: DecoderState  # decoder state before the first word

    def rows(self, index: Tensor) -> Memory:
        return Memory(self.values[index], self.keys[index], self.is_padding[index], select_rows(self.start, index))


class Net(nn.Module):
    """Base of both networks. Constructed without values; `init_parameters` sets them."""

    def encode(self, x: Tensor, length: Tensor, drop: Dropout) -> Memory:
        raise AbstractMethod(self, "encode")

    def decode(self, memory: Memory, y: Tensor, drop: Dropout) -> tuple[Tensor, Tensor]:
        raise AbstractMethod(self, "decode")

    def decode_step(self, memory: Memory, y: Tensor, state: DecoderState,
                    drop: Dropout) -> tuple[Tensor, Tensor, DecoderState]:
        raise AbstractMethod(self, "decode_step")


def select_rows(state: DecoderState, index: Tensor) -> DecoderState:
    """Select the rows of a decoder state, for beam search."""
    return tuple(x[index] for x in state)


def padding_mask(length: Tensor, S: int) -> Tensor:
    """Return a mask (n, S), True at positions after the end of each sentence."""
    return torch.arange(S, device=length.device) >= length.unsqueeze(1)


def attend(queries: Tensor, keys: Tensor, values: Tensor, masked: Tensor) -> tuple[Tensor, Tensor]:
    """Dot-product attention: Σ_s a_s v_s and a = softmax_s(q·k_s).

    queries (..., T, d), keys and values (..., S, d); `masked` broadcasts to (T, S). Returns (..., T, d), (..., T, S).
    """
    score = queries @ keys.transpose(-1, -2)                                # (..., T, S)
    a = score.masked_fill(masked, torch.finfo(score.dtype).min).softmax(-1)
    return a @ values, a


def init_parameters(net: nn.Module, random: torch.Generator) -> None:
    """Initialize matrices ~ U(−1, 1) / √fan_in; biases 0; forget biases of LSTMs and scales of norms 1."""
    with torch.no_grad():
        for name, p in net.named_parameters():
            if p.ndim > 1:
                toss = torch.rand(p.shape, generator=random, dtype=torch.float32, device="cpu")
                p.copy_((toss * 2 - 1) * p.shape[1] ** -0.5)
            else:
                p.fill_(float("norm" in name and name.endswith("weight")))
            if "bias_ih" in name:
                p[len(p) // 4:len(p) // 2] = 1.0
