"""Splits a query into words, and joins its subwords and phrases, as training did with its text."""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from typing import Any, get_args

from embtrain.common.errors import DataError
from embtrain.data.formats.detect import Subwords
from embtrain.data.formats.subwords import join_subwords
from embtrain.data.text.phrases import join_pairs
from embtrain.data.text.readers import Reader
from embtrain.data.text.tokenize import Splitter, Tokenizer, make_splitter

_log = logging.getLogger("embtrain")


class QueryWords:
    """The tokenizer of a run, with its subword sign and its phrases."""

    def __init__(self, identity: Mapping[str, Any], section: str, vocabulary: Collection[str] = (),
                 phrases: Sequence[Collection[tuple[str, str]]] | None = ()):
        """identity: of the corpus. section: of the settings, for warnings. vocabulary: the words with an id.

        phrases: the pairs that each pass joins; None: not known. Logs a warning if they are not known, or if the
        identity contains several tokenizers, or only `auto`. Raises DataError if it contains no tokenizer.
        """
        self._vocabulary, self._phrases = vocabulary, phrases or ()
        if phrases is None:
            _log.warning("predict: corpus.safetensors of the run does not contain its phrases; write the phrases of a "
                         "query as in vocabulary.txt, or train again")
        try:
            settings, splitting = identity["settings"], identity.get("splitting")
            reader, tokenizers = settings["reader"], [settings["tokenizer"]]
            if splitting is not None:
                tokenizers = splitting["tokenizers"]
            elif tokenizers == [reader] == ["auto"]:
                _log.warning("predict: identity.json of the run does not contain which tokenizer %s.tokenizer=auto "
                             "selected; the query is split by words; if the text is tokenized or a dump, train again",
                             section)
            self._splitter = _make_splitter(tokenizers[0], reader, settings)
            self._sign: Subwords | None = splitting and splitting["subwords"]
        except (LookupError, TypeError, AttributeError) as error:
            raise DataError(f"identity.json of the run does not contain how text is split into words ({error}); "
                            "restore the file that training wrote") from error
        if self._sign not in (None, *get_args(Subwords)):
            raise DataError(f"identity.json of the run: corpus.splitting.subwords: {str(self._sign)[:20]!r} is not one "
                            f"of {', '.join(get_args(Subwords))}; restore the file that training wrote")
        if len(tokenizers) > 1:
            _log.warning("predict: training split some documents by %s; the query is split by %s, that of the first "
                         "document; set %s.tokenizer and train again to split all of them by one",
                         " and some by ".join(tokenizers), tokenizers[0], section)

    def split(self, text: str) -> tuple[list[str], list[str]]:
        """Return the words of a query, with its subwords and phrases joined if training joined them, and what it lost.

        A word between blanks that has an id is not split: <unk>, or a phrase. The others are lost if the tokenizer
        leaves out some of their letters, digits or symbols: a number, €, or a word longer than token_max.
        """
        if self._sign is not None and self._sign in text:
            text = "".join(join_subwords([text], self._sign))
        words, lost = list[str](), list[str]()
        for word in text.split():
            parts = [word] if word in self._vocabulary else self._splitter.tokens(word)
            words += parts
            if _n_characters(word) > sum(map(_n_characters, parts)):
                lost.append(word)
        return join_pairs(words, self._phrases), lost


def _n_characters(text: str) -> int:
    """The number of letters, digits and symbols: all but punctuation, marks and layout characters."""
    return sum(unicodedata.category(character)[0] in "LNS" for character in text)


def _make_splitter(tokenizer: Tokenizer, reader: Reader, settings: Mapping[str, Any]) -> Splitter:
    return make_splitter(tokenizer, "text" if reader == "auto" else reader, settings["lower"], settings["token_min"],
                         settings["token_max"])
