"""The contract of losses. Losses are found in the package: a loss without a case in EXPECTED fails."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import product
from types import SimpleNamespace

import pytest
import torch
from helpers.looped import looped
from helpers.worlds import DOUBLE, make_loss
from hypothesis import given, settings, strategies as st
from torch import Tensor

from embtrain.common.errors import UsageError
from embtrain.common.types import LossInput, Negatives, ProblemSpec, Query
from embtrain.losses.base import Loss, LossConfig, find, names

V, CONTEXTS, B = 5, 4, 6
WORLD = ProblemSpec(n_candidates=V, counts=torch.ones(V, dtype=DOUBLE), n_contexts=CONTEXTS)
GROUP = torch.tensor([0, 0, 1, 2, 2, 2])  # the draw, or the scored row if rows are shared, of each example


# ---- the same in plain Python ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Negative:
    s: float
    w: float
    log_q: float
    is_target: bool  # this negative is the target of the example


@dataclass(frozen=True)
class Example:
    pos: float
    log_q_target: float
    mass: float
    c: float
    negatives: list[Negative] = field(default_factory=list)   # without false negatives
    masked: list[Negative] = field(default_factory=list)  # the false negatives
    h: tuple[float, ...] = ()                             # the query vector
    e: tuple[float, ...] = ()                             # the unit vector of the target


def log_sigma(x: float) -> float:
    return -math.log1p(math.exp(-x))


def plain_logistic(e: Example) -> float:
    return -log_sigma(e.pos) - sum(j.w * log_sigma(-j.s) for j in e.negatives)


def plain_gbce(e: Example) -> float:
    alpha, t = e.mass / (V - 1), 0.8
    beta = alpha * (t * (1 - 1 / alpha) + 1 / alpha)
    return -math.log((1 / (1 + math.exp(-e.pos))) ** beta) - sum(j.w * log_sigma(-j.s) for j in e.negatives)


def plain_contrastive(prior: float, tilt: float) -> Callable[[Example], float]:
    def plain(e: Example) -> float:
        counted = [j for j in e.negatives if j.w > 0]
        if not counted:
            return 0.0
        mean = sum(j.w * math.exp((1 + tilt) * j.s) for j in counted) / sum(j.w * math.exp(tilt * j.s) for j in counted)
        g = max((mean - prior * math.exp(e.pos)) / (1 - prior), math.exp(-2))
        return -math.log(math.exp(e.pos) / (math.exp(e.pos) + e.mass * g))
    return plain


def plain_nce(e: Example) -> float:
    out = -log_sigma(e.pos - e.c - math.log(e.mass * math.exp(e.log_q_target)))
    return out - sum(j.w * log_sigma(-(j.s - e.c - math.log(e.mass * math.exp(j.log_q)))) for j in e.negatives)


def plain_alpha_nce(alpha: float, centered: bool = True) -> Callable[[Example], float]:
    def plain(e: Example) -> float:
        if centered and not any(j.w > 0 for j in e.negatives):
            return 0.0
        rho = math.exp(e.pos) / math.exp(e.log_q_target)
        mean = sum(j.w * (math.exp(j.s) / math.exp(j.log_q)) ** alpha for j in e.negatives) / e.mass
        if not centered:
            return rho ** (alpha - 1) / (1 - alpha) + mean / alpha
        if alpha == 1:
            return -math.log(rho / mean)
        return ((rho / mean ** (1 / alpha)) ** (alpha - 1) - 1) / (1 - alpha)
    return plain


def plain_sampled(e: Example) -> float:
    z = math.exp(e.pos) + sum(j.w * math.exp(j.s) / (e.mass * math.exp(j.log_q)) for j in e.negatives)
    return -math.log(math.exp(e.pos) / z)


def plain_ranking(e: Example) -> float:
    positive = math.exp(e.pos) / math.exp(e.log_q_target)
    return -math.log(positive / (positive + sum(j.w * math.exp(j.s) / math.exp(j.log_q) for j in e.negatives)))


def plain_softmax(e: Example) -> float:
    counted = [*e.negatives, *(j for j in e.masked if j.is_target)]
    return -math.log(math.exp(e.pos) / sum(j.w * math.exp(j.s) for j in counted))


def absolute(plain: Callable[[Example], float]) -> Callable[[Example], float]:
    def wrapped(e: Example) -> float:
        negatives, masked = ([replace(j, s=abs(j.s)) for j in subset] for subset in (e.negatives, e.masked))
        return plain(replace(e, pos=abs(e.pos), negatives=negatives, masked=masked))
    return wrapped


def plain_self_adversarial(e: Example) -> float:
    """Receives weights like any loss; `weigh` has its own test."""
    return -log_sigma(0.7 + e.pos) - sum(j.w * log_sigma(-0.7 - j.s) for j in e.negatives)


def plain_margin(e: Example) -> float:
    return sum(j.w * max(0.0, 0.7 + j.s - e.pos) for j in e.negatives)


def plain_order(e: Example) -> float:
    return max(0.0, -e.pos) + sum(j.w * max(0.0, 0.7 + j.s) for j in e.negatives)


def plain_hinged_softmax(e: Example) -> float:
    positive = math.exp(-max(0.0, -e.pos))
    return -math.log(positive / (positive + sum(j.w * math.exp(max(0.0, 0.7 + j.s)) for j in e.negatives)))


def length_and_product(e: Example) -> tuple[float, float]:
    return math.sqrt(math.fsum(x * x for x in e.h)), math.fsum(x * y for x, y in zip(e.h, e.e, strict=True))


def log_c(kappa: float) -> float:
    """log C(κ) − log C(0) in three dimensions, where C(κ) = κ / (4π sinh κ)."""
    return math.log(kappa / math.sinh(kappa))


def plain_vmf(e: Example) -> float:
    kappa, c = length_and_product(e)
    return -log_c(kappa) - c


def plain_vmf_both(e: Example) -> float:
    kappa, c = length_and_product(e)
    return -log_c(kappa) - 0.3 * c + 0.05 * kappa


def plain_vmf_reg1(e: Example) -> float:
    kappa, c = length_and_product(e)
    return -log_c(kappa) - c + 0.05 * kappa


def plain_vmf_reg2(e: Example) -> float:
    kappa, c = length_and_product(e)
    return -log_c(kappa) - 0.3 * c


def plain_vmf_released(e: Example) -> float:
    kappa, c = length_and_product(e)
    return -log_c(kappa) + math.log(1 + kappa) * (0.2 - c / kappa)


def plain_power_spherical(e: Example) -> float:
    """In three dimensions the constant of the density is (1 + κ) / (4π 2^κ)."""
    kappa, c = length_and_product(e)
    return -(math.log(1 + kappa) - kappa * math.log(2) + kappa * math.log(1 + c / kappa))


def plain_cosine(e: Example) -> float:
    kappa, c = length_and_product(e)
    return 1 - c / kappa


@dataclass(frozen=True)
class Case:
    name: str
    plain: Callable[[Example], float]
    settings: dict[str, object] = field(default_factory=dict)
    every: bool = False     # the negatives must be all candidates
    monotone: bool = True   # a higher pos never raises the loss
    linear: bool = True     # evaluation reads the score itself

    def __str__(self) -> str:
        return "-".join([self.name, *map(str, self.settings.values())])

    def loss(self, **more: object) -> Loss:
        loss = make_loss(self.name, WORLD, **(self.settings | more))
        draw = torch.Generator().manual_seed(5)
        with torch.no_grad():
            for p in loss.parameters():
                p.copy_(torch.randn(p.shape, generator=draw, dtype=DOUBLE))
        return loss


EXPECTED = [
    Case("logistic", plain_logistic),
    Case("contrastive", plain_contrastive(0, 0), {"floor": -2.0}),
    Case("contrastive", plain_contrastive(0, 1.5), {"floor": -2.0, "hardness": 1.5}),
    Case("contrastive", plain_contrastive(0.3, 0.5), {"floor": -2.0, "hardness": 0.5, "prior": 0.3}),
    Case("gbce", plain_gbce, {"t": 0.8}),
    Case("nce", plain_nce),
    Case("nce", plain_nce, {"partition": "global"}),
    Case("nce", plain_nce, {"partition": "context", "log_z_start": "log n"}),
    Case("alpha_nce", plain_alpha_nce(0.5)),
    Case("alpha_nce", plain_alpha_nce(0.8), {"alpha": 0.8}),
    Case("alpha_nce", plain_alpha_nce(1), {"alpha": 1.0}),
    Case("alpha_nce", plain_alpha_nce(0.5, False), {"centered": False}),
    Case("sampled_softmax", plain_sampled),
    Case("sampled_softmax", plain_ranking, {"form": "ranking"}),
    Case("sampled_softmax", absolute(plain_sampled), {"absolute": True}, monotone=False, linear=False),
    Case("sampled_softmax", absolute(plain_ranking), {"form": "ranking", "absolute": True}, monotone=False,
         linear=False),
    Case("softmax", plain_softmax, every=True),
    Case("softmax", absolute(plain_softmax), {"absolute": True}, every=True, monotone=False, linear=False),
    Case("margin", plain_margin, {"margin": 0.7}),
    Case("self_adversarial", plain_self_adversarial, {"margin": 0.7, "temperature": 0.5}),
    Case("order", plain_order, {"margin": 0.7}),
    Case("hinged_softmax", plain_hinged_softmax, {"margin": 0.7}),
    Case("vmf", plain_vmf, {"variant": "plain"}),
    Case("vmf", plain_vmf_reg1, {"variant": "reg1", "lambda1": 0.05}),
    Case("vmf", plain_vmf_reg2, {"variant": "reg2", "lambda2": 0.3}),
    Case("vmf", plain_vmf_both, {"variant": "both", "lambda1": 0.05, "lambda2": 0.3}),
    Case("vmf", plain_vmf_released, {"variant": "released"}),
    Case("power_spherical", plain_power_spherical, linear=False),
    Case("cosine", plain_cosine),
]
each_case = pytest.mark.parametrize("case", EXPECTED, ids=str)
each_free_case = pytest.mark.parametrize("case", [c for c in EXPECTED if not c.every], ids=str)
LAYOUTS = ["private", "shared", "grouped", "rows"]
each_layout = looped("layout", LAYOUTS)


def make_scored(case: Case, layout: str, seed: int = 0, masked: bool = True, mass: str = "row") -> LossInput:
    """Random scores. Draws: private · shared by all · grouped (three draws) · rows (three draws, each scored once)."""
    draw = torch.Generator().manual_seed(seed)

    def randn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=DOUBLE)

    g = {"private": B, "shared": 1, "grouped": 3, "rows": 3}[layout]
    k = V if case.every else 4
    ids = torch.rand(g, V, generator=draw).argsort(1)[:, :k]
    context = GROUP % CONTEXTS if layout == "rows" else torch.randint(CONTEXTS, (B,), generator=draw)
    table = randn(CONTEXTS, V)
    target = torch.randint(V, (B,), generator=draw)
    read = {"private": torch.arange(B), "shared": torch.zeros(B, dtype=torch.int64)}.get(layout, GROUP)
    log_q = randn(g, k).log_softmax(1)
    weight = None if case.every else torch.rand(g, k, generator=draw, dtype=DOUBLE) + 0.2
    if weight is not None:
        weight[0, 1] = 0.0
    mask = torch.rand(B, k, generator=draw) < 0.25 if masked else torch.zeros(B, k, dtype=torch.bool)
    masses = {"row": torch.rand(B, 1, generator=draw, dtype=DOUBLE) + 1, "one": torch.tensor([[2.5]]), "none": None}
    drawn = Negatives(
        ids, draw_id=GROUP if layout in ("grouped", "rows") else None, log_q=log_q, weight=weight,
        log_q_target=randn(B) - 1, false_negatives=torch.stack(mask.nonzero(as_tuple=True)) if masked else None,
        total_weight=masses[mass])
    h, e = randn(B, 3).requires_grad_(), torch.nn.functional.normalize(randn(B, 3), dim=1)
    query = Query(h, context, target, torch.zeros(B, dtype=torch.int64))
    pos = table[context, target].clone().requires_grad_()
    rows = GROUP if layout == "rows" else None
    of_row, ids_of_row = (torch.tensor([0, 1, 2]) % CONTEXTS, ids) if layout == "rows" else (context, ids[read])
    neg = table[of_row].gather(1, ids_of_row).clone().requires_grad_()
    align = (lambda x: x) if layout in ("rows", "shared") else (lambda x: None if x is None else x[read])
    return LossInput(pos, neg, drawn, query, rows, align(log_q), align(weight),
                     SimpleNamespace(target_vectors=lambda: e))


def with_log_z(scored: LossInput, log_z: Callable[[Tensor | slice], Tensor]) -> LossInput:
    assert scored.whole_table is not None
    return replace(scored, whole_table=SimpleNamespace(log_partition=log_z,
                                                       target_vectors=scored.whole_table.target_vectors))


def examples(case: Case, loss: Loss, scored: LossInput) -> list[Example]:
    """The input of a loss, one example at a time, in plain numbers."""
    drawn, out, pos, neg = scored.drawn, [], scored.pos.detach(), scored.neg.detach()
    false_negatives = set() if drawn.false_negatives is None else {(int(i), int(j)) for i, j in drawn.false_negatives.T}
    n_draws = drawn.ids.shape[0]
    for i in range(len(scored.pos)):
        draw = int(drawn.draw_id[i]) if drawn.draw_id is not None else i % n_draws
        r = i if scored.row is None else int(scored.row[i])
        negatives = [(j, Negative(float(neg[r, j]), 1.0 if drawn.weight is None else float(drawn.weight[draw, j]),
                                  float(drawn.log_q[draw, j]), int(drawn.ids[draw, j]) == int(scored.query.target[i])))
                     for j in range(drawn.k)]
        c = None if (learnt := getattr(loss, "c", None)) is None else learnt.detach()
        mass = (
            float(drawn.k) if drawn.total_weight is None else float(drawn.total_weight[i % len(drawn.total_weight), 0])
        )
        out.append(Example(
            float(pos[i]), float(drawn.log_q_target[i]), mass,
            0.0 if c is None else float(c if c.ndim == 0 else c[scored.query.context[i]]),
            [x for j, x in negatives if (i, j) not in false_negatives],
            [x for j, x in negatives if (i, j) in false_negatives],
            tuple(scored.query.vector[i].tolist()), tuple(scored.whole_table.target_vectors()[i].tolist())))
    return out


def with_negative(scored: LossInput, score: float, log_q: float) -> LossInput:
    """Add a negative of weight 0."""
    drawn = scored.drawn

    def widen(x: Tensor, value: float) -> Tensor:
        return torch.cat([x, x.new_full((x.shape[0], 1), value)], 1)

    ones = torch.ones(drawn.ids.shape, dtype=DOUBLE)
    of_rows = torch.ones((scored.log_q.shape[0], drawn.k), dtype=DOUBLE)
    drawn = replace(drawn, ids=widen(drawn.ids, 0), log_q=widen(drawn.log_q, log_q),
                    weight=widen(ones if drawn.weight is None else drawn.weight, 0.0))
    return replace(scored, neg=widen(scored.neg, score), drawn=drawn, log_q=widen(scored.log_q, log_q),
                   weight=widen(of_rows if scored.weight is None else scored.weight, 0.0))


def gradients(loss: Loss, scored: LossInput, inputs: list[Tensor]) -> list[Tensor]:
    return list(torch.autograd.grad(loss(scored).per_example.sum(), [*inputs, *loss.parameters()],
                                    materialize_grads=True))


# ---- the contract ----------------------------------------------------------------------------------------------------


def test_every_loss_has_a_case():
    assert set(names()) == {case.name for case in EXPECTED}


@looped("name", sorted({case.name for case in EXPECTED}))
def test_every_loss_has_its_name_and_describes_its_settings(name):
    loss = find(name)
    assert loss.name == name and loss.__module__.startswith("embtrain.losses.") and loss.__module__.endswith(f".{name}")
    assert issubclass(loss.Config, LossConfig) and loss.Config().name == name
    assert all(f.description for f in loss.Config.model_fields.values() if f.default != name)


@looped("layout, masked, mass, seed", [
    (*world, seed) for seed, world in enumerate(product(LAYOUTS, [False, True], ["row", "one", "none"]))])
@each_case
def test_equals_a_loop_in_plain_python(case, layout, masked, mass, seed):
    loss, scored = case.loss(), make_scored(case, layout, seed, masked, mass)
    cost = loss(scored)
    expected = torch.tensor([case.plain(e) for e in examples(case, loss, scored)], dtype=DOUBLE)
    assert cost.per_example.shape == (B,)
    torch.testing.assert_close(cost.per_example.detach(), expected, rtol=1e-10, atol=1e-10)


@each_layout
@each_case
def test_gradients_match_finite_differences(case, layout):
    loss, scored = case.loss(), make_scored(case, layout)
    values = [scored.pos, scored.neg, scored.query.vector, *loss.parameters()]
    assert torch.autograd.gradcheck(lambda pos, neg, h, *_: loss(
        replace(scored, pos=pos, neg=neg, query=scored.query.with_vector(h))).per_example, values,
        fast_mode=layout in ("shared", "grouped"))


@looped("score, log_q", [(0.3, -2.0), (0.3, -math.inf), (1e30, -2.0), (math.inf, -2.0), (-math.inf, -2.0)])
@each_layout
@each_case
def test_a_negative_of_weight_zero_is_ignored(case, layout, score, log_q):
    loss, without = case.loss(), make_scored(case, layout)
    wide = with_negative(without, score, log_q)
    wide = replace(wide, neg=wide.neg.detach().requires_grad_())
    torch.testing.assert_close(loss(wide).per_example, loss(without).per_example, rtol=1e-12, atol=1e-12)
    pos, neg, *parameters = gradients(loss, wide, [wide.pos, wide.neg])
    pos_without, neg_without, *parameters_without = gradients(loss, without, [without.pos, without.neg])
    assert (neg[:, -1] == 0).all()
    for a, b in zip([pos, neg[:, :-1], *parameters], [pos_without, neg_without, *parameters_without], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@each_case
def test_negatives_of_weight_zero_have_a_cost_for_the_adversary(case):
    scored = with_negative(make_scored(case, "private"), 0.3, -math.inf)
    negative = case.loss()(scored).per_negative
    assert negative.isfinite().all() and negative.shape == scored.neg.shape


@each_case
def test_a_masked_negative_can_be_infinite(case):
    scored = make_scored(case, "private", masked=False)
    if case.every:  # the softmax masks false negatives except its target
        away = (scored.drawn.ids[0] != scored.query.target[0]).nonzero()[0, 0]
    else:
        away = torch.tensor(0)
    drawn = replace(scored.drawn, false_negatives=torch.stack([torch.tensor([0]), away.reshape(1)]))
    plain, neg = replace(scored, drawn=drawn), scored.neg.detach().clone()
    neg[0, away] = math.inf
    odd = replace(plain, neg=neg.requires_grad_())
    loss = case.loss()
    torch.testing.assert_close(loss(odd).per_example, loss(plain).per_example)
    assert all(g.isfinite().all() for g in gradients(loss, odd, [odd.pos, odd.neg]))


@looped("field", ["pos", "neg", "query"])
@each_layout
@each_case
def test_a_score_that_is_nan_reaches_the_loss(case, layout, field):
    """Training stops when the loss is not finite, so that no loss may drop a NaN."""
    scored = make_scored(case, layout, masked=False)
    value = (scored.query.vector if field == "query" else getattr(scored, field)).detach().clone()
    value[(0, 0) if field == "neg" else 0] = math.nan
    odd = replace(scored, **{field: scored.query.with_vector(value) if field == "query" else value})
    reads_query = case.loss().traits.candidate_scope == "target"
    nan = case.loss()(odd).per_example.isnan()
    expected = torch.arange(B) == 0 if layout != "rows" or field != "neg" else GROUP == 0
    assert torch.equal(nan, expected & (reads_query == (field == "query")))


@looped("dtype", [torch.float32, torch.float64])
@each_layout
@each_case
def test_a_row_with_all_negatives_masked_has_a_finite_gradient(case, layout, dtype):
    scored = make_scored(case, layout, masked=False)
    k = scored.drawn.k
    masked = torch.stack([torch.tensor([0, 3]).repeat_interleave(k), torch.arange(k).repeat(2)])
    scored = replace(scored, drawn=replace(scored.drawn, false_negatives=masked),
                     pos=scored.pos.detach().to(dtype).requires_grad_(),
                     neg=scored.neg.detach().to(dtype).requires_grad_())
    loss = case.loss().to(dtype)
    example = loss(scored).per_example
    assert example.isfinite().all() and (loss.traits.candidate_scope == "target" or (example[[0, 3]] >= 0).all())
    assert all(g.isfinite().all() for g in gradients(loss, scored, [scored.pos, scored.neg]))


@each_free_case
def test_a_row_without_noise_mass_has_a_finite_gradient(case):
    """If the negatives of a centre are split among its window, an example may have none."""
    scored = make_scored(case, "private", masked=False)
    weight, mass = scored.weight.clone(), scored.drawn.total_weight.clone()
    weight[2], mass[2] = 0.0, 0.0
    scored = replace(scored, weight=weight, drawn=replace(scored.drawn, weight=weight, total_weight=mass))
    loss = case.loss()
    assert loss(scored).per_example.isfinite().all()
    assert all(g.isfinite().all() for g in gradients(loss, scored, [scored.pos, scored.neg]))


@looped("size", [1e3, 1e30])
@each_case
def test_huge_scores_do_not_overflow(case, size):
    scored = make_scored(case, "private")
    scored = replace(scored, pos=(-size * scored.pos.detach().float().abs()).requires_grad_(),
                     neg=(size * scored.neg.detach().float()).requires_grad_())
    loss = case.loss().float()
    assert loss(scored).per_example.isfinite().all()
    assert all(g.isfinite().all() for g in gradients(loss, scored, [scored.pos, scored.neg]))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), rise=st.floats(1e-3, 40), scale=st.floats(0.1, 30),
       layout=st.sampled_from(LAYOUTS), masked=st.booleans(), index=st.integers(0, len(EXPECTED) - 1))
def test_a_higher_positive_score_never_raises_the_loss(seed, rise, scale, layout, masked, index):
    case = EXPECTED[index]
    if not case.monotone:
        return
    scored = make_scored(case, layout, seed, masked)
    scored = replace(scored, pos=scored.pos.detach() * scale, neg=scored.neg.detach() * scale)
    loss = case.loss()
    before, after = loss(scored).per_example, loss(replace(scored, pos=scored.pos + rise)).per_example
    assert (after <= before + 1e-9 * (1 + before.abs())).all()


@each_layout
@each_case
def test_the_cost_of_a_negative_is_unhinged_uncorrected_and_detached(case, layout):
    loss, scored = case.loss(), make_scored(case, layout)
    negative = loss(scored).per_negative
    assert negative.shape == scored.neg.shape and not negative.requires_grad
    assert loss(scored).per_example.requires_grad
    second = replace(scored, log_q=scored.log_q - 3, drawn=replace(scored.drawn, log_q=scored.drawn.log_q - 3))
    assert torch.equal(loss(second).per_negative, negative), "corrected for q"
    away = 1.0 if loss.traits.monotone else scored.neg.detach().sign()      # losses of |s|: a negative is easy near 0
    low = replace(scored, neg=scored.neg.detach() - 25 if loss.traits.monotone else scored.neg.detach() * 0.01)
    higher = loss(replace(low, neg=low.neg + 0.5 * away)).per_negative
    assert (higher > loss(low).per_negative).all(), "an easy negative has no cost"


@each_case
def test_rows_do_not_mix(case):
    loss, scored = case.loss(), make_scored(case, "private", masked=False)
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    d = scored.drawn
    mixed = replace(scored, pos=scored.pos[order], neg=scored.neg[order], query=scored.query.rows(order),
                    log_q=scored.log_q[order], weight=None if scored.weight is None else scored.weight[order],
                    whole_table=SimpleNamespace(
                        target_vectors=lambda: scored.whole_table.target_vectors()[order]),
                    drawn=replace(d, ids=d.ids[order], log_q=d.log_q[order], total_weight=d.total_weight[order],
                                  weight=None if d.weight is None else d.weight[order],
                                  log_q_target=d.log_q_target[order]))
    torch.testing.assert_close(loss(mixed).per_example, loss(scored).per_example[order])


@each_free_case
def test_no_negatives(case):
    """The source `none`: only the positive is left. Losses that compare are 0; losses that correct raise."""
    scored = make_scored(case, "private", masked=False)
    nothing = replace(scored, neg=scored.neg[:, :0], log_q=None, weight=None, drawn=Negatives(
        torch.zeros(1, 0, dtype=torch.int64), log_q_target=scored.drawn.log_q_target))
    loss = case.loss()
    if loss.traits.needs_q != "no":
        with pytest.raises(UsageError, match=case.name):
            loss(nothing)
        return
    cost = loss(nothing)
    assert cost.per_example.isfinite().all() and cost.per_negative.shape == (B, 0)


@looped("share", [1.0, 0.5])
@each_case
def test_the_penalty_applies_to_the_chosen_examples(case, share):
    log_z = torch.linspace(-2, 3, B, dtype=DOUBLE, requires_grad=True)
    chosen: list[int] = []

    def exact(rows: Tensor | slice) -> Tensor:
        chosen.extend(torch.arange(B)[rows].tolist())
        return log_z[rows]

    scored = with_log_z(make_scored(case, "rows"), exact)
    with_it, without = case.loss(penalty=0.2, penalty_share=share), case.loss()
    extra = with_it(scored).per_example - without(scored).per_example
    expected = torch.zeros(B, dtype=DOUBLE)
    expected[chosen] = (0.2 / share * log_z.square())[chosen]
    torch.testing.assert_close(extra, expected)
    assert chosen and (len(chosen) == B) == (share == 1.0)
    slope = torch.autograd.grad(extra.sum(), log_z)[0]
    torch.testing.assert_close(slope, torch.autograd.grad(expected.sum(), log_z)[0])


@each_case
def test_the_state_resumes_the_choice_of_examples(case):
    scored = with_log_z(make_scored(case, "private"), lambda rows: torch.ones(B, dtype=DOUBLE)[rows] * 2)
    single, two = case.loss(penalty=0.2, penalty_share=0.4), make_loss(case.name, replace(WORLD, seed=9),
                                                                       **case.settings,
                                                                  penalty=0.2, penalty_share=0.4)
    single(scored)
    assert all(isinstance(v, Tensor) for v in single.state_dict().values())
    two.load_state_dict({k: v.clone() for k, v in single.state_dict().items()})
    for _ in range(5):
        assert torch.equal(single(scored).per_example, two(scored).per_example)


@each_case
def test_evaluation_reads_log_probabilities_up_to_a_constant_of_the_query(case):
    loss, scored = case.loss(), make_scored(case, "private")
    score = torch.randn(B, V, dtype=DOUBLE, generator=torch.Generator().manual_seed(1))
    logit = loss.logit(score, scored.query)
    assert logit.shape == (B, V)
    if not case.linear:
        return
    torch.testing.assert_close(logit.log_softmax(1), score.log_softmax(1))
