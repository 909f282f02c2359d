"""Comparisons whose cells run in the process of the test, on a small text."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from embtrain import cli
from embtrain.common import progress
from embtrain.common.errors import Stopped
from embtrain.experiment.comparison import workers
from embtrain.experiment.run.started import has_trained

WORDS = [a + b + c for a in "bdfk" for b in "aeiou" for c in "lmn"]


def small_text(place: Path, lines: int = 12) -> Path:
    """Write a folder `text`: twenty small documents whose words come in pairs."""
    draw = np.random.default_rng(0)
    (place / "text").mkdir()
    for d in range(20):
        text = [" ".join(WORDS[i // 2 * 2 + j] for i in np.minimum(draw.geometric(0.06, 12), 59) for j in (0, 1))
                for _ in range(lines)]
        (place / "text" / f"{d:02}.txt").write_text("\n".join(text))
    return place


def replace_processes(patch: pytest.MonkeyPatch, process: Any) -> None:
    """Replace the process of a cell. Other modules keep subprocess: a run reads its commit by git."""
    patch.setattr(workers, "subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": process}))


class Here:
    """Replaces the process of a cell: runs its command line in this process. `log`: `fit NAME` or `resume NAME`."""

    log: ClassVar[list[str]] = []
    stop_at: int | None = None  # index of the cell before which the comparison is stopped
    fail: str = ""              # a cell of this name trains nothing and ends with `fail_code`
    fail_code: int = -9         # killed by the system

    def __init__(self, words: list[str], stderr: Any, pass_fds: list[int], **how: Any):
        assert words[1:4] == ["-P", "-m", "embtrain"] and words[-1] == "--quiet" and pass_fds
        assert words[4] == "resume"
        name = Path(words[5]).name
        if len(self.log) == self.stop_at:
            raise Stopped(15)
        self.log.append(f"{'resume' if has_trained(Path(words[5])) else 'fit'} {name}")
        self.returncode = self.fail_code
        if name != self.fail:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(sys, "argv", words[3:])
                patch.setattr(logging.getLogger("embtrain"), "handlers", [])  # warnings of a cell go to its own stderr
                patch.setattr(sys, "stderr", open(stderr.fileno(), "w", closefd=False))
                patch.setattr(sys, "stdout", open(os.devnull, "w"))
                self.returncode = cli.run()
                sys.stderr.flush()
                sys.stdout.close()

    def poll(self) -> int:
        return self.returncode

    def send_signal(self, number: int) -> None:
        raise AssertionError("has ended")

    wait = poll


def in_process(patch: pytest.MonkeyPatch, place: Path) -> None:
    """Run cells in this process, with the cache below `place` and without a report per cell."""
    patch.setenv("EMBTRAIN_CACHE", str(place / "cache"))
    patch.setattr(progress, "quiet", True)
    patch.setattr(Here, "log", [])
    replace_processes(patch, Here)
    patch.setattr(workers, "_POLL", 0)
    patch.setattr("embtrain.experiment.run.run.report.write", _short_report)


def _short_report(run: Path, check: Callable[[], None] = lambda: None) -> Path:
    check()
    (run / "report.html").write_text("run")
    return run / "report.html"
