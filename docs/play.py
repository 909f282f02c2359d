"""Plays a page: runs its blocks in order, in the folder one is in, and says what was printed.

    python docs/play.py docs/walks/*.md docs/tutorials/*.md       plays them, and writes into the pages what was printed

A ```sh block holds lines of `embtrain ...`, a ```python block is run as it stands, with the names of those before it.
A ```text block behind either shows what it prints, errors and warnings among it. What a comment says of a line is done:

    embtrain fit ...    # ends in 3            it fails with this exit code; without a comment it must not
    embtrain fit ...    # Ctrl-C: ends in 130  is pressed once the run has logged its first line
    pip install -e .                           what pyproject.toml in this folder names is found, and nothing installed
    iconv ..., tr ...                          as a shell would
"""

from __future__ import annotations

import contextlib
import io
import logging
import math
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from unittest import mock

INSTALL = ["pip", "install", "-e", "."]
SHELL = ("iconv", "tr")
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
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        if block.kind == "python":
            exec(compile(block.code, "page", "exec"), names)
            return printed.getvalue()
        for line in block.code.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words == INSTALL:
                install(Path())
            elif words and words[0] in SHELL:
                subprocess.run(line, shell=True, check=True)
            elif words:
                assert words[0] == "embtrain", line
                said = re.search(r"#.*\bends in (\d+)$", line)
                pressed = re.search(r"#.*\bCtrl-C\b", line) is not None
                if (code := command(words, printed, pressed)) != (int(said[1]) if said else 0):
                    raise RuntimeError(f"{line}: exit code {code}; {printed.getvalue()}")
    return printed.getvalue()


def command(words: Sequence[str], printed: io.StringIO, pressed: bool) -> int:
    """The exit code of a command; what a terminal would show stands in `printed`, progress left out."""
    from embtrain import cli

    log, warned = logging.getLogger("embtrain"), logging.StreamHandler(printed)
    warned.setFormatter(logging.Formatter("embtrain: %(message)s"))
    words, read = (list(words), os.devnull) if "<" not in words else (list(words[:-2]), words[-1])
    folder = Path(words[words.index("--out") + 1]) if pressed else None
    with (open(read, encoding="utf-8") as given, contextlib.redirect_stderr(printed), interrupted(folder),
          mock.patch.object(sys, "stdin", given), mock.patch.object(sys, "argv", words),
          mock.patch.object(log, "propagate", False), mock.patch("embtrain.progress.EVERY_SECONDS", math.inf)):
        log.addHandler(warned)
        try:
            return cli.run()
        finally:
            log.removeHandler(warned)


@contextlib.contextmanager
def interrupted(run: Path | None) -> Iterator[None]:
    """While the block runs, Ctrl-C as soon as the run in this folder has logged a line; None: nobody presses it."""
    ended = threading.Event()
    def press() -> None:
        while run is not None and not ended.wait(0.01):
            if (log := run / "metrics.jsonl").exists() and log.stat().st_size:
                return os.kill(os.getpid(), signal.SIGINT)
    watching = threading.Thread(target=press, daemon=True)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()


def install(folder: Path) -> None:
    """What `pip install -e .` would let Python find of a package, without touching what is installed here."""
    from embtrain import registry

    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n",
                                   encoding="utf-8")
    points = [f"[{group}]\n" + "".join(f"{name} = {place}\n" for name, place in named.items())
              for group, named in project["entry-points"].items()]
    (info / "entry_points.txt").write_text("".join(points), encoding="utf-8")
    sys.path.insert(0, str(folder.resolve()))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder.resolve()), os.environ.get("PYTHONPATH")]))
    registry.classes.cache_clear()


def shape(printed: str) -> str:
    """What another machine prints alike: every number is 0, the neighbours of a word and the answers to a question are
    `word`, blanks are one, seconds have no interval, which two runs that took as long have not either, and what stands
    behind an empty line, the verdict of a comparison, rests on CPU time."""
    text = re.sub(r"[+-]?\d(?:[\d,.]*\d)?(?:e[+-]?\d+)?", "0", printed.strip().split("\n\n")[0] + "\n")
    text = re.sub(r"(training/\w*seconds +0) +\[0, 0\]", r"\1", text)
    text = re.sub(r"[^\s:]+ 0(?=,|\n)", "word 0", text)
    text = re.sub(r"^ +0  \S.* 0(  in training)?$", "0 word 0", text, flags=re.MULTILINE)
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
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as cache, contextlib.chdir(folder):
            os.environ["EMBTRAIN_CACHE"] = cache
            text = played(path.read_text(encoding="utf-8"))
        path.write_text(text, encoding="utf-8")
