"""Memory estimate of `--dry-run` against the run: the peak that the kernel counts for its process, from
reading to the report, minus the memory after all imports (helpers/measured.py). One dry run, as for a user,
and the median of three runs, because the allocator changes the peak of equal runs by a tenth.

Tables have 20,000 to 100,000 rows, and runs are stopped after a few CPU seconds, when all memory is allocated.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.measured import write
from helpers.promises import PAGE, block, tell, with_row

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
NEAR = 0.15
TRAIN = ["train.epochs=1", "train.cpu_seconds=3", "train.log_every=5", "train.checkpoint_every=3"]
TEXT = [*TRAIN, "text.min_count=1", "text.sample=0", "text.valid=0.05", "text.test=0.05",
        "evaluate.benchmarks=[simlex999]",
        "evaluate.heldout_pairs=500", "evaluate.neighbours=[waaaaab]"]
GRAPH = [*TRAIN, "triples.valid=0.001", "triples.test=0.001"]
LINES = [*TRAIN, "language.min_count=1", "evaluate.words=5000"]
PAIRS = [*TRAIN, "translation.min_count=1", "evaluate.sentences=100", "train.cpu_seconds=12"]

# Strategy, model, corpus, settings.
RUNS: dict[str, tuple[str, str, str, list[str]]] = {
    "sgns fused": ("sgns", "skipgram", "text", [*TEXT, "model.dim=256"]),
    "sgns step": ("sgns", "skipgram", "text", [*TEXT, "model.dim=256", "train.engine=autograd"]),
    "nce adagrad": ("nce", "skipgram", "text", [*TEXT, "model.dim=200", "train.optimizer=adagrad"]),
    "ace": ("ace", "skipgram", "small", [*TEXT, "model.dim=300"]),
    # The memory that the allocator retains grows over the first blocks: five or so of these two, which take seconds,
    # and twenty of a translator, whose batches differ in length.
    "softmax": ("softmax", "skipgram", "small", [*TEXT, "model.dim=300", "train.cpu_seconds=20"]),
    "rff": ("rff", "skipgram", "small", [*TEXT, "model.dim=300", "train.cpu_seconds=25"]),
    "transe": ("margin", "transe", "graph.tsv", [*GRAPH, "model.dim=300"]),
    "distmult adam": ("sgns", "distmult", "graph.tsv", [*GRAPH, "model.dim=200", "train.optimizer=adam"]),
    "order": ("order", "order", "pairs.tsv", [*TRAIN, "model.dim=300", "evaluate.benchmarks=[]"]),
    "lm": ("softmax", "lm", "small", [*LINES, "model.dim=512"]),
    "xc": ("exp", "xc", "planted-13k", [*TRAIN, "model.dim=512", "evaluate.heldout_documents=500"]),
    "nmt lstm": ("cross-entropy", "nmt", "two.tsv", PAIRS),
    "nmt transformer": ("vmf", "nmt", "two.tsv", [*PAIRS, "model.net=transformer"]),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("memory"))


def peak_bytes(place: Path, mode: str, spec: dict[str, Any]) -> int:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "EMBTRAIN_CACHE": str(place / "cache")}
    script = ROOT / "tests" / "helpers" / "measured.py"
    done = subprocess.run([sys.executable, script, mode, json.dumps(spec)], cwd=place, env=env, text=True,
                          capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.splitlines()[-1])


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="linux: the peak counter cannot be reset")
@pytest.mark.parametrize("name", RUNS)
def test_a_dry_run_estimates_the_memory_of_the_run(place: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    strategy, model, corpus, sets = RUNS[name]
    at = place / corpus
    spec = {"strategy": strategy, "model": model, "corpus": str(at) if at.exists() else corpus, "sets": sets}
    estimated, took = peak_bytes(place, "plan", spec), int(statistics.median(peak_bytes(place, "fit", spec)
                                                                             for _ in range(3)))
    row = f"| {name} | {estimated / 2**20:,.0f} | {took / 2**20:,.0f} | {estimated / took:.2f} |"
    tell("memory", with_row(block(PAGE.read_text(encoding="utf-8"), "memory"), row, list(RUNS)), capsys, row)
    assert abs(estimated / took - 1) <= NEAR
