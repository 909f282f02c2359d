"""Commands do not replace files that are not theirs, and refuse what they cannot read or do in one line."""

import tarfile
import zipfile
from pathlib import Path

import pytest
from helpers.in_process import small_text

from embtrain import experiment
from embtrain.common import progress, registry
from embtrain.common.errors import DataError, UsageError
from embtrain.common.output_paths import RUN_FILES
from embtrain.experiment.continuation import continued_settings

SETS = ["model.dim=4", "train.epochs=1", "text.valid=0", "text.test=0", "evaluate.benchmarks=[]",
        "evaluate.neighbours=[]", "train.threads=1"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> experiment.Run:
    place = small_text(tmp_path_factory.mktemp("kept"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EMBTRAIN_CACHE", str(place / "cache"))
        patch.setattr(progress, "quiet", True)
        return experiment.fit(experiment.resolve(corpus=str(place / "text"), sets=SETS), place / "run")


@pytest.mark.parametrize("name", RUN_FILES)
def test_files_of_the_user_are_not_replaced_by_a_run(name: str, tmp_path: Path, run: experiment.Run) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(UsageError, match=f"^--out: .* contains {name}, which belongs to no run; choose another"):
        experiment.fit(experiment.resolve(corpus=run.settings.corpus, sets=SETS), tmp_path)
    assert (tmp_path / name).read_text() == "mine" and len(list(tmp_path.iterdir())) == 1


def test_the_files_of_a_run_are_those_that_are_kept(run: experiment.Run) -> None:
    written = {path.name for path in run.folder.iterdir() if not path.name.startswith(".")} - {"config.yaml"}
    assert written <= set(RUN_FILES)


@pytest.mark.parametrize("name", ["config.yaml", "vectors.safetensors"])
def test_an_export_does_not_replace_a_file_of_a_run(name: str, run: experiment.Run) -> None:
    before = (run.folder / name).read_bytes()
    with pytest.raises(UsageError, match=rf"^--out: .*{name}: is a file of a run; choose another name$"):
        experiment.export(run.folder, "word2vec", run.folder / name)
    assert (run.folder / name).read_bytes() == before


def test_a_continued_run_keeps_its_strategy(run: experiment.Run) -> None:
    with pytest.raises(UsageError, match=r"^--set strategy=nce: "):
        continued_settings(run.folder, run.settings.corpus, ["strategy=nce"])


def test_a_loop_of_links_is_refused(tmp_path: Path, run: experiment.Run) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(UsageError, match=r"^--out: .*/a: is not a folder; choose another$"):
        experiment.fit(experiment.resolve(corpus=run.settings.corpus, sets=SETS), tmp_path / "a")


def test_a_cpu_has_no_number() -> None:
    with pytest.raises(UsageError, match=r"train\.device: a CPU has no number; use cpu, or cuda:N, got 'cpu:0'"):
        experiment.resolve(sets=["train.device=cpu:0"])


@pytest.mark.parametrize("model", ["skipgram", "transe", "xc"])
@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_an_empty_archive_is_named(model: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"empty.{kind}"
    if kind == "zip":
        zipfile.ZipFile(path, "w").close()
    else:
        tarfile.open(path, "w").close()
    choice = ("uniform", model, str(path), "sampled_softmax") if model == "xc" else (None, model, str(path))
    with pytest.raises(DataError, match=rf"^.*empty\.{kind}: contains no .*; the archive is empty$"):
        experiment.fit(experiment.resolve(*choice), tmp_path / "run")


def test_a_file_that_ends_the_program_is_not_passed(tmp_path: Path) -> None:
    path = tmp_path / "ends.py"
    path.write_text("import sys\nsys.exit(0)\n")
    with pytest.raises(DataError, match=r"ends\.py:2: SystemExit: 0; correct it there$"):
        registry.import_file(path, "ends")
