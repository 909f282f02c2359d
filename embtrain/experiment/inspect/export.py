"""Export a run for other programs: its vectors as one file, or as a folder in the layout that a program reads.

A run is a folder with a trained model: settings (config.yaml), vectors, names and scores. Its strategy is a negative
sampler (source), a loss and their settings. The vectors are those of the run's vectors.safetensors: the input table of
words, or the vectors of entities, nodes, concepts or labels. File formats: `word2vec`, `word2vec-binary`, `glove`,
`safetensors` and `fasttext` (embtrain/data/vectors/vectors.py). Folder formats: `faiss` and `usearch` for
nearest-neighbour search (search_index.py there); `huggingface` for the Hub, with a model card; `projector` for the
Embedding Projector; `pykeen` for PyKEEN, with triples and relation vectors (folders.py there).
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import numpy as np

import embtrain
from embtrain.common import shipped
from embtrain.common.config import dump
from embtrain.common.errors import DataError, UsageError
from embtrain.common.files import TEMPORARY_SUFFIX
from embtrain.common.output_paths import check_output_file, check_output_folder
from embtrain.common.terminal import format_count
from embtrain.data.catalogue.recipes import load_recipe
from embtrain.data.text.corpus import TextConfig
from embtrain.data.vectors import folders, search_index, subword_table, vectors
from embtrain.data.vectors.fasttext_model import MODELS, FastTextSettings, ModelDetails
from embtrain.data.vectors.replaced_files import new_folder, undo_killed
from embtrain.data.vectors.search_index import Dtype, KeptNeighbours, Kind
from embtrain.data.vectors.vectors import Vectors
from embtrain.evaluate.heldout import FAR_NEIGHBOURS, TRAINING
from embtrain.experiment.inspect.file_names import public_settings
from embtrain.experiment.run.run import Run
from embtrain.experiment.run.started import read_corpus
from embtrain.experiment.run.stored import given_vectors, name_counts
from embtrain.experiment.run.trainer import texts_of
from embtrain.experiment.tasks import base as tasks
from embtrain.experiment.tasks.triples import TriplesTask
from embtrain.models.words.cbow import Cbow
from embtrain.report.format import interval, number, origin_named
from embtrain.report.load.run import read_text
from embtrain.report.render import escape_markdown as md

FOLDERS = ("huggingface", "projector", "pykeen")
OF_VECTORS = (*vectors.FORMATS, *search_index.FORMATS)  # formats that need no more than vectors and their words
FORMATS = (*OF_VECTORS, *FOLDERS)
FLOAT16 = ("safetensors", *search_index.FORMATS)        # formats with --dtype float16
FILES: dict[str, tuple[str, ...]] = {  # files that each folder format writes, first the one that is moved last
    "huggingface": (folders.MODEL, folders.VOCABULARY, folders.CONFIG, folders.CARD),
    "projector": ("vectors.tsv", "metadata.tsv"),
    "pykeen": ("train.tsv", "valid.tsv", "test.tsv", "entity_to_id.tsv", "relation_to_id.tsv", "entity.npy",
               "relation.npy"),
    **{name: (f"index.{name}", search_index.WORDS, search_index.METADATA) for name in search_index.FORMATS}}


def export(run: Run, format: str, out: str | os.PathLike[str], dtype: str = "float32", index: str = "auto",
           limit: int | None = None) -> KeptNeighbours | None:
    """Write a run's vectors to a file or folder; see `export_vectors`.

    limit: write those of the first names only; None: all.

    Raises UsageError if the format is unknown or not available for this run, if `out` cannot be written, and for a
    folder format if `out` is a file, or a folder that is not empty and lacks the files of an earlier export. Raises
    DataError if the run has no vectors yet, a needed file of it is missing or damaged, or the corpus is not the one it
    was trained on.
    """
    out = Path(out)
    if format not in FORMATS:
        raise UsageError(f"--format: {format!r} is not one of {', '.join(FORMATS)}")
    _check_options(format, dtype, index)
    if format in OF_VECTORS:
        details = _details(run).first(limit) if format == "fasttext" else None
        return export_vectors(run.word_vectors.first(limit), format, out, dtype, index, details)
    if format == "pykeen":
        _check_pykeen(run, limit)
    _check_folder(out, format)
    if format == "pykeen":
        _pykeen(run, out)
        return None
    table = run.word_vectors.first(limit)
    if format == "huggingface":
        folders.write_huggingface(out, table, _relations(run), _config(run), _front_matter(run, table),
                                  _card(run, table))
    else:
        folders.write_projector(out, table, name_counts(run.folder))
    return None


def export_vectors(table: Vectors, format: str, out: str | os.PathLike[str], dtype: str = "float32",
                   index: str = "auto", details: ModelDetails | None = None) -> KeptNeighbours | None:
    """Write vectors in one of the formats OF_VECTORS.

    index: of faiss and usearch. details: counts and other parts of a model, for fasttext.

    Returns the share of nearest neighbours that float16, int8 or an index keep; None if the file has the same numbers.
    Raises UsageError if the format does not have the option, or as `export`.
    """
    out = Path(out)
    _check_options(format, dtype, index)
    if format in search_index.FORMATS:
        _check_folder(out, format)
        return search_index.write(out, table, format, cast(Dtype, dtype), cast(Kind, index))
    path, file_format = check_output_file(out), cast(vectors.Format, format)
    kept: KeptNeighbours | None = None
    metadata: dict[str, str] | None = None
    if dtype != "float32":
        rounded = Vectors(table.words, vectors.round_to_float16(path, table))
        kept = search_index.measure(table, search_index.exact_search(rounded))
        metadata = {"kept_neighbours": json.dumps(asdict(kept))}
    with new_folder(path.parent):
        vectors.write(path, table, file_format, metadata, "float32" if kept is None else "float16", details)
    return kept


def _check_options(format: str, dtype: str, index: str) -> None:
    """Raise UsageError if a format does not have a dtype or an index."""
    for flag, value, values in (("--dtype", dtype, search_index.DTYPES), ("--index", index, search_index.KINDS)):
        if value not in values:
            raise UsageError(f"{flag}: {value!r} is not one of {', '.join(values)}")
    formats = {"float32": FORMATS, "float16": FLOAT16, "int8": search_index.FORMATS}[dtype]
    if format not in formats:
        raise UsageError(f"--dtype: {dtype}: {format} cannot have it; set --format {' or '.join(formats)}")
    if index != "auto" and format not in search_index.FORMATS:
        raise UsageError(f"--index: {index}: {format} has no index; set --format {' or '.join(search_index.FORMATS)}")


def _check_folder(out: Path, format: str) -> None:
    """Raise UsageError or ResourceError if a folder format cannot be written to `out`; undo a killed export into it."""
    names = set[str]()
    if out.is_dir():
        check_output_folder(out)
        undo_killed(out)
        names = {path.name for path in out.iterdir() if not path.name.endswith(TEMPORARY_SUFFIX)}
    if out.is_file() or (names and not _is_earlier_export(out, format)):
        raise UsageError(f"--out: {out}: {format} writes a folder; choose one that does not exist, is empty, or "
                         "contains an earlier export in this format")
    check_output_folder(out)


def _is_earlier_export(folder: Path, format: str) -> bool:
    """Return whether a folder has the files that an export of this format writes, and so may be overwritten."""
    if not all((folder / name).is_file() for name in FILES[format]):
        return False
    if format != "huggingface":
        return True
    # Models of other programs have the same file names, but not our version in config.json.
    try:
        config = json.loads(read_text(folder / folders.CONFIG))
    except (DataError, ValueError, RecursionError):
        return False
    return isinstance(config, dict) and "embtrain_version" in config


def _relations(run: Run) -> Vectors | None:
    """The vectors of relations; None if the run has none."""
    return run.relation_vectors if (run.folder / folders.RUN_RELATIONS).is_file() else None


def _details(run: Run) -> ModelDetails:
    """The counts of a run's words, its output table if its vectors are those of the input, and its settings."""
    words, counts, s = run.word_vectors.words, name_counts(run.folder), run.settings
    column = None if counts is None else np.array([counts.get(word, 0) for word in words], np.int64)
    if not isinstance(s.data, TextConfig) or getattr(s.evaluate, "vectors", "") != "input":
        return ModelDetails(column)
    output = given_vectors(run.folder).v
    return ModelDetails(column, None if output is None else output.table, FastTextSettings(
        run.word_vectors.dim, s.data.window, s.train.epochs, s.data.min_count, s.negatives.k, t=s.data.sample,
        model=MODELS["cbow" if s.model.name == Cbow.name else "sg"]))


def _check_pykeen(run: Run, limit: int | None) -> None:
    """Raise UsageError if a run or its first names cannot be written for PyKEEN."""
    if tasks.find(run.settings) is not TriplesTask:
        raise UsageError("--format: pykeen: requires a model of triples with a vector for each relation, but "
                         f"{run.folder} is of {run.settings.model.name}; use huggingface or projector")
    if limit is not None:
        raise UsageError(f"--limit: {limit}: pykeen has the triples of all entities; remove --limit, or set another "
                         "--format")


def _pykeen(run: Run, out: Path) -> None:
    """Write the triples for training, validation and test with the vectors of entities and relations."""
    relations = run.relation_vectors
    task = cast(TriplesTask, read_corpus(run.folder, run.settings))
    parts = {part: task.graph.part(part) for part in ("train", "valid", "test")}
    folders.write_pykeen(out, parts, run.word_vectors, relations, len(task.graph.relations))


# -- a model card -----------------------------------------------------------------------------------------------------

def _config(run: Run) -> dict[str, Any]:
    """The content of config.json."""
    settings = public_settings(run)
    return {"model_type": f"embtrain-{settings.model.name}", "embtrain_version": embtrain.__version__,
            "embtrain": settings.model_dump(mode="json")}


def _front_matter(run: Run, table: Vectors) -> dict[str, Any]:
    """Metadata of a card for the Hub, with the scores if `table` has all vectors of the run, to which they belong.

    No licence: the publisher of the vectors chooses it.
    """
    settings = public_settings(run)
    head = {"library_name": "embtrain", "tags": ["embeddings", settings.model.name, settings.strategy]}
    if len(table) < len(run.word_vectors):
        return head
    results = [{"type": row.benchmark, "name": f"{row.benchmark} {origin_named(row.metric)}", "value": row.value}
               for row in run.scores if row.value is not None and row.benchmark not in (TRAINING, FAR_NEIGHBOURS)]
    kind = {"type": tasks.find(settings).name, "name": tasks.find(settings).name}
    dataset = {"type": _corpus(run), "name": _corpus(run)}
    return {**head, "model-index": [{"name": run.folder.resolve().name, "results": [
        {"task": kind, "dataset": dataset, "metrics": results}]}]}


def _card(run: Run, table: Vectors) -> str:
    """The model card in Markdown: data, scores, use and settings. table: the vectors of the run that are exported."""
    s, n = public_settings(run), len(run.word_vectors)
    first = f"The first {len(table):,} of " if len(table) < n else ""
    rows = [f"| {md.words(row.benchmark)} | {md.words(origin_named(row.metric))} | {number(row.value)} "
            f"| {interval(row)} | {row.n:,} |"
            for row in run.scores if row.value is not None and row.benchmark != TRAINING]
    return "\n".join([
        f"# {md.words(run.folder.resolve().name)}", "",
        f"{first}{n:,} vectors of {table.dim} dimensions, trained by embtrain {embtrain.__version__}: model "
        f"{md.code(s.model.name)}, strategy {md.code(s.strategy)} (source {md.code(s.negatives.source)}, loss "
        f"{md.code(s.loss.name)}), seed {s.train.seed}, {format_count(s.train.epochs, 'epoch')}.", "",
        "## Data", "", *_data(run), "",
        f"## Scores of all {n:,} vectors of the run" if first else "## Scores", "",
        "Intervals are over the n items of a benchmark (pairs, questions or examples), not over seeds.", "",
        "| benchmark | metric | value | interval | n |", "|---|---|---:|---|---:|", *rows, "",
        "## Use", "", "Row i of `embedding.weight` in `model.safetensors` belongs to line i of `vocab.txt`.", "",
        "```python", "from pathlib import Path", "", "from safetensors.numpy import load_file", "",
        'table = load_file("model.safetensors")["embedding.weight"]',
        'words = Path("vocab.txt").read_text(encoding="utf-8").splitlines()', "```", "",
        *_subword_use(table),
        "`embtrain neighbours FOLDER WORD` and `embtrain evaluate FOLDER --on NAME` accept this folder.", "",
        "## Settings", "", md.block(dump(s).rstrip(), "yaml"), ""])


def _subword_use(table: Vectors) -> list[str]:
    """Lines on the vectors of words without a row."""
    if table.subwords is None:
        return []
    return [f"`{subword_table.FILE}` has the rows of words and of their n-grams, which give any word a vector:", "",
            "```python", "from pathlib import Path", "",
            "from embtrain.data.vectors.subword_table import SubwordTable", "",
            f'SubwordTable.load(Path("{subword_table.FILE}")).compose(["unseen"])', "```", ""]


def _corpus(run: Run) -> str:
    """The name of the corpus, without folders."""
    return Path(run.settings.corpus).name


def _data(run: Run) -> list[str]:
    """Lines on the corpus and those of earlier runs: name and hash.

    For a corpus with a recipe (a file on how to get it) also its licence.
    """
    texts = [{"name": _corpus(run), "sha256": tasks.corpus_hash(run.folder)}] if run.settings.train.parent is None \
        else texts_of(run.folder)
    lines = [f"{md.code(text['name'])}, sha256 {md.code(text['sha256'])}." for text in texts]
    if run.settings.corpus in shipped.names("corpora"):
        recipe = load_recipe("corpora", run.settings.corpus)
        lines += [f"{recipe.description} Licence: {recipe.licence}", *([recipe.citation] if recipe.citation else [])]
    return lines
