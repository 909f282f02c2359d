"""gensim's own tests of Word2Vec with embtrain's class: only the import is changed, or the loss too.

Each test of the file is in one list, so that a new one of gensim is noticed. A test that is left out has a reason.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers.foreign_suite import gensim_source, list_tests, outcomes

pytestmark = pytest.mark.slow

SOURCE = gensim_source("test_word2vec.py")
ALL = {test.rpartition("::")[2]: test for test in list_tests(SOURCE)}  # id of each test, by its name
OLD = "from gensim.models import word2vec, keyedvectors\n"
NEW = "from embtrain.gensim.models import word2vec\nfrom gensim.models import keyedvectors\n"

# They train a hierarchical softmax, which embtrain refuses; with negatives in its place they must pass.
WITH_NEGATIVES = set("""
    test_build_vocab_from_freq test_prune_vocab test_online_learning test_online_learning_from_file test_sg_hs_online
    test_cbow_hs_online test_sg_hs test_sg_hs_fromfile test_cbow_hs test_cbow_hs_fromfile
    test_sg_fixedwindowsize_fromfile test_cbow_fixedwindowsize test_cosmul test_similar_by
    test_train_with_explicit_param test_compute_training_loss
""".split())
ARGUMENTS = ((r"hs=1,\s*negative=0", "hs=0, negative=5"), (r"negative=5, hs=1", "negative=5, hs=0"))

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


def test_each_test_is_in_one_list() -> None:
    assert OLD in SOURCE and WITH_NEGATIVES | set(LEFT_OUT) <= set(ALL) and len(ALL) == len(list_tests(SOURCE))
    assert not WITH_NEGATIVES & set(LEFT_OUT)


def test_with_only_the_import_changed(tmp_path: Path) -> None:
    chosen = {ALL[name] for name in set(ALL) - WITH_NEGATIVES - set(LEFT_OUT)}
    assert len(chosen) >= 48
    assert outcomes(SOURCE.replace(OLD, NEW), chosen, tmp_path) == dict.fromkeys(chosen, "passed")


def test_with_negatives_in_place_of_the_hierarchical_softmax(tmp_path: Path) -> None:
    source = SOURCE.replace(OLD, NEW)
    for theirs, ours in ARGUMENTS:
        source, n = re.subn(theirs, ours, source)
        assert n, theirs
    chosen = {ALL[name] for name in WITH_NEGATIVES}
    assert outcomes(source, chosen, tmp_path) == dict.fromkeys(chosen, "passed")
