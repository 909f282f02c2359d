"""Memory as the machine tells it: free, limited by a group, and what some work takes."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from embtrain import machine

GIB = 1 << 30


def group(folder: Path, monkeypatch: pytest.MonkeyPatch, limit: str, current: int, files: int) -> None:
    for name, text in {"max": limit, "current": str(current), "stat": f"anon 5\ninactive_file {files}\n"}.items():
        (folder / f"memory.{name}").write_text(f"{text}\n")
    monkeypatch.setattr(machine, "GROUP", folder)


def test_a_group_s_limit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group(tmp_path, monkeypatch, "1000000", 700_000, 200_000)        # 200,000 of files can be let go
    assert machine.free() == 500_000 and machine.total() == 1_000_000
    group(tmp_path, monkeypatch, "1000000", 1_100_000, 0)
    assert machine.free() == 0


def test_no_limit_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    all_of_it = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    group(tmp_path, monkeypatch, "max", 10**15, 0)
    assert machine.group_limit() is None and machine.total() == all_of_it
    assert 0 < machine.free() <= all_of_it
    monkeypatch.setattr(machine, "GROUP", tmp_path / "none")
    assert machine.group_limit() is None and machine.total() == all_of_it


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="linux: the peak cannot be counted anew")
def test_the_most_of_some_work_is_counted_though_nothing_of_it_stays() -> None:
    def work() -> float:
        return float(np.ones(GIB // 32).sum())                            # 256 MiB, let go at once

    before = machine.taken("VmHWM")
    made, found = machine.most_of(work)
    assert before is not None and made == GIB // 32 and 0.95 < found / (GIB // 4) < 1.1
    assert machine.most_of(lambda: None)[1] < 8 << 20


def test_where_nobody_says_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_entry", lambda path, name: None)
    monkeypatch.setattr(machine, "GROUP", Path("/none"))
    assert machine.taken("VmRSS") is None and machine.free() == GIB and machine.most_of(lambda: 3) == (3, 0)
