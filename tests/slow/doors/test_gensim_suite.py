"""gensim's own tests of Word2Vec with embtrain's class: only the import is changed, or the algorithm too.

Each test of the file is in one list, so that a new one of gensim is noticed. A test that is left out has a reason.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
ORIGIN = importlib.util.find_spec("gensim.test").submodule_search_locations[0]  # type: ignore[union-attr, index]
SOURCE = Path(ORIGIN, "test_word2vec.py").read_text(encoding="utf-8")
OLD = "from gensim.models import word2vec, keyedvectors\n"
NEW = "from embtrain.gensim.models import word2vec\nfrom gensim.models import keyedvectors\n"

# They train CBOW or a hierarchical softmax, which embtrain refuses; with skip-gram and negatives they must pass.
WITH_SKIP_GRAM = set("""
    test_build_vocab_from_freq test_prune_vocab test_online_learning test_online_learning_from_file test_sg_hs_online
    test_cbow_hs_online test_cbow_neg_online test_sg_hs test_sg_hs_fromfile test_cbow_hs test_cbow_hs_fromfile
    test_cbow_neg test_cbow_neg_fromfile test_sg_fixedwindowsize_fromfile test_cbow_fixedwindowsize
    test_cbow_fixedwindowsize_fromfile test_cosmul test_training_cbow_negative test_similarities test_similar_by
    test_train_with_explicit_param test_compute_training_loss
""".split())
ARGUMENTS = ((r"hs=1,\s*negative=0", "hs=0, negative=5"), (r"sg=0", "sg=1"), (r"negative=5, hs=1", "negative=5, hs=0"))

LEFT_OUT = {
    "test_training": "looks inside: syn1, the table of the hierarchical softmax",
    "test_training_from_file": "looks inside: syn1",
    "test_training_cbow": "looks inside: syn1",
    "test_vocab": "looks inside: codes of the Huffman tree",
    "test_scoring": "score() needs the hierarchical softmax",
    "test_locking": "locked vectors are refused",
    "test_predict_output_word": "its last part needs a model with the hierarchical softmax; the others pass",
    "test_train_hs_and_neg": "trains with both losses",
    **dict.fromkeys(("test_load_old_model", "test_load_old_model_separates", "test_load_old_models_1_x",
                     "test_load_old_models_2_x", "test_load_old_models_3_x", "test_persistence_backwards_compatible",
                     "test_persistence_word2vec_format_combination_with_standard_persistence"),
                    "reads a pickle, which is refused"),
    **dict.fromkeys(("test_nonzero", "test_symmetry", "test_identical_sentences"),
                    "word mover's distance of KeyedVectors; needs POT"),
    "test_method_in_bulk": "gensim skips it unless a variable is set",
    "test_word2vec_stand_alone_script": "runs gensim's own script",
}


def class_of_each_test(source: str) -> dict[str, str]:
    """Return the class of each test, by the name of the test."""
    return {node.name: of.name for of in ast.parse(source).body if isinstance(of, ast.ClassDef)
            for node in of.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def outcomes(source: str, chosen: set[str], folder: Path) -> dict[str, str]:
    """Run the chosen tests of a source in a process. Returns passed, failed or skipped by name."""
    if importlib.util.find_spec("testfixtures") is None:
        pytest.skip("doors: testfixtures is not installed; run make test-slow AREA=doors")
    path, report, classes = folder / "test_word2vec.py", folder / "report.xml", class_of_each_test(source)
    path.write_text(source, encoding="utf-8")
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-W", "ignore", "-p", "no:cacheprovider", "-c",
                           os.devnull, f"--rootdir={folder}", f"--junitxml={report}",
                           *(f"{path}::{classes[name]}::{name}" for name in sorted(chosen))], cwd=folder,
                          env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False)
    assert report.is_file(), done.stdout + done.stderr
    faults = ("failure", "error", "skipped")
    return {case.attrib["name"]: next((part.tag for part in case if part.tag in faults), "passed")
            for case in ElementTree.parse(report).iter("testcase")}


def test_each_test_is_in_one_list() -> None:
    assert OLD in SOURCE and WITH_SKIP_GRAM | set(LEFT_OUT) <= set(class_of_each_test(SOURCE))
    assert not WITH_SKIP_GRAM & set(LEFT_OUT)


def test_with_only_the_import_changed(tmp_path: Path) -> None:
    chosen = set(class_of_each_test(SOURCE)) - WITH_SKIP_GRAM - set(LEFT_OUT)
    assert len(chosen) >= 42
    assert outcomes(SOURCE.replace(OLD, NEW), chosen, tmp_path) == dict.fromkeys(chosen, "passed")


def test_with_skip_gram_in_place_of_other_algorithms(tmp_path: Path) -> None:
    source = SOURCE.replace(OLD, NEW)
    for theirs, ours in ARGUMENTS:
        source, n = re.subn(theirs, ours, source)
        assert n, theirs
    assert outcomes(source, WITH_SKIP_GRAM, tmp_path) == dict.fromkeys(WITH_SKIP_GRAM, "passed")
