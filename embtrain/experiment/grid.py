"""The grid of a comparison: which runs, over which seeds, judged by what."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, field_validator

from embtrain.config import Layer, Section, build, read_yaml
from embtrain.experiment import found

FLAGS = {"strategies": "negatives", "models": "model", "sets": "set"}  # of the grid's keys; the others have their own


def _metric(text: str) -> str:
    benchmark, _, metric = text.partition("/")
    if not benchmark or not metric:
        raise ValueError("should be BENCHMARK/METRIC, such as test/mrr")
    return text


Metric = Annotated[str, AfterValidator(_metric)]
RunName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._=+-]{0,59}$")]  # it is the name of a folder, too


class Kind(Section):
    """Runs that differ in their seeds alone, as a grid names them one by one."""

    strategy: str = Field(description="a name of configs/negatives, or the path of a YAML file")
    loss: str | None = Field(None, description="put into the strategy; null: its own")
    model: str = Field("skipgram", description="a name of configs/models")
    sets: list[str] = Field([], description="KEY.KEY=VALUE, for these runs alone")


class Grid(Section):
    """What is compared; comparison.yaml."""

    strategies: list[str] = Field([], description="names of configs/negatives, or paths of YAML files")
    losses: list[str | None] = Field([None], min_length=1, description="put into each strategy; null: its own")
    models: list[str] = Field(["skipgram"], min_length=1, description="names of configs/models")
    runs: dict[RunName, Kind] = Field({}, max_length=200, description="further runs, each by a name of its own")
    corpus: str | None = Field(None, description="a recipe of corpora/, or the path of a text")
    seeds: list[int] = Field([1, 2, 3, 4, 5], min_length=1, max_length=1000, description="or a number n: 1 to n")
    baseline: str | None = Field(None, description="what the others are compared with; null: the first")
    metric: Metric | None = Field(None, description="what decides: BENCHMARK/METRIC; null: the task's own")
    benchmarks: list[str] | None = Field(None, description="names of evals/; null: those of evaluate.on")
    cpu_seconds: float | None = Field(None, gt=0, description="CPU seconds that a cell may train; null: no limit")
    sets: list[str] = Field([], description="KEY.KEY=VALUE, for every cell")
    search: list[str] = Field([], max_length=50, description="KEY=LOW:HIGH, KEY=LOW:HIGH:log or KEY=[A, B], chosen for "
                                                             "each strategy by trials on validation")
    trials: int | None = Field(None, ge=1, le=1000, description="trials of each strategy, each as long as a cell")
    paper: str | None = Field(None, description="the file of configs/paper whose claim is judged")

    @field_validator("seeds", mode="before")
    @classmethod
    def _first_seeds(cls, value: Any) -> Any:
        return list(range(1, value + 1)) if type(value) is int and 1 <= value <= 1000 else value

    def kinds(self) -> list[tuple[str, Kind]]:
        """Every kind of run with its label."""
        out = [(found.label(strategy, loss, model if len(self.models) > 1 else None),
                Kind(strategy=strategy, loss=loss, model=model))
               for model in self.models for strategy in self.strategies for loss in self.losses]
        return [*out, *self.runs.items()]


def grid(options: Mapping[str, Any], config: Path | None = None, out: Path | None = None) -> Grid:
    """The grid of a YAML file with `options` over it (None: not given), over the grid that the folder `out` holds."""
    layers = [] if out is None or not (out / "comparison.yaml").is_file() else [read_yaml(out / "comparison.yaml")]
    layers += [] if config is None else [read_yaml(config)]
    layers += [Layer(f"--{FLAGS.get(name, name).replace('_', '-')}", {name: value})
               for name, value in options.items() if value is not None]
    return build(Grid, layers)
