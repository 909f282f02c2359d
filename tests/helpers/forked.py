"""Runs the command in a fork of this process, which starts fast because everything is imported."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from embtrain.cli import entry_point, interrupt

FORK = multiprocessing.get_context("fork")


class Forked:
    """`embtrain ARGV` in a folder, with the handlers of the console command; its output is in FOLDERsuffix.said."""

    def __init__(self, place: Path, argv: tuple[str, ...], suffix: str = "", env: Mapping[str, str] | None = None):
        self.said = place.parent / f"{place.name}{suffix}.said"
        self._begun = FORK.RawValue("b", 0)
        self._child = FORK.Process(target=self._body, args=(place, argv, dict(env or {})))
        self._child.start()
        while not self._begun.value and self._child.exitcode is None:
            time.sleep(0.0005)

    def _body(self, place: Path, argv: tuple[str, ...], env: dict[str, str]) -> None:
        os.chdir(place)
        os.environ.update(env)
        os.environ["EMBTRAIN_CACHE"] = str(place / "cache")
        handle = os.open(self.said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        # `main` replaces both; the file descriptors stay open when these objects are deleted.
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)
        sys.argv = ["embtrain", *argv]
        interrupt.install_stop_handler()
        self._begun.value = 1
        entry_point.main()

    def send(self, number: int) -> None:
        if self._child.pid is not None and self._child.exitcode is None:
            os.kill(self._child.pid, number)

    def end(self, seconds: float = 120) -> tuple[int, str]:
        """The exit code, negative for the signal that killed it, and the output."""
        self._child.join(seconds)
        code = self._child.exitcode
        if code is None:
            self._child.kill()
            self._child.join()
            raise AssertionError(f"did not end within {seconds} s: {self.said.read_text()}")
        self._child.close()
        return code, self.said.read_text()
