"""Use a trained translator: lines of text, held-out sentences, examples with their nearest words."""

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
from embtrain.experiment.run import components, scoring, settings as run_settings
from embtrain.losses.base import Loss
from embtrain.models.nmt.model import Nmt
from embtrain.train.state import checkpoint

if TYPE_CHECKING:
    from embtrain.experiment.run.components import Components
    from embtrain.experiment.tasks.translation import TranslationTask

N_NEAREST = 5                # words shown per output vector
MAX_LINE_BYTES = 1_000_000   # bytes
_log = logging.getLogger("embtrain")


def translate(parts: Components, task: TranslationTask, sentences: Sequence[np.ndarray], words: Sequence[Sequence[str]],
              config: TranslationEvaluate) -> list[list[str]]:
    """The words of each translation. sentences: source ids; words: the same as words.

    An empty source has an empty translation, in evaluation as in the command.
    """
    out = {i: list[str]() for i, ids in enumerate(sentences) if not len(ids)}
    order = sorted((i for i in range(len(sentences)) if i not in out), key=lambda i: len(sentences[i]))
    logits, model = scoring.logits(parts, corrected=True), cast(Nmt, parts.model)
    best = Bf16Search(model) if config.table == "bfloat16" else None
    step = partial(_density, parts.loss) if model.has_frozen_table and not parts.loss.estimates_log_prob else None
    for begin in range(0, len(order), config.batch):
        batch = order[begin:begin + config.batch]
        source, length = (x.to(parts.world.device) for x in pad_sources([sentences[i] for i in batch]))
        translated = decoding.translate(model, logits, source, length, config.beam, config.unknown != "ban", best=best,
                                        step=step)
        for i, ids in zip(batch, translated, strict=True):
            out[i] = decoding.words(ids, task.target.words, words[i], config.unknown == "copy",
                                    config.duplicates == "remove")
    return [out[i] for i in range(len(sentences))]


def _density(loss: Loss, z: Tensor, query: Query) -> Tensor:
    """Turn logits (n, V) into log densities if the loss states a scale; otherwise return them unchanged."""
    scale = loss.log_scale(query)
    return z if scale is None else z + scale


# --- lines ---------------------------------------------------------------------------------------------------------

def load(folder: Path, sets: Sequence[str] = (), flag_names: Mapping[str, str] | None = None) -> tuple[Components,
                                                                                                       TranslationTask]:
    """Load the translator of a run; its corpus is not needed.

    sets: evaluation keys to override; flag_names: their names in error messages. UsageError if the run is not a
    translator, DataError if its checkpoint does not match.
    """
    from embtrain.experiment.tasks.translation import TranslationTask

    config = run_settings.from_run(folder, sets, flag_names)
    if config.model.name != Nmt.name:
        raise UsageError(f"{folder}: model.name: {config.model.name} does not translate; a run of model.name: nmt does")
    TranslationTask.check(config)
    table = cast(Any, config.model).output_table
    if table.file is not None:                                 # the checkpoint holds the table; the file may be gone
        model = config.model.model_copy(update={"output_table": table.model_copy(update={"kind": "sphere",
                                                                                         "file": None})})
        config = config.model_copy(update={"model": model})
    components.use_threads(config.train.threads)
    task = TranslationTask.from_run_folder(config, folder)
    parts = components.build(config, task)
    best = config.train.patience and (folder / "best").is_dir()
    state = checkpoint.load(folder / ("best" if best else "checkpoints"))
    try:
        parts.model.load_state_dict(state["model"])
        parts.loss.load_state_dict(state["loss"])
        parts.source.load_state_dict(state["source"])
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise DataError(f"{folder}: its checkpoint is of another model than config.yaml names; give the run's own "
                        "config.yaml back") from error
    return parts, task


def translate_lines(parts: Components, task: TranslationTask, stream: Iterable[bytes], n_lines: int,
                    name: str = "standard input") -> Iterator[str]:
    """Translate a stream line by line, reading `n_lines` before each batch of translations.

    An empty line stays empty; a byte order mark is dropped. DataError, with `name`, for a line that is not text.
    """
    numbered = enumerate(stream, 1)
    while chunk := list(itertools.islice(numbered, n_lines)):
        words = [_split_line(line, f"{name}:{number}", task) for number, line in chunk]
        ids = [encode_words(line, task.source) for line in words]
        yield from map(task.detokenize, translate(parts, task, ids, words, task.evaluate))


def _split_line(line: bytes, place: str, task: TranslationTask) -> list[str]:
    if len(line) > MAX_LINE_BYTES:
        raise DataError(f"{place}: {len(line):,} bytes; at most {MAX_LINE_BYTES:,} are read")
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{place}: not UTF-8; {encoding_hint(line[:4])}") from error
    if "\0" in text:
        raise DataError(f"{place}: a NUL: not text; remove it")
    text = join_line(text, task.pieces)
    words, longest = tokenize_source(text, task.tokenizer, task.config.lower), task.config.max_length
    if len(words) > longest:
        _log.warning("%s: %s words; the first %s are translated (translation.max_length)", place, f"{len(words):,}",
                     longest)
    return words[:longest]


def translate_file(parts: Components, task: TranslationTask, file: Path, n_lines: int) -> Iterator[str]:
    """Translate a file, which may be compressed. DataError or ResourceError if it cannot be read."""
    if file.is_dir():
        raise UsageError(f"{file}: is a folder; name a file with a sentence a line")
    for source in sources([file], lambda _: True):
        yield from translate_lines(parts, task, bounded_lines(source.stream), n_lines, source.name)


def bounded_lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a stream; of an endless line, at most one byte over the limit is held."""
    while line := stream.readline(MAX_LINE_BYTES + 1):
        yield line


# --- examples ------------------------------------------------------------------------------------------------------

@torch.no_grad()
def examples(parts: Components, task: TranslationTask, n: int) -> list[dict[str, Any]]:
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
