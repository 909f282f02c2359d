"""LSTMs with attention: a bidirectional encoder layer and two decoder layers.

    m_s = [LSTM→(x)_s; LSTM←(x)_s]        h¹_t = LSTM¹(y_t)      a_t = softmax_s(h¹_t · W m_s)      c_t = Σ_s a_ts m_s
    h²_t = LSTM²([h¹_t; c_t])             o_t = tanh(W' [c_t; h²_t])

With input feeding LSTM¹ reads [y_t; o_{t−1}] (Luong, Pham and Manning 2015), which requires a loop over the words of a
sentence; without it, each layer runs over the whole sentence at once. Both decoder LSTMs start from tanh(W'' m̄), with
m̄ the mean of m.
Bahdanau, Cho and Bengio 2015; attention between two layers: Wu et al. 2016.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from embtrain.models.nmt.network import DecoderState, Dropout, Memory, Net, attend, padding_mask


class Recurrent(Net):
    """LSTM encoder-decoder with attention."""

    def __init__(self, E: int, H: int, input_feeding: bool):
        super().__init__()
        self.H, self.input_feeding = H, input_feeding
        self.ahead, self.back = nn.LSTM(E, H // 2, batch_first=True), nn.LSTM(E, H // 2, batch_first=True)
        self.keys, self.begin = nn.Linear(H, H, bias=False), nn.Linear(H, 2 * H)
        self.first = nn.LSTM(E + (H if input_feeding else 0), H, batch_first=True)
        self.second = nn.LSTM(2 * H, H, batch_first=True)
        self.out = nn.Linear(2 * H, H)

    def encode(self, x: Tensor, length: Tensor, drop: Dropout) -> Memory:
        n, S = x.shape[:2]
        x, is_padding = drop(x), padding_mask(length, S)
        # Reverse each sentence within its length, so that padding comes last in both directions and has no effect.
        position = torch.arange(S, device=x.device)
        reversed_index = torch.where(is_padding, position, length.unsqueeze(1) - 1 - position).unsqueeze(2).expand(
            n, S, max(x.shape[2], self.H // 2))                              # (n, S, ·)
        back = self.back(x.gather(1, reversed_index[:, :, :x.shape[2]]))[0].gather(
            1, reversed_index[:, :, :self.H // 2])
        m = torch.cat([self.ahead(x)[0], back], 2)                           # (n, S, H)
        mean = m.masked_fill(is_padding.unsqueeze(2), 0).sum(1) / length.unsqueeze(1)
        h1, h2 = torch.tanh(self.begin(mean)).chunk(2, 1)
        zeros = torch.zeros_like(h1)
        return Memory(m, self.keys(m), is_padding, (h1, zeros, h2, zeros, zeros))

    def decode(self, memory: Memory, y: Tensor, drop: Dropout) -> tuple[Tensor, Tensor]:
        if self.input_feeding:
            state, outputs = memory.start, []
            for t in range(y.shape[1]):
                o, a, state = self.decode_step(memory, y[:, t], state, drop)
                outputs.append((o, a))
            return torch.stack([o for o, _ in outputs], 1), torch.stack([a for _, a in outputs], 1)
        h1, c1, h2, c2, _ = (x.unsqueeze(0).contiguous() for x in memory.start)
        first = drop(self.first(drop(y), (h1, c1))[0])                       # (n, T, H)
        c, a = self._attend(memory, first)
        second = self.second(torch.cat([first, c], 2), (h2, c2))[0]
        return torch.tanh(self.out(torch.cat([c, second], 2))), a

    def decode_step(self, memory: Memory, y: Tensor, state: DecoderState,
                    drop: Dropout) -> tuple[Tensor, Tensor, DecoderState]:
        h1, c1, h2, c2 = (x.unsqueeze(0).contiguous() for x in state[:4])
        y = drop(y)
        inputs = torch.cat([y, state[4]], 1) if self.input_feeding else y
        first, (h1, c1) = self.first(inputs.unsqueeze(1), (h1, c1))
        first = drop(first)
        c, a = self._attend(memory, first)
        second, (h2, c2) = self.second(torch.cat([first, c], 2), (h2, c2))
        o = torch.tanh(self.out(torch.cat([c, second], 2)))[:, 0]            # (n, H)
        return o, a[:, 0], (h1[0], c1[0], h2[0], c2[0], o)

    def _attend(self, memory: Memory, first: Tensor) -> tuple[Tensor, Tensor]:
        return attend(first, memory.keys, memory.values, memory.is_padding.unsqueeze(1))
