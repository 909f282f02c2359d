"""Merge names, YAML layers and flags into the typed configuration of one run.

    default.yaml <- models/NAME.yaml <- negatives/NAME.yaml <- tuned/MODEL-CORPUS.yaml <- user file <- flags <- --set

Later ones win; the tuned file is read only on request. The model's file names the default strategy. The settings class
is assembled from the Configs of the model, the source and the loss that the layers name.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import create_model

from embtrain.common import shipped
from embtrain.common.config import Layer, Merged, Section, build, describe_value, from_set, merge, read_yaml
from embtrain.common.config.saved_values import require_savable
from embtrain.common.config.shown import printable
from embtrain.common.errors import DataError, UsageError
from embtrain.common.files import check_exists
from embtrain.common.traits import default_settings
from embtrain.experiment.run.schema import Settings
from embtrain.experiment.tasks import base as tasks
from embtrain.losses import base as losses
from embtrain.models import base as models
from embtrain.negatives import base as negatives
from embtrain.negatives.sampling.pool import check_nested
from embtrain.train.state import checkpoint

__all__ = ["Settings", "from_run", "from_tree", "resolve", "settings_class", "strategies_read_once", "strategy_sets"]

_NAMES = (("model", "name"), ("negatives", "source"), ("loss", "name"))
_STRATEGY_FILES: ContextVar[dict[str, Layer]] = ContextVar("_STRATEGY_FILES")  # by path


def resolve(strategy: str | Layer | None = None, model: str | None = None, corpus: str | None = None,
            loss: str | None = None, config: Path | None = None, sets: list[str] | None = None, seed: int | None = None,
            threads: int | None = None, device: str | None = None,
            flag_names: Mapping[str, str] | None = None, tuned: bool = False, check_rates: bool = True) -> Settings:
    """Resolve the configuration of a run; UsageError lists every error with its place.

    strategy: a name, the path of a YAML file, or the content of one under its path. flag_names: replacements for flags
    like `--loss` or `--set train.lr=0` in error messages, by flag. tuned: read the tuned settings of this model and
    corpus, which name a strategy and a loss. check_rates: False if a search has yet to choose the rates.
    """
    flag_names = flag_names or {}
    content, strategy = (strategy, strategy.name) if isinstance(strategy, Layer) else (None, strategy)
    default = read_yaml(shipped.folder("configs") / "default.yaml")
    user_layers = [read_yaml(config)] if config is not None else []
    flags = [Layer(flag_names.get(f"--{name}", f"--{name}"), tree) for name, value, tree in (
        ("negatives", strategy, {"strategy": strategy}), ("model", model, {"model": {"name": model}}),
        ("corpus", corpus, {"corpus": corpus}), ("loss", loss, {"loss": {"name": loss}}),
        ("seed", seed, {"train": {"seed": seed}}), ("threads", threads, {"train": {"threads": threads}}),
        ("device", device, {"train": {"device": device}})) if value is not None]
    flags += [_set_layer(text, flag_names) for text in sets or []]
    merged = merge([default, *user_layers, *flags])
    model = _name(merged, "model")
    model_layer = _read_overlay(model, "model.name", "models", _place(merged, "model", "name"))
    own_layers = [*user_layers, *flags]
    tuned_layers = [_read_tuned(model, [default, model_layer], own_layers)] if tuned else []
    merged = merge([default, model_layer, *tuned_layers, *own_layers])
    strategy_layer = content or _read_overlay(merged[0].get("strategy"), "strategy", "strategies",
                                              _place(merged, "strategy"))
    settings_of_it = {key: value for key, value in strategy_layer.tree.items() if key != "group"}  # of `embtrain list`
    strategy_layer = replace(strategy_layer, tree=settings_of_it)
    tree, places = merge([strategy_layer])
    if (place := places.get(("model", "name"))) and tree["model"]["name"] != model:
        raise UsageError(f"{place}: model.name: is {describe_value(tree['model']['name'])}; a strategy applies to any "
                         "model; remove it, and give --model")
    strategy_name = str(merged[0]["strategy"])
    if not strategy_name.endswith((".yaml", ".yml")) and (unknown := _unknown_keys(tree, model)):
        raise UsageError(f"{_place(merged, 'strategy')}{strategy_name} is not for model.name: {model} (it sets "
                         f"{', '.join(unknown)})")
    loss = tuned_layers[0].tree.get("loss", {}).get("name") if tuned_layers else loss
    strategy_layer = _drop_unknown(_drop_own_loss(strategy_layer, loss), merge([*tuned_layers, *own_layers])[0])
    settings = _build([default, model_layer, strategy_layer, *tuned_layers, *own_layers])
    require_savable(settings, _NAMES, lambda saved: _build([saved]))
    shipped.require_source(strategy_layer, own_layers)
    if check_rates:
        _check_rates(settings, own_layers)
    # Paths are made absolute, so that a run can be resumed from any folder.
    is_known_name = settings.corpus in shipped.names("corpora") or not os.path.exists(settings.corpus)
    return settings if is_known_name else settings.model_copy(update={"corpus": os.path.abspath(settings.corpus)})


def from_run(folder: Path, sets: Sequence[str] = (), flag_names: Mapping[str, str] | None = None) -> Settings:
    """Read the resolved configuration of a run folder, with some keys overridden (KEY.KEY=VALUE).

    flag_names: as in `resolve`. DataError if the folder is not a run or its config.yaml is damaged.
    """
    check_exists(folder)
    if (folder / "comparison.yaml").is_file() and not (folder / "config.yaml").is_file():
        raise DataError(f"{folder}: is a comparison, not a run; give one of its runs in {folder / 'cells'}, or repeat "
                        "the command of the comparison to continue it")
    if not (folder / "config.yaml").is_file():
        raise DataError(f"{folder}: is not a run: it has no config.yaml; start one with embtrain fit --out DIR")
    try:
        saved = read_yaml(folder / "config.yaml")
    except UsageError as error:          # not YAML, or not a mapping
        raise DataError(error.args[0]) from error    # of several faults the first, as of every damaged file
    if not saved.tree:
        raise DataError(f"{folder / 'config.yaml'}: is empty; restore the run's own config.yaml")
    overrides = [_set_layer(text, flag_names or {}) for text in sets]
    try:
        settings = _build([saved, *overrides])
    except UsageError:
        _check_names(folder, saved)      # the other keys of a section belong to the component that training used
        raise
    require_savable(settings, _NAMES if overrides else (), lambda changed: _build([changed]))
    _check_rates(settings, overrides)
    return settings


def from_tree(tree: dict[str, Any]) -> Settings:
    """Rebuild resolved settings from their `saved_tree`; a class of settings cannot be pickled."""
    return _build([Layer("settings", tree)])


@contextlib.contextmanager
def strategies_read_once() -> Iterator[None]:
    """Read each strategy file of the user once in the block, so that an edit does not change some of its runs."""
    token = _STRATEGY_FILES.set({})
    try:
        yield
    finally:
        _STRATEGY_FILES.reset(token)


def strategy_sets(strategy: str, key: str) -> bool:
    """Whether a strategy itself sets a dotted key."""
    tree: Any = _read_overlay(strategy, "strategy", "strategies").tree
    for name in key.split("."):
        if not isinstance(tree, dict) or name not in tree:
            return False
        tree = tree[name]
    return True


def _build(layers: list[Layer]) -> Settings:
    merged = merge(layers)
    names = []
    for (section, key), find in zip(_NAMES, (models.find, negatives.find, losses.find), strict=True):
        names.append(_name(merged, section, key))
        try:
            find(names[-1])
        except UsageError as error:
            raise UsageError(f"{_place(merged, section, key)}{error}") from error
    settings = build(settings_class(*names), layers, merged=merged)
    check_nested(settings.negatives, ("negatives",), merged[1])
    return settings


def settings_class(model: str, source: str, loss: str) -> type[Settings]:
    """The Settings class whose sections have the keys of these components and of the model's task."""
    task = tasks.find_for_model(model)
    return _class_of(("model", models.find(model).Config), ("negatives", negatives.find(source).Config),
                     ("loss", losses.find(loss).Config), (task.section, task.Config), ("evaluate", task.Evaluate))


@lru_cache(maxsize=256)  # a comparison resolves the settings of each cell, and pydantic takes milliseconds for a class
def _class_of(*sections: tuple[str, type[Section]]) -> type[Settings]:
    fields: Any = {name: (section, default_settings(section)) for name, section in sections}
    return create_model("Settings", __base__=Settings, **fields)


def contradiction(place: object, key: str, value: str, trained: str, command: str = "embtrain fit") -> UsageError:
    """Return the error for a setting of a run that is not the one of its checkpoint.

    place: of the key. command: trains another run with the value.
    """
    return UsageError(f"{place}: {key}: {value}: the checkpoint was trained with {trained}; restore {trained}; to "
                      f"train another run with {value}: {command}")


def _check_names(folder: Path, saved: Layer) -> None:
    """Raise UsageError if the settings of a run name another model, source or loss than its newest checkpoint."""
    trained, (tree, places) = checkpoint.peek(folder / "checkpoints", "settings"), merge([saved])
    for keys in _NAMES:
        section, key = tree.get(keys[0]), ".".join(keys)
        name = section.get(keys[1]) if isinstance(section, dict) else None
        if isinstance(trained, dict) and isinstance(name, str) and trained.get(key, name) != name:
            raise contradiction(places[keys], key, printable(name), str(trained[key]))


def _check_rates(settings: Settings, own_layers: Sequence[Layer]) -> None:
    """Raise UsageError for a final learning rate above the first one, or burn-in epochs that are all epochs."""
    places, train = merge(own_layers)[1], settings.train
    if (place := places.get(("train", "burn_in"))) is not None and train.burn_in >= train.epochs:
        raise UsageError(f"{place}: train.burn_in: {train.burn_in}: all train.epochs: {train.epochs} would train at a "
                         "tenth of the learning rate; set fewer, or lower train.lr")
    if (place := places.get(("train", "min_lr"))) is not None and train.min_lr > train.lr:
        raise UsageError(f"{place}: train.min_lr: {train.min_lr:g}: is above train.lr: {train.lr:g}, from which the "
                         f"rate falls to it; set at most {train.lr:g}, or raise train.lr")


def _name(merged: Merged, section: str, key: str = "name") -> str:
    """Return the name that a section states. Invalid mappings and values pass here; `build` rejects them."""
    value = merged[0].get(section)
    value = value.get(key) if isinstance(value, dict) else value
    if not isinstance(value, str):
        raise UsageError(f"{_place(merged, section, key)}{section}.{key}: should be a name, got "
                         f"{describe_value(value)}")
    return value


def _place(merged: Merged, *keys: str) -> str:
    """`file:line:column: ` of a key or of its section; empty if no layer has it."""
    return f"{place}: " if (place := merged[1].get(keys) or merged[1].get(keys[:-1])) else ""


def _set_layer(text: str, flag_names: Mapping[str, str]) -> Layer:
    """The layer of one --set, under the name that errors use."""
    name = flag_names.get(flag := f"--set {printable(text)}", flag)
    try:
        return replace(from_set(text), name=name)
    except UsageError as error:
        raise UsageError(*(line.replace(flag, name) for line in error.args)) from error


def _unknown_keys(strategy: Mapping[str, Any], model: str) -> list[str]:
    """Keys of a shipped strategy that the model and its task do not have.

    In a user's own file this key may be a typo, which `build` reports.
    """
    try:
        config, task = models.find(model).Config, tasks.find_for_model(model)
    except UsageError:                                       # `_build` reports it with its place
        return []
    known: dict[str, type[Section]] = {"model": config, task.section: task.Config, "evaluate": task.Evaluate}
    unknown: list[str] = []
    for section, keys in strategy.items():
        if section in known and isinstance(keys, dict):
            unknown += [f"{section}.{key}" for key in keys if key not in known[section].model_fields]
        elif section not in Settings.model_fields and section not in known:
            unknown.append(section)
    return unknown


def _read_overlay(name: Any, key: str, folder: str, place: str = "") -> Layer:
    """Read the overlay of a name, or the user's file if the name is the path of a YAML file."""
    if not isinstance(name, str):
        raise UsageError(f"{place}{key}: should be a name, got {describe_value(name)}")
    if name.endswith((".yaml", ".yml")):
        if name not in (layers := _STRATEGY_FILES.get({})):
            layers[name] = read_yaml(Path(name))
        return layers[name]
    try:
        return models.default_settings(name) if folder == "models" else read_yaml(shipped.path("configs", name, folder))
    except UsageError as error:
        raise UsageError(f"{place}{key}: {error}") from error


def _read_tuned(model: str, defaults: Sequence[Layer], own_layers: Sequence[Layer]) -> Layer:
    """Read the tuned settings of a model for the corpus that the layers name. own_layers: what the user sets.

    UsageError if there are none, or if the user names a strategy or a loss.
    """
    corpora, corpus = shipped.tuned_names(), str(merge([*defaults, *own_layers])[0].get("corpus"))
    if model not in corpora:
        raise UsageError(f"--tuned: {model} has no tuned settings; leave it out, or choose a model that has: "
                         f"{', '.join(corpora)}")
    if corpus not in corpora[model]:
        raise UsageError(f"--tuned: {model} has no tuned settings for the corpus {printable(corpus)}; leave it out, or "
                         f"choose a corpus that has: {', '.join(corpora[model])}")
    for keys in (("strategy",), ("loss", "name")):
        if place := merge(own_layers)[1].get(keys):
            raise UsageError(f"{place}: {'.'.join(keys)}: --tuned names the strategy and the loss; remove one of them")
    return read_yaml(shipped.path("configs", f"{model}-{corpus}", "tuned"))


def _drop_own_loss(strategy: Layer, loss: str | None) -> Layer:
    """The strategy without the settings of its own loss if --loss names another one."""
    own_loss = strategy.tree.get("loss")
    if loss is None or not isinstance(own_loss, dict) or own_loss.get("name") == loss:
        return strategy
    general = {key: value for key, value in own_loss.items() if key in losses.LossConfig.model_fields and key != "name"}
    return Layer(strategy.name, strategy.tree | {"loss": general}, strategy.marks)


def _drop_unknown(strategy: Layer, own: Mapping[str, Any]) -> Layer:
    """The strategy without keys that the source and loss have not which the user names in place of its own.

    own: merged tree of the user's layers.
    """
    tree = dict(strategy.tree)
    for section, key, find in (("negatives", "source", negatives.find), ("loss", "name", losses.find)):
        given, keys = own.get(section), tree.get(section)
        name = given.get(key) if isinstance(given, dict) else None
        if isinstance(name, str) and isinstance(keys, dict) and keys.get(key, name) != name:
            with contextlib.suppress(UsageError):            # `_build` reports an unknown name
                known = {key, *(info.alias or field for field, info in find(name).Config.model_fields.items())}
                tree[section] = {field: value for field, value in keys.items() if field in known}
    return replace(strategy, tree=tree)
