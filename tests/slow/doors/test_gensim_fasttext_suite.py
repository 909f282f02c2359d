"""gensim's own tests of FastText with embtrain's class: only the import is changed, or hs too.

Each test of the file is in one list, so that a new one of gensim is noticed. A test that is left out has a reason.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers.foreign_suite import gensim_source, list_tests, outcomes

pytestmark = pytest.mark.slow

SOURCE = gensim_source("test_fasttext.py")
ALL = set(list_tests(SOURCE))
OLD = "from gensim.models.fasttext import FastText as FT_gensim, FastTextKeyedVectors, _unpack\n"
NEW = ("from embtrain.gensim.models.fasttext import FastText as FT_gensim\n"
       "from gensim.models.fasttext import FastTextKeyedVectors, _unpack\n")

# They train a hierarchical softmax, which embtrain refuses; with negatives in its place they must pass.
WITH_NEGATIVES = {*(f"TestFastTextModel::{name}" for name in """
    test_training test_training_fromfile test_fast_text_train_parameters test_online_learning
    test_online_learning_fromfile test_sg_hs_online test_cbow_hs_online
""".split()), *"""
    test_cbow_hs_training test_cbow_hs_training_fromfile test_sg_hs_training test_sg_hs_training_fromfile
    SaveFacebookFormatModelTest::test_skipgram SaveFacebookFormatModelTest::test_cbow
    SaveGensimByteIdentityTest::test_skipgram SaveGensimByteIdentityTest::test_cbow
""".split()}
ARGUMENTS = ((r"hs=1,\s*negative=0", "hs=0, negative=5"), (r'"hs": 1,\s*"negative": \d', '"hs": 0, "negative": 5'))

OF_GENSIM = "does not use the class: functions or KeyedVectors of gensim, or fastText's files in gensim's reader"
LEFT_OUT = {
    "TestFastTextModel::test_estimate_memory": "looks inside: syn1, the table of the hierarchical softmax",
    "NativeTrainingContinuationTest::test_sanity": "looks inside: cum_table, from which gensim draws negatives",
    "NativeTrainingContinuationTest::test_save_load_native": "reads a pickle, which is refused",
    "HashCompatibilityTest::test_compatibility_true": "reads a pickle, which is refused",
    "TestFastTextModel::test_wm_distance": "word mover's distance of KeyedVectors; needs POT",
    **{test: "needs the program fasttext" for test in ALL
       if test.startswith(("SaveFacebookByteIdentityTest", "SaveFacebookFormatReadingTest"))},
    **{f"TestFastTextModel::{name}": OF_GENSIM for name in """
       test_load_fasttext_format test_load_fasttext_new_format test_load_model_supervised
       test_load_model_with_non_ascii_vocab test_load_model_non_utf8_encoding test_oov_similarity test_n_similarity
       test_similarity test_most_similar test_most_similar_cosmul test_lookup test_contains
       test_vectors_for_all_with_inference test_vectors_for_all_without_inference""".split()},
    **{f"NativeTrainingContinuationTest::{name}": OF_GENSIM for name in """
       test_in_vocab test_out_of_vocab test_continuation_native test_load_native_pretrained
       test_load_native_vectors""".split()},
    **{test: OF_GENSIM for test in ALL if test.startswith((
        "HashCompatibilityTest::test_hash_native", "FTHash", "NgramsTest", "UnicodeVocabTest", "TestFromfile",
        "UnpackTest", "FastTextKeyedVectorsTest"))},
}


def test_each_test_is_in_one_list() -> None:
    assert OLD in SOURCE and WITH_NEGATIVES | set(LEFT_OUT) <= ALL and not WITH_NEGATIVES & set(LEFT_OUT)
    for test, reason in LEFT_OUT.items():
        name = test.partition("::")[2]
        body = re.split(r"\n    def ", SOURCE.partition(f"    def {name}(self):")[2])[0]
        assert reason != OF_GENSIM or "FT_gensim(" not in body, test


def test_with_only_the_import_changed(tmp_path: Path) -> None:
    chosen = ALL - WITH_NEGATIVES - set(LEFT_OUT)
    assert len(chosen) >= 21
    assert outcomes(SOURCE.replace(OLD, NEW), chosen, tmp_path) == dict.fromkeys(chosen, "passed")


def test_with_negatives_in_place_of_a_hierarchical_softmax(tmp_path: Path) -> None:
    source = SOURCE.replace(OLD, NEW)
    for theirs, ours in ARGUMENTS:
        source, n = re.subn(theirs, ours, source)
        assert n, theirs
    assert outcomes(source, WITH_NEGATIVES, tmp_path) == dict.fromkeys(WITH_NEGATIVES, "passed")
