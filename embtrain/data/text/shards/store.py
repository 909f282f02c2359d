"""Encode a shard into the cache, where it is verified when it is read again."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from embtrain.data.storage.cache import AppendableArray, Encoded, load_or_build, settings_key
from embtrain.data.storage.skipped import name_file, number_file
from embtrain.data.text.findings.census import Census
from embtrain.data.text.findings.tally import Tally
from embtrain.data.text.shards.plan import Shard
from embtrain.data.text.shards.rules import Reading, ReadingRules, encode_documents


@dataclass(frozen=True)
class ShardStore:
    """The encoded shards of one text, a folder for each."""

    folder: Path
    settings: Mapping[str, Any]   # that identify the text
    rules: ReadingRules

    def load_or_encode(self, shard: Shard, threads: int | None = None) -> Reading:
        """Return an encoded shard, from the cache or encoded now.

        Raises as `readers.documents`, NeedsPythonReader for a range that cannot be read by itself, and ResourceError
        for too many distinct words.
        """
        key, files = settings_key({**self.settings, "shard": shard.identity()}), shard.files.paths()

        def build(out: AppendableArray) -> Encoded:
            reading = encode_documents(lambda tally: shard.documents(tally, self.rules), self.rules, out,
                                       shard.span is not None, threads)
            tally = reading.tally.renamed(partial(number_file, files=files))
            findings = {"tally": dataclasses.asdict(tally), "census": reading.census.tree()}
            return replace(reading.encoded, facts={**reading.encoded.facts, **findings})

        encoded = load_or_build(self.folder / key[:20], key, shard.files.checked(build))
        tally = _tally(encoded.facts["tally"]).renamed(partial(name_file, files=files))
        return Reading(encoded, tally, _census(encoded.facts["census"]))


def _tally(tree: dict[str, Any]) -> Tally:
    """Return a tally from its JSON, in which pairs are lists."""
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in tree.items()}
    return Tally(**values)


def _census(tree: list[int]) -> Census:
    census = Census()
    census.add_tree(tree)
    return census
