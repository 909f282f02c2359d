"""Random walks over a graph: pairs (node, nearby node on a walk); evaluated by held-out pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, cast

from embtrain.data.catalogue import fetch
from embtrain.data.text.corpus import WindowsConfig
from embtrain.data.walks import walks
from embtrain.data.walks.walks import WalksConfig
from embtrain.experiment.run.schema import Settings
from embtrain.experiment.tasks.base import corpus_name, find_corpus
from embtrain.experiment.tasks.windows import WindowsTask


class WalksTask(WindowsTask):
    """Task for random walks, or for the edges of a graph to draw walks from."""

    name = "walks"
    section = "walks"
    recipe_readers, corpus_kind = frozenset[str](), "walks, or the edges of a graph, in your own files"
    Config: ClassVar[type[WindowsConfig]] = WalksConfig
    token_list_keys: ClassVar[dict[str, Any]] = {"format": "walks"}

    @classmethod
    def read(cls, settings: Settings) -> WalksTask:
        source = find_corpus(settings)
        where = [source] if isinstance(source, Path) else fetch.corpus_paths(source)
        return cls(settings, walks.load(where, cast(WalksConfig, settings.data), fetch.cache_folder() / "walks",
                                        corpus_name(settings)))

    def summary(self) -> str:
        return (f"{len(self.train):,} steps of {len(self.train.sequence) - 1:,} training walks, "
                f"{len(self.corpus.vocabulary):,} nodes, about {self.windows.examples_per_epoch:,.0f} pairs per epoch")
