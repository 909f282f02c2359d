"""The site: it builds without warnings and network access; its tables and pictures equal the raw rows; names from
other tools are listed with existing keys. Also the files that a release needs in addition to the package.
"""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from functools import cache
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from gensim.models import Word2Vec
from unit.docs.test_docs import all_keys, rows, spans
from unit.docs.test_tutorials import DOCS, script

import embtrain
from embtrain import experiment
from embtrain.common import shipped
from embtrain.common.config.renamed_keys import OF_OTHER_TOOLS
from embtrain.common.errors import UsageError

pytestmark = pytest.mark.long

ROOT = DOCS.parent
OUTSIDE = (r'<(?:script|img|iframe|source)[^>]*\ssrc="(?:https?:)?//|<link[^>]*\shref="(?:https?:)?//|@import|'
           r"""url\(["']?(?:https?:)?//""")
make = script("make")  # first: it adds the folder of the others to the path
raw, choosing, agreement, layouts = (script(name) for name in ("raw", *(f"comparing/{name}" for name in (
    "choosing", "agreement", "layouts"))))
generated, charts = cache(make.generated), cache(make.charts)


# --- the build -----------------------------------------------------------------------------------------------------

@pytest.mark.slow
def test_the_site_builds_without_warnings_and_network(tmp_path: Path) -> None:
    if find_spec("sphinx") is None or find_spec("furo") is None or find_spec("myst_parser") is None:
        pytest.skip("docs: sphinx, furo and myst-parser are not installed; pip install -e '.[docs]' brings them")
    done = subprocess.run([sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-d",
                           str(tmp_path / "trees"), str(DOCS), str(tmp_path / "site")],
                          capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    site = {path.relative_to(tmp_path / "site").as_posix(): path.read_text(encoding="utf-8")
            for path in (tmp_path / "site").rglob("*") if path.suffix in (".html", ".css", ".js")}
    assert {"index.html", "choose/index.html", "results/index.html", "guide/tutorials/graphs.html",
            "contributing/adding.html"} <= set(site)
    assert [name for name, text in site.items() if name.endswith((".html", ".css")) and re.search(OUTSIDE, text)] == []
    assert all((tmp_path / "site" / name).is_file() for name in ("llms.txt", "SKILL.md"))
    assert 'class="flow"' in site["index.html"]
    assert site["results/index.html"].count('class="chart"') == len(make.comparisons()) + 1
    assert "class=\"problematic\"" not in "".join(site.values())
    for name in ("embtrain.fit", "embtrain.common.types.Negatives", "embtrain.negatives.base.NegativeSource",
                 "embtrain.losses.base.Loss", "embtrain.models.base.Model", "embtrain.SkipGramEmbedder",
                 "embtrain.nn.SampledLoss", "embtrain.nn.SampledSoftmax"):
        assert f'id="{name}"' in site["reference/api.html"], name
    assert 'class="floors"' in site["contributing/architecture.html"] and "reference/registry/sources.html" in site
    assert 'href="../science/bibliography.html#rawat2019"' in site["choose/samplers.html"]
    assert "costly" in site["contributing/adding.html"]
    assert 'href="../results/index.html#english-18m"' in site["choose/index.html"]


@pytest.mark.parametrize("text", ['<script defer src="https://x.org/a.js">', '<link rel="s" href="//x.org/a.css">',
                                  "a{background:url(https://x.org/a.png)}", '@import "x.css"'])
def test_external_resources_are_found(text: str) -> None:
    assert re.search(OUTSIDE, text)


def test_the_picture_shows_the_whole_pipeline_and_is_self_contained() -> None:
    text = (DOCS / "pictures" / "data-flow.svg").read_text(encoding="utf-8")
    shown = [part.text for part in ElementTree.fromstring(text).iter("{http://www.w3.org/2000/svg}text")]
    assert [name for name in shown if name in WAY] == [*WAY[-1:], *WAY[:-1]]
    assert "prefers-color-scheme:dark" in text and "http" not in text.replace("http://www.w3.org/2000/svg", "")


def test_the_picture_of_the_architecture_shows_each_folder() -> None:
    text = (DOCS / "pictures" / "architecture.svg").read_text(encoding="utf-8")
    shown = {part.text for part in ElementTree.fromstring(text).iter("{http://www.w3.org/2000/svg}text")}
    package = ROOT / "embtrain"
    folders = {path.name for path in package.iterdir() if (path / "__init__.py").exists()}
    page = (DOCS / "contributing" / "architecture.md").read_text(encoding="utf-8")
    assert folders <= shown and folders <= set(spans(page))


WAY = ["corpus", "task", "Batch", "model.encode", "Query", "source.draw", "Negatives", "mask", "LossInput", "loss",
       "LossOutput", "update", "source.learn"]


# --- tables and pictures -------------------------------------------------------------------------------------------

def test_tables_and_pictures_equal_the_raw_rows() -> None:
    now = generated()
    there = {path.relative_to(make.GENERATED).as_posix(): path.read_text(encoding="utf-8")
             for path in make.GENERATED.rglob("*.*")}
    assert sorted(now) == sorted(there)
    stale = [name for name in now if now[name] != there[name]]
    assert stale == [], "run python docs/scripts/make.py"
    drawn = charts()
    assert set(drawn) == {path.parent / "chart.svg" for path in raw.RESULTS.glob("comparisons/*/*/scores.csv")}
    assert [path for path, text in drawn.items() if path.read_text(encoding="utf-8") != text] == []
    assert make.REPORT.read_text(encoding="utf-8") == make.report_chart()


def test_every_measured_row_is_shown_and_every_other_row_is_listed() -> None:
    folders = {path.parent.name for path in raw.RESULTS.glob("comparisons/*/*/scores.csv")}
    benches = {path.stem for path in raw.BENCH.rglob("bench-*.json")}
    assert set(raw.about()["runs"]) == folders | benches | {"skipgram-and-gensim"}
    now = generated()
    assert all(f"({name})=" in now["comparisons.md"] for name in folders)
    assert all(f"`{name}`" in now["bench.md"] for name in benches)
    assert {cells[1].split("`")[1] for cells in rows(now["choose.md"])[2:]} >= {"english-18m", "gensim-wiki", "ptb"}
    for name in shipped.names("configs", "paper"):
        assert (f"`embtrain reproduce {name}`" in now["absent.md"]) is (name not in folders), name
    for text in [*charts().values(), *(text for name, text in now.items() if name.endswith(".svg"))]:
        ElementTree.fromstring(text)


def test_every_result_names_the_licences_of_its_data() -> None:
    lines = {cells[0].strip("`"): cells for cells in rows(generated()["licences.md"])[2:]}
    assert list(lines) == [*shipped.names("corpora"), *shipped.names("evals")]
    assert all(len(cells) == 4 and cells[1].strip() for cells in lines.values())
    for result in make.comparisons():
        assert all(result.name in lines[source][3].split(", ") for source in raw.sources(result)), result.name


def known(metric: str = "test/mrr", **of: list[float]) -> raw.Comparison:
    values = {metric: {label: dict(enumerate(seen, 1)) for label, seen in of.items()}}
    return raw.Comparison(Path("x"), {"metric": metric}, list(of), [], values, {}, None)


def test_the_choice_is_correct_for_rows_with_a_known_result() -> None:
    result = known(nce=[.50, .51, .49, .50, .50], ace=[.51, .52, .50, .512, .511], sgns=[.52, .50, .51, .53, .49],
                  uniform=[.30, .31, .29, .30, .30])
    choice = choosing.choose(result, "test/mrr")
    assert choice.best == "ace" and choice.good == ["ace", "sgns"]
    assert [name for name, _ in choice.worse] == ["nce", "uniform"]
    assert dict(choice.worse)["uniform"].startswith("−0.21060 [−0.2117")


def test_the_highest_is_corrected_for_all_pairs() -> None:
    """The highest was chosen from the same rows, so a difference among two pairs may not be one among all three."""
    result = known(a=[.50, .50, .50, .50, .50], b=[.51, .52, .508, .53, .512], c=[.515, .50, .515, .53, .50])
    alone = choosing.paired_t(result.values["test/mrr"]["a"], result.values["test/mrr"]["b"], ("a", "b"), "test/mrr")
    assert alone.p is not None and .05 / 3 < alone.p < .05 / 2
    assert choosing.choose(result, "test/mrr") == choosing.Choice("test/mrr", "b", ["a", "b", "c"], [])


def test_runs_without_values_and_few_seeds_decide_no_choice() -> None:
    """Else the missing log-likelihood of a run that diverged would count as 0, the highest of all."""
    seen = {"nce": [-3.0, -3.1, -3.2, -3.1, -3.2], "sgns": [-3.52, -3.6, -3.7, -3.61, -3.7], "diverged": []}
    few = {label: values[:2] for label, values in seen.items()}
    for metric in ("test/log_likelihood", "test/log_z_abs"):
        best, other = ("nce", "sgns") if metric == "test/log_likelihood" else ("sgns", "nce")
        choice = choosing.choose(known(metric, **seen), metric)
        assert (choice.best, choice.good, [label for label, _ in choice.worse]) == (best, [best], [other])
        assert choosing.choose(known(metric, **few), metric)[1:] == (best, ["nce", "sgns"], [])
    found = known(**seen)
    found.values["test/mrr"].pop("diverged")
    assert choosing.choose(found, "test/mrr").good == ["nce"]


def test_a_score_table_has_the_runs_with_values_and_the_best_first(monkeypatch: pytest.MonkeyPatch) -> None:
    found = known("test/log_z_abs", a=[3.0, 3.1, 3.2, 3.1, 3.1], b=[1.0, 1.1, 1.2, 1.1, 1.2], diverged=[])
    monkeypatch.setattr(agreement, "task_comparisons", lambda: [found])
    first, second = agreement.score_tables().splitlines()[-2:]
    assert first.startswith("| `b` | 1.12") and second.startswith("| `a` | 3.10") and "| +1.980 " in second


def task(name: str, folder: str, means: list[float]) -> Any:
    """A comparison of strategies a, b, ... with two seeds around the means."""
    values = {chr(97 + i): {1: mean - .01, 2: mean + .01} for i, mean in enumerate(means)}
    return raw.Comparison(Path(folder) / name, {"metric": "test/mrr", "seeds": [1, 2]}, list(values), [],
                          {"test/mrr": values}, {}, None)


def test_the_agreement_of_two_tasks_is_kendalls_tau_of_their_means(monkeypatch: pytest.MonkeyPatch) -> None:
    first = [.1, .2, .3, .4, .5]
    found = [task("x", "like-for-like", first), task("y", "like-for-like", first[::-1]),
             task("z", "like-for-like", [.1, .2, .3, .5, .4]), task("other", "words", first)]
    monkeypatch.setattr(agreement, "comparisons", lambda: found)
    monkeypatch.setattr(agreement, "RESAMPLES", 50)                            # of seeds that have one order
    lines = agreement.agreement_table().splitlines()
    assert lines[2:] == ["| x, y | 5 | −1.00 [−1.00, −1.00] |", "| x, z | 5 | 0.80 [0.80, 0.80] |",
                         "| y, z | 5 | −0.80 [−0.80, −0.80] |", "| mean |  | −0.33 |"]
    monkeypatch.setattr(agreement, "comparisons", lambda: found[:2])
    assert len(agreement.agreement_table().splitlines()) == 3                 # one pair needs no mean
    monkeypatch.setattr(agreement, "comparisons", lambda: found)
    firsts = [part.splitlines()[4] for part in agreement.score_tables().split("### ")[1:]]
    assert firsts == ["| `e` | 0.500 [0.373, 0.627] |  |", "| `a` | 0.500 [0.373, 0.627] |  |",
                      "| `d` | 0.500 [0.373, 0.627] |  |"]



def test_layouts_and_vectors_are_compared_by_the_mean_of_the_benchmarks(tmp_path: Path,
                                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    by_label = {"private": 0.0, "block64": 0.1, "block64-order": 0.2, "private-order": 0.1, "private-r0.05": 0.3}
    values = {f"{name}/spearman": {label: {1: by + i, 2: by + i + (.04 if label == "block64" and i else 0)}
                                   for label, by in by_label.items()} for i, name in enumerate(layouts.BENCHMARKS)}
    seconds = {label: {1: 3.0, 2: 5.0} for label in by_label}
    found = raw.Comparison(tmp_path / "order" / "order-x", {"corpus": "x"}, list(by_label)[:2], [],
                           {**values, raw.CPU: seconds}, {}, None)
    second = found._replace(folder=tmp_path / "order" / "order-x-text", labels=list(by_label)[2:])
    other = found._replace(folder=tmp_path / "words" / "order-y")
    monkeypatch.setattr(layouts, "comparisons", lambda: [found, second, other])
    lines = layouts.layout_table().splitlines()[2:]
    assert lines[0] == "| `x` | `private` | 0.000 | 1.000 | 2.000 | 3.000 | 1.500 |  | 4 |"
    assert lines[1] == ("| `x` | `block64` | 0.100 | 1.120 | 2.120 | 3.120 | 1.615 | +0.115 [−0.076, 0.306], "
                        "not separable | 4 |")
    assert "| `block64-order` | `private-r0.05` | −0.100 |" in layouts.pair_table()
    part = found._replace(folder=tmp_path / "order" / "z", grid={"corpus": "z"})          # without two of the layouts
    monkeypatch.setattr(layouts, "comparisons", lambda: [found, second, part])
    assert layouts.pair_table().splitlines()[2].endswith(" | – |") and "`z`" in layouts.layout_table()
    monkeypatch.setattr(layouts, "comparisons", lambda: [found, second])
    found.folder.mkdir(parents=True)
    (found.folder / "scores.csv").write_text("benchmark,metric,note\n" + "".join(
        f'{name},spearman,"{i} of 9 pairs found, others dropped"\n' for i, name in enumerate(layouts.BENCHMARKS)))
    assert layouts.coverage_table().splitlines()[2:] == ["| `x` | 0 of 9 | 1 of 9 | 2 of 9 | 3 of 9 |"]
    rows = [{"text": "x", "run": "private", "seed": seed, "vectors": table, "centred": centred,
             **dict.fromkeys(layouts.BENCHMARKS, .1 * centred + .2 * (table == "sum") + .01 * seed * centred)}
            for seed in (1, 2) for table, centred in layouts.KINDS]
    (tmp_path / layouts.VECTORS).write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr(layouts, "ROWS", tmp_path)
    cells = [[cell.strip() for cell in line.split("|")[3:-1]] for line in layouts.vector_table().splitlines()[2:]]
    assert [(line[0], line[-1]) for line in cells] == [
        ("u", "0.000"), ("u, centred", "+0.115 [0.051, 0.179]"), ("u + v", "+0.200"),
        ("u + v, centred", "+0.315 [0.251, 0.379]")]


def test_sources_and_losses_are_crossed() -> None:
    result = known(**{"a+x": [.1, .2], "a+y": [.3, .5], "y-z": [.7, .9]})
    result.grid["runs"] = {"a+x": {"loss": "x"}, "a+y": {"loss": "y_z"}, "y-z": {"loss": None}}
    head, _, first, last = make.by_loss(result, "test/mrr").splitlines()
    assert head == "| test mean reciprocal rank | `x` | `y_z` |"
    assert first.startswith("| a | 0.150 [") and "| 0.400 [" in first and last.startswith("| y-z |  | 0.800 [")


def test_a_picture_has_each_mean_at_its_position() -> None:
    points = [make.Point("a", 0.0, None, None, "0"), make.Point("b", 1.0, .5, 2.0, "1")]
    text = make.dots("t", [make.Panel("h <", points)])
    marks = [float(x) for x in re.findall(r'<circle cx="([\d.]+)"', text)]
    ends = [float(x) for pair in re.findall(r'<line x1="([\d.]+)" x2="([\d.]+)"', text) for x in pair]
    assert len(marks) == 2 and "h &lt;" in text and ends[1] - marks[0] == pytest.approx(2 * (marks[1] - marks[0]))
    assert ends[0] == pytest.approx((marks[0] + marks[1]) / 2)


# --- other tools ---------------------------------------------------------------------------------------------------

def tables() -> dict[str, list[list[str]]]:
    page = (DOCS / "guide" / "coming-from.md").read_text(encoding="utf-8")
    return {part.partition("\n")[0]: [cells for cells in rows(part) if len(cells) == 3][2:]
            for part in page.split("\n## ")[1:]}


def test_their_names_are_listed_with_existing_keys() -> None:
    result = tables()
    assert list(result) == ["gensim", "fastText", "PyKEEN", "seq2seq-con"]
    assert all(len(part) > 10 for part in result.values())
    plain = {"run.vectors", "mrr", "mr", "hits@k", "amri"}
    keys = all_keys()
    for tool, part in result.items():
        for theirs, ours, _ in part:
            for span in spans(ours):
                assert span.partition(":")[0] in keys | plain, f"{tool}: {theirs}: {span}"


def test_errors_name_the_keys_of_the_page() -> None:
    """An unknown key with the name of another tool's parameter is answered with the key that this page lists for it."""
    listed = {(name.lstrip("-"), key) for part in tables().values() for theirs, ours, _ in part
              for name, key in product(spans(theirs), spans(ours))}
    assert set(OF_OTHER_TOOLS.items()) <= listed
    for theirs, ours in OF_OTHER_TOOLS.items():
        with pytest.raises(UsageError, match=rf"{theirs}: unknown key \(did you mean '{re.escape(ours)}'\?"):
            experiment.resolve("sgns", "skipgram", sets=[f"{theirs}=5"])


@pytest.mark.parametrize("tool", ["gensim", "fastText", "PyKEEN", "seq2seq-con"])
def test_listed_values_are_accepted(tool: str) -> None:
    model = {"PyKEEN": "transe", "seq2seq-con": "lm"}.get(tool, "skipgram")
    tried = 0
    for cells in tables()[tool]:
        for span in [span for cell in cells[1:] for span in spans(cell)]:
            key, colon, value = span.partition(": ")
            if not colon or key not in all_keys():
                continue
            base = value if key == "strategy" else "uniform" if key == "negatives.source" else None
            loss = value if key == "loss.name" else None
            sets = [] if key in ("strategy", "loss.name") else [f"{key}={value}"]
            experiment.resolve(base, model, loss=loss, sets=sets)
            tried += 1
    assert tried >= 2 or tool == "gensim"


def test_the_names_of_gensim_exist_in_gensim() -> None:
    known = set(inspect.signature(Word2Vec.__init__).parameters)
    named = {span.partition("=")[0] for theirs, _, _ in tables()["gensim"] for span in spans(theirs)}
    assert named - known == {"wv"}


def test_defaults_that_differ_from_gensim_are_named() -> None:
    page = (DOCS / "guide" / "coming-from.md").read_text(encoding="utf-8")
    listed = page.partition("These differ unless you set them otherwise:")[2].partition("\n## ")[0]
    theirs = {name: value.default for name, value in inspect.signature(Word2Vec.__init__).parameters.items()}
    ours = experiment.resolve("sgns", "skipgram").model_dump()
    for names, keys, _ in tables()["gensim"]:
        for name, key in zip(spans(names), spans(keys), strict=False):
            section, _, last = key.partition(".")
            mine = ours.get(section)
            if isinstance(mine, dict) and last in mine and name not in ("seed", "workers", "batch_words"):
                assert ours[section][last] == theirs[name] or f"`{key}`" in listed, (name, key)
    assert theirs["sg"] == 0 and "CBOW (`sg=0`)" in listed
    assert (ours["train"]["epochs"], theirs["epochs"], ours["train"]["threads"], theirs["workers"]) == (10, 5, 0, 3)
    assert ours["text"]["valid"] == ours["text"]["test"] == .02 and ours["train"]["shuffle"] and ours["text"]["lower"]


# --- delivery ------------------------------------------------------------------------------------------------------

def test_workflows_and_forms_are_valid_and_name_commands_that_exist() -> None:
    root = DOCS.parent
    flows = {path.stem: yaml.safe_load(path.read_text()) for path in (root / ".github" / "workflows").iterdir()}
    assert flows.keys() == {"test", "wheels"}
    runs = [step["run"] for flow in flows.values() for job in flow["jobs"].values() for step in job["steps"]
            if "run" in step]
    assert "make test" in runs and "\ntest:" in (root / "Makefile").read_text()
    assert any(run.startswith("pipx run cibuildwheel") for run in runs)
    for path in (root / ".github" / "ISSUE_TEMPLATE").iterdir():
        form = yaml.safe_load(path.read_text())
        assert form["name"] and form["description"] and all(part["attributes"]["label"] for part in form["body"])


def test_the_conda_recipe_has_the_dependencies_of_the_package() -> None:
    text = (DOCS / "contributing" / "recipe.yaml").read_text(encoding="utf-8")
    recipe = yaml.safe_load(text)
    project = tomllib.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    other = {"torch": "pytorch", "matplotlib": "matplotlib-base"}
    def bounds(line: str) -> tuple[str, str]:
        name, limits = re.fullmatch(r"([\w-]+) ?(.*)", line.split("#")[0].strip()).groups()        # type: ignore
        return other.get(name, name), limits
    assert {bounds(line) for line in project["dependencies"]} | {("python", project["requires-python"])} == {
        bounds(line) for line in recipe["requirements"]["run"]}
    assert recipe["package"]["version"] == embtrain.__version__


# --- release -------------------------------------------------------------------------------------------------------

def test_the_citation_is_of_this_version() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project, sdist = settings["project"], settings["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert {"/CITATION.cff", "/docs"} <= set(sdist)
    assert cited["version"] == embtrain.__version__ and cited["license"] == project["license"]
    assert {"cff-version", "message", "title", "authors"} <= set(cited) and cited["title"] == project["name"]


def test_wheels_are_built_once_for_each_platform_and_with_a_core() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["cibuildwheel"]
    # each once, because one wheel works for every Python version
    platforms = [name.partition("-")[2] for name in config["build"]]
    assert sorted(platforms) == ["macosx_arm64", "manylinux_aarch64", "manylinux_x86_64"]
    for section in (config, config["macos"]):
        assert section["environment"]["EMBTRAIN_CORE"] == "require"
    assert {"x86_64", "aarch64", "arm64"} <= {arch for os in ("linux", "macos") for arch in config[os]["archs"]}


def test_make_installs_what_the_tests_need() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    done = subprocess.run(["make", "-n", "-B", "test-slow", "docs"], cwd=ROOT, capture_output=True, text=True,
                          check=False)
    fetched = re.findall(r"-e '\.\[([\w,]+)\]'", done.stdout)
    assert {*"test docs peers".split()} == {name for text in fetched for name in text.split(",")} <= set(extras)
    assert "sphinx -W" in done.stdout
