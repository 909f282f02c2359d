"""Predicts the top labels of documents, ranked as in evaluation, with P(label | document) if the loss estimates it.

A file has the format of the training files, with or without labels (data/labels/documents.py). On a command line, each
argument is a document, `3:0.5 17:1`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np
import torch

from embtrain.common.errors import DataError, UsageError
from embtrain.common.terminal import format_part
from embtrain.data.labels import documents
from embtrain.data.labels.documents import DocumentChunk
from embtrain.data.labels.examples import LabelBatch
from embtrain.data.storage.containers import Source
from embtrain.experiment.prediction.base import NotAQuery, Prediction, Predictor
from embtrain.experiment.run.components import Components
from embtrain.experiment.tasks.labels import LabelsTask

LABELS = "0123456789, "  # characters of the labels of a document


class LabelPredictor(Predictor):
    """Predictor of labels."""

    name = "labels"
    query_form = "'3:0.5 17:1' or the path of a file"

    def __init__(self, components: Components, top: int | None, hide_known: bool):
        super().__init__(components, top, hide_known)
        self.task = cast(LabelsTask, components.task)

    def predict_words(self, words: Sequence[str]) -> list[Prediction]:
        predictions = []
        for text in words:
            try:
                chunk = documents.parse_document(text, self.task.documents.n_features, self.names)
            except DataError as error:
                if ":" in text or text.strip(LABELS) == "":
                    raise UsageError(f"predict: {text[:60]!r}: {error}") from error
                raise NotAQuery(f"predict: {text[:60]!r}: is not a document; write {self.query_form}") from error
            predictions += self._predict_chunk(chunk, [text])
        return predictions

    def predict_file(self, source: Source) -> Iterator[Prediction]:
        n = 0
        for chunk in documents.read_chunks(source, self.task.config.reader, self.task.documents.n_features, self.names,
                                        self.at_once):
            yield from self._predict_chunk(chunk, [f"document {n + i}" for i in range(1, len(chunk) + 1)])
            n += len(chunk)

    def _predict_chunk(self, chunk: DocumentChunk, texts: Sequence[str]) -> list[Prediction]:
        document = torch.arange(len(chunk))
        features = chunk.features.unit() if self.task.config.unit else chunk.features
        batch = LabelBatch(torch.zeros_like(document), torch.zeros_like(document), document, document, features)
        score, z, log_p = self.scores(batch)
        predictions = []
        for i, name in enumerate(texts):
            index = chunk.features.index[chunk.features.start[i]:chunk.features.start[i + 1]]
            unseen = int(chunk.unknown_features[i] + (self.task.seen[index] == 0).sum())
            total = int(chunk.unknown_features[i]) + len(np.unique(index))
            part = format_part(unseen, total, "features", "occurs", "occur")
            note = f"{part} in no training document" if unseen else ""
            predictions.append(
                Prediction(
                    name,
                    self.top_answers(z[i], score[i], None if log_p is None else log_p[i]),
                    {"features": total, "unseen_features": unseen},
                    chunk.locations[i],
                    note,
                    unseen > 0,
                )
            )
        return predictions
