"""Training with subwords takes little memory in addition to its tables: 51,000 words, 2 million rows of n-grams."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
WORDS, BUCKETS, DIM, TOKENS = 51_000, 2_000_000, 100, 5_000_000
LIMIT, TRAINING_LIMIT = 200e6, 120e6  # bytes: the larger of training and evaluation, and training
MIB = 2**20


def test_subwords_need_little_memory_in_addition_to_the_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]
                                                               ) -> None:
    draw = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    digits = (np.arange(WORDS)[:, None] // [26 ** 3, 26 ** 2, 26, 1]) % 26                      # (V, 4)
    names = np.array(["".join([*draw.choice(letters, draw.integers(1, 8)), *letters[row]]) for row in digits])
    ids = np.concatenate([draw.permutation(WORDS) for _ in range(TOKENS // WORDS)])
    (tmp_path / "text.txt").write_text("\n".join(" ".join(names[line]) for line in np.array_split(ids, len(ids) // 20)))
    del names, ids
    subword = f"{{min_n: 3, max_n: 6, buckets: {BUCKETS}}}"
    words = ["fit", "--corpus", "text.txt", "--dry-run", "--threads", "1", "--dim", str(DIM), "--set",
             f"model.subword={subword}", "--set", "text.sample=0.5", "--set", "evaluate.benchmarks=[]"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "EMBTRAIN_CACHE": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-m", "embtrain", *words], cwd=tmp_path, capture_output=True, text=True,
                          check=False, env=env)
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("memory: "))
    found = re.search(r"([\d,]+) in training, ([\d,]+) in evaluation", line)
    assert found is not None and "51,000 words" in done.stdout, done.stdout
    tables = 4 * DIM * (2 * WORDS + BUCKETS)
    training, evaluation = (int(number.replace(",", "")) * MIB - tables for number in found.groups())
    with capsys.disabled():
        print(f"\ntables and {training / 1e6:.0f} MB in training, {evaluation / 1e6:.0f} MB in evaluation")
    assert training < TRAINING_LIMIT and max(training, evaluation) < LIMIT, line
