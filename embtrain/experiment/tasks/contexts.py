"""Windows of text as contexts of their centre word, for CBOW; evaluated by held-out words and word benchmarks."""

from __future__ import annotations

from typing import cast

from torch import Tensor

from embtrain.common.types import Batch, Query
from embtrain.data.known_pairs import KnownPairs
from embtrain.data.text import windows
from embtrain.data.text.windows import ContextBatch, ContextWindows
from embtrain.experiment.tasks.windows import WindowsTask


class ContextsTask(WindowsTask):
    """Task for CBOW. A context has the id of its middle word, which sources and losses with context ids use."""

    name = "contexts"
    Windows = ContextWindows

    def known_positives(self, max_bytes: int) -> KnownPairs:
        """Return the words next to each middle word; hardly any two windows are equal as a whole."""
        return KnownPairs.from_corpus(self.train, self.config.model_copy(update={"window": 1}), max_bytes)

    def _heldout(self, part: str) -> ContextBatch:  # type: ignore[override]
        text_part = self.valid if part == "valid" else self.test
        return windows.heldout_contexts(text_part, self.config, self.evaluate.heldout_pairs, self.config.split_seed)

    def describe_heldout(self, batch: Batch, query: Query, rows: Tensor) -> list[str]:
        """Return the words of each context, with `_` at the place of the centre."""
        start, words = cast(ContextBatch, batch).start.tolist(), self.corpus.vocabulary.words
        contexts = [[words[i] for i in cast(ContextBatch, batch).context[start[row]:start[row + 1]].tolist()]
                    for row in rows.tolist()]
        return [" ".join([*context[:(len(context) + 1) // 2], "_", *context[(len(context) + 1) // 2:]])
                for context in contexts]

    def summary(self) -> str:
        return (f"{len(self.train):,} training tokens, {len(self.corpus.vocabulary):,} words, about "
                f"{self.windows.examples_per_epoch:,.0f} windows per epoch")
