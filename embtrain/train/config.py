"""Configuration of training: the keys under `train:`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from embtrain.common.config import Section


class TrainConfig(Section):
    """Settings of the optimizer, the loop, its log and its checkpoints."""

    epochs: int = Field(10, ge=1, le=100_000, description="passes over the training text")
    cpu_seconds: float | None = Field(None, gt=0, description="CPU seconds after which training stops; null: no limit")
    lr: float = Field(0.025, gt=0, description="learning rate at the start")
    min_lr: float = Field(0.0001, ge=0, description="learning rate at the end of the linear decay")
    loss_lr: float = Field(0.01, gt=0, description="learning rate of the loss's own parameters (log Z), by Adam")
    warmup: int = Field(0, ge=0, description="blocks over which the rate rises from 0 to lr")
    optimizer: Literal["sgd", "adagrad", "row-adagrad", "adam", "lazy-adam"] = Field(
        "sgd", description="how the model's tables are updated; row-adagrad: one rate a row, not a number; "
        "lazy-adam: adam that leaves rows alone which no example reads")
    batch: int = Field(1024, ge=1, description="examples of one update; engine fused: of one update of log Z")
    block: int | None = Field(None, ge=1, description="centres drawn for at once, a step of the loop; null: by engine")
    reduction: Literal["sum", "mean"] = Field("sum", description="of the examples' losses; word2vec's rate means sum")
    clip: float | None = Field(None, gt=0, description="largest norm of an update's gradient")
    seed: int = Field(1, ge=0, lt=2**31, description="of tables, order and draws")
    threads: int = Field(0, ge=0, le=1024, description="0: every core")
    device: str = Field("cpu", description="cpu, cuda or cuda:N")
    engine: Literal["auto", "step", "fused"] = Field(
        "auto", description="step: autograd, any device; fused: the compiled core; auto: fused where it can")
    shuffle: bool = Field(True, description="permute the centres in each epoch")
    log_every: int = Field(10, ge=1, description="blocks between two lines of metrics.jsonl")
    evaluate_every: int = Field(0, ge=0, description="blocks between two evaluations; 0: after each epoch")
    patience: int = Field(0, ge=0, description=(
        "evaluations without a better validation score before stopping; 0: never stop early. The score: mrr of "
        "triples, accuracy of pairs, accuracy@1 of a translator, else log_likelihood"))
    checkpoint_every: float = Field(60.0, gt=0, description="seconds between two checkpoints")
    keep: int = Field(2, ge=1, description="checkpoints kept")
    sinks: list[str] = Field([], description="where the log's numbers go besides: tensorboard, mlflow")
    target: str | None = Field(None, description="e.g. 'valid/log_likelihood>-7': steps and seconds to it are told")
