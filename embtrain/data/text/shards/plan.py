"""Cut the files of a text into shards: consecutive files of SHARD_BYTES in all, or a range of a large file.

The cut depends on the sizes of the files alone, so any number of worker processes encodes the same shards.

text, tokens  a file on disk is cut at line ends, unless it is packed, has subwords, or needs a tokenizer in Python
jsonl         at line ends
parquet       between row groups
other         a file is never cut
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from embtrain.data.formats import detect
from embtrain.data.formats.arrow_tables import row_group_ranges
from embtrain.data.inventory.inventory import FileEntry, Inventory
from embtrain.data.storage.containers import damage_as_data_error, is_plain
from embtrain.data.storage.ranges import line_ranges
from embtrain.data.text.findings.tally import Tally
from embtrain.data.text.readers import Reader, TextDocument, documents, range_documents
from embtrain.data.text.shards.rules import ReadingRules
from embtrain.kernels.core.loader import core

SHARD_BYTES = 64 << 20   # on disk


@dataclass(frozen=True)
class Shard:
    """A part of a text that is encoded at once."""

    files: Inventory                       # those that are read
    size: int                              # bytes on disk
    reader: Reader
    span: tuple[int, int] | None = None    # of its only file, in bytes, row groups of Parquet; None: whole files
    joins: bool = False                    # its first document continues the last one of the shard before

    @property
    def path(self) -> Path:
        """The first file on disk."""
        return self.files.entries[0].file.path

    def identity(self) -> list[object]:
        """Return what distinguishes the shard from others of the same text, for its cache key."""
        return [self.files.key(), self.span, self.reader]

    def documents(self, tally: Tally, rules: ReadingRules) -> Iterator[TextDocument]:
        """Yield the documents; findings are added to `tally`. Raises as `readers.documents`."""
        if self.span is None:
            return documents(self.files, self.reader, tally, rules.options)
        return range_documents(self.path, self.span, self.reader, self.files.entries[0].part, tally, rules.options)


def make_shards(files: Inventory, rules: ReadingRules, whole: Container[Path] = ()) -> list[Shard]:
    """Cut a text into shards, in the order of the text. whole: files that are not cut.

    Raises DataError or ResourceError for a file that cannot be read.
    """
    shards: list[Shard] = []
    group: list[FileEntry] = []
    n_bytes = 0

    def end_group() -> None:
        nonlocal n_bytes
        if group:
            shards.append(Shard(Inventory(tuple(group)), n_bytes, rules.reader))
        group.clear()
        n_bytes = 0

    for path, entries in _by_path(files):
        with damage_as_data_error(path):
            size = path.stat().st_size
        if size < 2 * SHARD_BYTES:
            group += entries
            n_bytes += size
            if n_bytes >= SHARD_BYTES:
                end_group()
            continue
        end_group()
        kind = None if path in whole or len(entries) > 1 else divisible_kind(path, rules)
        cut = row_group_ranges if kind == "parquet" else line_ranges
        spans = [] if kind is None else cut(path, SHARD_BYTES)
        whole_file = Shard(Inventory(tuple(entries)), size, rules.reader)
        if kind is None or len(spans) < 2:
            shards.append(whole_file)
        else:
            # The first range is read as the file would be; it decides nothing for the others.
            is_text, n = kind in ("text", "tokens"), spans[-1][1]
            shards += [replace(whole_file, size=size * (end - begin) // n, span=(begin, end),
                               joins=begin > 0 and is_text, reader=kind if begin else rules.reader)
                       for begin, end in spans]
    end_group()
    return shards


def _by_path(files: Inventory) -> Iterator[tuple[Path, list[FileEntry]]]:
    """Yield each file on disk with its entries that are read, in the order of reading."""
    by_path: dict[Path, list[FileEntry]] = {}
    for entry in files.entries:
        if entry.part:
            by_path.setdefault(entry.file.path, []).append(entry)
    yield from by_path.items()


def divisible_kind(path: Path, rules: ReadingRules) -> Reader | None:
    """Return how a range of the file is read; None if the file cannot be cut."""
    with damage_as_data_error(path), path.open("rb") as file:
        head = file.read(detect.HEAD_BYTES)
    if not is_plain(head[:512], path):
        return None
    if rules.reader in ("jsonl", "parquet"):
        return rules.reader
    kind: Reader = rules.reader
    if kind == "auto":
        if detect.detect_format(str(path), head, rules.options.section) != "text" or \
                (not rules.options.plain and detect.subword_sign(head)):
            return None
        kind = "tokens" if rules.options.tokenised else "text"
    is_in_core = core() is not None and rules.splitter(kind).name in ("whitespace", "words")
    return kind if kind in ("text", "tokens") and is_in_core else None
