"""One run on several processes, which take turns in one: quality, bytes, seconds, and a prediction for machines.

    n1, n4, n16     processes; -all: every row at every synchronization (train.sync.frequent_rows: null)
                    -blocks4: four blocks between two synchronizations (train.sync.blocks: 4)

Each case is first trained with seed 1 at the rates 0.025, 0.05, 0.1 and 0.2; the one with the highest mean Spearman on
the odd pairs of the benchmarks is used in all rounds, one for each seed, which are scored on the even pairs and on
held-out text.
Without --corpus the text is the first 5 million words of english-18m, in one epoch; a corpus is read whole, in three.

    seconds of an epoch of W words on M machines = W c / M C + W / M w (serial + p b / b' C + 8 b / B)

c: CPU seconds of a word in one process; C: cores of a machine, which share its tables without a loss; w: words of a
machine between two synchronizations; b: bytes of a synchronization for M processes, at most; B: bits per second. The
work of a synchronization (packing, folding, applying) is measured with the largest number of processes, whose
synchronizations send b' bytes. Its threads are 1, 2 and 16 in turn, by the number of the process. p: CPU seconds with
one thread, less `serial`; serial: CPU seconds of the thread that starts and awaits 16 others. That 16 cores divide p,
and that the network is as fast as its name, is extrapolated. Milliseconds of the clock are the means over the
synchronizations of the fastest of the processes with equal threads, because other work on the machine adds to them.
`hidden` is a bound: the bytes travel while the machine trains, which is not built.
"""

from __future__ import annotations

import contextlib
import itertools
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from embtrain import experiment
from embtrain.cli.bench.harness import words
from embtrain.cli.bench.harness.base import Group, Timed, choose, digits, run
from embtrain.cli.bench.harness.paired import difference
from embtrain.cli.bench.text import quality
from embtrain.common import terminal
from embtrain.common.config import as_sets
from embtrain.common.errors import DataError, UsageError
from embtrain.data.vectors.vectors import Vectors
from embtrain.evaluate.config import WordsConfig
from embtrain.experiment import grouped
from embtrain.experiment.run import components, scoring
from embtrain.experiment.run.settings import Settings
from embtrain.experiment.tasks import base as tasks
from embtrain.experiment.tasks.windows import WindowsTask
from embtrain.train.group import traffic
from embtrain.train.group.tiers import RowSchedule, counts_of
from embtrain.train.group.trainer import GroupTrainer
from embtrain.train.loop import Trainer

CORPUS, TOKENS, EPOCHS, MIN_COUNT, DIM = "english-18m", 5_000_000, 3, 5, 100
CHUNK, HELD_OUT = 32_768, 0.03
RATES = (0.025, 0.05, 0.1, 0.2)
BENCHMARKS = (*quality.BENCHMARKS, "rareword")
SIZES = (1, 4, 16)
ALL_ROWS, FOUR_BLOCKS = "-all", "-blocks4"
MACHINES, CORES, GIGABITS, BLOCKS, EPOCH_WORDS = (16, 64), (1, 16), (10, 25), (1, 4), 1e9  # of a prediction
SYNC_THREADS = (1, 2, 16)  # of synchronizations, by the number of the process
LIKELIHOOD = "test/log_likelihood"


@dataclass(frozen=True)
class TextRun:
    """A file of words, and how it is trained on."""

    file: Path
    epochs: int
    threads: int
    benchmarks: tuple[str, ...] = ()   # that score its words

    def settings(self, case: str, rate: float, seed: int) -> Settings:
        sets = {**words.OURS, "text.test": HELD_OUT, "text.min_count": MIN_COUNT, "model.dim": DIM,
                "evaluate.heldout_pairs": 8000, "train.chunk": CHUNK, "train.epochs": self.epochs, "train.lr": rate}
        if case.endswith(ALL_ROWS):
            sets["train.sync.frequent_rows"] = None
        if case.endswith(FOUR_BLOCKS):
            sets["train.sync.blocks"] = 4
        return experiment.resolve("sgns", corpus=str(self.file), seed=seed, threads=self.threads, sets=as_sets(sets))

    def read(self, seed: int = 1) -> WindowsTask:
        return cast(WindowsTask, tasks.read(self.settings("n1", RATES[0], seed)))


@dataclass
class Case:
    """Training by some processes: the rates that were tried, and the scores of each seed at the best one."""

    name: str
    text: TextRun
    scores: list[dict[str, float]] = field(default_factory=list)
    trials: dict[float, dict[str, float]] = field(default_factory=dict)
    rate: float = 0.0

    @property
    def size(self) -> int:
        return int(self.name.partition("-")[0][1:])

    def __call__(self) -> Timed:
        """Train with the next seed."""
        if not self.trials:
            timings = {rate: self._train(rate, 1) for rate in RATES}
            self.trials = {rate: timing.quality for rate, timing in timings.items()}
            self.rate = max(RATES, key=lambda rate: self.trials[rate].get("odd", self.trials[rate][LIKELIHOOD]))
            timing = timings[self.rate]
        else:
            timing = self._train(self.rate, len(self.scores) + 1)
        self.scores.append(timing.quality)
        return timing

    def _train(self, rate: float, seed: int) -> Timed:
        text, settings = self.text.read(seed), self.text.settings(self.name, rate, seed)
        components.use_threads(self.text.threads)
        with tempfile.TemporaryDirectory() as folder:
            results = grouped.simulate(settings, text, self.size, Path(folder), _prepare)
        parts, trainer = results[0]
        scores = _quality(text, parts, self.text.benchmarks)
        scores |= _exchanged([other for _, other in results if isinstance(other, GroupTrainer)])
        scores = {name: digits(value) for name, value in scores.items()}
        terminal.show(f"{self.name} · rate {rate:g} · seed {seed} · {trainer.position.cpu_seconds:.1f} CPU-s · "
                      + ", ".join(f"{name} {value:g}" for name, value in scores.items()), flush=True)
        return Timed(trainer.position.seconds, trainer.position.cpu_seconds, scores)


def bench(rounds: int, only: Sequence[str] | None, corpus: str | None, threads: Sequence[int] = (1,)
          ) -> dict[str, Any]:
    """One round for each seed; `only` names some cases, for example n4. UsageError for several numbers of threads."""
    if len(threads) > 1:
        raise UsageError("--threads: the bench group takes one number of threads; give one")
    known = [f"n{n}{suffix}" for n in SIZES for suffix in ("", ALL_ROWS, FOUR_BLOCKS) if n > 1 or not suffix]
    chosen = choose(known, only)
    file = words.prefix(corpus or CORPUS, 0 if corpus else TOKENS)
    of_text = TextRun(file, EPOCHS if corpus else 1, threads[0])
    text = of_text.read()
    if not len(text.heldout("test")):
        raise DataError(f"--corpus: {corpus or CORPUS}: is too short to hold text out; give a longer one")
    of_text = replace(of_text, benchmarks=tuple(words.scored(
        text.corpus.vocabulary.words, BENCHMARKS, corpus or CORPUS, words.HALVES, is_required=False)))
    cases = {name: Case(name, of_text) for name in chosen}
    about = {"corpus": corpus or CORPUS, "tokens": text.n_words, "words": len(text.corpus.vocabulary),
             "epochs": of_text.epochs, "dim": DIM, "chunk": CHUNK, "rates": list(RATES),
             "settings": words.shared("train.lr", "train.epochs"), "benchmarks": list(of_text.benchmarks)}
    summary = run("group", f"s of {of_text.epochs} epochs, all processes in turns", [Group(threads[0], cases)], rounds,
                  about)
    summary["rate"] = {name: case.rate for name, case in cases.items()}
    summary["trials"] = {name: {f"{rate:g}": scores for rate, scores in case.trials.items()}
                         for name, case in cases.items()}
    summary["difference"] = {} if "n1" not in cases else {
        name: {metric: difference([scores[metric] for scores in case.scores],
                                  [scores[metric] for scores in cases["n1"].scores], metric)
               for metric in (LIKELIHOOD, "even") if metric in case.scores[0]}
        for name, case in cases.items() if name != "n1"}
    summary["predicted"] = _predicted(of_text, cases, summary["ours_cpu"])
    return summary


def _quality(text: WindowsTask, parts: components.Components, benchmarks: Sequence[str]
             ) -> dict[str, float]:
    """Log-likelihood of held-out text, and Spearman on the odd and the even pairs of the benchmarks, with means."""
    config = text.evaluate.model_copy(update={"resamples": 0})
    rows = scoring.likelihood(parts, text.heldout("test"), "test", config)
    scores = {f"test/{row.metric}": row.value for row in rows if row.metric == "log_likelihood"
              and row.value is not None}
    vectors = Vectors(text.corpus.vocabulary.words, parts.model.vectors("input").detach().numpy())
    for half in ("odd", "even"):
        found = {row.benchmark: row.value for row in scoring.benchmarks(
            vectors, [f"{name}.{half}" for name in benchmarks], WordsConfig(resamples=0))
            if row.metric == "spearman" and row.value is not None}
        if found:
            scores[half] = statistics.fmean(found.values())
        if half == "even":
            scores |= found
    return scores


class TimedTraffic(traffic.Traffic):
    """Traffic with the seconds of each synchronization."""

    def __init__(self) -> None:
        super().__init__()
        self.of_each: dict[str, list[float]] = {name: [] for name in self.seconds}

    @contextlib.contextmanager
    def timed(self, name: str) -> Iterator[None]:
        before = self.seconds[name]
        with super().timed(name):
            yield
        self.of_each[name].append(self.seconds[name] - before)


def _prepare(trainer: Trainer) -> None:
    """Give a process of a group its threads for synchronizations."""
    if isinstance(trainer, GroupTrainer):
        trainer.sync_threads = SYNC_THREADS[trainer.group.rank % len(SYNC_THREADS)]
        trainer.traffic = TimedTraffic()


def _exchanged(trainers: Sequence[GroupTrainer]) -> dict[str, float]:
    """Bytes, rows and seconds of a synchronization and a process."""
    if not trainers:
        return {}
    every = [cast(TimedTraffic, one.traffic) for one in trainers]
    of_threads = {threads: [of for of, one in zip(every, trainers, strict=True) if one.sync_threads == threads]
                  for threads in SYNC_THREADS}
    return {"megabytes_per_million_words": statistics.fmean(one.per_million_words or 0 for one in every),
            "share_of_rows": statistics.fmean(one.share / one.n for one in every),
            "sync_megabytes": statistics.fmean(one.sent / one.n / 1e6 for one in every),
            "sync_cpu_seconds": statistics.median(one.cpu_seconds / one.n for one in of_threads[1]),
            "sync_serial_seconds": statistics.median(one.serial_seconds / one.n for one in of_threads[16]),
            **{f"{part}_ms_{threads}": 1e3 * statistics.fmean(map(min, zip(
                *(one.of_each[part] for one in of_threads[threads]), strict=True)))
               for part in traffic.WORK for threads in (1, 2)}}


def _predicted(text: TextRun, cases: Mapping[str, Case], cpu: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Seconds of an epoch and speed-up over one machine, by frequent_rows, machines, cores and gigabits."""
    out: dict[str, Any] = {}
    read = text.read()
    for suffix in ("", ALL_ROWS):
        measured = [case for name, case in cases.items() if case.size > 1 and name == f"n{case.size}{suffix}"]
        if "n1" not in cases or not measured:
            continue
        last = max(measured, key=lambda case: case.size)
        per_word = statistics.median(cpu["n1"]) / (read.n_words * text.epochs)
        one_thread, of_caller, megabytes = (statistics.median(scores[key] for scores in last.scores) for key in (
            "sync_cpu_seconds", "sync_serial_seconds", "sync_megabytes"))
        for blocks, machines in itertools.product(BLOCKS, MACHINES):
            moved, of_interval, settings = _moved(last, read, blocks, machines)
            sent = traffic.sent_bytes(moved, settings.train.sync, machines)
            for cores, gigabits in itertools.product(CORES, GIGABITS):
                alone, n_syncs = EPOCH_WORDS * per_word / cores, EPOCH_WORDS / machines / of_interval
                serial = of_caller if cores > 1 else 0.0
                busy = alone / machines / n_syncs + serial + (one_thread - serial) * sent / 1e6 / megabytes / cores
                network = 8 * sent / gigabits / 1e9
                seconds, hidden = n_syncs * (busy + network), n_syncs * max(busy, network)
                key = (f"{machines} machines of {cores} cores, {gigabits} Gb/s, {blocks} blocks"
                       f"{suffix and ', all rows'}")
                out[key] = {"seconds": digits(seconds), "speed_up": digits(alone / seconds),
                            "hidden": digits(alone / hidden),
                            "megabytes_per_million_words": digits(sent / of_interval)}
                terminal.show(f"predicted for a billion words · {key} · {seconds:,.1f} s, {alone / seconds:.1f} "
                              f"times one machine, {alone / hidden:.1f} with a hidden exchange", flush=True)
    return out


def _moved(case: Case, read: WindowsTask, interval: int, machines: int) -> tuple[list[traffic.Moved], float, Settings]:
    """Rows that one of some machines moves in an interval of blocks, its words, and the settings."""
    settings = case.text.settings(case.name, case.rate, 1)
    parts = components.build(settings, read)
    n = read.examples.n_blocks(0, CHUNK)
    words_of_interval = read.n_words * min(interval, n) / n
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(parts.model, parts.source, parts.loss, read.examples, parts.train, Path(folder), dict)
        schedule = RowSchedule(counts_of(parts.model), settings.train.sync.frequent_rows,
                               round(EPOCH_WORDS / machines / words_of_interval))
        moved = traffic.MovedRows(traffic.tables_of(parts.model), schedule.tiers())
        for _, block in zip(range(interval), trainer.read_blocks(0, CHUNK, 0, True), strict=False):
            trainer.run_step(block)
    return moved.count(), words_of_interval, settings
