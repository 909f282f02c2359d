"""report.html of a run: one file, no scripts, no external addresses; all text from files is escaped."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path, PurePath
from typing import Any

from embtrain.common.files import write_text
from embtrain.common.types import Score
from embtrain.report.charts import svg as charts
from embtrain.report.charts.curves import CurveGroup, grouped, meaning, metric, title
from embtrain.report.format import interval, lead, number
from embtrain.report.load.run import Curve, MetricCurves, NeighbourLists, RunRecord, read
from embtrain.report.render.html_tags import absent, figure, fold, grid, minus, missing, page, text
from embtrain.report.run.summary import get, named, strategy, verdict

SMALL_PANELS = 48    # per section; keys come from a file and could be many
DEPTH = 4            # levels of identity.json that get rows; deeper values are shown as JSON
COMMANDS = ("fit", "resume", "compare", "reproduce", "evaluate")


def write(folder: Path) -> Path:
    """Read the files of the run in `folder` and write its report.html atomically. Returns the page's path."""
    page = Path(folder) / "report.html"
    write_text(page, render(read(Path(folder))))
    return page


def render(run: RunRecord) -> str:
    heading = " · ".join([t for t in (named(run, "model"), strategy(run)) if t]) or run.name
    sections = [("scores", "Scores", _scores(run)), ("curves", "Curves", _curves(run.metrics)),
                ("source", "The source of negatives", _source(run.metrics)),
                *([("neighbours", "Neighbours", _neighbours(run.neighbours))] if run.expects_neighbours else []),
                ("configuration", "Configuration", _configuration(run)), ("identity", "Identity", _identity(run)),
                ("again", "Run it again", _rerun(run))]
    links = " ".join(f'<a href="#{key}">{name}</a>' for key, name, _ in sections)
    body = "".join(f'<section id="{key}"><h2>{name}</h2>{content}</section>\n' for key, name, content in sections)
    return page(run.name, f"""<header><h1>{text(heading)}</h1>
<p class="name">{text(run.name)}</p>
<p class="verdict">{verdict(run)}</p>
{_warnings(run)}<nav>{links}</nav></header>
{body}<footer>Written by embtrain from the files of this run's folder alone.</footer>
""")


def _warnings(run: RunRecord) -> str:
    """Warnings that make the scores doubtful, one paragraph each."""
    return "".join(f'<p class="warning" role="alert"><b>Warning:</b> {text(row.note)}</p>\n'
                   for row in run.scores or [] if (row.benchmark, row.metric) == ("training", "warning"))


# -- scores ---------------------------------------------------------------------------------------------------

def _scores(run: RunRecord) -> str:
    if run.scores is None:
        return missing("scores.json", "No scores")
    if not run.scores:
        return absent('No scores: <code>scores.json</code> is empty.')
    share = get(run.config, "evaluate", "interval")
    share = f"{share * 100:g}" if isinstance(share, float) and 0 < share < 1 else "95"
    head = [("measure", ""), ("value", "number"), (f"{share} % interval", "number"), ("n", "number")]
    first, rest, summary = lead(sorted(run.scores, key=_row_order))
    table_html = grid(head, _rows(first)) + _meanings(first)
    table_html += fold(summary, grid(head, _rows(rest))) if rest else ""
    panels = "".join(_dots(i, kind, rows, share) for i, (kind, rows) in enumerate(_by_metric(first)))
    return table_html + (f'<div class="many">{panels}</div>' if panels else "")


def _row_order(row: Score) -> int:
    """Test scores first, duration last."""
    return {"test": 0, "training": 2}.get(row.benchmark, 1)


def _rows(scores: list[Score]) -> list[str]:
    """Rows under the name of each benchmark; a note shared by consecutive rows is shown once, below them."""
    out = []
    for previous, row, following in zip([None, *scores[:-1]], scores, [*scores[1:], None], strict=True):
        if previous is None or previous.benchmark != row.benchmark:
            out.append(f'<tr class="part"><th scope="rowgroup" colspan="4">{text(row.benchmark)}</th></tr>')
        out.append(f'<tr><th scope="row">{text(metric(row.metric))}</th>'
                   f'<td class="number">{minus(number(row.value))}</td><td class="number">{minus(interval(row))}</td>'
                   f'<td class="number">{row.n:,}</td></tr>')
        if row.note and (following is None or (following.benchmark, following.note) != (row.benchmark, row.note)):
            out.append(f'<tr class="about"><td colspan="4">{text(row.note)}</td></tr>')
    return out


def _meanings(scores: list[Score]) -> str:
    meanings = {f"{metric(re.sub('@.*', '', row.metric))}{'@k' * ('@' in row.metric)}": meaning(row.metric)
                for row in scores if meaning(row.metric)}
    items = "".join(f"<dt>{text(name)}</dt><dd>{text(what)}</dd>" for name, what in meanings.items())
    return fold("What the measures mean", f'<dl class="meaning">{items}</dl>') if items else ""


def _by_metric(scores: list[Score]) -> list[tuple[str, list[Score]]]:
    """Group rows by metric, because only these can share an axis. Values without interval are left to the table."""
    out: dict[str, list[Score]] = {}
    for row in scores:
        if row.value is not None and (row.low is not None or row.high is not None):
            out.setdefault(row.metric, []).append(row)
    return list(out.items())[:SMALL_PANELS]


def _dots(i: int, kind: str, rows: list[Score], share: str) -> str:
    about = f"{title(kind)}: " + "; ".join(f"{r.benchmark} {number(r.value)} {interval(r)}" for r in rows)
    return figure(title(kind), f"Dot: value; line: {share} % interval", charts.whiskers(f"dots{i}", about, rows[:40]))


# -- curves ---------------------------------------------------------------------------------------------------

def _curves(metrics: MetricCurves | None) -> str:
    if metrics is None:
        return missing("metrics.jsonl", "No curves")
    groups = grouped(metrics.curves)
    out = []
    if groups.loss:
        out.append(_figure_by_step_and_cpu("loss", groups.loss, "Mean over the examples of a logged block"))
    for i, group in enumerate(groups.heldout):
        out.append(_figure_by_step_and_cpu(f"heldout{i}", group, "On what was not trained on"))
    if groups.components:
        caption = ("The columns' own cost as the model sees it, un-hinged and not corrected for their density: "
                   "not the training loss. Higher is harder")
        labels = [label for label, _ in groups.components.curves]
        titled = CurveGroup(groups.components.key, f"Loss on {' against '.join(labels)}", groups.components.curves)
        out.append(_figure_by_step_and_cpu("components", titled, caption))
    for name in ("loss", "heldout"):
        if not getattr(groups, name):
            out.append(absent(f"No {'training loss' if name == 'loss' else 'held-out measure'} was logged."))
    out.append(_small_figures("other", groups.other))
    return "".join(out)


def _source(metrics: MetricCurves | None) -> str:
    if metrics is None:
        return missing("metrics.jsonl", "Nothing of the source")
    groups = grouped(metrics.curves).source
    return _small_figures("source", groups) or absent('The source logged nothing: it does not learn.')


def _figure_by_step_and_cpu(key: str, group: CurveGroup, caption: str) -> str:
    """One measure against steps and, if logged, against CPU seconds."""
    panels = []
    for against, x_label in (("step", "step"), ("cpu", "CPU seconds")):
        drawn = [line for label, curve in group.curves if (line := charts.line(label, curve, against))]
        if drawn:
            about = f"{group.title} against {x_label}. {_ends(group)}"
            panels.append(charts.lines(f"{key}-{against}", about, drawn, x_label))
    if not panels:
        return absent(f'{text(group.title)}: logged, but never as a finite number.')
    parts = max(line.parts for _, c in group.curves if (line := charts.line("", c, "step")))
    band = f"; each point is the mean of {parts} logged values, the band their range" if parts > 1 else ""
    return figure(group.title, f"{caption}{band}. {text(_ends(group))}",
                   f'<div class="panels">{"".join(panels)}</div>')


def _small_figures(key: str, groups: list[CurveGroup]) -> str:
    out = []
    for i, group in enumerate(groups[:SMALL_PANELS]):
        drawn = [line for label, curve in group.curves if (line := charts.line(label, curve, "step"))]
        if drawn:
            svg = charts.lines(f"{key}{i}", f"{group.title} against step. {_ends(group)}", drawn, "step", 310, 190)
            out.append(figure(group.title, text(_ends(group)), svg))
    n_left = len(groups) - SMALL_PANELS
    more = f'<p class="note">{n_left} further measures are not drawn.</p>' if n_left > 0 else ""
    return (f'<div class="many">{"".join(out)}</div>' if out else "") + more


def _ends(group: CurveGroup) -> str:
    last_values = [(label, _last(curve)) for label, curve in group.curves]
    if len(last_values) == 1:
        return f"Last: {minus(number(last_values[0][1]))}"
    return "Last: " + ", ".join(f"{label} {minus(number(value))}" for label, value in last_values)


def _last(curve: Curve) -> float | None:
    return next((v for v in reversed(curve.value) if v == v), None)


# -- neighbours -----------------------------------------------------------------------------------------------

def _neighbours(neighbours: NeighbourLists | None) -> str:
    if neighbours is None:
        return missing("neighbours.json", "No neighbours")
    words = list(dict.fromkeys([*neighbours.near, *neighbours.far]))
    means = []
    if neighbours.far_rank is not None:
        means.append(f"mean frequency rank <b>{number(neighbours.far_rank)}</b>")
    if neighbours.far_pmi is not None:
        means.append(f"mean PMI with the word asked for <b>{minus(number(neighbours.far_pmi))}</b>")
    out = f"<p>Neighbours 45–50 over all words: {', '.join(means)}.</p>" if means else ""
    if not words:
        return out + absent('No word was asked for, or none is in the vocabulary.')
    cards = "".join(f'<div class="word"><h3><bdi>{text(w)}</bdi></h3><div class="pair">'
                    f"{_list('1–5', neighbours.near.get(w, []))}{_list('45–50', neighbours.far.get(w, []))}</div></div>"
                    for w in words)
    return f'{out}<p class="note">By cosine, which stands beside each.</p><div class="words">{cards}</div>'


def _list(ranks: str, neighbours: list[tuple[str, float]]) -> str:
    items = "".join(f"<li><bdi>{text(w)}</bdi><span>{minus(f'{c:.2f}')}</span></li>" for w, c in neighbours)
    return f"<div><span>{ranks}</span><ol>{items or '<li>none</li>'}</ol></div>"


# -- reproduction ---------------------------------------------------------------------------------------------

def _configuration(run: RunRecord) -> str:
    if run.config_text is None:
        return missing("config.yaml", "No configuration")
    lines = "\n".join(text(line) for line in run.config_text.expandtabs(2).splitlines())
    return f"<p>Every key of this run, resolved.</p><pre>{lines}</pre>"


def _identity(run: RunRecord) -> str:
    if run.identity is None:
        return missing("identity.json", "Neither corpus nor code is known")
    rows = [f'<tr><th scope="row">{text(key)}</th><td class="text"><code>{text(value)}</code></td></tr>'
            for key, value in _flat(run.identity, "", 1) if key != "argv"]
    return grid([("what", ""), ("which", "")], rows)


def _flat(tree: dict[str, Any], prefix: str, depth: int) -> list[tuple[str, str]]:
    out = []
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and value and depth < DEPTH:
            out += _flat(value, f"{name} · ", depth + 1)
        else:
            out.append((name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)))
    return out


def _rerun(run: RunRecord) -> str:
    if run.identity is None:
        return missing("identity.json", "The command is not known")
    argv = run.identity.get("argv")
    if not isinstance(argv, list) or not argv or not all(isinstance(a, str) for a in argv):
        return absent('The command is not known: <code>identity.json</code> has no <code>argv</code>.')
    note = "On the same machine, with one thread and the corpus and code named above, it gives the same numbers."
    return f'<pre class="wrap">{text(_command(argv))}</pre><p class="note">{note}</p>'


def _command(argv: list[str]) -> str:
    """The command line as typed, whatever the path of the program was."""
    program = PurePath(argv[0]).name
    if program in ("embtrain", "embtrain.exe", "__main__.py"):
        return shlex.join(["embtrain", *argv[1:]])
    return shlex.join(["embtrain", *argv] if program in COMMANDS else argv)
