"""Reading: a file of words -> vocabulary, counts and ids on disk, by embtrain and by gensim's build_vocab.

gensim does less: it only counts, and parses the file again in every epoch. `second-start` is the same call on a text
that is in the cache.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from embtrain.cli.bench.harness import words
from embtrain.cli.bench.harness.base import Group, Timed, choose, digits, run, timed
from embtrain.data.text import corpus as text
from embtrain.data.text.corpus import TextConfig
from embtrain.experiment.run import components

CORPUS, MIN_COUNT = "english-18m", 5
KINDS = ("read", "second-start")
CONFIG = TextConfig(min_count=MIN_COUNT, tokenizer="whitespace", valid=0, test=0)


def bench(rounds: int, threads: Sequence[int], only: Sequence[str] | None, corpus: str | None) -> dict[str, Any]:
    """Rounds of every case; `only` names some, for example second-start."""
    chosen = choose([f"{kind}-t{n}" for n in threads for kind in KINDS], only)
    file = words.prefix(corpus or CORPUS, 0)
    size = file.stat().st_size
    with tempfile.TemporaryDirectory() as known:
        text.load([file], "text", CONFIG, Path(known), "bench")
        groups = []
        for n in threads:
            ways = {"read": partial(_read, file, n, None), "second-start": partial(_read, file, n, known)}
            ours = {name: way for kind, way in ways.items() if (name := f"{kind}-t{n}") in chosen}
            if ours:
                groups.append(Group(n, ours, {"gensim": partial(_gensim, file)}))
        summary = run("reading", "s", groups, rounds, {"corpus": corpus or CORPUS, "bytes": size,
                                                       "min_count": MIN_COUNT})
    speed = {case: digits(size / 1e6 / statistics.median(times)) for case, times in summary["ours"].items()}
    return summary | {"megabytes_per_second": speed}


def _read(file: Path, threads: int, cache: str | None) -> Timed:
    components.use_threads(threads)
    with tempfile.TemporaryDirectory() as fresh:
        seconds, cpu, corpus = timed(lambda: text.load([file], "text", CONFIG, Path(cache or fresh), "bench"))
        return Timed(seconds, cpu, {"words": len(corpus.vocabulary), "tokens": corpus.vocabulary.total})


def _gensim(file: Path) -> Timed:
    from gensim.models import Word2Vec

    model = Word2Vec(min_count=MIN_COUNT, workers=1)
    seconds, cpu, _ = timed(lambda: model.build_vocab(corpus_file=str(file)))
    return Timed(seconds, cpu, {"words": len(model.wv), "tokens": model.corpus_total_words})
