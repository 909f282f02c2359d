"""docs/science/promises.md says what the slow tests have printed; each has a block of its own there.

EMBTRAIN_PROMISES=write makes a test write its block anew; otherwise it prints and leaves the page alone.
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
    """Print the text, or what is new in it, whatever pytest does with output, and write it where that is asked for."""
    aloud(said or text, capsys)
    if os.environ.get("EMBTRAIN_PROMISES") == "write":
        with locked(PAGE.parent):                            # the page itself is another file each time
            write_text(PAGE, replaced(PAGE.read_text(encoding="utf-8"), name, text))


def aloud(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """To stderr, which tests that run side by side have in common."""
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
    begin, found, rest = page.partition(f"<!-- printed: {name} -->\n")
    text, closed, end = rest.partition("<!-- end -->")
    assert found and closed, f"docs/science/promises.md has no block for {name!r}"
    return begin + found, text, closed + end


def names(page: str) -> list[str]:
    return re.findall(r"<!-- printed: (.+) -->", page)


def with_row(table: str, row: str, order: list[str]) -> str:
    """A table in Markdown with this row in the place of that of the same first cell, rows in the order of these."""
    head, rows = table.splitlines()[:2], {line.split(" | ")[0][2:]: line for line in table.splitlines()[2:]}
    rows[row.split(" | ")[0][2:]] = row
    return "\n".join([*head, *(rows[name] for name in order if name in rows)])
