"""One column of a Parquet or Arrow file as text, by pyarrow: a row is a document.

Parquet is read by row groups, in batches of ROWS rows; Arrow (the stream or the file format, as the library `datasets`
saves it) is mapped and read by record batches. Only the chosen column is decoded, and every batch is validated first.
Like a packed file, a table may hold at most max(FREE_BYTES, MAX_RATIO times its size) of text.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from embtrain.common.errors import DataError, ResourceError, UsageError, read_error
from embtrain.common.files import read_json
from embtrain.data.storage.containers import Budget, damage_as_data_error

ROWS, NESTED_ROWS = 256, 16  # of a batch of Parquet
_STATE = "state.json"    # of a data set that `datasets` saved
_MAX_STATE = 16 << 20    # bytes
_FILE_MAGIC = b"ARROW1"
_STREAM_END = b"\xff\xff\xff\xff\0\0\0\0"  # without the first half in streams of Arrow before 0.15


def require_pyarrow(section: str, format: str) -> None:
    """Raise UsageError if pyarrow is not installed."""
    if find_spec("pyarrow") is None:
        raise UsageError(f"{section}.format: {format}: pyarrow is not installed; pip install 'embtrain[parquet]'")


def row_group_ranges(path: Path, step: int) -> list[tuple[int, int]]:
    """Return ranges of row groups of about `step` bytes. DataError if the file is damaged."""
    import pyarrow.parquet as pq

    with _damage(path), pq.ParquetFile(path) as file:
        sizes = [file.metadata.row_group(i).total_byte_size for i in range(file.metadata.num_row_groups)]
    cuts, n_bytes = [0], 0
    for i, size in enumerate(sizes):
        if n_bytes >= step:
            cuts.append(i)
            n_bytes = 0
        n_bytes += size
    return list(zip(cuts, [*cuts[1:], len(sizes)], strict=True))


def read_parquet(path: Path, field: str, section: str, groups: tuple[int, int] | None = None) -> Iterator[str | None]:
    """Yield the column `field` of each row, or of a range of row groups: text, words joined by blanks, or None.

    `a.b` is field b of the structures in column a. Raises DataError if the file is damaged, packed or a bomb, or has no
    column of text with this name.
    """
    import pyarrow.parquet as pq

    with _damage(path):
        budget = Budget(path, path.stat().st_size)
        with pq.ParquetFile(path) as file:
            names = _column(path, file.schema_arrow, field, section)
            prefix = ".".join(names)
            leaves = [i for i in range(len(file.schema)) if f"{file.schema.column(i).path}.".startswith(f"{prefix}.")]
            is_flat = len(names) == 1 and [file.schema.column(i).path for i in leaves] == names
            first, last = groups or (0, file.metadata.num_row_groups)
            for group in range(first, last):                 # before a page of this size is unpacked
                budget.check(sum(file.metadata.row_group(group).column(i).total_uncompressed_size for i in leaves))
        # As a dictionary, a value that a small file repeats a million times is in memory once. pyarrow has none for
        # nested columns, so their batches are smaller.
        with pq.ParquetFile(path, read_dictionary=[prefix] if is_flat else None) as file:
            for batch in file.iter_batches(ROWS if is_flat else NESTED_ROWS, range(first, last), columns=[prefix],
                                           use_threads=False):
                yield from _texts(path, batch.column(0), names, budget)


def read_arrow(path: Path, field: str, section: str) -> Iterator[str | None]:
    """Yield the column `field` of each row of an Arrow file; as `read_parquet`."""
    import pyarrow as pa
    from pyarrow import ipc

    with _damage(path):
        budget = Budget(path, path.stat().st_size)
        with contextlib.ExitStack() as stack:
            with open(path, "rb") as file:
                start = file.read(len(_FILE_MAGIC))
                is_stream = start != _FILE_MAGIC
                # Without an end, a stream that was cut between two batches would look complete.
                end = _STREAM_END if start.startswith(_STREAM_END[:4]) else _STREAM_END[4:]
                file.seek(max(0, os.path.getsize(path) - len(end)))
                if is_stream and file.read() != end:
                    raise DataError(f"{path}: the Arrow stream has no end, so it is truncated or another kind of file; "
                                    "fetch it again")
            source = stack.enter_context(pa.memory_map(str(path)))
            reader: Any = stack.enter_context((ipc.open_stream if is_stream else ipc.open_file)(source))
            names = _column(path, reader.schema, field, section)
            batches = reader if is_stream else (reader.get_batch(i) for i in range(reader.num_record_batches))
            for batch in batches:
                yield from _texts(path, batch.column(reader.schema.names.index(names[0])), names, budget)


def saved_files(folder: Path) -> set[str] | None:
    """Return the names of the data files that `datasets` lists in a folder; None if it did not save the folder.

    Raises DataError if the list is damaged, a file is missing, or rows were selected without being written.
    """
    path = folder / _STATE
    if not path.is_file():
        return None
    try:
        state = read_json(path, _MAX_STATE)
        names = {str(entry["filename"]) for entry in state["_data_files"]}
        indices = state.get("_indices_data_files")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise read_error(path, error, "does not list the files of a data set; save it again with save_to_disk"
                         ) from error
    if indices:
        raise DataError(f"{path}: rows of the data set were selected but not written; save it again after "
                        "flatten_indices()")
    if missing := sorted(name for name in names if not (folder / name).is_file()):
        raise DataError(f"{folder / missing[0]}: file not found, and {path} lists it; copy the whole folder")
    return names


@contextlib.contextmanager
def _damage(path: Path) -> Iterator[None]:
    """Turn errors of pyarrow into one line."""
    import pyarrow as pa

    try:
        with damage_as_data_error(path):
            yield
    except pa.ArrowMemoryError as error:
        raise ResourceError(f"{path}: a batch of rows does not fit into memory: {error}") from error
    except pa.ArrowException as error:
        raise DataError(f"{path}: damaged, truncated or of an unknown kind ({str(error).splitlines()[0][:120]}); fetch "
                        "it again") from error


def _column(path: Path, schema: Any, field: str, section: str) -> list[str]:
    """Return the names that lead to a field of text. DataError lists the columns of text."""
    import pyarrow as pa

    for names in ([field], field.split(".")):
        kind: Any = pa.struct(list(schema))
        for name in names:
            i = kind.get_field_index(name) if pa.types.is_struct(kind) else -1
            kind = kind.field(i).type if i >= 0 else None
            if kind is None:
                break
        if kind is not None and (_is_text(kind) or pa.types.is_null(kind)):
            return names
        if kind is not None:
            break
    known = ", ".join(column.name for column in list(schema) if _is_text(column.type))
    problem = f"has no column {field!r}" if kind is None else f"column {field!r} is {kind}, not text"
    remedy = f"set {section}.field to a column of text: {known}" if known else "it has no column of text"
    raise DataError(f"{path}: {problem}; {remedy}")


def _is_text(kind: Any) -> bool:
    """Return whether values of an Arrow type are text, or lists of words."""
    from pyarrow import types

    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        kind = kind.value_type
    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _texts(path: Path, column: Any, names: list[str], budget: Budget) -> Iterator[str | None]:
    import pyarrow.compute as pc

    column.validate(full=True)                               # offsets within the data, and UTF-8
    for name in names[1:]:
        column = pc.struct_field(column, [name])
    for scalar in column:                                    # one at a time: a dictionary may repeat a long text
        value = scalar.as_py()
        if isinstance(value, list):
            if None in value:
                raise DataError(f"{path}: column {'.'.join(names)!r}: a list of words contains null; write the words "
                                "alone, or null instead of the list")
            value = " ".join(value)
        if value is not None:
            budget.take(len(value))
        yield value
