"""Reading: a file of words -> vocabulary, counts and ids on disk, by embtrain and by gensim's build_vocab.

gensim does less: it only counts, and parses the file again in every epoch. `second-start` is the same call on a text
that is in the cache. `read` is one process, on as many cores as threads; `workers-2` encodes shards in two, whose CPU
seconds are included. `json-lines` and `parquet` are the same words, 500 to an object or row. Without pyarrow
Parquet is left out, with a warning.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from embtrain.cli.bench.harness import words
from embtrain.cli.bench.harness.base import Group, Timed, children_seconds, choose, digits, run, timed
from embtrain.common.errors import UsageError
from embtrain.data.text import corpus as text
from embtrain.data.text.corpus import TextConfig
from embtrain.experiment.run import components

log = logging.getLogger(__name__)
CORPUS, MIN_COUNT = "english-18m", 5
WORKERS = (2,)
LINE_WORDS = 500         # of an object or row
CONFIG = TextConfig(min_count=MIN_COUNT, tokenizer="whitespace", valid=0, test=0)
KINDS = ("read", "second-start", *(f"workers-{n}" for n in WORKERS), "json-lines", "parquet")


def bench(rounds: int, threads: Sequence[int], only: Sequence[str] | None, corpus: str | None) -> dict[str, Any]:
    """Rounds of every case; `only` names some, for example second-start."""
    chosen = choose([f"{kind}-t{n}" for n in threads for kind in KINDS], only)
    if any(case.startswith("parquet") for case in chosen) and find_spec("pyarrow") is None:
        if only:
            raise UsageError("--only: parquet: pyarrow is not installed; pip install 'embtrain[parquet]'")
        log.warning("bench: pyarrow is not installed, so parquet is not timed; pip install 'embtrain[parquet]'")
        chosen = [case for case in chosen if not case.startswith("parquet")]
    file = words.prefix(corpus or CORPUS, 0)
    size = file.stat().st_size
    with tempfile.TemporaryDirectory() as known, tempfile.TemporaryDirectory() as tables:
        text.load([file], "text", CONFIG, Path(known), "bench")
        ways = {"read": (file, CONFIG, None), "second-start": (file, CONFIG, known)}
        ways |= {f"workers-{n}": (file, CONFIG.model_copy(update={"workers": n}), None) for n in WORKERS}
        for kind, write, format in (("json-lines", _write_json_lines, "jsonl"), ("parquet", _write_parquet, "parquet")):
            if any(case.startswith(kind) for case in chosen):
                config = TextConfig(min_count=MIN_COUNT, tokenizer="whitespace", valid=0, test=0,
                                    format=format)
                ways[kind] = (write(file, Path(tables) / kind), config, None)
        groups = []
        for n in threads:
            ours = {name: partial(_read, *way, n) for kind, way in ways.items() if (name := f"{kind}-t{n}") in chosen}
            if ours:
                groups.append(Group(n, ours, {"gensim": partial(_gensim, file)}))
        summary = run("reading", "s", groups, rounds, {"corpus": corpus or CORPUS, "bytes": size,
                                                       "min_count": MIN_COUNT, "line_words": LINE_WORDS})
    speed = {case: digits(size / 1e6 / statistics.median(times)) for case, times in summary["ours"].items()}
    return summary | {"megabytes_per_second": speed}


def _read(file: Path, config: TextConfig, cache: str | None, threads: int) -> Timed:
    components.use_threads(threads)
    reader = "text" if config.format == "auto" else config.format
    with tempfile.TemporaryDirectory() as fresh, _cores(None if config.workers > 1 else threads):
        before = children_seconds()
        seconds, cpu, corpus = timed(lambda: text.load([file], reader, config, Path(cache or fresh), "bench"))
        return Timed(seconds, cpu + children_seconds() - before,
                     {"words": len(corpus.vocabulary), "tokens": corpus.vocabulary.total})


@contextmanager
def _cores(n: int | None) -> Iterator[None]:
    """Limit this process to n of its cores, which limits the threads that read; None: to no less than before."""
    if n is None or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:n])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _rows(file: Path) -> Iterator[str]:
    """Yield the words of the file, LINE_WORDS at a time."""
    with file.open(encoding="utf-8") as lines:
        tokens = (word for line in lines for word in line.split())
        while row := list(itertools.islice(tokens, LINE_WORDS)):
            yield " ".join(row)


def _write_json_lines(file: Path, out: Path) -> Path:
    with out.open("w", encoding="utf-8") as target:
        target.writelines(json.dumps({"text": row}) + "\n" for row in _rows(file))
    return out


def _write_parquet(file: Path, out: Path) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"text": list(_rows(file))}), out, row_group_size=1000)
    return out


def _gensim(file: Path) -> Timed:
    from gensim.models import Word2Vec

    model = Word2Vec(min_count=MIN_COUNT, workers=1)
    seconds, cpu, _ = timed(lambda: model.build_vocab(corpus_file=str(file)))
    return Timed(seconds, cpu, {"words": len(model.wv), "tokens": model.corpus_total_words})
