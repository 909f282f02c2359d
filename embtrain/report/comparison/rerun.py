"""The section on how to repeat a comparison: command, grid and shared settings."""

from __future__ import annotations

import shlex

from embtrain.common.files import as_argument
from embtrain.report.load import run as run_record
from embtrain.report.load.comparison import Results
from embtrain.report.render.document import Block, Code, Paragraph, ReportTable, TableRow

FLAGS = (("strategies", "--negatives"), ("losses", "--losses"), ("models", "--model"), ("corpus", "--corpus"),
         ("seeds", "--seeds"), ("baseline", "--baseline"), ("metric", "--metric"), ("benchmarks", "--benchmarks"),
         ("cpu_seconds", "--cpu-seconds"), ("trials", "--trials"))


def blocks(results: Results) -> list[Block]:
    out: list[Block] = [Code(command(results), wrap=True)]
    if results.config_text is not None:
        out += [Paragraph("The grid, resolved (comparison.yaml):"),
                Code(results.config_text.expandtabs(2).rstrip("\n"), wrap=True)]
    else:
        commands = [[c.name, str(c.run.identity.get("command", "unknown"))] for c in results.cells
                    if c.run and c.run.identity]
        out += [Paragraph("These runs were trained separately, with these commands:"),
                ReportTable([("run", ""), ("command", "text")], commands)] if commands else []
    runs = [c.run for c in results.cells if c.finished and c.run is not None]
    identities = [run.identity for run in runs if run.identity is not None]
    if not identities:
        return [*out, Paragraph("No run has an identity.json: corpus and code are unknown.", "missing")]
    facts = [run_record.flatten(identity) for identity in identities]
    shared = {key: value for key, value in facts[0].items() if all(other.get(key) == value for other in facts)}
    differ = sorted({key for run_facts in facts for key in run_facts} - set(shared))
    n = len(identities)
    intro = f"Shared by all {n} runs." if n > 1 else "The table contains the identity.json of one run."
    if differ:
        intro += f" They differ in {', '.join(differ)}; see the identity.json of each run."
    out += [Paragraph(intro),
            ReportTable([("what", ""), ("which", "text")], [[key, value] for key, value in shared.items()])]
    return out + _configurations(results)


def _configurations(results: Results) -> list[Block]:
    """The keys, other than the seed, in which the configurations of the strategies differ."""
    configs = [(c.strategy, run_record.flatten(c.run.config)) for c in results.cells if c.finished and c.run
               and c.run.config]
    keys = [key for key in dict.fromkeys(k for _, tree in configs for k in tree)
            if key not in ("train · seed", "strategy") and len({tree.get(key) for _, tree in configs}) > 1]
    by_strategy = dict(reversed(configs))
    if not keys or len(by_strategy) < 2:
        return []
    rows: list[TableRow] = []
    for name in dict.fromkeys(strategy for strategy, _ in configs):
        tree = by_strategy[name]
        rows.append([name, ", ".join(f"{key.replace(' · ', '.')}={tree[key]}" for key in keys if key in tree)])
    return [Paragraph("Differences between the configurations of the strategies:"),
            ReportTable([("strategy", ""), ("keys", "text")], rows)]


def command(results: Results) -> str:
    """The command line that repeats the comparison, from its plan or from the joined runs."""
    if results.config_text is None:
        options = [word for key in ("baseline", "metric") if results.plan.get(key)
                   for word in (f"--{key}", str(results.plan[key]))]
        return shlex.join(["embtrain", "report", *(as_argument(c.folder) for c in results.cells), *options])
    if results.reproduction is not None:
        return results.reproduction.command
    if results.plan.get("runs"):  # flags cannot express this
        return "embtrain compare --config comparison.yaml"
    words = ["embtrain", "compare"]
    for key, flag in FLAGS:
        value = results.plan.get(key)
        if isinstance(value, list):
            names = ["own" if v is None else str(v) for v in value]
            if key == "seeds" and value == list(range(1, len(value) + 1)):
                names = [str(len(value))]
            elif key == "seeds" or any("," in name for name in names):  # flags cannot express this
                return "embtrain compare --config comparison.yaml"
            value = ",".join(names)
        if value not in (None, "", "own"):
            words += [flag, str(value)]
    lists = {flag: results.plan.get(key) for key, flag in (("sets", "--set"), ("search", "--search"))}
    list_words = [word for flag, texts in lists.items() if isinstance(texts, list) for text in texts
                  for word in (flag, str(text))]
    return shlex.join(words + list_words)
