"""Outputs that would replace an input, or a file of a run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from embtrain.common.errors import UsageError
from embtrain.common.output_paths import PACKERS, check_output_file

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


def a_run(folder: Path, config: str, files: dict[str, object] | None = None) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(config)
    (folder / "identity.json").write_text(json.dumps({"corpus": {} if files is None else {"files": files}}))
    return folder


def check_kept(path: Path, run: Path, key: str) -> None:
    message = f"^--out: {path}: is or may be data of the run {run} \\({key}\\); choose another name$"
    with pytest.raises(UsageError, match=message):
        check_output_file(path, inputs=[run])


def test_the_data_of_an_input_run_are_kept(tmp_path: Path) -> None:
    for name in ("own.txt", "earlier.txt", "other.txt", "candidates.tsv", "pairs.csv"):
        (tmp_path / name).write_text("kept")
    earlier = a_run(tmp_path / "earlier", f"corpus: {tmp_path / 'earlier.txt'}\n")
    run = a_run(tmp_path / "run", f"corpus: {tmp_path / 'own.txt'}\nnegatives: {{source: x, file: "
                f"{tmp_path / 'candidates.tsv'}}}\nevaluate: {{benchmarks: [men, {tmp_path / 'pairs.csv'}]}}\n"
                f"train: {{parent: {earlier}}}\n")
    (tmp_path / "link").symlink_to("own.txt")
    for name, key in (("own.txt", "corpus"), ("link", "corpus"), ("candidates.tsv", "negatives.file"),
                      ("pairs.csv", "evaluate.benchmarks"), ("earlier.txt", "train.parent: corpus")):
        with pytest.raises(UsageError, match=f"is or may be data of the run {run} \\({key}\\); choose another name$"):
            check_output_file(tmp_path / name, inputs=[run])
    other = tmp_path / "other.txt"
    assert check_output_file(other, inputs=[run]) == other         # an earlier output
    assert check_output_file(tmp_path / "own.txt", inputs=[earlier]).name == "own.txt"
    (run / "config.yaml").write_text("corpus: [")                  # reported by the command that reads the run
    assert check_output_file(other, inputs=[run]) == other


def test_an_earlier_output_in_the_folder_of_the_corpus_is_replaced(tmp_path: Path) -> None:
    texts, out = tmp_path / "texts", tmp_path / "texts" / "vectors.bin"
    (texts / "below").mkdir(parents=True)
    for path in (texts / "a.txt", texts / "below" / "b.txt", texts / "notes.md", out):
        path.write_text("kept")
    files = {"train": ["a.txt"], "test": ["below/b.txt"], "passed over": {"no text": ["notes.md"]}}
    run = a_run(tmp_path / "run", f"corpus: {texts}\n", files)
    for name in ("a.txt", "below/b.txt"):
        check_kept(texts / name, run, "corpus")
    assert check_output_file(out, inputs=[run]) == out
    for n, names in enumerate((["a.txt", "... and 2 more"], ["archive/member.txt"], [])):
        several = a_run(tmp_path / f"run{n}", f"corpus: {texts}\n", {"train": names})
        check_kept(out, several, "corpus")
    check_kept(out, a_run(tmp_path / "without", f"corpus: {texts}\n"), "corpus")


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst", ".GZ"])
def test_the_name_of_a_packed_file_is_refused(tmp_path: Path, suffix: str) -> None:
    """gensim unpacks a file by its name, so that it could not read the text."""
    with pytest.raises(UsageError) as caught:
        check_output_file(tmp_path / f"x.txt{suffix}")
    packer = PACKERS[suffix.lower()]
    assert str(caught.value) == (f"--out: {tmp_path / 'x.txt'}{suffix}: would not be packed, and readers unpack a file "
                                 f"of this name; give {tmp_path / 'x.txt'}, then run {packer} on it")
    assert check_output_file(tmp_path / "x.gz.txt") == tmp_path / "x.gz.txt"


def test_the_name_of_a_packed_file_is_refused_behind_a_link(tmp_path: Path) -> None:
    """The file that is written has the name of the target."""
    target = tmp_path / "x.gz"
    (tmp_path / "x.txt").symlink_to("x.gz")
    for _ in range(2):                                             # a target that does not exist, and one that does
        with pytest.raises(UsageError, match=f"^--out: {target}: would not be packed, .*; give {tmp_path / 'x'}, then"):
            check_output_file(tmp_path / "x.txt")
        target.touch()
    (tmp_path / "y.gz").symlink_to("y.txt")
    assert check_output_file(tmp_path / "y.gz") == tmp_path / "y.txt"
