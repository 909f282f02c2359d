"""Progress of long work: tqdm on a terminal, a plain line every few seconds elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import Self, TypeVar

from embtrain.common import terminal

FIRST_SECONDS, EVERY_SECONDS = 3.0, 10.0  # before the first line, and between two, without a terminal
DELAY = 1.0    # seconds before a bar appears on a terminal: short work shows none
AT_ONCE = 1024  # items that `tracked` counts together
Item = TypeVar("Item")
quiet = False  # set once by the option --quiet
_is_silenced: ContextVar[bool] = ContextVar("is_silenced", default=False)


def is_quiet() -> bool:
    """Whether no progress is printed: under the option --quiet and inside of `silence`."""
    return quiet or _is_silenced.get()


@contextlib.contextmanager
def silence(active: bool = True) -> Iterator[None]:
    """Print no progress in this block, in this thread; warnings and errors remain. active: False: change nothing."""
    token = _is_silenced.set(active or _is_silenced.get())
    try:
        yield
    finally:
        _is_silenced.reset(token)


def print_line(line: str) -> None:
    """Print one line on stderr, unless it is empty or the command is quiet."""
    if line and not is_quiet():
        terminal.note(line)


class Progress:
    """Counter of `total` units of the work named `label`. `note` is shown next to the count."""

    def __init__(self, label: str, total: int | None = None, unit: str = "it", done: int = 0):
        self.label, self.total, self.unit = label, total, unit
        self.done, self._initial = done, done
        self._started = time.monotonic()
        self._next_line = self._started + FIRST_SECONDS
        self._bar = None
        if sys.stderr.isatty() and not is_quiet():
            from tqdm import tqdm

            self._bar = tqdm(total=total, initial=done, desc=terminal.plain(label), unit=unit, unit_scale=True,
                             dynamic_ncols=True, leave=False, delay=DELAY)

    def add(self, n: int = 1, note: str = "") -> None:
        self.done += n
        if self._bar is not None:
            with terminal.dropped_if_lost():
                self._bar.update(n)
            if note:
                self._bar.set_postfix_str(terminal.plain(note), refresh=False)
        elif not is_quiet() and (now := time.monotonic()) >= self._next_line:
            self._next_line = now + EVERY_SECONDS
            terminal.note(self._line(note))

    def _line(self, note: str) -> str:
        seconds = time.monotonic() - self._started
        rate = (self.done - self._initial) / seconds if seconds > 0 else 0.0
        share, left = "", ""
        if self.total:
            share = f" of {self.total:,} ({self.done / self.total:.0%})"
            left = f", {(self.total - self.done) / rate:.0f} s left" if rate else ""
        more = f", {note}" if note else ""
        return f"{self.label}: {self.done:,}{share} {self.unit}, {_pace(rate, self.unit)}{left}{more}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._bar is not None:
            with terminal.dropped_if_lost():
                self._bar.close()


def tracked(items: Iterable[Item], label: str, total: int | None = None, unit: str = "it") -> Iterator[Item]:
    """Yield the items, and show how many were taken."""
    with Progress(label, total, unit) as progress:
        for number, item in enumerate(items, 1):
            yield item
            if number % AT_ONCE == 0:
                progress.add(AT_ONCE)


def _pace(rate: float, unit: str) -> str:
    """Format units per second, or seconds per unit if the rate is below one."""
    if 0 < rate < 1:
        return f"{_short(1 / rate)} s a {unit[:-1] if unit.endswith('s') else unit}"
    return f"{_short(rate)} {unit}/s"


def _short(value: float) -> str:
    return f"{value:.2g}" if value < 10 else f"{value:,.0f}"
