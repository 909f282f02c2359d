"""Skip-gram with subwords: one epoch of a text by the fused engine, fastText and gensim's FastText.

PAIR      5 private negatives for each pair (fastText, gensim)
CENTRE    5 for each window
BLOCK     16 for 16 windows, with weights that sum to 5 per row

All hash the n-grams of 3 to 6 characters to 2 million rows and take the mean of a word's rows, at equal window,
negatives, subsampling and learning rate, in text order. Quality is Spearman on Rare Word, if its file is here, and
WordSim353, where words outside the vocabulary have the vector that their n-grams give. Reading the vocabulary and
creating tables is not timed: for fastText, which does both in the same call, a call of no epochs is subtracted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from embtrain.cli.bench.harness import words
from embtrain.cli.bench.harness.base import Group, Timed, choose, digits, find_rival, run, timed
from embtrain.cli.bench.text import skipgram
from embtrain.common.errors import EmbtrainError, ResourceError
from embtrain.data.catalogue import fetch
from embtrain.data.catalogue.recipes import load_recipe
from embtrain.data.vectors.vectors import Vectors
from embtrain.evaluate.words import similarity

CORPUS, TOKENS, MIN_COUNT, DIM, K = "english-18m", 5_000_000, 5, 100, 5
SUBWORD: dict[str, Any] = {"min_n": 3, "max_n": 6, "buckets": 2_000_000, "pooling": "mean"}
BENCHMARKS = ("wordsim353", "rareword")


def bench(rounds: int, threads: Sequence[int], only: Sequence[str] | None, corpus: str | None) -> dict[str, Any]:
    """Rounds of every layout; `only` names some, for example CENTRE."""
    known = {f"{layout}-t{n}": (n, settings) for n in threads for layout, settings in skipgram.LAYOUTS.items()}
    chosen = {name: known[name] for name in choose(known, only)}
    has_fasttext, version = find_rival("fasttext", "fasttext-numpy2-wheel", "fasttext")
    file = words.prefix(corpus or CORPUS, TOKENS)
    text = words.read(file, MIN_COUNT)
    benchmarks = [name for name in BENCHMARKS if _is_here(name)]
    vocabulary = text.corpus.vocabulary
    unknown = unknown_words(benchmarks, vocabulary.index)
    groups = []
    for n in dict.fromkeys(n for n, _ in chosen.values()):
        ours = {name: partial(words.ours, file, "sgns", MIN_COUNT, n,
                              {"model.dim": DIM, "model.subword": SUBWORD, "train.engine": "fused",
                               "train.shuffle": False, **settings}, benchmarks=benchmarks, unknown=unknown)
                for name, (of_threads, settings) in chosen.items() if of_threads == n}
        rivals: dict[str, Callable[[], Timed]] = {
            "gensim": partial(gensim, file, n, benchmarks, [*vocabulary.words, *unknown])}
        if has_fasttext:
            rivals = {"fasttext": partial(fasttext, file, n, benchmarks, [*vocabulary.words, *unknown]), **rivals}
        groups.append(Group(n, ours, rivals))
    about = {"corpus": corpus or CORPUS, "tokens": len(text.corpus.ids), "words": len(vocabulary),
             "unknown": len(unknown), "dim": DIM, "subword": SUBWORD, "settings": words.SHARED, "fasttext": version,
             "measured": "one epoch of training; reading the vocabulary and creating tables is not timed"}
    summary = run("subword", "s an epoch", groups, rounds, about)
    per_second = {case: digits(len(text.corpus.ids) / float(np.median(seconds)))
                  for case, seconds in summary["ours"].items()}
    return summary | {"words_per_second": per_second}


def _is_here(benchmark: str) -> bool:
    try:
        fetch.gold_path(load_recipe("evals", benchmark))
    except EmbtrainError:
        return False
    return True


def unknown_words(benchmarks: Sequence[str], index: dict[str, int]) -> list[str]:
    """The words of the benchmarks that the vocabulary lacks, in lower case like the text."""
    recipes = [load_recipe("evals", name) for name in benchmarks]
    pairs = [pair for recipe in recipes for pair in similarity.read_pairs(fetch.gold_path(recipe), recipe.format)]
    names = sorted({word.lower() for pair in pairs for word in (pair.word1, pair.word2)})
    return [word for word in names if word not in index]


def fasttext(file: Path, threads: int, benchmarks: Sequence[str], names: Sequence[str]) -> Timed:
    """One training run of fastText."""
    import fasttext as library

    def train(epochs: int) -> Any:
        try:
            return library.train_unsupervised(
                str(file), model="skipgram", dim=DIM, ws=words.SHARED["text.window"], epoch=epochs, minCount=MIN_COUNT,
                neg=K, loss="ns", minn=SUBWORD["min_n"], maxn=SUBWORD["max_n"], bucket=SUBWORD["buckets"],
                t=words.SHARED["text.sample"], lr=words.SHARED["train.lr"], thread=threads, verbose=0)
        except RuntimeError as error:  # its loss can become NaN on a small text, in some runs
            raise ResourceError(f"fastText: its training ended with {str(error).rstrip('.')}; repeat the command, give "
                                "a longer text, or uninstall fastText to time the others") from error

    before, cpu_before, _ = timed(lambda: train(0))
    seconds, cpu, model = timed(lambda: train(1))
    table = np.stack([model.get_word_vector(name) for name in names])
    return Timed(seconds - before, cpu - cpu_before, words.quality(Vectors(list(names), table), benchmarks))


def gensim(file: Path, threads: int, benchmarks: Sequence[str], names: Sequence[str], epochs: int = 1,
           seed: int = 1) -> Timed:
    """One training run of gensim's FastText, with its fastest reader."""
    from gensim.models import FastText

    model = FastText(vector_size=DIM, window=words.SHARED["text.window"], min_count=MIN_COUNT, workers=threads, sg=1,
                     negative=K, sample=words.SHARED["text.sample"], alpha=words.SHARED["train.lr"],
                     min_alpha=words.SHARED["train.min_lr"], min_n=SUBWORD["min_n"], max_n=SUBWORD["max_n"],
                     bucket=SUBWORD["buckets"], seed=seed)
    model.build_vocab(corpus_file=str(file))
    seconds, cpu, _ = timed(lambda: model.train(corpus_file=str(file), total_examples=model.corpus_count,
                                                total_words=model.corpus_total_words, epochs=epochs))
    table = np.stack([model.wv[name] for name in names])
    return Timed(seconds, cpu, words.quality(Vectors(list(names), table), benchmarks))
