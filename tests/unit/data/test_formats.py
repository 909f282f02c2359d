"""Formats of text files: TEI, JSON lines, WikiExtractor, rejected markup, tokenized text and subwords."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.cores import CORES, using

from embtrain.common.errors import DataError, UsageError
from embtrain.data.text.corpus import Corpus, TextConfig, load
from embtrain.data.text.streams import LanguageConfig, load as load_language

ALL = TextConfig(min_count=1, valid=0, test=0)


def lines_of(corpus: Corpus) -> list[str]:
    words = [corpus.vocabulary.words[i] for i in corpus.ids]
    return [" ".join(words[a:b]) for a, b in zip(corpus.sequence[:-1], corpus.sequence[1:], strict=True)]


def read(path: Path, content: str | bytes, **keys: object) -> Corpus:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return load([path], "auto", TextConfig(min_count=1, valid=0, test=0, **keys), None, "x")  # type: ignore[arg-type]


# --- TEI -------------------------------------------------------------------------------------------------------

BODY = """<p>the end<lb/>of line one<lb break="no"/>self</p><p><w>alpha</w><w>beta</w><pc>.</pc><w>gamma</w></p>
<sp><speaker>HAMLET</speaker><l>To be</l></sp><list><item>one</item><item>two</item></list><p>left<pb n="2"/>right</p>
<p>cell<note>a note</note>ule</p><table><row><cell>cx</cell><cell>d</cell></row></table><quote>quoted</quote><q>said</q>
<stage>Exit</stage><figure><figDesc>desc</figDesc></figure><div><byline>by</byline></div>"""
LINES = ["the end of line oneself", "alpha beta gamma", "hamlet", "to be", "one", "two", "left right", "cellule", "cx",
         "d", "quoted", "said", "exit", "by"]


def tei_of(body: str) -> str:
    return f'<TEI xmlns="http://www.tei-c.org/ns/1.0"><teiHeader/><text><body>{body}</body></text></TEI>'


@pytest.mark.parametrize("core", CORES)
def test_words_of_tei_are_neither_joined_nor_split(tmp_path: Path, core: str) -> None:
    with using(core):
        assert lines_of(read(tmp_path / "a.xml", tei_of(BODY))) == LINES


@pytest.mark.parametrize(("body", "lines"), [
    ('<p>some\n  <lb break="no"/>\n thing</p>', ["something"]),
    ('<p>one<pb/><lb break="no"/>self <cb/>b<milestone unit="x"/>c</p>', ["oneself b c"]),
    ('<p><w part="I">al</w><lb break="no"/><w part="F">pha</w><w>b</w></p>', ["alpha b"]),
    ('<p><w part="I">al</w><w part="M">p</w><w part="F">ha</w><w>b</w></p>', ["alpha b"]),
    ("<p>he<q>hello</q>said<said>now</said>x</p>", ["he hello said now x"]),
    ("<p>an <hi>in</hi>line <choice>\n<sic>teh</sic>\n<corr>the</corr>\n</choice>m</p>", ["an inline them"]),
    ("<p><choice><abbr>Dr</abbr><expan>doctor</expan></choice> who</p>", ["doctor who"]),
    ("<p><app><lem>right</lem><rdg>wrong</rdg></app> <app><rdg>first</rdg><rdg>next</rdg></app></p>", ["right first"]),
    ("<p><choice><orig>a<choice><sic>b</sic><corr>c</corr></choice></orig></choice></p>", ["ac"]),
    ("<p>a<subst>\n<del>b</del>\n<add>c</add>\n</subst>d</p>", ["acd"]),
    ("<p>see<list><item>a</item><item>b</item></list>then</p>", ["see", "a", "b", "then"]),
    ("<p>page<fw>running head</fw> end</p>", ["page end"]),
    ("<lg><l>one <stage>aside</stage>two</l><l>three</l></lg>", ["one aside two", "three"]),
    ("<s><w>a</w><w>b</w></s><s><w>c</w></s>", ["a b", "c"]),
    ("<floatingText><body><p>in</p></body></floatingText><p>out</p>", ["in", "out"])])
def test_tei_elements(tmp_path: Path, body: str, lines: list[str]) -> None:
    assert lines_of(read(tmp_path / "a.xml", tei_of(body))) == lines


@pytest.mark.parametrize("content", [
    '<?xml version="1.0"?><tei:TEI xmlns:tei="http://www.tei-c.org/ns/1.0"><tei:teiHeader><tei:p>no'
    "</tei:p></tei:teiHeader><tei:text><tei:body><tei:p>alpha beta</tei:p></tei:body></tei:text></tei:TEI>",
    "<!-- <x> --><!DOCTYPE TEI.2 [ ]><TEI.2><text><body><p>alpha beta</p></body></text></TEI.2>",
    "<teiCorpus><teiHeader><p>no</p></teiHeader>" + "<!-- far -->" * 900 + "<TEI><teiHeader><p>no</p></teiHeader><text>"
    "<front><p>no</p></front><body><p>alpha</p></body></text></TEI><TEI><text><body><p>beta</p></body></text></TEI>"
    "</teiCorpus>",
    ("<?xml version='1.0' encoding='UTF-16'?>" + tei_of("<p>alpha beta</p>")).encode("utf-16")])
def test_every_kind_of_tei_file_is_recognized(tmp_path: Path, content: str | bytes) -> None:
    assert " ".join(lines_of(read(tmp_path / "a.xml", content))) == "alpha beta"


# --- markup ----------------------------------------------------------------------------------------------------

XML = '<?xml version="1.0"?>\n<corpus><s n="1"><w pos="NN">alpha</w> <w pos="VB">beta</w></s></corpus>'
REFUSED = {
    XML: "is XML with the root <corpus>", XML.partition("\n")[2]: "is markup that begins with <corpus>",
    "<!DOCTYPE html><html><p>a b</p></html>": "is HTML", "<html><body>a b</body></html>": "is HTML",
    "<HTML>\n<p>a b": "is HTML", "<!-- x --><html>a</html>": "is HTML",
    '<rss version="2.0"><item>a b</item></rss>': "is markup that begins with <rss>",
    "alpha <b>beta</b> <i>gamma</i>\n" * 5: "is markup: ", "<p>a</p>\n<p>b</p>\n": "is markup that begins with <p>",
    '<doc url="x">\n<s>\na\tNN\n</s>\n</doc>': "is markup that begins with <doc>",
    "<DOC>\n" + "Plain words of a long story.\n" * 99 + "</DOC>\n": "is markup that begins with <DOC>",
    "%PDF-1.4 words": "is a PDF", "{\\rtf1 words}": "is RTF",
    '{"id": 1, "body": "alpha beta"}\n' * 3: "is JSON lines; set text.format=jsonl and text.field=body",
    '{"text": "a", "title": "alpha beta"}\n' * 3: "text.field=text",
    '[{"text": "alpha"}, {"text": "beta"}]': "not one object a line",
    '{\n  "text": "alpha"\n}': "one object a line",
    '["alpha beta",\n"gamma"]': "not one object a line", "\ufeff" + XML: "is XML",
}


@pytest.mark.parametrize("content", REFUSED)
def test_markup_does_not_become_vocabulary(tmp_path: Path, content: str) -> None:
    with pytest.raises(DataError) as caught:
        read(tmp_path / "a.txt", content)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'a.txt'}: is ") and REFUSED[content] in message and "\n" not in message
    if not content.startswith(("%PDF", "{\\rtf")):
        assert "text.format=" in message
        assert read(tmp_path / "a.txt", content, format="text").vocabulary.words  # unchanged, if the user sets this


@pytest.mark.parametrize("content", [
    "The tag <b> makes bold text and <br/> a line.\n" + "It is prose all the same.\n" * 20,
    "I <3 you, a < b and c > d, x <y> z\n" * 30, "[Illustration: a cat]\nThe cat sat.\n", "[1] A note.\n{a} brace\n",
    "<user> likes <url> and <hashtag> cats\n" * 20, '"quoted" text\n', "<b> alone", "<s>\nthe cat\n</s>\n"])
def test_text_that_mentions_tags_is_text(tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture) -> None:
    assert lines_of(read(tmp_path / "a.txt", content)) and "contains tags" not in caplog.text


def test_few_tags_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    corpus = read(tmp_path / "a.txt", ("A film that I liked very much, for all that was said of it.<br /><br />" +
                                       "It is long, and its music is what one comes for, or so they say; " * 8) * 9)
    assert "br" in corpus.vocabulary.words
    assert caplog.messages == [f"{tmp_path / 'a.txt'}: contains tags like <br />, whose names are read as words; "
                               "remove them from the text"]


def test_prolog_longer_than_the_head_is_xml(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is XML"):
        read(tmp_path / "a.xml", "<?xml version='1.0'?>" + "<?a?>" * 10_000)


# --- JSON lines ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("core", CORES)
def test_json_lines(tmp_path: Path, core: str, caplog: pytest.LogCaptureFixture) -> None:
    records: list[dict[str, object]] = [{"id": 1, "text": "The cat\nsat"}, {"text": None}, {"id": 2}, {"text": ""},
                                        {"text": ["two", "words"]}, {"text": "half \ud800 pair"}]
    content = "\ufeff" + "\n\n".join(map(json.dumps, records)) + "\n"
    with using(core):
        corpus = read(tmp_path / "a.jsonl", content, format="jsonl")
    assert lines_of(corpus) == ["the cat", "sat", "two words", "half pair"]
    assert corpus.document.tolist() == [0, 3, 3, 5, 7]
    assert ("a.jsonl: 2 objects or rows without the field 'text' are skipped; set text.field to another" in caplog.text)


def test_field_inside_an_object(tmp_path: Path) -> None:
    content = '{"data": {"body": "alpha"}, "a.b": "beta"}\n'
    assert lines_of(read(tmp_path / "a.jsonl", content, format="jsonl", field="data.body")) == ["alpha"]
    assert lines_of(read(tmp_path / "a.jsonl", content, format="jsonl", field="a.b")) == ["beta"]


@pytest.mark.parametrize(("content", "says"), [
    ('{"text": "a"}\n{"text": "b"\n', r"a\.jsonl:2: is not JSON \(Expecting"),
    ('{"text": "a"}\nplain\n', r"a\.jsonl:2: is not JSON"), ('{"text": "a"}\n["b"]\n', r"a\.jsonl:2: is not an object"),
    ('{"text": 3}\n', r"a\.jsonl:1: 'text' is not text but 3"), ('{"x": ' + "[" * 100_000 + "\n", "nested too deeply"),
    (b'{"text": "\xff"}\n', r"a\.jsonl:1: is not UTF-8"),
    ('{"body": "a"}\n', r"a\.jsonl: contains no words: 1 object or row without the field 'text'")])
def test_damaged_json_lines_report_their_line(tmp_path: Path, content: str | bytes, says: str) -> None:
    with pytest.raises(DataError, match=says):
        read(tmp_path / "a.jsonl", content, format="jsonl")


def test_field_without_json_lines_is_rejected() -> None:
    with pytest.raises(ValueError, match="field 'body' requires format: jsonl, parquet, arrow"):
        TextConfig(field="body")


def test_recipe_keeps_its_own_format(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a b")
    with pytest.raises(UsageError, match=r"text\.format: tei: the recipe x sets the reader tokens"):
        load([tmp_path / "a.txt"], "tokens", TextConfig(format="tei"), None, "x")


# --- WikiExtractor ---------------------------------------------------------------------------------------------

WIKI = '<doc id="1" url="https://x" title="One">\nOne\n\nalpha &amp; beta\n</doc>\n\n<doc id="2">\nT\n</doc>\n'


@pytest.mark.parametrize("core", CORES)
def test_articles_of_wikiextractor(tmp_path: Path, core: str) -> None:
    with using(core):
        corpus = read(tmp_path / "wiki_00", WIKI)
    assert lines_of(corpus) == ["one", "alpha beta", "t"] and corpus.document.tolist() == [0, 3, 4]


@pytest.mark.parametrize(("content", "says"), [
    (WIKI[:60], r"wiki_00:\d: ends before </doc>"), (WIKI + "stray\n", "wiki_00:10: text outside <doc"),
    (WIKI.replace("</doc>\n\n", ""), "wiki_00:5: a <doc> before the </doc>")])
def test_damage_in_wikiextractor_reports_its_line(tmp_path: Path, content: str, says: str) -> None:
    with pytest.raises(DataError, match=says):
        read(tmp_path / "wiki_00", content)


# --- tokenised text and subwords -------------------------------------------------------------------------------

@pytest.mark.parametrize("core", CORES)
def test_marks_of_tokenized_text_stay_whole_in_every_file(tmp_path: Path, core: str,
                                                          caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "train.txt").write_text("<s> the <unk> did n't 's $ N </s>\n" * 40)
    (tmp_path / "valid.txt").write_text("the 's N\n")
    with using(core):
        corpus = load_language([tmp_path], "auto", LanguageConfig(min_count=1, valid=0, test=0), None, "x")
    assert set(corpus.vocabulary.words) == {"<s>", "the", "<unk>", "did", "n't", "'s", "$", "N", "</s>", "<eos>"}
    assert lines_of(corpus)[-1] == "the 's N <eos>"
    assert ("train.txt: marks like <s> indicate tokenized text, which is split only at spaces; set "
            "language.tokenizer=words to split it like prose") in caplog.text


@pytest.mark.parametrize("content", [
    "Rare words become <unk> here, as the paper says, and so on: prose, of course.\n" + "More, and more of it.\n" * 9])
def test_prose_that_mentions_a_mark_is_prose(tmp_path: Path, content: str) -> None:
    assert "prose" in read(tmp_path / "a.txt", content).vocabulary.words


CUT = {"@@": "the low@@ est of new@@ er things\nin@@\na low@@\n", "##": "the low ##est of new ##er things\nin\na low\n",
       "▁": "▁the ▁low est ▁of ▁new er ▁thing s\n▁in\n▁a ▁lo w\n", "￭": "the low￭ est of new ￭er things\nin\na lo ￭w\n"}


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("sign", CUT)
def test_subwords_are_joined(tmp_path: Path, core: str, sign: str, caplog: pytest.LogCaptureFixture) -> None:
    with using(core):
        corpus = read(tmp_path / "a.txt", CUT[sign] * 30)
        kept = read(tmp_path / "b.txt", CUT[sign] * 30, tokenizer="whitespace")
    assert lines_of(corpus)[:3] == ["the lowest of newer things", "in", "a low"] and len(corpus.sequence) == 91
    assert [line for line in caplog.messages if "subwords" in line] == [
        f"{tmp_path / 'a.txt'}: subwords marked with {sign} are joined into words; set text.tokenizer=whitespace to "
        "keep the subwords"]
    assert any(sign in word for word in kept.vocabulary.words)
