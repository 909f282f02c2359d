"""Beside others: skip-gram's layouts beside gensim's vectors, and the benches, from their lines of JSON; one word of a
translation beside its negatives."""

from __future__ import annotations

import json
import statistics as plain
from typing import Any

from chart import Panel, Point, dots, plane
from raw import RESULTS, about, cell, figure, over_seeds, table

from embtrain.evaluate.statistics.significance import MeanInterval, difference, t_interval

HEADS = {"wordsim353": "WordSim353", "simlex999": "SimLex-999", "men": "MEN", "cpu": "CPU seconds"}
SETS = tuple(HEADS)[:3]
# Layouts of which one is set against another than gensim.
SHARED = (("CENTRE", "PAIR"), ("CENTRE-order", "PAIR-order"), ("BLOCK16-order", "BLOCK16"),
          ("BLOCK64-order", "BLOCK16"))


def gensim_rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (RESULTS / "skipgram-and-gensim.jsonl").read_text().splitlines()]


def layouts() -> tuple[list[str], dict[str, tuple[dict[str, MeanInterval], float | None]]]:
    """skipgram-and-gensim.jsonl: the layouts, and of each measure their means over seeds."""
    rows = gensim_rows()
    labels = list(dict.fromkeys(row["what"] for row in rows))
    return labels, {key: over_seeds({label: {row["seed"]: row[key] for row in rows if row["what"] == label}
                                     for label in labels}, labels) for key in HEADS}


def made_gensim() -> str:
    labels, of = layouts()
    return table(["layout", *HEADS.values(), "seeds"],
                 [[label, *(cell(means[label], spread) for means, spread in of.values()), str(of["cpu"][0][label].n)]
                  for label in labels])


def made_gensim_differences() -> str:
    """Of each set and their mean, paired by seed, with 95 % t intervals."""
    rows = gensim_rows()
    of: dict[str, dict[str, dict[int, float]]] = {key: {} for key in (*SETS, "mean")}
    for row in rows:
        row["mean"] = plain.fmean(row[key] for key in SETS)
        for key, laid in of.items():
            laid.setdefault(row["what"], {})[row["seed"]] = row[key]
    pairs = [*((what, "gensim") for what in of["mean"] if what != "gensim"), *SHARED]
    return table(["layout", "less", *(HEADS[key] for key in SETS), "mean"], [
        [a, b, *(f"{m.mean:+.4f} [{m.low:+.4f}, {m.high:+.4f}]".replace("-", "−") for by in of.values()
                 for m in [t_interval(difference(by[a], by[b]))])] for a, b in pairs])


def gensim_chart() -> str:
    labels, of = layouts()
    return dots("Skip-gram layouts beside gensim: means over seeds with 95 % t intervals", [
        Panel(HEADS[key], [Point(label, m.mean, m.low, m.high, figure(m.mean, spread))
                           for label in labels if (m := means[label]).mean is not None])
        for key, (means, spread) in of.items()])


def made_bench() -> str:
    told, parts = about(), []
    for path in sorted(RESULTS.glob("bench-*.json")):
        of = json.loads(path.read_text(encoding="utf-8"))
        rival = next(iter(of["rivals_cpu"]))
        where = ", ".join(f"{key} {of['about'][key]}" for key in ("processor", "cores", "load", "python", "embtrain")
                          if key in of["about"])
        rows = [[case, f"{plain.median(ours):.3g}", f"{plain.median(of['rivals_cpu'][rival][case]):.3g}",
                 f"{of['ratio_cpu'][case]:.2g}"] for case, ours in of["ours_cpu"].items()]
        parts.append(f"### `{path.stem}`\n\n{told['runs'][path.stem]['date']}; {where}; {of['rounds']} "
                     f"round{'s' * (of['rounds'] > 1)} in turns, medians of CPU seconds ({of['unit']}); "
                     f"`embtrain bench {of['bench']}`.\n\n"
                     + table(["case (t: threads)", "ours", rival, "times faster"], rows))
    return "\n".join(parts)


def speed_of_losses() -> str:
    """bench-nmt.json: pairs of sentences trained on in a second, a panel for each size of the table."""
    of = json.loads((RESULTS / "bench-nmt.json").read_text(encoding="utf-8"))["quality"]
    panels: dict[str, list[Point]] = {}
    for case, both in of.items():
        loss, v, _ = case.rsplit("-", 2)
        points = panels.setdefault(f"{int(v[1:]):,} words: pairs trained on in a CPU second", [])
        for name, speed in ((next(other for other in both if other != "ours"), *list(both.values())[1:]),
                            (loss, both["ours"])):
            if name not in [point.label for point in points]:
                pairs = speed["pairs_per_cpu_second"]
                points.append(Point(name, pairs, None, None, figure(pairs, 10)))
    return dots("Pairs of sentences trained on in a second under each loss", [
        Panel(heading, points) for heading, points in panels.items()])


def word() -> str:
    """translation-word.json: one wrong word of a run's examples.json, in the plane of its vectors."""
    of = json.loads((RESULTS / "translation-word.json").read_text(encoding="utf-8"))
    return plane(f"How negatives are made of the answer to {of['right']}", of["cosine"], (
        f"e: {of['right']}", f"ê, nearest: {of['nearest'][0]}", f"nearest: {of['negative'][0]}"))
