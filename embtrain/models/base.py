"""Base class of models.

A model encodes a batch into queries and scores candidates. It does not know how a negative was drawn.
`encode(batch) -> Query`, `score(query, candidates) -> (B, K)`, `table() -> (V, D)`. A higher score is always better.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from embtrain.common import registry, shipped, traits
from embtrain.common.config import Layer, Section, read_yaml
from embtrain.common.config.foreign_classes import AbstractMethod
from embtrain.common.config.saved_values import saved
from embtrain.common.errors import UsageError
from embtrain.common.types import Batch, ProblemSpec, Query
from embtrain.kernels.core.tables import zeros
from embtrain.models.result_checks import Geometry, guarded


class ModelConfig(Section):
    """Configuration keys that every embedding model has."""

    name: str = Field("skipgram", description="model, a module of embtrain.models")
    dim: int = Field(100, ge=1, le=65_536, description="D, embedding dimension")
    #: Type of the numbers in the tables. The optimizer's state has the same type.
    table_dtype: ClassVar[torch.dtype] = torch.float32
    #: Updates by autograd read and write only the rows of the examples, so that processes can share its tables, and
    #: files can hold them.
    updates_rows: ClassVar[bool] = False

    def n_rows(self, n_candidates: int) -> int:
        """Return the rows of the largest table, as far as they are known before the data are read."""
        return n_candidates

    def n_rows_of_all(self, problem: ProblemSpec) -> int:
        """Return the rows of all tables together, as far as they are known before the model is built."""
        return self.n_rows(problem.n_candidates)


class Model(nn.Module):
    """Base of every model. Subclasses set `name` and `Config` and implement `encode`, `score` and `table`."""

    name: ClassVar[str]
    Config: ClassVar[type[ModelConfig]] = ModelConfig
    #: Kind of training data: a module of embtrain/experiment/tasks.
    task: ClassVar[str] = "windows"
    #: Score function. Sources that need an inner product check it.
    geometry: Geometry = "dot"
    #: Inverse temperature: the factor of the cosine (1/τ is the usual temperature); 1 for every other geometry.
    tau: float = 1.0
    #: Name of `entailment_score`.
    entailment: ClassVar[str] = "cosine"
    #: The rows of the table have length 1 and are not trained, so data that a source derives from them stay valid.
    has_frozen_table: bool = False
    #: Parameters that `pad_rows` leaves as they are, because a copy would take too much memory.
    unpadded_tables: frozenset[str] = frozenset()

    def __init__(self, config: ModelConfig, problem: ProblemSpec):
        super().__init__()
        self.config, self.problem = config, problem
        self.sparse = True  # sparse gradients of embedding rows; False for optimizers that need dense ones
        self.always_sparse = False  # also of small tables; True for optimizers that skip rows without a gradient

    def encode(self, batch: Batch) -> Query:
        """Return the queries of a batch of B examples, with gradients."""
        raise AbstractMethod(self, "encode")

    def score(self, query: Query, candidates: Tensor) -> Tensor:
        """Score candidates: ids (1, K) shared by all rows, ids (B, K), or vectors (B, K, D). Returns (B, K)."""
        raise AbstractMethod(self, "score")

    def table(self) -> Tensor:
        """Return the candidates' vectors, (V, D)."""
        raise AbstractMethod(self, "table")

    def relation_table(self, relation: int) -> tuple[str, Tensor]:
        """Return a geometry and a table (V, D) that score the queries of a relation.

        Scores use the first D numbers of the query vectors. The table is the same for all relations,
        unless candidate vectors depend on the relation.
        """
        return self.geometry, self.table()

    def penalty(self, batch: Batch) -> Tensor | None:
        """Return the regularization of each example's vectors, (B,), differentiable; None if there is none."""
        return None

    def after_update(self, batch: Batch) -> None:
        """Run after the update on a batch, for example to project rows or to keep the state of a text stream."""

    def earlier_rows(self, earlier: Model, row: Tensor) -> dict[str, Tensor]:
        """Return the row that each row of each table had in a model over fewer words, -1 for a new one.

        row (V,): the earlier id of each word. By default every table has a row for each word.
        """
        return dict.fromkeys(self.state_dict(), row)

    def vectors(self, which: str = "input") -> Tensor:
        """Return the exported vectors, one row per vocabulary entry."""
        return self.table()

    def relations(self) -> Tensor | None:
        """Return the exported vectors of relations, (R, ·); None if queries have no relation."""
        return None

    @staticmethod
    def entailment_score(u: Tensor, v: Tensor, config: ModelConfig) -> Tensor:
        """Score "u is a v" for exported vectors u and v (..., D): (...), higher is more certain.

        config: that of the model, or ModelConfig() for a file of vectors.

        The default is the cosine, which is symmetric; models with a direction override it.
        """
        return nn.functional.cosine_similarity(u, v, dim=-1)


def pad_rows(model: Model) -> None:
    """Pad the rows of the model's tables to a multiple of 16 floats, aligned, as the kernels read them fastest.

    The parameters stay the same objects with the same shape (V, D) and values: each becomes a view of a padded array,
    except those of `unpadded_tables`.
    """
    for name, p in model.named_parameters():
        if p.ndim == 2 and name not in model.unpadded_tables:
            n, d = p.shape
            width = -(-d // 16) * 16
            padded = torch.from_numpy(zeros(n, width)) if p.device.type == "cpu" else p.new_zeros(n, width)
            padded[:, :d] = p.data
            p.data = padded[:, :d]


def rank_keys(keys: Tensor) -> Tensor:
    """Return the rank of each key (B,) among the distinct ones, from 0: (B,) int64.

    The same numbers as the inverse of torch.unique, which makes the host wait for a GPU: its size depends on values.
    """
    ascending, order = keys.sort()
    is_new = torch.ones_like(ascending)
    is_new[1:] = ascending[1:] != ascending[:-1]
    return torch.empty_like(order).index_copy_(0, order, is_new.cumsum(0) - 1)


def require_even(name: str, dim: int, halves: str) -> None:
    """Raise UsageError if `dim` is odd. halves: the contents of a vector, `A and half for B`."""
    if dim % 2:
        raise UsageError(f"model.dim: {dim}: {name} must be even, half for {halves}")


def names() -> list[str]:
    """Return the names of all models."""
    return list(registry.classes("embtrain.models", Model))


def find(name: str) -> type[Model]:
    """Return the model class of that name. Raises UsageError with all names if it does not exist.

    A class of another package is returned as a subclass that checks its results (result_checks.py).
    """
    return guarded(registry.find("embtrain.models", Model, name, "model.name"))


def default_settings(name: str) -> Layer:
    """Read the YAML file of a model. UsageError with all names if there is neither a file nor a class of that name.

    A model of the user has the settings of its nearest base class with a file and the same task, without keys that its
    Config lacks, and with the defaults that it changes. Without that base class all keys have those of the class.
    """
    files = shipped.names("configs", "models")
    if name in files:
        return read_yaml(shipped.path("configs", name, "models"))
    if name not in (known := names()):
        if problem := registry.broken("embtrain.models").get(name):
            raise UsageError(f"{name!r} cannot be loaded: {problem}; correct it there")
        try:
            shipped.path("configs", name, "models", others=known)
        except UsageError as error:
            raise UsageError(f"{error}{registry.file_hint(name)}") from error
    model = find(name)
    own, _ = saved(traits.default_settings(model.Config))       # a new run reports the others, unless it replaces them
    base = next((base for base in model.__mro__[1:] if issubclass(base, Model) and base.task == model.task
                 and vars(base).get("name") in files), None)
    if base is None:
        return Layer(name, {"model": own | {"name": name}})
    layer = read_yaml(shipped.path("configs", base.name, "models"))
    here, there = _defaults(model.Config), _defaults(base.Config)
    changed = {key for key in here if key in there and here[key] != there[key]}
    section = {key: value for key, value in layer.tree["model"].items() if key in here.keys() - changed}
    section |= {key: value for key, value in own.items() if key in changed}
    return replace(layer, tree=layer.tree | {"model": section | {"name": name}})


def _defaults(config: type[ModelConfig]) -> dict[str, object]:
    """Return the default of each key of a class of settings."""
    return {info.alias or field: info.get_default() for field, info in config.model_fields.items()}
