"""Losses in a file of the user: a wrong result is one line with file and line number, never another objective."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.worlds import DOUBLE

from embtrain.common.errors import EmbtrainError, UsageError
from embtrain.common.types import LossInput, Negatives, ProblemSpec, Query
from embtrain.losses import base as losses

B, K, V = 6, 3, 5
LOSS = """import torch
from embtrain.losses.base import Loss
from embtrain.losses.logistic import Logistic


class Own(Logistic):
    name = "own"

    def example(self, scored):
        return super().example(scored)
"""
Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a file and names it in EMBTRAIN_PLUGINS."""
    def write_file(text: str) -> Path:
        path = tmp_path / "own.py"
        path.write_text(text)
        monkeypatch.setenv("EMBTRAIN_PLUGINS", str(path))
        return path
    return write_file


def _made() -> losses.Loss:
    found = losses.find("own")
    return found(found.Config(name="own"), ProblemSpec(V, torch.ones(V, dtype=DOUBLE)))


def _scored() -> LossInput:
    ids, row = torch.arange(B) % V, torch.arange(B) // 2
    query = Query(torch.zeros(B, 2), torch.zeros(B, dtype=torch.int64), ids, torch.zeros(B, dtype=torch.int64))
    drawn = Negatives(torch.zeros(B // 2, K, dtype=torch.int64), draw_id=row)
    return LossInput(torch.randn(B, generator=torch.Generator().manual_seed(1)).requires_grad_(),
                     torch.randn(B // 2, K, generator=torch.Generator().manual_seed(2)).requires_grad_(), drawn, query,
                     row)


def _hook(text: str, name: str = "example", arguments: str = "scored") -> str:
    return LOSS.replace("    def example(self, scored):\n        return super().example(scored)\n",
                        f"    def {name}(self{arguments and f', {arguments}'}):\n        {text}\n")


SHAPE = rf"return floats of shape \({B},\), the loss of each example"


@pytest.mark.parametrize(("result", "message"), [
    ("scored.pos.unsqueeze(1) + scored.neg.sum()", rf"returned torch\.float32 of shape \({B}, 1\); {SHAPE}"),
    ("scored.neg", rf"returned torch\.float32 of shape \({B // 2}, {K}\); {SHAPE}"),
    ("scored.neg.sum(0)", rf"returned torch\.float32 of shape \({K},\); {SHAPE}"),
    ("scored.pos.sum()", rf"returned torch\.float32 of shape \(\); {SHAPE}"),
    ("scored.pos.long()", rf"returned torch\.int64 of shape \({B},\); {SHAPE}"),
    ("None", f"returned NoneType; {SHAPE}"), ("1.0", f"returned float; {SHAPE}"),
    ("scored.pos.detach()", "returned a loss without a gradient; compute it from pos and neg")])
def test_a_loss_of_another_shape_is_refused(write: Write, result: str, message: str) -> None:
    path = write(_hook(f"return {result}"))
    with pytest.raises(UsageError, match=rf"^{path}:9: loss\.name: own: example {message}") as wrong:
        _made()(_scored())
    assert "\n" not in str(wrong.value)


@pytest.mark.parametrize("result", ["None", "scored.pos", "scored.neg.long()"])
def test_costs_of_another_shape_are_refused(write: Write, result: str) -> None:
    path = write(_hook(f"return {result}", "negative"))
    message = rf"negative returned .*; return floats of shape \({B // 2}, {K}\), the cost of each negative$"
    with pytest.raises(UsageError, match=rf"^{path}:9: loss\.name: own: {message}"):
        _made()(_scored())


@pytest.mark.parametrize(("name", "arguments", "result", "message"), [
    ("metrics", "", "None", r"returned NoneType; return a dict of names and numbers, {} for none"),
    ("metrics", "", "{'a': torch.ones(())}", r"returned Tensor for 'a'; return a number for each name, as float\("),
    ("metrics", "", "{'a': '1'}", "returned str for 'a'; return a number"),
    ("metrics", "", "{1: 1.0}", "returned float for 1; return a number"),
    ("logit", "score, query", "score.sum()", r"returned torch\.float32 of shape \(\); return floats of shape \(6, 3\)"),
    ("unnormalized", "score, query", "None", r"returned NoneType; return floats of shape \(6, 3\), one for each score"),
    ("log_scale", "query", "torch.zeros(6)", r"returned .*\(6,\); return floats of shape \(6, 1\), .*, or None"),
    ("log_partition", "query", "torch.zeros(())", r"returned .*\(\); return floats of shape \(6,\), .*, or None"),
    ("negative_weights", "scored", "scored.pos", r"returned .*\(6,\); return floats of shape \(3, 3\), .*, or None"),
    ("get_extra_state", "", "{'a': {1}}", r"returned set at \['a'\], which a checkpoint cannot contain; return"),
    ("forward", "scored", "scored.pos", "returned Tensor; implement example instead, or return LossOutput")])
def test_a_wrong_result_of_another_hook_is_refused(write: Write, name: str, arguments: str, result: str, message: str
                                                   ) -> None:
    path = write(_hook(f"return {result}", name, arguments))
    loss, scored = _made(), _scored()
    given = {"": (), "scored": (scored,), "query": (scored.query,), "score, query": (torch.zeros(B, K), scored.query)}
    with pytest.raises(UsageError, match=rf"^{path}:9: loss\.name: own: {name} {message}"):
        getattr(loss, name)(*given[arguments])


@pytest.mark.parametrize(("name", "arguments", "text", "message"), [
    ("example", "", "return 1", r"example: TypeError: .*takes 1 positional argument but 2 were given; correct it"),
    ("__init__", "config", "pass", r"__init__: TypeError: .*takes 2 positional arguments but 3 were given; correct it"),
    ("__init__", "config, problem", "torch.nn.Module.__init__(self)",
     r"__init__ leaves out the base class; call super\(\)\.__init__\(config, problem\) first"),
    ("__init__", "config, problem", "pass", r"__init__ leaves out the base class; call super\(\)")])
def test_a_hook_that_cannot_be_called_is_one_line(write: Write, name: str, arguments: str, text: str, message: str
                                                  ) -> None:
    path = write(_hook(text, name, arguments))
    with pytest.raises(UsageError, match=rf"^{path}:9: loss\.name: own: {message}"):
        _made()(_scored())


def test_a_correct_loss_has_the_values_of_the_base(write: Write) -> None:
    write(LOSS)
    own, scored = _made(), _scored()
    base = losses.find("logistic")
    expected = base(base.Config(name="logistic"), own.problem)(scored)
    assert torch.equal(own(scored).per_example, expected.per_example)
    assert torch.equal(own(scored).per_negative, expected.per_negative)
    with torch.no_grad():
        assert torch.equal(own(scored).per_example, expected.per_example)
    assert re.fullmatch(r"<class 'embtrain_plugin_\w{8}_own\.Own'>", str(type(own)))
    assert losses.find("logistic") is base and losses.find("own") is type(own)


def test_a_copy_of_an_own_loss_is_checked(write: Write) -> None:
    write(_hook("return scored.pos.sum()"))
    for loss in (copy.deepcopy(_made()), pickle.loads(pickle.dumps(_made()))):
        assert type(loss) is losses.find("own")
        with pytest.raises(EmbtrainError, match="example returned"):
            loss(_scored())


def test_a_loss_whose_base_registers_subclasses_is_registered_once(write: Write) -> None:
    write(LOSS.replace("class Own(Logistic)", "class Base(Loss):\n    seen = []\n"
                       "    def __init_subclass__(cls, **options):\n        super().__init_subclass__(**options)\n"
                       "        if cls.name in cls.seen:\n            raise ValueError('two losses are named own')\n"
                       "        cls.seen.append(cls.name)\n\n\nclass Own(Logistic, Base)"))
    own: Any = _made()
    assert own.seen == ["own"] and own(_scored()).per_example.isfinite().all()
