"""Reads text files of word vectors within bounds: the header is checked before memory is allocated.

    word2vec text     "V D\n", then V lines "word x_1 ... x_D"        (values in decimal)
    word2vec binary   embtrain/data/vectors/binary.py         fastText's .bin   embtrain/data/vectors/fasttext_file.py
    GloVe             lines "word x_1 ... x_D" without a header

Values are separated by any mixture of blanks and TABs; only a newline byte ends a line. The text before the last D
values is the word: it may contain blanks (as in GloVe's 840B) and any other character except control
characters. A byte order mark before the first line is skipped. Each reader returns the words and a float32 table (V,
D), in file order.
"""

from __future__ import annotations

import codecs
import logging
import re
from pathlib import Path
from typing import IO, Literal

import numpy as np

from embtrain.common.errors import DataError, ResourceError
from embtrain.common.progress import AT_ONCE, Progress
from embtrain.data.storage.skipped import counted
from embtrain.data.vectors.open import PLAIN, ReadOptions, max_unpacked_bytes, open_unpacked, refuse_other_formats
from embtrain.data.vectors.text_lines import (
    FIX,
    IN_DIGITS,
    MAX_LINE,
    Dims,
    VectorLine,
    declared_sizes,
    is_count,
    is_in_other_notation,
    nonblank_lines,
    parse_floats,
    possible_dims,
)

Format = Literal["word2vec", "word2vec-binary", "glove", "safetensors", "fasttext"]
WordsAndTable = tuple[list[str], np.ndarray]

FASTTEXT_MAGIC = b"\xba\x16O/"
MAX_DIM = 65_536
MAX_WORD = 4096           # bytes
WITHOUT_IT = "fetch the file again, or write it without this vector"  # remedy for a vector that is not finite
_CHUNK = 1 << 20
_LARGEST_SAFE_HEADER = 1 << 27
_WORD_COST = 100          # bytes of memory of a word, in addition to its vector
_SMALL = 64 << 20         # bytes of a table that are allocated even if the file looks too short for it
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")
_BINARY = frozenset(range(9)) | frozenset(range(14, 32))     # bytes that do not occur in text
_log = logging.getLogger("embtrain")


class VectorRows:
    """Rows read so far: up to the number that the header declares, or `reading.limit`."""

    def __init__(self, path: Path, V: int, D: int, max_bytes: int, reading: ReadOptions):
        self.path, self.declared, self.max_bytes = path, V, max_bytes
        self.target = V if reading.limit is None else reading.limit
        self.words: list[str] = []
        self.table = np.empty((min(V, self.target), D), np.float32)
        self.progress = Progress(f"reading {path.name}", len(self.table), "vectors")

    @property
    def is_full(self) -> bool:
        return len(self.words) >= self.target

    @property
    def is_complete(self) -> bool:
        return self.is_full or len(self.words) == self.declared

    def add(self, word: str) -> np.ndarray:
        """Append a word and return its row of the table, to be filled."""
        self.words.append(word)
        if len(self.words) % AT_ONCE == 0:
            self.progress.add(AT_ONCE)
        if len(self.words) > len(self.table):                # the limit exceeds the declared number of rows
            more = min(self.target, 2 * len(self.table)) - len(self.table)
            check_memory(self.path, len(self.table) + more, self.table.shape[1], self.max_bytes)
            self.table = np.concatenate([self.table, np.empty((more, self.table.shape[1]), np.float32)])
        row: np.ndarray = self.table[len(self.words) - 1]
        return row

    def result(self) -> WordsAndTable:
        """Return the words and the filled part of the table."""
        self.progress.close()
        return self.words, self.table[:len(self.words)]


def detect_format(path: Path, reading: ReadOptions = PLAIN) -> Format:
    """Detect the format of a file by its content. DataError if it is none of these."""
    path = Path(path)
    with open_unpacked(path, reading) as file:
        head = file.read(_CHUNK)
        if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < _LARGEST_SAFE_HEADER:
            return "safetensors"
        if head.startswith(FASTTEXT_MAGIC):
            return "fasttext"
        refuse_other_formats(path, head, reading)
        if not head.strip():
            raise DataError(f"{path}: is not a vector file: it is empty; fetch it again")
        text = head.removeprefix(codecs.BOM_UTF8).lstrip(b" \t\r\n")
        number = 1 + head.count(b"\n") - text.count(b"\n")
        first, _, rest = text.partition(b"\n")
        if not rest and b"\r" in first.rstrip(b"\r"):
            raise DataError(f"{path}: its lines end in CR only; convert them: tr '\\r' '\\n' < FILE")
        if sizes := declared_sizes(first):
            while b"\n" not in rest and len(rest) < MAX_LINE and (more := file.read(_CHUNK)):
                rest += more
            if sizes[0] and not rest.strip():
                raise DataError(f"{path}: ends after 0 rows; line {number} declares {sizes[0]:,}; fetch it again")
            values = rest.partition(b"\n")[0].rsplit(None, sizes[1])[1:]
            if len(values) == sizes[1] and parse_floats(values) is not None:
                return "word2vec"
            return "word2vec-binary" if _BINARY & set(rest) or not is_text(rest, reading.codec) else "word2vec"
        if possible_dims(first).trailing:
            return "glove"
        if fields := [field for field in first.split()[1:] if is_in_other_notation(field)]:
            raise DataError(f"{path}:{number}: should be numbers after the word, got {fields[0][:40]!r}{IN_DIGITS}")
    raise DataError(f"{path}: is not a vector file; give word2vec text or binary, GloVe, fastText or safetensors")


def read_text(path: Path, max_bytes: int, reading: ReadOptions = PLAIN) -> WordsAndTable:
    """Read word2vec text. DataError names the file and line of a fault."""
    with open_unpacked(path, reading) as file:
        header, V, D = read_header(path, file, 2, max_bytes, reading)
        rows = VectorRows(path, V, D, max_bytes, reading)
        for line in nonblank_lines(path, file, header + 1):
            if rows.is_full:
                if reading.limit is None:
                    raise DataError(f"{path}:{line.number}: more rows than the {V:,} that line {header} declares"
                                    f"{limit_hint(V, reading)}")
                break
            _add_row(rows, line, D, reading, has_header=True)
    if not rows.is_complete:
        raise DataError(f"{path}: ends after {counted(len(rows.words), 'row', 'rows')}; line {header} declares {V:,}"
                        f"{limit_hint(len(rows.words), reading)}")
    return rows.result()


def read_glove(path: Path, max_bytes: int, reading: ReadOptions = PLAIN) -> WordsAndTable:
    """Read GloVe text. DataError names the file and line of a fault."""
    with open_unpacked(path, reading) as file:  # first pass counts, so that the table is allocated once
        V, D, dims, are_counts = 0, 0, Dims(0, 0), True
        for line in nonblank_lines(path, file, 1):
            are_counts = are_counts and is_count(line.text)
            if V == 0 or dims.is_open:
                dims = possible_dims(line.text) if V == 0 else dims.agreed(possible_dims(line.text))
            D = dims.likeliest
            if reading.limit != V:
                V += 1
            elif not (are_counts or dims.is_open):           # these need all lines
                break
            if not 1 <= D <= MAX_DIM:
                raise DataError(f"{path}:{line.number}: should be a word and 1 to {MAX_DIM:,} numbers{FIX}")
            check_memory(path, V, D, max_bytes)
    if V == 0:
        raise DataError(f"{path}: contains no vectors; fetch it again")
    if are_counts and D == 1:
        raise DataError(f"{path}: has one whole number for each word, as lists of counts have, for example a run's "
                        "vocabulary.txt; give a file of vectors, or the run folder")
    rows = VectorRows(path, V, D, max_bytes, PLAIN)
    with open_unpacked(path, reading) as file:
        for line in nonblank_lines(path, file, 1):
            if rows.is_full:
                break
            _add_row(rows, line, D, reading, has_header=False)
    if all("." in word and parse_floats([word.encode()]) is not None for word in rows.words):
        raise DataError(f"{path}: its lines contain only numbers; begin each with its word")
    return rows.result()


def check_memory(path: Path, V: int, D: int, max_bytes: int) -> None:
    """Raise ResourceError if V vectors of D numbers and their words need more than `max_bytes`."""
    need = V * (4 * D + _WORD_COST)
    if need > max_bytes:
        raise ResourceError(f"{path}: {V:,} vectors of {counted(D, 'number', 'numbers')} take {need:,} bytes of "
                            f"memory, more than the {max_bytes:,} available")


def limit_hint(n: int, reading: ReadOptions) -> str:
    """Return the end of an error message: how to read the n valid rows."""
    return "; fetch it again" if not n else f"; fetch it again, or {reading.limit_remedy(n)}"


def read_header(path: Path, file: IO[bytes], min_value_bytes: int, max_bytes: int, reading: ReadOptions
                ) -> tuple[int, int, int]:
    """Read the first line that is not blank, the header; return its number, V and D.

    DataError if the file is too small for them, ResourceError if the memory is. min_value_bytes: the fewest bytes that
    a value takes in the file.
    """
    number, line = 1, file.readline(MAX_LINE).removeprefix(codecs.BOM_UTF8)
    while line and not line.strip():
        number, line = number + 1, file.readline(MAX_LINE)
    sizes = declared_sizes(line)
    if sizes is None:
        raise DataError(f"{path}:{number}: should be the number of words and of dimensions, got {line[:40]!r}{FIX}")
    V, D = sizes
    declared = f"declares {counted(V, 'word', 'words')} of {counted(D, 'dimension', 'dimensions')}"
    if V == 0 or not 1 <= D <= MAX_DIM:
        raise DataError(f"{path}:{number}: {declared}; should be 1 or more words of 1 to {MAX_DIM:,}")
    n = V if reading.limit is None else min(V, reading.limit)
    size = max_unpacked_bytes(path) * (2 if reading.is_wide else 1)
    # One letter, a blank, the values; the last newline may be missing.
    if n * (2 + min_value_bytes * D) - 1 > size and 4 * n * D > _SMALL:
        raise DataError(f"{path}:{number}: {declared}, more than its {path.stat().st_size:,} bytes can contain; fetch "
                        f"it again, or {reading.limit_remedy('N')}")
    check_memory(path, n, D, max_bytes)
    return number, V, D


def decode_word(word: bytes, where: str, reading: ReadOptions = PLAIN) -> str:
    """Decode a word. DataError if it is empty, too long, not in the encoding, or has control characters."""
    try:
        text = word.decode(reading.codec)
    except UnicodeDecodeError as error:
        expected = "UTF-8" if reading.codec == "utf-8" else reading.codec
        raise DataError(f"{where}: its word is not {expected}: {word[:40]!r}; {reading.encoding_remedy()}") from error
    if not text or len(word) > MAX_WORD:
        fault = f"longer than {MAX_WORD:,} bytes" if text else "empty"
        raise DataError(f"{where}: its word is {fault}; fetch the file again, or correct the word")
    if _CONTROL.search(text.encode("utf-8", "surrogatepass")):
        raise DataError(f"{where}: its word contains a control character: {text[:40]!r}; fetch the file again")
    return text


def is_word(word: bytes, codec: str) -> bool:
    """Return whether bytes are a whole word in the encoding, without control characters."""
    return not _CONTROL.search(word) and is_text(word, codec, is_complete=True)


def is_text(text: bytes, codec: str, is_complete: bool = False) -> bool:
    """Return whether bytes decode in the encoding. is_complete: a character cut off at the end is an error."""
    try:
        codecs.getincrementaldecoder(codec)().decode(text, final=is_complete)
    except UnicodeDecodeError:
        return False
    return True


def _add_row(rows: VectorRows, line: VectorLine, D: int, reading: ReadOptions, has_header: bool) -> None:
    """Append the word and the values of a line. has_header: D is declared, not the number of values in line 1."""
    where = f"{rows.path}:{line.number}"
    word, *values = line.text.rsplit(None, D)
    if len(values) == D - 1 and line.text[:1].isspace() and parse_floats([word]) is not None:
        word, values = b"", [word, *values]
    by_tab = bool(values) and b"\t" in line.text[len(word):].partition(values[0])[0] and b"\t" not in word
    parts = word.split()
    before = parts[-1] if len(parts) > 1 and not by_tab else b""           # a number in place of the end of the word
    cut = f"; the file ends inside this line{limit_hint(len(rows.words), reading)}" if line.is_cut else ""
    if len(values) != D or (before and parse_floats([before]) is not None):
        should = f"a word and {counted(D, 'number', 'numbers')}{'' if has_header else ' as in line 1'}"
        raise DataError(f"{where}: should be {should}, got {len(line.text.split()) - 1} after the word{cut or FIX}")
    if not has_header and is_in_other_notation(before):
        raise DataError(f"{where}: should be numbers after the word, got {before[:40]!r}{IN_DIGITS}")
    text = decode_word(word.lstrip(b" "), where, reading)
    _fill_row(rows.add(text), values, where, cut or FIX)
    if line.ends_bare:
        _log.warning("%s: the file ends without a line end, so its last number, %s, may be truncated; fetch it again, "
                     "or add a line end if it is complete", where, values[-1].decode("ascii", "replace"))


def _fill_row(row: np.ndarray, values: list[bytes], where: str, fix_last: str) -> None:
    """Write the values to a row. fix_last: the remedy for a last value that is not a number, and may be cut."""
    if (numbers := parse_floats(values)) is None:
        bad = next(v for v in values if parse_floats([v]) is None)
        fix = IN_DIGITS if is_in_other_notation(bad) else fix_last if bad is values[-1] else FIX
        raise DataError(f"{where}: should be numbers after the word, got {bad[:40]!r}{fix}")
    with np.errstate(over="ignore"):  # 1e39 becomes infinity, rejected below
        row[:] = numbers
    if not np.isfinite(row).all():
        raise DataError(f"{where}: contains NaN or infinity, or a number too large for float32; {WITHOUT_IT}")
