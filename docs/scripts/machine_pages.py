"""Makes the pages that programs read: docs/machines/llms.txt, a list of the pages, and docs/machines/SKILL.md, recipes.

    python docs/scripts/machine_pages.py       writes both; the site serves them next to index.html

The list has the title and the first sentence of each page. The recipes are below, and the tests run them
(tests/unit/docs/test_machine_pages.py); commands, strategies, models and keys come from the package.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import typer.main

from embtrain.cli import commands
from embtrain.common.config import Section
from embtrain.experiment.catalogue.listing import GROUPS, listing
from embtrain.experiment.run.settings import Settings

DOCS = Path(__file__).resolve().parents[1]
FOLDER = DOCS / "machines"
SECTIONS = ("start", "guide", "how-to", "choose", "reference", "results", "science", "contributing", "decisions")
SUMMARY = ("embtrain trains embeddings (words, graphs, hierarchies, labels, translators) with interchangeable negative "
           "samplers, evaluates them and compares samplers over several seeds. Python package and command line.")


class Recipe(NamedTuple):
    """A task with its commands. `files`: files that a command needs, in addition to text/, graph.tsv and kinds.tsv."""

    title: str
    lines: tuple[str, ...]
    about: str
    files: tuple[tuple[str, str], ...] = ()


STRATEGY = """# Skip-gram with uniform noise and ten negatives.
negatives: {source: uniform, k: 10, filter: target}
loss: {name: logistic}
"""
RECIPES = (
    Recipe("Find names", ("embtrain list --json", "embtrain data list --json"),
           "Strategies with `group`, `source` and `loss`; models, losses, corpora, benchmarks. `--combinations` adds "
           "which fit."),
    Recipe("Plan a run without training it", ("embtrain fit --strategy sgns --corpus text --dry-run --json",),
           "All settings, the files of the corpus, memory in bytes and seconds."),
    Recipe("Train word vectors on your own text", (
        "embtrain fit --strategy sgns --corpus text --dim 50 --epochs 2 --set evaluate.benchmarks=[] --seed 1 "
        "--threads 1 --out runs/words --quiet --json",),
        "A file, a folder or an archive of text. Without `--set evaluate.benchmarks=[]` the default benchmarks are "
        "read or downloaded. One thread and one seed give the same bits again."),
    Recipe("Continue a run that was stopped", ("embtrain resume runs/words --quiet --json",),
           "Exit codes 129, 130 and 143 mean stopped, and the state is saved. A finished run is only evaluated again."),
    Recipe("Query vectors", ("embtrain neighbours runs/words bal --count 3 --json",),
           "Works on runs and on files of vectors (word2vec, GloVe, fastText, safetensors)."),
    Recipe("Export vectors", ("embtrain export runs/words --format word2vec --out words.txt",),
           "Also word2vec-binary, glove, fasttext, safetensors, faiss, usearch, huggingface, projector and pykeen."),
    Recipe("Evaluate on your own benchmark", ("embtrain evaluate runs/words --on pairs.tsv --json",),
           "Each line of the table: two words and a score. Prints `metric`, `value` and the interval `low` to `high`.",
           (("pairs.tsv", "word1\tword2\tscore\nbal\tbam\t9\nbal\tdel\t2\nbem\tben\t7\nfil\tkon\t1\nbil\tbim\t8\n"),)),
    Recipe("Compare strategies over seeds", (
        "embtrain compare --strategies sgns,nce --corpus text --seeds 2 --epochs 1 --dim 8 "
        "--set evaluate.benchmarks=[] --set evaluate.resamples=0 --out runs/compared --quiet --json",),
        "`differences` in the result has a verdict with its interval for each strategy; runs/compared has the report."),
    Recipe("Predict links of a graph and of a hierarchy", (
        "embtrain fit --model transe --corpus graph.tsv --dim 8 --epochs 2 --out runs/graph --quiet",
        "embtrain predict runs/graph a next _ --top 2 --json",
        "embtrain fit --model order --corpus kinds.tsv --dim 8 --epochs 2 --out runs/kinds --quiet",
        "embtrain predict runs/kinds beagle _ --json"),
        "A graph has lines `head relation tail`, a hierarchy `hyponym hypernym`, separated by TABs. `_` is the open "
        "place."),
    Recipe("Write a strategy of your own", (
        "embtrain config schema --out schema.json", "embtrain check mine.yaml --json",
        "embtrain fit --strategy mine.yaml --corpus text --dry-run --json"),
        "A source, a loss and their keys. `check` runs the contract of samplers, on a Python file with sources too.",
        (("mine.yaml", STRATEGY),)),
)


def pages() -> dict[str, str]:
    """Return the name of each page of docs/machines and its text."""
    return {"llms.txt": _list_of_pages(), "SKILL.md": _skill()}


def _list_of_pages() -> str:
    parts = [f"# embtrain\n\n> {SUMMARY}\n\n- [Recipes, commands and keys on one page](SKILL.md)\n"]
    for section in SECTIONS:
        files = sorted((DOCS / section).rglob("*.md"), key=lambda path: (path.stem != "index", path.as_posix()))
        lines = [_link(path) for path in files if not {"generated", "comparisons", "registry"} & set(path.parts)
                 and path.name != "README.md" and (section != "decisions" or path.stem == "index")]
        if section == "reference":
            lines += [f"- [{name.capitalize()}](reference/registry/{name}.html): every key with its default."
                      for name in ("sources", "losses", "models", "settings")]
        parts.append(f"## {section.capitalize()}\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def _link(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    titles = (line.removeprefix("# ") for line in text.splitlines() if line.startswith("# "))
    title = next(titles, path.stem.capitalize())
    address = path.relative_to(DOCS).with_suffix(".html").as_posix()
    return f"- [{title}]({address})" + (f": {about}" if (about := _first_sentence(text)) else "")


def _first_sentence(text: str) -> str:
    """Return the first sentence of a page's prose, without roles and links; '' if it begins with something else."""
    _, _, body = text.partition("\n# " if not text.startswith("# ") else "# ")
    for part in body.partition("\n")[2].split("\n\n"):
        if not (line := " ".join(part.split())) or line.startswith(("(", "<!--")):
            continue
        if line[0] in "`|#:{-*>!" and not line.startswith("`embtrain"):
            return ""
        line = re.sub(r"\{\w+\}`([^`<]*?)(?: *<[^`]*)?`", lambda match: match[1].rpartition("/")[2], line)
        line = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", line)
        return re.split(r"(?<=[.:]) ", line, maxsplit=1)[0].rstrip(":")
    return ""


def _skill() -> str:
    recipes = [f"## {number}. {recipe.title}\n\n{recipe.about}\n\n" +
               "".join(f"{name}:\n\n```text\n{text}```\n\n" for name, text in recipe.files) +
               "```sh\n" + "".join(f"{line}\n" for line in recipe.lines) + "```\n"
               for number, recipe in enumerate(RECIPES, 1)]
    names = listing()
    groups = [f"- {title}: " + ", ".join(f"`{entry['name']}`" for entry in names["strategies"]
                                         if entry["group"] == group) for group, title in GROUPS.items()]
    return "\n".join([
        "---\nname: embtrain\ndescription: Train, evaluate and compare embeddings with interchangeable negative "
        "samplers.\n---\n\n# embtrain on one page\n", f"{SUMMARY}\n",
        "Every command takes `--quiet` and `--json`: one JSON value on standard output, progress and warnings on "
        "standard error. An error is one line on standard error with the file, line or key, and the remedy. Exit "
        "codes: 0 done, 2 usage, 3 data, 4 resources, 129, 130 and 143 stopped, 70 a bug.\n",
        *recipes,
        "## Commands\n", "\n".join(f"- `embtrain {name}`: {about}" for name, about in _commands()) + "\n",
        "## Strategies (`--strategy`)\n", "\n".join(groups) + "\n",
        "## Models (`--model`)\n", _entries(names["models"]), "## Losses (`--loss`)\n", _entries(names["losses"]),
        "## General keys (`--set KEY=VALUE`)\n",
        "\n".join(f"- `{key}`, {_value(default)}: {about}" for key, default, about in _keys(Settings)) + "\n",
        "`embtrain config show --negatives NAME --model NAME` prints all keys of a run with comments."]) + "\n"


def _entries(components: list[dict[str, str]]) -> str:
    return "\n".join(f"- `{entry['name']}`: {entry['about']}" for entry in components) + "\n"


def _commands(group: Any = None, path: str = "") -> Iterator[tuple[str, str]]:
    for name, command in (group or typer.main.get_command(commands.app)).commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", command.get_short_help_str(1_000)


def _keys(section: type[Section], path: str = "") -> Iterator[tuple[str, Any, str]]:
    """Yield key, default and description of every general key."""
    for name, info in section.model_fields.items():
        if isinstance(info.default, Section):
            yield from _keys(type(info.default), f"{path}{name}.")
        else:
            yield f"{path}{name}", info.get_default(call_default_factory=True), info.description or ""


def _value(default: Any) -> str:
    return "null" if default is None else str(default).lower() if isinstance(default, bool) else f"{default}"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
