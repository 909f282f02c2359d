"""Merge layers of a configuration to one tree, and keep the place of each value for errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from embtrain.common.config.layers import Layer
from embtrain.common.config.shown import KeyPath, describe_value, dotted
from embtrain.common.errors import UsageError


class Place(NamedTuple):
    """The layer that set a value, and the position there; line 0 if the layer is not a file."""

    layer: int
    name: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.name}:{self.line}:{self.column}" if self.line else self.name


Merged = tuple[dict[str, Any], dict[KeyPath, Place]]  # merged tree, and the place of each key and list item


def merge(layers: Sequence[Layer]) -> Merged:
    """Merge layers, later ones winning; return the tree and the place of each key and list item."""
    tree: dict[str, Any] = {}
    places: dict[KeyPath, Place] = {}
    for number, layer in enumerate(layers):
        _overlay(tree, layer.tree, (), layer, number, places)
    return tree, places


def _overlay(tree: dict[str, Any], above: dict[str, Any], path: KeyPath, layer: Layer, number: int,
             places: dict[KeyPath, Place]) -> None:
    for key, value in above.items():
        key_path: KeyPath = (*path, key)
        earlier = tree.get(key)
        if value is None and isinstance(earlier, dict) and not layer.name.startswith("--"):
            continue  # a section of a file whose keys are all commented out changes nothing
        if isinstance(earlier, dict | list) and not (isinstance(earlier, dict) and isinstance(value, dict)):
            for old in _below(earlier, key_path):
                places.pop(old, None)
        below, places[key_path] = places.get(key_path), Place(number, layer.name, *layer.marks.get(key_path, (0, 0)))
        if isinstance(value, dict):
            if earlier is None:
                tree[key] = {}
            elif len(key_path) > 1 and _other_source(earlier, value):  # the other keys belong to another source
                for old in _below(earlier, key_path):
                    places.pop(old, None)
                tree[key] = {}
            elif not isinstance(earlier, dict):  # a wrong value in a lower layer must not be hidden by a higher one
                raise UsageError(f"{below}: {dotted(key_path)}: should be a section of keys, got "
                                 f"{describe_value(earlier)}")
            _overlay(tree[key], value, key_path, layer, number, places)
        else:
            tree[key] = value
            for item in _below(value, key_path) if isinstance(value, list) else ():
                places[item] = Place(number, layer.name, *layer.marks.get(item, (0, 0)))


def _other_source(below: Any, above: dict[str, Any]) -> bool:
    """Whether the settings of a nested source are replaced by those of a source of another name."""
    return isinstance(below, dict) and "source" in below and above.get("source", below["source"]) != below["source"]


def _below(value: Any, path: KeyPath) -> Iterator[KeyPath]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in pairs:
        yield (*path, key)
        yield from _below(item, (*path, key))
