"""Read a text at once, or a large one in shards: the ids are equal."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from embtrain.common import progress, terminal
from embtrain.common.files import open_folder, try_lock
from embtrain.data.inventory.inventory import Inventory
from embtrain.data.storage.cache import AppendableArray
from embtrain.data.text import tokenize
from embtrain.data.text.readers import documents, find_tokenised
from embtrain.data.text.shards.merge import Words, merge
from embtrain.data.text.shards.plan import Shard, make_shards
from embtrain.data.text.shards.rules import Reading, ReadingRules, encode_documents
from embtrain.data.text.shards.store import ShardStore
from embtrain.data.text.shards.workers import NeedsWholeFile, encode_all

LARGE_BYTES = 1 << 30    # on disk; a text of this size is read in shards, so that an interrupted reading is not lost
_SHARDS = "shards"       # subfolder of a cached text
_POLL = 0.2              # seconds


def is_large(files: Inventory) -> bool:
    """Return whether the files have LARGE_BYTES on disk."""
    return sum(path.stat().st_size for path in files.paths() if path.exists()) >= LARGE_BYTES


def read_text(files: Inventory, rules: ReadingRules, settings: dict[str, Any], folder: Path | None, n_workers: int,
              out: AppendableArray) -> Reading:
    """Read a text, in shards if it is large or if there are several workers.

    settings: identify the text. folder: of the text in the cache; None: nothing is stored, and the text is read at
    once. Raises as `readers.documents` and `workers.encode_all`.
    """
    if folder is None or (n_workers == 1 and not is_large(files)):
        return encode_documents(lambda tally: documents(files, rules.reader, tally, rules.options), rules, out)
    tokenised = find_tokenised(files, rules.reader, rules.options)
    rules = replace(rules, options=replace(rules.options, examined=True, tokenised=tokenised))
    store, whole = ShardStore(folder / _SHARDS, settings, rules), set[Path]()
    while True:
        shards = make_shards(files, rules, whole)
        try:
            encode_all(store, shards, n_workers)
            break
        except NeedsWholeFile as error:
            progress.print_line(f"{error.path}: has a run of {tokenize.MAX_WORD:,} characters without a blank, so one "
                                "process reads the file")
            whole.add(error.path)
    return _join(store, shards, rules, out)


def _join(store: ShardStore, shards: list[Shard], rules: ReadingRules, out: AppendableArray) -> Reading:
    reading, words = merge(len(shards), lambda i: store.load_or_encode(shards[i]), [shard.joins for shard in shards],
                           rules.by_line, rules.max_sequence, out)
    if words.dropped_count:
        reading.encoded = replace(reading.encoded, warnings=(_dropped_line(words, rules.options.section),))
    return reading


def _dropped_line(words: Words, section: str) -> str:
    return (f"{section}: {words.n_types:,} distinct words are more than {tokenize.MAX_TYPES:,}; the "
            f"{words.n_types - len(words.index):,} that occur {words.dropped_count} times or less are dropped from the "
            "text")


@contextlib.contextmanager
def working_in(folder: Path | None) -> Iterator[None]:
    """Wait until no other process reads the text of this cache folder, and delete its shards if the block succeeds."""
    if folder is None:
        yield
        return
    handle = open_folder(folder)
    try:
        is_noted = False
        while not try_lock(handle):
            if not is_noted and not progress.is_quiet():
                terminal.note(f"{folder}: waiting for another process that reads this text")
            is_noted = True
            time.sleep(_POLL)
        yield
        shutil.rmtree(folder / _SHARDS, ignore_errors=True)
    finally:
        os.close(handle)
