"""Warnings about a reading: what was dropped, joined or unreadable, and the settings that change it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from embtrain.data.storage.encoding import encoding_hint
from embtrain.data.storage.skipped import counted
from embtrain.data.text.findings.tally import Tally

WIKI_MAX = 15  # letters of a word, by gensim's rule
ARTICLE_WORDS = 50  # gensim's ARTICLE_MIN_WORDS; its import takes a second
SHARE, WIKI_SHARE = 0.001, 0.01  # of the letters and digits; a kind below is not reported (wiki: well known)


def left_out_line(name: str, facts: Mapping[str, int], section: str, bounds: tuple[int, int]) -> str | None:
    """Return a line about the letters and digits that the tokenizer drops; None if there are none.

    facts: from `Census.facts`. bounds: token_min and token_max.
    """
    if not (letters := facts.get("letters", 0)):
        return None

    wiki = not facts["prose"]

    def matters(kind: str) -> bool:
        return facts[kind] >= (WIKI_SHARE if wiki else SHARE) * letters
    tokenizer, longest = ("wiki", min(bounds[1], WIKI_MAX)) if wiki else ("words", bounds[1])
    kinds, remedies = list[str](), list[str]()
    n_left_out = 0
    for kind, template in (("digits", "{:,} digits"),
                           ("long", f"{{:,}} letters of words longer than token_max={longest}"),
                           ("short", f"{{:,}} letters of words shorter than token_min={bounds[0]}"),
                           ("lost", f"{{:,}} letters in runs longer than token_max={longest} of a script without "
                                    "spaces between words")):
        if matters(kind) and not (wiki and kind in ("digits", "short")):
            kinds.append(template.format(facts[kind]))
            n_left_out += facts[kind]
    parts = list[str]()
    if kinds:
        parts.append(f"omits {_percent(n_left_out, letters)} of the letters and digits ({', '.join(kinds)})")
    if matters("joints") and not wiki:
        parts.append(f"splits words at _ ({facts['joints']:,} times)")
    if matters("unsplit"):
        parts.append(f"reads runs without spaces as words ({facts['unsplit']:,} letters)")
    if not parts:
        return None
    if matters("lost") or matters("unsplit"):
        remedies.append("segment the text first (e.g. with jieba, MeCab or PyThaiNLP) and set "
                        f"{section}.tokenizer=whitespace")
    elif not wiki and (matters("digits") or matters("joints")):
        remedies.append(f"set {section}.tokenizer=whitespace to keep numbers and ids unchanged")
    if matters("long"):
        remedies.append(f"set {section}.tokenizer=words and raise {section}.token_max" if wiki
                        else f"raise {section}.token_max")
    if matters("short") and not wiki:
        remedies.append(f"lower {section}.token_min")
    return f"{name}: {section}.tokenizer={tokenizer} {' and '.join(parts)}; {', or '.join(remedies)}"


def finding_lines(tally: Tally, section: str, field: str, is_auto: bool) -> Iterator[str]:
    """Yield lines about the findings of the readers, the most important first."""
    if tally.replaced or tally.nul:
        broken = counted(tally.replaced, "character is not UTF-8 and is read as U+FFFD",
                         "characters are not UTF-8 and are read as U+FFFD") if tally.replaced else ""
        blank = counted(tally.nul, "NUL character is read as a space", "NUL characters are read as spaces") \
            if tally.nul else ""
        hint = f"; if all of the text is in another encoding, {encoding_hint(b'')}" if tally.replaced else ""
        yield f"{tally.where}: {' and '.join(filter(None, (broken, blank)))}{hint}"
    if tally.missing:
        missing = counted(tally.missing, f"object or row without the field {field!r} is skipped",
                          f"objects or rows without the field {field!r} are skipped")
        yield (f"{tally.where}: {missing}; set {section}.field to another, or remove "
               f"{'it' if tally.missing == 1 else 'them'} from the file")
    if tally.pages:
        pages = counted(tally.pages, "page of the dump is skipped", "pages of the dump are skipped")
        yield f"{tally.where}: {pages}: no articles, or shorter than the {ARTICLE_WORDS} words that gensim requires"
    if tally.joined:
        hint = f"; set {section}.tokenizer=whitespace to keep the subwords" if is_auto else ""
        yield f"{tally.joined[0]}: subwords marked with {tally.joined[1]} are joined into words{hint}"
    if tally.tokenised and is_auto:
        yield (f"{tally.tokenised[0]}: marks like {tally.tokenised[1]} indicate tokenized text, which is split only "
               f"at spaces; set {section}.tokenizer=words to split it like prose")
    if tally.tagged:
        yield (f"{tally.tagged[0]}: contains tags like {tally.tagged[1][:40]}, whose names are read as words; "
               "remove them from the text")


def no_words_line(name: str, n_documents: int, is_empty: bool, reasons: Sequence[str]) -> str:
    """Return the line about a text without words. is_empty: a file of 0 bytes. reasons: lines on what is dropped."""
    if is_empty:
        return f"{name}: is empty; give a text"
    reason = f": {reasons[0].removeprefix(f'{name}: ')}" if reasons else \
        f" ({counted(n_documents, 'document was read', 'documents were read')})"
    return f"{name}: contains no words{reason}"


def _percent(part: int, total: int) -> str:
    share = 100 * part / total
    return f"{share:.0f} %" if share >= 10 or part == total else f"{share:.2g} %"
