"""Decoding: from a source sentence to its translation, word by word until <eos>.

    greedy    y_t = argmax_b z_tb                              b: a candidate word
    beam      keeps the m hypotheses with the greatest mean word score, <eos> included

z: logits of a query, one row over all candidates. The word score of b is log softmax z by default. A caller passes
another as `step`: z itself for losses without a normalized distribution (cosine, margin), or the log density (vMF).

The nearest neighbours of a batch are one product with the table. If the model predicts vectors, a beam can be worse
than greedy (Tokarchuk and Niculae 2024 lost 2 BLEU with a beam of 5): evaluate both. Two post-processing steps are off
by default, because published figures may include them: `copy` replaces an unknown word by the source word with the
highest attention (Luong et al. 2015); `remove` drops a word equal to the previous one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from embtrain.common.types import Query
from embtrain.data.parallel.corpus import END, RARE
from embtrain.models.nmt.model import Nmt

Logits = Callable[[Query], Tensor]
Step = Callable[[Tensor, Query], Tensor]    # z (n, V), queries -> word scores, which a beam adds, (n, V)
BestWord = Callable[[Query, bool], Tensor]  # queries, whether <unk> is allowed -> ids of the best words, (n,)


class Decoded(NamedTuple):
    """One translation: the ids of its words without <eos>, and for each the source position with the highest attention.
    """

    ids: list[int]
    attended: list[int]


@torch.no_grad()
def translate(model: Nmt, logits: Logits, source: Tensor, length: Tensor, beam: int = 1, unknown: bool = False,
              max_words: Tensor | None = None, best: BestWord | None = None, step: Step | None = None) -> list[Decoded]:
    """Translate source ids (n, S) with lengths (n,), <eos> included.

    unknown: <unk> is allowed. max_words: limit per sentence, (n,); None: 2 × source length + 10. best: finds the next
    word of a greedy search; None: by the logits; a beam ignores it. step: the word scores of a beam; None: log softmax
    of the logits; greedy search ignores it.
    """
    was_training = model.training
    model.eval()
    limit = 2 * length + 10 if max_words is None else max_words
    decoded = _greedy(model, best or nearest(logits), source, length, limit, unknown) if beam == 1 \
        else _beam(model, logits, source, length, limit, beam, unknown, step)
    model.train(was_training)
    return decoded


def _attended_word(attention: Tensor, length: Tensor) -> Tensor:
    """Source position with the highest attention, (n,), <eos> excluded."""
    last = (length - 1).clamp(min=1).unsqueeze(1)
    return attention.masked_fill(torch.arange(attention.shape[1], device=length.device) >= last, -1).argmax(1)


def nearest(logits: Logits) -> BestWord:
    """Search for the best word among the logits of all candidates."""
    def best_word(query: Query, unknown: bool) -> Tensor:
        return _mask_unknown(logits(query), unknown).max(1).indices
    return best_word


def _greedy(model: Nmt, best: BestWord, source: Tensor, length: Tensor, limit: Tensor, unknown: bool
            ) -> list[Decoded]:
    memory = model.encode_source(source, length)
    out = [Decoded([], []) for _ in range(len(source))]
    alive = torch.arange(len(source), device=source.device)
    word, state = torch.full_like(alive, model.problem.n_candidates), memory.start  # <bos>: the id after all candidates
    t = 0
    while len(alive):
        query, attention, state = model.decode_step(memory, word, state)
        word, t = best(query, unknown), t + 1
        attended = _attended_word(attention, length)
        for i, b, s in zip(alive.tolist(), word.tolist(), attended.tolist(), strict=True):
            if b != END:
                out[i].ids.append(b)
                out[i].attended.append(s)
        going = ((word != END) & (t < limit)).nonzero()[:, 0]
        if len(going) < len(alive):  # drop finished sentences
            alive, word, length, limit, memory = (
                alive[going],
                word[going],
                length[going],
                limit[going],
                memory.rows(going),
            )
            state = tuple(x[going] for x in state)
    return out


def _mask_unknown(z: Tensor, unknown: bool) -> Tensor:
    """Mask <unk> in z (n, V), in place: a copy would take a tenth of the search time."""
    if not unknown:
        z[:, RARE] = -torch.inf
    return z


def _beam(model: Nmt, logits: Logits, source: Tensor, length: Tensor, limit: Tensor, m: int, unknown: bool,
          step: Step | None) -> list[Decoded]:
    n, V, device = len(source), model.problem.n_candidates, source.device
    beam_rows = torch.arange(n, device=device).repeat_interleave(m)
    memory, length = model.encode_source(source, length).rows(beam_rows), length[beam_rows]
    word, state = torch.full_like(beam_rows, V), memory.start                # <bos>
    total, n_words = torch.zeros(n, m, device=device), torch.zeros(n, m, dtype=torch.int64, device=device)
    total[:, 1:] = -torch.inf                                                # all hypotheses start equal: one is enough
    ended = torch.zeros(n, m, dtype=torch.bool, device=device)
    ids = attended = torch.zeros(n, m, 0, dtype=torch.int64, device=device)
    # a finished hypothesis continues only with <eos>, at score 0
    stay_scores = torch.full((V,), -torch.inf, device=device).index_fill(0, torch.tensor([END], device=device), 0.0)
    limit = limit.unsqueeze(1)
    for t in range(int(limit.max()) if n else 0):
        query, attention, state = model.decode_step(memory, word, state)
        z = _mask_unknown(logits(query), unknown)
        step_scores = (z.log_softmax(1) if step is None else step(z, query)).view(n, m, V)
        beam_scores = total.unsqueeze(2) + torch.where(ended.unsqueeze(2), stay_scores, step_scores)       # (n, m, V)
        lengths = (n_words + ~ended).unsqueeze(2)
        best = (beam_scores / lengths).flatten(1).topk(m, 1).indices                # (n, m) of the m · V
        parent, word_ids = best // V, best % V
        rows = (torch.arange(n, device=device).unsqueeze(1) * m + parent).flatten()
        total, n_words = beam_scores.flatten(1).gather(1, best), lengths[:, :, 0].gather(1, parent)
        ended = ended.gather(1, parent) | (word_ids == END) | (t + 1 >= limit)
        attended_now = _attended_word(attention, length)[rows].view(n, m)
        ids, attended = (torch.cat([x.gather(1, parent.unsqueeze(2).expand(-1, -1, x.shape[2])), new.unsqueeze(2)], 2)
                         for x, new in ((ids, word_ids), (attended, attended_now)))
        word, state = word_ids.flatten(), tuple(x[rows] for x in state)
        if bool(ended.all()):
            break
    first = (total / n_words.clamp(min=1)).argmax(1).tolist()
    return [_until_end(ids[i, j].tolist(), attended[i, j].tolist()) for i, j in enumerate(first)]


def _until_end(ids: list[int], attended: list[int]) -> Decoded:
    n = ids.index(END) if END in ids else len(ids)
    return Decoded(ids[:n], attended[:n])


def words(decoded: Decoded, vocabulary: Sequence[str], source: Sequence[str], copy: bool, remove: bool) -> list[str]:
    """The words of a translation, post-processed. source: the words of the source sentence."""
    out = [source[position] if copy and b == RARE and position < len(source) else vocabulary[b]
           for b, position in zip(decoded.ids, decoded.attended, strict=True)]
    return [word for previous, word in zip([None, *out], out, strict=False) if not remove or word != previous]
