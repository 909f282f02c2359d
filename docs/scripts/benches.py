"""Tables and charts of the benches: lines of JSON in docs/results/bench."""

from __future__ import annotations

import json
import statistics

from charts.dots import Panel, Point, dots
from raw import BENCH, about, figure, table

MACHINE_KEYS = ("device", "processor", "cores", "load", "python", "embtrain")


def bench_tables() -> str:
    """Return a section for each bench: where and when it ran, and a row for each case."""
    runs, parts = about()["runs"], []
    for path in sorted(BENCH.rglob("bench-*.json"), key=lambda path: path.name):
        bench = json.loads(path.read_text(encoding="utf-8"))
        on_gpu = bench["about"].get("device", "cpu") != "cpu"          # CPU seconds of the host do not measure it
        clock, end = ("wall", "") if on_gpu else ("CPU", "_cpu")
        ours_of, rivals_of = bench[f"ours{end}"], bench[f"rivals{end}"]
        rival = next(iter(rivals_of))
        machine = ", ".join(f"{key} {bench['about'][key]}" for key in MACHINE_KEYS if key in bench["about"])
        rows = [[case, f"{statistics.median(ours):.3g}", f"{statistics.median(rivals_of[rival][case]):.3g}",
                 f"{bench[f'ratio{end}'][case]:.2g}"] for case, ours in ours_of.items()]
        parts.append(f"### `{path.stem}`\n\n{runs[path.stem]['date']}; {machine}; {bench['rounds']} "
                     f"round{'s' * (bench['rounds'] > 1)} in turns, medians of {clock} seconds ({bench['unit']}); "
                     f"`embtrain bench {bench['bench']}`.\n\n"
                     + table(["case (t: threads)", "ours", rival, "times faster"], rows))
    return "\n".join(parts)


def loss_speed_chart() -> str:
    """Draw bench-nmt.json: pairs of sentences trained on in a second, one panel for each size of the table."""
    quality = json.loads((BENCH / "translation" / "bench-nmt.json").read_text(encoding="utf-8"))["quality"]
    panels: dict[str, list[Point]] = {}
    for case, speeds in quality.items():
        loss, size, _ = case.rsplit("-", 2)
        points = panels.setdefault(f"{int(size[1:]):,} words: pairs trained on in a CPU second", [])
        rival = next(name for name in speeds if name != "ours")
        for name, speed in ((rival, list(speeds.values())[1]), (loss, speeds["ours"])):
            if name not in [point.label for point in points]:
                pairs = speed["pairs_per_cpu_second"]
                points.append(Point(name, pairs, None, None, figure(pairs, 10)))
    return dots("Pairs of sentences trained on in a second under each loss", [
        Panel(heading, points) for heading, points in panels.items()])
