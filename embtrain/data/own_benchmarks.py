"""Benchmarks of the user: a recipe as in evals/*.yaml, or a table of words whose layout is detected.

    word1 word2 score      the score is a column of numbers
    word1 word2 label      the same with True and False: is word1 a kind of word2?
    word1 word2 word3 target, with titles `: SECTION` between: analogies

The words are the two columns that the header names (WORD_NAMES), else the first two adjacent columns of text, so that
row numbers in front of them are not words; the first two if there are none. The score is the column that the header
names (GOLD_NAMES), else a later one. Of several columns of numbers or labels the header must name one.
A line that begins with `#` or `%` and a blank is a comment, unless it is a row of the table (`RowFilter`).
The delimiter is the one of TAB, comma, semicolon and blanks that splits most lines into the same number of fields,
empty ones at the end of a line left out where they are surplus. A first line without a number where the others have one
is a header, which is skipped with a warning; a number in another notation there (`7,35`) is an error. A comment in
front of it that names columns is the header instead, unless this line names columns too (`RowShape.find_header`).
"""

from __future__ import annotations

import itertools
import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from embtrain.common import shipped
from embtrain.common.config import Layer, build, read_yaml
from embtrain.common.errors import DataError, UsageError
from embtrain.common.files import sha256
from embtrain.data.catalogue.benchmark import Delimiter, EvalRecipe, GoldCounts, GoldFormat
from embtrain.data.catalogue.recipe_file import UNVERIFIED, RecipeFile
from embtrain.data.formats.table_rows import (
    GOLD_NAMES,
    LABELS,
    MAX_COMMENTS,
    SECTION_MARK,
    SEPARATORS,
    RowFilter,
    RowShape,
    column_counts,
    is_faulty_number,
    is_number,
    is_skipped,
    named_words,
    number_remedy,
    plain_name,
    split_fields,
)
from embtrain.data.storage.containers import sources
from embtrain.data.storage.lines import is_comment, read_nonblank_lines

_HINT = "is it a table of words?"
MAX_SAMPLE_LINES = 50          # lines by which the layout is detected
MAX_LISTED = 3                 # columns in an error
_log = logging.getLogger("embtrain")
_OPTIONAL = {"description": "", "licence": "", "citation": "", "protocol": "", "expected": {"pairs": 0, "questions": 0}}


def is_recipe(path: Path) -> bool:
    """Return whether the file is a recipe, by its suffix."""
    return path.suffix in shipped.RECIPE_SUFFIXES


def read_own_recipe(path: Path) -> tuple[EvalRecipe, Path | None]:
    """Read a recipe of the user, and find its gold file.

    The gold file is `mirror` of one of the copies, next to the recipe; None if none of them exists. Keys that only
    document a shipped recipe may be omitted. Logs a warning of comments and of a header that may be a row. Raises
    DataError for an invalid recipe, or a gold file with another sha256.
    """
    defaults = Layer(str(path), {"name": path.stem, **_OPTIONAL})
    try:
        result = build(EvalRecipe, [defaults, read_yaml(path)])
    except UsageError as error:
        raise DataError(f"{error}") from error
    for copy in result.copies:
        gold = path.parent / copy.mirror if copy.mirror else None
        if gold is not None and gold.is_file():
            if copy.sha256 not in (UNVERIFIED, actual := sha256(gold)):
                raise DataError(f"{gold}: has the sha256 {actual}, but {path} requires {copy.sha256}; restore the same "
                                f"file, or set sha256: {UNVERIFIED}")
            if line := _report_comments(gold, result.kind, result.format).doubtful_header:
                _log.warning("%s: is read as the header; set format.header: false in %s if it is a row", line, path)
            return result, gold
    return result, None


def recipe_from_table(path: Path) -> EvalRecipe:
    """Build the recipe of a table of words.

    Raises DataError if the table is empty, or has neither scores nor labels nor analogies.
    """
    sample = _sample(path)
    if not sample:
        raise DataError(f"{path}: is empty; give lines of two words and a score")
    if any(text.startswith(": ") for text in sample):
        form = GoldFormat(columns=("word1", "word2", "word3", "target"), delimiter="space")
        _report_comments(path, "analogy", form)
        return _recipe(path, "analogy", "accuracy", form)
    form = detect_layout(sample, path)
    last = "score" if "score" in form.columns else "label" if "label" in form.columns else None
    if last is None:
        for text, delimiter in itertools.product(sample, SEPARATORS):
            for field in split_fields(text, delimiter)[2:]:
                if remedy := number_remedy(field):
                    place = _place(path, {text}.__contains__)
                    raise DataError(f"{place}: should have a column of numbers, got {field!r}; {remedy}")
        raise DataError(f"{path}: has no column of numbers after two words; give lines of two words and a score, "
                        "separated by TABs, commas, semicolons or spaces")
    kind, metric = ("similarity", "spearman") if last == "score" else ("entailment", "accuracy")
    _report_comments(path, kind, form)
    return _recipe(path, kind, metric, form)


def detect_layout(sample: Sequence[str], path: Path, is_label: Callable[[str], bool] = LABELS.__contains__,
                  gold_forms: str = "numbers, or True and False") -> GoldFormat:
    """Detect the columns of a table of pairs: word1, word2, and score or label if there is one.

    sample: the comments in front of the first row, then lines that are neither blank nor comments. Logs a header, and
    the used column of several. Raises DataError if they do not have two fields, or for an ambiguous column. is_label:
    whether a field is a label. gold_forms: the possible scores and labels, for errors.
    """
    comments = list(itertools.takewhile(is_comment, sample))
    sample = sample[len(comments):]
    delimiter, n = _delimiter(sample)
    kinds = {"label": is_label, "score": is_number}   # the later one has precedence
    shape = RowShape(delimiter, n, [n - 1] * (n > 2), lambda text: any(fits(text) for fits in kinds.values()))
    rows = [fields for text in sample if len(fields := shape.split(text)) == n]
    if n < 2 or not rows:
        raise DataError(f"{path}:1: should be two words separated by a TAB, a comma, a semicolon or spaces, got "
                        f"{sample[0][:60]!r}")
    first = rows[0] if rows[0] == shape.split(sample[0]) else None
    if title := _find_title(comments, rows, delimiter, kinds) if first else None:
        rows = [first := title, *rows]
    elif len(rows) == 1:
        first = None
    named, text = named_words(first or ()), _find_text(rows, kinds)
    for words in (*named, text[0]):
        gold = _find_gold(rows, first, kinds, words, path, shape, gold_forms)
        if header := title is not None or (first is not None and gold is not None
                                           and not kinds[gold[1]](first[gold[0]])):
            break                                     # else the first line is a pair, as of the words child and parent
    if header and gold and not title and words not in named and is_faulty_number(value := rows[0][gold[0]]):
        raise DataError(f"{_place(path, {sample[0]}.__contains__)}: column {gold[0] + 1}: should contain {gold_forms}, "
                        f"got {value[:40]!r}; {number_remedy(value) or 'correct it, or name the columns here'}")
    titles = [f" ({title[:40]!r})" if header else "" for title in rows[0]]
    columns = [f"column{i + 1}" for i in range(n)]
    columns[words[0]], columns[words[1]] = "word1", "word2"
    if title:
        _log.warning("%s: comment in front of the first pair is read as a header: %r", path, " ".join(title)[:60])
    elif header and gold:
        _log.warning("%s: first line is read as a header: %r; correct its %s if it is a pair", path,
                     sample[0].strip()[:60], gold[1])
    if words != (0, 1) or (words not in named and len(text) > 1):
        _log.warning("%s: columns %d%s and %d%s of %d are read as word1 and word2", path, words[0] + 1,
                     titles[words[0]], words[1] + 1, titles[words[1]], n)
    if gold:
        column, name = gold
        columns[column] = name
        if n > 3 or column != 2:
            _log.warning("%s: column %d of %d%s is read as the %s", path, column + 1, n, titles[column], name)
    return GoldFormat(columns=tuple(columns), delimiter=delimiter, header=header)


def _find_title(comments: Sequence[str], rows: Sequence[Sequence[str]], delimiter: Delimiter,
                kinds: Mapping[str, Callable[[str], bool]]) -> list[str] | None:
    """Find the comment that is the header and names columns; None if there is none."""
    gold = [i for i in range(len(rows[0])) if any(_mostly(fits, rows, i) for fits in kinds.values())]
    shape = RowShape(delimiter, len(rows[0]), gold, lambda text: any(fits(text) for fits in kinds.values()))
    header = shape.find_header(comments, rows[0])
    return header[1] if header and shape.names_columns(header[1]) else None


def _find_text(rows: Sequence[Sequence[str]], kinds: Mapping[str, Callable[[str], bool]]) -> list[tuple[int, int]]:
    """List the pairs of adjacent columns of text; if there are none, as with numbers as names, the first two."""
    body = rows[1:] or rows
    is_text = [not any(_mostly(fits, body, i) for fits in kinds.values()) for i in range(len(rows[0]))]
    return [pair for pair in itertools.pairwise(range(len(is_text))) if all(is_text[i] for i in pair)] or [(0, 1)]


def _mostly(fits: Callable[[str], bool], rows: Sequence[Sequence[str]], column: int) -> bool:
    return 2 * sum(fits(row[column]) for row in rows) >= len(rows)


def _find_gold(rows: Sequence[Sequence[str]], first: Sequence[str] | None, kinds: Mapping[str, Callable[[str], bool]],
               words: tuple[int, int], path: Path, shape: RowShape, gold_forms: str) -> tuple[int, str] | None:
    """Find the column of scores or labels: its index, and `score` or `label`; None if there is none.

    first: the first line, if it can be a header. words: the columns of the words. A column in front of them must be
    named. Raises DataError if several columns qualify and the header does not name one of them, or if the column that
    it names contains neither numbers nor labels.
    """
    body, others = rows[1:] or rows, [i for i in range(len(rows[0])) if i not in words]
    found = {i: name for i in others for name, fits in kinds.items() if _mostly(fits, body, i)}
    named = [i for i in others
             if first and plain_name(first[i]) in GOLD_NAMES and all(row[i] != first[i] for row in body)]
    choice = [i for i in named or range(max(words), len(rows[0])) if i in found]
    if named and not choice:
        i = named[0]
        fits = max(kinds.values(), key=lambda fits: sum(fits(row[i]) for row in body))
        wrong = next(row for row in body if not fits(row[i]))
        remedy = number_remedy(wrong[i]) or \
            "correct the values, or rename the column if they are neither scores nor labels"
        place = _place(path, lambda text: shape.split(text) == wrong)
        raise DataError(f"{place}: column {i + 1} ({rows[0][i]!r}): should contain {gold_forms}, "
                        f"got {wrong[i][:40]!r}; {remedy}")
    if len(choice) > 1:
        shown = choice if len(choice) <= MAX_LISTED + 1 else choice[:MAX_LISTED]   # a file of vectors has hundreds
        listed = ", ".join(f"{i + 1} ({rows[0][i][:40]!r})" for i in shown)
        if len(choice) > len(shown):
            listed += f" and {len(choice) - len(shown)} others"
        raise DataError(f"{path}: each of the columns {listed} could be the score or label; name one of them `score` "
                        "or `label` in a first line of column names, or name all in a recipe (format.columns)")
    return (choice[0], found[choice[0]]) if choice else None


def _place(path: Path, is_wanted: Callable[[str], bool]) -> str:
    """Return the file and number of the first line that is wanted."""
    lines = ((source, *line) for source in sources([path], lambda name: True)
             for line in read_nonblank_lines(source, 1 << 16, _HINT))
    return next((f"{source.name}:{number}" for source, number, text in lines if is_wanted(text)), str(path))


def read_sample(path: Path) -> list[str]:
    """Return the first lines of a table, as detect_layout needs them; DataError if it has none but comments."""
    if not (lines := _sample(path)):
        raise DataError(f"{path}: is empty; give one line per pair")
    return lines


def _report_comments(path: Path, kind: str, form: GoldFormat) -> RowFilter:
    """Log a warning of the comments of a gold file; return the filter that has read all its lines."""
    rows = RowFilter(form)
    for source in sources([path], lambda name: True):
        for number, text in read_nonblank_lines(source, 1 << 16, _HINT):
            if not (is_skipped(text, form) or (kind == "analogy" and text.startswith(SECTION_MARK))):
                rows.read(text, f"{source.name}:{number}")
    for message in rows.comments.warnings():
        _log.warning(message)
    return rows


def _sample(path: Path) -> list[str]:
    """Read MAX_SAMPLE_LINES lines, neither blank nor comments, and the last MAX_COMMENTS comments in front of them."""
    comments, rows = deque[str](maxlen=MAX_COMMENTS), list[str]()
    for source in itertools.islice(sources([path], lambda name: True), 1):
        for _, text in read_nonblank_lines(source, 1 << 16, _HINT):
            if not is_comment(text):
                rows.append(text)
            elif not rows:
                comments.append(text)
            if len(rows) == MAX_SAMPLE_LINES:
                break
    return [*comments, *rows] if rows else []


def _delimiter(sample: Sequence[str]) -> tuple[Delimiter, int]:
    """Return the delimiter, and the number of columns that most lines can have, the smallest of several.

    Only lines with two filled fields count: at the end of a line a delimiter may be surplus.
    """
    best: tuple[int, Delimiter, int] = (0, "tab", 1)
    for delimiter in SEPARATORS:
        split = [text for text in sample if sum(map(bool, split_fields(text, delimiter))) > 1]
        times = Counter(n for text in split for n in column_counts(text, delimiter))
        n = max(times, key=lambda n: (times[n], -n), default=1)
        if times[n] > best[0]:
            best = times[n], delimiter, n
    return best[1], best[2]


def _recipe(path: Path, kind: str, metric: str, form: GoldFormat) -> EvalRecipe:
    return EvalRecipe.model_validate({
        "name": path.name, **_OPTIONAL, "kind": kind, "metric": metric, "format": form,
        "copies": (RecipeFile(sha256=UNVERIFIED, mirror="own"),), "expected": GoldCounts(pairs=0, questions=0)})
