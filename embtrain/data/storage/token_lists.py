"""Token lists from a program, written as a text file in the cache.

A list becomes a line, its tokens separated by blanks. The file is named after the sha256 of its content, so that equal
lists are stored once and a run can be resumed. The lists are read once, and only CHUNK bytes of them are in memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator
from numbers import Integral
from pathlib import Path
from typing import Any

from embtrain.common.errors import DataError, ResourceError, os_reason
from embtrain.common.files import temporary_folder

CHUNK = 1 << 20  # bytes
_BOM = "\ufeff"  # byte order mark: encoding information, not part of a text


def write_token_lists(lists: Iterable[Iterable[Any]], folder: Path) -> Path:
    """Write lists of tokens into a file of `folder` and return its path. Tokens are strings or integers.

    Raises DataError for an item that is not a list of tokens, for a token that a line of text would change and if there
    are no tokens; ResourceError if the folder cannot be written.
    """
    digest = hashlib.sha256()
    with _writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with temporary_folder("lists-", folder) as scratch, open(scratch / "lists", "wb") as file:
        for chunk in _chunks(lists):  # outside _writing: an OSError of the program's own iterable is not ours
            digest.update(chunk)
            with _writing(folder):
                file.write(chunk)
        with _writing(folder):
            file.flush()
            os.fsync(file.fileno())
            path = folder / f"{digest.hexdigest()[:20]}.txt"
            os.replace(scratch / "lists", path)
    return path


def is_token(token: str) -> bool:
    """Return whether a line of UTF-8 keeps a token: no blanks, NUL, lone surrogates or leading byte order mark."""
    return token.split() == [token] and "\0" not in token and not token.startswith(_BOM) and (
        token.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in token))


def _chunks(lists: Iterable[Iterable[Any]]) -> Iterator[bytes]:
    lines, size, n_tokens = list[str](), 0, 0
    for number, tokens in enumerate(lists, 1):
        if isinstance(tokens, str | bytes) or not isinstance(tokens, Iterable):
            raise DataError(f"corpus: item {number:,}: should be a list of tokens, got {tokens!r:.40}; split texts "
                            "first")
        words = [_text(token, number) for token in tokens]
        n_tokens += len(words)
        lines.append(" ".join(words))
        size += len(lines[-1]) + 1
        if size >= CHUNK:
            yield "".join(f"{line}\n" for line in lines).encode()
            lines, size = [], 0
    if not n_tokens:
        raise DataError("corpus: contains no tokens; an iterator that was read before is empty")
    yield "".join(f"{line}\n" for line in lines).encode()


def _text(token: Any, number: int) -> str:
    if isinstance(token, Integral):
        return str(token)
    if not isinstance(token, str) or not is_token(token):
        raise DataError(f"corpus: item {number:,}: {token!r:.60}: a token should be an integer, or a string without "
                        "spaces, NUL, lone surrogates or a leading byte order mark")
    return token


@contextlib.contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ResourceError(f"{folder}: cannot be written: {os_reason(error)}") from error
