"""Prints the memory of one run as JSON: `python measured.py plan|fit SPEC`, in a separate process.

plan   the estimate of `--dry-run`: peak bytes in addition to those of the program
fit    the peak reported by the operating system, from the start of the run to its report, minus the memory after a tiny
       run, which has loaded every module
"""

from __future__ import annotations

import gc
import json
import re
import sys
import tempfile
from pathlib import Path

import numpy as np

from embtrain import experiment
from embtrain.common import machine
from embtrain.experiment.run import components
from embtrain.experiment.run.dry_run import profile

LETTERS = str.maketrans("0123456789", "abcdefghij")
WORDS, FEW_WORDS, ENTITIES = 100_000, 20_000, 100_000


def write(place: Path) -> Path:
    """Write the input of the runs: texts with many and with fewer words, a graph, a hierarchy, sentence pairs."""
    draw = np.random.default_rng(0)
    for name, words, times in (("text", WORDS, 5), ("small", FEW_WORDS, 15)):
        ids = np.concatenate([draw.permutation(words) for _ in range(times)]).reshape(20, -1, 25)
        (place / name).mkdir()
        for d, lines in enumerate(ids):
            (place / name / f"{d:02}.txt").write_text("\n".join(
                " ".join(f"w{i:06}".translate(LETTERS) for i in line) for line in lines))
    heads, tails = (np.concatenate([draw.permutation(ENTITIES) for _ in range(3)]) for _ in range(2))
    (place / "graph.tsv").write_text("".join(
        f"e{h}\tr{r}\te{t}\n" for h, r, t in zip(heads, draw.integers(20, size=len(heads)), tails, strict=True)))
    (place / "pairs.tsv").write_text("".join(f"c{i}\tc{i // 6}\n" for i in range(1, ENTITIES)))
    with (place / "two.tsv").open("w") as file:
        for _ in range(12_000):
            ids = draw.integers(FEW_WORDS, size=draw.integers(5, 30))
            file.write(" ".join(f"d{i}" for i in ids) + "\t" + " ".join(f"e{i}" for i in ids) + "\n")
    return place


def taken(what: str) -> int:
    match = re.search(rf"{what}:\s+(\d+)", Path("/proc/self/status").read_text())
    assert match is not None
    return int(match[1]) * 1024


def fit(config: experiment.Settings) -> int:
    with tempfile.TemporaryDirectory() as place:
        tiny = Path(place, "tiny.txt")
        tiny.write_text("\n".join(" ".join(f"{a}{b}" for b in "abcdef") for a in "abcdefghij" * 9))
        sets = ["text.min_count=1", "model.dim=2", "train.engine=autograd", "train.epochs=1", "train.threads=1",
                "text.valid=0.1", "text.test=0.1", "train.log_every=1", "evaluate.benchmarks=[]"]
        experiment.fit(experiment.resolve("sgns", corpus=str(tiny), sets=sets), Path(place, "tiny"))
        gc.collect()
        machine.release_free_memory()  # memory that the tiny run took and released is not part of the program
        program = taken("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")
        experiment.fit(config, Path(place, "run"))
    return taken("VmHWM") - program


if __name__ == "__main__":
    spec = json.loads(sys.argv[2])
    settings = experiment.resolve(spec["strategy"], spec["model"], spec["corpus"], sets=spec["sets"], threads=1)
    if sys.argv[1] == "plan":
        components.use_threads(settings.train.threads)
        estimate = profile(settings)[1]
        assert estimate is not None
        print(json.dumps(estimate.peak))
    else:
        print(json.dumps(fit(settings)))
