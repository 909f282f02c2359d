"""Quality of the faster kernels: skip-gram by embtrain and by gensim over seeds, Spearman paired by seed.

    difference = mean over seeds of (ours − gensim's), each the mean of ρ over WordSim353, SimLex-999 and MEN,
    with its t interval

PAIR      5 private negatives for each pair (word2vec, gensim)
CENTRE    5 for each window
BLOCK     16 for 16 windows, with weights that sum to 5 per row
BLOCK64   the same for 64 windows

Each is shuffled, as by default, or `-order`: windows in the order of the text, like gensim. A round is one seed of both
programs, which train 3 epochs.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from embtrain.cli.bench.harness import words
from embtrain.cli.bench.harness.base import Group, Timed, Work, choose, run
from embtrain.cli.bench.harness.paired import difference
from embtrain.cli.bench.text import skipgram

CORPUS, TOKENS, EPOCHS, MIN_COUNT, DIM = "english-18m", 0, 3, 5, 100
BENCHMARKS = ("wordsim353", "simlex999", "men")
WIDE = {"negatives.share_draws_by": "block", "negatives.share_size": 64, "negatives.k": 16, "negatives.total_weight": 5}
LAYOUTS: dict[str, dict[str, Any]] = {**skipgram.LAYOUTS, "BLOCK64": WIDE}
ORDERS = {"": True, "-order": False}


def bench(rounds: int, threads: Sequence[int], only: Sequence[str] | None, corpus: str | None) -> dict[str, Any]:
    """One round for each seed; `only` names some cases, for example PAIR or BLOCK-order."""
    known = {f"{layout}{suffix}-t{n}": (n, settings | {"train.shuffle": shuffle}) for n in threads
             for layout, settings in LAYOUTS.items() for suffix, shuffle in ORDERS.items()}
    chosen = choose(known, only)
    file = words.prefix(corpus or CORPUS, TOKENS)
    text = words.read(file, MIN_COUNT)
    benchmarks = words.scored(text.corpus.vocabulary.words, BENCHMARKS, corpus or CORPUS)
    found: dict[tuple[str, str], list[float]] = {}
    groups = []
    for n in dict.fromkeys(known[case][0] for case in chosen):
        cases = [case for case in chosen if known[case][0] == n]
        ours = {case: _kept(found, case, partial(
            words.ours, file, "sgns", MIN_COUNT, n,
            {"model.dim": DIM, "train.engine": "fused", **known[case][1], "train.epochs": EPOCHS},
            benchmarks=benchmarks)) for case in cases}
        theirs = _kept(found, f"gensim-t{n}", partial(words.gensim, file, MIN_COUNT, n, DIM, EPOCHS,
                                                          benchmarks=benchmarks))
        groups.append(Group(n, ours, {"gensim": theirs}))
    about = {"corpus": corpus or CORPUS, "tokens": len(text.corpus.ids), "words": len(text.corpus.vocabulary),
             "epochs": EPOCHS, "dim": DIM, "settings": words.shared("train.epochs"),
             "benchmarks": benchmarks}
    summary = run("quality", f"s of {EPOCHS} epochs", groups, rounds, about)
    mean_scores = {system: values for (system, part), values in found.items() if part == "mean"}
    summary["spearman"] = {f"{system}/{part}": [round(x, 4) for x in values]
                           for (system, part), values in found.items()}
    summary["difference"] = {case: difference(mean_scores[case], mean_scores[f"gensim-t{known[case][0]}"], "spearman")
                             for case in chosen}
    return summary


def _kept(found: dict[tuple[str, str], list[float]], system: str, train: Callable[..., Timed]) -> Work:
    """Work that trains with seeds 1, 2, … and records the quality of each."""
    seeds = itertools.count(1)

    def work() -> Timed:
        timing = train(seed=next(seeds))
        worth = timing.quality
        for part, value in {**worth, "mean": statistics.fmean(worth.values())}.items():
            found.setdefault((system, part), []).append(value)
        return timing
    return work
