"""The pages are correct: paths, tests, config keys and make targets exist, commands parse, Python examples run.

Every check is also run on planted faults.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import typer.main
from helpers.looped import looped

from embtrain import experiment
from embtrain.cli.commands import app
from embtrain.common import shipped
from embtrain.common.config import Section, read_yaml
from embtrain.common.errors import EmbtrainError
from embtrain.data.catalogue.recipes import find_recipe
from embtrain.experiment.run.settings import Settings
from embtrain.experiment.tasks import base as tasks
from embtrain.gensim import FastText, Word2Vec
from embtrain.gensim.arguments import KEYS, SUBWORD_KEYS
from embtrain.losses import base as losses
from embtrain.models import base as models
from embtrain.negatives import base as negatives
from embtrain.train.state.signals import SIGNALS

ROOT = Path(__file__).resolve().parents[3]
GENERATED = ("docs/_build/", "docs/reference/registry/", "docs/results/generated/", "docs/results/comparisons/")
PAGES = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
         for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
         if not path.relative_to(ROOT).as_posix().startswith(GENERATED)}
FILES = (".txt", ".tsv", ".safetensors", ".md")  # file names that begin like a section of the settings
ROOTS = ("embtrain", "configs", "corpora", "evals", "tests", "docs", ".ci")


def test_the_pages_exist() -> None:
    assert {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/science/equations.md", "docs/reference/formats.md",
            "docs/decisions/index.md"} <= set(PAGES)


def test_a_folder_of_docs_has_at_most_fourteen_entries() -> None:
    folders = [path for path in [ROOT / "docs", *(ROOT / "docs").rglob("*")] if path.is_dir()]
    generated = ("_build", "__pycache__")
    n_entries = {path.relative_to(ROOT).as_posix(): sum(entry.name not in generated for entry in path.iterdir())
                 for path in folders if not set(generated) & set(path.parts)}
    assert {name: n for name, n in n_entries.items() if n > 14} == {}


def test_the_index_of_decisions_lists_each_once_with_its_title() -> None:
    titles = {name.removeprefix("docs/decisions/"): text.partition("\n")[0].removeprefix("# ")
              for name, text in PAGES.items() if re.match(r"docs/decisions/\w+/\d", name)}
    numbers = sorted(name.partition("/")[2][:3] for name in titles)
    assert numbers == [f"{number:03d}" for number in range(1, len(titles) + 1)]
    listed = re.findall(r"^- \[(.*)\]\((.*)\)$", PAGES["docs/decisions/index.md"], re.MULTILINE)
    assert sorted((name, title) for title, name in listed) == sorted(titles.items())


def spans(text: str) -> Iterator[str]:
    """Return the text between backticks, without code blocks."""
    yield from re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


# --- paths and tests -----------------------------------------------------------------------------------------------

def missing_paths(text: str) -> list[str]:
    """Return paths of the repository, and tests in them (path::test), that do not exist. NAME and * match any name."""
    faults = []
    linked = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
    for span in [*spans(text), *linked]:
        path, _, test = span.partition("::")
        if not re.fullmatch(r"[\w.*-]+(/[\w.*-]+)*/?", path):
            continue
        if path.split("/")[0] not in ROOTS and not re.fullmatch(r"[A-Z]+\.md|Makefile|pyproject\.toml", path):
            continue
        if path == "docs" or ("/" not in path and path in ROOTS and path != ".ci"):
            continue
        result = matches(path.rstrip("/").replace("NAME", "*"))
        if not result or (path.endswith("/") and not result[0].is_dir()):
            faults.append(path)
        elif test and test not in functions(result[0]):
            faults.append(span)
    return faults


@functools.cache
def matches(pattern: str) -> list[Path]:
    return sorted(ROOT.glob(pattern))


@functools.cache
def functions(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.FunctionDef)}


@looped("page", PAGES)
def test_paths_and_tests_exist(page: str) -> None:
    assert missing_paths(PAGES[page]) == []


@pytest.mark.parametrize("text", ["`embtrain/no.py`", "`configs/nothing/NAME.yaml`", "`NOWHERE.md`", "[x](docs/no.md)",
                                  "`tests/helpers/worlds.py::test_that_is_not_there`", "`tests/helpers/worlds.py/`"])
def test_a_planted_path_is_found(text: str) -> None:
    assert len(missing_paths(text)) == 1


def missing_anchors(text: str) -> list[str]:
    """Return the links to a section of the same page that no heading has on GitHub: `## A --b` is #a---b."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}
    return [link for link in re.findall(r"\]\(#([^)]+)\)", text) if link not in anchors]


@looped("page", PAGES)
def test_links_to_a_section_work_on_github(page: str) -> None:
    assert missing_anchors(PAGES[page]) == []


def test_a_planted_link_to_a_section_is_found() -> None:
    assert missing_anchors("# Output of --json\n[a](#output-of---json), [b](#output-of-json)") == ["output-of-json"]


# --- commands ------------------------------------------------------------------------------------------------------

def commands(text: str) -> list[str]:
    """Return lines of shell blocks and spans in backticks that begin with our command, without comments."""
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    blocks += re.findall(r"^ {4}(embtrain .*)$", text, re.MULTILINE)
    lines = [line.strip() for block in blocks for line in block.splitlines()] + list(spans(text))
    return [line for line in lines if re.match(r"(\w+=\S+ )*embtrain( |$)", line)]


@functools.cache
def command_line() -> Any:
    """The command with its subcommands, without callbacks, which check paths: those on a page need not exist."""
    command = typer.main.get_command(app)
    commands = [command]
    while commands:
        each: Any = commands.pop()
        for parameter in each.params:
            parameter.callback = None
        commands += getattr(each, "commands", {}).values()
    return command


def parsed(line: str) -> tuple[str, dict[str, Any]]:
    """Return the command of a line and its options; ValueError if the command line would refuse it."""
    line = line.partition(" < ")[0]  # input redirection of the shell
    words = [word for word in shlex.split(line, comments=True) if not re.match(r"[A-Z_]+=", word)][1:]
    command = command_line()
    known = {option for parameter in command.params for option in parameter.opts}
    if words and words[0] in known:
        return "", {}
    path = []
    while words and words[0] in getattr(command, "commands", {}):
        path.append(words[0])
        command = command.commands[words.pop(0)]
    if not path or hasattr(command, "commands"):
        raise ValueError(f"{line}: unknown command")
    if not words:
        return " ".join(path), {}  # mentioned in a sentence
    try:
        return " ".join(path), command.make_context(" ".join(path), words).params
    except Exception as error:  # typer exports click's errors under another name
        if type(error).__name__ not in ("NoSuchOption", "BadParameter", "MissingParameter", "UsageError",
                                        "BadOptionUsage", "BadArgumentUsage"):
            raise
        raise ValueError(f"{line}: {error}") from error


def refused(line: str) -> str:
    """Return the reason why a line cannot run, as far as this is known without running it; '' if there is none."""
    try:
        name, options = parsed(line)
        if name == "fit" and options and not placeholders(line):
            experiment.resolve(options["negatives"], options["model"], options["corpus"], options["loss"],
                               options["config"], list(options["overrides"] or []), options["seed"], options["threads"],
                               options["device"])
        if name in ("data fetch", "data verify") and options:
            for data in options["names"]:
                find_recipe(data)
        for benchmarks in (options.get("on") or []) if name == "evaluate" else []:
            for benchmark in benchmarks.split(","):
                if not Path(benchmark).suffix:               # a file of the reader has one
                    shipped.path("evals", benchmark)
    except (ValueError, EmbtrainError) as error:
        return str(error)
    return ""


def placeholders(line: str) -> bool:
    return bool(re.search(r"\b[A-Z]{3,}\b", line))


@looped("page", ["README.md", *(f"docs/{name}.md" for name in (
    "index", "reference/formats", "choose/index", "choose/strategies", "reference/models", "how-to/data", "how-to/runs",
    "how-to/scale", "how-to/negatives",
    *(f"guide/tutorials/{name}" for name in ("words", "language", "walks", "labels", "graphs", "hierarchies"))))])
def test_commands_would_run(page: str) -> None:
    lines = commands(PAGES[page])
    assert lines and [reason for line in lines if (reason := refused(line))] == []


def test_the_first_screen_has_a_description_commands_and_links() -> None:
    """Fifty lines: a command for each kind of data, and a link to a page with more."""
    first = "\n".join(PAGES["README.md"].splitlines()[:50])
    begun = {parsed(line)[1].get("model") for line in commands(first) if parsed(line)[0] == "fit"}
    assert begun == {None, "transe", "order", "nmt", "xc", "lm"}
    assert "make fit" in first and "pip install" in first and "report" in first
    walks = {path.stem for path in (ROOT / "docs/guide/walkthroughs").glob("*.md")} - {"index"}
    assert set(re.findall(r"\(docs/guide/walkthroughs/(\w+)\.md\)", first)) == walks
    assert len(PAGES["README.md"].splitlines()) <= 120


def test_commands_of_the_contributor_parse() -> None:
    lines = commands(PAGES["CONTRIBUTING.md"])
    assert {parsed(line)[0] for line in lines} >= {"fit"}


@looped("line", [
    "embtrain fits", "embtrain fit --negative nce", "embtrain fit --negatives nice", "embtrain data fetch nothing",
    "embtrain fit --set text.windows=3", "embtrain evaluate x.txt --on wordsim", "embtrain data", "embtrain",
    "embtrain fit --seed x", "embtrain export runs/x --format word2vec", "embtrain fit --corpus x extra",
])
def test_a_planted_command_is_refused(line: str) -> None:
    assert refused(line)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_make_targets_exist(page: str) -> None:
    rules = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    lines = [*spans(PAGES[page]), *re.findall(r"^make .*$", PAGES[page], re.MULTILINE)]
    named = {line.split()[1] for line in lines if line.startswith("make ")}
    assert "test" in named and named <= rules


@pytest.mark.long
@pytest.mark.usefixtures("empty_charts")
def test_the_python_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                 capsys: pytest.CaptureFixture[str]) -> None:
    names = ("docs/how-to/data.md", "README.md", "docs/how-to/negatives.md", "docs/how-to/runs.md",
             "docs/reference/api.md")
    pages = "".join(PAGES[name] for name in names)
    example = "\n".join(re.findall(r"```python\n(.*?)```", pages, re.DOTALL))
    assert all(name in example for name in ("embtrain.fit(", "GridSearchCV(", "embtrain.nn.RankingNCE("))
    text = [" ".join(f"w{(line * 7 + word * word) % 31}" for word in range(40)) + " king queen" for line in range(60)]
    (tmp_path / "my.txt").write_text("\n".join(text) + "\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EMBTRAIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("EMBTRAIN_OFFLINE", "1")
    exec(compile(example, "examples.py", "exec"), {"__name__": "__main__"})
    printed = capsys.readouterr().out
    assert "wordsim353" in printed and Path(tmp_path, printed.split()[-1]).is_file(), printed
    assert (tmp_path / "documents.svm").read_text().splitlines()[0].startswith("1 ")      # the label `plant`


@pytest.mark.long
def test_the_code_of_the_gensim_page_runs_and_its_table_lists_every_argument(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    page = PAGES["docs/how-to/gensim.md"]
    code = "\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EMBTRAIN_CACHE", str(tmp_path / "cache"))
    exec(compile(code, "gensim.py", "exec"), {"__name__": "__main__"})
    printed = capsys.readouterr().out
    assert re.match(r"(\[\('(king|queen|crown)'.*\d\.\d+\)\]\n){2}[\d.]+\n[\d.]+\n$", printed), printed
    cells = rows(page.split("## Arguments")[1].split("\n## ")[0])[2:]
    listed = {name: key.strip("`") for theirs, key, _ in cells for name in spans(theirs)}
    assert set(listed) == {*inspect.signature(Word2Vec.__init__).parameters,
                           *inspect.signature(FastText.__init__).parameters} - {"self"}
    assert {name: listed[name] for name in KEYS | SUBWORD_KEYS} == KEYS | SUBWORD_KEYS


# --- keys ----------------------------------------------------------------------------------------------------------

def keys_of(section: type[Section], prefix: str) -> set[str]:
    """Return the keys of a section and of the sections in it, optional ones included."""
    found = {f"{prefix}.{name}" for name in section.model_fields}
    for name, field in section.model_fields.items():
        for part in (field.annotation, *get_args(field.annotation)):
            if isinstance(part, type) and issubclass(part, Section):
                found |= keys_of(part, f"{prefix}.{name}")
    return found


@functools.cache
def all_keys() -> set[str]:
    """Return every key of the tree, with those of single models, sources, losses and tasks."""
    result = set(Settings.model_fields)
    for name, field in Settings.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            result |= keys_of(field.annotation, name)
    for kind, prefix in ((models, "model"), (negatives, "negatives"), (losses, "loss")):
        for name in kind.names():
            result |= keys_of(kind.find(name).Config, prefix)
    for task in tasks.names():
        task_type = tasks.find_by_name(task)
        result |= {task_type.section} | keys_of(task_type.Config, task_type.section)
        result |= keys_of(task_type.Evaluate, "evaluate")
    return result


def unknown_keys(text: str, known: set[str]) -> list[str]:
    sections = "|".join(sorted({key.split(".")[0] for key in known if "." in key}))
    named = [match[1] for span in spans(text) if (match := re.match(rf"((?:{sections})\.[a-z_]+)(?:[:= ]|$)", span))]
    return [key for key in named if key not in known and not key.endswith(FILES) and not (ROOT / key).exists()]


@looped("page", PAGES)
def test_config_keys_exist(page: str) -> None:
    assert unknown_keys(PAGES[page], all_keys()) == []


def test_a_planted_key_is_found() -> None:
    known = all_keys()
    assert unknown_keys("`text.windows` and `loss.names: x`", known) == ["text.windows", "loss.names"]
    assert unknown_keys("`text.window` `negatives.generator_lr` `loss.partition` `model.tau`", known) == []


# --- tables --------------------------------------------------------------------------------------------------------

def rows(text: str) -> list[list[str]]:
    """Return the cells of the rows of all tables; a bar inside a cell has a backslash."""
    lines = (line for line in text.splitlines() if line.startswith("|"))
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_the_table_of_strategies_lists_the_shipped_ones() -> None:
    section = PAGES["docs/choose/strategies.md"].split("\n## ")[0]
    options = {cells[0].strip("`"): tuple(cells[1:4]) for cells in rows(section) if cells[0].startswith("`")}
    shipped_ones = {}
    for name in shipped.names("configs", "strategies"):
        tree = read_yaml(shipped.path("configs", name, "strategies")).tree
        reads = "tied" in tree.get("model", {})
        config = experiment.resolve(name, model="transe" if "triples" in tree else "lm" if reads else None)
        shipped_ones[name] = (config.negatives.source, config.loss.name, config.negatives.filter)
    assert options == shipped_ones


def test_every_stage_names_its_keys() -> None:
    section = PAGES["docs/index.md"].split("## The stages of a run")[1].split("\n## ")[0]
    stages = [cells for cells in rows(section) if cells[0] != "stage" and not cells[0].startswith("---")]
    assert len(stages) == 11 and all(len(cells) == 3 and "`" in cells[2] for cells in stages)
    known = all_keys()
    assert all(span in known for cells in stages[:-1] for span in spans(cells[2]))


def test_science_has_a_row_for_each_item_once() -> None:
    first = [cells[0] for cells in rows(PAGES["docs/science/equations.md"]) if re.fullmatch(r"[NA]\d+", cells[0])]
    expected = [*range(1, 17), *range(18, 21)], [*range(1, 17), *range(18, 27)]
    assert first == [f"N{n}" for n in expected[0]] + [f"A{n}" for n in expected[1]]


def test_exit_codes_are_those_of_the_errors() -> None:
    section = PAGES["docs/how-to/runs.md"].split("## Exit codes")[1].split("\n## ")[0]
    options = {int(code) for cells in rows(section) for code in re.findall(r"\d+", cells[0])}
    stopped = (128 + number for number in SIGNALS)
    assert options == {0, *(kind.code for kind in [EmbtrainError, *EmbtrainError.__subclasses__()]), *stopped, 141}
