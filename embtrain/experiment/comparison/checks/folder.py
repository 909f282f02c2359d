"""Checks of the folder of a comparison: the user's files in it, and finished runs that the grid does not contain."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from embtrain.common import terminal
from embtrain.common.config import read_yaml
from embtrain.common.errors import DataError, ResourceError, UsageError
from embtrain.common.files import read_json
from embtrain.common.output_paths import check_kinds, check_output_folder
from embtrain.evaluate.comparison.results import MAX_RESULTS_BYTES, ComparisonResults
from embtrain.experiment.comparison import outcome, tuning
from embtrain.experiment.comparison.grid import FILE, FLAGS, Grid, read_stored
from embtrain.experiment.comparison.shared.places import leases_in, shared_folders
from embtrain.experiment.comparison.workers import FAILURE, FINISHED, Cell
from embtrain.report.comparison import page
from embtrain.report.run import page as run_page

REPORT_FILES = ("results.json", *page.FILES)   # of a comparison, and of runs that are joined
FOLDERS = ("cells", "search", "start", "join")
FILES = (FILE, *REPORT_FILES, "search.json", *FOLDERS)
MAX_NAMES = 5  # of runs in one line
_OTHER_FOLDER = ", or choose another folder"


def check_folder(folder: Path) -> None:
    """Raise an error, before anything is written, if no comparison can be in the folder.

    UsageError if it contains a run, or files of the user that a comparison would replace; DataError if its grid is
    damaged; ResourceError if it cannot be written.
    """
    if (folder / "config.yaml").exists():
        raise UsageError(f"--out: {folder} contains a run; choose another folder")
    check_output_folder(folder)
    if (folder / FILE).is_file():
        read_stored(folder)
    elif foreign := next((name for name in FILES if _is_foreign(folder, name)), None):
        raise UsageError(f"--out: {folder} contains {foreign}, which belongs to no comparison; choose another folder")


def check_folder_of_report(folder: Path) -> None:
    """Raise an error, before anything is written, if the report of joined runs cannot be in the folder.

    UsageError if it contains a run, a comparison, files of the user that the report would replace, or a folder in the
    place of a file; ResourceError if it cannot be written.
    """
    check_output_folder(folder)
    if any((folder / name).exists() for name in ("config.yaml", FILE, "cells")):
        raise UsageError(f"--out: {folder} already contains a run or a comparison; choose another folder")
    foreign = next((name for name in REPORT_FILES if os.path.lexists(folder / name)), None)
    if foreign is not None and not _has_results(folder):
        raise UsageError(f"--out: {folder} contains {foreign}, which belongs to no report of several runs; choose "
                         "another folder")
    check_kinds("file", (folder / name for name in REPORT_FILES), "a report", "--out: ", _OTHER_FOLDER)


def check_report_of_comparison(folder: Path) -> None:
    """Raise UsageError, before anything is written, if a folder is where the report of a comparison needs a file."""
    check_kinds("file", (folder / name for name in REPORT_FILES), "a report")


def check_report_of_run(folder: Path) -> None:
    """Raise an error, before anything is written, if the report of a run cannot be in the folder.

    DataError if it would replace files of a folder that is not a run; UsageError if a folder is where it needs a file.
    """
    foreign = next((name for name in run_page.FILES if os.path.lexists(folder / name)), None)
    if foreign is not None and not (folder / "identity.json").is_file():
        raise DataError(f"{folder / foreign}: belongs to no run, because the folder has no identity.json; move the "
                        "file, or give a run folder")
    check_kinds("file", (folder / name for name in run_page.FILES), "a report")


def _has_results(folder: Path) -> bool:
    """Whether the folder has a results.json of a comparison."""
    try:
        ComparisonResults.from_json(read_json(folder / "results.json", MAX_RESULTS_BYTES))
        return True
    except (OSError, ValueError, RecursionError):
        return False


def _is_foreign(folder: Path, name: str) -> bool:
    """Whether there is something by a name, in a folder without a grid.

    A comparison creates empty folders, and several machines their leases, before it writes the grid.
    """
    if name == "join" and leases_in(folder).is_dir():
        return False
    with contextlib.suppress(OSError):      # not a folder, or not readable
        if name in FOLDERS:
            return bool(os.listdir(folder / name))
    return os.path.lexists(folder / name)


def check_corpus(folder: Path, corpus: str | None) -> None:
    """Raise UsageError if the folder is the corpus."""
    if corpus is not None and os.path.isabs(corpus) and os.path.realpath(folder) == os.path.realpath(corpus):
        raise UsageError(f"--out: {folder} is the corpus, and the files of a comparison would be read as its data; "
                         "choose another folder")


def check_places(folder: Path, grid: Grid, cells: Sequence[Cell]) -> None:
    """Raise UsageError if a file is where a comparison needs a folder, or a folder where it needs a file.

    cells: of the grid, and the run that they start from.
    """
    stored = tuning.read(folder).get("trials", {})
    trials = [tuning.trial_folder(folder, label, i) for label, _ in grid.kinds()
              for i in range(len(stored.get(label, [])), grid.trials or 0)]
    runs = [*(cell.folder for cell in cells), *trials]
    places = [*(path for run in runs for path in (run.parent, run)), *shared_folders(folder)]
    files = [*(cell.failure for cell in cells), *(run.with_name(f"{run.name}{FAILURE}") for run in trials),
             *(folder / name for name in (*REPORT_FILES, tuning.FILE))]
    for kind, paths in (("folder", places), ("file", files)):
        check_kinds(kind, paths, "a comparison", "--out: ", _OTHER_FOLDER)


def left_out(folder: Path, grid: Grid, names: Sequence[str]) -> str:
    """Return one line on the finished runs that the grid does not contain, and the options that include them.

    names: of the runs of the grid. '' if there is no other run.
    """
    others = [path.name for path in sorted((folder / "cells").glob("*"))
              if path.name not in names and all((path / file).is_file() for file in FINISHED)]
    if not others:
        return ""
    wider, options = _wider_grid(folder, grid, others)
    contained = {f"{label}-seed{seed}" for label, _ in wider.kinds() for seed in wider.seeds}
    subject, pronoun = ("run in cells is", "it") if len(others) == 1 else ("runs in cells are", "them")
    remedy = f"to include {pronoun}, give {' '.join(options)}"
    if not contained.issuperset(others):
        remedy = f"to compare all, run `embtrain report` on this folder with --baseline {grid.baseline}"
    return f"{len(others)} finished {subject} not part of this comparison ({first_names(others)}); {remedy}"


def note_left_out(folder: Path, grid: Grid, names: Sequence[str]) -> None:
    """Print which finished runs of the folder are not compared; results.json has the same note."""
    if line := left_out(folder, grid, names):
        terminal.note(f"{folder}: {line}")


def first_names(names: Sequence[str]) -> str:
    """Return at most MAX_NAMES names, and the number of the others."""
    n_others = len(names) - MAX_NAMES
    return ", ".join(names[:MAX_NAMES]) + (f" and {n_others} more" if n_others > 0 else "")


def _wider_grid(folder: Path, grid: Grid, others: Sequence[str]) -> tuple[Grid, list[str]]:
    """Add the strategies, losses, models and seeds of other runs to a grid; return it, and its options that changed."""
    keys = ("strategies", "losses", "models", "seeds")
    values: dict[str, list[Any]] = {key: list(getattr(grid, key)) for key in keys}
    labels = {label for label, _ in grid.kinds()}
    for name in others:
        label, _, seed = name.rpartition("-seed")
        values["seeds"] += [int(seed)] if seed.isdecimal() else []
        strategy = _strategy(folder / "cells" / name) if label not in labels else ""
        if strategy:
            loss, _, model = label.removeprefix(outcome.label(strategy, None, None)).partition("@")
            values["strategies"].append(strategy)
            values["losses"].append(loss.removeprefix("+") or None)
            values["models"] += [model] if model else []
    values = {key: list(dict.fromkeys(listed)) for key, listed in values.items()}
    values["seeds"].sort()
    wider = grid.model_copy(update=values)
    return wider, [_option(wider, key) for key in keys if set(values[key]) != set(getattr(grid, key))]


def _strategy(run: Path) -> str:
    """The strategy of a run; empty if its configuration does not name one."""
    with contextlib.suppress(UsageError, ResourceError):
        return str(read_yaml(run / "config.yaml").tree.get("strategy") or "")
    return ""


def _option(grid: Grid, key: str) -> str:
    values = getattr(grid, key)
    if key != "seeds":
        return f"--{FLAGS.get(key, key)} {','.join('own' if value is None else str(value) for value in values)}"
    n = len(values)
    return f"--seeds {n}" if values == list(range(1, n + 1)) else f"--config with a file that sets seeds: {values}"
