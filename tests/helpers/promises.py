"""Writes the output of slow tests into their blocks of docs/science/promises.md.

With EMBTRAIN_PROMISES=write a test rewrites its block; otherwise it only prints.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from embtrain.common.files import write_text

PAGE = Path(__file__).resolve().parents[2] / "docs" / "science" / "promises.md"


def tell(name: str, text: str, capsys: pytest.CaptureFixture[str], said: str = "") -> None:
    """Print the text, or only its new part, past the capture of pytest, and write the block on request."""
    aloud(said or text, capsys)
    if os.environ.get("EMBTRAIN_PROMISES") == "write":
        with locked(PAGE.parent):                            # not the page, which is replaced by each write
            write_text(PAGE, replaced(PAGE.read_text(encoding="utf-8"), name, text))


def aloud(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Print to stderr, which parallel tests share."""
    with capsys.disabled():
        print(f"\n{text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def replaced(page: str, name: str, text: str) -> str:
    begin, _, end = parts(page, name)
    return f"{begin}{text}\n{end}"


def block(page: str, name: str) -> str:
    return parts(page, name)[1].strip("\n")


def parts(page: str, name: str) -> tuple[str, str, str]:
    """The page before the text of a block, that text, and the page after it."""
    begin, opened, rest = page.partition(f"<!-- printed: {name} -->\n")
    text, closed, end = rest.partition("<!-- end -->")
    assert opened and closed, f"docs/science/promises.md has no block for {name!r}"
    return begin + opened, text, closed + end


def names(page: str) -> list[str]:
    return re.findall(r"<!-- printed: (.+) -->", page)


def with_row(table: str, row: str, order: list[str]) -> str:
    """Replace or add the row with the same first cell in a Markdown table, and sort rows in this order."""
    head, rows = table.splitlines()[:2], {line.split(" | ")[0][2:]: line for line in table.splitlines()[2:]}
    rows[row.split(" | ")[0][2:]] = row
    return "\n".join([*head, *(rows[name] for name in order if name in rows)])
