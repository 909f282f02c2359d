"""Lines of the leaderboard: the scores of one run with the command that repeats it.

A file of the leaderboard has one JSON object a line, the fields of `Submission`. The pages of docs/results are made
from the files in docs/results/leaderboard.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import embtrain
from embtrain.common import shipped
from embtrain.common.config import describe_value, flatten_values
from embtrain.common.errors import DataError, UsageError
from embtrain.common.files import write_text
from embtrain.common.json_records import decode, encode, mapping, text
from embtrain.experiment.run.settings import Settings, from_run, resolve
from embtrain.experiment.tasks import base as tasks
from embtrain.report.load import run as run_record
from embtrain.report.run.score_section import SUPPORTING

PROGRAMS = ("embtrain", "embtrain.exe", "__main__.py")
DIRTY = "-dirty"
# Keys of the data and of `evaluate` that change neither the held-out examples nor how these or benchmarks are scored.
FREE = frozenset({*(f"text.{key}" for key in ("dynamic_window", "sample", "sample_rule", "workers")),
                  *(f"pairs.{key}" for key in ("observed", "slot")),
                  *(f"evaluate.{key}" for key in ("benchmarks", "during_training", "interval", "log_z", "neighbours",
                                                  "resamples"))})
PLACES = {"strategy": ("configs", "strategies"), "model": ("configs", "models"), "corpus": ("corpora",)}


@dataclass(frozen=True)
class Submission:
    """One run on the leaderboard."""

    task: str
    corpus: str
    corpus_sha256: str
    protocol: dict[str, Any]   # settings of the data and of held-out scores; only runs that share them are ranked
    model: str
    strategy: str
    seed: int
    metric: str                # the task's primary one, BENCHMARK/METRIC
    scores: dict[str, float]   # BENCHMARK/METRIC -> value, of the test split and of benchmarks
    cpu_seconds: float | None
    version: str               # of embtrain
    code: str                  # SHA-256 of the package's Python files
    commit: str | None         # of the checkout; None for an installed wheel
    machine: str
    date: str
    command: str               # repeats the run

    @property
    def settings(self) -> str:
        """The command without its seed: equal for runs that differ only in the seed."""
        return self.command.replace(f" --seed {self.seed}", "")


# Parses the words after `embtrain fit` into parameters by name, and into the same words without output options.
Parse = Callable[[Sequence[str]], tuple[Mapping[str, Any], list[str]]]


def describe(folder: str | os.PathLike[str], parse: Parse) -> Submission:
    """Return the line of a finished run.

    Raises UsageError if its command cannot be repeated: another command than `embtrain fit` or `embtrain resume`, files
    of the user, uncommitted changes, or settings that the command does not give today. Raises DataError if the run is
    not finished or a file of it is damaged.
    """
    folder = Path(folder)
    path = folder / "identity.json"
    identity = run_record.read_json(path if path.exists() else None, mapping) or {}
    if plugins := identity.get("plugins"):
        raise UsageError(f"{path}: plugins: {plugins}: others do not have this code; train without it")
    settings, record = from_run(folder), run_record.read(folder)    # after the check of the code, which may be absent
    command = _command(folder, settings, identity.get("argv"), parse)
    commit = identity.get("commit")
    if commit is not None and text(commit, f"{path}: commit").endswith(DIRTY):
        raise UsageError(f"{path}: commit: {commit}: the checkout had changes without a commit; commit them and train "
                         "again")
    metric = tasks.find(settings).metric
    scores = {f"{row.benchmark}/{row.metric}": row.value for row in record.scores or []
              if row.value is not None and row.benchmark not in SUPPORTING}
    if metric not in scores:
        raise DataError(f"{folder / 'scores.json'}: has no {metric}, by which the task is ranked; train with a test "
                        "split")
    try:
        corpus = mapping(identity.get("corpus"), "corpus")
        machine = f"{text(identity.get('processor'), 'processor')}, {identity.get('cores')} cores, core " \
                  f"{text(identity.get('core'), 'core')}, threads {identity.get('threads')}"
        return decode(Submission, {
            "task": identity.get("task"), "corpus": settings.corpus, "corpus_sha256": corpus.get("sha256"),
            "protocol": _protocol(settings), "model": settings.model.name, "strategy": settings.strategy,
            "seed": settings.train.seed, "metric": metric, "scores": scores,
            "cpu_seconds": record.metrics.reached.get("cpu_seconds") if record.metrics else None,
            "version": identity.get("embtrain"), "code": identity.get("code"),
            "commit": commit, "machine": machine, "date": str(identity.get("begun", ""))[:10], "command": command})
    except ValueError as error:
        raise DataError(f"{path}: {error}") from error


def _protocol(settings: Settings) -> dict[str, Any]:
    """Return the settings that decide which examples are held out, and how they are scored."""
    task = tasks.find(settings)
    return {key: value for key, value in flatten_values(settings).items()
            if key.partition(".")[0] in (task.section, "evaluate") and key not in task.strategy_keys | FREE}


def _command(folder: Path, settings: Settings, argv: Any, parse: Parse) -> str:
    """Return the command that repeats a run. Raises UsageError if there is none."""
    words = argv if isinstance(argv, list) and all(isinstance(word, str) for word in argv) else []
    if len(words) < 2 or PurePath(words[0]).name not in PROGRAMS or words[1] not in ("fit", "resume"):
        raise UsageError(f"{folder}: was not trained by the command `embtrain fit` or by a comparison, so no command "
                         "repeats it; train it with that command")
    values, repeated = parse(words[2:] if words[1] == "fit" else _fit_words(folder, settings))
    known = {key: shipped.names(*PLACES[key]) for key in ("strategy", "corpus")}
    for flag, name, names in (("--config", values["config"], []),
                              ("--strategy", values["negatives"], known["strategy"]),
                              ("--corpus", values["corpus"], known["corpus"])):
        if name is not None and str(name) not in names:
            raise UsageError(f"{folder}: {flag} {name}: is a file that others do not have; train with a name that "
                             "`embtrain list` prints, and with --set")
    short = {"train.epochs": values["epochs"], "model.dim": values["dim"]}
    sets = [*(f"{key}={value}" for key, value in short.items() if value is not None), *(values["overrides"] or [])]
    repeated_settings = resolve(values["negatives"], values["model"], values["corpus"], values["loss"], None, sets,
                                values["seed"], values["threads"], values["device"], tuned=values["tuned"])
    there, here = flatten_values(settings), flatten_values(repeated_settings)
    for key in ("benchmarks", "during_training"):
        if own := [name for name in getattr(repeated_settings.evaluate, key, []) if os.path.isabs(name)]:
            raise UsageError(f"{folder}: evaluate.{key}: {own[0]}: is a file that others do not have; train without "
                             "it, and score the run on it: embtrain evaluate RUN --on FILE")
    for key, value in here.items():
        is_file = isinstance(value, str) and os.path.isabs(value)    # a setting that is a path is absolute
        if is_file or value not in known.get(key, [value]):
            raise UsageError(f"{folder}: {key}: {value}: is a file that others do not have; train without it")
    if differing := sorted(key for key in {*there, *here} if there.get(key) != here.get(key)):
        raise UsageError(f"{folder}: {differing[0]}: is {describe_value(there.get(differing[0]))} in the run, and its "
                         f"command now gives {describe_value(here.get(differing[0]))}; train it again")
    return shlex.join(["embtrain", "fit", *repeated, *(
        [] if values["seed"] is not None else ["--seed", str(settings.train.seed)])])


def _fit_words(folder: Path, settings: Settings) -> list[str]:
    """Return the words after `embtrain fit` for a run that `resume` began, as in a comparison, from its settings."""
    named = {"strategy": settings.strategy, "model": settings.model.name, "corpus": settings.corpus}
    if files := [f"{key}: {value}" for key, value in named.items() if value not in shipped.names(*PLACES[key])]:
        raise UsageError(f"{folder}: {files[0]}: is a file that others do not have; train without it")
    default = flatten_values(resolve(settings.strategy, settings.model.name, settings.corpus))
    sets = [f"{key}={json.dumps(value)}" for key, value in flatten_values(settings).items()
            if (key not in default or default[key] != value) and key != "train.seed"]
    return [word for name, value in (*named.items(), ("seed", str(settings.train.seed)), *(("set", x) for x in sets))
            for word in (f"--{name}", value)]


def default_file(submission: Submission) -> Path:
    """Return the file of a task and corpus in this checkout. Raises UsageError outside a checkout."""
    folder = Path(embtrain.__file__).resolve().parents[1] / "docs" / "results" / "leaderboard"
    if not folder.is_dir():
        raise UsageError("--out: is missing; outside a checkout of embtrain there is no leaderboard, so name a file")
    return folder / f"{submission.task}-{submission.corpus}.jsonl"


def read(path: str | os.PathLike[str]) -> list[Submission]:
    """Read a file of the leaderboard. Raises DataError, with the line, for a line that is not a `Submission`."""
    rows = []
    for number, line in enumerate(run_record.read_text(Path(path)).splitlines(), 1):
        try:
            row = decode(Submission, json.loads(line))
            if not row.command.startswith("embtrain fit ") or row.metric not in row.scores:
                raise ValueError("command must begin with `embtrain fit`" if row.metric in row.scores else
                                 f"scores: {row.metric} is missing")
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}:{number}: {str(error).splitlines()[0]}") from error
        rows.append(row)
    return rows


def append(path: str | os.PathLike[str], submission: Submission) -> None:
    """Append a line. Raises UsageError if the file has a line with the same command and code."""
    rows = read(path) if os.path.exists(path) else []
    if any((row.command, row.code) == (submission.command, submission.code) for row in rows):
        raise UsageError(f"{path}: already has a line with this command and code; submit a run with another seed")
    write_text(path, "".join(json.dumps(encode(row), ensure_ascii=False, allow_nan=False) + "\n"
                             for row in [*rows, submission]))

