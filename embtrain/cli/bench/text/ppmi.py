"""Counting against training: skip-gram at the CPU time that PPMI-SVD takes, over seeds.

    difference = mean over seeds of (ours − PPMI-SVD's), each the mean of ρ over the even pairs of four benchmarks, with
    its t interval

PAIR            5 negatives for each pair, shuffled
BLOCK64-order   16 negatives with a noise mass of 5 for 64 windows, in the order of the text

PPMI-SVD [levy2015] counts the pairs of one epoch, with the text, vocabulary, window, subsampling and dimension of the
bench budget; its time is that of counting, logarithms and SVD. Each case trains sgns for as many whole epochs, at least
one, as take the same CPU time. The shift of PPMI-SVD, 1 or 5, its exponent, 0, 0.5 or 1, and the rate of sgns, 0.025,
0.05 or 0.1, are chosen by the mean over the odd pairs, with seed 0 (`about.trials`). A round is one seed.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import threadpoolctl

from embtrain.cli.bench.harness import cooccurrences, words
from embtrain.cli.bench.harness.base import Group, Timed, Work, choose, run, timed
from embtrain.cli.bench.harness.paired import difference
from embtrain.cli.bench.text import budget, quality
from embtrain.common import terminal
from embtrain.common.errors import DataError
from embtrain.data.vectors.vectors import Vectors

SHIFTS = (1.0, 5.0)
EXPONENTS = (0.0, 0.5, 1.0)
RIVAL = "ppmi-svd"


def bench(rounds: int, threads: Sequence[int], only: Sequence[str] | None, corpus: str | None) -> dict[str, Any]:
    """One round for each seed; `only` names some cases, for example PAIR. ResourceError if the counts do not fit."""
    known = {f"{layout}-t{n}": (n, layout) for n in threads for layout in budget.LAYOUTS}
    chosen = choose(known, only)
    file = words.prefix(corpus or quality.CORPUS, quality.TOKENS)
    text = words.read(file, quality.MIN_COUNT)
    cooccurrences.check_memory(text.windows, len(text.corpus.vocabulary), quality.DIM)
    benchmarks = words.scored(text.corpus.vocabulary.words, budget.BENCHMARKS, corpus or quality.CORPUS, words.HALVES)
    found: dict[str, list[float]] = {}
    trials: dict[str, Mapping[str, float | None]] = {}
    groups = []
    for n in dict.fromkeys(known[case][0] for case in chosen):
        rival = f"{RIVAL}-t{n}"
        theirs = best(file, n, benchmarks)
        trials[rival] = theirs.scores
        ours: dict[str, Work] = {}
        for case in (case for case in chosen if known[case][0] == n):
            layout = known[case][1]
            epoch = budget.ours(file, n, layout, budget.RATES[0], 1)(seed=0, benchmarks=()).cpu_seconds
            epochs = max(1, int(theirs.seconds / epoch))
            choice = budget.best({f"rate {rate}, epochs {epochs}": budget.ours(file, n, layout, rate, epochs)
                                  for rate in budget.RATES}, benchmarks)
            trials[case], ours[case] = choice.scores, budget.kept(found, case, choice.train, benchmarks)
        groups.append(Group(n, ours, {RIVAL: budget.kept(found, rival, theirs.train, benchmarks)}))
    about = {"corpus": corpus or quality.CORPUS, "tokens": len(text.corpus.ids), "words": len(text.corpus.vocabulary),
             "dim": quality.DIM, "settings": words.shared("train.lr", "train.epochs"),
             "benchmarks": benchmarks, "trials": trials}
    summary = run("ppmi", "s of counting and SVD, or training", groups, rounds, about)
    summary["spearman"] = {system: [round(x, 4) for x in values] for system, values in found.items()}
    summary["difference"] = {case: difference(found[case], found[f"{RIVAL}-t{known[case][0]}"], "spearman")
                             for case in chosen}
    return summary


def best(file: Path, threads: int, benchmarks: Sequence[str]) -> budget.Choice:
    """PPMI-SVD with the shift and the exponent that have the highest mean over the odd pairs.

    All trials share the counts, and those of one shift the SVD. DataError if no benchmark can judge the vectors.
    """
    scores: dict[str, float | None] = {}
    seconds, names = list[float](), [f"{name}.odd" for name in benchmarks]
    text = words.read(file, quality.MIN_COUNT, seed=0)
    n_words = len(text.corpus.vocabulary)
    with threadpoolctl.threadpool_limits(threads):
        _, counting, counts = timed(lambda: cooccurrences.count(text.windows, n_words))
        for shift in SHIFTS:
            _, cpu, factors = timed(partial(cooccurrences.factors, counts, shift, quality.DIM, 0))
            seconds.append(counting + cpu)
            for exponent in EXPONENTS:
                vectors = Vectors(text.corpus.vocabulary.words, factors.vectors(exponent))
                worth = words.quality(vectors, names)
                name = f"shift {shift:g}, exponent {exponent:g}"
                scores[name] = round(statistics.fmean(worth.values()), 4) if worth else None
                terminal.show(f"trial · {name} · {scores[name]}", flush=True)
    usable = {settings: score for settings, score in zip(itertools.product(SHIFTS, EXPONENTS), scores.values(),
                                                         strict=True) if score is not None}
    if not usable:
        raise DataError(f"bench ppmi: no vectors can be judged by {', '.join(benchmarks)}; give a longer text "
                        "of everyday English")
    shift, exponent = max(usable, key=usable.__getitem__)
    return budget.Choice(partial(train, file, threads, shift, exponent), statistics.median(seconds), scores)


def train(file: Path, threads: int, shift: float, exponent: float, seed: int, benchmarks: Sequence[str]) -> Timed:
    """One run of PPMI-SVD on a file of words, whose ids come from the cache."""
    text = words.read(file, quality.MIN_COUNT, seed=seed)
    vocabulary = text.corpus.vocabulary.words
    with threadpoolctl.threadpool_limits(threads):
        seconds, cpu, table = timed(lambda: cooccurrences.factors(
            cooccurrences.count(text.windows, len(vocabulary)), shift, quality.DIM, seed).vectors(exponent))
    return Timed(seconds, cpu, words.quality(Vectors(vocabulary, table), benchmarks))
