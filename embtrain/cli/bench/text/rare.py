"""Quality of subwords: skip-gram with them by embtrain and by gensim over seeds, Spearman on all pairs of Rare Word.

    difference = mean over seeds of (ours − gensim's) on Rare Word, with its t interval

A round is one seed of both programs: as many epochs, dimensions, negatives and n-grams, equal window, subsampling and
learning rate. `-order` reads windows in text order like gensim, the others are shuffled, as by default. Words outside
the vocabulary have the vector that their n-grams give, so no pair is left out. WordSim353, SimLex-999 and MEN are
recorded too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from embtrain.cli.bench.harness import words
from embtrain.cli.bench.harness.base import Group, Timed, Work, choose, run
from embtrain.cli.bench.harness.paired import difference, over_seeds
from embtrain.cli.bench.text import quality, skipgram, subword

BENCHMARKS = ("rareword", *quality.BENCHMARKS)


def bench(rounds: int, threads: Sequence[int], only: Sequence[str] | None, corpus: str | None) -> dict[str, Any]:
    """One round for each seed; `only` names some cases, for example PAIR. DataError without the file of Rare Word."""
    known = {f"{layout}{suffix}-t{n}": (n, settings | {"train.shuffle": shuffle}) for n in threads
             for layout, settings in skipgram.LAYOUTS.items() for suffix, shuffle in quality.ORDERS.items()}
    chosen = choose(known, only)
    file = words.prefix(corpus or quality.CORPUS, quality.TOKENS)
    text = words.read(file, quality.MIN_COUNT)
    unknown = subword.unknown_words(BENCHMARKS, text.corpus.vocabulary.index)
    names = [*text.corpus.vocabulary.words, *unknown]
    found: dict[str, list[float]] = {}
    groups = []
    for n in dict.fromkeys(known[case][0] for case in chosen):
        ours = {case: _of_rare_words(found, case, partial(
            words.ours, file, "sgns", quality.MIN_COUNT, n,
            {"model.dim": quality.DIM, "model.subword": subword.SUBWORD, "train.engine": "fused",
             **known[case][1], "train.epochs": quality.EPOCHS},
            benchmarks=BENCHMARKS, unknown=unknown)) for case in chosen if known[case][0] == n}
        theirs = _of_rare_words(found, f"gensim-t{n}",
                                partial(subword.gensim, file, n, BENCHMARKS, names, quality.EPOCHS))
        groups.append(Group(n, ours, {"gensim": theirs}))
    about = {"corpus": corpus or quality.CORPUS, "tokens": len(text.corpus.ids),
             "words": len(text.corpus.vocabulary), "unknown": len(unknown), "epochs": quality.EPOCHS,
             "dim": quality.DIM, "subword": subword.SUBWORD, "settings": words.shared("train.epochs"),
             "benchmarks": list(BENCHMARKS)}
    summary = run("rare", f"s of {quality.EPOCHS} epochs", groups, rounds, about)
    summary["spearman"] = {system: [round(x, 4) for x in values] for system, values in found.items()}
    summary["difference"] = {case: difference(found[case], found[f"gensim-t{known[case][0]}"], "spearman")
                             for case in chosen}
    return summary


def _of_rare_words(found: dict[str, list[float]], system: str, train: Callable[..., Timed]) -> Work:
    return over_seeds(train, itemgetter(BENCHMARKS[0]), found.setdefault(system, []))
