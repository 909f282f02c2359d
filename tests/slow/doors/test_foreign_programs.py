"""PecanPy, node2vec and pyRDF2Vec with nothing changed but the import of Word2Vec.

PecanPy's sdist contains its suite, which runs as it is. The packages of node2vec and pyRDF2Vec contain no tests, so
their documented uses are run here.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import networkx as nx
import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
IMPORT = re.compile(r"^from gensim\.models(\.word2vec)? import (Word2Vec.*)$|^import gensim$", re.MULTILINE)


def change_import(package: Path) -> int:
    """Put `embtrain.` in front of the imports of Word2Vec in a package. Returns how many there were."""
    n = 0
    for path in package.rglob("*.py"):
        text, here = IMPORT.subn(lambda match: f"from embtrain.gensim.models{match[1] or ''} import {match[2]}"
                                 if match[2] else "import embtrain.gensim as gensim", path.read_text(encoding="utf-8"))
        path.write_text(text, encoding="utf-8")
        n += here
    return n


def run(arguments: list[str], folder: Path, paths: list[Path]) -> str:
    """Run Python with packages of `paths` before the installed ones. Returns its output; a failure fails the test."""
    path = os.pathsep.join(map(str, [*paths, ROOT]))
    done = subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False, env={
        **os.environ, "PYTHONPATH": path, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"})
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def downloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the packages of requirements.txt, whose hashes pip has checked."""
    needs("numba", "parameterized", "node2vec", "rdflib")
    folder = tmp_path_factory.mktemp("downloads")
    done = subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "pecanpy",
                           "--require-hashes", "-r", str(Path(__file__).with_name("requirements.txt")), "-d",
                           str(folder)], capture_output=True, text=True, check=False)
    if done.returncode and "HASHES" not in done.stderr:
        pytest.skip("doors: the packages of tests/slow/doors/requirements.txt cannot be downloaded")
    assert done.returncode == 0, done.stderr
    return folder


def needs(*modules: str) -> None:
    if missing := [name for name in modules if importlib.util.find_spec(name) is None]:
        pytest.skip(f"doors: {', '.join(missing)} not installed; run make test-slow AREA=doors")


def test_the_suite_of_pecanpy(downloads: Path, tmp_path: Path) -> None:
    with tarfile.open(next(downloads.glob("pecanpy-*.tar.gz"))) as archive:
        archive.extractall(tmp_path, filter="data")
    folder = next(tmp_path.glob("pecanpy-*"))
    assert change_import(folder / "src") == 2
    (folder / "demo").mkdir()  # a data file that the sdist lacks: the karate club, of networkx
    edges = (f"{a + 1}\t{b + 1}\n" for a, b in nx.karate_club_graph().edges)
    (folder / "demo" / "karate.edg").write_text("".join(edges))
    src = [folder / "src"]
    assert run(["-c", "import pecanpy.cli as c; print(c.Word2Vec.__module__)"], folder, src) == (
        "embtrain.gensim.models.word2vec\n")
    out = run(["-m", "pytest", "-q", "-W", "ignore", "-p", "no:cacheprovider", "-c", os.devnull, f"--rootdir={folder}",
               "test"], folder, src)
    passed = re.search(r"^(\d+) passed\b", out, re.MULTILINE)
    assert passed and int(passed[1]) == 42 and "skipped" not in out, out


COMMUNITIES = """
import json, networkx as nx, numpy as np
from node2vec import Node2Vec
from node2vec.edges import HadamardEmbedder
graph = nx.planted_partition_graph(4, 25, .4, .01, seed=1)
walks = Node2Vec(graph, dimensions=16, walk_length=20, num_walks=20, workers=1, seed=1, quiet=True)
model = walks.fit(window=5, min_count=1, batch_words=4, epochs=5)
near = [int(b) // 25 == i // 25 for i in range(100) for b, _ in model.wv.most_similar(str(i), topn=5)]
model.wv.save_word2vec_format("nodes.txt")
model.save("model")
edges = HadamardEmbedder(keyed_vectors=model.wv)
kept = type(model).load("model").wv.vectors
print(json.dumps([type(model).__module__, float(np.mean(near)), edges[("0", "1")].shape[0],
                  bool((kept == model.wv.vectors).all())]))
"""


def test_node2vec_finds_communities(tmp_path: Path) -> None:
    needs("node2vec")
    package = Path(importlib.util.find_spec("node2vec").origin).parent  # type: ignore[union-attr, arg-type]
    shutil.copytree(package, tmp_path / "node2vec")
    assert change_import(tmp_path / "node2vec") >= 1
    module, near, dim, is_equal = json.loads(run(["-c", COMMUNITIES], tmp_path, [tmp_path]).splitlines()[-1])
    assert module == "embtrain.gensim.models.word2vec" and near > 0.95 and dim == 16 and is_equal


KNOWLEDGE = """
import json, numpy as np
from pyrdf2vec import RDF2VecTransformer
from pyrdf2vec.embedders import Word2Vec
from pyrdf2vec.graphs import KG, Vertex
from pyrdf2vec.walkers import RandomWalker
kg, names = KG(), [f"http://example/{i}" for i in range(12)]
for i, name in enumerate(names):
    for j in (i // 6 * 6 + (i + 1) % 6, i // 6 * 6 + (i + 2) % 6):
        subject, target = Vertex(name), Vertex(names[j])
        kg.add_walk(subject, Vertex("http://example/near", predicate=True, vprev=subject, vnext=target), target)
transformer = RDF2VecTransformer(Word2Vec(workers=1, vector_size=8, epochs=20, sample=0),
                                 walkers=[RandomWalker(4, 30, random_state=1)])
vectors, _ = transformer.fit_transform(kg, names[:10])
model = transformer.embedder._model
unit = np.array(vectors) / np.linalg.norm(vectors, axis=1, keepdims=True)
near = (unit @ unit.T - 2 * np.eye(10)).argmax(1)
share = float((near // 6 == np.arange(10) // 6).mean())
more, _ = transformer.fit_transform(kg, names[10:], is_update=True)
transformer.save("transformer")
loaded = RDF2VecTransformer.load("transformer")
try:
    transformer.transform(kg, ["http://example/none"])
except ValueError as error:
    refusal = str(error)
print(json.dumps([type(model).__module__, len(vectors), len(vectors[0]), len(more), refusal[:12],
                  bool((loaded.embedder._model.wv.vectors == model.wv.vectors).all()), share]))
"""


def test_pyrdf2vec_embeds_entities_in_steps(downloads: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(next(downloads.glob("pyrdf2vec-*.whl"))) as archive:
        archive.extractall(tmp_path)
    assert change_import(tmp_path / "pyrdf2vec") == 1
    module, n, dim, n_more, refusal, is_equal, share = json.loads(
        run(["-W", "ignore", "-c", KNOWLEDGE], tmp_path, [tmp_path]).splitlines()[-1])
    assert (module, n, dim, refusal, is_equal) == ("embtrain.gensim.models.word2vec", 10, 8, "The entities", True)
    assert n_more >= 2 and share >= 0.9
