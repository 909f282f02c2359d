"""The file of `save` of Word2Vec and FastText: one safetensors file with its own sha256, and no pickle.

    vectors, contexts  (V, D) float32, input and output table; missing before build_vocab
    ngrams             (B, D) float32, rows of the n-grams of a FastText
    counts             (V,) int64
    learned            (bytes,) uint8, the states of the source and of the loss; missing before `train`
    model              (bytes,) uint8, JSON: class, words, arguments of the constructor, attributes; a strategy is a
                       name or the content of its YAML
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import safetensors

from embtrain.common import machine
from embtrain.common.config import Layer
from embtrain.common.errors import DataError, UsageError, read_error
from embtrain.common.files import write_atomically
from embtrain.data.storage import checksummed
from embtrain.gensim.errors import MissingFileError
from embtrain.gensim.values import checked_output, checked_path
from embtrain.train.state import serialize

_log = logging.getLogger("embtrain")
FORMAT = 1
_PICKLE = b"\x80"  # first byte of a pickle; of a safetensors file, it can be part of a length before the header
_NOT_JSON = RecursionError, TypeError, ValueError  # nested too deeply; a key that is a tuple; a long integer, a cycle
_REMEDY = "give a file that `save` of embtrain's Word2Vec or FastText wrote"


@dataclass(frozen=True)
class SavedModel:
    """Content of a file. Tables are None before build_vocab."""

    kind: str                       # Word2Vec or FastText
    arguments: dict[str, Any]       # of the constructor
    state: dict[str, Any]           # attributes, as `plain_attributes` returns them
    words: list[Any]                # V, str or int
    counts: np.ndarray              # (V,) int64
    vectors: np.ndarray | None      # (V, D) float32
    contexts: np.ndarray | None     # (V, D) float32
    ngrams: np.ndarray | None       # (B, D) float32; None: a Word2Vec
    learned: dict[str, Any] | None  # states of the source and of the loss; None before `train`


def write(path: str | os.PathLike, model: SavedModel) -> None:
    """Write a file.

    UsageError for a word that is neither text nor an integer, and for a value that JSON lacks; the errors of
    checked_output.
    """
    target = checked_output("fname", path)
    words = [word.item() if isinstance(word, np.generic) else word for word in model.words]
    for word in words:
        if type(word) not in (str, int):
            raise UsageError(f"save: the word {word!r:.60}: only strings and integers can be saved; train on strings")
    for name, value in model.arguments.items():
        try:
            _to_json(value)
        except _NOT_JSON as error:
            raise UsageError(f"save: {name}: JSON cannot store it: {error}; set a number or text") from error
    tree = {"format": FORMAT, "words": words, **{key: getattr(model, key) for key in ("kind", "arguments", "state")}}
    try:
        content = _to_json(tree).encode()
    except _NOT_JSON as error:
        raise UsageError(f"save: words: JSON cannot store them: {error}; train on strings") from error
    arrays: dict[str, np.ndarray] = {
        "model": np.frombuffer(content, np.uint8), "counts": model.counts.astype(np.int64)}
    for name, table in (("vectors", model.vectors), ("contexts", model.contexts), ("ngrams", model.ngrams)):
        if table is not None:
            arrays[name] = table.astype(np.float32, copy=False)
    if model.learned is not None:
        arrays["learned"] = np.frombuffer(serialize.to_bytes(model.learned), np.uint8)
    with write_atomically(target) as file:
        file.writelines(checksummed.file_chunks(arrays))


def read(path: str | os.PathLike, kind: str) -> SavedModel:
    """Read a file of `write`.

    Raises MissingFileError, or DataError if it is damaged, of another class than `kind`, or a pickle; the errors of
    checked_path.
    """
    path = checked_path("fname", path)
    try:
        with open(path, "rb") as file:
            if (head := file.read(9)).startswith(_PICKLE) and head[8:] != b"{":
                raise DataError(f"{path}: is a pickle, which can run code when it is read; in gensim, save its vectors "
                                "with wv.save_word2vec_format and load these")
        if (size := path.stat().st_size) > machine.total():
            raise DataError(f"{path}: {size:,} bytes do not fit into memory; use a machine with more")
        with safetensors.safe_open(path, framework="numpy") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  safe_open is not a dict
            metadata = file.metadata()
    except FileNotFoundError as error:
        raise MissingFileError(f"{path}: cannot be read: {error}; {_REMEDY}") from error
    except (OSError, safetensors.SafetensorError) as error:
        raise read_error(path, error, f"cannot be read: {error}; {_REMEDY}") from error
    checksummed.check(path, metadata, arrays)
    try:
        tree = json.loads(arrays["model"].tobytes())
        if tree["format"] != FORMAT:
            raise DataError(f"{path}: format {tree['format']!r:.20} is unknown; this version supports {FORMAT}")
        if tree["kind"] != kind:
            raise DataError(f"{path}: is a {tree['kind']!s:.20}; read it with embtrain.gensim's class of that name")
        for values, name in ((tree["arguments"], "negatives"), (tree["state"], "_strategy")):
            if isinstance(strategy := values.get(name), dict):
                values[name] = Layer(strategy["name"], strategy["tree"])
        learned = serialize.from_bytes(arrays["learned"].tobytes(), str(path)) if "learned" in arrays else None
        model = SavedModel(kind, tree["arguments"], tree["state"], tree["words"], arrays["counts"],
                           arrays.get("vectors"), arrays.get("contexts"), arrays.get("ngrams"), learned)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: contains no model; {_REMEDY}") from error
    tables = [table for table in (model.vectors, model.contexts) if table is not None]
    if len(model.counts) != len(model.words) or any(len(table) != len(model.words) for table in tables):
        raise DataError(f"{path}: its tables and words differ in number; {_REMEDY}")
    return model


def plain_attributes(model: object, rebuilt: Collection[str]) -> dict[str, Any]:
    """Return the attributes of a model that JSON stores unchanged. Others are left out with a warning.

    rebuilt: names of those that `load` restores otherwise.
    """
    state = {name: value for name, value in vars(model).items() if name not in rebuilt}
    for name, value in list(state.items()):
        reason = ""
        try:
            is_plain = _is_plain(value) and bool(_to_json(value))
        except _NOT_JSON as error:
            is_plain, reason = False, f": {error}"
        if not is_plain:
            _log.warning("save: %s: a %s is not saved%s; set numbers, text, or lists and dicts of these", name,
                         type(value).__name__, reason)
            del state[name]
    return state


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(type(key) is str and _is_plain(item) for key, item in value.items())
    if isinstance(value, list):
        return all(map(_is_plain, value))
    if isinstance(value, np.generic):
        value = value.item()
    return value is None or isinstance(value, (str, int, float, Layer))


def _to_json(value: Any) -> str:
    return json.dumps(value, default=_plain)


def _plain(value: Any) -> Any:
    """Convert a NumPy number, as searches produce, to a Python number, a path to text, a strategy to a mapping.

    TypeError for other values.
    """
    if isinstance(value, Layer):
        return {"name": value.name, "tree": value.tree}
    if isinstance(value, np.generic) and not isinstance(number := value.item(), np.generic):
        return number  # of longdouble, `item` is a longdouble
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"contains a {type(value).__name__}")
