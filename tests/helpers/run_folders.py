"""Write run folders as training does, without training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from embtrain.common.types import Score
from embtrain.data.storage import stored_corpus
from embtrain.data.vectors import vectors as vector_files
from embtrain.data.vectors.vectors import Vectors


def lines_of(n: int = 60) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for step in range(1, n + 1):
        place = {"step": step, "epoch": step // 20, "examples": step * 100, "seconds": step * 1.5,
                 "cpu_seconds": step * 2.5}
        out.append(place | {"lr": 0.025, "loss": 3 / step, "loss/noise": 0.5, "loss/generator": 0.6 + step / 100,
                            "source/entropy": 6.0, "source/false_negatives": 0.01 * step,
                            "hardness/noise/rank": 500.0, "hardness/generator/rank": 40.0, "masked": 0.0})
        if step % 20 == 0:
            out.append(place | {"heldout/log_likelihood": -9 + step / 100, "heldout/mrr": step / 1000,
                                "wordsim353/spearman": 0.4})
    return out


SCORES = [
    Score("wordsim353", "spearman", 0.523, 0.421, 0.611, 242, "242 of 353 pairs"),
    Score("wordsim353-similarity", "spearman", 0.58, 0.45, 0.69, 142),
    Score("rare-word", "spearman", None, n=3),
    Score("heldout", "log_likelihood", -8.4123, -8.4411, -8.3822, 20000),
    Score("heldout", "mrr", 0.0281, n=20000),
]


def run_folder(folder: Path, **files: Any) -> Path:
    """Write a complete run; files=None leaves a file out, text is written verbatim, other values as JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    parts: dict[str, Any] = {
        "config": "model: {name: skipgram, dim: 100}\ncorpus: novels\nnegatives: {source: ace, k: 7}\n"
                  "loss: {name: nce}\ntrain: {epochs: 3}\nevaluate: {interval: 0.9}\n",
        "identity": {"corpus": {"name": "novels", "sha256": "ab" * 32}, "code": {"version": "0.1.0"},
                     "argv": ["/opt/x/bin/embtrain", "fit", "--out", "my run"]},
        "metrics": "".join(json.dumps(line) + "\n" for line in lines_of()),
        "scores": [row._asdict() for row in SCORES],
        "neighbours": {"near": {"queen": [["king", 0.81], ["crown", 0.7]]}, "far": {"queen": [["treaty", -0.31]]},
                       "far_rank": 3512.4, "far_pmi": -1.25},
    }
    names = {"config": "config.yaml", "metrics": "metrics.jsonl"}
    for part, value in (parts | files).items():
        if value is not None:
            text = value if isinstance(value, str) else json.dumps(value)
            (folder / names.get(part, f"{part}.json")).write_text(text, encoding="utf-8")
    return folder


def run_with_vectors(folder: Path, names: list[str], dim: int = 4, counts: np.ndarray | None = None, **files: Any
                     ) -> Path:
    """Write a run folder with random vectors of these names."""
    folder.mkdir(parents=True, exist_ok=True)
    table = np.random.default_rng(1).standard_normal((len(names), dim)).astype(np.float32)
    vector_files.write(folder / "vectors.safetensors", Vectors(names, table), "safetensors")
    if counts is not None:
        stored_corpus.write(folder, {"counts": counts, "sizes": np.array([-1, -1, 0])}, {})
    for name, value in ({"identity.json": {"task": "triples"}} | files).items():
        (folder / name).write_text(json.dumps(value))
    return folder
