"""Skip-gram over random walks: predicts the nodes near a node on a walk.

The model is that of models/words/skipgram.py; the data are a graph, or walks over one (data/walks/walks.py).
Perozzi et al., DeepWalk: Online Learning of Social Representations, KDD 2014.
Grover and Leskovec, node2vec: Scalable Feature Learning for Networks, KDD 2016.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import field_validator

from embtrain.models.words.skipgram import SkipGram, SkipGramConfig
from embtrain.models.words.subword import SubwordConfig


class Node2VecConfig(SkipGramConfig):
    """Configuration keys of node2vec."""

    name: str = "node2vec"

    @field_validator("subword")
    @classmethod
    def _has_no_words(cls, value: SubwordConfig | None) -> None:
        if value is not None:
            raise ValueError("names of nodes are not words with n-grams; set null")


class Node2Vec(SkipGram):
    """Skip-gram on random walks."""

    name: ClassVar[str] = "node2vec"
    Config = Node2VecConfig
    task = "walks"
