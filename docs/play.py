"""Plays a page: runs its blocks in order, in the folder one is in, and says what was printed.

    python docs/play.py docs/tutorials/*.md       plays them, and writes into the pages what was printed

A ```sh block holds lines of `embtrain ...`, a ```python block is run as it stands, with the names of those before it.
A ```text block behind either shows what it prints.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple
from unittest import mock

BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    kind: str   # sh or python
    code: str
    told: str   # what the page says that it prints; "" where it says nothing
    start: int  # where the block stands in the page
    end: int


def blocks(page: str) -> list[Block]:
    return [Block(m[1], m[2], m[3] or "", *m.span()) for m in BLOCK.finditer(page)]


def play(block: Block, names: dict[str, object]) -> str:
    """What a block prints; RuntimeError where a command of it fails."""
    from embtrain import cli

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        if block.kind == "python":
            exec(compile(block.code, "page", "exec"), names)
            return printed.getvalue()
        for line in block.code.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words:
                assert words[0] == "embtrain", line
                with mock.patch.object(sys, "argv", words):
                    if code := cli.run():
                        raise RuntimeError(f"{line}: exit code {code}")
    return printed.getvalue()


def shape(printed: str) -> str:
    """What another machine prints alike: every number is 0, the neighbours of a word are `word`, blanks are one, and
    what stands behind an empty line, the verdict of a comparison, rests on CPU time."""
    text = re.sub(r"[+-]?\d(?:[\d,.]*\d)?(?:e[+-]?\d+)?", "0", printed.strip().split("\n\n")[0] + "\n")
    text = re.sub(r"[^\s:]+ 0(?=,|\n)", "word 0", text)
    return " ".join(re.sub(r"-{2,}|(?<=\s)-(?=\s)", "0", text).split())


def played(page: str) -> str:
    """The page with what its blocks print now, in a folder of their own."""
    names: dict[str, object] = {}
    out, at = [], 0
    for block in blocks(page):
        text = "\n".join(line.rstrip() for line in play(block, names).rstrip().splitlines())
        told = f"\n```text\n{text}\n```\n" if text else ""
        out.append(f"{page[at:block.start]}```{block.kind}\n{block.code}```\n{told}")
        at = block.end
    return "".join(out) + page[at:]


if __name__ == "__main__":
    for path in [Path(name).resolve() for name in sys.argv[1:]]:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            os.environ["EMBTRAIN_CACHE"] = str(Path(folder) / "cache")
            text = played(path.read_text(encoding="utf-8"))
        path.write_text(text, encoding="utf-8")
