"""Translates sentences of word ids; examples, with the words nearest to each output. Below the task of translators."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor, nn

from embtrain.common.progress import Progress
from embtrain.common.types import Query
from embtrain.data.parallel.batches import make_batch, pad_sources
from embtrain.data.parallel.corpus import ParallelCorpus
from embtrain.data.text.vocabulary import Vocabulary
from embtrain.evaluate.translation import decoding
from embtrain.evaluate.translation.bf16_search import Bf16Search
from embtrain.evaluate.translation.scores import TranslationEvaluate
from embtrain.experiment.run import scoring
from embtrain.experiment.run.model_parts import ModelParts
from embtrain.losses.base import Loss
from embtrain.models.nmt.model import Nmt

N_NEAREST = 5                # words shown per output vector


class Sentences(Protocol):
    """The part of the translation task that is needed here."""

    @property
    def text(self) -> ParallelCorpus: ...
    @property
    def target(self) -> Vocabulary: ...
    @property
    def evaluate(self) -> TranslationEvaluate: ...
    def source_tokens(self, i: int) -> list[str]: ...
    def detokenize(self, words: list[str]) -> str: ...


def translate(parts: ModelParts, task: Sentences, sentences: Sequence[np.ndarray], words: Sequence[Sequence[str]],
              config: TranslationEvaluate) -> list[list[str]]:
    """The words of each translation. sentences: source ids; words: the same as words.

    An empty source has an empty translation, in evaluation as in the command.
    """
    out = {i: list[str]() for i, ids in enumerate(sentences) if not len(ids)}
    order = sorted((i for i in range(len(sentences)) if i not in out), key=lambda i: len(sentences[i]))
    logits, model = scoring.logits(parts, corrected=True), cast(Nmt, parts.model)
    best = Bf16Search(model) if config.table == "bfloat16" else None
    needs_density = model.has_frozen_table and not parts.loss.traits.estimates_log_prob
    step = partial(_density, parts.loss) if needs_density else None
    progress = Progress("translating", len(order), "sentences")
    for begin in range(0, len(order), config.batch):
        batch = order[begin:begin + config.batch]
        source, length = (x.to(parts.problem.device) for x in pad_sources([sentences[i] for i in batch]))
        translated = decoding.translate(model, logits, source, length, config.beam, config.unknown != "ban", best=best,
                                        step=step)
        for i, ids in zip(batch, translated, strict=True):
            out[i] = decoding.words(ids, task.target.words, words[i], config.unknown == "copy",
                                    config.duplicates == "remove")
        progress.add(len(batch))
    progress.close()
    return [out[i] for i in range(len(sentences))]


def _density(loss: Loss, z: Tensor, query: Query) -> Tensor:
    """Turn logits (n, V) into log densities if the loss states a scale; otherwise return them unchanged."""
    scale = loss.log_scale(query)
    return z if scale is None else z + scale


@torch.no_grad()
def answers(parts: ModelParts, task: Sentences, part: str, n: int) -> list[list[str]]:
    """Return [source, translation, reference] of at most n evaluated sentences of a part, evenly spaced."""
    evaluated = task.text.part(part)[:task.evaluate.sentences]
    chosen = [evaluated[i] for i in sorted({i * len(evaluated) // n for i in range(n)})] if len(evaluated) else []
    translated = translate(parts, task, [task.text.source.sentence(i) for i in chosen],
                           [task.source_tokens(i) for i in chosen], task.evaluate)
    return [[task.text.pair(i)[0], task.detokenize(words), task.text.pair(i)[1]]
            for i, words in zip(chosen, translated, strict=True)]


@torch.no_grad()
def examples(parts: ModelParts, task: Sentences, n: int) -> list[dict[str, Any]]:
    """Translations of the first n test sentences, with the words nearest to each wrong output.

    For each output ê whose nearest word is not its target e: the words nearest to ê, those nearest to the negative that
    projection makes, unit(ê − (ê·e) e), and the cosine ê·e.
    """
    chosen = task.text.part("test")[:n]
    if not len(chosen):
        return []
    source = [task.text.source.sentence(i) for i in chosen]
    translated = translate(parts, task, source, [task.source_tokens(i) for i in chosen], task.evaluate)
    batch = make_batch(task.text, np.array(chosen))
    query = scoring.encode_heldout(parts, batch)
    table = nn.functional.normalize(parts.model.table().detach(), dim=1)                  # (V, D)
    output, target = nn.functional.normalize(query.vector, dim=1), table[query.target]    # (B, D)
    cos = (output * target).sum(1, keepdim=True)                                          # (B, 1)
    negative = nn.functional.normalize(output - cos * target, dim=1)
    nearest, nearest_to_negative = (_nearest(x, table, task.target.words) for x in (output, negative))
    out = []
    for row, (i, words) in enumerate(zip(chosen, translated, strict=True)):
        positions = (query.windows() == row).nonzero()[:, 0].tolist()
        errors = [{"right": task.target.words[int(query.target[position])], "cosine": round(float(cos[position]), 5),
                   "nearest": nearest[position], "negative": nearest_to_negative[position]}
                  for position in positions if nearest[position][0] != task.target.words[int(query.target[position])]]
        out.append({"source": task.text.pair(i)[0], "reference": task.text.pair(i)[1],
                    "translation": task.detokenize(words), "wrong": errors})
    return out


def _nearest(x: Tensor, table: Tensor, words: Sequence[str]) -> list[list[str]]:
    best = (x @ table.T).topk(min(N_NEAREST, len(table)), 1).indices.tolist()
    return [[words[i] for i in row] for row in best]
