"""Word vectors at equal CPU time: skip-gram by embtrain and by gensim, each with its settings chosen, over seeds.

    difference = mean over seeds of (ours − gensim's), each the mean of ρ over the even pairs of four benchmarks, with
    its t interval

equal   as many whole epochs, at least one, as take the CPU time of gensim
tenth   the same with a tenth of that time

gensim trains 3 epochs at a rate of 0.0125, 0.025, 0.05, 0.075, 0.1 or 0.15. A case trains sgns in one of two layouts at
0.025, 0.05 or 0.1: as many trials as gensim has. Settings are chosen by the mean over the odd pairs of the benchmarks,
with seed 0 (`about.trials`; null: diverged). A round is one seed of the chosen settings.

PAIR            5 negatives for each pair, as gensim, shuffled
BLOCK64-order   16 negatives with a noise mass of 5 for 64 windows, in the order of the text
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from embtrain.cli.bench.harness import words
from embtrain.cli.bench.harness.base import Group, Timed, Work, choose, run
from embtrain.cli.bench.harness.paired import difference, over_seeds
from embtrain.cli.bench.text import quality, skipgram
from embtrain.common import terminal
from embtrain.common.errors import DataError
from embtrain.train.checks.divergence_remedies import DivergedError

BENCHMARKS = (*quality.BENCHMARKS, "rareword")
EPOCHS = 3                                     # of gensim
SHARES = {"equal": 1.0, "tenth": 0.1}          # of gensim's CPU time
LAYOUTS: dict[str, dict[str, Any]] = {"PAIR": skipgram.LAYOUTS["PAIR"],
                                      "BLOCK64-order": {**quality.WIDE, "train.shuffle": False}}
RATES = (0.025, 0.05, 0.1)
GENSIM_RATES = (0.0125, 0.025, 0.05, 0.075, 0.1, 0.15)

Train = Callable[..., Timed]                   # by seed and benchmarks


class Choice(NamedTuple):
    """The best of several settings."""

    train: Train
    seconds: float                     # CPU time of a trial, median
    scores: dict[str, float | None]    # mean ρ over the odd pairs by settings; None: diverged


def bench(rounds: int, threads: Sequence[int], only: Sequence[str] | None, corpus: str | None) -> dict[str, Any]:
    """One round for each seed; `only` names some cases, for example tenth. DataError if all settings diverge."""
    known = {f"{name}-t{n}": (n, share) for n in threads for name, share in SHARES.items()}
    chosen = choose(known, only)
    file = words.prefix(corpus or quality.CORPUS, quality.TOKENS)
    text = words.read(file, quality.MIN_COUNT)
    benchmarks = words.scored(text.corpus.vocabulary.words, BENCHMARKS, corpus or quality.CORPUS, words.HALVES)
    found: dict[str, list[float]] = {}
    trials: dict[str, Mapping[str, float | None]] = {}
    groups = []
    for n in dict.fromkeys(known[case][0] for case in chosen):
        rival = f"gensim-t{n}"
        theirs = best({f"rate {rate}": partial(words.gensim, file, quality.MIN_COUNT, n, quality.DIM, EPOCHS, rate=rate)
                       for rate in GENSIM_RATES}, benchmarks)
        trials[rival] = theirs.scores
        works: dict[str, Work] = {}
        of_an_epoch = {name: ours(file, n, name, RATES[0], 1)(seed=0, benchmarks=()).cpu_seconds for name in LAYOUTS}
        for case in (case for case in chosen if known[case][0] == n):
            epochs = {name: max(1, int(known[case][1] * theirs.seconds / of_an_epoch[name])) for name in LAYOUTS}
            choice = best({f"{name}, rate {rate}, epochs {epochs[name]}": ours(file, n, name, rate, epochs[name])
                           for name in LAYOUTS for rate in RATES}, benchmarks)
            trials[case], works[case] = choice.scores, kept(found, case, choice.train, benchmarks)
        groups.append(Group(n, works, {"gensim": kept(found, rival, theirs.train, benchmarks)}))
    about = {"corpus": corpus or quality.CORPUS, "tokens": len(text.corpus.ids), "words": len(text.corpus.vocabulary),
             "epochs": EPOCHS, "dim": quality.DIM, "settings": words.shared("train.lr", "train.epochs"),
             "benchmarks": benchmarks, "trials": trials}
    summary = run("budget", "s of training", groups, rounds, about)
    summary["spearman"] = {system: [round(x, 4) for x in values] for system, values in found.items()}
    summary["difference"] = {case: difference(found[case], found[f"gensim-t{known[case][0]}"], "spearman")
                             for case in chosen}
    return summary


def best(candidates: Mapping[str, Train], benchmarks: Sequence[str]) -> Choice:
    """The candidate with the highest mean over the odd pairs. DataError if none has one."""
    seconds, scores = list[float](), dict[str, float | None]()
    for name, train in candidates.items():
        try:
            timing = train(seed=0, benchmarks=[f"{name}.odd" for name in benchmarks])
        except DivergedError:
            scores[name] = None
        else:
            seconds.append(timing.cpu_seconds)
            scores[name] = round(statistics.fmean(timing.quality.values()), 4) if timing.quality else None
        terminal.show(f"trial · {name} · {'diverged' if scores[name] is None else scores[name]}", flush=True)
    usable = {name: score for name, score in scores.items() if score is not None}
    if not usable:
        raise DataError(f"bench budget: no vectors of {', '.join(candidates)} can be judged by "
                        f"{', '.join(benchmarks)}; give a longer text of everyday English")
    return Choice(candidates[max(usable, key=usable.__getitem__)], statistics.median(seconds), scores)


def ours(file: Path, threads: int, layout: str, rate: float, epochs: int) -> Train:
    """Training of sgns in a layout of LAYOUTS."""
    return partial(words.ours, file, "sgns", quality.MIN_COUNT, threads, {
        "model.dim": quality.DIM, "train.engine": "fused", **LAYOUTS[layout], "train.lr": rate, "train.epochs": epochs})


def kept(found: dict[str, list[float]], system: str, train: Train, benchmarks: Sequence[str]) -> Work:
    """Work that records the mean over the even pairs."""
    return over_seeds(partial(train, benchmarks=[f"{name}.even" for name in benchmarks]),
                      lambda quality_of: statistics.fmean(quality_of.values()), found.setdefault(system, []))
