"""metrics.jsonl survives a kill with at most its last line lost, and is truncated to the last checkpoint."""

from __future__ import annotations

import math
import os
import random
from pathlib import Path

import pytest

from embtrain.common.errors import DataError, ResourceError
from embtrain.train.state import metrics_log
from embtrain.train.state.metrics_log import MetricsLog, read


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "metrics.jsonl"


def test_lines_are_written_at_once_and_read_back(path: Path) -> None:
    metrics = MetricsLog(path)
    assert read(path) == []
    lines = [{"step": 1, "loss": 0.1, "name": "ü\n\u2028", "done": False, "note": None}, {"step": 2, "loss": -0.0}]
    for i, line in enumerate(lines):
        metrics.append(line)
        assert read(path) == lines[:i + 1]
        assert path.read_bytes().count(b"\n") == i + 1
    MetricsLog(path).append({"step": 3})
    assert read(path) == [*lines, {"step": 3}]


def test_non_finite_numbers_are_null(path: Path) -> None:
    MetricsLog(path).append({"a": math.nan, "b": math.inf, "c": -math.inf, "d": [1.5, math.nan], "e": {"f": math.inf}})
    assert read(path) == [{"a": None, "b": None, "c": None, "d": [1.5, None], "e": {"f": None}}]
    path.write_text('{"a": NaN}\n')
    assert read(path) == [{"a": None}]


def test_log_is_truncated_to_a_checkpoint(path: Path) -> None:
    metrics = MetricsLog(path)
    assert metrics.sync() == 0
    metrics.append({"step": 1})
    offset = metrics.sync()
    assert offset == path.stat().st_size
    whole = path.read_bytes()
    metrics.append({"step": 2})
    again = MetricsLog(path)
    again.truncate(offset)
    assert path.read_bytes() == whole
    again.append({"step": 3})
    assert read(path) == [{"step": 1}, {"step": 3}]
    again.truncate(0)
    assert read(path) == []


def test_sync_reaches_the_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced, fsync = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (synced.append(os.fstat(handle).st_ino), fsync(handle)))
    MetricsLog(path).sync()
    assert synced == [path.stat().st_ino, path.parent.stat().st_ino]


def test_log_that_cannot_be_truncated_is_kept(path: Path) -> None:
    """Line ends changed by an editor: rejected, and nothing is lost."""
    MetricsLog(path).append({"step": 1})
    damaged = path.read_bytes().replace(b"\n", b"\r")
    path.write_bytes(damaged)
    with pytest.raises(DataError, match="is not the end of a line; restore the file"):
        MetricsLog(path).truncate(len(damaged))
    assert path.read_bytes() == damaged


@pytest.mark.parametrize("offset", [-1, 3, 100])
def test_impossible_position_is_rejected(path: Path, offset: int) -> None:
    metrics = MetricsLog(path)
    metrics.append({"step": 1})
    with pytest.raises(DataError, match=r"metrics\.jsonl"):
        metrics.truncate(offset)
    assert read(path) == [{"step": 1}]


def test_kill_at_any_byte_costs_one_line(path: Path) -> None:
    metrics = MetricsLog(path)
    for step in range(3):
        metrics.append({"step": step, "text": "é"})
    whole = path.read_bytes()
    ends = [i + 1 for i, b in enumerate(whole) if b == ord("\n")]
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        expected = [{"step": s, "text": "é"} for s in range(sum(end <= size for end in ends))]
        assert read(path) == expected
        MetricsLog(path).append({"step": "new"})  # does not continue the torn line
        assert read(path) == [*expected, {"step": "new"}]


def test_torn_line_longer_than_a_block(path: Path) -> None:
    for before in (b"", b'{"a": 1}\n'):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(before + b'{"x": "' + b"y" * 200_000)
        MetricsLog(path).append({"b": 2})
        assert path.read_bytes() == before + b'{"b": 2}\n'


@pytest.mark.parametrize(("line", "reason"), [
    (b"{", "not JSON"), (b"", "not JSON"), (b"[1]", "list instead"), (b"3", "int instead"), (b"\xff", "not JSON"),
    (b"[" * 100_000, "not JSON"), (b"1" * 5000, "not JSON"), (bytes(10), "not JSON"),
], ids=lambda x: repr(x)[:12])
def test_invalid_line_is_named(path: Path, line: bytes, reason: str) -> None:
    path.parent.mkdir()
    path.write_bytes(b'{"a": 1}\n' + line + b'\n{"b": 2}\n')
    with pytest.raises(DataError, match=r"metrics\.jsonl:2: ") as error:
        read(path)
    assert reason in str(error.value) and "\n" not in str(error.value)


def test_line_limits(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.parent.mkdir()
    path.write_bytes(b'{"a": 1}\n' + b" " * (metrics_log.MAX_LINE + 5) + b"\n")
    with pytest.raises(DataError, match=r":2: a line of more than"):
        read(path)
    monkeypatch.setattr(metrics_log, "MAX_FILE", 5)
    with pytest.raises(DataError, match="too many"):
        read(path)
    for none in (tmp_path / "none", tmp_path):
        with pytest.raises(DataError, match="does not exist"):
            read(none)


def test_unwritable_log_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResourceError, match="file"):
        MetricsLog(tmp_path / "file" / "metrics.jsonl")
    metrics = MetricsLog(tmp_path / "metrics.jsonl")
    metrics.path = Path("/dev/full")
    with pytest.raises(ResourceError, match="/dev/full: cannot be written: No space left"):
        metrics.append({"step": 1})


def test_short_write_is_completed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unbuffered write may take only a part of its argument."""
    metrics, sizes = MetricsLog(path), random.Random(1)

    class Short:
        def __init__(self, *args: object, **named: object):
            self.file = open(*args, **named)  # type: ignore[call-overload]

        def __enter__(self) -> Short:
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()

        def write(self, part: memoryview) -> int:
            return self.file.write(part[:sizes.randint(1, 3)])

    monkeypatch.setattr(metrics_log, "open", Short, raising=False)
    metrics.append({"step": 1, "loss": 0.25})
    monkeypatch.undo()
    assert read(path) == [{"step": 1, "loss": 0.25}]
