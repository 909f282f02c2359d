"""The absolute softmax: P(b|a) ∝ e^{|s|} in training and evaluation, and the models that cannot use it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from helpers.runs import fit, value
from helpers.tiny_runs import RUNS, TRAIN, made, write
from helpers.worlds import DOUBLE, every_once, loss_world, make_loss

from embtrain import experiment
from embtrain.common.errors import UsageError
from embtrain.experiment.diagnosis.diagnose import diagnose
from embtrain.experiment.run import scoring
from embtrain.losses.softmax import SoftmaxConfig
from embtrain.models.words.skipgram import SkipGramConfig
from embtrain.negatives.static.unigram import Unigram, UnigramConfig
from embtrain.train.config import TrainConfig
from embtrain.train.engines import choose


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("absolute"))


def settings_for(place: Path, name: str) -> experiment.Settings:
    model, _, corpus, own = RUNS[name]
    return experiment.resolve("softmax", model=model, corpus=corpus if corpus == "grammar" else str(place / corpus),
                              sets=[*TRAIN, *own, "train.engine=autograd", "loss.absolute=true"])


def test_optimum_has_the_true_magnitudes_for_any_signs() -> None:
    world = loss_world()
    signs = torch.where(torch.rand(world.p.shape, generator=torch.Generator().manual_seed(0)) < 0.5, -1.0, 1.0)
    table = (signs * (world.p.log() + 20)).to(DOUBLE).requires_grad_()
    loss = make_loss("softmax", world.known, absolute=True)
    exam = every_once(world, masked=False)
    (exam.chance * loss(exam.scored(table, loss)).per_example).sum().backward()
    assert float(table.grad.abs().max()) < 1e-12
    plain = make_loss("softmax", world.known)
    (exam.chance * plain(exam.scored(table, plain)).per_example).sum().backward()
    assert float(table.grad.abs().max()) > 0.01


@pytest.mark.parametrize("name", ["xc", "lm", "skipgram"])
def test_evaluation_uses_absolute_scores(place: Path, tmp_path: Path, name: str) -> None:
    assert fit(settings_for(place, name), tmp_path / "run").scores
    of_run = made(settings_for(place, name))
    for p in of_run.model.parameters():
        torch.nn.init.normal_(p, generator=torch.Generator().manual_seed(1))
    query = scoring.encode_heldout(of_run, of_run.task.heldout("test"))
    s = of_run.model.score(query, torch.arange(of_run.problem.n_candidates)[None])
    assert (s < 0).any()
    assert torch.equal(scoring.logits(of_run, corrected=True)(query), s.abs())
    with pytest.raises(UsageError, match=r"loss\.absolute, but draws are compared with the softmax of scores"):
        diagnose(tmp_path / "run", ["uniform"], [2])


@pytest.mark.parametrize("name", ["distmult", "order", "nmt"])
def test_models_ranked_by_the_score_reject_it(place: Path, name: str) -> None:
    with pytest.raises(UsageError, match=r"loss\.absolute: model\.name: \w+ ranks candidates by their scores"):
        made(settings_for(place, name))


def test_tables_that_start_at_zero_learn(place: Path, tmp_path: Path) -> None:
    """Skip-gram's second table does: a slope of 0 would keep all scores at 0, and the likelihood at chance."""
    run = fit(settings_for(place, "skipgram"), tmp_path / "run")
    chance = -math.log(len(run.vectors))
    assert value(run, "log_likelihood") > chance + 0.01


def test_kernels_do_not_support_it() -> None:
    loss = SoftmaxConfig(absolute=True)
    actual = choose.why_not_fused(SkipGramConfig(), Unigram, UnigramConfig(), loss, TrainConfig(), True)
    assert any(reason.startswith("loss.absolute: ") for reason in actual)
