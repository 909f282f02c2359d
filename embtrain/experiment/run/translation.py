"""A trained translator at work: lines of text, held-out sentences, and examples with the words nearest to an answer."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from embtrain.common.errors import DataError, UsageError
from embtrain.common.types import Query
from embtrain.data.parallel.batches import make_batch, pad_sources
from embtrain.data.parallel.corpus import encode_words
from embtrain.data.parallel.pieces import join_line
from embtrain.data.parallel.tokenize import tokenize_source
from embtrain.data.storage.containers import sources
from embtrain.data.storage.encoding import encoding_hint
from embtrain.evaluate.translation import decoding
from embtrain.evaluate.translation.bf16_search import Bf16Search
from embtrain.evaluate.translation.scores import TranslationEvaluate
from embtrain.experiment.run import components, scoring, settings as runs
from embtrain.losses.base import Loss
from embtrain.models.nmt.model import Nmt
from embtrain.train.state import checkpoint

if TYPE_CHECKING:
    from embtrain.experiment.run.components import Parts
    from embtrain.experiment.tasks.translation import TranslationTask

NEAREST = 5                # words shown at an answer
LONGEST_LINE = 1_000_000   # bytes
_log = logging.getLogger("embtrain")


def written(made: Parts, task: TranslationTask, sentences: Sequence[np.ndarray], words: Sequence[Sequence[str]],
            config: TranslationEvaluate) -> list[list[str]]:
    """The words of each translation. sentences: ids of the sources; words: the same as words.

    An empty source has an empty translation, in evaluation as in the command.
    """
    out = {i: list[str]() for i, ids in enumerate(sentences) if not len(ids)}
    order = sorted((i for i in range(len(sentences)) if i not in out), key=lambda i: len(sentences[i]))
    logits, model = scoring.logits(made, corrected=True), cast(Nmt, made.model)
    best = Bf16Search(model) if config.table == "bfloat16" else None
    step = partial(_density, made.loss) if model.has_frozen_table and not made.loss.estimates_log_prob else None
    for begin in range(0, len(order), config.batch):
        chosen = order[begin:begin + config.batch]
        source, length = (x.to(made.world.device) for x in pad_sources([sentences[i] for i in chosen]))
        found = decoding.translate(model, logits, source, length, config.beam, config.unknown != "ban", best=best,
                                   step=step)
        for i, one in zip(chosen, found, strict=True):
            out[i] = decoding.words(one, task.target.words, words[i], config.unknown == "copy",
                                    config.duplicates == "remove")
    return [out[i] for i in range(len(sentences))]


def _density(loss: Loss, z: Tensor, query: Query) -> Tensor:
    """Logits (n, V) as the log of the loss's density, where it states one; as they are where it does not."""
    scale = loss.log_scale(query)
    return z if scale is None else z + scale


# --- lines ---------------------------------------------------------------------------------------------------------

def load(
    folder: Path, sets: Sequence[str] = (), said: Mapping[str, str] | None = None
) -> tuple[Parts, TranslationTask]:
    """The translator of a run; its corpus is not needed. `sets`: keys of evaluate that are changed, and `said` what
    errors call them."""
    from embtrain.experiment.tasks.translation import TranslationTask

    config = runs.of_run(folder, sets, said)
    if config.model.name != Nmt.name:
        raise UsageError(f"{folder}: model.name: {config.model.name} does not translate; a run of model.name: nmt does")
    TranslationTask.check(config)
    given = cast(Any, config.model).targets
    if given.file is not None:                               # the checkpoint holds the table; the file may be gone
        model = config.model.model_copy(update={"targets": given.model_copy(update={"kind": "sphere", "file": None})})
        config = config.model_copy(update={"model": model})
    components.use_threads(config.train.threads)
    task = TranslationTask.from_run_folder(config, folder)
    made = components.build(config, task)
    best = config.train.patience and (folder / "best").is_dir()
    state = checkpoint.load(folder / ("best" if best else "checkpoints"))
    try:
        made.model.load_state_dict(state["model"])
        made.loss.load_state_dict(state["loss"])
        made.source.load_state_dict(state["source"])
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise DataError(f"{folder}: its checkpoint is of another model than config.yaml names; give the run's own "
                        "config.yaml back") from error
    return made, task


def lines(made: Parts, task: TranslationTask, stream: Iterable[bytes], at_once: int, name: str = "standard input"
          ) -> Iterator[str]:
    """A line of translation for each line of a stream; so many are read before they are translated. An empty line stays
    empty, and a byte order mark is no part of the text. DataError, with `name`, where a line is no text."""
    numbered = enumerate(stream, 1)
    while some := list(itertools.islice(numbered, at_once)):
        words = [_words(line, f"{name}:{number}", task) for number, line in some]
        ids = [encode_words(line, task.source) for line in words]
        yield from map(task.detokenize, written(made, task, ids, words, task.evaluate))


def _words(line: bytes, place: str, task: TranslationTask) -> list[str]:
    if len(line) > LONGEST_LINE:
        raise DataError(f"{place}: {len(line):,} bytes; at most {LONGEST_LINE:,} are read")
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{place}: not UTF-8; {encoding_hint(line[:4])}") from error
    if "\0" in text:
        raise DataError(f"{place}: a NUL: not text; remove it")
    text = join_line(text, task.pieces)
    found, longest = tokenize_source(text, task.tokenizer, task.config.lower), task.config.longest
    if len(found) > longest:
        _log.warning("%s: %s words; the first %s are translated (translation.longest)", place, f"{len(found):,}",
                     longest)
    return found[:longest]


def translations(made: Parts, task: TranslationTask, file: Path, at_once: int) -> Iterator[str]:
    """The same of a file, which may be packed. DataError or ResourceError where it cannot be read."""
    if file.is_dir():
        raise UsageError(f"{file}: is a folder; name a file with a sentence a line")
    for source in sources([file], lambda _: True):
        yield from lines(made, task, bounded(source.stream), at_once, source.name)


def bounded(stream: IO[bytes]) -> Iterator[bytes]:
    """The lines of a stream; of a line without an end no more is held than is refused."""
    while line := stream.readline(LONGEST_LINE + 1):
        yield line


# --- examples ------------------------------------------------------------------------------------------------------

@torch.no_grad()
def examples(made: Parts, task: TranslationTask, n: int) -> list[dict[str, Any]]:
    """Of the first sentences of test: their translation, and of each word that was not the nearest to its answer the
    nearest words, those nearest to what projection makes a negative of, unit(ê − (ê·e) e), and the cosine ê·e."""
    chosen = task.text.part("test")[:n]
    if not len(chosen):
        return []
    source = [task.text.source.sentence(i) for i in chosen]
    found = written(made, task, source, [task.source_tokens(i) for i in chosen], task.evaluate)
    batch = make_batch(task.text, np.array(chosen))
    query = scoring.ask(made, batch)
    table = nn.functional.normalize(made.model.table().detach(), dim=1)                  # (V, D)
    answer, right = nn.functional.normalize(query.vector, dim=1), table[query.target]    # (B, D)
    cos = (answer * right).sum(1, keepdim=True)                                          # (B, 1)
    negative = nn.functional.normalize(answer - cos * right, dim=1)
    told, against = (_nearest(x, table, task.target.words) for x in (answer, negative))
    out = []
    for row, (i, words) in enumerate(zip(chosen, found, strict=True)):
        mine = (query.windows() == row).nonzero()[:, 0].tolist()
        wrong = [{"right": task.target.words[int(query.target[at])], "cosine": round(float(cos[at]), 5),
                  "nearest": told[at], "negative": against[at]}
                 for at in mine if told[at][0] != task.target.words[int(query.target[at])]]
        out.append({"source": task.text.pair(i)[0], "reference": task.text.pair(i)[1],
                    "translation": task.detokenize(words), "wrong": wrong})
    return out


def _nearest(x: Tensor, table: Tensor, words: Sequence[str]) -> list[list[str]]:
    best = (x @ table.T).topk(min(NEAREST, len(table)), 1).indices.tolist()
    return [[words[i] for i in row] for row in best]
