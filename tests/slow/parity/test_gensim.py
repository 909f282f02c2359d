"""sgns is word2vec, skip-gram and CBOW: with the same text and settings, WordSim353 is gensim's within seed noise.

Five seeds each; the 95 % interval (Welch's t) of the difference of the means contains 0 and is at most ±.03 wide.
"""

from __future__ import annotations

import math
import statistics
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from embtrain.data.vectors.vectors import Vectors
from embtrain.evaluate.config import WordsConfig
from embtrain.experiment import fit, resolve
from embtrain.experiment.run import scoring
from embtrain.experiment.tasks import base as tasks

SEEDS = (1, 2, 3, 4, 5)
SETS = ["text.valid=0", "text.test=0", "train.epochs=20", "evaluate.benchmarks=[wordsim353]",
        "evaluate.heldout_pairs=0",
        "evaluate.resamples=0"]


def spearman(vectors: Vectors) -> float:
    value = scoring.benchmarks(vectors, ["wordsim353"], WordsConfig(resamples=0))[0].value
    assert value is not None
    return value


def ours(seed: int, folder: Path, model: str) -> float:
    settings = resolve("sgns", model=model, sets=SETS, seed=seed, threads=1)
    return spearman(fit(settings, folder / str(seed)).word_vectors)


def gensims(seed: int, sg: int) -> float:
    from gensim.models import Word2Vec

    corpus = tasks.read(resolve("sgns", sets=SETS)).train
    words = np.array(corpus.vocabulary.words, dtype=object)
    sentences = [words[corpus.ids[a:b]].tolist() for a, b in zip(corpus.sequence, corpus.sequence[1:], strict=False)]
    model = Word2Vec(sentences, vector_size=100, window=5, min_count=1, sg=sg, negative=5, ns_exponent=0.75,
                     sample=1e-3, alpha=0.025, min_alpha=1e-4, epochs=20, workers=1, seed=seed)
    return spearman(Vectors(list(model.wv.index_to_key), model.wv.vectors))


@pytest.mark.slow
@pytest.mark.parametrize(("model", "sg"), [("skipgram", 1), ("cbow", 0)])
def test_sgns_matches_gensim_on_the_excerpt(tmp_path: Path, model: str, sg: int) -> None:
    ours_scores = [ours(seed, tmp_path, model) for seed in SEEDS]
    gensim_scores = [gensims(seed, sg) for seed in SEEDS]
    mean = statistics.mean(ours_scores) - statistics.mean(gensim_scores)
    a, b = statistics.variance(ours_scores) / len(ours_scores), statistics.variance(gensim_scores) / len(gensim_scores)
    freedom = (a + b) ** 2 / (a**2 / (len(ours_scores) - 1) + b**2 / (len(gensim_scores) - 1))
    half = float(stats.t.ppf(0.975, freedom)) * math.sqrt(a + b)
    print(f"\nours {[round(x, 4) for x in ours_scores]}\ngensim {[round(x, 4) for x in gensim_scores]}\n"
          f"difference {mean:+.4f}, 95 % interval [{mean - half:+.4f}, {mean + half:+.4f}]")
    assert half <= 0.03
    assert mean - half <= 0 <= mean + half
