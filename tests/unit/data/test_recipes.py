"""Shipped recipes are complete, agree with their files, and contain only verified hashes."""

import csv
import gzip
import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest
from helpers.looped import looped

from embtrain import experiment
from embtrain.common import shipped
from embtrain.common.errors import DataError, UsageError
from embtrain.common.files import sha256
from embtrain.data.catalogue.benchmark import EvalRecipe
from embtrain.data.catalogue.fetch import corpus_paths, gold_path, list_data
from embtrain.data.catalogue.recipe_file import UNVERIFIED, RecipeFile
from embtrain.data.catalogue.recipes import KINDS, CorpusRecipe, find_recipe, load_recipe, read_recipe
from embtrain.data.inventory.part_names import PARTS
from embtrain.data.triples import graph
from embtrain.data.triples.graph import TriplesConfig
from embtrain.data.vectors.vectors import Vectors
from embtrain.evaluate.config import WordsConfig
from embtrain.evaluate.words import similarity
from embtrain.experiment.run import scoring
from embtrain.experiment.tasks import base as tasks

GRAPH = ("entities", "relations", *PARTS)
DELIMITERS = {"tab": "\t", "space": " ", "comma": ","}
SHIPPED = [(kind, name) for kind in KINDS for name in shipped.names(kind)]
CHECKED = {
    path: digest
    for digest, path in (
        line.split(None, 1)
        for line in (Path(__file__).parents[2] / "manifest_hashes.txt").read_text().splitlines()
        if not line.startswith("#")
    )
}


def files(recipe: CorpusRecipe | EvalRecipe) -> tuple[RecipeFile, ...]:
    return recipe.files if isinstance(recipe, CorpusRecipe) else recipe.copies


def test_required_recipes_are_shipped() -> None:
    corpora = "gensim-wiki text8 english-novels-100 three-novels eltec-eng ptb brown bibtex delicious usps " \
              "amazoncat-13k delicious-200k wikilshtc-325k planted-13k planted-205k planted-325k planted-500k"
    evals = "wordsim353 wordsim353-similarity wordsim353-relatedness rareword simlex999 men google-analogies"
    assert set(corpora.split()) <= set(shipped.names("corpora"))
    assert set(evals.split()) <= set(shipped.names("evals"))


@looped("kind, name", SHIPPED)
def test_recipe_loads_and_is_complete(kind: str, name: str) -> None:
    recipe = load_recipe(kind, name)
    assert recipe == find_recipe(name)
    assert recipe.licence and recipe.description
    if isinstance(recipe, CorpusRecipe):
        counts = recipe.expected
        if recipe.reader in graph.READERS:
            assert all(getattr(counts, count) for count in GRAPH)
        elif recipe.reader == "hierarchy":
            assert counts.concepts and counts.pairs
        elif recipe.reader in ("parallel", "grammar"):
            seen = all(file.sha256 != UNVERIFIED for file in recipe.files)  # otherwise pairs could not be counted
            assert bool((counts.train and counts.valid and counts.test) or counts.pairs) == seen
        else:
            assert counts.documents and (counts.tokens or counts.labels)


def test_no_name_is_used_twice() -> None:
    names = [name for _, name in SHIPPED]
    assert len(names) == len(set(names))


@looped("kind, name", SHIPPED)
def test_every_hash_was_verified(kind: str, name: str) -> None:
    for file in files(load_recipe(kind, name)):
        if file.sha256 == UNVERIFIED:
            continue
        if file.mirror is not None:
            assert CHECKED.get(file.mirror) == file.sha256, f"{name}: the hash of {file.mirror} was not verified"
        if file.package is not None:
            result = importlib.util.find_spec(file.package)
            assert result is not None and result.submodule_search_locations, f"{file.package} is not installed"
            path = Path(result.submodule_search_locations[0], file.path)
            assert sha256(path) == file.sha256 and path.stat().st_size == file.bytes


@looped("kind, name", SHIPPED)
def test_addresses_are_permanent(kind: str, name: str) -> None:
    for file in files(load_recipe(kind, name)):
        if file.sha256 == UNVERIFIED:
            assert file.url or file.derived, f"{name}: {file.name} can be had nowhere"
        elif file.url is not None:
            assert re.fullmatch(r"https://raw\.githubusercontent\.com/[^/]+/[^/]+/[0-9a-f]{40}/\S+", file.url)
            assert file.bytes is not None
        else:
            assert file.package or file.derived, f"{name}: {file.name} can be had nowhere"


@pytest.mark.parametrize("name", ["wordsim353", "simlex999", "google-analogies"])
def test_gold_without_network_or_mirror(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBTRAIN_OFFLINE", "1")
    monkeypatch.delenv("EMBTRAIN_DATA_MIRROR", raising=False)
    path = gold_path(load_recipe("evals", name), tmp_path)
    assert path.is_file() and "gensim" in path.parts
    assert not list(tmp_path.iterdir())


def count_rows(recipe: EvalRecipe, path: Path) -> tuple[int, int, bool]:
    """Return (rows, sections, whether every row has its columns and a numeric score), by the recipe's own format."""
    form, rows, sections, sound = recipe.format, 0, set(), True
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
        lines = [line.rstrip("\n") for line in file]
    for number, line in enumerate(lines):
        if (number == 0 and form.header) or (form.comment and line.startswith(form.comment)):
            continue
        if recipe.kind == "analogy" and line.startswith(":"):
            sections.add(line)
            continue
        row = next(csv.reader([line], delimiter=DELIMITERS[form.delimiter]))
        rows, sound = rows + 1, sound and len(row) == len(form.columns)
        if "section" in form.columns:
            sections.add(row[form.columns.index("section")])
        if "score" in form.columns:
            float(row[form.columns.index("score")])
    return rows, len(sections), sound


PARALLEL = [name for name in shipped.names("corpora") if load_recipe("corpora", name).reader in ("parallel", "grammar")
            and not any(file.sha256 == UNVERIFIED for file in load_recipe("corpora", name).files)]
LARGE = ("multi30k-de-en", "multi30k-fr-en", "tatoeba-de-en", "tatoeba-fr-en")  # tests/slow/recipes reads these
GOLD = [name for name in shipped.names("evals") if load_recipe("evals", name).training is None]


def test_required_parallel_corpora_are_shipped() -> None:
    assert set(PARALLEL) == {"grammar", "multi30k-de-en", "multi30k-fr-en", "tatoeba-de-en", "tatoeba-fr-en",
                             "iwslt14-de-en-sample"}
    assert {"iwslt14-de-en", "iwslt16-de-en", "iwslt16-fr-en", "wmt16-ro-en"} <= set(shipped.names("corpora"))


@pytest.mark.long
@pytest.mark.usefixtures("mirror")
@pytest.mark.parametrize("name", [name for name in PARALLEL if name not in LARGE])
def test_parallel_text_agrees_with_its_recipe(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBTRAIN_CACHE", str(tmp_path))
    check_parallel_text(name)


def check_parallel_text(name: str) -> None:
    counts = tasks.read(experiment.resolve("sgns", "nmt", name, sets=["translation.max_length=200"])).identity["counts"]
    expected = {key: value for key in ("pairs", "train", "valid", "test")
                if (value := getattr(load_recipe("corpora", name).expected, key)) is not None}
    assert expected and {key: counts[key] for key in expected} == expected
    assert counts["left_out"] == 0


@pytest.mark.parametrize("name", set(shipped.names("evals")) - set(GOLD))
def test_strategies_of_a_benchmark_exist(name: str) -> None:
    training = load_recipe("evals", name).training
    assert training is not None
    sets = ["model.dim=7", *training.sets]
    assert experiment.resolve(training.strategy, "nmt", training.corpus, sets=sets).train.cpu_seconds
    row = next(row for row in list_data() if row.name == name)
    assert row.size == sum(file.bytes or 0 for file in load_recipe("corpora", training.corpus).files)


@pytest.mark.parametrize("name", GOLD)
def test_gold_agrees_with_its_recipe(name: str, mirror: Path) -> None:
    recipe = load_recipe("evals", name)
    for file in recipe.copies:
        path = mirror / file.mirror if file.mirror else gold_path(recipe)
        rows, sections, sound = count_rows(recipe, path)
        assert sound
        assert rows == (recipe.expected.pairs or recipe.expected.questions)
        assert sections == (recipe.expected.sections or 0)


def test_halves_of_a_benchmark(mirror: Path) -> None:
    """Choosing on one half and reporting on the other uses each pair once."""
    parts = {name: load_recipe("evals", name) for name in ("wordsim353", "wordsim353.odd", "wordsim353.even")}
    whole, odd, even = (similarity.read_pairs(gold_path(recipe), recipe.format, recipe.half)
                        for recipe in parts.values())
    assert whole[::2] == odd and whole[1::2] == even and len(odd) + len(even) == len(whole) == 353
    assert [recipe.name for recipe in parts.values()] == list(parts)
    vectors = Vectors(list({word for pair in whole for word in pair[:2]}), np.eye(437, dtype=np.float32))
    rows = scoring.benchmarks(vectors, list(parts), WordsConfig(resamples=0))
    assert [(row.benchmark, row.n) for row in rows] == [("wordsim353", 353), ("wordsim353.odd", 177),
                                                        ("wordsim353.even", 176)]
    with pytest.raises(UsageError, match=r"google-analogies\.odd: google-analogies is of kind analogy; only"):
        load_recipe("evals", "google-analogies.odd")
    with pytest.raises(UsageError, match=r"no benchmark named 'wordsim335\.odd' \(did you mean 'wordsim353'"):
        load_recipe("evals", "wordsim335.odd")


GRAPHS = [name for name in shipped.names("corpora") if load_recipe("corpora", name).reader in graph.READERS]


@pytest.mark.usefixtures("mirror")
@pytest.mark.parametrize("name", [name for name in GRAPHS if name not in ("fb15k", "yago3-10")])
def test_graph_agrees_with_its_recipe(name: str, tmp_path: Path) -> None:
    recipe = load_recipe("corpora", name)
    result = graph.load(corpus_paths(recipe, tmp_path), recipe.reader, TriplesConfig(), None, name)
    counts = result.identity["counts"]
    assert {count: counts[count] for count in GRAPH} == {count: getattr(recipe.expected, count) for count in GRAPH}
    assert counts["seen"] == 0 and [len(result.part(part)) for part in PARTS] == [counts[part] for part in PARTS]


def test_required_graphs_are_shipped() -> None:
    assert set(GRAPHS) == {"fb15k-237", "wn18", "wn18rr", "umls", "nations", "kinship", "countries-s1", "countries-s2",
                           "countries-s3", "fb15k", "yago3-10"}


@pytest.fixture
def mirror() -> Path:
    import os

    place = os.environ.get("EMBTRAIN_DATA_MIRROR", "")
    if not place or not Path(place).is_dir():
        pytest.skip("data: EMBTRAIN_DATA_MIRROR names no folder")
    return Path(place)


GOOD = """name: mine
description: d
licence: l
reader: text
files:
  - url: http://example.org/a/mine.txt
    sha256: unverified
"""


def recipe_at(folder: Path, text: str) -> Path:
    path = folder / "mine.yaml"
    path.write_text(text)
    return path


def test_valid_recipe_is_read(tmp_path: Path) -> None:
    recipe = read_recipe("corpora", recipe_at(tmp_path, GOOD))
    assert recipe.files[0].name == "mine.txt" and recipe.tokenizer == "auto"


@pytest.mark.parametrize(
    ("change", "line", "says"),
    [
        (("licence: l", "license: l"), 3, "license"),
        (("sha256: unverified", "sha256: ABC"), 7, "64 hexadecimal"),
        (("url: http://example.org/a/mine.txt", "url: file:///etc/passwd"), 6, "http"),
        (("url: http://example.org/a/mine.txt", "mirror: ../../etc/passwd"), 6, "'..'"),
        (("url: http://example.org/a/mine.txt", "mirror: /etc/passwd"), 6, "relative"),
        (("url: http://example.org/a/mine.txt", "package: gensim"), None, "set together"),
        (("name: mine", "name: other"), None, "'mine'"),
        (("reader: text", "reader: planted"), None, "reader: planted with the key planted and no files"),
        (("reader: text", "reader: grammar"), None, "reader: grammar with the key grammar and no files"),
        (("reader: text", "reader: parallel"), None, "reader: parallel and the key languages must be set together"),
        (("name: mine", "name: !!python/name:os.system"), 1, ""),
    ],
)
def test_invalid_recipe_reports_file_line_and_key(tmp_path: Path, change: tuple, line: int | None, says: str) -> None:
    path = recipe_at(tmp_path, GOOD.replace(*change))
    with pytest.raises(DataError) as caught:
        read_recipe("corpora", path)
    assert f"mine.yaml:{line}" in str(caught.value) if line else "mine.yaml" in str(caught.value)
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_columns_must_fit_the_kind(tmp_path: Path) -> None:
    text = (shipped.folder("evals") / "rg65.yaml").read_text()
    path = tmp_path / "rg65.yaml"
    path.write_text(text.replace("[word1, word2, score]", "[word1, word1, score]"))
    with pytest.raises(DataError, match=r"format\.columns"):
        read_recipe("evals", path)


@pytest.mark.parametrize(("name", "change", "says"), [
    ("bless", ("metric: ap", "metric: spearman"), r"format\.columns: 'score' should occur once"),
    ("hyperlex", ("metric: spearman", "metric: ap"), r"format\.columns: 'label' should occur once"),
    ("rg65", ("metric: spearman", "metric: ap"), "metric: should be spearman for kind similarity, got ap"),
    ("wbless", ("pairs: 1668", "questions: 1668"), r"expected\.pairs needs a value for kind entailment"),
])
def test_metric_must_fit_the_kind(tmp_path: Path, name: str, change: tuple[str, str], says: str) -> None:
    text = (shipped.folder("evals") / f"{name}.yaml").read_text()
    (tmp_path / f"{name}.yaml").write_text(text.replace(*change))
    with pytest.raises(DataError, match=says):
        read_recipe("evals", tmp_path / f"{name}.yaml")


def test_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'wordsim353'"):
        find_recipe("wordsim35")
