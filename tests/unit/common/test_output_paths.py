"""Outputs that would replace an input, or a file of a run."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from embtrain.common.errors import UsageError
from embtrain.common.output_paths import check_output_file

INPUT = "is the file that the command reads; choose another name"


def same(place: Path) -> Path:
    return place / "in.txt"


def relative(place: Path) -> Path:
    return Path("folder", "..", "in.txt")


def symbolic(place: Path) -> Path:
    (place / "link").symlink_to("in.txt")
    return place / "link"


def hard(place: Path) -> Path:
    os.link(place / "in.txt", place / "second")
    return place / "second"


def through_a_folder(place: Path) -> Path:
    (place / "other").symlink_to(place)
    return place / "other" / "in.txt"


@pytest.mark.parametrize("name", [same, relative, symbolic, hard, through_a_folder])
def test_an_output_that_is_an_input_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                               name: Callable[[Path], Path]) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "in.txt").write_text("kept")
    out = name(tmp_path)
    with pytest.raises(UsageError, match=f"^--out: .*: {INPUT}$"):
        check_output_file(out, inputs=["nowhere", tmp_path / "in.txt"])
    (tmp_path / "linked").symlink_to("in.txt")                     # the input may be the link, too
    with pytest.raises(UsageError, match=f"^--to: .*: {INPUT}$"):
        check_output_file(tmp_path / "in.txt", "--to", [tmp_path / "linked"])
    assert check_output_file(tmp_path / "new", inputs=[tmp_path / "in.txt"]) == tmp_path / "new"
    assert check_output_file(tmp_path / "in.txt", inputs=["a-recipe"]) == tmp_path / "in.txt"


def test_files_of_an_input_folder_and_of_any_run_are_kept(tmp_path: Path) -> None:
    (tmp_path / "folder" / "below").mkdir(parents=True)
    (tmp_path / "folder" / "below" / "file").touch()
    with pytest.raises(UsageError, match=r"^--out: .*file: is a file of .*folder, which the command reads; choose"):
        check_output_file(tmp_path / "folder" / "below" / "file", inputs=[tmp_path / "folder"])
    assert check_output_file(tmp_path / "folder" / "new", inputs=[tmp_path / "folder"]).name == "new"
    for name in ("config.yaml", "identity.json", "vectors.safetensors"):
        (tmp_path / "folder" / name).touch()
    (tmp_path / "link").symlink_to(tmp_path / "folder" / "vectors.safetensors")
    (tmp_path / "folder" / "checkpoints").mkdir()
    (tmp_path / "folder" / "checkpoints" / "step").touch()
    own = tmp_path / "folder" / "below" / "file"                   # not a file that the run has written
    assert check_output_file(own, inputs=[tmp_path / "folder"]) == own
    for path in (tmp_path / "folder" / "vectors.safetensors", tmp_path / "folder" / "checkpoints" / "step",
                 tmp_path / "link"):
        with pytest.raises(UsageError, match="is a file of a run; choose another name"):
            check_output_file(path)
