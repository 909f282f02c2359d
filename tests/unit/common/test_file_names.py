"""Names of files that are not UTF-8, in JSON and in warnings that are stored in the cache."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from embtrain.common.files import read_json, write_json
from embtrain.data.hierarchy import examples as hierarchies
from embtrain.data.hierarchy.examples import PairsConfig
from embtrain.data.text import corpus
from embtrain.data.text.corpus import TextConfig

NAME = os.fsdecode(b"caf\xe9.txt")


def test_json_keeps_any_name(tmp_path: Path) -> None:
    value = {"name": NAME, "café": ["\x7f\u2028\n", '"\\']}
    write_json(tmp_path / "a.json", value)
    assert read_json(tmp_path / "a.json") == value and "café" in (tmp_path / "a.json").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    try:
        (tmp_path / "data" / NAME).touch()
    except OSError:
        pytest.skip("linux: the file system accepts only names in UTF-8")
    return tmp_path / "data"


@pytest.fixture
def messages(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Warnings. A handler of pytest would put them into its reports, which pytest-xdist encodes as UTF-8."""
    lines = list[str]()
    monkeypatch.setattr(logging.Logger, "handle", lambda _, record: lines.append(record.getMessage()))
    return lines


def test_a_finding_in_a_text_with_any_name(tmp_path: Path, folder: Path, messages: list[str]) -> None:
    (folder / NAME).write_bytes(b"one\0two three\n" * 9)
    for _ in range(2):                                                             # the second time from the cache
        messages.clear()
        corpus.load([folder], "auto", TextConfig(min_count=1, valid=0, test=0), tmp_path / "cache", "t")
        assert messages == [f"{folder / NAME}: 9 NUL characters are read as spaces"]


def test_a_line_of_column_names_in_pairs_with_any_name(tmp_path: Path, folder: Path, messages: list[str]) -> None:
    (folder / NAME).write_text("child\tparent\n" + "".join(f"c{i}\tc{i // 2}\n" for i in range(1, 60)))
    for _ in range(2):
        messages.clear()
        hierarchies.load([folder], PairsConfig(), "mine", None, tmp_path / "cache")
        (line,) = messages
        assert line.startswith(f"{folder}/caf") and "'child' and 'parent' are names of columns and are skipped" in line
