"""Files -> pairs of lines (source, target) of the parts train, valid and test.

    two files    NAME.de and NAME.en: line i of one translates line i of the other; .gz and the like may follow
    mark-up      NAME.de.xml, NAME.de.sgm: the <seg>s count; of train.tags.*, the lines that do not begin with <
    pieces       words that BPE, SentencePiece or WordPiece cut are joined again: embtrain/data/parallel_pieces.py
    tables       .tsv .tab .txt: columns parted by a TAB, in the order that `columns` says; further ones do not matter

Which part a file is says the recipe, else its name: test, or valid or dev, else train. All may lie in folders and
archives. Only UTF-8 is text; a line feed alone ends a line.
"""

from __future__ import annotations

import fnmatch
import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from embtrain.data import containers, parallel_pieces
from embtrain.data.containers import PACKED, Source, fingerprint, sources
from embtrain.data.encoding import mend
from embtrain.data.parallel_pieces import Pieces
from embtrain.data.recipes import CorpusParts
from embtrain.errors import DataError, UsageError

PARTS = ("train", "valid", "test")
LONGEST = 1_000_000                                         # characters of a line
_TABLES, _MARKUP = (".tsv", ".tab", ".txt"), (".xml", ".sgm", ".sgml")
LOOKED_FOR = "parallel text (NAME.de and NAME.en, or a table .tsv)"
_SEGMENT = re.compile(r"<seg\b[^>]*>(.*?)</seg>", re.IGNORECASE | re.DOTALL)
_PIECES = re.compile(r"\.bpe\d*k?\.")
_OF_NAME = (("test", re.compile(r"(?:^|[._-])(?:news)?te?st\d*(?=[._-]|$)", re.IGNORECASE)),
            ("valid", re.compile(r"(?:^|[._-])(?:(?:news)?dev\d*|val(?:id(?:ation)?)?\d*)(?=[._-]|$)", re.IGNORECASE)))

Pair = tuple[str, str]


@dataclass(frozen=True)
class Layout:
    """How lines are found; source and target: languages, which are the ends of file names."""

    source: str | None
    target: str | None
    columns: tuple[str, ...]          # of a table, by language, or ("source", "target")
    parts: CorpusParts | None = None  # what the recipe says of held-out files
    pieces: Pieces = "auto"           # how words are cut


@dataclass
class Read:
    """The pairs of each part; of a part without a file nothing.

    pieces: of source and target, the kind of pieces of words that were joined. warnings: lines for the user.
    """

    parts: dict[str, list[Pair]] = field(default_factory=dict)
    pieces: list[str] = field(default_factory=lambda: ["none", "none"])
    warnings: list[str] = field(default_factory=list)

    def whole(self, lines: list[str], side: int, pieces: str, name: str) -> list[str]:
        """Lines of whole words."""
        lines, kind, warning = parallel_pieces.read(lines, pieces, name)
        self.pieces[side] = kind if kind != "none" else self.pieces[side]
        self.warnings += [warning] if warning else []
        return lines


def digest(where: list[Path]) -> str:
    """sha256 of the content."""
    return fingerprint(where, _wanted, LOOKED_FOR)


def names(where: list[Path]) -> list[str]:
    return containers.names(where, _wanted, LOOKED_FOR)


def read(where: list[Path], layout: Layout) -> Read:
    """DataError where files do not fit together, or hold no text."""
    named = [path.name for path in where if path.is_file()]
    sides: dict[str, dict[str, list[str]]] = {}              # folder/stem -> language -> lines
    first: dict[tuple[str, str], str] = {}                   # whose lines those are
    out, seen = Read(), list[str]()
    for source in sources(where, _wanted):
        base = re.split(r"[/:\\]", source.name)[-1]
        if base.startswith("_") and base not in named:       # notes beside the text
            continue
        seen.append(base)
        stem, language, suffix = _taken_apart(base, layout)
        if language:
            stem, lines = _folder(source.name, base, where) + stem, _plain(_lines(source), base, suffix)
            named_so = layout.pieces == "auto" and _PIECES.search(base)
            lines = out.whole(lines, int(language == layout.target), "bpe" if named_so else layout.pieces, source.name)
            if sides.setdefault(stem, {}).setdefault(language, lines) != lines:  # a copy of the same text does no harm
                raise DataError(f"{source.name}: is the {language} of {stem}, and so is {first[stem, language]}, which "
                                "holds other text; leave one of them out")
            first.setdefault((stem, language), source.name)
        elif suffix in _TABLES:
            out.parts.setdefault(_part(base, layout), []).extend(_table(source, layout, out))
        elif layout.source is None or layout.target is None:
            raise UsageError(f"{source.name}: which language is translated into which? set translation.source and "
                             "translation.target to what the names of the files end in, such as de and en")
    for stem, by_language in sides.items():
        part = _part(stem.rpartition("/")[2], layout)
        out.parts.setdefault(part, []).extend(_joined(stem, by_language, layout, where))
    if not any(out.parts.values()):
        looked = f"files that end in .{layout.source} and .{layout.target}" if layout.source else "a table (.tsv)"
        raise DataError(f"{where[0]}: holds no pairs of sentences; looked for {looked}, and found "
                        f"{', '.join(seen[:5]) or 'no file'}")
    return out


def _wanted(name: str) -> bool:
    return not name.lower().endswith((".md", ".py", ".yaml", ".json", ".csv")) and "." in name


def _folder(name: str, base: str, where: Sequence[Path]) -> str:
    """The folder of a file below the one that is named, with a slash; an archive stands for the folder it lies in."""
    root = max((str(path) for path in where if name.startswith(str(path))), key=len, default="")
    folder = re.sub(r"[^/]*:", "", name[len(root):]).removesuffix(base).strip("/\\")
    return folder and folder + "/"


def _taken_apart(base: str, layout: Layout) -> tuple[str, str, str]:
    """Stem, language and suffix of a file's name: train.de.gz -> train, de, ''; deu.txt -> deu, '', .txt."""
    name = base
    for packed in PACKED:
        name = name.removesuffix(packed)
    suffix = next((end for end in (*_TABLES, *_MARKUP) if name.lower().endswith(end)), "")
    inner = name[:len(name) - len(suffix)] if suffix else name
    stem, _, language = inner.rpartition(".")
    if language and language in (layout.source, layout.target):
        return re.sub(r"-(?:src|ref)$", "", stem) if suffix in _MARKUP else stem, language, suffix
    return inner, "", suffix


def _part(name: str, layout: Layout) -> str:
    if layout.parts is not None:
        for part, patterns in (("valid", layout.parts.valid), ("test", layout.parts.test)):
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
                return part
        return "train"
    return next((part for part, pattern in _OF_NAME if pattern.search(name)), "train")


def _lines(source: Source) -> list[str]:
    """The lines of a stream, without their ends; DataError where they are no text."""
    data = source.stream.read().removeprefix(b"\xef\xbb\xbf")
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise DataError(f"{source.name}:{number}: not UTF-8; {mend(data[:4])}") from error
    if lines[-1] == "":
        lines.pop()
    if not lines:
        raise DataError(f"{source.name}: is empty")
    for number, line in enumerate(lines, 1):
        if len(line) > LONGEST or "\0" in line:
            what = "a NUL: no text" if "\0" in line else f"{len(line):,} characters; at most {LONGEST:,} are read"
            raise DataError(f"{source.name}:{number}: {what}")
    return [line.strip("\r") for line in lines]


def _plain(lines: list[str], base: str, suffix: str) -> list[str]:
    """The sentences of mark-up; of plain text all lines."""
    if suffix in _MARKUP:
        return [" ".join(html.unescape(found).split()) for found in _SEGMENT.findall("\n".join(lines))]
    if base.startswith("train.tags."):
        return [line for line in lines if not line.lstrip().startswith("<")]
    return lines


def _joined(stem: str, sides: dict[str, list[str]], layout: Layout, where: Sequence[Path]) -> list[Pair]:
    for language in (layout.source, layout.target):
        if language not in sides:
            there = next(iter(sides))
            raise DataError(f"{where[0]}: {stem}.{there} has no {stem}.{language} beside it")
    a, b = sides[layout.source or ""], sides[layout.target or ""]
    if len(a) != len(b):
        raise DataError(f"{stem}.{layout.source} has {len(a):,} lines and {stem}.{layout.target} {len(b):,}: they "
                        "should have as many, for line i of one translates line i of the other")
    return list(zip(a, b, strict=True))


def _table(source: Source, layout: Layout, out: Read) -> list[Pair]:
    at = _columns(layout)
    sides: tuple[list[str], list[str]] = [], []
    for number, line in enumerate(_lines(source), 1):
        cells = line.split("\t")
        if len(cells) < len(layout.columns):
            raise DataError(f"{source.name}:{number}: has {len(cells)} columns parted by a TAB; should have "
                            f"{len(layout.columns)}: {', '.join(layout.columns)} (translation.columns)")
        for side, column in zip(sides, at, strict=True):
            side.append(cells[column])
    a, b = (out.whole(side, i, layout.pieces, source.name) for i, side in enumerate(sides))
    return list(zip(a, b, strict=True))


def _columns(layout: Layout) -> tuple[int, int]:
    """Where source and target stand."""
    columns = list(layout.columns)
    if "source" in columns:
        return columns.index("source"), columns.index("target")
    for key, language in (("source", layout.source), ("target", layout.target)):
        if language not in columns:
            raise UsageError(f"translation.columns: {', '.join(columns)}: holds no {language!r}, which is "
                             f"translation.{key}")
    return columns.index(layout.source or ""), columns.index(layout.target or "")
