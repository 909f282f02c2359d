"""The grid of a comparison: its runs, seeds and evaluation."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, PrivateAttr, field_validator

from embtrain.common.config import Layer, Section, build, dump, from_set, read_yaml
from embtrain.common.config.shown import KeyPath, dotted, printable
from embtrain.common.errors import DataError, UsageError
from embtrain.common.files import as_argument, write_text
from embtrain.evaluate.config import Benchmarks
from embtrain.experiment.comparison import outcome, search_space

FILE = "comparison.yaml"  # the grid, in the folder of a comparison
MAX_SEEDS = 1000
FLAGS = {"strategies": "negatives", "models": "model", "sets": "set"}  # keys whose flag has another name


def _metric(text: str) -> str:
    benchmark, _, metric = text.partition("/")
    if not benchmark or not metric:
        raise ValueError("should be BENCHMARK/METRIC, for example test/mrr")
    return text


Metric = Annotated[str, AfterValidator(_metric)]
RunName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._=+-]{0,59}$")]  # also a folder name


class Kind(Section):
    """Runs that differ only in their seeds, as a grid names them."""

    strategy: str = Field(description="name of configs/strategies, or path of a YAML file")
    loss: str | None = Field(None, description="loss in place of the strategy's; null: its own")
    model: str = Field("skipgram", description="name of configs/models")
    sets: list[str] = Field([], description="KEY.KEY=VALUE, for these runs only")

    def sets_key(self, section: str, key: str) -> bool:
        """Whether `sets` sets a key."""
        return any(key in (from_set(text).tree.get(section) or {}) for text in self.sets)


class StartRun(Kind):
    """A run that is trained first, once; the input vectors of all others start from its own (`train.start`)."""

    corpus: str = Field(description="recipe of corpora/, or path of your own data")
    seed: int = Field(1, ge=0, description="seed of the run")


class Grid(Section):  # noqa: PLW1641  never hashed
    """The runs of a comparison and how they are compared; comparison.yaml."""

    strategies: list[str] = Field([], description="names of configs/strategies, or paths of YAML files")
    losses: list[str | None] = Field(
        [None], min_length=1, description="losses in place of each strategy's; null: its own")
    models: list[str] = Field(["skipgram"], min_length=1, description="names of configs/models")
    runs: dict[RunName, Kind] = Field({}, max_length=200, description="further runs by name")
    corpus: str | None = Field(None, description="recipe of corpora/, or path of your own data; null: the model's")
    start: StartRun | None = Field(None, description="run whose input vectors the others start from; null: none")
    seeds: list[int] = Field(
        [1, 2, 3, 4, 5], min_length=1, max_length=MAX_SEEDS, description="seeds, or a number n: 1 to n")
    baseline: str | None = Field(None, description="run that the others are compared with; null: the first")
    metric: Metric | None = Field(None, description="primary metric, BENCHMARK/METRIC; null: the task's")
    benchmarks: Benchmarks | None = Field(
        None, description="names of evals/, or your own files; null: those of evaluate.benchmarks")
    cpu_seconds: float | None = Field(None, gt=0, description="CPU seconds of training per run; null: no limit")
    sets: list[str] = Field([], description="KEY.KEY=VALUE, for every run")
    search: list[str] = Field(
        [], max_length=50, description=(
            "KEY=LOW:HIGH, KEY=LOW:HIGH:log or KEY=[A, B], tuned for each strategy on validation"))
    trials: int | None = Field(None, ge=1, le=1000, description="trials per strategy, each as long as a run")
    paper: str | None = Field(None, description="file of configs/paper whose claim is judged; null: none")
    _origins: dict[KeyPath, str] = PrivateAttr(default_factory=dict)  # name of each value in errors; see `with_origins`

    def __eq__(self, other: object) -> bool:
        """Whether the values are equal, regardless of where they were set."""
        return isinstance(other, Grid) and self.model_dump() == other.model_dump()

    @field_validator("seeds", mode="before")
    @classmethod
    def _first_seeds(cls, value: Any) -> Any:
        return list(range(1, value + 1)) if type(value) is int and 1 <= value <= MAX_SEEDS else value

    def kinds(self) -> list[tuple[str, Kind]]:
        """Every kind of run with its label."""
        out = [(outcome.label(strategy, loss, model if len(self.models) > 1 else None),
                Kind(strategy=strategy, loss=loss, model=model))
               for model in self.models for strategy in self.strategies for loss in self.losses]
        return [*out, *self.runs.items()]

    def flag_of(self, *keys: str) -> str:
        """The name of a value in error messages: the flag that set it, or its place in a file.

        The last key is the text of an item if the value is in a list.
        """
        return self._origins.get(keys, f"--{FLAGS.get(keys[0], keys[0])}".replace("_", "-"))

    def flag_names(self, label: str, kind: Kind) -> dict[str, str]:
        """The same for the options of one run, keyed by the flag that a single run would take."""
        listed = self.runs.get(label) is not kind
        named = {"negatives": ("strategies", "strategy", kind.strategy), "model": ("models", "model", kind.model),
                 "loss": ("losses", "loss", str(kind.loss))}
        keys: dict[str, KeyPath] = {f"--{flag}": (plural, text) if listed else ("runs", label, single)
                                 for flag, (plural, single, text) in named.items()}
        keys |= {f"--set {printable(text)}": ("sets", text) for text in self.sets}
        keys |= {f"--set {printable(text)}": ("runs", label, "sets", text) for text in kind.sets}
        return {flag: self._origins[place] for flag, place in keys.items() if place in self._origins}


def read_grid(options: Mapping[str, Any], config: Path | None = None, out: Path | None = None) -> Grid:
    """Read the grid of a YAML file, overridden by `options` (None: not set), over the grid stored in folder `out`.

    Files among the ranges of `search` are expanded. The `sets` of the options override those of the YAML file key by
    key, every other option as a whole. UsageError names the option or the place in the file; DataError: the stored grid
    is damaged.
    """
    layers = [] if out is None or not (out / FILE).is_file() else [read_stored(out)]
    kept = list[str]()
    if config is not None:       # takes the runs of a reproduction without its claim
        if out is not None and layers and config.exists() and config.samefile(out / FILE) \
                and not (out / "cells").is_dir():
            raise UsageError(f"--config: {config}: would be replaced by the whole grid, every default written out; "
                             "choose another folder with --out")
        user_layer = read_yaml(config)
        layers.append(replace(user_layer,
                              tree={key: value for key, value in user_layer.tree.items() if key != "paper"}))
        if options.get("sets"):
            keys = {_key(text) for text in options["sets"]}
            kept = [text for text in build(Grid, layers).sets if _key(text) not in keys]
    ranges = search_space.expand_files(options.get("search") or [])
    if ranges:
        options = {**options, "search": [text for text, _ in ranges]}
    layers += [Layer(f"--{FLAGS.get(name, name).replace('_', '-')}", {name: value})
               for name, value in options.items() if value is not None]
    grid = build(Grid, layers)
    grid = with_origins(grid.model_copy(update={"sets": [*kept, *grid.sets]}), layers)
    grid._origins.update({("search", text): place or f"--search {printable(text)}"
                          for text, place in reversed(ranges)})     # the first of equal ranges is parsed first
    return grid


def _key(text: str) -> str:
    return text.partition("=")[0].strip()


def read_stored(folder: Path) -> Layer:
    """Read the grid stored in the folder of a comparison. DataError if its comparison.yaml is not one."""
    with stored_files():
        layer = read_yaml(folder / FILE)
        grid = build(Grid, [layer])
    if not (grid.strategies or grid.runs):
        raise DataError(f"{folder / FILE}: contains no strategies and no runs, so it is not the grid of a comparison; "
                        "restore the file that `embtrain compare` wrote, or give another folder")
    return layer


def continue_command(folder: Path, paper: str | None, *options: str) -> str:
    """The shell command that continues in the folder of a comparison; settings stored there are not repeated."""
    return shlex.join(["embtrain", *(["compare"] if paper is None else ["reproduce", as_argument(paper)]), "--out",
                       as_argument(folder), *options])


@dataclass(frozen=True)
class GridFile:
    """comparison.yaml of a comparison that begins or continues with `grid`.

    It is replaced only when no check can refuse the grid any more: a comparison that is refused leaves the grid of the
    runs and results in its folder.
    """

    folder: Path
    grid: Grid
    options: Sequence[str]  # of the command that continues; they are not stored

    def write(self) -> None:
        write_text(self.folder / FILE, dump(self.grid))

    def resume(self) -> str:
        """The command that continues; '' while the folder has no grid, or another one."""
        path = self.folder / FILE
        is_stored = path.is_file() and path.read_text(encoding="utf-8") == dump(self.grid)
        return continue_command(self.folder, self.grid.paper, *self.options) if is_stored else ""


def run_options(parallel: int | None, threads: int, budget: float | None) -> list[str]:
    """The options of a command that limit what runs at a time, and how long."""
    return [*([] if parallel is None else ["--parallel", str(parallel)]),
            *(["--threads", str(threads)] if threads else []),
            *([] if budget is None else ["--cpu-seconds", f"{budget:.15g}"])]


@contextlib.contextmanager
def stored_files() -> Iterator[None]:
    """Raise DataError for a UsageError: a file in the folder of a comparison is wrong, not an option."""
    try:
        yield
    except UsageError as error:
        raise DataError(error.args[0]) from error    # of several faults the first, as of every damaged file


def with_origins(grid: Grid, layers: Sequence[Layer]) -> Grid:
    """Record in the grid where in these layers its values were set; later layers win."""
    for layer in layers:
        grid._origins.update(_origins_in(layer, layer.tree, (), ()))
    return grid


def _origins_in(layer: Layer, value: Any, keys: KeyPath, item_keys: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    """Names of a value and everything below it for error messages.

    `item_keys` equals `keys`, except that list items are identified by their text, which is stable when items are
    added.
    """
    if layer.name.startswith("--"):
        repeated = layer.name in ("--set", "--search") and isinstance(value, str)
        yield item_keys, f"{layer.name} {printable(value)}" if repeated else layer.name
    elif keys:
        mark = layer.marks.get(keys)
        yield item_keys, f"{layer.name}{':{}:{}'.format(*mark) if mark else ''}: {dotted(keys)}"
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from _origins_in(layer, inner, (*keys, key), (*item_keys, str(inner) if isinstance(key, int) else key))
