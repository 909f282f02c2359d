"""Write a comparison like `embtrain compare`, without training: folders of runs and results.json."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from embtrain.evaluate.heldout import metric_bounds
from embtrain.evaluate.statistics.significance import compare_to_baseline, holm_family, paired_t, t_interval

# strategy: test log-likelihood, Spearman on WordSim353, CPU seconds, whether it draws both kinds of samples
WORLD: dict[str, tuple[float, float, float, bool]] = {
    "sgns": (-7.31, 0.52, 96, False), "nce": (-7.18, 0.51, 101, False), "uniform": (-7.62, 0.41, 74, False),
    "softmax": (-6.92, 0.56, 640, False), "ace-no-entropy": (-7.21, 0.535, 233, True), "ace": (-7.16, 0.55, 251, True),
}
WORDS = "queen king computer man woman".split()
NEAR = "prince throne crown princess monarch duke regent emperor castle royal heir empress".split()
FAR = "treaty harvest parish tunnel ledger orchard quarry lantern ferry sermon militia charter".split()


def comparison(folder: Path, strategies: Sequence[str] = ("sgns", "nce", "ace"), seeds: int = 3, epochs: int = 4,
               lines: int = 12, failed: Sequence[str] = ()) -> Path:
    """`failed`: names of cells that have only an error. Every number depends on the seeds alone."""
    (folder / "cells").mkdir(parents=True, exist_ok=True)
    cells = []
    for strategy in strategies:
        for seed in range(1, seeds + 1):
            name = f"{strategy}-seed{seed}"
            cell: dict[str, Any] = {"cell": name, "strategy": strategy, "loss": None, "model": "skipgram", "seed": seed,
                                    "folder": f"cells/{name}", "status": "finished", "scores": [], "cpu_seconds": None}
            if name in failed:
                message = "ResourceError: 3.2 GB are free and 4.1 GB are needed; set train.chunk=1024"
                _json(folder / "cells" / f"{name}.error.json", {"cell": name, "error": message, "code": 4})
                cell |= {"status": "failed", "error": message}
            else:
                cell |= _run(folder / "cells" / name, strategy, seed, epochs, lines)
            cells.append(cell)
    _json(folder / "results.json", results(strategies, seeds, cells))
    (folder / "comparison.yaml").write_text(
        f"strategies: [{', '.join(strategies)}]\nlosses: [null]\nmodels: [skipgram]\ncorpus: novels\n"
        f"seeds: [{', '.join(map(str, range(1, seeds + 1)))}]\nbaseline: {strategies[0]}\n"
        "metric: test/log_likelihood\nbenchmarks: [wordsim353, simlex999]\ncpu_seconds: null\nsets: [model.dim=50]\n",
        encoding="utf-8")
    return folder


def without_times(folder: Path) -> dict[str, Any]:
    """results.json without the entries that depend on a clock."""
    tree = json.loads((folder / "results.json").read_text())
    for cell in tree["cells"]:
        cell["cpu_seconds"] = None
        cell["scores"] = [row for row in cell["scores"] if row["benchmark"] != "training"]
    tree["summary"] = [line for line in tree["summary"] if not line["metric"].startswith("training/")]
    tree["at_equal"].pop("cpu_seconds")
    for row in tree["at_equal"]["epochs"]["rows"]:
        row["cpu_seconds"] = None
    del tree["verdict"][1]  # the cost
    return tree


def results(strategies: Sequence[str], seeds: int, cells: list[dict[str, Any]]) -> dict[str, Any]:
    values_of: dict[str, dict[str, dict[int, float]]] = {}
    for cell in cells:
        for row in cell["scores"]:
            by_name = values_of.setdefault(f"{row['benchmark']}/{row['metric']}", {})
            by_name.setdefault(cell["strategy"], {})[cell["seed"]] = row["value"]
    primary, first = "test/log_likelihood", strategies[0]
    differences = compare_to_baseline(values_of.get(primary, {first: {}}), first, primary)
    differences += holm_family([
        paired_t(by_name[name], by_name[first], (name, first), metric) for metric, by_name in values_of.items()
        if metric != primary and not metric.startswith("valid") for name in by_name if name != first
    ])
    summary = [{"strategy": name, "metric": metric, **t_interval(values, bounds=metric_bounds(metric))._asdict()}
               for metric, by_name in values_of.items() for name, values in by_name.items()]
    rows = [{"strategy": c["strategy"], "seed": c["seed"], "metric": "valid/log_likelihood", "step": 40,
             "cpu_seconds": 60.0, "value": None if c["strategy"] == "softmax" else c["scores"][0]["value"] - 0.1}
            for c in cells if c["scores"]]
    plan = {"strategies": list(strategies), "losses": [None], "models": ["skipgram"], "corpus": "novels",
            "seeds": list(range(1, seeds + 1)), "baseline": first, "metric": primary, "cpu_seconds": None,
            "benchmarks": ["wordsim353", "simlex999"], "sets": ["model.dim=50"]}
    return {"plan": plan, "cells": cells, "summary": summary, "differences": [asdict(d) for d in differences],
            "at_equal": {"epochs": {"epochs": 4, "rows": rows, "note": "equal epochs are equal positives"},
                         "cpu_seconds": {"budget": 74.25, "rows": rows, "note": "null where there was none"}},
            "notes": [], "verdict": [f"On test/log_likelihood, softmax beats {first} (+0.39) over {seeds} seeds.",
                                     "At the CPU time of the cheapest strategy uniform is ahead.",
                                     "What is not known: nce and ace-no-entropy would take 9 seeds to separate."]}


def _run(folder: Path, strategy: str, seed: int, epochs: int, lines: int) -> dict[str, Any]:
    likelihood, spearman, cpu, both = WORLD[strategy]
    rng, by_seed = np.random.default_rng([len(strategy), seed]), np.random.default_rng(seed)
    shift, noise = 0.03 * by_seed.standard_normal(), rng.standard_normal(4)
    likelihood, spearman = likelihood + shift + 0.006 * noise[0], spearman + 0.012 * noise[1]
    cpu, mrr = cpu * (1 + 0.03 * noise[2]), (likelihood + 9) / 20
    scores = [_row("test", "log_likelihood", likelihood, 0.04, 20_000), _row("test", "mrr", mrr, 0.004, 20_000),
              _row("test", "hits@10", (likelihood + 10) / 15, 0.006, 20_000),
              _row("valid", "log_likelihood", likelihood - 0.02, 0.04, 20_000),
              _row("wordsim353", "spearman", spearman, 0.09, 242),
              _row("simlex999", "spearman", spearman - 0.27, 0.07, 521)]
    metrics, blocks = [], epochs * lines
    for step in range(1, blocks + 1):
        t = step / blocks
        place = {"step": 10 * step, "epoch": step // lines, "examples": step * 24_000,
                 "seconds": round(cpu * t / 1.8, 3), "cpu_seconds": round(cpu * t, 3)}
        line = {"lr": 0.025 * (1 - t), "loss": 2 + 3 / step,
                "loss/noise": 0.9 - 0.5 * t + 0.02 * rng.standard_normal()}
        line |= {"loss/generator": 1.1 - 0.1 * t + 0.03 * rng.standard_normal()} if both else {}
        metrics.append(place | line)
        if step % lines == 0:
            metrics.append(place | {"valid/log_likelihood": likelihood - 0.02 - 0.9 * (1 - t) ** 2,
                                    "valid/mrr": mrr - 0.04 * (1 - t), "valid/hits@10": 0.2 * t + spearman / 8,
                                    "wordsim353/spearman": spearman * (0.4 + 0.6 * t) + 0.01 * rng.standard_normal()})
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in metrics), encoding="utf-8")
    source = strategy.split("-")[0] if both else strategy
    (folder / "config.yaml").write_text(f"strategy: {strategy}\nnegatives: {{source: {source}, k: 5}}\n"
                                        f"train: {{epochs: {epochs}, seed: {seed}}}\n", encoding="utf-8")
    _json(folder / "identity.json", {"corpus": {"name": "novels", "sha256": "ab" * 32, "counts": {"words": 6409}},
                                     "command": f"embtrain fit --negatives {strategy} --seed {seed}",
                                     "embtrain": "0.1.0", "code": "cd" * 32, "threads": 1, "machine": "x86_64"})
    _json(folder / "neighbours.json", {
        "near": {w: [[n, round(0.8 - 0.03 * i, 3)] for i, n in enumerate(rng.permutation(NEAR)[:5])] for w in WORDS},
        "far": {w: [[n, round(0.2 - 0.07 * i, 3)] for i, n in enumerate(rng.permutation(FAR)[:6])] for w in WORDS},
        "far_rank": 3512.4 + seed, "far_pmi": -0.21})
    _json(folder / "scores.json", scores)
    return {"scores": scores, "cpu_seconds": round(cpu, 3)}


def _row(benchmark: str, metric: str, value: float, half: float, n: int) -> dict[str, Any]:
    return {"benchmark": benchmark, "metric": metric, "value": float(value), "low": float(value - half),
            "high": float(value + half), "n": n, "note": ""}


def _json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")
