"""Plays a page: runs its blocks in order, in the folder one is in, and says what was printed.

    python docs/play.py docs/walkthroughs/*.md docs/tutorials/*.md       plays them, and writes into the pages what was
    printed

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
NUMBER = re.compile(r"[+-]?\d(?:[\d,.]*\d)?(?:e[+-]?\d+)?")
RELATIVE, ABSOLUTE = 0.05, 0.02  # how far a printed number may be from the page's; see `differing`
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
          mock.patch.object(log, "propagate", False), mock.patch("embtrain.common.progress.EVERY_SECONDS", math.inf)):
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
    from embtrain.common import registry

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


def timeless(printed: str) -> str:
    """The text without what rests on a clock: seconds, CPU seconds, milliseconds and the sentence on costs."""
    lines, table = [], ""
    for line in printed.replace("\u2212", "-").strip().splitlines():
        table = line if re.match(r"gradient .* ms$|milliseconds of ", line) else table if line.strip() else ""
        if table and table != line:  # the last column of the gradients; every column of the milliseconds
            line = re.sub(r" +\S+$", "", line) if table.startswith("gradient") else line.split("  ")[0]
        line = re.sub(r"(training/\w*seconds) .*", r"\1", re.sub(r"\d+ CPU-s", "CPU-s", line))
        line = re.sub(r"(training +seconds) +[\d.,]+", r"\1", line)
        if not re.match(r"A run of .* CPU seconds|What it costs", line):
            lines.append(line)
    return "\n".join(lines) + "\n"


def shape(printed: str) -> str:
    """The part of the output that is equal on every machine: without times, with 0 for each number, `word` for each
    neighbour of a word and each prediction, and one blank for several."""
    text = NUMBER.sub("0", timeless(printed))
    text = re.sub(r"[^\s:]+ 0(?=,|\n)", "word 0", text)
    text = re.sub(r"^ +0  \S.* 0(  in training)?$", "0 word 0", text, flags=re.MULTILINE)
    return " ".join(re.sub(r"-{2,}|(?<=\s)-(?=\s)", "0", text).split())


def numbers(printed: str) -> list[tuple[float, float]]:
    """The numbers of the output in order, each with half the width of the interval that it is part of, else 0.

    Digits of names, as in simlex999, are numbers too.
    """
    text = timeless(printed)
    half = {}
    for interval in re.finditer(rf"({NUMBER.pattern})\s+\[({NUMBER.pattern}), ({NUMBER.pattern})\]", text):
        low, high = _number(interval[2]), _number(interval[3])
        half |= {interval.start(group): (high - low) / 2 for group in (1, 2, 3)}
    return [(_number(found[0]), half.get(found.start(), 0.0)) for found in NUMBER.finditer(text)]


def _number(text: str) -> float:
    return float(text.replace(",", "")) if text.count(".") < 2 else math.nan  # a version, which `shape` leaves out too


def differing(told: str, printed: str) -> list[str]:
    """The numbers of an output that are not those of the page, as `PAGE on the page, PRINTED printed`.

    Two numbers agree if they differ by at most RELATIVE of the larger, by at most ABSOLUTE, or by at most half the
    width of the printed interval. Seconds of any kind are not compared. Both texts must have one shape.
    """
    faults = []
    for (on_page, width), (found, _) in zip(numbers(told), numbers(printed), strict=True):
        if abs(on_page - found) > max(RELATIVE * max(abs(on_page), abs(found)), ABSOLUTE, width):
            faults.append(f"{on_page:g} on the page, {found:g} printed")
    return faults


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
