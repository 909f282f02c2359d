"""Queries of a hierarchy as a file of candidates names them, and the concepts seen at each end of a pair.

    query    CONCEPT _   or   _ CONCEPT       `_` marks the open end, as in `embtrain predict`
    side     hypernym    or   hyponym         the open end
    entity   CONCEPT                          both ends
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from embtrain.common.candidate_lists import CandidateLists, ListKey
from embtrain.common.config.setting_keys import key
from embtrain.common.errors import UsageError
from embtrain.data.formats.candidate_files import QueryNames
from embtrain.data.hierarchy.examples import HYPERNYM, HYPONYM

OPEN = "_"
CONCEPT, SLOT = 0, 1        # columns of a context: the known concept, and the open end
SIDES = {"hypernym": HYPERNYM, "hyponym": HYPONYM}
Keys = list[tuple[int, ...]]


def query_names(concepts: Sequence[str], by: ListKey) -> QueryNames:
    """Return the names of the queries that share a list. UsageError for `relation`, because there is only one."""
    index = {name: i for i, name in enumerate(concepts)}

    def find_query(fields: Sequence[str]) -> Keys | None:
        hyponym, hypernym = fields
        if (hyponym == OPEN) == (hypernym == OPEN):
            raise ValueError(f"{' '.join(fields)!r}: one of the two should be {OPEN}, the open end")
        name, slot = (hypernym, HYPONYM) if hyponym == OPEN else (hyponym, HYPERNYM)
        return [(index[name], slot)] if name in index else None

    def find_side(fields: Sequence[str]) -> Keys | None:
        if fields[0] not in SIDES:
            raise ValueError(f"{fields[0]!r}: should be the open end, {' or '.join(SIDES)}")
        return [(SIDES[fields[0]],)]

    def find_entity(fields: Sequence[str]) -> Keys | None:
        return [(index[fields[0]],)] if fields[0] in index else None

    names = {"query": QueryNames((CONCEPT, SLOT), ("CONCEPT", OPEN), find_query),
             "side": QueryNames((SLOT,), ("SIDE",), find_side),
             "entity": QueryNames((CONCEPT,), ("CONCEPT",), find_entity)}
    if by not in names:
        raise UsageError(f"{key('by')}: {by}: a hierarchy has one relation; set {key('by')}: {', '.join(names)}")
    return names[by]


def observed_by_side(train: np.ndarray) -> CandidateLists:
    """Return the concepts at each end of the training pairs (n, 2), weighted by their counts."""
    slot = np.repeat([HYPONYM, HYPERNYM], len(train))             # the open end: column 0 is the hyponym
    return CandidateLists.from_entries((SLOT,), slot[:, None], train.T.reshape(-1), np.ones(len(slot)))
