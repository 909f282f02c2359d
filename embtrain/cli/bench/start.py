"""Start: seconds until an import or a command is ready, each in a fresh process.

import    `import embtrain`
help      `embtrain --help`
fit-help  `embtrain fit --help`
fit       `embtrain fit --negatives sgns` on a text in the cache, until its first update begins
fit-files  the same on the files of the corpus instead of one file of text; english-18m has twelve, with 2,243 texts,
          one a packed archive

Rivals: `import gensim.models`; `import torch`, which `fit` does too; and python, an interpreter that does nothing,
whose time is part of all others. Each case runs once, with one of its numbers of threads, before the first round, which
fills the cache and compiles bytecode into a temporary folder, so that no source folder is written to. CPU seconds are
of the started process.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from embtrain.cli.bench.harness import words
from embtrain.cli.bench.harness.base import Group, Timed, children_seconds, choose, run
from embtrain.common.errors import DataError, UsageError
from embtrain.train.group.launch import child_environment

CORPUS = "english-18m"
COMMAND = "from embtrain.cli import main; main()"  # as the installed command
REACHED = 86                                       # exit code of a process that reaches its first update
# The command itself imports the training loop; the process replaces the update when the command sets up its output.
UNTIL_UPDATE = f"""
import os
from embtrain.cli import main, options
def configure_output(quiet, configure=options.configure_output):
    from embtrain.train.loop import Trainer
    Trainer.run_step = lambda *_, **__: os._exit({REACHED})
    configure(quiet)
options.configure_output = configure_output
main()
"""
FITS = ("fit", "fit-files")
CASES: dict[str, tuple[str, ...]] = {  # code and the words after it
    "import": ("import embtrain",), "help": (COMMAND, "--help"), "fit-help": (COMMAND, "fit", "--help"),
    **dict.fromkeys(FITS, (UNTIL_UPDATE, "fit", "--negatives", "sgns", "--out", "run"))}
RIVALS = {"gensim": "import gensim.models", "torch": "import torch", "python": "pass"}


def bench(rounds: int, threads: Sequence[int], only: Sequence[str] | None, corpus: str | None) -> dict[str, Any]:
    """Rounds of every case; `only` names some, for example help.

    DataError if a process fails, UsageError for a text that no case reads.
    """
    known = {f"{case}-t{n}": (case, n) for n in threads for case in CASES}
    chosen = [known[name] for name in choose(known, only)]
    needs_text = any(case in FITS for case, _ in chosen)
    if corpus is not None and not needs_text:
        raise UsageError("--corpus: of the cases of the bench start, only fit and fit-files read a text; remove it, or "
                         "name one of them")
    files = corpus or CORPUS
    texts = {"fit": words.prefix(files, 0).resolve(), "fit-files": Path(files).resolve() if Path(files).exists() else
             files} if needs_text else {}
    with tempfile.TemporaryDirectory() as bytecode:
        groups = []
        for n in dict.fromkeys(n for _, n in chosen):
            start = partial(_start, {**child_environment(n), "PYTHONPYCACHEPREFIX": bytecode,
                                     "PYTHONDONTWRITEBYTECODE": ""})
            of_fit = {case: ("--corpus", str(text), "--threads", str(n)) for case, text in texts.items()}
            ours = {f"{case}-t{n}": partial(start, *CASES[case], *of_fit.get(case, ()))
                    for case, threads_of in chosen if threads_of == n}
            groups.append(Group(n, ours, {name: partial(start, code) for name, code in RIVALS.items()}))
        first_of_case = {name.rpartition("-t")[0]: work for group in reversed(groups)
                         for name, work in group.ours.items()}
        for work in (*groups[0].rivals.values(), *first_of_case.values()):
            work()
        return run("start", "s", groups, rounds, {"corpus": files} if needs_text else {})


def _start(environment: Mapping[str, str], code: str, *arguments: str) -> Timed:
    """Run code in a fresh interpreter, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        cpu, wall = children_seconds(), time.perf_counter()
        done = subprocess.run([sys.executable, "-c", code, *arguments], cwd=folder, env=environment,
                              capture_output=True, text=True, check=False)
        timing = Timed(time.perf_counter() - wall, children_seconds() - cpu, {})
    if done.returncode != (REACHED if code == UNTIL_UPDATE else 0):
        last = (done.stderr.strip().splitlines() or ["it printed no error"])[-1]
        raise DataError(f"{' '.join(['embtrain', *arguments] if arguments else [code])}: exit code "
                        f"{done.returncode}: {last}")
    return timing
