"""Map file names to parts: train, valid, test, or no data.

A name is split into words at signs, digits and capitals (`newsTest-2014.txt.gz` -> news, test, txt). The last word that
names a part decides. There are three kinds of these words:

    exact    a usual spelling: train, dev, valset, testdata, tst2012, newstest2014, devtest (which is a test set)
    either   held-out, eval: the test part, or the valid part if another file of the folder is the test part
    glued    a spelling joined to the name of the data: xmltest, bibtextrain. English has words with these endings
             (contest, latest), so these count only in a folder with a training file, or with the same prefix and train
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

from embtrain.data.storage.containers import without_packing

Part = Literal["train", "valid", "test"]
PARTS = ("train", "valid", "test")

_SPELLINGS: dict[Part, str] = {
    "train": "train training trn",
    "valid": "valid validation validate validating val dev devel develop development tune tuning",
    "test": "test tests testing tst devtest"}
_ENDINGS = ("", "set", "sets", "data", "dataset", "file", "files", "split", "part", "corpus", "text", "id")
_EXACT: dict[str, Part] = {beginning + word + ending: part for part, spellings in _SPELLINGS.items()
                           for word in spellings.split() for ending in _ENDINGS for beginning in ("", "news")}
_EITHER = frozenset("heldout holdout eval evaluation evalset evaldata evals".split())
_GLUED = re.compile(r"(?P<before>[a-z]+)(?P<end>train|training|test|testing|valid|validation|dev)(?:set|data)?"
                    r"|(?P<start>train|test|valid)(?P<after>[a-z]+)")
# English words that the pattern would take for a part: the letters before and after the spelling.
_WORDS_BEFORE = {"test": frozenset("la con pro at de re pre grea fas shor ligh tigh brigh smar swee quie sof fat hot "
                                   "wet whi cu nea slo righ stou swif pen out gen".split()),
                 "train": frozenset("s res cons dis over re un".split()), "valid": frozenset(["in"])}
_WORDS_AFTER = {"test": re.compile(r"(ament|imon|if|oster|er|es$|is$|y$|ate|ing|ed)"),
                "train": re.compile(r"(er|ee|s$|ed|ing|spot|wreck|load|man|men)"), "valid": re.compile(r"(ity|at|ly)")}
# Words of a sample, or an older or other form, of the part with a plainer name; del: LibKGE's ids.
_VARIANTS = frozenset("sample samples sampled small subset mini tiny toy debug demo unseen old orig original backup "
                      "bak copy filtered hard easy dedup deduped without all del".split())
_NEGATIVES = frozenset("neg negs negative negatives false corrupt corrupted corruption corruptions fake fakes wrong "
                       "incorrect".split())
_BACKUP = re.compile(r"~$|^#.*#$|^~\$|\.(bak|backup|orig|old|save|sav|swp|swo|rej|tmp|temp|part|partial|crdownload)"
                     r"\d*$|[ _(-]copy([ _-]?\d+)?\)?(?=\.|$)|^copy (\(\d+\) )?of |\(\d+\)(?=\.|$)", re.IGNORECASE)
_DOCUMENTATION = re.compile(r"(readme|licen[cs]e|copying|copyright|notice|changelog|citation|authors|contributors"
                            r"|credits|manifest|md5sums?|sha\d*sums?|checksums?)(?![a-z])", re.IGNORECASE)
_SCRATCH = frozenset("tmp temp __macosx __pycache__ backup backups bak".split())


def split_words(name: str) -> list[str]:
    """Split a file name into lower-case words: at signs, digits, and a capital after a small letter."""
    pieces = re.findall(r"[^\W\d_]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "-", without_packing(name)))
    joined = [word.lower() for word in pieces]
    for i in range(len(joined) - 1):
        if (joined[i], joined[i + 1]) in (("held", "out"), ("hold", "out")):
            joined[i:i + 2] = ["heldout", ""]
    return [word for word in joined if word]


def exact_part(word: str) -> Part | Literal["either"] | None:
    """Return the part of a usual spelling; None for other words."""
    return "either" if word in _EITHER else _EXACT.get(word)


def glued_part(word: str) -> tuple[str, Part] | None:
    """Return the other letters and the part of a word that begins or ends with a spelling; None for an English word."""
    if word in _EXACT or word in _EITHER or (match := _GLUED.fullmatch(word)) is None:
        return None
    if end := match["end"]:
        part = _EXACT[end]
        return None if match["before"] in _WORDS_BEFORE.get(_stem(end), ()) else (match["before"], part)
    start, after = match["start"], match["after"]
    return None if _WORDS_AFTER[start].match(after) else (after, _EXACT[start])


def _stem(spelling: str) -> str:
    return next((stem for stem in ("train", "test", "valid") if spelling.startswith(stem)), spelling)


def assign_parts(names: Sequence[str]) -> list[Part | None]:
    """Return the part of each file of a corpus, `folder/folder/name`; None if the name gives no part.

    If a file name gives none, its folders do, from the inner one out, except folders that all files share.
    """
    words_by_name = [split_words(name.rpartition("/")[2]) for name in names]
    shared = len(_common_folders([name.split("/")[:-1] for name in names]))
    parts: list[Part | Literal["either"] | None] = []
    for name, own_words in zip(names, words_by_name, strict=True):
        folders = reversed(name.split("/")[shared:-1])
        folder_parts = (_last_part(map(exact_part, split_words(folder))) for folder in folders)
        parts.append(_last_part(map(exact_part, own_words)) or next(filter(None, folder_parts), None))
    joined = [next(filter(None, map(glued_part, reversed(own_words))), None) if part is None else None
              for own_words, part in zip(words_by_name, parts, strict=True)]
    trains = {rest for rest, part in filter(None, joined) if part == "train"}
    for i, pair in enumerate(joined):
        if pair is not None and ("train" in parts or pair[0] in trains):
            parts[i] = pair[1]
    either: Part = "valid" if "test" in parts else "test"
    return [either if part == "either" else part for part in parts]


def _last_part(parts: Iterable[Part | Literal["either"] | None]) -> Part | Literal["either"] | None:
    return next(filter(None, reversed(list(parts))), None)


def _common_folders(folders: Sequence[list[str]]) -> list[str]:
    """Return the folders that contain all files."""
    shared = folders[0] if folders else []
    for next_folders in folders:
        shared = shared[:next((i for i, (a, b) in enumerate(zip(shared, next_folders, strict=False)) if a != b),
                              min(len(shared), len(next_folders)))]
    return shared


def data_set(name: str) -> str:
    """Return `folder/name` without part words, digits and extension: equal for files of one data set."""
    folder, _, base = name.rpartition("/")
    rest = [word for word in split_words(re.sub(r"\.[A-Za-z]\w{0,8}$", "", without_packing(base)) or base)
            if exact_part(word) is None and word != "id"]
    rest = [match[0] if (match := glued_part(word)) else word for word in rest]
    folders = [part for part in folder.split("/") if part and not any(map(exact_part, split_words(part)))]
    return "/".join([*folders, "-".join(rest)])


def variant(name: str) -> list[str]:
    """Return the words that mark a sample, an older form or a subset of another file; none for a plain file.

    2id: OpenKE's ids of the names in a plainer file.
    """
    base = name.rpartition("/")[2]
    return ["2id"] * bool(re.search(r"2id(?![a-z])", base)) + [word for word in split_words(base) if word in _VARIANTS]


def form(name: str) -> str:
    """Return `folder/name` without extension, with one spelling of each part.

    Equal for train.txt and training.tsv, not for train1 and train2.
    """
    folder, _, base = name.rpartition("/")
    stem = re.sub(r"\.[A-Za-z]\w{0,8}$", "", without_packing(base)) or base
    spelt = [str(exact_part(piece.lower()) or piece) for piece in re.findall(r"[^\W\d_]+|\d+", stem)]
    return f"{folder}/{'-'.join(piece for piece in spelt if piece != 'id')}"


def is_negatives(name: str) -> bool:
    """Return whether a file is named as negatives: test_neg, valid_negatives, test.false."""
    return any(word in _NEGATIVES for word in split_words(name.rpartition("/")[2]))


def no_data_reason(name: str) -> str:
    """Return why a file of a folder contains no data for any reader; '' if its name gives no reason."""
    *folders, base = name.split("/")
    if any(folder.lower() in _SCRATCH for folder in folders):
        return "in a folder of temporary files or backups"
    if _BACKUP.search(without_packing(base)):
        return "a backup copy or an unfinished file"
    return "documentation" if _DOCUMENTATION.match(base) else ""


