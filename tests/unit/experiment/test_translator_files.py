"""Output files of a translator: text of any script, empty lines, other test sets."""

from __future__ import annotations

import codecs
import gzip
import re
from functools import partial
from pathlib import Path

import pytest
from helpers.runs import cache, command, fit, value  # noqa: F401
from sacrebleu.metrics import BLEU

from embtrain import experiment
from embtrain.common.errors import DataError, UsageError
from embtrain.experiment.run import stored

pytestmark = pytest.mark.long

SETS = ["model.dim=24", "model.hidden=48", "model.embed=16", "train.chunk=60", "train.batch=60", "train.epochs=50",
        "train.lr=0.02", "train.warmup=0", "model.dropout=0", "translation.max_length=20", "translation.min_count=1",
        "evaluate.resamples=0", "train.checkpoint_every=1e9", "evaluate.examples=1", "translation.source=de",
        "translation.target=xx"]
DAYS = {"montag": "सोमवार", "dienstag": "मंगलवार", "freitag": "शुक्रवार", "samstag": "शनिवार", "sonntag": "रविवार"}
SKIES = {"regnet": "बारिश होती है ?", "schneit": "girls' « बर्फ़ » !", "taut": "3rd तूफ़ान, हिन्दी।"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> experiment.Run:
    """Every day and sky three times in training; blank lines in the held-out sources."""
    folder = tmp_path_factory.mktemp("text")
    pairs = [(f"am {day} {sky} es.", f"{d} को {s}") for day, d in DAYS.items() for sky, s in SKIES.items()]
    held = [("", ""), pairs[1], ("  ", "not empty"), pairs[5], ("", " "), pairs[9], pairs[3]]
    for part, pairs_of_part in (("train", pairs * 3), ("valid", pairs[:4]), ("test", held)):
        for i, language in enumerate(("de", "xx")):
            text = "".join(f"{pair[i]}\n" for pair in pairs_of_part)
            (folder / f"{part}.{language}").write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EMBTRAIN_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        config = experiment.resolve("cross-entropy", "nmt", str(folder), sets=SETS, threads=1)
        return fit(config, tmp_path_factory.mktemp("runs") / "run")


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def test_bleu_compares_the_written_file_with_the_raw_reference(run: experiment.Run) -> None:
    ours, theirs = lines(run.folder / "test.translations.txt"), lines(Path(run.settings.corpus) / "test.xx")
    assert [ours[i] for i in (0, 2, 4)] == ["", "", ""]
    assert [ours[i] for i in (1, 3, 5, 6)] == [theirs[i] for i in (1, 3, 5, 6)]  # every blank and mark
    assert value(run, "bleu") == pytest.approx(BLEU(lowercase=True).corpus_score(ours, [theirs]).score)
    assert value(run, "bleu_cased") == pytest.approx(BLEU().corpus_score(ours, [theirs]).score)
    assert 80 < value(run, "bleu") < 100
    (note,) = (row.note for row in run.scores if (row.benchmark, row.metric) == ("test", "bleu"))
    assert note.startswith("nrefs:1|case:lc|eff:no|tok:13a|smooth:exp|version:")


def test_the_command_translates_as_the_evaluation_did(run: experiment.Run, tmp_path: Path,
                                                      monkeypatch: pytest.MonkeyPatch,
                                                      capsys: pytest.CaptureFixture[str]) -> None:
    embtrain = partial(command, monkeypatch, capsys, "translate", str(run.folder))
    source = (Path(run.settings.corpus) / "test.de").read_bytes()
    expected = (run.folder / "test.translations.txt").read_text(encoding="utf-8")
    assert embtrain(given=source) == expected
    file = tmp_path / "in.txt"
    for data in (source, codecs.BOM_UTF8 + source, source.replace(b"\n", b"\r\n"), gzip.compress(source)):
        file.write_bytes(data)
        assert embtrain(str(file)) == expected
    assert embtrain(given=codecs.BOM_UTF8 + b"am montag regnet es.") == embtrain(given=b"am montag regnet es.")
    for data, message in ((b"am\nx\0y\n", ":2: a NUL: not text; remove it"),
                       ("am montag\n".encode("utf-16"), ":1: not UTF-8; .* iconv -f UTF-16 -t UTF-8"),
                       (b"am\n\xff\n", ":2: not UTF-8; .* iconv -f WINDOWS-1252 -t UTF-8"),
                       (b"a" * 1_000_002, ":1: 1,000,001 bytes; at most 1,000,000 are read")):
        file.write_bytes(data)
        for error in (embtrain(str(file), code=3), embtrain(given=data, code=3)):
            assert re.search(message, error) and error.count("\n") == 1
    assert "gone.txt: file or folder not found" in embtrain(str(tmp_path / "gone.txt"), code=3)
    assert "is a folder; give a file" in embtrain(str(tmp_path), code=2)


def test_a_translator_is_evaluated_on_another_test_set(run: experiment.Run, tmp_path: Path,
                                                       caplog: pytest.LogCaptureFixture) -> None:
    corpus, before = Path(run.settings.corpus), sorted(path.stat().st_mtime_ns for path in run.folder.rglob("*"))
    parts, task = stored.open_translator(run.folder)
    sources, references = lines(corpus / "test.de"), lines(corpus / "test.xx")
    (tmp_path / "other.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in zip(sources, references, strict=True)),
                                        encoding="utf-8")
    (tmp_path / "news.de.gz").write_bytes(gzip.compress(codecs.BOM_UTF8 + (corpus / "test.de").read_bytes()))
    (tmp_path / "news.xx").write_bytes((corpus / "test.xx").read_bytes().replace(b"\n", b"\r\n"))
    expected = {row.metric: row for row in run.scores if row.benchmark == "test" and row.value is not None}
    for where in (corpus, corpus / "test", corpus / "test.de", corpus / "test.xx", tmp_path / "other.tsv",
                  tmp_path / "news", tmp_path / "news.de.gz"):
        rows = {row.metric: row for row in task.score_file(parts, where, tmp_path) if row.value is not None}
        assert {row.benchmark for row in rows.values()} == {where.name} and set(rows) == set(expected)
        for metric, row in rows.items():
            assert (row.value, row.note) == (pytest.approx(expected[metric].value, abs=1e-6), expected[metric].note)
        assert lines(tmp_path / f"{where.name}.translations.txt") == lines(run.folder / "test.translations.txt")
    assert "3 source lines are empty; their translations are empty lines too" in caplog.text
    assert before == sorted(path.stat().st_mtime_ns for path in run.folder.rglob("*"))

    (tmp_path / "other.tsv").write_text("neu <eos> " + "am " * 30 + "\tनया\n" + "am\tb\n" * 3, encoding="utf-8")
    few = stored.open_translator(run.folder, ["evaluate.sentences=2"])
    assert {row.n for row in few[1].score_file(few[0], tmp_path / "other.tsv") if row.metric == "bleu"} == {2}
    assert "the first 2 of 4 pairs are evaluated; to evaluate more, set evaluate.sentences" in caplog.text
    assert "1 of 4 source lines has 20 words or more and is truncated" in caplog.text


def test_predictions_are_translations_and_files_are_evaluated_by_name(run: experiment.Run, tmp_path: Path) -> None:
    corpus, expected = Path(run.settings.corpus), lines(run.folder / "test.translations.txt")
    sources = lines(corpus / "test.de")
    result = run.predict(file=corpus / "test.de")
    assert [(one.query, [answer.name for answer in one.answers]) for one in result] == [
        (source, [text]) for source, text in zip(sources, expected, strict=True)]
    assert result[2].place == f"{corpus / 'test.de'}:3" and result[0].answers[0].score is None
    [one] = run.predict(*sources[0].split(" "))
    assert [answer.name for answer in one.answers] == expected[:1] and one.place == ""
    (tmp_path / "bad.txt").write_bytes(b"am\nx\0y\n")
    with pytest.raises(DataError, match=r"bad.txt:2: a NUL"):
        run.predict(file=tmp_path / "bad.txt")
    with pytest.raises(UsageError, match=r"^top: 5: a run of translation has one answer for each query; remove"):
        run.predict(*sources[0].split(" "), top=5)
    (tmp_path / "news.de").write_bytes((corpus / "test.de").read_bytes())
    (tmp_path / "news.xx").write_bytes((corpus / "test.xx").read_bytes())
    bleu = {row.metric: row.value for row in run.scores if row.benchmark == "test"}["bleu"]
    for name in ("news", "news.de"):
        rows = experiment.evaluate(run.folder, [str(tmp_path / name)])
        assert {row.metric: row.value for row in rows}["bleu"] == pytest.approx(bleu, abs=1e-6)
    few = experiment.evaluate(run.folder, [str(tmp_path / "news")], ["evaluate.sentences=2"])
    assert {row.n for row in few if row.metric == "bleu"} == {2}


def test_python_translates_sentences_as_the_command_does(run: experiment.Run) -> None:
    sources, expected = lines(Path(run.settings.corpus) / "test.de"), lines(run.folder / "test.translations.txt")
    assert run.translate(sources) == run.translate(iter(sources)) == expected and run.translate([]) == []
    assert run.translate(["am montag\nregnet es."]) == run.translate(["am montag regnet es."])
    for wrong in ("am montag regnet es.", ["am", 3], None, 3):
        with pytest.raises(UsageError, match="sentences: should be a list of texts"):
            run.translate(wrong)  # type: ignore[arg-type]
    for wrong, message in (("x\0y", "a NUL: not text"), ("\ud800", "not UTF-8")):
        with pytest.raises(DataError, match=f"sentences:2: {message}"):
            run.translate(["am", wrong])


@pytest.mark.parametrize(("files", "name", "message"), [
    ({}, "gone", r"gone\.de: file not found; a test set is two files that end in \.de and \.xx, or a table"),
    ({"a.de": "am\n"}, "a.de", r"a\.xx: file not found; a test set is two files"),
    ({"a.de": "am\n", "a.xx": "b\nc\n"}, "a", r"a\.de has 1 lines and a\.xx 2"),
    ({"t.tsv": "am\n"}, "t.tsv", r"t\.tsv:1: has 1 columns"),
    ({"train.de": "am\n", "train.xx": "b\n", "dev.de": "am\n", "dev.xx": "b\n"}, ".",
     r"has the splits train, valid and no test split; give the file to evaluate on"),
    ({"a.de": "", "a.xx": ""}, "a", r"a\.de: is empty")])
def test_an_invalid_test_set_is_refused(run: experiment.Run, tmp_path: Path, files: dict[str, str], name: str,
                                        message: str) -> None:
    for file, text in files.items():
        (tmp_path / file).write_text(text, encoding="utf-8")
    parts, task = stored.open_translator(run.folder)
    with pytest.raises(DataError, match=message):
        task.score_file(parts, tmp_path / name)


def test_subwords_are_joined_in_translations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                             capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "text"
    folder.mkdir()
    (folder / "train.de").write_text("am mon@@ tag .\nam frei@@ tag .\n" * 9)
    (folder / "train.xx").write_text("on mon@@ day .\non friday .\n" * 9)
    config = experiment.resolve("cross-entropy", "nmt", str(folder), threads=1, sets=[
        *SETS, "translation.valid=0", "translation.test=0"])
    trained = fit(config, tmp_path / "run").folder
    embtrain = partial(command, monkeypatch, capsys, "translate", str(trained))
    assert embtrain(given=b"am mon@@ tag .\nam frei@@ tag .\nam montag .\nam freitag .\n") == (
        "On monday .\nOn friday .\n" * 2)
