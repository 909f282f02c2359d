"""Skip-gram and CBOW on one text by embtrain, by gensim and by FULL-W2V, shared by the benchmarks on words.

embtrain and gensim train one epoch on the same file of words, one sequence a line; reading the vocabulary and writing
vectors are not timed. gensim parses the file while it trains (corpus_file, its fastest reader); embtrain trains from
ids in the cache.
"""

from __future__ import annotations

import hashlib
import logging
import math
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from embtrain import experiment
from embtrain.cli.bench.harness.base import Timed, children_seconds, timed
from embtrain.common.config import as_sets
from embtrain.common.errors import DataError, ResourceError
from embtrain.common.files import write_atomically
from embtrain.data.catalogue import fetch
from embtrain.data.text.corpus import Corpus
from embtrain.data.vectors import vectors as vectors_file
from embtrain.data.vectors.vectors import Vectors
from embtrain.evaluate.config import WordsConfig
from embtrain.experiment.run import components, scoring
from embtrain.experiment.tasks import base as tasks
from embtrain.experiment.tasks.windows import WindowsTask, subwords_of
from embtrain.negatives.sampling.alias import AliasTable
from embtrain.negatives.static.base import StaticSource
from embtrain.train.loop import Trainer

log = logging.getLogger(__name__)

MOST_WORDS = 1000   # of a sequence of FULL-W2V
BENCHMARKS = ("wordsim353",)  # included in every installation
HALVES = (".odd", ".even")    # of the pairs of a benchmark: settings are chosen by the one and scored by the other
SHARED: dict[str, Any] = {  # of both programs
    "text.window": 5, "text.sample": 1e-4, "train.lr": 0.025, "train.min_lr": 0.0001, "train.epochs": 1}
OURS = {**SHARED, "text.valid": 0, "text.test": 0, "text.tokenizer": "whitespace", "evaluate.benchmarks": [],
        "evaluate.heldout_pairs": 0, "train.log_every": 1_000_000, "train.checkpoint_every": 1e9}


def shared(*own: str) -> dict[str, Any]:
    """Return the settings of both programs, for `about`, without the keys that a bench sets itself."""
    return {key: value for key, value in SHARED.items() if key not in own}


def prefix(corpus: str, tokens: int, sets: Mapping[str, Any] | None = None) -> Path:
    """A file with the first `tokens` words of a corpus (0: all), one sequence a line; written once to the cache."""
    config = experiment.resolve(corpus=corpus, sets=as_sets({"text.min_count": 1, "text.valid": 0, "text.test": 0,
                                                            **(sets or {})}))
    whole = WindowsTask.read(config).corpus
    key = hashlib.sha256(f"{whole.identity['sha256']} {whole.identity['settings']} {tokens}".encode()).hexdigest()[:20]
    path = fetch.cache_folder() / "bench" / f"{key}.txt"
    if not path.exists():
        with write_atomically(path) as out:
            out.writelines(_lines(whole, tokens))
    return path


def joined(file: Path) -> Path:
    """The words of a file in lines of MOST_WORDS, for programs whose windows cross the ends of lines; once, as prefix.
    """
    path = file.with_name(f"{file.stem}-joined.txt")
    if not path.exists():
        with file.open("rb") as lines, write_atomically(path) as out:
            words = chain.from_iterable(line.split() for line in lines)
            while some := list(islice(words, MOST_WORDS)):
                out.write(b" ".join(some) + b"\n")
    return path


def _lines(corpus: Corpus, tokens: int) -> Iterator[bytes]:
    words = np.array(corpus.vocabulary.words, dtype=object)
    last = int(np.searchsorted(corpus.sequence, min(tokens or len(corpus), len(corpus))))
    for begin, end in zip(corpus.sequence[:last], corpus.sequence[1:last + 1], strict=True):
        yield (" ".join(words[corpus.ids[begin:end]]) + "\n").encode()


def read(file: Path, min_count: int, model: str = "skipgram", seed: int | None = None) -> WindowsTask:
    """The file as ids, through the cache, as the examples of a model; seed: of the windows."""
    settings = experiment.resolve(model=model, corpus=str(file), seed=seed,
                                  sets=as_sets({**OURS, "text.min_count": min_count}))
    return cast(WindowsTask, tasks.read(settings))


class Once(AliasTable):
    """An alias table that returns its first draws again and again, so that drawing costs nothing."""

    def __init__(self, table: AliasTable):
        self.table, self.kept = table, torch.empty(0, dtype=torch.int64)

    def draw(self, shape: tuple[int, ...], random: torch.Generator) -> torch.Tensor:
        if (n := math.prod(shape)) > len(self.kept):
            self.kept = self.table.draw((n,), random)
        return self.kept[:n].view(shape)


def ours(file: Path, strategy: str, min_count: int, threads: int, sets: Mapping[str, Any], seed: int = 1,
         benchmarks: Sequence[str] = BENCHMARKS, once: bool = False, unknown: Sequence[str] = (),
         model: str = "skipgram", device: str = "cpu") -> Timed:
    """One training run of embtrain on a file of words, whose ids come from the cache.

    On a GPU another model trains on one block first, so that its kernels are compiled before the clock runs.

    sets: further keys. once: negatives are drawn for one block and reused for the others. unknown: words outside the
    vocabulary that a model with subwords also gives vectors to.
    """
    config = experiment.resolve(strategy, model=model, corpus=str(file), seed=seed, threads=threads, device=device,
                                sets=as_sets({**OURS, "text.min_count": min_count, **sets}))
    components.use_threads(threads)
    text = cast(WindowsTask, tasks.read(config))  # with this seed, of the model, the windows and the source
    parts = components.build(config, text)
    if once:
        assert isinstance(parts.source, StaticSource)
        parts.source.alias = Once(parts.source.alias)
    with tempfile.TemporaryDirectory() as folder:
        if device != "cpu":
            first = _trainer(components.build(config, text), text, Path(folder))
            first.run_step(next(first.read_blocks(0, first.block_size, 0, True)))
        fit = _trainer(parts, text, Path(folder))
        fit.run()
    table, names = parts.model.vectors("input").detach().float().cpu().numpy(), text.corpus.vocabulary.words
    if (subwords := subwords_of(parts.model, names)) is not None:
        table, names = np.concatenate([table, subwords.compose(unknown)]), [*names, *unknown]
    return Timed(fit.position.seconds, fit.position.cpu_seconds, quality(Vectors(names, table), benchmarks))


def _trainer(parts: components.Components, text: WindowsTask, folder: Path) -> Trainer:
    return Trainer(parts.model, parts.source, parts.loss, text.windows, parts.train, folder, dict,
                   parts.known_positives)


def gensim(file: Path, min_count: int, threads: int, dim: int, epochs: int = 1, seed: int = 1,
           benchmarks: Sequence[str] = BENCHMARKS, sg: int = 1, rate: float = SHARED["train.lr"]) -> Timed:
    """One training run of gensim, with its fastest reader."""
    from gensim.models import Word2Vec

    model = Word2Vec(vector_size=dim, window=SHARED["text.window"], min_count=min_count, workers=threads, sg=sg,
                     negative=5, sample=SHARED["text.sample"], alpha=rate,
                     min_alpha=SHARED["train.min_lr"], seed=seed)
    model.build_vocab(corpus_file=str(file))
    seconds, cpu, _ = timed(lambda: model.train(corpus_file=str(file), total_examples=model.corpus_count,
                                                total_words=model.corpus_total_words, epochs=epochs))
    return Timed(seconds, cpu, quality(Vectors(model.wv.index_to_key, model.wv.vectors), benchmarks))


def full_w2v(program: str, file: Path, min_count: int, threads: int, dim: int, epochs: int,
             benchmarks: Sequence[str] = BENCHMARKS) -> Timed:
    """One training run of FULL-W2V on a GPU [randall2021]: 5 negatives for each window, of 3 words on either side.

    Our windows have as many words on average. Its windows cross the ends of lines (see `joined`). Its seconds are those
    that it prints, of training from ids; its CPU seconds include reading the text. ResourceError with its last line if
    it ends without them.
    """
    with tempfile.TemporaryDirectory() as folder:
        out, before = Path(folder) / "vectors.bin", children_seconds()
        done = subprocess.run(
            [program, "-train", str(file), "-output", str(out), "-binary", "1", "-size", str(dim), "-window", "3",
             "-negative", "5", "-sample", str(SHARED["text.sample"]), "-alpha", str(SHARED["train.lr"]),
             "-iter", str(epochs), "-min-count", str(min_count), "-threads", str(threads), "-debug", "0"],
            capture_output=True, text=True, errors="replace", check=False)
        took = re.search(r"^Overall time: ([0-9.]+)$", done.stdout, re.MULTILINE)
        if done.returncode or took is None:
            last = ((done.stderr or done.stdout).strip().splitlines() or ["no output"])[-1]
            raise ResourceError(f"{program}: ended with status {done.returncode}: {last[:200]}; run it alone on {file}")
        return Timed(float(took[1]), children_seconds() - before, quality(vectors_file.read(out), benchmarks))


def quality(vectors: Vectors, benchmarks: Sequence[str]) -> dict[str, float]:
    """Spearman on each benchmark."""
    rows = scoring.benchmarks(vectors, benchmarks, WordsConfig(resamples=0))
    return {row.benchmark: row.value for row in rows if row.metric == "spearman" and row.value is not None}


def scored(vocabulary: Sequence[str], benchmarks: Sequence[str], corpus: str, halves: Sequence[str] = ("",),
           is_required: bool = True) -> list[str]:
    """Return the benchmarks that can score vectors of a vocabulary, on each half alone; a warning names the others.

    Called before hours of training. DataError if one is required and there is none.
    """
    drawn = np.random.default_rng(1).standard_normal((len(vocabulary), 2))
    found = quality(Vectors(list(vocabulary), drawn), [f"{name}{half}" for name in benchmarks for half in halves])
    usable = [name for name in benchmarks if all(f"{name}{half}" in found for half in halves)]
    if missing := [name for name in benchmarks if name not in usable]:
        line = (f"--corpus: {corpus}: it covers fewer than two pairs of {', '.join(missing)}"
                f"{' in one half' if len(halves) > 1 else ''}")
        if is_required and not usable:
            raise DataError(f"{line}; give a text of everyday English")
        log.warning("%s, not scored here; give a text of everyday English to score them", line)
    return usable
