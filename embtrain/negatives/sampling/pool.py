"""Nested sources: settings and construction of a source inside another, and bases of the sources around it.

The inner settings are those of its strategy (`source` and its own keys). The inner source gets its own seed: two
streams with one seed would draw the same numbers, so the component that drew a negative would reveal which candidate it
is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from pydantic import AfterValidator, BaseModel, PlainSerializer, ValidationError, ValidationInfo, create_model
from torch import Tensor

from embtrain.common.config import (
    FilePath,
    KeyPath,
    Layer,
    Place,
    Section,
    build,
    describe_value,
    map_items,
    plain_paths,
)
from embtrain.common.config.foreign_classes import AbstractMethod
from embtrain.common.config.setting_keys import key, nested, section
from embtrain.common.errors import EmbtrainError, UsageError
from embtrain.common.traits import default_settings
from embtrain.common.types import ModelView, Negatives, ProblemSpec, Query
from embtrain.negatives import base
from embtrain.negatives.base import NegativesConfig, NegativeSource, Traits, grow_source

MAX_SCORES = 8_000_000  # scores held in memory at once


def _with_absolute_paths(settings: dict[str, Any], *, k: int | None = None) -> dict[str, Any]:
    """Make each path in nested settings absolute, by the types of the source, so that a run can be resumed anywhere.

    k: as in `build_nested`, which reports settings that are not valid; they are kept.
    """
    name, tree = settings.get("source", "unigram"), settings if k is None else settings | {"k": k}
    try:
        config = base.find(name).Config.model_validate(tree) if isinstance(name, str) else None
    except (EmbtrainError, ValidationError):
        return settings
    typed = {} if config is None else _as_tree(config)
    return {key: typed[key] if _has_path(typed.get(key)) else value for key, value in settings.items()}


def _with_absolute_paths_by_k(settings: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
    return _with_absolute_paths(settings, k=info.data.get("k"))


def _as_tree(value: Any) -> Any:
    """Settings with every section in them as a dict of the keys that are set."""
    if isinstance(value, BaseModel):
        aliases = {field: info.alias or field for field, info in type(value).model_fields.items()}
        return {aliases.get(field, field): _as_tree(item) for field, item in value if field in value.model_fields_set}
    return map_items(value, _as_tree)


def _has_path(value: Any) -> bool:
    found: list[bool] = []
    map_items(value, lambda item: found.append(_has_path(item)))
    return isinstance(value, FilePath) or any(found)


_Serializer = PlainSerializer(plain_paths, return_type=dict[str, Any])
#: Settings of a source with a k of its own, and of one that draws the k of the source around it.
NestedSettings = Annotated[dict[str, Any], AfterValidator(_with_absolute_paths), _Serializer]
NestedSettingsOfSameK = Annotated[dict[str, Any], AfterValidator(_with_absolute_paths_by_k), _Serializer]


def check_nested(config: NegativesConfig, path: tuple[str, ...], places: Mapping[KeyPath, Place]) -> None:
    """Raise UsageError for an unknown source inside another, or settings of it that are not valid, with their places.

    path: that of config in the settings, whose keys have these places.
    """
    for field, info in type(config).model_fields.items():
        checks = [item.func for item in info.metadata if isinstance(item, AfterValidator)]
        settings = getattr(config, field)
        if not {_with_absolute_paths, _with_absolute_paths_by_k} & set(checks) or not isinstance(settings, dict):
            continue
        tree: dict[str, Any] = {"source": "unigram"} | settings
        part, imposes_k = info.alias or field, _with_absolute_paths_by_k in checks
        keys = (*path, part)
        if (wrong := _wrong_key(settings, part, config.k if imposes_k else None)) is not None:
            name, problem = wrong
            place = places.get((*keys, name)) or places.get(keys)
            raise UsageError(f"{place}: {problem}" if place else problem)
        source_class = base.find(tree["source"])
        if imposes_k:
            tree["k"] = config.k
        for name in reversed(keys):
            tree = {name: tree}
        built: Any = build(_class_of_keys(keys, source_class.Config), [], merged=(tree, dict(places)))
        for name in keys:
            built = getattr(built, name)
        with nested(part, imposes_k):
            check_nested(built, keys, places)


def _wrong_key(settings: Mapping[str, Any], part: str, k: int | None) -> tuple[str, str] | None:
    """The key, source or k, and the error if `build_nested` cannot build these settings under the key `part`."""
    name = settings.get("source", "unigram")
    if not isinstance(name, str):
        return "source", f"{key(f'{part}.source')}: should be the name of a source, got {describe_value(name)}"
    with nested(part, imposes_k=k is not None):
        try:
            base.find(name)
        except UsageError as error:
            return "source", f"{error}"
    if k is not None and "k" in settings and settings["k"] != k:
        return "k", f"{key(f'{part}.k')}: it always equals {key('k')}, {k}; remove it"
    return None


@lru_cache(maxsize=256)  # a comparison checks the same sources for each run
def _class_of_keys(keys: tuple[str, ...], config: type[Section]) -> type[Section]:
    """The class of settings with a section of this class below these keys."""
    for name in reversed(keys):
        config = create_model("Keys", __base__=Section, **{name: (config, default_settings(config))})  # type: ignore[call-overload]
    return config


def build_nested(settings: dict[str, Any], part: str, k: int | None, problem: ProblemSpec) -> NegativeSource:
    """Build the source that `settings`, given under the key `part` of the current source, describe.

    k: number of negatives that it must draw; None: its own k. Raises UsageError if the settings are not valid, or not
    supported by the source.
    """
    if (wrong := _wrong_key(settings, part, k)) is not None:
        raise UsageError(wrong[1])
    name = settings.get("source", "unigram")
    tree = settings | {"source": name} | ({} if k is None else {"k": k})
    seed = int(np.random.SeedSequence([problem.seed, *part.encode()]).generate_state(1)[0])
    with nested(part, imposes_k=k is not None):
        source_class = base.find(name)
        config = build(source_class.Config, [Layer("", tree)], section())
        return source_class(config, replace(problem, seed=seed))


class NestingSource(NegativeSource):
    """Base of sources that have other sources inside and call them. Their messages name keys by the place of each.

    A subclass sets an attribute for each key in `parts`, and calls a method of the source there in `within(part)`.
    """

    parts: ClassVar[tuple[str, ...]] = ("inner",)  # keys with the settings of a source
    imposes_k: ClassVar[bool] = False               # whether the sources inside draw the k of this one, not their own

    def _build(self, part: str, settings: dict[str, Any]) -> NegativeSource:
        return build_nested(settings, part, self.config.k if self.imposes_k else None, self.problem)

    @contextlib.contextmanager
    def within(self, part: str) -> Iterator[NegativeSource]:
        """The source of a part, whose messages name its keys by their place there."""
        source: NegativeSource = getattr(self, part)
        with nested(part, self.imposes_k):
            yield source

    def prepare_log_prob(self, view: ModelView) -> None:
        for part in self.parts:
            with self.within(part) as source:
                source.prepare_log_prob(view)

    def on_epoch_start(self, view: ModelView) -> None:
        for part in self.parts:
            with self.within(part) as source:
                source.on_epoch_start(view)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), **{part: getattr(self, part).state_dict() for part in self.parts}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        for part in self.parts:
            with self.within(part) as source:
                source.load_state_dict(state[part])

    def grow_from(self, earlier: NegativeSource, row: Tensor) -> str:
        super().grow_from(earlier, row)
        restarted = []
        for part in self.parts:
            with self.within(part) as source:
                restarted.append(grow_source(source, getattr(earlier, part), row))
        return "; ".join(filter(None, restarted))


class PoolSource(NestingSource):
    """Base of sources that select from the pool drawn by another source, for each row."""

    traits = Traits(iid=False, uses_model=True, sharing_modes=("row",))
    max_rows: ClassVar[int] = MAX_SCORES                      # rows handled at once

    def __init__(self, config: NegativesConfig, settings: dict[str, Any], problem: ProblemSpec):
        super().__init__(config, problem)
        self.inner = self._build("inner", settings)
        pool = self.inner.traits
        self.traits = replace(self.traits, geometry=pool.geometry, fits_to_queries=pool.fits_to_queries,
                              min_batch_size=pool.min_batch_size, uses_counts=pool.uses_counts)

    def _select(self, query: Query, pool_draw: Negatives, k: int, view: ModelView) -> tuple[Tensor, Tensor]:
        """Select k ids of the pool for each row, and a value for each: (B, k) twice."""
        raise AbstractMethod(self, "_select")

    def _select_in_chunks(self, query: Query, k: int, view: ModelView) -> tuple[Tensor, Tensor]:
        """Draw the pool, and select from it for a chunk of rows at a time: (B, k) twice."""
        with self.within("inner") as source:
            pool_draw = source.draw(query, source.config.k, view)
        n, ids, values = len(query), [], []
        step = max(1, min(self.max_rows, MAX_SCORES // max(1, pool_draw.k)))
        for i in range(0, n, step):
            rows = slice(i, min(n, i + step))
            chosen, value = self._select(query.rows(rows), pool_draw.rows(rows), k, view)
            ids.append(chosen)
            values.append(value)
        return torch.cat(ids), torch.cat(values)

    @staticmethod
    def _pool_ids(pool_draw: Negatives, n: int) -> Tensor:
        """Pool ids of n rows: (1, M) if the rows share them, else (n, M)."""
        assert pool_draw.ids is not None
        is_shared = pool_draw.draw_id is None and len(pool_draw.ids) == 1
        pool = pool_draw.ids if is_shared else pool_draw.per_row(pool_draw.ids, n)
        assert pool is not None
        return pool
