"""Configuration of training: the keys under `train:`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from embtrain.common.config import AbsolutePath, Section
from embtrain.train.group.config import SyncConfig

MAX_EPOCHS = 100_000


class TrainConfig(Section):
    """Settings of the optimizer, the loop, its log and its checkpoints."""

    epochs: int = Field(10, ge=1, le=MAX_EPOCHS, description="passes over the training data")
    cpu_seconds: float | None = Field(None, gt=0, description="CPU seconds after which training stops; null: no limit")
    lr: float = Field(0.025, gt=0, description="learning rate at the start")
    min_lr: float = Field(0.0001, ge=0, description="learning rate at the end of the linear decay")
    loss_lr: float = Field(0.01, gt=0, description="learning rate of the parameters of the loss (log Z), with Adam")
    warmup: int = Field(0, ge=0, description="steps over which the learning rate rises from 0 to lr; 0: none")
    burn_in: int = Field(0, ge=0, description="first epochs, which train at a tenth of the learning rate; 0: none")
    optimizer: Literal["sgd", "adagrad", "row-adagrad", "adam", "lazy-adam"] = Field(
        "sgd", description=(
            "optimizer of the model; row-adagrad: one accumulator per table row; lazy-adam: Adam that "
            "updates only the rows in the batch"))
    batch: int = Field(1024, ge=1, description="examples per update; with engine fused, per update of log Z")
    chunk: int | None = Field(
        None, ge=1, description="centres per step, for which negatives are drawn at once; null: chosen by the engine")
    reduction: Literal["sum", "mean"] = Field(
        "sum", description="reduction of the losses of an update; word2vec's learning rates belong to sum")
    clip: float | None = Field(None, gt=0, description="maximum gradient norm of an update; null: no limit")
    seed: int = Field(1, ge=0, lt=2**31, description="seed of initialization, order and draws")
    threads: int = Field(0, ge=0, le=1024, description="threads; 0: one per core")
    device: str = Field("cpu", description="cpu, cuda or cuda:N")
    matmul: Literal["float32", "tf32"] = Field(
        "float32", description=(
            "precision of matrix products in training on a GPU; tf32: 11 bits of mantissa, faster"))
    tables: Literal["memory", "mapped", "sharded"] = Field(
        "memory", description=(
            "place of the embedding tables; mapped: files on the disk of the run folder, for tables larger than the "
            "memory; sharded: rows cut over the processes of torchrun (skip-gram, triples, xc)"))
    engine: Literal["auto", "autograd", "fused"] = Field(
        "auto", description="autograd: PyTorch, any device; fused: the compiled core; auto: fused where possible")
    shuffle: bool = Field(True, description="permute the centres in each epoch")
    log_every: int = Field(10, ge=1, description="steps between two lines of metrics.jsonl")
    evaluate_every: int = Field(0, ge=0, description="steps between two evaluations; 0: after each epoch")
    patience: int = Field(
        0, ge=0, description=(
            "evaluations without a better validation score before training stops; 0: no early stopping. "
            "The score: mrr of triples, accuracy of pairs, accuracy@1 of a translator, else "
            "log_likelihood"))
    checkpoint_every: float = Field(60.0, gt=0, description="seconds between two checkpoints")
    keep: int = Field(2, ge=1, description="checkpoints kept")
    sync: SyncConfig = SyncConfig()
    start: AbsolutePath | None = Field(
        None, description=(
            "vectors that words or concepts start from: a file, a Hugging Face folder, or a run, whose output table is "
            "used too; null: random"))
    start_new_rows: Literal["random", "mean", "subword"] = Field(
        "random", description=(
            "starting values of words without a vector in start or parent: random, the mean of the others, or composed "
            "from their character n-grams"))
    parent: AbsolutePath | None = Field(
        None, description=(
            "run that is continued on another text: its words, counts, tables and optimizer state are kept, and the "
            "vocabulary grows (skip-gram and CBOW); null: none"))
    sinks: list[str] = Field([], description="loggers in addition to metrics.jsonl: tensorboard, mlflow")
    track_until: str | None = Field(
        None, description=(
            "metric value whose steps and seconds are reported, e.g. 'valid/log_likelihood>-7'; null: "
            "none"))

    @field_validator("device")
    @classmethod
    def _check_device(cls, device: str) -> str:
        if device.startswith("cpu:"):
            raise ValueError("a CPU has no number; use cpu, or cuda:N")
        return device
