"""Lists of candidates that a task offers to sources: read from a file, stored in a run, or seen in training."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import numpy as np

from embtrain.common.candidate_lists import ARRAYS, CandidateLists, ListKey
from embtrain.common.config.setting_keys import key
from embtrain.common.errors import DataError, UsageError
from embtrain.data.formats import candidate_files
from embtrain.experiment.tasks.base import Task

PREFIX = "lists"  # of the arrays in the file of a run


class TaskLists:
    """A ListReader for the names of a task. stored: arrays of a run, read in place of the files of its training."""

    def __init__(self, task: Task, stored: Mapping[str, np.ndarray] | None = None):
        self.task, self.stored = task, stored or {}
        self._read: dict[str, CandidateLists] = {}

    def from_file(self, file: str | None, by: ListKey) -> CandidateLists:
        if file is None:
            raise UsageError(f"{key('file')}: null: candidates needs lists; set it to a file of TSV or JSON lines with "
                             "a query and a candidate each")
        names = self.task.query_names(by)
        array_key = f"{PREFIX}/{hashlib.sha256(f'{by} {file}'.encode('utf-8', 'surrogateescape')).hexdigest()[:16]}"
        if array_key not in self._read:
            arrays = {name: self.stored.get(f"{array_key}/{name}") for name in ARRAYS}
            if all(array is not None for array in arrays.values()):
                self._read[array_key] = CandidateLists(**arrays)  # type: ignore[arg-type]
            else:
                try:
                    self._read[array_key] = candidate_files.read(Path(file), names, self._candidates)
                except DataError as error:
                    raise DataError(f"{key('file')}: {error}") from error
        return self._read[array_key]

    def observed(self) -> CandidateLists:
        return self.task.observed_lists()

    def itself(self, max_symmetric: float) -> CandidateLists:
        return self.task.reflexive_lists(max_symmetric)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the lists that were read from files, as arrays to store in a run."""
        return {f"{key}/{name}": array for key, lists in self._read.items() for name, array in lists.arrays().items()}

    @cached_property
    def _candidates(self) -> dict[str, int]:
        """Id of each candidate by its name."""
        return {name: i for i, name in enumerate(self.task.candidate_names())}
