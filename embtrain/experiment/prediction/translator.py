"""Translations of lines and of files by a trained translator."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from embtrain.common.errors import DataError, UsageError
from embtrain.data.parallel.corpus import encode_words
from embtrain.data.parallel.pieces import join_line
from embtrain.data.parallel.tokenize import tokenize_source
from embtrain.data.storage.containers import sources
from embtrain.data.storage.encoding import encoding_hint
from embtrain.experiment.run import stored
from embtrain.experiment.run.components import Components
from embtrain.experiment.tasks.translate_words import translate
from embtrain.experiment.tasks.translation import TranslationTask

MAX_LINE_BYTES = 1_000_000   # bytes
BATCH = 100                  # lines that are translated together
_log = logging.getLogger("embtrain")


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


def translate_sentences(folder: Path, sentences: Iterable[str]) -> list[str]:
    """Translate sentences by the run in `folder`; an empty one stays empty, and line breaks count as blanks.

    UsageError if the run is not a translator, or for one text in place of several; DataError for a damaged run.
    """
    is_list = isinstance(sentences, Iterable) and not isinstance(sentences, str | bytes)
    texts = list(sentences) if is_list else []
    if not is_list or not all(isinstance(text, str) for text in texts):
        raise UsageError("sentences: should be a list of texts, for example ['ein Haus']")
    parts, task = stored.open_translator(folder)
    lines = [text.encode(errors="surrogatepass") for text in texts]      # a lone surrogate is not UTF-8, as in a file
    return list(translate_lines(parts, task, lines, BATCH, "sentences"))


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
        raise UsageError(f"{file}: is a folder; give a file with one sentence a line")
    for source in sources([file], lambda _: True):
        yield from translate_lines(parts, task, bounded_lines(source.stream), n_lines, source.name)


def bounded_lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a stream; of an endless line, at most one byte over the limit is held."""
    while line := stream.readline(MAX_LINE_BYTES + 1):
        yield line
