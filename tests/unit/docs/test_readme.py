"""The shell blocks of the README run in order in a new folder, as a user types them, on less data.

`make fit` is the command that the Makefile prints for a folder without runs. `embtrain` is found after the line that
activates .venv. Each command gets a small text and small settings, and each cell of a comparison runs in this process.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import venv
from pathlib import Path

import pytest
from gensim.test.utils import datapath
from helpers.docs_scripts import script
from helpers.in_process import Here, replace_processes

pytestmark = pytest.mark.long

play = script("play")
ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SMALL = ["--set", "model.dim=8", "--set", "train.epochs=1", "--set", "text.min_count=1",
         "--set", "evaluate.heldout_pairs=200", "--set", "evaluate.resamples=0"]
FEW = ["--corpus", "my.txt", "--seeds", "1", "--parallel", "1"]
MORE = {"fit": [*SMALL, "--threads", "1"], "compare": [*SMALL, *FEW], "reproduce": [*SMALL, *FEW]}


def lines() -> list[str]:
    return [line for block in re.findall(r"^```sh\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
            for line in block.splitlines()]


def made_by(target: str) -> str:
    """Return the last command of `make TARGET` in the current folder, as make prints it without running it."""
    shutil.copy(ROOT / "Makefile", "Makefile")
    done = subprocess.run(["make", "--no-print-directory", "-n", "-o", ".venv/.ready", "-o", ".venv/.core", target],
                          capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


def smaller(line: str) -> str:
    words = shlex.split(line, comments=True)
    more = [*MORE.get(words[1], [])]
    if words[1] == "fit" and "--corpus" not in words:
        more += ["--corpus", "my.txt"]
    return shlex.join([*words, *more])


@pytest.mark.tutorial
def test_the_blocks_run_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EMBTRAIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("EMBTRAIN_OFFLINE", "1")
    replace_processes(monkeypatch, Here)
    monkeypatch.setattr(Here, "log", [])
    for name, source, part in (("my.txt", "lee_background.cor", slice(180, None)), ("more.txt", "lee.cor", slice(10))):
        Path(name).write_bytes(b"".join(Path(datapath(source)).read_bytes().splitlines(keepends=True)[part]))
    activated, printed = False, {}
    for line in lines():
        command = shlex.split(line, comments=True)
        if command[:1] == ["make"]:
            typed, line = line, made_by(command[1])
            assert line.startswith(".venv/bin/embtrain "), typed
            line = line.removeprefix(".venv/bin/")
        elif command == [".", ".venv/bin/activate"]:
            activated = True
            continue
        else:
            assert activated and command[0] == "embtrain", f"{line}: not on the PATH yet"
        printed[line] = play.play(play.Block("sh", smaller(line) + "\n", "", 0, 0), {})
    assert Path("ace.txt").is_file() and Path("runs/ace/report.html").is_file()
    assert {line.split()[1] for line in printed} >= {"fit", "neighbours", "predict", "export", "compare", "continue",
                                                          "reproduce"}
    assert "--out" not in made_by("fit")  # a second `make fit` does not fail because of runs/ace


def test_the_command_is_found_after_activating_the_environment(tmp_path: Path) -> None:
    venv.create(tmp_path / ".venv", symlinks=True)
    (command := tmp_path / ".venv/bin/embtrain").write_text("#!/bin/sh\n")
    command.chmod(0o755)
    line = next(line for line in lines() if "activate" in line)
    done = subprocess.run(["sh", "-c", f"{line}\ncommand -v embtrain"], cwd=tmp_path, capture_output=True, text=True,
                          check=True, env={**os.environ, "PATH": "/usr/bin:/bin"})
    assert Path(done.stdout.strip()) == command
