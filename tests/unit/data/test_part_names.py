"""Part of a file by its name: usual spellings, separate and joined, and English words that resemble one."""

from __future__ import annotations

import pytest
from helpers.looped import looped

from embtrain.data.inventory import part_names
from embtrain.data.inventory.part_names import assign_parts, data_set, form, is_negatives, no_data_reason, variant


@looped("name, part", [
    *((name, "train") for name in ("train.txt", "wn18.train.tsv.gz", "train2id.txt", "train2.tsv", "TrainSet.csv",
                  "training.de", "data.trn", "newstrain2015.de", "train-00001-of-00004.txt")),
    *((name, "valid") for name in ("freebase-valid.txt", "dev", "test.valid", "UNv1.0.devset.en", "tune.de",
                  "development.fr", "newsdev2016-roen-ref.en.sgm", "val.de.gz", "valid2id.txt.gz",
                  "IWSLT14.TED.dev2010.de-en.de.xml", "validation_set.txt", "x.devel.conll")),
    *((name, "test") for name in ("Test.TSV", "wn.test10", "UNv1.0.testset.fr", "testing.en", "newstest2014.de",
                 "flores.devtest.deu", "IWSLT16.TED.tst2013.de-en.en.xml", "testData.txt")),
    *((name, None) for name in ("2019.txt", "trainer.txt", "contest.txt", "entity2id.txt", "1-1.txt", "n-n.txt",
               "type_constrain.txt", "latest.txt", "economics.txt",
               "value.txt", "device.txt", "invalid.txt", "strain.txt", "testament.txt")),
])
def test_usual_spellings(name: str, part: str | None) -> None:
    assert assign_parts([name]) == [part]


def test_joined_spellings_count_next_to_a_training_file() -> None:
    assert assign_parts(["train.txt", "xmltest.txt", "bibtexvalid.arff"]) == ["train", "test", "valid"]
    assert assign_parts(["bibtextrain.arff", "bibtextest.arff"]) == ["train", "test"]
    assert assign_parts(["xmltest.txt"]) == [None] and assign_parts(["hits.txt", "xmltest.txt"]) == [None, None]
    assert assign_parts(["train.txt", "latest.txt", "contest.txt", "greatest.txt", "protest.txt", "testimony.txt"]) == [
        "train", None, None, None, None, None]


@pytest.mark.parametrize(("names", "parts"), [
    (["train", "heldout"], ["train", "test"]), (["train", "held-out", "test"], ["train", "valid", "test"]),
    (["train", "valid", "eval.txt"], ["train", "valid", "test"]), (["dev", "evaluation"], ["valid", "test"]),
])
def test_held_out_is_the_part_without_another_file(names: list[str], parts: list[str]) -> None:
    assert assign_parts(names) == parts


def test_folders_name_a_part_unless_all_files_share_them() -> None:
    assert assign_parts(["kg/train/a.txt", "kg/test/b.txt", "kg/valid/train.txt"]) == ["train", "test", "train"]
    assert assign_parts(["test-data/a.txt", "test-data/b.txt"]) == [None, None]


def test_files_of_one_data_set_share_a_name_and_forms_of_a_part_a_form() -> None:
    assert {data_set(name) for name in ("train.txt", "valid2id.txt", "test.tsv.gz", "train/1.txt")} == {""}
    assert data_set("FB/train.txt") == "FB/" != data_set("WN/train.txt") and data_set("FB.train.txt") == "fb"
    assert form("train.txt") == form("training.tsv.gz") != form("train1.txt") != form("train2.txt")
    assert variant("train_sample.del") == ["sample", "del"] and variant("valid_without_unseen.del")[0] == "without"
    assert variant("train.txt") == [] and is_negatives("test_negatives.txt") and is_negatives("valid.false")
    assert not is_negatives("negation.txt")


@looped("name, why", [
    *((name, "backup") for name in ("train.txt~", "train.txt.bak", "#train.txt#", "train.txt.orig", "a.txt.swp",
                   "train (copy).txt", "train copy 2.txt", "Copy of train.txt", "train (1).txt",
                   "a.txt.crdownload", "train.txt.bak.gz", "train.old")),
    *((name, "documentation") for name in ("README", "readme.txt", "LICENSE.md", "CHANGELOG", "licence")),
    *((name, "temporary") for name in ("tmp/a.txt", "x/__MACOSX/a.txt", "backup/train.txt")),
    *((name, "") for name in ("train.txt", "old_mortality.txt", "noticeboard.txt", "copy.txt", "temporary/a.txt")),
])
def test_files_without_data(name: str, why: str) -> None:
    assert why in no_data_reason(name) if why else not no_data_reason(name)


def test_every_part_has_a_plain_spelling() -> None:
    assert [part_names.exact_part(part) for part in part_names.PARTS] == list(part_names.PARTS)
