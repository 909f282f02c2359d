"""What the nets of a translator have in common: they read a source, and answer each word with a state.

    read    x (n, S, E), lengths (n,) -> memory
    states  memory, y (n, T, E): the words before each answer -> states (n, T, H), attention (n, T, S)
    step    memory, y (n, E), where it stands -> state (n, H), attention (n, S), where it stands then

`states` is many steps at once, and gives the same. All tensors of a memory and of where a net stands have a sentence in
each row, so that a search may choose among them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from embtrain.models.base import AbstractMethod

Dropout = Callable[[Tensor], Tensor]
DecoderState = tuple[Tensor, ...]  # where a net stands, a sentence in each row


@dataclass(frozen=True)
class Memory:
    """A source that was read."""

    values: Tensor   # (n, S, H)
    keys: Tensor     # (n, S, ·)
    is_padding: Tensor   # (n, S) bool  behind the end of the sentence
    start: DecoderState     # where the net stands before the first word

    def rows(self, index: Tensor) -> Memory:
        return Memory(self.values[index], self.keys[index], self.is_padding[index], select_rows(self.start, index))


class Net(nn.Module):
    """Base of both nets. Made without values; `settle` gives them."""

    def encode(self, x: Tensor, length: Tensor, drop: Dropout) -> Memory:
        raise AbstractMethod(self, "encode")

    def decode(self, memory: Memory, y: Tensor, drop: Dropout) -> tuple[Tensor, Tensor]:
        raise AbstractMethod(self, "decode")

    def decode_step(
        self, memory: Memory, y: Tensor, state: DecoderState, drop: Dropout
    ) -> tuple[Tensor, Tensor, DecoderState]:
        raise AbstractMethod(self, "decode_step")


def select_rows(state: DecoderState, index: Tensor) -> DecoderState:
    return tuple(x[index] for x in state)


def padding_mask(length: Tensor, S: int) -> Tensor:
    """(n, S) bool: places behind the end of each sentence."""
    return torch.arange(S, device=length.device) >= length.unsqueeze(1)


def attend(queries: Tensor, keys: Tensor, values: Tensor, masked: Tensor) -> tuple[Tensor, Tensor]:
    """Σ_s a_s v_s and a = softmax_s(q·k_s): of questions (..., T, d), keys (..., S, d); masked broadcasts to (T, S)."""
    score = queries @ keys.transpose(-1, -2)                                # (..., T, S)
    a = score.masked_fill(masked, torch.finfo(score.dtype).min).softmax(-1)
    return a @ values, a


def init_parameters(net: nn.Module, random: torch.Generator) -> None:
    """Matrices ~ U(−1, 1) / √(numbers that go in); biases 0, forget biases of LSTMs and scales of norms 1."""
    with torch.no_grad():
        for name, p in net.named_parameters():
            if p.ndim > 1:
                p.copy_((torch.rand(p.shape, generator=random) * 2 - 1) * p.shape[1] ** -0.5)
            else:
                p.fill_(float("norm" in name and name.endswith("weight")))
            if "bias_ih" in name:
                p[len(p) // 4:len(p) // 2] = 1.0
