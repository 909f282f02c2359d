"""`make fit` prints the table of the README, within the tolerance of the pages; seconds are not compared.

Nor are the rows of neighbours 45-50: `make fit` trains on all cores, which is not deterministic, and these are means
over the neighbours of five words, without an interval. Five equal commands on two cores printed a rank of 5,877 to
6,560 and a PMI of 0.04 to 0.28.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from helpers.docs_scripts import script

from embtrain.kernels.core.loader import core

play = script("play")
ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.slow
FAR = re.compile(r"^(neighbours 45-50 +mean (?:frequency rank|PMI) +)\S+", re.MULTILINE)


def test_the_table_of_the_readme_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert core() is not None, "the README's numbers are those of the compiled core"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EMBTRAIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("EMBTRAIN_OFFLINE", "1")
    done = subprocess.run(["make", "--no-print-directory", "-n", "-f", ROOT / "Makefile", "-o", ".venv/.ready", "-o",
                           ".venv/.core", "fit"], capture_output=True, text=True, check=True)
    line = done.stdout.splitlines()[-1].removeprefix(".venv/bin/")
    lines = play.play(play.Block("sh", line + " --quiet\n", "", 0, 0), {}).splitlines(keepends=True)
    notes = [text for text in lines if text.startswith("embtrain: ")]
    assert len(notes) == 1 and "100 pages of the dump are skipped" in notes[0]
    printed = "".join(text for text in lines if text not in notes)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.search(r"<!-- fit output: begin -->.*?```text\n(.*?)```", readme, re.DOTALL)
    assert shown is not None and play.shape(printed) == play.shape(shown[1])
    assert len(FAR.findall(printed)) == 2
    assert play.differing(FAR.sub(r"\1 0", shown[1]), FAR.sub(r"\1 0", printed)) == []
