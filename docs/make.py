"""What the pages show of docs/results: tables and pictures, made from the raw rows and from nothing else.

    python docs/make.py        writes docs/generated/

raw.py reads rows and writes figures, choosing.py weighs strategies, beside.py has gensim and the benches, licences.py
whose the data are.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from beside import gensim_chart, made_bench, made_gensim, made_gensim_differences, speed_of_losses, word
from chart import Panel, Point, dots
from choosing import WANTED, choose, made_choose
from licences import made_licences
from raw import CPU, Comparison, about, cell, comparisons, figure, over_seeds, picture, table

from embtrain.experiment.paper import claims, spec
from embtrain.report.comparison.decimals import measure, true_minus

GENERATED = Path(__file__).resolve().parent / "generated"
BY_LOSS = ("fb15k-237", "wn18rr")  # comparisons of sources under two losses
SETUP = ("corpus", "embtrain", "engine", "threads", "core", "python", "torch", "gensim")


def shown(found: Comparison) -> list[str]:
    """The measures that are tabled: what is asked for above, what decided, what the paper's checks name."""
    own = [found.grid["metric"]]
    own += [row.metric for row in [*found.paper.checks, *found.paper.expected] if row.metric] if found.paper else []
    return [m for m in dict.fromkeys([*own, *WANTED, CPU]) if m in found.values]


def section(found: Comparison) -> str:
    told = about()
    run = told["runs"][found.name]
    machine = run.get("machine", told["machine"])
    title = found.paper.title if found.paper else run["title"]
    command = again(found.paper, found) if found.paper else \
        f"embtrain compare --config docs/results/{found.name}/comparison.yaml"
    setup = ", ".join(f"{key} {found.setup[key].replace(chr(92), '')}" for key in SETUP if key in found.setup)
    sets = " ".join(f"`{text}`" for text in found.grid["sets"])
    parts = [f"({found.name})=\n## {title}\n\n", f"{run['note']} " if "note" in run else "",
             "Taken beside other work, so that its CPU seconds tell nothing. " if run.get("busy") else "",
             f"{run['date']}; {machine}; {setup}; seeds {', '.join(map(str, found.grid['seeds']))}; {sets}. "
             f"Raw rows: `docs/results/{found.name}/scores.csv`. Again: `{command}`.\n\n",
             f"**Claim.** {found.paper.claim} ({found.paper.citation})\n\n" if found.paper else "",
             picture(found.name), "\nMeans over seeds and their 95 % t intervals:\n\n"]
    columns = [over_seeds(found.values[m], found.labels) for m in shown(found)]
    rows = [[label, *(cell(means[label], spread) for means, spread in columns)] for label in found.labels]
    parts.append(table(["run", *(measure(m) for m in shown(found))], rows))
    if found.paper:
        parts += ["\n", *(f"- {text}\n" for text in verdicts(found.paper, found)), "\n", theirs(found.paper, found),
                  "\nWhat is done otherwise:\n\n",
                  table(["what", "theirs", "ours"], [[p.what, p.theirs, p.ours] for p in found.paper.protocol])]
    else:
        differing = {metric: choose(found, metric) for metric in shown(found) if metric in WANTED}
        parts += ["\n", *(f"- {measure(m)}: highest is {c.best}; worse: "
                          f"{', '.join(f'{label} {by}' for label, by in c.worse) or 'none'}; the others cannot be told "
                          "from it.\n" for m, c in differing.items())]
    return "".join(parts)


def again(of: spec.Paper, found: Comparison) -> str:
    """By name, where the file that ships is of the same runs; else by the file that lies beside the rows."""
    ships = spec.read(spec.path(found.grid["paper"]))
    same = ships.grid("") == of.grid("")
    return claims.command(of, found.grid if same else found.grid | {"paper": f"docs/results/{found.name}/paper.yaml"})


def by_loss(found: Comparison, metric: str) -> str:
    """Runs that are called SOURCE+LOSS: a row for each source, a column for each loss that their grid names."""
    means, spread = over_seeds(found.values[metric], found.labels)
    runs = {label: (label.partition("+")[0], found.grid["runs"][label]["loss"] or label.replace("-", "_"))
            for label in found.labels}
    losses = list(dict.fromkeys(loss for _, loss in runs.values()))
    rows = []
    for source in dict.fromkeys(source for source, _ in runs.values()):
        of = {loss: cell(means[label], spread) for label, (name, loss) in runs.items() if name == source}
        rows.append([source, *(of.get(loss, "") for loss in losses)])
    return table([measure(metric), *(f"`{loss}`" for loss in losses)], rows)


def verdicts(of: spec.Paper, found: Comparison) -> list[str]:
    return [true_minus(claims.judge(check, found.values, len(of.checks))["text"]) for check in of.checks]


def theirs(of: spec.Paper, found: Comparison) -> str:
    rows = []
    for expected in of.expected:
        ours = claims.reported_and_measured(expected, of, found.values)
        spread = None if ours["low"] is None else (ours["high"] - ours["low"]) / 2
        rows.append([expected.what, f"{expected.value:g} ({expected.source})", figure(ours["ours"], spread),
                     "–" if spread is None else f"[{figure(ours['low'], spread)}, {figure(ours['high'], spread)}]",
                     f"{expected.where}; {expected.protocol}"])
    return table(["what", "theirs", "ours", "95 % interval", "where theirs stands, and how it was measured"], rows)


def chart(found: Comparison) -> str:
    panels = []
    for metric in shown(found):
        if metric == CPU and about()["runs"][found.name].get("busy"):
            continue
        means, spread = over_seeds(found.values[metric], found.labels)
        panels.append(Panel(measure(metric), [Point(label, m.mean, m.low, m.high, figure(m.mean, spread))
                                              for label, m in means.items() if m.mean is not None]))
    return dots(f"{found.name}: means over seeds with 95 % t intervals", panels)


def made_absent() -> str:
    there = {found.name for found in comparisons()}
    files = {name: spec.read(spec.path(name)) for name in spec.names() if name not in there}
    rows = [[of.title, f"`embtrain reproduce {name}`", f"at most {of.cpu_seconds / 3600:.1f}"]
            for name, of in files.items()]
    rows += [[row["what"], f"`{row['command'].strip()}`", f"about {row['hours']:g}"] for row in about()["not_run"]]
    return table(["not run", "command", "CPU-hours"], rows)


def made() -> dict[str, str]:
    """Name of a file of docs/generated -> what it holds."""
    found = comparisons()
    graphs = [one for one in found if one.name in BY_LOSS]
    return {"choose.md": made_choose(), "comparisons.md": "\n".join(map(section, found)), "gensim.md": made_gensim(),
            "gensim-differences.md": made_gensim_differences(),
            **{f"{one.name}-losses.md": by_loss(one, "test/mrr") for one in graphs},
            "bench.md": made_bench(), "absent.md": made_absent(),
            "licences.md": made_licences(), "gensim.svg": gensim_chart(),
            "bench-nmt.svg": speed_of_losses(), "translation-word.svg": word(),
            **{f"{one.name}.svg": chart(one) for one in found}}


if __name__ == "__main__":
    GENERATED.mkdir(exist_ok=True)
    for old in set(GENERATED.iterdir()) - {GENERATED / name for name in made()}:
        old.unlink()
    for name, text in made().items():
        (GENERATED / name).write_text(text, encoding="utf-8")
