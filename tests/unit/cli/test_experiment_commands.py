"""Options of `compare`, `reproduce` and `report` that cannot work are refused in one line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from embtrain import cli

MISSING = "NAME: is missing; give the paper to reproduce, or no option to list the available papers"


@pytest.mark.parametrize(("line", "message"), [
    ("report RUN --figures ,", "--figures: ',' should be names, separated by commas"),
    ("report RUN --figures svg,", "--figures: 'svg,' should be names, separated by commas"),
    ("report RUN --figures gif", "--figures: gif: unknown; choose from svg, pdf, png"),
    ("reproduce --threads 2", MISSING), ("reproduce --retry-failed", MISSING), ("reproduce --lease-seconds 2", MISSING),
    ("reproduce --parallel 1", MISSING), ("reproduce --cpu-seconds 0", MISSING), ("reproduce --join", MISSING),
    *((f"reproduce nce_note_k --cpu-seconds {x}", f"--cpu-seconds: should be a finite number greater than 0, got {x}")
      for x in ("0", "-1", "nan", "inf")),
    ("compare --negatives sgns,nce --search RUN/empty.yaml", "--search: RUN/empty.yaml: contains no keys; give lines"),
    ("compare --negatives sgns,nce --search RUN/empty.yaml --trials 2", "--search: RUN/empty.yaml: contains no keys"),
    ("compare --negatives sgns,nce --search train.lr=1:0 --trials 2",
     "--search train.lr=1:0: 1 is not below 0; give the lower bound first"),
])
def test_an_option_that_cannot_work_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                               capsys: pytest.CaptureFixture[str], line: str, message: str) -> None:
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    monkeypatch.setattr(sys, "argv", ["embtrain", *line.replace("RUN", str(tmp_path)).split()])
    assert cli.run() == 2
    (printed,) = capsys.readouterr().err.splitlines()
    assert printed.startswith(f"embtrain: error: {message.replace('RUN', str(tmp_path))}")
    assert [path.name for path in tmp_path.iterdir()] == ["empty.yaml"]
