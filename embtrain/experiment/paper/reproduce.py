"""Reproduce a paper: the runs of its file in configs/paper, as a comparison, then its numbers against ours.

    DIR/paper.yaml   the claim as read at the start; all other files as in a comparison (compare.py)
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from embtrain.common import progress, terminal
from embtrain.common.config import Layer, build, read_yaml
from embtrain.common.errors import ResourceError, UsageError
from embtrain.common.files import claim_folder, dated_folder, write_text
from embtrain.data.catalogue import fetch
from embtrain.data.catalogue.recipes import load_recipe
from embtrain.experiment.comparison import compare, outcome
from embtrain.experiment.comparison.checks.folder import check_folder
from embtrain.experiment.comparison.compare import Comparison
from embtrain.experiment.comparison.grid import FILE, Grid, read_stored, stored_files, with_origins
from embtrain.experiment.comparison.shared.sharing import ALONE, Alone, Sharing
from embtrain.experiment.paper import spec as papers
from embtrain.experiment.paper.spec import Paper
from embtrain.report.comparison.reproduction import lines
from embtrain.report.load import comparison as read_results

_log = logging.getLogger("embtrain")


def reproduce(name: str, corpus: str | None = None, seeds: int | None = None, sets: list[str] | None = None,
              out: Path | None = None, parallel: int | None = None, threads: int = 0,
              cpu_seconds: float | None = None, sharing: Alone | Sharing = ALONE) -> Comparison:
    """Run the unfinished runs, then evaluate the claim. Called again on its folder, it continues.

    cpu_seconds: for all runs together. Default: the paper's own limit on the paper's own corpus, else none. sharing:
    how other machines work in the same folder.
    """
    if cpu_seconds is not None and not 0 < cpu_seconds < math.inf:
        raise UsageError(f"--cpu-seconds: should be a finite number greater than 0, got {cpu_seconds:g}")
    folder = sharing.folder(out) or dated_folder(Path(name).stem)
    planned, file = paper_grid(name, {"corpus": corpus, "seeds": seeds}, sets or [], folder)
    paper = papers.read(file)
    paper_budget = paper.cpu_seconds if paper.is_own(planned.corpus) else None
    budget = paper_budget if cpu_seconds is None else cpu_seconds
    check_folder(folder)
    _check_claim(folder, file)
    if file == folder / papers.FILE:
        _warn_of_changes(name, file, paper)
    compare.plan(planned, folder)  # raises before anything is written
    folder = folder if out is not None else claim_folder(folder)
    if file != folder / papers.FILE:
        write_text(folder / papers.FILE, file.read_text(encoding="utf-8"))
    return compare.compare(planned, folder, parallel, threads, budget, sharing)


def _warn_of_changes(name: str, stored: Path, paper: Paper) -> None:
    """Warn if the file of a name differs from the stored one, which decides because it is from the start."""
    try:
        changes = outcome.differing_keys(paper, papers.read(file := papers.path(name)), "")
    except UsageError as error:
        _log.warning(f"{error}; {stored} from the start decides")
        return
    if changes:
        _log.warning("%s: differs in %s from %s, which is from the start and decides; give another --out to use the "
                     "changed file", file, ", ".join(key for key, _, _ in changes), stored)


def _check_claim(folder: Path, file: Path) -> None:
    """Raise UsageError if the folder has a paper.yaml that no reproduction has written.

    A reproduction that has not begun leaves the folder `cells` next to it, or nothing but a copy of `file`.
    """
    claim = folder / papers.FILE
    if os.path.lexists(claim) and not (folder / FILE).is_file() and not (folder / "cells").is_dir() and not (
            claim.is_file() and claim.read_bytes() == file.read_bytes()):
        raise UsageError(f"--out: {folder} contains {papers.FILE}, which belongs to no reproduction; choose another "
                         "folder")


def paper_grid(name: str, options: Mapping[str, Any], sets: list[str], folder: Path) -> tuple[Grid, Path]:
    """The grid of a paper, or the one stored in the folder, overridden by options; and the paper's file."""
    if (folder / FILE).is_file():
        base, file = read_stored(folder), folder / papers.FILE
        if base.tree.get("paper") != name or not file.is_file():
            raise UsageError(f"--out: {folder} contains another comparison than {name}; choose another folder")
        with stored_files():
            paper = papers.read(file)
        base = replace(base, tree=base.tree | {"metric": paper.metric})  # it may have had a typo
    else:
        file = papers.path(name)
        paper = papers.read(file)
        layer = read_yaml(file)
        base = replace(layer, tree=_without_missing_benchmarks(paper).grid(name))
    option_layers = [Layer(f"--{key}", {key: value}) for key, value in options.items() if value is not None]
    # an existing folder has them already
    kept_sets = [text for text in base.tree.get("sets", []) if text not in sets]
    grid = build(Grid, [base, *option_layers, *([Layer("--set", {"sets": [*kept_sets, *sets]})] if sets else [])])
    return with_origins(grid, [base, *option_layers, Layer("--set", {"sets": sets})]), file


def _without_missing_benchmarks(paper: Paper) -> Paper:
    """Drop the benchmarks that are not available on this machine, with a note on the terminal."""
    missing = set()
    for name in paper.benchmarks:
        try:
            fetch.gold_path(load_recipe("evals", name))
        except ResourceError as error:
            missing.add(name)
            if not progress.is_quiet():
                terminal.note(f"{name} is skipped: {error}")
    return paper.without_benchmarks(missing)


def format_text(comparison: Comparison) -> str:
    """Reported numbers against ours, for a terminal."""
    reproduction = read_results.read(comparison.folder).reproduction
    return "" if reproduction is None else "\n".join(map(terminal.plain, lines(reproduction)))


class PaperEntry(NamedTuple):
    """A paper that can be reproduced, and its cost."""

    name: str
    runs: int
    cpu_seconds: float
    title: str

    def __str__(self) -> str:
        return terminal.plain(f"{self.name:<20}{self.runs:>3} runs {self.cpu_seconds / 60:>5,.0f} CPU-min  "
                              f"{self.title}")


def listing() -> list[PaperEntry]:
    papers_by_name = {name: papers.read(papers.path(name)) for name in papers.names()}
    return [PaperEntry(name, len(paper.runs) * paper.seeds, paper.cpu_seconds, paper.title) for name,
            paper in papers_by_name.items()]
