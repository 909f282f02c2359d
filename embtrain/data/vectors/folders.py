"""Writes vectors as folders for other programs, and reads them back.

    huggingface   README.md (a model card: YAML between lines of ---, then Markdown), config.json, model.safetensors
                  with `embedding.weight` (V, D) float32 and optionally `relation.weight` (R, ·), vocab.txt and
                  relations.txt: one name a line, line i for row i. The Hub's layout; `read_huggingface` reads it.
                  Vectors with subwords have subwords.safetensors too (subword_table.py), as in a run folder.
    projector     vectors.tsv, metadata.tsv, for the Embedding Projector: a line for each vector, numbers separated by
                  TABs; metadata with two columns begin with a header.
    pykeen        train.tsv, valid.tsv, test.tsv: head, relation, tail separated by TABs, for TriplesFactory.from_path;
                  entity_to_id.tsv and relation_to_id.tsv (name, TAB, id); entity.npy and relation.npy, row i for id i,
                  for PretrainedInitializer.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import yaml

from embtrain.common.config.layers import compose
from embtrain.common.errors import DataError, UsageError, read_error
from embtrain.common.files import check_exists, write_atomically, write_json, write_text
from embtrain.common.terminal import plain_lines
from embtrain.data.storage import checksummed
from embtrain.data.vectors import subword_table, vectors as files_of_vectors
from embtrain.data.vectors.files import MAX_WORD, check_memory, decode_word
from embtrain.data.vectors.open import PLAIN, ReadOptions, default_max_bytes, open_unpacked
from embtrain.data.vectors.replaced_files import replace_files
from embtrain.data.vectors.tensors import FLOATS, HUB_TABLE, RESTORE_IT, read_float_tensor
from embtrain.data.vectors.vectors import Vectors

CARD, CONFIG, MODEL = "README.md", "config.json", "model.safetensors"
VOCABULARY, RELATIONS = "vocab.txt", "relations.txt"
OPTIONAL = (RELATIONS, subword_table.FILE)
RUN_FILE, RUN_RELATIONS = "vectors.safetensors", "relations.safetensors"  # the vectors in a run folder
TABLE, RELATION_TABLE = HUB_TABLE, "relation.weight"
FRONT_KEYS = frozenset({"library_name", "tags", "model-index"})  # in the head of a card; others are of the publisher
MAX_CARD = 1 << 24  # bytes
# The head of a card, as the Hub finds it: a line of ---, keys, a line of --- (or no end). Blanks may follow the marks.
_HEAD = re.compile(rb"(\s*---[ \t]*\n)(.*?)(^---[ \t]*$|\Z)", re.DOTALL | re.MULTILINE)
# The colon of a key, not of an address or a ratio. Text without it is Markdown after a line across the page.
_COLON = re.compile(rb":(?=\s|\Z)|(?<=[\"']):")
_IF_NO_HEAD = "move the card away, or, if its first --- is a line across the page, write *** there"
_CORRECT_HEAD = f"correct the head of the card, {_IF_NO_HEAD}"
_LINE_END = re.compile("(?<=[\n\x85\u2028\u2029])")  # as the YAML parser counts lines


def write_huggingface(folder: Path, vectors: Vectors, relations: Vectors | None, config: Mapping[str, Any],
                front: Mapping[str, Any], card: str) -> None:
    """Write a Hugging Face folder. front: FRONT_KEYS of the card; card: its Markdown. config.json has the sizes too.

    Other keys in the head of an earlier card, as the licence of the vectors, are kept. DataError if they cannot be
    read.
    """
    arrays, earlier = {TABLE: vectors.table}, folder / CARD
    sizes: dict[str, Any] = {"vocab_size": len(vectors), "hidden_size": vectors.dim}
    head = plain_lines(yaml.safe_dump(dict(front), sort_keys=False, allow_unicode=True)) if front else ""
    with replace_files(folder, MODEL, OPTIONAL) as folder:
        kept = _publisher_lines(earlier, head)
        write_lines(folder / VOCABULARY, vectors.words)
        if relations is not None:
            write_lines(folder / RELATIONS, relations.words)
            arrays[RELATION_TABLE] = relations.table
            sizes |= {"num_relations": len(relations), "relation_size": relations.dim}
        with write_atomically(folder / MODEL) as file:
            file.writelines(checksummed.file_chunks(arrays))
        if vectors.subwords is not None:
            vectors.subwords.save(folder / subword_table.FILE)
        write_json(folder / CONFIG, {**config, **sizes})
        write_text(folder / CARD, f"---\n{head}{kept}---\n\n{card}")


def _publisher_lines(card: Path, front: str) -> str:
    """Return the lines of the keys in the head of a card that `write_huggingface` does not write, and its comments.

    If they would not be read as before after the lines of `front`, as aliases of a left-out key, it is the YAML of
    their nodes, which keeps the forms of values, but no comments. DataError if the head is damaged.
    """
    head, root = _head(card)
    begin = {key.start_mark.line: str(key.value) not in FRONT_KEYS for key, _ in root.value}
    column = min((key.start_mark.column for key, _ in root.value), default=0)
    lines, is_kept = list[str](), False
    for number, line in enumerate(_LINE_END.split(head)):
        is_kept = begin.get(number, is_kept)
        if is_kept or line.lstrip(" ").startswith("#"):
            lines.append(line[column:] if line[:column].isspace() else line)
    root.value, root.flow_style = [pair for pair in root.value if str(pair[0].value) not in FRONT_KEYS], False
    kept = _serialized(root)
    for text in ("".join(lines), kept):
        with contextlib.suppress(UsageError):                  # for example an alias of an anchor in another key
            if _serialized(_nodes(front + text)) == _serialized(_nodes(front)) + kept:
                return text
    raise DataError(f"{card}: its keys cannot follow those of an export; {_CORRECT_HEAD}")


def _head(card: Path) -> tuple[str, Any]:
    """Return the head of a card, after an empty line for each line before it, and its nodes: a mapping.

    Both are empty if there is none. DataError if it is damaged.
    """
    none = "", _nodes("")
    if not card.is_file():
        return none
    try:
        with open(card, "rb") as file:
            content = file.read(MAX_CARD).removeprefix(codecs.BOM_UTF8).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    except OSError as error:
        raise read_error(card, error, f"cannot be read: {error.strerror}; move it away") from error
    if (head := _HEAD.match(content)) is None:
        return none
    mark, keys, end = head.groups()
    if not end:
        first = keys.lstrip().partition(b"\n")[0]
        if first.startswith(b"#") or not _COLON.search(first):
            return none                                      # Markdown after a line across the page
        raise DataError(f"{card}: its head has no end; write --- in the line after its keys, {_IF_NO_HEAD}")
    try:
        text = (b"\n" * mark.count(b"\n") + keys).decode()
        root = _nodes(text, str(card))
    except (UnicodeDecodeError, UsageError) as error:
        if not _COLON.search(keys):
            return none                                      # Markdown between two lines across the page
        if isinstance(error, UnicodeDecodeError):
            line = error.object.count(b"\n", 0, error.start) + 1
            raise DataError(f"{card}:{line}: is not UTF-8; save the file as UTF-8; {_CORRECT_HEAD}") from error
        raise DataError(f"{error}; {_CORRECT_HEAD}") from error
    if isinstance(root, yaml.SequenceNode):
        raise DataError(f"{card}:{root.start_mark.line + 1}: should be keys and values, got a list; {_CORRECT_HEAD}")
    return none if isinstance(root, yaml.ScalarNode) else (text, root)


def _nodes(text: str, name: str = "") -> Any:
    return compose(text, name, loader=yaml.SafeLoader) or yaml.MappingNode("tag:yaml.org,2002:map", [])


def _serialized(root: Any) -> str:
    """Return the YAML of nodes, with the form of each value, and each anchor at its first use."""
    return yaml.serialize(root, Dumper=yaml.SafeDumper, allow_unicode=True, width=MAX_CARD) if root.value else ""


def is_huggingface(folder: Path) -> bool:
    """Return whether a folder has the layout of `write_huggingface`."""
    return (folder / MODEL).is_file() and (folder / VOCABULARY).is_file()


def read_any(path: str | os.PathLike[str], reading: ReadOptions = PLAIN) -> Vectors:
    """Read the vectors of a file, of a run folder, or of a folder that `write_huggingface` wrote.

    reading: maximal rows, and the encoding of the words of a file. DataError or ResourceError if they cannot be read.
    """
    path = Path(path)
    check_exists(path, "a run folder or a vector file")
    if not path.is_dir():
        return files_of_vectors.read(path, reading=reading)
    if is_huggingface(path):
        return read_huggingface(path).first(reading.limit)
    if not (path / RUN_FILE).exists():
        raise DataError(f"{path}: contains no vectors: neither {RUN_FILE}, as a run folder does, nor {MODEL} with "
                        f"{VOCABULARY}; give a vector file or the folder of a finished run")
    return read_run(path).first(reading.limit)


def check_encoding(reading: ReadOptions, *paths: Path) -> None:
    """Raise UsageError for an encoding that applies to none of the paths: the words of a folder are UTF-8."""
    if codecs.lookup(reading.encoding).name != "utf-8" and all(path.is_dir() for path in paths):
        raise UsageError(f"--encoding: {reading.encoding}: {' and '.join(map(str, paths))}: the words of a folder are "
                         "UTF-8; leave --encoding out")


def read_run(folder: Path) -> Vectors:
    """Read the vectors of a run folder, with its subwords. DataError or ResourceError if they cannot be read."""
    return replace(files_of_vectors.read(folder / RUN_FILE), subword_source=_subword_file(folder))


def _subword_file(folder: Path) -> Path | None:
    path = folder / subword_table.FILE
    return path if path.is_file() else None


def read_huggingface(folder: Path) -> Vectors:
    """Read a folder that `write_huggingface` wrote. DataError names the faulty file."""
    path = folder / MODEL
    try:
        with open_unpacked(path), safetensors.safe_open(path, framework="numpy") as file:
            if TABLE not in file.keys():  # noqa: SIM118  it is not a dict
                raise DataError(f"{path}: contains no tensor {TABLE}; there are: {', '.join(sorted(file.keys()))[:80]}")
            shape, kind = file.get_slice(TABLE).get_shape(), file.get_slice(TABLE).get_dtype()
            is_sealed = checksummed.CHECKSUM_KEY in (file.metadata() or {})
            if len(shape) != 2 or kind not in (FLOATS[:1] if is_sealed else FLOATS):
                raise DataError(f"{path}: {TABLE}: should be float32, float16 or bfloat16 of two axes, got {kind} "
                                f"{shape}; convert it, or give another folder")
            check_memory(path, shape[0], shape[1], default_max_bytes())
            tensors = [name for name in (TABLE, RELATION_TABLE) if name in file.keys()]  # noqa: SIM118  it is not a dict
            arrays = (
                {name: file.get_tensor(name) for name in tensors}
                if is_sealed
                else {TABLE: read_float_tensor(path, TABLE)}
            )
            checksummed.check(path, file.metadata(), arrays)
    except safetensors.SafetensorError as error:
        raise DataError(f"{path}: is not a complete safetensors file: {error}; {RESTORE_IT}") from error
    try:
        words = _names(folder / VOCABULARY, shape[0])
    except (OSError, ValueError) as error:
        raise read_error(folder / VOCABULARY, error, f"cannot be read: {error}; {RESTORE_IT}") from error
    table = arrays[TABLE]
    if len(words) != len(table) or len(set(words)) != len(words) or not np.isfinite(table).all():
        raise DataError(f"{folder}: {VOCABULARY} should have one name for each of the {len(table):,} rows of {MODEL}, "
                        f"all different, and all numbers should be finite; it has {len(words):,} lines")
    if not is_sealed:
        words = [decode_word(word.encode(), f"{folder / VOCABULARY}:{i}") for i, word in enumerate(words, 1)]
    return Vectors(words, table, _subword_file(folder))


def _names(path: Path, n: int) -> list[str]:
    """Return the lines of a file of n names, which may end in CR LF and begin with a byte order mark.

    ValueError if it is longer than n names of maximal length.
    """
    most = len(codecs.BOM_UTF8) + n * (MAX_WORD + 2)
    with open(path, "rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"more than {n:,} names of at most {MAX_WORD:,} bytes")
    lines = content.decode("utf-8-sig").removesuffix("\n").split("\n")
    return [line.removesuffix("\r") for line in lines]


def write_projector(folder: Path, vectors: Vectors, counts: Mapping[str, int] | None) -> None:
    """Write files for the Embedding Projector. counts: frequency of each name, written as a second column; None:
    unknown."""
    line = b"\t".join([b"%.9g"] * vectors.dim) + b"\n"
    with replace_files(folder, "vectors.tsv") as folder:
        with write_atomically(folder / "vectors.tsv") as file:
            for row in vectors.table:
                file.write(line % tuple(row.tolist()))
        if counts is None:
            write_lines(folder / "metadata.tsv", vectors.words, tabs=False)
            return
        _check_fields(folder / "metadata.tsv", vectors.words, tabs=False)
        write_lines(
            folder / "metadata.tsv", ["name\tcount", *(f"{word}\t{counts.get(word, 0)}" for word in vectors.words)]
        )


def write_pykeen(folder: Path, parts: Mapping[str, np.ndarray], entities: Vectors, relations: Vectors, n_relations: int
           ) -> None:
    """Write files for PyKEEN.

    parts: ids (n, 3) of each part, as head, relation, tail. They use the first n_relations of `relations`; the rest are
    inverses. DataError if a name cannot be written.
    """
    for word in (*entities.words, *relations.words):
        if word.startswith('"'):             # pandas, which PyKEEN uses, would start a quoted field
            raise DataError(f"{folder}: {json.dumps(word)[:60]}: begins with a quotation mark, which PyKEEN reads as "
                            "the beginning of a quoted field; set --format huggingface, or rename it")
    names, relation_names = entities.words, relations.words[:n_relations]
    with replace_files(folder, "train.tsv") as folder:
        for name, vectors in (("entity", entities), ("relation", relations)):
            _check_fields(folder / f"{name}_to_id.tsv", vectors.words, tabs=False)
            write_lines(folder / f"{name}_to_id.tsv", [f"{word}\t{i}" for i, word in enumerate(vectors.words)])
            with write_atomically(folder / f"{name}.npy") as file:
                np.lib.format.write_array(file, vectors.table, allow_pickle=False)
        for part, ids in parts.items():
            write_lines(
                folder / f"{part}.tsv", [f"{names[h]}\t{relation_names[r]}\t{names[t]}" for h, r, t in ids.tolist()]
            )


def write_lines(path: Path, lines: Sequence[str], tabs: bool = True) -> None:
    """Write lines. DataError for one that would not be read as one line, or, without `tabs`, as one field."""
    _check_fields(path, lines, tabs)
    write_text(path, "".join(f"{line}\n" for line in lines))


def _check_fields(path: Path, names: Sequence[str], tabs: bool = True) -> None:
    """Raise DataError for a name that would not be one field of one line."""
    breaks = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029" + ("" if tabs else "\t")
    if names and names[0].startswith("\ufeff"):
        raise DataError(f"{path}: {json.dumps(names[0])[:60]}: begins with a byte order mark, which readers take for "
                        "the file's own; set --format safetensors, or rename it")
    for name in names:
        if not name or any(c in name for c in breaks) or any("\ud800" <= c <= "\udfff" for c in name):
            raise DataError(f"{path}: {json.dumps(name)[:60]}: is empty or contains a field or line separator; rename "
                            "it, or set the format of a file that accepts it, for example safetensors")
