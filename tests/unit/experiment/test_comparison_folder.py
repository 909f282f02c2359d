"""The folder of a comparison: files of the user, runs that its grid does not contain, and damaged files."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.in_process import Here, in_process, small_text

from embtrain import cli, report
from embtrain.common.config import dump
from embtrain.common.errors import DataError, EmbtrainError, Stopped, UsageError
from embtrain.evaluate.comparison.results import CellResult, ComparisonResults
from embtrain.experiment.comparison import compare, failures, grid, join, outcome
from embtrain.experiment.comparison.checks import folder as folders, metrics
from embtrain.experiment.comparison.checks.pairing import check_saved_settings
from embtrain.experiment.comparison.compare import Comparison, Grid
from embtrain.experiment.comparison.shared.sharing import ALONE, Alone, Sharing
from embtrain.experiment.comparison.workers import FINISHED
from embtrain.experiment.paper import reproduce
from embtrain.report import figure_files
from embtrain.report.comparison import page
from embtrain.report.load import comparison as read_results
from embtrain.report.render import markdown_latex
from embtrain.report.run import page as run_page

KEYS = ["text.valid=0.1", "text.test=0.1", "text.sample=0.01", "model.dim=4", "train.epochs=1", "train.chunk=512",
        "train.lr=0.1", "evaluate.heldout_pairs=100", "evaluate.resamples=0", "evaluate.neighbours=[bal]",
        "evaluate.benchmarks=[]"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_text(tmp_path_factory.mktemp("folder"))


@pytest.fixture(autouse=True)
def cells_here(place: Path, monkeypatch: pytest.MonkeyPatch) -> type[Here]:
    in_process(monkeypatch, place)
    return Here


def options(place: Path, **changes: Any) -> dict[str, Any]:
    return {"strategies": ["sgns", "nce", "uniform"], "seeds": 2, "corpus": str(place / "text"), "sets": KEYS,
            **changes}


@pytest.fixture(scope="module")
def whole(place: Path) -> Comparison:
    with pytest.MonkeyPatch.context() as patch:
        in_process(patch, place)
        return compare.compare(compare.read_grid(options(place)), place / "whole", 1, 1)


@pytest.fixture
def done(whole: Comparison, tmp_path: Path) -> Path:
    """A copy of a finished comparison, which a test may change."""
    shutil.copytree(whole.folder, tmp_path / "done")
    return tmp_path / "done"


def command(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["embtrain", *map(str, words)])
    return cli.run()


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    (line,) = capsys.readouterr().err.splitlines()
    return line


# -- runs that are left out --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("changes", "line"), [
    ({"seeds": 1}, "3 finished runs in cells are not part of this comparison (nce-seed2, sgns-seed2, uniform-seed2); "
                   "to include them, give --seeds 2"),
    ({"strategies": ["sgns", "nce"]}, "2 finished runs in cells are not part of this comparison (uniform-seed1, "
                                      "uniform-seed2); to include them, give --negatives sgns,nce,uniform"),
    ({"strategies": ["nce", "sgns"], "seeds": [2]},
     "4 finished runs in cells are not part of this comparison (nce-seed1, sgns-seed1, uniform-seed1, uniform-seed2); "
     "to include them, give --negatives nce,sgns,uniform --seeds 2"),
])
def test_finished_runs_outside_the_grid_are_reported(done: Path, place: Path, capsys: pytest.CaptureFixture[str],
                                                     changes: dict[str, Any], line: str) -> None:
    smaller = compare.compare(compare.read_grid(options(place, **changes), None, done), done, 1, 1)
    assert f"{done}: {line}" in capsys.readouterr().err.splitlines() and Here.log == []
    assert smaller.results["notes"] == [line]
    assert line in markdown_latex.markdown(page.document(read_results.read(done))).replace("\\", "")
    compare.rejudge(done)                           # as `embtrain report` does
    assert capsys.readouterr().err == f"{done}: {line}\n"
    again = compare.compare(compare.read_grid(options(place), None, done), done, 1, 1)
    assert again.results["notes"] == [] and len(again.results["cells"]) == 6 and capsys.readouterr().err == ""


BIG = ("negatives: {source: unigram, k: 2000, replacement: false, share_draws_by: block}\n"
       "loss: {name: sampled_softmax}\n")


def full_disk(patch: pytest.MonkeyPatch, place: Path) -> None:
    patch.setattr("embtrain.common.machine.free_disk", lambda path: 0)


def other_text(patch: pytest.MonkeyPatch, place: Path) -> None:
    patch.setattr("embtrain.experiment.comparison.checks.first_run.read_corpus", _raise)


def _raise(folder: Path, task: object) -> None:
    raise DataError(f"{folder}: was trained on another corpus")


@pytest.mark.parametrize(("changes", "prepare", "message"), [
    ({"metric": "test/hits@7"}, None, "; finished runs are kept; name one of them with --metric"),
    ({"strategies": ["sgns", "nce", "BIG"]}, None, "big: negatives.k: 2000 "),
    ({"seeds": 3}, full_disk, "--out: "),
    ({"seeds": 3}, other_text, "was trained on another corpus")])
def test_a_refused_command_leaves_the_grid_of_the_results(
        done: Path, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any],
        prepare: Callable[[pytest.MonkeyPatch, Path], None] | None, message: str) -> None:
    (tmp_path / "big.yaml").write_text(BIG)
    if "strategies" in changes:
        changes = {"strategies": [name.replace("BIG", str(tmp_path / "big.yaml")) for name in changes["strategies"]]}
    stored, results = (done / "comparison.yaml").read_text(), (done / "results.json").read_text()
    with monkeypatch.context() as patch:
        if prepare is not None:
            prepare(patch, place)
        with pytest.raises(EmbtrainError) as error:
            compare.compare(compare.read_grid(options(place, **changes), None, done), done, 1, 1)
    assert message in str(error.value) and Here.log == []
    assert ((done / "comparison.yaml").read_text(), (done / "results.json").read_text()) == (stored, results)
    assert len(compare.rejudge(done).results["cells"]) == 6             # as `embtrain report` does


def test_a_new_baseline_is_stored_with_its_report_and_only_then(done: Path, place: Path,
                                                                monkeypatch: pytest.MonkeyPatch) -> None:
    stored, requested = (done / "comparison.yaml").read_text(), options(place, baseline="nce")
    with monkeypatch.context() as patch:
        patch.setattr("embtrain.experiment.comparison.results._check_benchmarks", lambda runs: _raise(done, None))
        with pytest.raises(DataError, match="another corpus"):
            compare.compare(compare.read_grid(requested, None, done), done, 1, 1)
    assert (done / "comparison.yaml").read_text() == stored
    compare.compare(compare.read_grid(requested, None, done), done, 1, 1)
    assert "baseline: nce" in (done / "comparison.yaml").read_text() and Here.log == []
    assert "baseline: nce" in (read_results.read(done).config_text or "")
    assert compare.read_grid(options(place), None, done).baseline == "nce"      # the default, as --help states


def test_a_command_that_was_refused_in_a_new_folder_can_be_corrected(place: Path, tmp_path: Path) -> None:
    out, requested = tmp_path / "out", options(place, strategies=["sgns", "nce"], seeds=1)
    with pytest.raises(UsageError, match=r"; name one of them with --metric$"):
        compare.compare(compare.read_grid({**requested, "metric": "test/hits@7"}, None, out), out, 1, 1)
    finished = compare.compare(compare.read_grid(requested, None, out), out, 1, 1)
    assert finished.results["plan"]["metric"] == "test/log_likelihood"


def test_a_stop_before_the_first_run_names_no_command_that_would_continue_another_grid(
        done: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*arguments: Any) -> int:
        raise Stopped(15)

    monkeypatch.setattr(compare.first_run, "prepare", stop)
    for n_seeds in (2, 3):
        shutil.rmtree(done / "cells" / "sgns-seed1", ignore_errors=True)
        with pytest.raises(Stopped) as stopped:
            compare.compare(compare.read_grid(options(place, seeds=n_seeds), None, done), done, 1, 1)
        assert stopped.value.resume_command == ("" if n_seeds == 3 else
                                                f"embtrain compare --out {done} --parallel 1 --threads 1")


def test_runs_that_were_not_run_are_reported(done: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(done / "cells" / "nce-seed2")
    join.write([done])
    line = (f"{done}: 1 of 6 runs was not run and is not compared (nce-seed2); to run it: embtrain compare --out "
            f"{done}\n")
    results = read_results.read(done)
    assert capsys.readouterr().err == line
    assert [cell.status for cell in results.cells if cell.name == "nce-seed2"] == ["not run"]
    assert "what nce-seed2 would score, because it was not run;" in results.verdict[-1]


@pytest.mark.parametrize(("codes", "ends"), [
    ([None, None], None), ([3, None], 3), ([4, 3], 3), ([4, 4], 4), ([70], 3), ([4, 137, 143], 4), ([137, 3], 3)])
def test_a_comparison_with_failed_cells_does_not_exit_with_0(tmp_path: Path, codes: list[int | None],
                                                             ends: int | None) -> None:
    (tmp_path / "cells").mkdir()
    cells = [CellResult(cell="sgns-seed1", strategy="sgns", seed=1, status="finished")]
    for i, code in enumerate(codes):
        cells.append(CellResult(cell=f"nce-seed{i}", strategy="nce", seed=i, status="failed", error="a reason"))
        (tmp_path / "cells" / f"nce-seed{i}.error.json").write_text(json.dumps({"error": "a reason", "code": code}))
    error = failures.failed(tmp_path, ComparisonResults(plan={"paper": None}, cells=cells))
    assert (None if error is None else error.code) == ends
    if error is not None:
        runs = "it" if codes.count(None) == len(codes) - 1 else "them"
        assert f"nce-seed0: a reason; to run {runs} again: embtrain compare --out" in str(error)
        assert str(error).count("\n") == 0


def test_the_command_for_runs_without_scores_has_a_folder_that_is_no_option() -> None:
    cells = [CellResult(cell="nce-seed1", strategy="nce", seed=1, status="not run")]
    line = failures.not_run(Path("-out"), ComparisonResults(plan={"paper": "-own.yaml"}, cells=cells))
    assert line is not None and line.endswith("to run it: embtrain reproduce ./-own.yaml --out ./-out")


def run_folder(folder: Path, name: str, strategy: str) -> None:
    (folder / "cells" / name).mkdir(parents=True)
    (folder / "cells" / name / "config.yaml").write_text(f"strategy: {strategy}\n")
    for file in FINISHED:
        (folder / "cells" / name / file).touch()


@pytest.mark.parametrize(("changes", "runs", "remedy"), [
    ({"losses": [None]}, {"sgns+nce-seed1": "sgns", "nce+nce-seed1": "nce"}, "give --losses own,nce"),
    ({"losses": ["nce"]}, {"sgns-seed2": "sgns"}, "give --losses nce,own --seeds 2"),
    ({"models": ["skipgram", "cbow"]}, {"sgns@node2vec-seed1": "sgns"}, "give --model skipgram,cbow,node2vec"),
    ({}, {"own-seed1": "own.yaml"}, "give --negatives sgns,nce,own.yaml"),
    ({}, {"sgns-seed5": "sgns"}, r"give --config with a file that sets seeds: \[1, 5\]"),
    ({}, {f"sgns-seed{seed}": "sgns" for seed in range(2, 10)},
     r"8 .* \(sgns-seed2, .*, sgns-seed6 and 3 more\); to include them, give --seeds 9"),
    # names of runs in a file, and labels without the model, cannot be given as options
    ({}, {"k2-seed1": "sgns"}, "run `embtrain report` on this folder with --baseline sgns"),
    ({"models": ["skipgram", "cbow"]}, {"sgns-seed1": "sgns"}, "run `embtrain report` on this folder"),
    ({}, {"lost-seed1": "[1]"}, "run `embtrain report` on this folder"),
])
def test_the_option_that_includes_a_run_is_named(tmp_path: Path, changes: dict[str, Any], runs: dict[str, str],
                                                 remedy: str) -> None:
    grid = Grid(**{"strategies": ["sgns", "nce"], "seeds": 1, "baseline": "sgns", **changes})
    for name, strategy in runs.items():
        run_folder(tmp_path, name, strategy)
    (tmp_path / "cells" / "unfinished-seed1").mkdir()
    names = [f"{label}-seed{seed}" for label, _ in grid.kinds() for seed in grid.seeds]
    assert re.search(remedy, folders.left_out(tmp_path, grid, names))
    assert folders.left_out(tmp_path, grid, [*names, *runs]) == ""


def test_unfinished_runs_that_are_not_joined_are_reported(done: Path, tmp_path: Path,
                                                          capsys: pytest.CaptureFixture[str]) -> None:
    (done / "cells" / "nce-seed2" / "scores.json").unlink()
    line = (f"{done}: 1 of 6 runs is not finished and not compared (nce-seed2); to finish it, run `embtrain compare` "
            "with this --out")
    join.join([done], tmp_path / "first", "nce")
    assert capsys.readouterr().err.splitlines() == [line]
    shutil.rmtree(done / "cells" / "uniform-seed1")
    (done / "cells" / "uniform-seed1.error.json").write_text('{"error": "x", "code": 3}')
    line = (f"{done}: 2 of 6 runs are not finished and not compared (nce-seed2, uniform-seed1); to finish them, run "
            "`embtrain compare` with this --out")
    joined = join.join([done], tmp_path / "joined", "nce")
    assert capsys.readouterr().err.splitlines() == [line] and line in joined.results["notes"]


@pytest.mark.parametrize(("key", "value"), [("negatives.k", "9"), ("train.device", "cuda"), ("train.tables", "mapped")])
def test_runs_of_one_label_with_different_settings_have_no_mean(done: Path, tmp_path: Path, key: str, value: str
                                                                ) -> None:
    edit(done / "cells" / "nce-seed2", rf"\n  {key.partition('.')[2]}: .*", f"\n  {key.partition('.')[2]}: {value}")
    before = (done / "results.json").read_bytes()
    with pytest.raises(DataError, match=rf"nce-seed2: was trained with {key}: '?{value}'?, but .*nce-seed1 with "):
        join.write([done])
    assert (done / "results.json").read_bytes() == before
    report = join.write([done], tmp_path / "joined", baseline="sgns")
    assert f"nce ({key}={value})" in {cell["strategy"] for cell in Comparison(report.parent).results["cells"]}


def test_equal_settings_are_needed_only_where_they_affect_scores(done: Path, place: Path) -> None:
    """Nor are the settings of each finished run needed: they may be lost, or have a key of another version."""
    for key, value in {"log_every": "7", "keep": "9", "checkpoint_every": "7.0", "track_until": "valid/mrr>1",
                       "sinks": "[tensorboard]"}.items():
        edit(done / "cells" / "sgns-seed2", rf"\n  {key}: .*", f"\n  {key}: {value}")
    edit(done / "cells" / "nce-seed2", "\ntrain:", "\ntrain:\n  in_no_version: 1")
    (done / "cells" / "uniform-seed1" / "config.yaml").unlink()
    before = Comparison(done).results
    join.write([done])
    after = Comparison(done).results
    assert after["summary"] == before["summary"]
    assert sorted(line.partition(":")[0] for line in after["notes"] if line not in before["notes"]) == [
        "nce-seed2", "uniform-seed1"]
    Here.log.clear()
    requested = options(place, seeds=3, sets=[*KEYS, "train.log_every=9", "train.keep=5"])
    more = compare.compare(compare.read_grid(requested, None, done), done, 1, 1)
    assert Here.log == [f"fit {name}-seed3" for name in ("sgns", "nce", "uniform")]
    assert [line for line in more.results["notes"] if "its config.yaml" in line] == after["notes"]
    (done / "cells" / "uniform-seed1" / "scores.json").unlink()
    with pytest.raises(DataError, match=r"uniform-seed1: is not a run: it has no config\.yaml"):
        compare.compare(compare.read_grid(requested, None, done), done, 1, 1)


@pytest.mark.parametrize(("key", "value", "is_accepted"), [
    ("keep", "9", {"finished"}), ("log_every", "9", {"finished"}), ("sinks", "[tensorboard]", {"finished"}),
    ("threads", "1", {"finished", "unfinished"}), ("device", "cuda", set()), ("tables", "mapped", set())])
@pytest.mark.parametrize("state", ["finished", "unfinished"])
def test_a_run_that_will_not_have_the_requested_settings_is_refused(
        done: Path, place: Path, key: str, value: str, is_accepted: set[str], state: str) -> None:
    """An unfinished run continues with its own. Devices and tables change the CPU seconds, which are compared."""
    if state == "unfinished":
        for name in FINISHED:
            (done / "cells" / "nce-seed2" / name).unlink()
    requested = compare.read_grid(options(place, sets=[*KEYS, f"train.{key}={value}"]), None, done)
    cells = [cell for cell in compare.plan(requested, done)[1] if cell.name == "nce-seed2"]
    if state in is_accepted:
        check_saved_settings(cells)
    else:
        with pytest.raises(UsageError, match=rf"nce-seed2: was trained with train\.{key}: .* is requested now; give"):
            check_saved_settings(cells)


@pytest.mark.parametrize("change", [lambda first, other: other.symlink_to(first), Path.rename, shutil.copytree])
def test_runs_of_a_comparison_are_the_same_by_another_path(place: Path, tmp_path: Path,
                                                           change: Callable[[Path, Path], object]) -> None:
    """Reach the folder by a link, or by a path that the first runs do not have, as another machine does."""
    config, first, other = tmp_path / "grid.yaml", tmp_path / "first", tmp_path / "other"
    tree = options(place, strategies=["sgns", "nce"])
    config.write_text(json.dumps({**tree, "seeds": [1], "start": {"strategy": "sgns", "corpus": tree["corpus"],
                                                                  "sets": KEYS}}))
    compare.compare(compare.read_grid({}, config), first, 1, 1)
    change(first, other)
    more = compare.compare(compare.read_grid({"seeds": 2}, None, other), other, 1, 1)
    assert {line["n"] for line in more.results["differences"] if line["metric"] == "test/mrr"} >= {2}
    assert join.write([other]).is_file()
    others = tmp_path / "another" / "start" / "vectors.safetensors"     # of another comparison
    others.parent.mkdir(parents=True)
    others.write_bytes((other / "start" / "vectors.safetensors").read_bytes()[:-1] + b"?")
    edit(other / "cells" / "nce-seed2", r"\n  start: .*", f"\n  start: {others}")
    with pytest.raises(UsageError, match=r"nce-seed2: was trained with train\.start: .*, but .* is requested now"):
        compare.compare(compare.read_grid({"seeds": 2}, None, other), other)
    with pytest.raises(DataError, match=r"nce-seed2: was trained with train\.start: .*, but .*nce-seed1 with"):
        join.write([other])
    given = shutil.copy(other / "start" / "vectors.safetensors", tmp_path)
    with pytest.raises(UsageError, match=r"was trained with train\.start: .*, but .* is requested now"):
        compare.compare(compare.read_grid({"seeds": 2, "sets": [*KEYS, f"train.start={given}"]}, None, other), other)
    shutil.move(other / "start" / "vectors.safetensors", tmp_path / "moved")
    for call in (lambda: compare.compare(compare.read_grid({"seeds": 2}, None, other), other),
                 lambda: join.write([other])):
        with pytest.raises(DataError, match=r"^.*other/start/vectors\.safetensors: file not found, so the vectors"):
            call()
    changed = {"seeds": 3, "start": {"strategy": "sgns", "corpus": tree["corpus"], "sets": [*KEYS, "negatives.k=9"]}}
    with pytest.raises(UsageError, match=r"other/start: was trained with negatives\.k: 5, but 9 is requested now"):
        compare.compare(compare.read_grid(changed, None, other), other)


def edit(run: Path, pattern: str, replacement: str) -> None:
    text, n = re.subn(pattern, replacement, (run / "config.yaml").read_text())
    assert n == 1
    (run / "config.yaml").write_text(text)


@pytest.mark.parametrize("key", ["start", "parent", "file"])
def test_runs_from_files_that_are_gone_have_no_mean(done: Path, place: Path, key: str) -> None:
    """Their contents are not known, unlike those of the corpus, whose hash each run has."""
    for name in ("nce-seed1", "nce-seed2"):
        edit(done / "cells" / name, rf"\n( +){key}: null", rf"\n\1{key}: /gone/{name}/start/vectors.safetensors")
        edit(done / "cells" / name, r"\ncorpus: .*", f"\ncorpus: /gone/{name}")
    with pytest.raises(DataError, match=rf"nce-seed2: was trained with [a-z_.]*{key}: '/gone/nce-seed2/.*, but "):
        join.write([done])
    if key == "start":
        requested = options(place, strategies=["nce", "sgns"], seeds=[2],
                            sets=[*KEYS, "train.start=/gone/start/vectors.safetensors"])
        with pytest.raises(UsageError, match=r"nce-seed2: was trained with train\.start: '/gone/nce-seed2/.*, but "):
            compare.compare(compare.read_grid(requested, None, done), done, 1, 1)


@pytest.mark.parametrize("key", ["benchmarks", "during_training"])
def test_lists_of_files_are_equal_item_by_item(done: Path, tmp_path: Path, key: str) -> None:
    file, link, other = (str(tmp_path / name) for name in ("own.tsv", "link.tsv", "other.tsv"))
    for path in (file, other):
        Path(path).touch()
    Path(link).symlink_to(file)

    def write_report(*values: list[str]) -> None:
        for i, value in enumerate(values, 1):
            edit(done / "cells" / f"nce-seed{i}", rf"\n  {key}: .*", f"\n  {key}: {json.dumps(value)}")
        join.write([done])

    write_report(["men", file], ["men", link])
    write_report(["men", file], ["men", "/gone/own.tsv"])       # its hash is compared with the scores
    for different in (["men", other], [link], [link, "men"], ["men", link, other]):
        with pytest.raises(DataError, match=rf"nce-seed2: was trained with evaluate\.{key}: \["):
            write_report(["men", file], different)


# -- files of the user ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", folders.FILES)
@pytest.mark.parametrize("join_machines", [False, True])
def test_files_of_the_user_are_not_replaced_by_a_comparison(place: Path, tmp_path: Path, name: str,
                                                            join_machines: bool) -> None:
    sharing = {"sharing": Sharing(1.0)} if join_machines else {}
    (tmp_path / name).write_text("mine")
    error = DataError if name == "comparison.yaml" else UsageError
    with pytest.raises(error, match=rf"{name}, which belongs to no comparison; choose another" if error is UsageError
                       else r"comparison\.yaml:1: should be keys and values"):
        compare.compare(compare.read_grid(options(place)), tmp_path, 1, 1, **sharing)
    assert (tmp_path / name).read_text() == "mine" and len(list(tmp_path.iterdir())) == 1


def test_the_grid_of_the_user_is_not_replaced_by_the_whole_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                               capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "comparison.yaml"
    file.write_text("# mine\nstrategies: [sgns, nce]\n")
    assert command(monkeypatch, "compare", "--config", file, "--out", tmp_path) == 2
    assert "comparison.yaml: would be replaced by the whole grid" in one_line(capsys)
    assert file.read_text().startswith("# mine") and len(list(tmp_path.iterdir())) == 1
    (tmp_path / "cells").mkdir()                    # of a comparison, whose grid has them written out
    assert compare.read_grid({}, file, tmp_path).strategies == ["sgns", "nce"]


def test_settings_of_options_override_those_of_a_file_key_by_key(tmp_path: Path) -> None:
    file = tmp_path / "grid.yaml"
    file.write_text("strategies: [sgns]\nsets: [train.epochs=3, train.lr=0.1]\n", encoding="utf-8")
    assert compare.read_grid({"sets": ["train.lr=0.2", "model.dim=8"]}, file).sets == [
        "train.epochs=3", "train.lr=0.2", "model.dim=8"]
    assert compare.read_grid({"strategies": ["nce"]}, file).sets == ["train.epochs=3", "train.lr=0.1"]


def test_folders_of_the_user_are_not_mixed_with_runs(place: Path, tmp_path: Path) -> None:
    for name in folders.FOLDERS:
        (tmp_path / name / name / "runs").mkdir(parents=True)
        with pytest.raises(UsageError, match=f"contains {name}, which belongs to no comparison"):
            compare.compare(compare.read_grid(options(place)), tmp_path / name, 1, 1)


def test_a_comparison_writes_the_files_that_are_kept(whole: Comparison) -> None:
    assert {path.name for path in whole.folder.iterdir() if not path.name.startswith(".")} <= set(folders.FILES)


def test_what_a_comparison_leaves_before_its_first_run_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "cells").mkdir()
    (tmp_path / "join" / "leases").mkdir(parents=True)
    (tmp_path / "notes.txt").write_text("mine")
    folders.check_folder(tmp_path)


@pytest.mark.parametrize("sharing", [ALONE, Sharing(1.0)])
@pytest.mark.parametrize("name", [
    "cells", "search", "start", "search/nce-trial1", "search/sgns-trial2", "join", "join/leases", "join/runs",
    "join/sessions", "join/grid", "cells/nce-seed1.error.json/", "search/nce-trial1.error.json/",
    "start-seed1.error.json/", "search.json/", *(f"{name}/" for name in folders.REPORT_FILES)])
def test_a_file_or_folder_in_the_place_of_the_other_is_refused_before_training(place: Path, tmp_path: Path, name: str,
                                                                               sharing: Alone | Sharing) -> None:
    """Other runs were trained first, and the error was a lack of machine resources, or a crash."""
    pytest.importorskip("optuna")
    requested = compare.read_grid(options(place, seeds=1, strategies=["sgns", "nce"], search=["negatives.k=2:9"],
                                          trials=2, start={"strategy": "sgns", "corpus": str(place / "text")}))
    (tmp_path / "comparison.yaml").write_text(dump(requested))
    path, kind = tmp_path / name, "file" if name.endswith("/") else "folder"
    path.parent.mkdir(exist_ok=True)
    path.mkdir() if kind == "file" else path.touch()
    with pytest.raises(UsageError, match=rf"^--out: {path}: is not a {kind}, and a comparison needs a {kind} there; m"):
        compare.compare(requested, tmp_path, 1, 1, sharing=sharing)
    assert not list(tmp_path.glob("*/*/config.yaml"))


def test_a_comparison_is_not_written_into_its_corpus(place: Path, tmp_path: Path) -> None:
    text = tmp_path / "text"
    shutil.copytree(place / "text", text)
    with pytest.raises(UsageError, match=r"^--out: .*text is the corpus, and the files of a comparison would be read"):
        compare.compare(compare.read_grid(options(text.parent)), text, 1, 1)
    assert not (text / "cells").exists() and not (text / "comparison.yaml").exists()


@pytest.mark.parametrize("name", folders.REPORT_FILES)
def test_files_of_the_user_are_not_replaced_by_a_report_of_runs(whole: Comparison, tmp_path: Path, name: str) -> None:
    runs = [whole.folder / "cells" / run for run in ("sgns-seed1", "nce-seed1")]
    (tmp_path / name).write_text("mine")
    with pytest.raises(UsageError, match=f"^--out: .* contains {name}, which belongs to no report of several runs"):
        join.write(runs, tmp_path)
    assert (tmp_path / name).read_text() == "mine" and len(list(tmp_path.iterdir())) == 1


def test_a_report_of_runs_is_replaced_by_its_next_one(whole: Comparison, tmp_path: Path,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [whole.folder / "cells" / run for run in ("sgns-seed1", "nce-seed1")]
    monkeypatch.setattr(join.page, "write", lambda folder: (folder / "report.html").touch())
    join.write(runs, tmp_path)
    join.write(runs, tmp_path, metric="test/mrr")
    assert json.loads((tmp_path / "results.json").read_text())["plan"]["metric"] == "test/mrr"
    (tmp_path / "comparison.yaml").write_text("mine")
    with pytest.raises(UsageError, match="already contains a run or a comparison; choose another folder"):
        join.write(runs, tmp_path)


@pytest.mark.parametrize("name", folders.REPORT_FILES)
def test_a_folder_in_the_place_of_a_file_of_a_report_is_refused_before_another_is_written(
        whole: Comparison, tmp_path: Path, name: str) -> None:
    """The error was a lack of machine resources, when other files of the report had been replaced."""
    copy, joined, run = tmp_path / "copy", tmp_path / "joined", tmp_path / "run"
    shutil.copytree(whole.folder, copy)
    shutil.copytree(whole.folder / "cells" / "sgns-seed1", run)
    joined.mkdir()
    (joined / "results.json").write_bytes((whole.folder / "results.json").read_bytes())
    runs = [whole.folder / "cells" / label for label in ("sgns-seed1", "nce-seed1")]
    reports = [(copy, [copy], None, "")]
    if name != "results.json":                       # without it, the folder is one of the user
        reports.append((joined, runs, joined, "--out: "))
    if name in folders.run_page.FILES:
        reports.append((run, [run], None, ""))
    for folder, inputs, out, flag in reports:
        (folder / name).unlink(missing_ok=True)
        (folder / name).mkdir()
        before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
        with pytest.raises(UsageError, match=rf"^{flag}{folder / name}: is not a file, and a report needs a file ther"):
            join.write(inputs, out)
        assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before


@pytest.mark.parametrize("name", folders.run_page.FILES)
def test_files_of_the_user_are_not_replaced_by_a_report_of_a_run(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.yaml").write_text("theme: dark\n")
    (tmp_path / name).write_text("mine")
    with pytest.raises(DataError, match=rf"{name}: belongs to no run, because the folder has no identity\.json"):
        join.write([tmp_path])
    assert (tmp_path / name).read_text() == "mine" and len(list(tmp_path.iterdir())) == 2


def test_the_paper_of_the_user_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduce.compare, "compare", lambda *_: None)
    (tmp_path / "paper.yaml").write_text("mine")
    with pytest.raises(UsageError, match=r"contains paper\.yaml, which belongs to no reproduction; choose another"):
        reproduce.reproduce("nce_note_k", out=tmp_path)
    assert (tmp_path / "paper.yaml").read_text() == "mine"
    (tmp_path / "cells").mkdir()                    # a reproduction that was refused before its first run
    reproduce.reproduce("nce_note_k", out=tmp_path)
    assert (tmp_path / "paper.yaml").read_text() == reproduce.papers.path("nce_note_k").read_text()


@pytest.mark.parametrize("name", ["figures", "figures/curves-training-loss.svg"])
def test_figures_that_cannot_be_written_are_refused_before_the_report(whole: Comparison, tmp_path: Path, name: str
                                                                      ) -> None:
    """A folder in the place of a figure was a lack of machine resources, after the report and other figures."""
    run, copy, joined = tmp_path / "run", tmp_path / "copy", tmp_path / "joined"
    shutil.copytree(whole.folder / "cells" / "sgns-seed1", run)
    shutil.copytree(whole.folder, copy)
    runs = [whole.folder / "cells" / label for label in ("sgns-seed1", "nce-seed1")]
    if name == "figures":
        message = r"is not a folder; choose another"
    else:
        message = r"is not a file, and a report with figures needs a file there; move it"
    for folder, inputs, out in ((run, [run], None), (copy, [copy], None), (joined, runs, joined)):
        if name == "figures":
            folder.mkdir(exist_ok=True)
            (folder / name).write_text("mine")
        else:
            (folder / name).mkdir(parents=True)
        before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
        line = rf"^--figures: {folder / name}: {message}$"
        with pytest.raises(UsageError, match=line):
            join.write(inputs, out, figures=["svg"])
        if folder != joined:
            with pytest.raises(UsageError, match=line):
                figure_files.write(folder, ["svg"])
        assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_an_input_or_out_that_is_wrong_is_reported_before_the_figures(whole: Comparison, tmp_path: Path,
                                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    """The place of the figures is inside it, and was reported instead."""
    monkeypatch.setattr(report, "write", run_page.write)
    file, empty, out = tmp_path / "F.txt", tmp_path / "empty", tmp_path / "out"
    file.write_text("mine")
    for folder in (empty, out):
        folder.mkdir()
        (folder / "figures").write_text("mine")
    run, other = (whole.folder / "cells" / label for label in ("sgns-seed1", "nce-seed1"))
    for inputs, to, error, message in (
            ([file], None, DataError, f"{file}: folder not found; give a run folder"),
            ([empty], None, DataError, f"{empty}: not a run folder"),
            ([run], file, UsageError, f"--out: applies to several runs, but {run} is one"),
            ([run, other], file, UsageError, f"--out: {file}: is not a folder; choose another"),
            ([run, run], out, UsageError, f"{run}, {run}: all are "),
            ([run, empty], out, DataError, f"{empty}"),
            ([run, other], out, UsageError, f"--figures: {out / 'figures'}: is not a folder")):
        with pytest.raises(error, match=f"^{re.escape(message)}"):
            join.write(inputs, to, figures=["svg"])
    assert [*out.iterdir()] == [out / "figures"]


@pytest.mark.parametrize("name", [
    "comparison.yaml", "cells/sgns-seed1/scores.json", "cells/nce-seed1/items.safetensors",
    "cells/sgns-seed1/vectors.safetensors"])
def test_a_damaged_file_is_reported_before_the_figures(done: Path, tmp_path: Path, name: str,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "write", run_page.write)
    run, out = done / "cells" / "sgns-seed1", tmp_path / "out"
    places = [([done], None, done), ([run], None, run), ([run, done / "cells" / "nce-seed1"], out, out)]
    for _, _, folder in places:
        folder.mkdir(exist_ok=True)
        (folder / "figures").write_text("mine")
    (done / name).write_bytes(b"[")
    reads = {"comparison.yaml": [0], "cells/sgns-seed1/scores.json": [0, 1, 2],
             "cells/nce-seed1/items.safetensors": [0, 2], "cells/sgns-seed1/vectors.safetensors": [1]}[name]
    before = {path: path.stat().st_mtime_ns for path in [*done.rglob("*"), *out.rglob("*")]}
    for i, (inputs, to, folder) in enumerate(places):
        error, line = (DataError, done / name) if i in reads else (UsageError, f"--figures: {folder / 'figures'}: ")
        with pytest.raises(error, match=f"^{re.escape(str(line))}"):
            join.write(inputs, to, figures=["svg"])
    assert {path: path.stat().st_mtime_ns for path in [*done.rglob("*"), *out.rglob("*")]} == before


# -- damaged files ----------------------------------------------------------------------------------------------------


@pytest.fixture(params=[b"", b"# nothing\n", b"- a\n", b"seeds: 3\n", b"strategies: [sgns, nce]\nsedes: 3\n",
                        b"a: [\n", b"\xff"],
                ids=["empty", "comment", "list", "no runs", "unknown key", "no YAML", "no text"])
def damaged(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    folder = tmp_path / "d"
    folder.mkdir()
    (folder / "comparison.yaml").write_bytes(request.param)
    return folder


@pytest.mark.parametrize("words", [["report", "D"], ["compare", "--out", "D", "--negatives", "sgns,nce"],
                                   ["compare", "--out", "D", "--join"], ["reproduce", "nce_note_k", "--out", "D"]])
def test_a_damaged_grid_is_data_in_every_command(damaged: Path, monkeypatch: pytest.MonkeyPatch, words: list[str],
                                                 capsys: pytest.CaptureFixture[str]) -> None:
    before = (damaged / "comparison.yaml").read_bytes()
    assert command(monkeypatch, *[str(damaged) if word == "D" else word for word in words]) == 3
    assert "comparison.yaml" in one_line(capsys) and len(list(damaged.iterdir())) == 1
    assert (damaged / "comparison.yaml").read_bytes() == before


@pytest.mark.parametrize("content", [None, "", "- a\n", "title: A title\n"])
def test_a_damaged_claim_is_data_in_every_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None,
                                                  capsys: pytest.CaptureFixture[str]) -> None:
    folder, grid = tmp_path / "d", reproduce.paper_grid("nce_note_k", {}, [], tmp_path)[0]
    folder.mkdir()
    (folder / "comparison.yaml").write_text(dump(compare.plan(grid, folder)[0]))
    if content is not None:
        (folder / "paper.yaml").write_text(content)
    with pytest.raises(DataError, match=r"paper\.yaml"):       # of a finished run
        metrics.require_metrics(grid, outcome.CellOutcome("a", "a", None, "skipgram", 1, folder, "."), folder, "")
    for words in (["report", folder], ["reproduce", "nce_note_k", "--out", folder]):
        code = 2 if content is None and words[0] == "reproduce" else 3    # a comparison of another claim
        assert command(monkeypatch, *words) == code
        lines = capsys.readouterr().err.splitlines()
        assert "paper.yaml" in lines[-1] or code == 2


@pytest.mark.parametrize("content", ["- a\n", "", "strategy: [\n"])
def test_a_damaged_run_is_data_for_a_comparison(done: Path, place: Path, tmp_path: Path, content: str) -> None:
    run = done / "cells" / "nce-seed1"
    (run / "config.yaml").write_text(content)
    for call in (lambda: compare.compare(compare.read_grid({}, None, done), done, 1, 1),
                 lambda: join.join([done], tmp_path / "out", "nce"),
                 lambda: join.join([run, run.parent / "sgns-seed1"], tmp_path / "out")):
        with pytest.raises(EmbtrainError, match=r"nce-seed1/config\.yaml") as error:
            call()
        assert error.value.code == 3


def test_of_several_faults_of_a_stored_grid_the_first_is_printed() -> None:
    with pytest.raises(DataError) as error, grid.stored_files():
        raise UsageError("comparison.yaml:2:1: seeds: is set twice", "comparison.yaml:3:1: corpus: is set twice")
    assert error.value.args == ("comparison.yaml:2:1: seeds: is set twice",)
