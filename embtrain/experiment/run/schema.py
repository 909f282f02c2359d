"""The typed configuration of a run. settings.py assembles it; tasks, which are below, receive it."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field

from embtrain.common.config import Section
from embtrain.evaluate.config import EvaluateConfig
from embtrain.losses.base import LossConfig
from embtrain.models.base import ModelConfig
from embtrain.negatives.base import NegativesConfig
from embtrain.train.config import TrainConfig


class Settings(Section):
    """The whole configuration of a run.

    `model`, `negatives` and `loss` have the keys of the components they name. The model's task adds a section for its
    data, like `text`, and the keys of `evaluate`.
    """

    strategy: str = Field("sgns", description="strategy, a file of configs/strategies")
    corpus: str = Field("gensim-wiki", min_length=1, description="recipe of corpora/, or path of your own data")
    model: ModelConfig = ModelConfig()
    negatives: NegativesConfig = NegativesConfig()
    loss: LossConfig = LossConfig()
    train: TrainConfig = TrainConfig()
    evaluate: EvaluateConfig = EvaluateConfig()

    @property
    def data(self) -> Section:
        """The section of the model's task: how its data are read."""
        (section,) = type(self).model_fields.keys() - Settings.model_fields.keys()
        return getattr(self, section)

    def with_train(self, **values: Any) -> Self:
        """Return a copy with other values of some keys of `train`."""
        return self.model_copy(update={"train": self.train.model_copy(update=values)})
