"""The arguments of gensim's Word2Vec and FastText as settings of a run.

KEYS maps each argument to its key, SUBWORD_KEYS those of FastText alone, CALL_KEYS those of `train`. An error names the
argument that the user set, then the key.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral
from types import NoneType
from typing import Any

import numpy as np

from embtrain import experiment
from embtrain.common import machine, shipped
from embtrain.common.config import Layer, Place, as_sets, from_set, read_yaml
from embtrain.common.config.arguments import argument_sets
from embtrain.common.config.shown import printable
from embtrain.common.errors import UsageError
from embtrain.data.text.corpus import TextConfig
from embtrain.experiment import Settings
from embtrain.experiment.api import Sets, sets_argument
from embtrain.gensim.errors import ArgumentError, ArgumentTypeError
from embtrain.gensim.values import NUMBERS, check_integer, check_number, wrong_type

KEYS = {"vector_size": "model.dim", "window": "text.window", "shrink_windows": "text.dynamic_window",
        "sample": "text.sample", "alpha": "train.lr", "min_alpha": "train.min_lr", "epochs": "train.epochs",
        "negative": "negatives.k", "ns_exponent": "negatives.exponent"}
SUBWORD_KEYS = {"min_n": "model.subword.min_n", "max_n": "model.subword.max_n", "bucket": "model.subword.buckets"}
CALL_KEYS = {"start_alpha": "train.lr", "end_alpha": "train.min_lr"}
STRATEGY_ARGUMENTS = ("negative", "ns_exponent")  # None: the strategy's own value, which a key of `sets` may change
MAX_LINE = 10_000  # words; gensim's own limit
MAX_SEED = 2**31
MAX_DIM = 65_536  # of model.dim
MAX_SAMPLE = 1e300  # gensim multiplies it
_INTEGER, _INTEGER_OR_NONE = ((Integral,), "an integer"), ((Integral, NoneType), "an integer or None")
_NUMBER_OR_NONE = (*NUMBERS, NoneType), "a number or None"
# Types of arguments that gensim's code uses, or that `resolve` does not check. True is a number, but not an integer.
_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "vector_size": _INTEGER, "epochs": _INTEGER, "min_count": (NUMBERS, "a number"), "max_vocab_size": _NUMBER_OR_NONE,
    "max_final_vocab": _INTEGER_OR_NONE, "seed": _INTEGER_OR_NONE, "null_word": _NUMBER_OR_NONE,
    "sorted_vocab": _NUMBER_OR_NONE, "shrink_windows": _NUMBER_OR_NONE,
    **dict.fromkeys(("sg", "hs", "cbow_mean"), (NUMBERS, "a number"))}
# No held-out text, scores or checkpoints; a log line per epoch, because each one evaluates a block again.
_FIXED: dict[str, Any] = {"text.valid": 0, "text.test": 0, "text.max_sequence": MAX_LINE, "evaluate.benchmarks": [],
                          "evaluate.neighbours": [], "evaluate.heldout_pairs": 0, "train.log_every": 2**40}
# Keys of arguments. In `sets` they have no effect, or change the training but not the attributes of the model.
_ARGUMENTS = {key: name for name, key in KEYS.items()} | {
    "text.min_count": "min_count", "text.max_size": "max_final_vocab", "train.seed": "seed", "train.threads": "workers",
    "model.name": "sg", "strategy": "negatives", "corpus": "sentences or corpus_file"}
_USED_TEXT_KEYS = {"text.sample_rule"}
# Keys of evaluations, checkpoints and starting values; here a call of `train` runs its epochs and nothing else.
_RUN_KEYS = {f"train.{name}" for name in (
    "cpu_seconds", "log_every", "evaluate_every", "patience", "checkpoint_every", "keep", "start", "start_new_rows",
    "parent", "sinks", "track_until")}


def checked_sets(sets: Sets | None, given: Mapping[str, Any]) -> list[str]:
    """Return `sets` as KEY=VALUE texts. ArgumentError for a key that an argument sets, or that has no effect.

    given: STRATEGY_ARGUMENTS by name; the keys of those that are None are accepted. Unknown keys pass.
    """
    try:
        lines = sets_argument(sets)
    except UsageError as error:
        raise ArgumentError(*error.args) from error
    for line in lines:
        try:
            tree = from_set(line).tree
        except UsageError:  # `resolve` reports it with the name `sets`
            continue
        for key in _dotted_keys(tree):
            name, (section, *rest) = _ARGUMENTS.get(key), key.split(".")
            if name in STRATEGY_ARGUMENTS:
                if given[name] is not None:
                    raise ArgumentError(f"sets: {key}: is the key of {name}, which is set; remove the key, or set "
                                        f"{name}=None")
            elif name:
                raise ArgumentError(f"sets: {key}: is the key of an argument; set {name} instead")
            if section == "text" and rest and rest[0] in TextConfig.model_fields and key not in _USED_TEXT_KEYS:
                raise ArgumentError(f"sets: {key}: has no effect, because sentences are lists of words, all of which "
                                    "are trained on; remove it")
            _refuse_run_key("sets", key)
    return lines


def _refuse_run_key(label: str, key: str) -> None:
    """Raise ArgumentError for a key of evaluations, checkpoints or starting values. label: its origin in the error."""
    if key in _RUN_KEYS or key.split(".")[0] == "evaluate":
        raise ArgumentError(f"{label}: {key}: works only in a run; remove it, or train with embtrain.fit")


def _dotted_keys(tree: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _dotted_keys(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def read_strategy(negatives: str | os.PathLike | Layer) -> str | Layer:
    """Return the name of a strategy, or the content of a YAML file. Raises ArgumentError or ArgumentTypeError.

    Layer: a content that was read before. Keys of a run are refused, as in `sets`.
    """
    if isinstance(negatives, Layer):
        for key in _dotted_keys(negatives.tree):
            place = Place(0, negatives.name, *negatives.marks.get(tuple(key.split(".")), (0, 0)))
            _refuse_run_key(f"{place}", key)
        return negatives
    try:
        name = os.fspath(negatives)
    except TypeError:  # neither text nor a path, or an object whose __fspath__ returns neither
        name = None
    if not isinstance(name, str):
        raise ArgumentTypeError(wrong_type("negatives", negatives, "the name of a strategy, or the path of its YAML"))
    is_file = name.endswith(shipped.RECIPE_SUFFIXES)
    try:
        if is_file:
            return read_strategy(read_yaml(name, name))
        shipped.path("configs", name, "strategies")
    except UsageError as error:
        raise ArgumentError(error.args[0] if is_file else f"negatives: {error.args[0]}") from error
    return name


def resolve(negatives: str | Layer, sg: int, arguments: Mapping[str, Any], sets: Sequence[str], seed: int, threads: int
            ) -> Settings:
    """Return the settings of a run.

    sg: 0 for CBOW, else skip-gram. arguments: values by the names of the keys. sets: KEY=VALUE texts, which come last.
    Raises ArgumentError with one line for each value that cannot work, ArgumentTypeError for one that is neither a
    number nor text.
    """
    try:
        return _resolve(negatives, sg, arguments, sets, seed, threads)
    except ArgumentTypeError:
        raise
    except UsageError as error:
        raise ArgumentError(*error.args) from error


def _resolve(negatives: str | Layer, sg: int, arguments: Mapping[str, Any], sets: Sequence[str], seed: int, threads: int
             ) -> Settings:
    for name, value in arguments.items():
        if not isinstance(value, str):
            check_number(name, value)
    own, names = argument_sets(KEYS | SUBWORD_KEYS | CALL_KEYS, arguments)
    names |= {"--negatives": "negatives"} | {f"--set {printable(text)}": f"sets: {printable(text)}" for text in sets}
    settings = experiment.resolve(negatives, "skipgram" if sg else "cbow", "sentences", seed=seed, threads=threads,
                                  sets=[*as_sets(_FIXED), *own, *sets], flag_names=names)
    subword = getattr(settings.model, "subword", None)
    expected = {key.rpartition(".")[2]: arguments[name] for name, key in SUBWORD_KEYS.items() if name in arguments}
    if (subword.model_dump() if subword else {}) != (expected | {"pooling": "mean"} if expected else {}):
        raise ArgumentError("sets: model.subword: is set by arguments alone; use FastText with min_n, max_n and "
                            "bucket, whose vectors are means")
    return settings


def set_by_user(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that replace values of the strategy. gensim refuses negative=0 when it trains."""
    is_zero = isinstance(given["negative"], NUMBERS) and given["negative"] == 0
    names = STRATEGY_ARGUMENTS[1:] if is_zero else STRATEGY_ARGUMENTS
    return {name: given[name] for name in names if given[name] is not None}


def strategy_values(settings: Settings) -> dict[str, Any]:
    """Return the arguments that a strategy sets. ns_exponent: gensim's default if the source has no exponent."""
    return {"negative": settings.negatives.k, "ns_exponent": getattr(settings.negatives, "exponent", 0.75)}


def check_values(values: Mapping[str, Any]) -> None:
    """Check arguments, or the attributes of a model, before gensim's code uses them. values: by name.

    ArgumentTypeError for a value of another type, ArgumentError for an `sg`, `hs` or `cbow_mean` other than 0 and 1, a
    `vector_size` out of range, a `min_count` of NaN, a seed that NumPy refuses, a `sample` that `sample_threshold`
    refuses, and for CBOW with sums and the hierarchical softmax, which embtrain does not have.
    """
    check_rule(values.get("trim_rule"))  # an argument, but not an attribute
    for name in _TYPES:
        check_type(name, values[name])
    for name in ("sg", "hs", "cbow_mean"):
        check_number(name, value := values[name])
        if value not in (0, 1):
            raise ArgumentError(f"{name}={value!r}: should be 0 or 1")
    check_number("vector_size", values["vector_size"])  # Python cannot print 10**5000
    if not 1 <= values["vector_size"] <= MAX_DIM:
        raise ArgumentError(f"vector_size={values['vector_size']}: should be 1 to {MAX_DIM:,}")
    if values["min_count"] != values["min_count"]:  # math.isnan refuses 10**400
        raise ArgumentError("min_count=nan: should be a number, because no count is NaN or more")
    if values["seed"] is not None and not 0 <= values["seed"] < 2**32:
        raise ArgumentError(f"seed: should be 0 to {2**32 - 1:,}, or None for a random one")
    sample_threshold(values["sample"], 1)
    if not values["sg"] and not values["cbow_mean"]:
        raise ArgumentError(f"cbow_mean={values['cbow_mean']}: the sum of the context is not implemented; set "
                            "cbow_mean=1, which takes its mean")
    if values["hs"]:
        raise ArgumentError(f"hs={values['hs']}: the hierarchical softmax is not implemented; set hs=0 and negative=5")


def check_rule(trim_rule: object) -> None:
    """Raise ArgumentTypeError for a `trim_rule` that is neither a function nor None."""
    if not (trim_rule is None or callable(trim_rule)):
        raise ArgumentTypeError(wrong_type("trim_rule", trim_rule, "a function or None"))


def check_type(name: str, value: object) -> None:
    """Raise ArgumentTypeError for an argument or attribute of a type that cannot work."""
    kinds, expected = _TYPES[name]
    if not isinstance(value, kinds) or (isinstance(value, bool) and int not in kinds):
        raise ArgumentTypeError(wrong_type(name, value, expected))


def call_rate(name: str, value: float | None, model_name: str, model_value: float) -> tuple[str, float]:
    """Return the name and value of a rate of `train`: the model's for None and 0. Raises the errors of check_number."""
    check_number(name, 0 if value is None else value)
    if value:
        return name, value
    check_number(model_name, model_value)
    return model_name, model_value


def sample_threshold(sample: Any, total: int) -> Any:
    """Return text.sample for gensim's `sample`. At 1 or more that is a count, to be divided by `total` tokens.

    None: 0, no subsampling. ArgumentTypeError for texts, which gensim does not convert, and other values that are not
    numbers, ArgumentError for NaN, and numbers that are negative or too large.
    """
    if sample is None:
        return 0
    check_number("sample", sample)
    if not 0 <= float(sample) <= MAX_SAMPLE:
        raise ArgumentError(f"sample={sample!r}: should be a number from 0 to {MAX_SAMPLE}; set 0 for no subsampling")
    return min(1.0, int(float(sample) * (3 + 5 ** .5) / 2) / max(total, 1)) if sample >= 1 else sample or 0


def n_threads(workers: int, batch_words: float, n_words: int) -> int:
    """Return the threads of a text: at most `workers`, one per core and per batch, which gensim hands to its workers.

    ArgumentTypeError or ArgumentError for workers below 1 and for a batch_words that is not a number.
    """
    check_integer("workers", workers)
    check_number("batch_words", batch_words)
    if workers < 1:
        raise ArgumentError(f"workers={workers}: should be 1 or more")
    return min(workers, machine.usable_cores(), max(1, math.ceil(n_words / max(1, batch_words))))


def call_seed(seed: int | None, call: int) -> int:
    """Return the seed of call number `call` of `train`: `seed` itself for the first one, random for None."""
    if seed is not None and call == 0 and seed < MAX_SEED:
        return seed
    entropy = None if seed is None else [seed, call]
    return int(np.random.SeedSequence(entropy).generate_state(1)[0]) % MAX_SEED
