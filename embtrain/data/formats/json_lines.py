"""JSON lines: one object a line, one document each; its text is one field."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from embtrain.common.errors import DataError
from embtrain.data.storage.containers import Source
from embtrain.data.storage.ranges import count_lines

MAX_LINE = 1 << 28  # bytes of a line


class _Place:
    """FILE:LINE of a line, for an error. The lines before a range of a file are counted only if there is one."""

    def __init__(self, source: Source, number: int):
        self._source, self._number = source, number

    def __str__(self) -> str:
        before = count_lines(Path(self._source.name), self._source.begin) if self._source.begin else 0
        return f"{self._source.name}:{before + self._number}"


def read_fields(source: Source, field: str) -> Iterator[str | None]:
    """Yield the field of each object: a string, or the words of a list joined by blanks; None if missing or null.

    `field` may be a path: `a.b` is field b of the object in a. Raises DataError if a line is not an object, or the
    field is neither text nor words.
    """
    for number, line in enumerate(iter(lambda: source.stream.readline(MAX_LINE), b""), 1):
        where = _Place(source, number)
        if len(line) >= MAX_LINE:
            raise DataError(f"{where}: is longer than {MAX_LINE >> 20} MiB; write one object a line")
        try:
            text = line.decode("utf-8-sig" if number == 1 and source.begin == 0 else "utf-8").strip()
            record = json.loads(text) if text else {}
        except UnicodeDecodeError as error:
            raise DataError(f"{where}: is not UTF-8; convert it to UTF-8") from error
        except (ValueError, RecursionError) as error:
            reason = ("nested too deeply" if isinstance(error, RecursionError) else
                      str(getattr(error, "msg", error))[:60])
            raise DataError(f"{where}: is not JSON ({reason}); write one object a line") from error
        if not isinstance(record, dict):
            raise DataError(f"{where}: is not an object; write one object a line, e.g. with jq -c '.[]'")
        if text:
            yield _field_text(record, field, where)


def _field_text(record: dict[str, Any], field: str, where: _Place) -> str | None:
    value: Any = record
    for name in [field] if field in record else field.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        value = " ".join(value)
    if value is not None and not isinstance(value, str):
        raise DataError(f"{where}: {field!r} is not text but {json.dumps(value)[:30]}; choose another field (there "
                        f"are: {', '.join(list(record)[:10])})")
    if value is None:
        return None
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # a lone surrogate is not a character
