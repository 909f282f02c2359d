"""Diagnose negative samplers on a trained model: distance to the exact softmax, and cost; and the model's table.

The model is that of a run; the queries are pairs of its held-out text. Each source starts with a refresh from the
model. The run's own source keeps its learnt state; any other source that learns starts untrained. Other held-out
queries time the draws and fit sources that adapt to queries. Definitions: sampler_quality.py; fewer candidates:
subset_view.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from embtrain.common.errors import DataError, UsageError
from embtrain.common.files import read_json
from embtrain.common.output_paths import check_kinds, check_output_folder
from embtrain.common.progress import Progress
from embtrain.common.types import ModelView, Query
from embtrain.evaluate.words import hubness
from embtrain.experiment.diagnosis import subset_view
from embtrain.experiment.diagnosis.sampler_quality import measure_sampler
from embtrain.experiment.diagnosis.subset_view import SubsetView
from embtrain.experiment.run import components, scoring, settings as run_settings, stored
from embtrain.experiment.run.components import Components
from embtrain.experiment.run.run import Run
from embtrain.experiment.run.settings import Settings
from embtrain.experiment.run.started import check_settings, read_corpus, require_trained
from embtrain.negatives import base as negatives
from embtrain.negatives.base import NegativesConfig, NegativeSource
from embtrain.negatives.sampling import inner_product
from embtrain.report.diagnosis import page
from embtrain.report.diagnosis.page import Diagnosis, Size
from embtrain.train.engines.autograd import ReadOnly

FILES = ("diagnosis.json", "diagnosis.md", "diagnosis.html")  # of page.write
NOTES = {"none": "states no probabilities, so its negatives are not corrected",
         "estimated": "measured with negatives as frequent as the positives in the data, corrected by the q that it "
                      "estimates"}


def diagnose(folder: Path, strategies: Sequence[str], sizes: Sequence[int], max_queries: int = 64, draws: int = 400,
             threads: int | None = None, out: Path | None = None) -> Diagnosis:
    """Measure the output table, and each strategy's source at each m, at the last m also with fewer candidates.

    Writes diagnosis.json, .md and .html into `out` (default: the run's folder `diagnosis`). max_queries: limit on
    held-out queries; draws: draws per query for the gradient error; threads: None uses the run's setting. UsageError if
    the scores are not inner products, or the loss uses absolute scores.
    """
    _ = Run(folder).settings                                 # raises if the folder is not a run
    check_output(folder, out)
    settings, parts, unfinished = _open_run(folder, strategies, sizes, threads)
    n_threads = torch.get_num_threads()
    view = ReadOnly(parts.model)
    occurrences = stored.name_counts(folder)                 # in the order of the ids, as check_corpus has checked
    table = hubness.hubness(view.table(), parts.problem.counts, parts.task.candidate_names(),
                            None if occurrences is None else torch.tensor(list(occurrences.values())))
    if strategies and view.geometry not in inner_product.GEOMETRIES:
        raise UsageError(f"{folder}: scores of model.name: {settings.model.name} are not inner products, but the "
                         "diagnosis measures the gradient of inner products; diagnose another model")
    if strategies and not parts.loss.traits.monotone:
        raise UsageError(f"{folder}: it was trained with loss.absolute, but draws are compared with the softmax of "
                         "scores, not of their absolute values; diagnose another run")
    lines, growth, part, n = [], list[Size](), "", 0
    if strategies:
        query, timing_query, part = heldout_queries(parts, max_queries)
        n, targets = len(query), torch.cat([query.target, timing_query.target])
        sets = subset_view.nested_subsets(targets, view.n_candidates, parts.problem.seed)
        sources = [source_of(name, parts, settings, view, sizes) for name in strategies]
        with Progress("diagnosing", len(sources) * (len(sizes) + len(sets)), "measurements", 0) as progress:
            for name, (source, note) in zip(strategies, sources, strict=True):
                quality = measure_sampler(source, query, timing_query, view, parts.problem, max(sizes),
                                          settings.train.batch)
                errors = [quality.error(m, draws) for m in sizes]
                for m, error in zip(sizes, errors, strict=True):
                    notes = (unfinished, NOTES.get(source.traits.density, note))
                    lines.append(quality.measurement(name, m, error, "; ".join(filter(None, notes))))
                    progress.add(1, name)
                for ids in sets:
                    growth += _on_subset(SubsetView(view, ids), name, parts, settings, query, timing_query, sizes,
                                         draws)
                    progress.add(1, name)
                last = lines[-1]
                growth.append(Size(name, view.n_candidates, last.m, last.ms, last.bias, last.floor))
    run = ", ".join(filter(None, (folder.resolve().name, unfinished)))
    diagnosis = Diagnosis(run, settings.model.name, settings.corpus, part, n, parts.problem.n_candidates, draws,
                          n_threads, lines, table, growth)
    page.write(out or folder / "diagnosis", diagnosis)
    return diagnosis


def check_output(run: Path, out: Path | None) -> None:
    """Raise UsageError or ResourceError if a diagnosis cannot be written, or would replace files of the user."""
    folder = out or run / "diagnosis"
    check_output_folder(folder)
    present = next((name for name in FILES if (folder / name).exists()), None)
    if present is not None and not _is_diagnosis(folder / FILES[0]):
        raise UsageError(f"--out: {folder} contains {present}, which belongs to no diagnosis; choose another folder")
    check_kinds("file", (folder / name for name in FILES), "a diagnosis", "--out: ", ", or choose another folder")


def _is_diagnosis(path: Path) -> bool:
    """Whether a file is the JSON of a diagnosis."""
    try:
        return {"run", "model", "lines"} <= dict(read_json(path)).keys()
    except (OSError, ValueError, TypeError):
        return False


def _on_subset(view: SubsetView, name: str, parts: Components, settings: Settings, query: Query, timing_query: Query,
               sizes: Sequence[int],
               draws: int) -> list[Size]:
    """Measure a new source of the strategy on a subset of the candidates.

    Empty if the source must learn first, or is refused, for example because it has more clusters than candidates.
    """
    problem, m = view.restrict_problem(parts.problem), sizes[-1]
    try:
        source, _ = source_of(name, replace(parts, problem=problem), settings, view, sizes, fresh=True)
        if source.traits.learns:
            return []
        quality = measure_sampler(source, view.restrict_query(query), view.restrict_query(timing_query), view, problem,
                                  max(sizes), settings.train.batch)
        error = quality.error(m, draws)
    except UsageError:
        return []
    return [Size(name, view.n_candidates, m, quality.milliseconds(m), error.get("bias"), error.get("floor"))]


def open_run(folder: Path, strategies: Sequence[str], sizes: Sequence[int], threads: int | None = None
           ) -> tuple[Settings, Components]:
    """Settings and components of a run as training left them, with a warning if it is not finished.

    If the run's own strategy is among `strategies`, its source gets room for max(sizes) negatives. Threads: as given,
    else train.threads.
    """
    return _open_run(folder, strategies, sizes, threads)[:2]


def _open_run(folder: Path, strategies: Sequence[str], sizes: Sequence[int], threads: int | None
            ) -> tuple[Settings, Components, str]:
    """The same, with the progress of the run if it is not finished."""
    settings = Run(folder).settings
    require_trained(folder)
    check_settings(folder, settings)
    for name in strategies:                                  # before the corpus is read
        if name != settings.strategy:
            run_settings.resolve(name, settings.model.name)
    components.use_threads(settings.train.threads if threads is None else threads)
    train = settings.train.model_copy(update={"engine": "autograd", "device": "cpu"})
    settings = settings.model_copy(update={"train": train})
    if settings.strategy in strategies:
        settings = settings.model_copy(update={"negatives": _widest(settings.negatives, sizes)})
    parts = components.build(settings, read_corpus(folder, settings), folder=folder)
    return settings, parts, stored.restore(folder, settings, parts)


def heldout_queries(parts: Components, max_queries: int) -> tuple[Query, Query, str]:
    """Evenly spaced held-out queries, the queries midway between them, and the part they are from.

    If there are none in between, the second are the first. The part is test if it has any, else valid.
    """
    for part in ("test", "valid"):
        batch = parts.task.heldout(part)
        if len(batch):
            rows = torch.linspace(0, len(batch) - 1, min(max_queries, len(batch))).round().long()
            between = (rows[:-1] + rows[1:]) // 2
            between = between[between != rows[:-1]]
            query = scoring.encode_heldout(parts, batch)
            return query.rows(rows), query.rows(between if len(between) else rows), part
    task = parts.task
    raise DataError(
        f"the run has no held-out queries: {task.missing_split_reason(task.settings, 'test') or 'there are none'}"
    )


def source_of(name: str, parts: Components, settings: Settings, view: ModelView, sizes: Sequence[int],
              fresh: bool = False) -> tuple[NegativeSource, str]:
    """The source of a strategy, and a note about its state; the run's own as training left it, unless `fresh`.

    UsageError if the source cannot be measured on this model.
    """
    is_own = name == settings.strategy
    if is_own and not fresh:
        source, note = parts.source, "was trained with this model" if parts.source.traits.learns else ""
    else:
        source_config = settings.negatives if is_own else _widest(
            run_settings.resolve(name, settings.model.name).negatives, sizes)
        try:
            source = negatives.find(source_config.source)(source_config, parts.problem)
        except UsageError as error:
            raise UsageError(f"--negatives: {name}: {error}") from error
        note = "learns during training, but is untrained here" if source.traits.learns else ""
    if source.traits.exhaustive:
        note = "scores every candidate; the time includes that"
    if not source.traits.components:
        raise UsageError(f"--negatives: {name} draws nothing to measure; remove it")
    geometry = source.traits.geometry
    if geometry and view.geometry not in geometry:
        raise UsageError(f"--negatives: {name} needs scores that are one of {', '.join(sorted(geometry))}, and this "
                         f"run's model scores by {view.geometry}")
    source.on_epoch_start(view)
    return source, note


def _widest(config: NegativesConfig, sizes: Sequence[int]) -> NegativesConfig:
    """Set k to the largest number of columns that will be drawn, so that a source can refuse it."""
    return config.model_copy(update={"k": max(sizes)})
