"""Wrong arguments and states of embtrain.nn end in one line that names the argument."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from helpers.looped import looped
from torch import Tensor, nn

import embtrain.nn as sampled
from embtrain.common.errors import UsageError
from embtrain.common.types import ProblemSpec
from embtrain.negatives import base as negatives
from embtrain.nn.arguments import dense_tensor, float_tensor
from embtrain.nn.module import SampledLoss
from embtrain.nn.state import from_tensor, to_tensor

V, D, B = 40, 8, 12
IDS = torch.arange(B)


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape) + shape[0])).to(dtype)


def make(source: str = "unigram", **options: Any) -> SampledLoss:
    options = {"num_classes": V, "num_sampled": 5, "counts": torch.arange(1, V + 1), **options}
    if source in ("ace", "kbgan", "nscaching"):
        options = {"num_contexts": B, **options}
    return sampled.NegativeSampling(source, **options)


def call(loss: SampledLoss, dim: int = D, dtype: torch.dtype = torch.float32, has_bias: bool = False) -> Tensor:
    bias = torch.zeros(V, dtype=dtype) if has_bias else None
    return loss(normal(B, dim, dtype=dtype), normal(V, dim, dtype=dtype), IDS, bias, context=IDS)


def refusal(action: Callable[[], object]) -> str:
    """The one line of the UsageError that an action raises."""
    with pytest.raises(UsageError) as caught:
        action()
    line, = caught.value.args
    return line


# -- the arguments of a module ----------------------------------------------------------------------------------------

WHOLE = "should be a whole number"
COUNTS = "should be 40 numbers of at least 0"


@looped("name, value, words", [
    *(("num_classes", value, WHOLE) for value in ("40", 40.0, None, True, 1)),
    *(("refresh", value, WHOLE) for value in (0.5, -7, "a", None)),
    *(("seed", value, WHOLE) for value in (True, 1.0, None)), ("seed", 2**70, "should be at most 18446744073709551615"),
    *(("ignore_index", value, WHOLE) for value in ("a", 1.5, True)),
    *(("num_contexts", value, WHOLE) for value in (-1, 0, 2.5, "ab", (), (3, 0))),
    *(("counts", value, COUNTS) for value in (["a"] * V, {}, "abc", 5, [1j] * V, torch.ones(V) * 1j, np.ones(V) * 1j)),
    *(("counts", [*[1.0] * 7, value, -5.0, *[1.0] * (V - 9)],
       f"entry 7 is {value}; it should be a finite number of at least 0") for value in (-1.0, np.nan, np.inf)),
    ("counts", torch.zeros(V), "all are 0; give each class that occurs a count above 0, or leave counts out"),
    ("counts", [1.0] * (V + 1), f"one for each class, and not all 0; got the shape ({V + 1},)"),
    ("counts", torch.ones(V).to_sparse(), "has the layout torch.sparse_coo"),
    ("negatives", None, "is None; it should be the name of a source, or a source"),
    ("negatives", negatives.find("unigram"), "is the class Unigram; it should be the name of a source"),
    *(("share", value, "should be one of row, query, block, batch") for value in (["row"], 5, {})),
    *(("similarity", value, "should be one of dot, cosine") for value in (["dot"], np.ones(2), None)),
    *(("reduction", value, "should be one of mean, sum, none") for value in (["mean"], None)),
    *(("loss_options", value, "it should be a mapping of keys to values") for value in ([1], "a", 5)),
    *(("loss", value, "it should be the name of a loss") for value in (5, [])),
    *(("sparse", value, "should be True or False") for value in ("no", None, 2)), ("frozen", "no", "should be True or"),
])
def test_a_wrong_argument_of_a_module_is_named(name: str, value: object, words: str) -> None:
    options = {"negatives": "unigram", "num_classes": V, name: value}
    line = refusal(lambda: SampledLoss(**options))  # type: ignore[arg-type]
    assert line.startswith(f"{name}: ") and words in line


@pytest.mark.parametrize("convert", [np.int64, torch.tensor, int])
def test_integers_of_numpy_and_of_a_tensor_are_accepted(convert: Callable[[int], Any]) -> None:
    kwargs = {name: convert(value) for name, value in (("num_classes", V), ("seed", 3), ("refresh", 2),
                                                       ("ignore_index", -100), ("num_contexts", B))}
    assert torch.equal(call(make(**kwargs)), call(make(seed=3)))


def test_counts_that_require_a_gradient_are_counts() -> None:
    assert torch.equal(call(make(counts=torch.ones(V, requires_grad=True))), call(make(counts=torch.ones(V))))


# -- the tensors of a call --------------------------------------------------------------------------------------------

QUERY, WEIGHT = normal(B, D), normal(V, D)
NOT_FLOATS: list[Any] = [QUERY.numpy(), None, QUERY.tolist(), QUERY.long(), QUERY.bool(), QUERY.cfloat(),
                         QUERY.to_sparse(), QUERY.to(torch.float8_e4m3fn)]
NOT_IDS: list[Any] = [IDS.tolist(), IDS.numpy(), 3, IDS.float(), IDS.int(), IDS[0], IDS.view(1, 3, 4), IDS.to_sparse()]


@looped("name, value", [
    *(("query", value) for value in NOT_FLOATS),
    *(("weight", value) for value in (WEIGHT.numpy(), None, WEIGHT.tolist(), WEIGHT.long(), WEIGHT.bool(),
                                      WEIGHT.cfloat(), WEIGHT.to_sparse(), nn.Linear, nn.LazyLinear(V), "a",
                                      nn.EmbeddingBag(V, D, sparse=True), nn.Bilinear(D, D, V))),
    *(("bias", value) for value in ([0.0] * V, np.zeros(V), torch.zeros(V).cfloat(), 0.0)),
    *(("target", value) for value in (*NOT_IDS, None)), *(("context", value) for value in NOT_IDS),
    *(("candidates", value) for value in NOT_IDS if value is not None), ("candidates", sampled.Candidates(None)),
    ("candidates", IDS[:0]),
])
def test_a_wrong_tensor_of_a_call_is_named(name: str, value: object) -> None:
    arguments = {"query": QUERY, "weight": WEIGHT, "target": IDS, name: value}
    assert refusal(lambda: make()(**arguments)).startswith(f"{name}: ")


@looped("setting, value", [("padding_idx", 0), ("max_norm", 0.5), ("scale_grad_by_freq", True)])
def test_settings_of_an_embedding_that_scores_do_not_have_are_refused(setting: str, value: object) -> None:
    layer = nn.Embedding(V, D, sparse=True, **{setting: value})  # type: ignore[arg-type]
    line = refusal(lambda: make()(QUERY, layer, IDS))
    assert line.startswith(f"weight: {setting}={value} of this nn.Embedding has no effect on scores; pass its .weight")
    loss = make(sparse=True)(QUERY, layer.weight, IDS)                     # the remedy
    loss.backward()
    assert layer.weight.grad is not None and layer.weight.grad.is_sparse


@looped("value", [*NOT_IDS, None, torch.zeros(3, 4, dtype=torch.int64), IDS + V])
def test_wrong_ids_of_log_prob_are_named(value: Any) -> None:
    assert refusal(lambda: make().log_prob(QUERY, WEIGHT, value)).startswith("ids: ")


@looped("name, value", [*(("query", value) for value in NOT_FLOATS), ("query", QUERY[0, 0]),
                        ("target", IDS.view(B, 1).expand(B, 2)), ("target", IDS.tolist())])
def test_a_wrong_tensor_of_log_prob_is_named(name: str, value: Any) -> None:
    arguments = {"query": QUERY, "weight": WEIGHT, "ids": IDS, name: value}
    assert refusal(lambda: make().log_prob(**arguments)).startswith(f"{name}: ")


@looped("name, value", [
    ("query", QUERY), ("target", IDS), ("context", IDS), ("bias", torch.zeros(V)), ("candidates", IDS),
    ("candidates: log_q", sampled.Candidates(IDS, torch.zeros(B, device="meta"))),
    ("candidates: log_q_target", sampled.Candidates(IDS, torch.zeros(B), torch.zeros(B, device="meta")))])
def test_a_tensor_on_another_device_is_named(name: str, value: Any) -> None:
    argument = name.partition(":")[0]
    arguments = {"query": QUERY, "weight": WEIGHT, "target": IDS,
                 argument: value.to("meta") if isinstance(value, Tensor) else value}
    line = refusal(lambda: make()(**arguments))
    assert line.startswith(name) and "is on meta, but the weight is on cpu; move one of them" in line


@looped("on_meta", [("weight",), ("query", "weight"), ("query", "weight", "target")])
def test_a_weight_without_values_is_refused(on_meta: tuple[str, ...]) -> None:
    tensors = {"query": QUERY, "weight": WEIGHT, "target": IDS}
    arguments = {name: value.to("meta") if name in on_meta else value for name, value in tensors.items()}
    assert refusal(lambda: make()(**arguments)).startswith("weight: is on meta, where no loss can be computed")


@looped("on_meta, named", [
    (("query",), "query"), (("ids",), "ids"), (("target",), "target"), (("weight",), "ids"),
    (("query", "weight", "ids", "target"), "weight")])
def test_a_tensor_of_log_prob_on_another_device_is_named(on_meta: tuple[str, ...], named: str) -> None:
    tensors = {"query": QUERY, "weight": WEIGHT, "ids": IDS, "target": IDS}
    arguments = {name: value.to("meta") if name in on_meta else value for name, value in tensors.items()}
    assert refusal(lambda: make().log_prob(**arguments)).startswith(f"{named}: is on ")


@looped("name", ["vmf", "power_spherical"])
def test_a_loss_of_directions_needs_two_columns(name: str) -> None:
    loss = SampledLoss("none", num_classes=V, loss=name, frozen=True)
    line = refusal(lambda: loss(normal(B, 1), torch.ones(V, 1), IDS))
    assert line.startswith(f"weight: 1 column: loss {name} needs directions") and line.endswith("set 2 or more")


def test_checks_of_tensors_read_no_values() -> None:
    """Values of a tensor on `meta` cannot be read, as those on CUDA cannot without waiting."""
    dense_tensor("x", torch.empty(3, device="meta", dtype=torch.int64))
    float_tensor("x", torch.empty(3, device="meta"))


# -- states and vectors that do not fit -------------------------------------------------------------------------------

@looped("source, saved, ours, words", [
    ("cluster", {}, {"clusters": 4}, "clusters: the state was saved with 0, this module has 4; load it into"),
    ("rff", {}, {"features": 64}, "features: the state was saved with 1024, this module has 64; load it into"),
    ("memory", {"size": 4096}, {"size": 2048}, "size: the state was saved with 4096, this module has 2048; load"),
    *((source, {}, {"num_contexts": 15}, "num_contexts: the state has 12, this module has 15; load it into a module")
      for source in ("ace", "kbgan", "nscaching")),
    ("ace", {}, {"num_contexts": (B,), "hidden": 4}, "hidden: the state was saved with 31, this module has 4; load"),
])
def test_a_state_of_other_arguments_is_refused_when_loaded(source: str, saved: Mapping[str, Any],
                                                           ours: Mapping[str, Any], words: str) -> None:
    loss = make(source, **saved)
    call(loss)
    assert refusal(lambda: make(source, **ours).load_state_dict(loss.state_dict())).startswith(words)


@looped("source, ours", [("unigram", {"exponent": 0.5}), ("uniform", {"num_contexts": 15}),
                         ("cluster", {"num_sampled": 7}), ("cluster", {"share": "row"}),
                         ("cluster", {"filter": "none"})])
def test_settings_that_no_state_depends_on_may_differ(source: str, ours: Mapping[str, Any]) -> None:
    loss, other = make(source), make(source, **ours)
    call(loss)
    other.load_state_dict(loss.state_dict())
    assert call(other).isfinite()


FITTED = ("cluster", "midx", "rff", "quadratic", "maclaurin", "positive_features", "mixture", "adversarial_tree")
FORMATS = [({"dim": 2 * D}, "query: has 16 dimensions, but the state of {} is for 8; make one module for each output"),
           ({"has_bias": True}, "bias: the state of {} is for a weight without a bias, and this call has one; make"),
           ({"dtype": torch.float64}, "query: has the dtype float64, but the state of {} is for float32; convert")]


@pytest.mark.parametrize("is_loaded", [False, True])
@looped("source", FITTED)
@looped("change, words", FORMATS)
def test_vectors_of_another_format_than_the_state_are_refused(source: str, change: Mapping[str, Any], words: str,
                                                              is_loaded: bool) -> None:
    first, loss = make(source), make(source)
    call(first)
    if is_loaded:
        loss.load_state_dict(first.state_dict())
    else:
        loss = first
    assert refusal(lambda: call(loss, **change)).startswith(words.format(source))
    assert call(loss).isfinite()                                       # the refused call changed nothing


@looped("source", ["unigram", "ace", "exp", "hardest", "nscaching", "in_batch"])
@looped("change, words", FORMATS)
def test_a_source_without_vectors_in_its_state_takes_any(source: str, change: Mapping[str, Any], words: str) -> None:
    loss = make(source)
    call(loss)
    assert call(loss, **change).isfinite()


def test_a_source_made_for_other_vectors_is_refused() -> None:
    kind = negatives.find("rff")
    source = kind(kind.Config(source="rff", k=5), ProblemSpec(V, torch.ones(V, dtype=torch.float64), dim=D))
    loss = sampled.SampledSoftmax(source, num_classes=V)
    for change, words in FORMATS[:2]:
        assert refusal(lambda change=change: call(loss, **change)).startswith(words.format("rff"))
    assert call(loss).isfinite()


@looped("saved", [None, [1], IDS, torch.zeros(3), torch.zeros(3, dtype=torch.bfloat16), "a"])
def test_a_state_of_another_type_is_refused(saved: Any) -> None:
    state = {**make().state_dict(), "_extra_state": saved}
    assert refusal(lambda: make().load_state_dict(state)).startswith("_extra_state: ")


@looped("source, entry", [("unigram", {"random": torch.zeros(3, dtype=torch.uint8)}), ("unigram", {}),
                          ("kbgan", {"scorer": {}})])
def test_a_state_that_the_source_cannot_load_is_refused(source: str, entry: Mapping[str, Any]) -> None:
    """As that of a generator on another kind of device, whose random numbers have another size."""
    loss = make(source)
    call(loss)
    state = from_tensor(loss.get_extra_state())
    state["source"] = {**state["source"], **entry} if entry else {}
    loss.set_extra_state(to_tensor(state))
    line = refusal(lambda: call(loss))
    assert line.startswith(f"_extra_state: does not fit {source} on cpu: ") and "on the same kind of device" in line


# -- names in messages ------------------------------------------------------------------------------------------------

SHARES = ("row", "query", "block", "batch")


@looped("source", [name for name in negatives.names() if name not in ("none", "candidates", "reflexive", "typed")])
@looped("share", SHARES)
def test_a_refused_share_names_values_of_the_argument(source: str, share: str) -> None:
    one = source.startswith("synthetic")
    options = {"loss": "margin", "frozen": True, "similarity": "cosine"} if one else {}
    try:
        make(source, share=share, num_sampled=1 if one else None if source == "every" else 5, **options)(
            QUERY, nn.functional.normalize(WEIGHT, dim=1), IDS, context=IDS)
    except UsageError as error:
        line, = error.args
        assert "share" in line and "window" not in line and "draws_by" not in line.replace("inner.share_draws_by", "")
        if " is not possible; use " in line:
            assert f"'{share}' is not possible" in line and set(line.rpartition(" use ")[2].split(" or ")) < {*SHARES}


@looped("candidates", [torch.arange(3), torch.zeros(V, dtype=torch.int64)])
def test_the_softmax_names_its_candidates(candidates: Tensor) -> None:
    line = refusal(lambda: sampled.Softmax(num_classes=V)(QUERY, WEIGHT, IDS, candidates=candidates))
    assert line == (f"candidates: softmax needs all 40 candidates once each, not {len(candidates)}; leave the argument "
                    "out")


@pytest.mark.parametrize(("source", "settings"), [("rff", {"nu": 4.0, "leaf_size": 2}),
                                                  ("positive_features", {"features": 4, "nu": 50.0})])
def test_a_warning_of_a_source_names_arguments(source: str, settings: Mapping[str, Any],
                                               caplog: pytest.LogCaptureFixture) -> None:
    loss = make(source, **settings)
    with caplog.at_level(logging.WARNING):
        call(loss)
    message, = (record.getMessage() for record in caplog.records)
    assert message.startswith(f"negatives: {source}: ") and "lower nu, or raise features or leaf_size" in message
    assert "negatives." not in message
