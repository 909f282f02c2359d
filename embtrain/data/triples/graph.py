"""Loads a graph of triples: assigns ids, holds out triples, and caches the result.

Entities and relations are numbered by their frequency in training triples, most frequent first, ties by name. A part
without a file of its own is drawn from the training triples. Duplicates within a part count once. The cache folder is
named after the sha256 of the content and of the settings that affect it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from embtrain.common.config import Section
from embtrain.common.errors import DataError, UsageError
from embtrain.data.formats.delimited import Delimiter
from embtrain.data.inventory import inventory
from embtrain.data.inventory.inventory import FilesConfig
from embtrain.data.inventory.part_names import PARTS
from embtrain.data.storage.cache import AppendableArray, Encoded, cache_location, load_or_build
from embtrain.data.storage.skipped import counted, log_lines, number_files
from embtrain.data.text.vocabulary import Vocabulary
from embtrain.data.triples import files as triple_files
from embtrain.data.triples.files import COLUMNS, Column, Format, TripleLayout

# Recipe reader -> format. A user's files have the reader `triples`; auto detects their format by content.
READERS: dict[str, Format] = {"triples": "names", "openke": "openke", "ntriples": "ntriples"}
_log = logging.getLogger("embtrain")


class TriplesConfig(Section):
    format: Literal["auto", "names", "openke", "ntriples"] = Field(
        "auto", description="format of the files; auto: the recipe's, or by the content of your own")
    delimiter: Delimiter = Field("tab", description="separator of names; comma: CSV with quotes; tab, space: no quotes")
    columns: list[Column] = Field(list(COLUMNS), description="order of the names in a line")
    header: bool = Field(False, description="column names in the first line of a file")
    valid: float = Field(0.05, ge=0, le=0.45, description="share held out for validation, if there is no file for it")
    test: float = Field(0.05, ge=0, le=0.45, description="share held out for the test, if there is no file for it")
    split_seed: int = Field(0, ge=0, description="seed of the held-out triples, independent of the run's seed")
    unseen: Literal["keep", "drop"] = Field("keep", description="held-out triples with names that are not in training")
    literals: Literal["keep", "drop"] = Field("drop", description="ntriples: triples with a literal as object")
    split: Literal["random", "transductive"] = Field(
        "random", description="split of the shares; transductive: every entity and relation keeps a training triple")
    files: FilesConfig = Field(FilesConfig(), description="patterns of the files of each part")
    slot: Literal["both", "random", "bernoulli"] = Field(
        "both", description="open side: both, one by a fair coin, or the head with probability tph/(tph+hpt)")
    reciprocal: bool = Field(False, description="separate inverse relations; only tails are predicted")
    weights: Literal["none", "triple", "query"] = Field(
        "none", description="weights of examples: 1, or 1/sqrt of the count of both queries of a triple, or of its own")

    @model_validator(mode="after")
    def _each_column_once(self) -> Self:
        if sorted(self.columns) != sorted(COLUMNS):
            raise ValueError("columns: should contain head, relation and tail once each, got "
                             f"{', '.join(self.columns)}")
        return self


@dataclass(frozen=True)
class Graph:
    """Triples in the order train, valid, test."""

    triples: np.ndarray        # (N, 3) int32  head, relation, tail; may be memory-mapped, read only
    first: tuple[int, int]     # first rows of valid and test
    entities: Vocabulary       # counts are occurrences in training triples
    relations: Vocabulary
    identity: dict[str, Any]   # name, sha256 of the content, settings, counts

    def part(self, name: str) -> np.ndarray:
        """Return the triples of train, valid or test, (n, 3) int64."""
        bounds = (0, *self.first, len(self.triples))
        i = PARTS.index(name)
        return np.asarray(self.triples[bounds[i]:bounds[i + 1]], dtype=np.int64)


def has_file(where: list[Path], config: TriplesConfig, part: str) -> bool:
    """Return whether a part has a file of its own, without reading its content."""
    return inventory.build_inventory(where, triple_files.FILE_RULES, config.files).has(part)


def load(where: list[Path], reader: str, config: TriplesConfig, cache: Path | None, name: str) -> Graph:
    """Load the graph from files. DataError if a file is missing, damaged or does not contain triples; UsageError if the
    recipe's reader gives no triples."""
    if reader not in READERS:
        raise UsageError(f"corpus: {name}: its recipe's reader is {reader}, which gives no triples (head, relation, "
                         "tail); choose another model")
    files = inventory.build_inventory(where, triple_files.FILE_RULES, config.files)
    files.require_training(where)
    content = files.content(where)
    format: Format = config.format if config.format != "auto" else READERS[reader]
    if config.format == "auto" and reader == "triples":
        format = triple_files.detect_format(files)
    settings = {"content": content, "format": format,
                **config.model_dump(include={"delimiter", "columns", "header", "valid", "test", "split_seed",
                                             "unseen"})}
    # Keys added in later versions enter only if they matter, so that older graphs keep their identity.
    split_off = [part for part in PARTS[1:] if getattr(config, part) and not files.has(part)]
    if format == "names" and config.delimiter == "comma":
        settings["quotes"] = "csv"
    if format == "ntriples":
        settings["literals"] = config.literals
    if config.split != "random" and split_off:
        settings["split"] = config.split

    def build(out: AppendableArray) -> Encoded:
        layout = TripleLayout(config.delimiter, tuple(config.columns), config.header, config.literals)
        text = _encode(triple_files.read(where, files, format, layout), config, out)
        return replace(text, warnings=number_files(text.warnings, places))

    places = [where[0], *files.paths()]
    key, folder = cache_location(cache, name, "graph", {**settings, "names": files.key()})
    encoded = load_or_build(folder, key, files.checked(build))
    facts, e = encoded.facts, encoded.facts["entities"]
    log_lines(encoded.warnings, places)
    avoided = "; triples.split: transductive avoids them" if split_off and config.split == "random" else ""
    unseen = "an entity or a relation that does not occur in training and"
    kept = f"{'kept' if config.unseen == 'keep' else 'removed'} (triples.unseen){avoided}"
    for fact, one, several in (
            ("repeated", "triple occurs twice in its split and is used once",
             "triples occur twice in their split and are used once"),
            ("seen", "held-out triple is also a training triple", "held-out triples are also training triples"),
            ("unseen", f"held-out triple has {unseen} is {kept}", f"held-out triples have {unseen} are {kept}")):
        if facts[fact]:
            _log.warning("%s: %s", name, counted(facts[fact], one, several))
    for part in PARTS[1:]:
        if not facts[part] and files.has(part):
            _log.warning("%s: the %s split contains no triples, so it is not evaluated", name, part)
    identity = {"name": name, "sha256": content, "settings": settings, "files": files.tree(), "counts": facts}
    bounds = (int(encoded.sequence[1]) // 3, int(encoded.sequence[2]) // 3)
    return Graph(encoded.ids.reshape(-1, 3), bounds, Vocabulary(encoded.words[:e], encoded.counts[:e], 2 * bounds[0]),
                 Vocabulary(encoded.words[e:], encoded.counts[e:], bounds[0]), identity)


def _encode(raw: triple_files.RawTriples, config: TriplesConfig, out: AppendableArray) -> Encoded:
    parts = {name: _unique_rows(raw.rows(name)) for name in PARTS}
    repeated = sum(len(raw.parts.get(name, ())) // 3 for name in PARTS) - sum(map(len, parts.values()))
    warnings = _split({name for name in PARTS[1:] if name not in raw.parts}, parts, config)
    train = parts["train"]
    of_entity = np.bincount(train[:, [0, 2]].ravel(), minlength=len(raw.entities))
    of_relation = np.bincount(train[:, 1], minlength=len(raw.relations))
    unseen = 0
    for name in PARTS[1:]:
        rows = parts[name]
        known = (of_entity[rows[:, [0, 2]]] > 0).all(1) & (of_relation[rows[:, 1]] > 0)
        unseen += int((~known).sum())
        parts[name] = rows[known] if config.unseen == "drop" else rows
    seen = sum(len(parts[name]) + len(train) - len(_unique_rows(np.concatenate([parts[name], train])))
               for name in PARTS[1:])
    used = np.concatenate([parts[name] for name in PARTS])
    entities, number = _assign_ids(raw.entities, of_entity, np.unique(used[:, [0, 2]]))
    relations, relation = _assign_ids(raw.relations, of_relation, np.unique(used[:, 1]))
    if len(entities.words) < 2:
        raise DataError(f"the triples name {len(entities.words)} entity, so there are no negatives; give a graph with "
                        "more")
    out.append(np.stack([number[used[:, 0]], relation[used[:, 1]], number[used[:, 2]]], 1).astype(np.int32).ravel())
    facts = {"entities": len(entities.words), "relations": len(relations.words),
             **{name: len(parts[name]) for name in PARTS}, "repeated": repeated, "unseen": unseen, "seen": seen}
    sequence = 3 * np.cumsum([0, *(len(parts[name]) for name in PARTS)]).astype(np.int64)
    return Encoded(out.array(), sequence, sequence, np.concatenate([entities.counts, relations.counts]),
                   entities.words + relations.words, facts, raw.warnings + warnings)


def _split(missing: set[str], parts: dict[str, np.ndarray], config: TriplesConfig) -> tuple[str, ...]:
    """Move triples from train to the parts that have no file. Returns warnings.

    A positive share holds out at least one triple. Triples are taken in random order. A transductive split skips a
    triple that is the last one of an entity or a relation in train. If it skips none, both splits are equal.
    """
    train = parts["train"]
    order = np.random.default_rng(config.split_seed).permutation(len(train))
    taken, warnings = 0, list[str]()
    spare = len(train) - 1
    if config.split == "transductive" and any(getattr(config, name) > 0 for name in missing):
        order, spare = _order_spare_first(train, order)
    for name, share in (("valid", config.valid), ("test", config.test)):
        size = max(1, round(share * len(train))) if name in missing and share > 0 else 0
        if taken + size >= len(train):
            few = counted(len(train), "triple is", "triples are")
            raise DataError(f"triples.{name}: {few} too few to hold out a share of {share}; give more, or set it to 0")
        if size and taken + size > spare:
            if taken == spare:
                raise DataError(f"triples.{name}: no triple can be held out while every entity and relation stays in "
                                f"train; set triples.split: random, or triples.{name}: 0")
            warnings.append(
                f"triples.{name}: {counted(spare - taken, 'triple is', 'triples are')} held out instead of {size:,}, "
                "because the others are the last training triples of an entity or a relation (triples.split: "
                "transductive)"
            )
            size = spare - taken
        if name in missing:
            parts[name] = train[np.sort(order[taken:taken + size])]
        taken += size
    parts["train"] = train[np.sort(order[taken:])]
    return tuple(warnings)


def _order_spare_first(train: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, int]:
    """Return (order (n,), n'): first the n' triples whose removal leaves every entity and relation in train."""
    of_entity, of_relation = np.bincount(train[:, [0, 2]].ravel()).tolist(), np.bincount(train[:, 1]).tolist()
    free, last = list[int](), list[int]()
    for i, (head, relation, tail) in zip(order.tolist(), train[order].tolist(), strict=True):
        of_entity[head] -= 1
        of_entity[tail] -= 1
        of_relation[relation] -= 1
        if of_entity[head] > 0 and of_entity[tail] > 0 and of_relation[relation] > 0:
            free.append(i)
            continue
        of_entity[head] += 1
        of_entity[tail] += 1
        of_relation[relation] += 1
        last.append(i)
    return np.array(free + last, dtype=np.int64), len(free)


def _unique_rows(rows: np.ndarray) -> np.ndarray:
    """Return the rows (n, 3) without duplicates, in their order."""
    return rows[np.sort(np.unique(rows, axis=0, return_index=True)[1])]


def _assign_ids(names: list[str], counts: np.ndarray, used: np.ndarray) -> tuple[Vocabulary, np.ndarray]:
    """Return the vocabulary of the used ids, and the new id of each old one (-1: unused)."""
    order = sorted(used.tolist(), key=lambda i: (-counts[i], names[i]))
    number = np.full(len(names), -1, dtype=np.int64)
    number[order] = np.arange(len(order))
    return Vocabulary([names[i] for i in order], counts[order].astype(np.int64), int(counts.sum())), number
