"""Half a text, continued on its other half, is as good as the whole text: words of four benchmarks, three seeds.

The halves of english-18m are every other document. Each run has three epochs, so that every word is read equally often.
The mean Spearman over the benchmarks may be .02 lower; the goal is .005.

    make test-slow AREA=parity           or      pytest -m slow -s tests/slow/parity/test_continued.py
"""

from __future__ import annotations

import itertools
import os
import statistics
import time
from pathlib import Path

import pytest

from embtrain.evaluate.statistics.significance import t_interval
from embtrain.experiment import Run, fit, resolve
from embtrain.experiment.continuation import continue_run
from embtrain.experiment.tasks import base as tasks
from embtrain.experiment.tasks.windows import WindowsTask

SEEDS = (1, 11, 21)
FLOOR, CORPUS = -0.02, "english-18m"
BENCHMARKS = ("wordsim353", "simlex999", "men", "rareword")
SETS = ["train.epochs=3", "text.sample=1e-4", "text.valid=0", "text.test=0", "text.tokenizer=whitespace",
        f"evaluate.benchmarks=[{','.join(BENCHMARKS)}]", "evaluate.heldout_pairs=0", "evaluate.resamples=0"]


def write_halves(folder: Path) -> None:
    """Write the documents of the corpus as words, every other one to `first` and to `second`, and all to `whole`."""
    task = tasks.read(resolve("sgns", corpus=CORPUS, sets=["text.min_count=1", "text.valid=0", "text.test=0"]))
    assert isinstance(task, WindowsTask)
    words, text = task.corpus.vocabulary.words, task.corpus
    for name in ("first", "second", "whole"):
        (folder / name).mkdir()
    for i, (start, end) in enumerate(itertools.pairwise(text.document)):
        lines = text.sequence[(text.sequence >= start) & (text.sequence <= end)]
        document = "\n".join(" ".join(words[j] for j in text.ids[a:b].tolist())
                             for a, b in itertools.pairwise(lines))
        for name in (("first", "second")[i % 2], "whole"):
            (folder / name / f"{i:04}.txt").write_text(document, encoding="utf-8")


def mean_score(run: Run) -> float:
    values = {row.benchmark: row.value for row in run.scores if row.metric == "spearman"}
    return statistics.fmean(float(values[name] or 0) for name in BENCHMARKS)


@pytest.mark.slow
def test_a_continued_half_is_as_good_as_the_whole_text(tmp_path: Path) -> None:
    if not os.environ.get("EMBTRAIN_DATA_MIRROR"):
        pytest.skip("data: EMBTRAIN_DATA_MIRROR names no folder")
    started = time.process_time()
    write_halves(tmp_path)
    differences = []
    for seed in SEEDS:
        def train(name: str, seed: int = seed) -> Run:
            return fit(resolve("sgns", corpus=str(tmp_path / name), seed=seed, threads=1, sets=SETS),
                       tmp_path / f"{name}-{seed}")
        whole, first = train("whole"), train("first")
        continued = continue_run(first.folder, tmp_path / "second", threads=1, out=tmp_path / f"continued-{seed}")
        differences.append(mean_score(continued) - mean_score(whole))
        print(f"\nseed {seed}: whole {mean_score(whole):.4f}, first half {mean_score(first):.4f}, continued "
              f"{mean_score(continued):.4f}, difference {differences[-1]:+.4f}")
    found = t_interval(dict(zip(SEEDS, differences, strict=True)))
    print(f"difference {found.mean:+.4f}, 95 % interval [{found.low:+.4f}, {found.high:+.4f}]; "
          f"{(time.process_time() - started) / 3600:.2f} CPU-hours")
    assert statistics.fmean(differences) > FLOOR
