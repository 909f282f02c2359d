"""Reads files of parallel text into pairs of lines (source, target) for train, valid and test.

    two files    NAME.de and NAME.en: line i of one translates line i of the other; may be packed (.gz and others)
    mark-up      NAME.de.xml, NAME.de.sgm: the <seg> elements; train.tags.*: the lines that do not begin with <
    pieces       words cut by BPE, SentencePiece or WordPiece are joined again: embtrain/data/parallel/pieces.py
    tables       .tsv .tab .txt: columns separated by TABs, in the order of `columns`; further columns are ignored

`inventory.py` decides the part of a file. Text must be UTF-8; only a line feed ends a line.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from embtrain.common.errors import DataError, UsageError
from embtrain.data.catalogue.recipes import CorpusParts
from embtrain.data.formats.running_text import data_verdict
from embtrain.data.inventory import inventory
from embtrain.data.inventory.inventory import FileRules, FilesConfig, Inventory
from embtrain.data.inventory.part_names import exact_part
from embtrain.data.parallel import pieces as parallel_pieces
from embtrain.data.parallel.pieces import Pieces
from embtrain.data.storage.containers import Source, without_packing
from embtrain.data.storage.encoding import encoding_hint

MAX_LINE = 1_000_000                                         # maximal characters of a line
_TABLES, _MARKUP = (".tsv", ".tab", ".txt"), (".xml", ".sgm", ".sgml")
EXPECTED_FILES = "parallel text (NAME.de and NAME.en, or a table .tsv)"
_SEGMENT = re.compile(r"<seg\b[^>]*>(.*?)</seg>", re.IGNORECASE | re.DOTALL)
_PIECES = re.compile(r"\.bpe\d*k?\.")
# Words in file names for processing steps; files that differ only in these are two forms of one text.
_PROCESSING = re.compile(
    r"(?i)^(tok|tokenized|tokenised|detok|lc|lower|lowercased|tc|truecased?|clean|norm|normalized|raw|"
    r"bpe|sp|spm|pieces|unk)$"
)

Pair = tuple[str, str]


@dataclass(frozen=True)
class ParallelLayout:
    """Layout of the files. source and target: languages, which are the suffixes of file names."""

    source: str | None
    target: str | None
    columns: tuple[str, ...]          # columns of a table, by language, or ("source", "target")
    parts: CorpusParts | None = None  # the recipe's rules for held-out files
    pieces: Pieces = "auto"           # kind of word pieces

    def __post_init__(self) -> None:
        if self.source is not None and self.source == self.target:
            raise UsageError(f"translation.target: {self.target}: is the source language too; set translation.source "
                             "and translation.target to two languages")


@dataclass
class ParallelLines:
    """The pairs of each part that has a file.

    pieces: kind of word pieces that were joined, of source and target. warnings: lines for the user.
    """

    parts: dict[str, list[Pair]] = field(default_factory=dict)
    pieces: list[str] = field(default_factory=lambda: ["none", "none"])
    warnings: list[str] = field(default_factory=list)

    def join_pieces(self, lines: list[str], side: int, pieces: str, name: str) -> list[str]:
        """Return the lines with word pieces joined, and record the kind of pieces and warnings."""
        lines, kind, warning = parallel_pieces.join_pieces(lines, pieces, name)
        self.pieces[side] = kind if kind != "none" else self.pieces[side]
        self.warnings += [warning] if warning else []
        return lines


def file_rules(layout: ParallelLayout) -> FileRules:
    """Return the rules that select parallel text: names that end in one of the languages, and tables."""
    def verdict(name: str) -> str:
        _, language, suffix = _split_name(name, layout)
        if name.startswith("_"):
            return "a note, because its name begins with _"
        if language or suffix in _TABLES:
            return ""
        if reason := data_verdict(name, ()):
            return reason
        if "." not in name:
            return "its name does not end in a language"
        if layout.source is None or layout.target is None:   # `read` reports the missing keys
            return ""
        return f"ends in neither .{layout.source} nor .{layout.target}"

    def form(inside: str) -> str:
        folder, _, base = inside.rpartition("/")
        stem, language, _ = _split_name(base, layout)
        pieces = re.findall(r"[^\W\d_]+|\d+", re.sub(r"(?i)(?<![a-z])(bpe|spm?|pieces)\d*k?(?![a-z])", "", stem))
        words = (str(exact_part(piece.lower()) or piece) for piece in pieces if not _PROCESSING.match(piece))
        return f"{folder}/{'-'.join(words)}.{language}"

    return FileRules("translation", EXPECTED_FILES, verdict, form=form, stem=lambda base: _split_name(base, layout)[0])


def inventory_files(where: list[Path], layout: ParallelLayout, config: FilesConfig) -> Inventory:
    """Assign a part to each file, by the patterns of the recipe, else by its name."""
    return inventory.build_inventory(
        where, file_rules(layout), config, None if layout.parts is None else layout.parts.patterns()
    )


def read(where: list[Path], files: Inventory, layout: ParallelLayout) -> ParallelLines:
    """Read the pairs of all files. DataError if files do not fit together or contain no text."""
    inside = files.inside()
    sides: dict[str, dict[str, list[str]]] = {}              # folder/stem -> language -> lines
    parts: dict[str, str] = {}                               # folder/stem -> part
    first: dict[tuple[str, str], str] = {}                   # (folder/stem, language) -> file name
    out = ParallelLines()
    for source, part in files.sources():
        folder, _, base = inside[source.name].rpartition("/")
        stem, language, suffix = _split_name(base, layout)
        if language:
            stem, lines = (folder and folder + "/") + stem, _strip_markup(_lines(source), base, suffix)
            named_so = layout.pieces == "auto" and _PIECES.search(base)
            lines = out.join_pieces(
                lines, int(language == layout.target), "bpe" if named_so else layout.pieces, source.name
            )
            if sides.setdefault(stem, {}).setdefault(language, lines) != lines or parts.setdefault(stem, part) != part:
                raise DataError(f"{source.name}: is the {language} of {stem}, and so is "
                                f"{first.get((stem, language), stem)}, which contains other text; remove one of them")
            first.setdefault((stem, language), source.name)
        elif suffix in _TABLES:
            out.parts.setdefault(part, []).extend(_table(source, layout, out))
        elif layout.source is None or layout.target is None:
            raise UsageError(f"{source.name}: the translation direction is unknown; set translation.source and "
                             "translation.target to the endings of the file names, for example de and en")
    for stem, by_language in sides.items():
        out.parts.setdefault(parts[stem], []).extend(_pair_lines(stem, by_language, layout, where))
    if not any(out.parts.values()):
        looked = f"files that end in .{layout.source} and .{layout.target}" if layout.source else "a table (.tsv)"
        raise DataError(f"{where[0]}: contains no sentence pairs; expected {looked}, found "
                        f"{', '.join(list(inside.values())[:5])}")
    return out


def _split_name(base: str, layout: ParallelLayout) -> tuple[str, str, str]:
    """Split a file name into stem, language and suffix: train.de.gz -> train, de, ''; deu.txt -> deu, '', .txt."""
    name = without_packing(base)
    suffix = next((end for end in (*_TABLES, *_MARKUP) if name.lower().endswith(end)), "")
    inner = name[:len(name) - len(suffix)] if suffix else name
    stem, _, language = inner.rpartition(".")
    if language and language in (layout.source, layout.target):
        return re.sub(r"-(?:src|ref)$", "", stem) if suffix in _MARKUP else stem, language, suffix
    return inner, "", suffix


def _lines(source: Source) -> list[str]:
    """Return the lines of a stream, without line ends. DataError if it is not text."""
    data = source.stream.read().removeprefix(b"\xef\xbb\xbf")
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise DataError(f"{source.name}:{number}: not UTF-8; {encoding_hint(data[:4])}") from error
    if lines[-1] == "":
        lines.pop()
    if not lines:
        raise DataError(f"{source.name}: is empty")
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_LINE or "\0" in line:
            reason = "a NUL: not text" if "\0" in line else f"{len(line):,} characters; at most {MAX_LINE:,} are read"
            raise DataError(f"{source.name}:{number}: {reason}")
    return [line.strip("\r") for line in lines]


def _strip_markup(lines: list[str], base: str, suffix: str) -> list[str]:
    """Return the sentences of a marked-up file, or all lines of plain text."""
    if suffix in _MARKUP:
        return [" ".join(html.unescape(segment).split()) for segment in _SEGMENT.findall("\n".join(lines))]
    if base.startswith("train.tags."):
        return [line for line in lines if not line.lstrip().startswith("<")]
    return lines


def _pair_lines(stem: str, sides: dict[str, list[str]], layout: ParallelLayout, where: Sequence[Path]) -> list[Pair]:
    for language in (layout.source, layout.target):
        if language not in sides:
            language_found = next(iter(sides))
            raise DataError(f"{where[0]}: {stem}.{language_found} has no {stem}.{language} next to it")
    a, b = sides[layout.source or ""], sides[layout.target or ""]
    if len(a) != len(b):
        raise DataError(f"{stem}.{layout.source} has {len(a):,} lines and {stem}.{layout.target} {len(b):,}; give "
                        "files with equal numbers of lines, because line i of one translates line i of the other")
    return list(zip(a, b, strict=True))


def _table(source: Source, layout: ParallelLayout, out: ParallelLines) -> list[Pair]:
    columns = _columns(layout)
    sides: tuple[list[str], list[str]] = [], []
    for number, line in enumerate(_lines(source), 1):
        cells = line.split("\t")
        if len(cells) < len(layout.columns):
            raise DataError(f"{source.name}:{number}: has {len(cells)} columns separated by TABs; should have "
                            f"{len(layout.columns)}: {', '.join(layout.columns)} (translation.columns)")
        for side, column in zip(sides, columns, strict=True):
            side.append(cells[column])
    a, b = (out.join_pieces(side, i, layout.pieces, source.name) for i, side in enumerate(sides))
    return list(zip(a, b, strict=True))


def _columns(layout: ParallelLayout) -> tuple[int, int]:
    """Return the column numbers of source and target."""
    columns = list(layout.columns)
    if "source" in columns:
        return columns.index("source"), columns.index("target")
    for key, language in (("source", layout.source), ("target", layout.target)):
        if language not in columns:
            raise UsageError(f"translation.columns: {', '.join(columns)}: contains no {language!r}, which is "
                             f"translation.{key}")
    return columns.index(layout.source or ""), columns.index(layout.target or "")
