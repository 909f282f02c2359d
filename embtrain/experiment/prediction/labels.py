"""The top labels of documents, ranked as evaluation ranks them, with P(label | document) if the loss estimates it.

A file has the format of the training files, with or without labels (data/labels/documents.py); on a command line, each
argument is a document, `3:0.5 17:1`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np
import torch

from embtrain.common.errors import DataError, UsageError
from embtrain.data.labels import documents
from embtrain.data.labels.documents import Some
from embtrain.data.labels.examples import LabelBatch
from embtrain.data.storage.containers import Source
from embtrain.experiment.prediction.base import Prediction, Predictor
from embtrain.experiment.run.components import Components
from embtrain.experiment.tasks.labels import Labels


class LabelPredictor(Predictor):
    name = "labels"
    form = "a document as '3:0.5 17:1', or the path of a file"

    def __init__(self, made: Components, top: int, hide_known: bool):
        super().__init__(made, top, hide_known)
        self.task = cast(Labels, made.task)

    def given(self, words: Sequence[str]) -> list[Prediction]:
        found = []
        for text in words:
            try:
                some = documents.one(text, self.task.documents.n_features, self.names)
            except DataError as error:
                raise UsageError(f"predict: {text[:60]!r} is neither a file nor a document: {error}; write "
                                 f"{self.form}") from error
            found += self._of(some, [text])
        return found

    def read(self, source: Source) -> Iterator[Prediction]:
        n = 0
        for some in documents.some(source, self.task.config.reader, self.task.documents.n_features, self.names,
                                        self.at_once):
            yield from self._of(some, [f"document {n + i}" for i in range(1, len(some) + 1)])
            n += len(some)

    def _of(self, some: Some, said: Sequence[str]) -> list[Prediction]:
        document = torch.arange(len(some))
        features = some.features.unit() if self.task.config.unit else some.features
        batch = LabelBatch(torch.zeros_like(document), torch.zeros_like(document), document, document, features)
        score, z, log_p = self.scores(batch)
        found = []
        for i, name in enumerate(said):
            index = some.features.index[some.features.start[i]:some.features.start[i + 1]]
            unseen = int(some.beyond[i] + (self.task.seen[index] == 0).sum())
            total = int(some.beyond[i]) + len(np.unique(index))
            note = f"{unseen} of {total} features are in no training document" if unseen else ""
            found.append(Prediction(name, self.answers(z[i], score[i], None if log_p is None else log_p[i]),
                                    {"features": total, "unseen_features": unseen}, some.places[i], note, unseen > 0))
        return found
