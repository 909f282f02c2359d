"""Wiki markup: gensim's text, in a time linear in the size of the page."""

from __future__ import annotations

import random
import time

from gensim.corpora.wikicorpus import filter_wiki
from helpers.looped import looped

from embtrain.data.formats.wiki_markup import text_of

PAGE = """'''Salt''' is a [[mineral|rock]].<ref name="a">See {{cite|x=[[y]]}}.</ref> <!-- hidden -->
[[File:Salt.jpg|thumb|A [[dish]] of salt]]
[[Image:a.png|left|Crystals]]
{{Infobox {{nested}} | a = b }}
{| class="wikitable"
|-
! Name !! Mass
|-
| NaCl || 58 &lt;g&gt;
|}
It costs [http://example.org/a a little] and <math>x < y</math>.
[[Category:Minerals]]
[[de:Salz]]
[[fr:Sel]]
"""
MARKS = ["[[", "]]", "[", "]", "|", "||", "!", "!!", "\n", "\n\n", " ", "  ", "\t", "{{", "}}", "{|", "}|", "|}", "|-",
         "|-1", "<!--", "-->", "<ref>", "<ref ", "</ref>", "/>", "<nowiki>", "</nowiki>", "<math>", "</math>", "<", ">",
         "File:", "[[Image:", "[[Category:", "http://", "[http://a ", "[x://", "a", "word", "é", "\n[[de:",
         "\n[[fr:x]]", "\n[[fr:x]]\n", "style=", "\n class=", "colspan", "&lt;", "&amp;", "-", ":", "\r", "\x85"]
REPEATED = ["[[File:", "[[File:x]", "[[File:a|b]]", "<!--", "<ref>", "<ref ", "<nowiki>", "<math ", "<", "[a://",
            "[a:// ", "[a://b ", "[[a|", "[|", "|", "[[", "{{", "{{a|", "}}", "{|", "|-", "  !", "  |", " \n!",
            "\n[[aa:x]]", "\n[[aa:", "[[Category:", "[[[[a]]", "\nclass=", "&lt;", "-->", "]"]


def test_page_keeps_its_words_only() -> None:
    assert " ".join(text_of(PAGE).split()) == (
        "'''Salt''' is a rock. A dish of salt Crystals Name Mass NaCl 58 It costs a little and .")


@looped("seed", range(20))
def test_text_equals_that_of_gensim(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(300):
        marks = chance.sample(MARKS, chance.randint(2, len(MARKS)))
        page = "".join(chance.choice(marks) for _ in range(chance.randint(1, 40)))
        assert text_of(page) == filter_wiki(page), page
    assert text_of(PAGE) == filter_wiki(PAGE)


@looped("closer", ["", "z]]", "\n]", ">", "}}"])
@looped("mark", REPEATED)
def test_unclosed_marks_take_linear_time(mark: str, closer: str) -> None:
    """100,000 characters of them took gensim up to 80 seconds; a page of Wikipedia has 2,000,000 at most."""
    begun = time.process_time()
    text_of(mark * (40_000 // len(mark)) + closer)           # 6 times longer for a square of the length
    assert time.process_time() - begun < 1                   # about .02 to .16
