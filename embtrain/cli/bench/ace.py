"""ACE: training seconds of `ace`, and of `ace-full` where it is feasible, compared with `sgns` on the same text.

sgns shares its draws by window like ace, so the difference is the adversary: its draws, densities and steps. All run on
the fused engine, over the same windows, for the same number of epochs. sgns takes the role of the rival: `ratio` is
sgns ÷ ace, and `times_sgns` is the inverse, the time of ace in units of sgns.

small   gensim-wiki, words with at least 5 occurrences: about 9,000
large   the first 5 million words of english-18m, all words: about 51,000
own     --corpus, words with at least 5 occurrences
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from embtrain.cli.bench.harness import words
from embtrain.cli.bench.harness.base import Group, choose, digits, run


class Use(NamedTuple):
    """A text and the strategies trained on it."""

    corpus: str
    tokens: int                   # 0: all
    min_count: int
    epochs: int                   # several on a small text, because the adversary takes few steps there
    strategies: tuple[str, ...]


TEXTS = {"small": Use("gensim-wiki", 0, 5, 3, ("ace", "ace-full")),
         "large": Use("english-18m", 5_000_000, 1, 1, ("ace",))}
RIVAL = {"negatives.share_draws_by": "window"}


def bench(rounds: int, threads: Sequence[int], only: Sequence[str] | None, corpus: str | None) -> dict[str, Any]:
    """Rounds of every case; `only` names some, for example ace-small."""
    texts = {"own": TEXTS["small"]._replace(corpus=corpus)} if corpus else TEXTS
    names = {(size, n): {f"{strategy}-{size}-t{n}": strategy for strategy in use.strategies}
             for size, use in texts.items() for n in threads}
    chosen = set(choose([name for of_group in names.values() for name in of_group], only))
    groups, about = [], {}
    for size, use in texts.items():
        if chosen.isdisjoint(name for n in threads for name in names[size, n]):
            continue
        file = words.prefix(use.corpus, use.tokens, {"text.min_count": use.min_count})
        text = words.read(file, use.min_count)
        about[size] = {"corpus": use.corpus, "tokens": len(text.corpus.ids), "words": len(text.corpus.vocabulary),
                       "epochs": use.epochs}
        shared = {"train.epochs": use.epochs, "train.engine": "fused"}
        for n in threads:
            train = partial(words.ours, file, min_count=use.min_count, threads=n)
            ours = {name: partial(train, strategy, sets=shared) for name, strategy in names[size, n].items()
                    if name in chosen}
            if ours:
                groups.append(Group(n, ours, {"sgns": partial(train, "sgns", sets=shared | RIVAL)}))
    summary = run("ace", "s of training", groups, rounds, {"texts": about, "settings": words.shared("train.epochs")})
    sgns = summary["rivals"]["sgns"]
    return summary | {"times_sgns": {case: digits(statistics.median(times) / statistics.median(sgns[case]))
                                     for case, times in summary["ours"].items()}}
