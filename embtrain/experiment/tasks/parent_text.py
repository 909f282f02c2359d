"""The text of the run that another run continues: its words, their counts, and how it was read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from embtrain.common.errors import DataError, UsageError
from embtrain.data.formats import detect
from embtrain.data.storage import stored_corpus
from embtrain.data.text.corpus import Corpus, TextConfig
from embtrain.data.text.tokenize import Tokenizer
from embtrain.data.text.vocabulary import Vocabulary
from embtrain.experiment.tasks.base import read_identity

TOKENIZERS = frozenset(get_args(Tokenizer)) - {"auto"}
READING_KEYS = ("lower", "token_min", "token_max", "tokenizer", "phrases")  # they decide which words a text has
PHRASE_KEYS = ("phrase_min_count", "phrase_threshold")                      # so do these, if phrases are joined
UNKNOWN = "unknown"   # the sign of subwords in a text whose tokenizer removes it, if an earlier version read the text


class ContinuedTextConfig(TextConfig):
    """Settings of a further text: the tokenizer of an earlier one, and joined subwords as with `auto`."""

    @property
    def joins_subwords(self) -> bool:
        return True


@dataclass(frozen=True)
class ParentText:
    """Words and counts from the folder of a run, summed over its own parents."""

    folder: Path
    vocabulary: Vocabulary
    target_counts: np.ndarray   # (V,) float64  expected occurrences as a target in an epoch, after subsampling
    raw_counts: np.ndarray      # (V,) float64
    reading: dict[str, Any]     # settings by which the text was read, with the tokenizer that `auto` selected
    split_subwords: str | None  # the sign of subwords among the words, which stay split in a further text; or UNKNOWN

    def spread(self, counts: np.ndarray, words: Sequence[str]) -> np.ndarray:
        """Counts (V,) of this text in the order of more words, (V',) float64; 0 for the others."""
        index = self.vocabulary.index
        rows = np.array([index.get(word, -1) for word in words], np.int64)
        return np.where(rows >= 0, counts[rows], 0.0)

    def continued_reading(self, config: TextConfig, tokenizer_is_auto: bool) -> TextConfig:
        """Return the settings of a further text: with the tokenizer of this one, if the user names none.

        tokenizer_is_auto: whether the user left the choice of `config.tokenizer` to embtrain. Raises UsageError, with a
        line for each, if other settings split it into words by other rules.
        """
        reading = {"phrases": 0, **self.reading}   # a text without phrases has none of their keys
        if tokenizer_is_auto and reading.get("tokenizer") in TOKENIZERS:
            config_type = ContinuedTextConfig if self.split_subwords is None else TextConfig
            config = config_type.model_validate(config.model_dump() | {"tokenizer": reading["tokenizer"]})
        faults = []
        for key in (*READING_KEYS, *(PHRASE_KEYS if config.phrases and reading["phrases"] else ())):
            value, earlier = getattr(config, key), reading.get(key)
            both_auto = key == "tokenizer" and tokenizer_is_auto and earlier == "auto"
            if value != earlier and not both_auto:
                again = "; the tokens are then split again" if key == "tokenizer" and config.format == "tokens" else ""
                faults.append(f"text.{key}: {value!r}: the text of {self.folder} was read with {earlier!r}, which "
                              f"gives other words; set text.{key}={earlier}{again}")
        if faults:
            raise UsageError(*faults)
        return config

    def extended(self, corpus: Corpus) -> Corpus:
        """Return a further text whose identity also records the sign of subwords that stayed split in this one."""
        identity, vocabulary = corpus.identity, corpus.vocabulary
        if "splitting" not in identity:     # read by an earlier version
            return corpus
        sign = self.split_subwords or _split_subwords(identity, vocabulary.words, vocabulary.counts)
        splitting = {**identity["splitting"], "split_subwords": sign}
        return replace(corpus, identity={**identity, "splitting": splitting})


def read(folder: Path) -> ParentText:
    """Read the text of a run. DataError if a file of the folder is missing or damaged."""
    if not folder.is_dir():
        raise DataError(f"train.parent: {folder}: folder not found; restore the run that this one continues")
    vocabulary, arrays = Vocabulary.read(folder / "vocabulary.txt"), stored_corpus.read(folder) or {}
    counts, raw_counts = arrays.get("counts"), arrays.get("raw_counts")
    identity = read_identity(folder)
    reading = identity.get("settings")
    if counts is None or raw_counts is None or not counts.shape == raw_counts.shape == (len(vocabulary),):
        raise DataError(f"{folder / stored_corpus.FILE}: has no counts of the {len(vocabulary):,} words of "
                        "vocabulary.txt; restore the file that training wrote")
    if not isinstance(reading, dict):
        raise DataError(f"{folder / 'identity.json'}: does not contain corpus.settings; restore the file that training "
                        "wrote")
    tokenizer = _tokenizer(identity) or reading.get("tokenizer")
    return ParentText(folder, vocabulary, counts, raw_counts, {**reading, "tokenizer": tokenizer},
                      _split_subwords(identity, vocabulary.words, raw_counts))


def _split_subwords(identity: Mapping[str, Any], words: Sequence[str], counts: np.ndarray) -> str | None:
    """Return the sign of subwords that stayed split in a text; None if it has whole words.

    identity: of the corpus. counts: (V,) occurrences of the words, for texts of earlier versions, which do not record
    the sign. `whitespace` keeps it in the words, while other tokenizers remove it: UNKNOWN.
    """
    match identity:
        case {"splitting": {"split_subwords": str() | None as sign}}:
            return sign
        case {"settings": {"tokenizer": "auto"} | {"joins_subwords": True}}:
            return None
        case {"settings": {"tokenizer": "whitespace"}}:
            return detect.subword_sign_in_words(words, counts.tolist())
    return UNKNOWN


def _tokenizer(identity: Mapping[str, Any]) -> str | None:
    """Return the tokenizer that split a text, also where `auto` selected it. identity: of the corpus.

    None if several tokenizers split it, if its subwords were joined, which only `auto` does, or if it is not known.
    """
    match identity:
        case {"settings": {"tokenizer": str(name)}} if name != "auto":
            return name
        case {"splitting": {"tokenizers": [str(name)], "subwords": None}}:
            return name
    return None
