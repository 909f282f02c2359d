"""N-Triples are read by the grammar of the W3C; errors name the line."""

from __future__ import annotations

import gzip
import io
import time
from pathlib import Path

import pytest
from helpers.looped import looped

from embtrain.common.errors import DataError
from embtrain.data.storage.containers import Source
from embtrain.data.triples import graph, ntriples
from embtrain.data.triples.graph import Graph, TriplesConfig
from embtrain.data.triples.ntriples import statements

S, P, O = "http://a.org/s", "http://a.org/p", "http://a.org/o"


def source(text: str | bytes, name: str = "g.nt") -> Source:
    data = text if isinstance(text, bytes) else text.encode()
    return Source(name, io.BufferedReader(io.BytesIO(data)), len(data))  # type: ignore[type-var]


def rows(text: str | bytes) -> list[tuple[str, str, str]]:
    return [(statement.subject, statement.predicate, statement.object) for statement in statements(source(text))]


@looped("line, result", [
    (f"<{S}> <{P}> <{O}> .", (S, P, O)),
    (f"<{S}><{P}><{O}>.", (S, P, O)),
    (f"\t <{S}>\t<{P}>  <{O}> \t.\t # a comment", (S, P, O)),
    (f"<{S}> <{P}> <{O}> .#c", (S, P, O)),
    (f"_:a <{P}> _:b.1 .", ("_:a", P, "_:b.1")), (f"_:a<{P}>_:b.", ("_:a", P, "_:b")),
    (f"_:0-ж·. <{P}> _:_x.", None), (f"_:0-ж· <{P}> _:_x.", ("_:0-ж·", P, "_:_x")),
    (f"<{S}> <{P}> \"\" .", (S, P, '""')), (f'<{S}> <{P}> "a # b . <c>" .', (S, P, '"a # b . <c>"')),
    (f'<{S}> <{P}> "chat"@fr-BE .', (S, P, '"chat"@fr-be')),
    (f'<{S}> <{P}> "5"^^<http://www.w3.org/2001/XMLSchema#int> .',
     (S, P, '"5"^^<http://www.w3.org/2001/XMLSchema#int>')),
    (rf'<{S}> <{P}> "\t\b\n\r\f\"\'\\ \u00e9\U0001F600\u0001" .', (S, P, r'"\t\b\n\r\f\"' + "'" + r'\\ é😀\u0001"')),
    (r"<http://a.org/\u00E9> <x:\U0001F600> <urn:a> .", ("http://a.org/é", "x:😀", "urn:a")),
    ("<scheme:!$%25&'()*+,-./0123456789:/@ABCDE_~?#> <x:p> <x:o> .",
     ("scheme:!$%25&'()*+,-./0123456789:/@ABCDE_~?#", "x:p", "x:o")),
])
def test_terms(line: str, result: tuple[str, str, str] | None) -> None:
    if result is None:
        with pytest.raises(DataError, match=r"g\.nt:1: "):
            rows(line)
    else:
        assert rows(line + "\n") == [result]


def test_line_ends_comments_blank_lines_and_byte_order_mark() -> None:
    one = f"<{S}> <{P}> <{O}> ."
    text = f"\ufeff# a\n#b\n\n \t\n{one}\r\n{one}\r{one} #\n   # {one}\n{one}"
    result = list(statements(source(text)))
    assert [row.number for row in result] == [5, 6, 6, 8] and len({(row.subject, row.object) for row in result}) == 1
    assert rows("") == rows("# nothing") == []


@looped("line, says", [
    (f"<{S}> <{P}> <{O}>", "expected the end ` .`"),
    (f"<{S}> <{P}> .", "expected an IRI <...>, a blank node or a literal"),
    (f"<{S}> _:p <{O}> .", "expected an IRI <...> as predicate at character 18"),
    (f'"s" <{P}> <{O}> .', "as subject at character 1"), (f"<{S}> \"p\" <{O}> .", "as predicate"),
    (f"<{S}> <{P}> <{O}> <http://g> .", "four terms: this is N-Quads"),
    (f"<{S}> <{P}> <{O}> . <{S}> <{P}> <{O}> .", "expected the end"),
    (f"<{S}> <{P}> <{O}>, <{S}> .", "expected the end"),
    ("<http://a b> <x:p> <x:o> .", "as subject"), (r"<http://a/\u00ZZ> <x:p> <x:o> .", "as subject"),
    (r"<http://a/\n> <x:p> <x:o> .", "as subject"), ("<http://a/{x}> <x:p> <x:o> .", "as subject"),
    ("<s> <x:p> <x:o> .", "<s>: is not an absolute IRI"), ("<x:s> <p> <x:o> .", "<p>: is not an absolute"),
    ('<x:s> <x:p> "a"^^<int> .', "<int>: is not an absolute"), (r"<x:\u0020> <x:p> <x:o> .", "an IRI cannot contain"),
    (r"<x:\uD800> <x:p> <x:o> .", "is not a character"), (r'<x:s> <x:p> "\U00110000" .', "is not a character"),
    ("<x:s> <x:p> 'a' .", "a literal"), ("<x:s> <x:p> \"\"\"a\"\"\" .", "expected the end"),
    ("<x:s> <x:p> 5 .", "a literal"),
    ('<x:s> <x:p> "a"@ .', "expected the end"), ('<x:s> <x:p> "a"@1 .', "expected the end"),
    (r'<x:s> <x:p> "\a" .', "a literal"), (r'<x:s> <x:p> "\u12" .', "a literal"), ('<x:s> <x:p> "open .', "a literal"),
    ('<x:s> <x:p> "a"^^xsd:int .', "expected the end"), ("_::a <x:p> <x:o> .", "as subject"),
    ("_:a:b <x:p> <x:o> .", "as predicate"), ("@prefix x: <x:> .", "this is Turtle; convert it"),
    ("PREFIX x: <x:>", "this is Turtle"), ("<x:s> a <x:o> .", "as predicate"), (".", "as subject"),
])
def test_line_that_is_not_a_triple_is_rejected_with_its_number(line: str, says: str) -> None:
    with pytest.raises(DataError) as caught:
        rows(f"# a comment\n{line}\n")
    assert str(caught.value).startswith("g.nt:2: ") and says in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_bytes_that_are_not_utf8_and_long_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"g\.nt:1: byte 5 is not UTF-8"):
        rows(b"<x:s\xff> <x:p> <x:o> .")
    monkeypatch.setattr(ntriples, "LONGEST", 100)
    with pytest.raises(DataError, match=r"g\.nt:1: is longer than 100 bytes"):
        rows(f'<x:s> <x:p> "{"a" * 100}" .')


@pytest.mark.parametrize("line", ["<" + "a" * 500_000, '<x:s> <x:p> "' + r"\u0041" * 80_000, "_:" + "a." * 250_000,
                                  '<x:s> <x:p> "a"@' + "a-" * 200_000, " " * 500_000 + "x", "<x:s>" * 100_000])
def test_no_line_takes_long(line: str) -> None:
    begin = time.process_time()
    with pytest.raises(DataError):
        rows(line)
    assert time.process_time() - begin < 2


# --- a graph ---------------------------------------------------------------------------------------------------------

TEXT = """# people
<http://a.org/ann> <http://a.org/knows> <http://a.org/bob> .
<http://a.org/bob> <http://a.org/knows> _:someone .
<http://a.org/ann> <http://a.org/name> "Ann"@en .
<http://a.org/bob> <http://a.org/age> "5"^^<http://www.w3.org/2001/XMLSchema#int> .
"""


def load(path: Path, **settings: object) -> Graph:
    return graph.load([path], "triples", TriplesConfig(**{"valid": 0, "test": 0, **settings}), None, "mine")


@pytest.mark.parametrize("name", ["g.nt", "g.nt.gz", "kg.txt", "train.nt", "train.tsv"])
def test_graph_of_iris_is_recognized_and_literals_are_counted(tmp_path: Path, name: str,
                                                               caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(TEXT.encode()) if name.endswith("gz") else TEXT.encode())
    result = load(path)
    assert result.entities.words == ["http://a.org/bob", "_:someone", "http://a.org/ann"]
    assert result.relations.words == ["http://a.org/knows"] and len(result.triples) == 2
    assert f"{path}:4: 2 triples have a literal as their object and are removed (triples.literals)" in caplog.messages
    kept = load(path, literals="keep")
    assert {'"Ann"@en', '"5"^^<http://www.w3.org/2001/XMLSchema#int>'} <= set(kept.entities.words)
    assert len(kept.triples) == 4 and any("kept, each literal as an entity" in line for line in caplog.messages)


def test_parts_share_blank_nodes_and_format_can_be_set(tmp_path: Path) -> None:
    (tmp_path / "train.nt").write_text(TEXT)
    (tmp_path / "test.nt").write_text("_:someone <http://a.org/knows> <http://a.org/ann> .\n")
    result = load(tmp_path)
    assert len(result.part("test")) == 1 and len(result.entities) == 3
    only = tmp_path / "only.txt"
    only.write_text("# nothing but a comment\n" * 10_000 + "<x:a> <x:p> <x:b> .\n")   # beyond the lines that auto reads
    assert len(load(only, format="ntriples").triples) == 1


def test_graph_of_literals_only_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "g.nt").write_text('<x:a> <x:p> "b" .\n')
    with pytest.raises(DataError, match=r"the training split contains no triples; .*g\.nt:1: 1 triple has a literal"):
        load(tmp_path / "g.nt")
