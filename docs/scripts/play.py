"""Runs the blocks of a page in order in the current folder, and returns or updates their output.

    python docs/scripts/play.py docs/guide/*/*.md    runs the pages and writes their output and pictures

A ```sh block has lines of `embtrain ...`; a ```python block runs as it is, with the names of the blocks before it. A
```text block after either shows its output, errors and warnings included. Comments of a line are instructions:

    embtrain fit ...    # ends in 3            must fail with this exit code; without a comment it must succeed
    embtrain fit ...    # Ctrl-C: ends in 130  is interrupted when the run has logged its first line
    pip install -e .                           makes the package in this folder importable, without installing it
    iconv ..., tr ...                          runs in a shell
"""

from __future__ import annotations

import contextlib
import io
import logging
import math
import os
import re
import shlex
import shutil
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
TIMES = re.compile(r"(gradient|loss|negatives) .* ms$|milliseconds of ")  # heading of a table with times
RELATIVE, ABSOLUTE = 0.05, 0.02  # tolerance between printed numbers and those of the page; see `differing`
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
PICTURE = re.compile(r"^!\[[^\]]+\]\(pictures/([\w.-]+)\)$", re.MULTILINE)  # a picture that the page draws


class Block(NamedTuple):
    """A block of code of a page with its output."""

    kind: str      # sh or python
    code: str
    expected: str  # the output on the page; "" if it has none
    start: int     # position of the block in the page
    end: int


def blocks(page: str) -> list[Block]:
    """Return the blocks of a page in order."""
    return [Block(m[1], m[2], m[3] or "", *m.span()) for m in BLOCK.finditer(page)]


def play(block: Block, names: dict[str, object]) -> str:
    """Run a block and return its output. Raises RuntimeError for another exit code than the page states."""
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
                stated = re.search(r"#.*\bends in (\d+)$", line)
                interrupt = re.search(r"#.*\bCtrl-C\b", line) is not None
                if (code := command(words, printed, interrupt)) != (int(stated[1]) if stated else 0):
                    raise RuntimeError(f"{line}: exit code {code}; {printed.getvalue()}")
    return printed.getvalue()


def command(words: Sequence[str], printed: io.StringIO, interrupt: bool) -> int:
    """Run a command and return its exit code. Its output, without progress, is appended to `printed`."""
    from embtrain import cli

    log, warnings = logging.getLogger("embtrain"), logging.StreamHandler(printed)
    warnings.setFormatter(logging.Formatter("embtrain: %(message)s"))
    words, source = (list(words), os.devnull) if "<" not in words else (list(words[:-2]), words[-1])
    folder = Path(words[words.index("--out") + 1]) if interrupt else None
    with (open(source, encoding="utf-8") as stdin, contextlib.redirect_stderr(printed), interrupted(folder),
          mock.patch.object(sys, "stdin", stdin), mock.patch.object(sys, "argv", words),
          mock.patch.object(log, "propagate", False), mock.patch("embtrain.common.progress.EVERY_SECONDS", math.inf),
          mock.patch("embtrain.common.progress.FIRST_SECONDS", math.inf)):
        log.addHandler(warnings)
        try:
            return cli.run()
        finally:
            log.removeHandler(warnings)


@contextlib.contextmanager
def interrupted(run: Path | None) -> Iterator[None]:
    """Send SIGINT to this process when the run in the folder has logged a line; None: never."""
    ended = threading.Event()
    def send_interrupt() -> None:
        while run is not None and not ended.wait(0.01):
            if (log := run / "metrics.jsonl").exists() and log.stat().st_size:
                return os.kill(os.getpid(), signal.SIGINT)
    if run is not None and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:    # of a job that was started with &
        signal.signal(signal.SIGINT, signal.default_int_handler)
    watching = threading.Thread(target=send_interrupt, daemon=True)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()


def install(folder: Path) -> None:
    """Make the package in a folder importable, as `pip install -e .` would, without installing it."""
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
    registry.cached_classes.cache_clear()


def timeless(printed: str) -> str:
    """Return the text without measured times: seconds, CPU seconds, milliseconds and the sentence on costs."""
    lines, table = [], ""  # table: heading of the current table of times
    for line in printed.replace("\u2212", "-").strip().splitlines():
        table = line if TIMES.match(line) else table if line.strip() else ""
        if table and table != line:  # the last column, ms; every column of the milliseconds
            line = re.sub(r" +\S+$", "", line) if table.endswith(" ms") else line.split("  ")[0]
        line = re.sub(r"(training/\w*seconds) .*", r"\1", re.sub(r"[\d.]+ CPU-s", "CPU-s", line))
        line = re.sub(r"(training +seconds) +[\d.,]+", r"\1", line)
        if not re.match(r"A run of .* CPU seconds|What it costs", line):
            lines.append(line)
    return "\n".join(lines) + "\n"


def shape(printed: str) -> str:
    """Return the part of the output that is equal on every machine.

    Times are removed; every number is 0; every neighbour of a word and every prediction is `word`; blanks are merged.
    """
    text = NUMBER.sub("0", timeless(printed))
    text = re.sub(r"[^\s:]+ 0(?=,|\n)", "word 0", text)
    text = re.sub(r"^ +0  \S.* 0(  in training)?$", "0 word 0", text, flags=re.MULTILINE)
    return " ".join(re.sub(r"-{2,}|(?<=\s)-(?=\s)", "0", text).split())


def numbers(printed: str) -> list[tuple[float, float]]:
    """Return the numbers of the output in order, each with half the width of its interval, or 0 without one.

    Digits of names, as in simlex999, count as numbers.
    """
    text = timeless(printed)
    half = {}
    for interval in re.finditer(rf"({NUMBER.pattern})\s+\[({NUMBER.pattern}), ({NUMBER.pattern})\]", text):
        low, high = _number(interval[2]), _number(interval[3])
        half |= {interval.start(group): (high - low) / 2 for group in (1, 2, 3)}
    return [(_number(found[0]), half.get(found.start(), 0.0)) for found in NUMBER.finditer(text)]


def _number(text: str) -> float:
    return float(text.replace(",", "")) if text.count(".") < 2 else math.nan  # a version, which `shape` also removes


def differing(expected: str, printed: str) -> list[str]:
    """Return the numbers of an output that differ from the page, as `PAGE on the page, PRINTED printed`.

    Two numbers agree if they differ by at most RELATIVE of the larger, by at most ABSOLUTE, or by at most half the
    width of the printed interval. Times are not compared. Both texts must have the same `shape`.
    """
    faults = []
    for (on_page, width), (found, _) in zip(numbers(expected), numbers(printed), strict=True):
        if abs(on_page - found) > max(RELATIVE * max(abs(on_page), abs(found)), ABSOLUTE, width):
            faults.append(f"{on_page:g} on the page, {found:g} printed")
    return faults


def draw_plainly() -> None:
    """Let matplotlib write SVG with text as text and the same bytes each time."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "embtrain"})
    os.environ["SOURCE_DATE_EPOCH"] = "0"


def updated(page: str) -> str:
    """Return the page with the current output of its blocks."""
    names: dict[str, object] = {}
    out, position = [], 0
    for block in blocks(page):
        text = "\n".join(line.rstrip() for line in play(block, names).rstrip().splitlines())
        output = f"\n```text\n{text}\n```\n" if text else ""
        out.append(f"{page[position:block.start]}```{block.kind}\n{block.code}```\n{output}")
        position = block.end
    return "".join(out) + page[position:]


if __name__ == "__main__":
    draw_plainly()
    for path in [Path(name).resolve() for name in sys.argv[1:]]:
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as cache, contextlib.chdir(folder):
            os.environ["EMBTRAIN_CACHE"] = cache
            text = updated(path.read_text(encoding="utf-8"))
            for picture in PICTURE.findall(text):
                shutil.copy(picture, path.parent / "pictures")
        path.write_text(text, encoding="utf-8")
