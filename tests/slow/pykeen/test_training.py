"""PyKEEN's loop with samplers of embtrain: costs equal the scores of the loop, and training repeats bit for bit."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

pytest.importorskip("pykeen", reason="peers: PyKEEN is not installed; pip install 'embtrain[pykeen]'")

from helpers.docs_scripts import DOCS, script
from helpers.nations import BATCH, NAMES, TRAINING, TRIPLES, E, R, Scores, connected
from pykeen.losses import loss_resolver
from pykeen.models import RGCN, DistMult, TransE
from pykeen.pipeline import pipeline
from pykeen.training import SLCWATrainingLoop, TrainingCallback

from embtrain.common.errors import UsageError
from embtrain.common.types import Query
from embtrain.nn.pykeen import SAMPLERS, EmbtrainTrainingCallback, register
from embtrain.nn.pykeen.callback import costs

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # warnings of PyKEEN and of its imports

SHORT: dict[str, Any] = {
    "model": "TransE", "model_kwargs": {"embedding_dim": 16}, "training_loop": "sLCWA", "random_seed": 4,
    "training_kwargs": {"num_epochs": 5, "batch_size": 128, "use_tqdm": False, "callbacks": "embtrain"},
    "evaluation_kwargs": {"use_tqdm": False},
    "negative_sampler_kwargs": {"num_negs_per_pos": 4, "filtered": True}}


# --- costs ---------------------------------------------------------------------------------------------------------

class Recorder(TrainingCallback):  # type: ignore[misc]
    """Scores the negatives of each batch again, and stores the arguments of `learn`."""

    def __init__(self, callback: EmbtrainTrainingCallback):
        super().__init__()
        self.callback, self.seen, self.expected, self.parts = callback, list[Any](), list[Tensor](), 0

    def pre_batch(self, **kwargs: Any) -> None:
        source = self.callback.sampler.source
        if "learn" not in vars(source):
            learn = source.learn

            def spy(query: Query, drawn: Any, cost: Tensor) -> dict[str, float]:
                self.seen.append((query, drawn, cost))
                return learn(query, drawn, cost)

            source.learn = spy  # type: ignore[method-assign]

    def on_batch(self, epoch: int, batch: Any, batch_loss: float, **kwargs: Any) -> None:
        self.parts += 1

    def pre_step(self, **kwargs: Any) -> None:
        query, drawn, _ = self.seen[-1]
        ids = drawn.per_row(drawn.ids, len(query))
        self.expected.append(Scores(self.model).score(query, ids))


@pytest.mark.parametrize("loss", ["marginranking", "bcewithlogits", "nssa"])
@pytest.mark.parametrize(("name", "kwargs"), [("embtrain-kbgan", {}), ("embtrain-ace", {}),
                                              ("embtrain-ace", {"baseline": "leave_one_out"})])
def test_costs_equal_the_scores_of_the_loop(name: str, kwargs: dict[str, Any], loss: str) -> None:
    register()
    model = DistMult(triples_factory=TRAINING, embedding_dim=8, loss=loss, random_seed=1)
    callback = EmbtrainTrainingCallback()
    recorder = Recorder(callback)
    loop = SLCWATrainingLoop(
        model=model, triples_factory=TRAINING, automatic_memory_optimization=False, negative_sampler=name,
        negative_sampler_kwargs={"num_negs_per_pos": 4, "filterer": "python-set", **kwargs})
    loop.train(TRAINING, num_epochs=1, batch_size=400, sub_batch_size=150, use_tqdm=False,
               callbacks=[callback, recorder])
    assert len(recorder.seen) == 4 and recorder.parts == 12  # three parts of each batch
    n_masked = 0
    for (query, drawn, cost), scores in zip(recorder.seen, recorder.expected, strict=True):
        expected = costs(model.loss, scores)
        row, column = drawn.false_negatives
        known = {tuple(triple) for triple in TRIPLES.tolist()}
        triples = callback.sampler.queries.triples(query, drawn.per_row(drawn.ids, len(query)))
        is_known = torch.tensor([[tuple(t) in known for t in line] for line in triples.tolist()])
        assert is_known[row, column].all() and int(is_known.sum()) == len(row)
        assert torch.allclose(cost[~is_known], expected[~is_known], atol=1e-5)
        n_masked += len(row)
    assert n_masked > 100 and "process_slcwa_scores" not in vars(model.loss)


@pytest.mark.parametrize(("loss", "expected"), [
    ("marginranking", [-30., 0., 2.]), ("infonce", [-30., 0., 2.]), ("softplus", [0., .693147, 2.126928]),
    ("bcewithlogits", [0., .693147, 2.126928]), ("bceaftersigmoid", [0., .693147, 2.126928]),
    ("adversarialbcewithlogits", [0., .693147, 2.126928]), ("nssa", [0., 9.000123, 11.000017])])
def test_costs_are_those_of_the_loss(loss: str, expected: list[float]) -> None:
    assert costs(loss_resolver.make(loss), torch.tensor([-30., 0., 2.])).tolist() == pytest.approx(expected, abs=1e-5)


def test_the_callback_does_not_change_training() -> None:
    """With a source that ignores the model, weights are bitwise equal with and without the callback."""
    def weights(callbacks: list[Any]) -> list[Tensor]:
        register()
        torch.random.default_generator.manual_seed(3)
        model = TransE(triples_factory=TRAINING, embedding_dim=8, random_seed=1)
        loop = SLCWATrainingLoop(model=model, triples_factory=TRAINING, negative_sampler="embtrain-degree")
        loop.train(TRAINING, num_epochs=2, batch_size=256, use_tqdm=False, callbacks=callbacks)
        return [p.detach().clone() for p in model.parameters()]

    assert all(map(torch.equal, weights([EmbtrainTrainingCallback()]), weights([])))


@pytest.mark.parametrize("name", ["embtrain-nscaching", "embtrain-kbgan", "embtrain-ace"])
def test_negatives_become_harder(name: str) -> None:
    """The scores of a fixed model are higher for negatives that were drawn later."""
    model = DistMult(triples_factory=TRAINING, embedding_dim=8, random_seed=1)
    for p in model.parameters():
        p.data *= 20
    sampler, callback = connected(name, model, num_negs_per_pos=5, **(
        {} if name == "embtrain-nscaching" else {"generator_lr": .05}))
    means = []
    for _ in range(60):
        scores = model.score_hrt(sampler.corrupt_batch(TRIPLES[:500]).view(-1, 3)).view(500, 5).detach()
        callback.pre_batch()
        callback.scores.append(scores)
        callback.pre_step()
        means.append(float(scores.mean()))
    error = float(scores.std()) * (1 / 5 + 1 / 2) ** .5 / 2500 ** .5  # of the difference, 2,500 negatives in each mean
    assert np.mean(means[-5:]) - np.mean(means[:2]) > 5 * error


# --- models --------------------------------------------------------------------------------------------------------

def test_scores_leave_the_model_unchanged() -> None:
    """Scores for a source use evaluation mode, and leave mode, random state and caches of the model unchanged."""
    model = RGCN(triples_factory=TRAINING, embedding_dim=8, num_layers=1, random_seed=1)
    sampler, _ = connected("embtrain-nscaching", model)
    model.train()
    before = torch.random.get_rng_state()
    sampler.corrupt_batch(BATCH)
    assert model.training and torch.equal(before, torch.random.get_rng_state())
    model.score_hrt(BATCH).sum().backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.requires_grad}
    assert [name for name, grad in gradients.items() if grad is None] == []


def test_inverse_triples_are_triples_of_further_relations() -> None:
    result = pipeline(**SHORT, dataset="nations", dataset_kwargs={"create_inverse_triples": True},
                      negative_sampler="embtrain-ace")
    assert result.training.num_relations == 2 * R and np.isfinite(result.losses).all()


# --- the pipeline --------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", NAMES)
def test_the_pipeline_trains(name: str) -> None:
    register()
    results = [pipeline(**SHORT, dataset="nations", negative_sampler=name) for _ in range(2)]
    first, second = results
    assert first.losses == second.losses and first.get_metric("mrr") == second.get_metric("mrr")
    assert all(map(torch.equal, first.model.parameters(), second.model.parameters()))
    assert first.get_metric("mrr") > .28  # a random order of 14 entities gives .23
    assert first.losses[-1] < first.losses[0] or name != "embtrain-bernoulli"


def test_the_model_of_a_stopped_run_can_be_saved(tmp_path: Path) -> None:
    """Early stopping ends a loop without `post_train`, so a method that still shadowed would break the pickle."""
    register()
    result = pipeline(**SHORT, dataset="nations", negative_sampler="embtrain-kbgan", stopper="early",
                      stopper_kwargs={"frequency": 1, "patience": 1, "relative_delta": 10.})
    assert len(result.losses) < 5
    result.save_to_directory(tmp_path)
    assert (tmp_path / "trained_model.pkl").stat().st_size > 0


@pytest.mark.parametrize("moment", ["score_hrt", "on_batch"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, torch.OutOfMemoryError])
def test_a_batch_that_fails_restores_the_loss(moment: str, error: type[BaseException],
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    """The model can be saved, and later training with another sampler stores no scores."""
    def fail(*args: Any, **kwargs: Any) -> None:
        assert "process_slcwa_scores" in vars(model.loss)
        raise error

    model = TransE(triples_factory=TRAINING, embedding_dim=8, random_seed=1)
    ours, other = EmbtrainTrainingCallback(), TrainingCallback()
    loop, again = (SLCWATrainingLoop(model=model, triples_factory=TRAINING, negative_sampler=sampler,
                                     automatic_memory_optimization=False) for sampler in (SAMPLERS[3], "basic"))
    with monkeypatch.context() as patch, pytest.raises(error):
        patch.setattr(*((model, "score_hrt") if moment == "score_hrt" else (other, "on_batch")), fail)
        loop.train(TRAINING, num_epochs=1, batch_size=256, use_tqdm=False, callbacks=[ours, other])
    torch.save(model, io.BytesIO())
    n_stored = len(ours.scores)
    for trained, callbacks in (again, None), (loop, EmbtrainTrainingCallback):
        trained.train(TRAINING, num_epochs=1, batch_size=256, use_tqdm=False, callbacks=callbacks)
        assert len(ours.scores) == n_stored and "process_slcwa_scores" not in vars(model.loss)


def test_an_instance_and_a_class_are_accepted() -> None:
    model = TransE(triples_factory=TRAINING, embedding_dim=8, random_seed=1)
    sampler = SAMPLERS[3](mapped_triples=TRIPLES, num_entities=E, num_relations=R, seed=1)
    for hint in (sampler, SAMPLERS[3]):
        loop = SLCWATrainingLoop(model=model, triples_factory=TRAINING, negative_sampler=hint)
        assert loop.train(TRAINING, num_epochs=1, batch_size=256, use_tqdm=False, callbacks=EmbtrainTrainingCallback)
    assert sampler.source.baseline != 0  # type: ignore[attr-defined]


def test_metrics_of_the_source_are_logged() -> None:
    register()
    model = TransE(triples_factory=TRAINING, embedding_dim=8, random_seed=1)
    loop = SLCWATrainingLoop(model=model, triples_factory=TRAINING, negative_sampler="embtrain-kbgan")
    logged = []
    loop.result_tracker.log_metrics = lambda metrics, step=None, prefix=None: logged.append((prefix, step, metrics))
    loop.train(TRAINING, num_epochs=2, batch_size=256, use_tqdm=False, callbacks="embtrain")
    ours = [(step, set(metrics)) for prefix, step, metrics in logged if prefix == "embtrain-kbgan"]
    assert ours == [(step, {"reward", "entropy", "false_negatives"}) for step in (1, 2)]


def test_workers_draw_different_negatives() -> None:
    """Rows of batches agree in the replaced entity and side only by chance: 1 in 14, and 1 in 2."""
    def run(n_workers: int, *callbacks: Any) -> list[tuple[Tensor, Tensor]]:
        changed = list[tuple[Tensor, Tensor]]()

        def record(epoch: int, batch: Any, **kwargs: Any) -> None:
            is_changed = batch["positives"][:100] != batch["negatives"][:100, 0]                       # (100, 3)
            entity = torch.where(is_changed[:, 0], batch["negatives"][:100, 0, 0], batch["negatives"][:100, 0, 2])
            side = torch.where(is_changed[:, 0], 0, torch.where(is_changed[:, 2], 1, -1))
            changed.append((entity, side))

        model = TransE(triples_factory=TRAINING, embedding_dim=8, random_seed=1)
        loop = SLCWATrainingLoop(model=model, triples_factory=TRAINING, negative_sampler=SAMPLERS[1])
        recorder = TrainingCallback()
        recorder.post_batch = record
        loop.train(TRAINING, num_epochs=2, batch_size=100, drop_last=True, use_tqdm=False, num_workers=n_workers,
                   callbacks=[recorder, *callbacks])
        return changed

    changed = run(2)
    assert len(changed) == 2 * 14
    for i, (entity, side) in enumerate(changed):
        for other_entity, other_side in changed[:i]:
            both = (side >= 0) & (other_side >= 0)
            assert (entity == other_entity)[both].float().mean() < .35
            assert (side == other_side)[both].float().mean() < .8
    with pytest.raises(UsageError, match=r"^training_kwargs: num_workers: the callback embtrain .* 0$"):
        run(1, EmbtrainTrainingCallback())


def test_the_page_prints_its_output() -> None:
    play = script("play")
    (block,) = play.blocks((DOCS / "how-to" / "pykeen.md").read_text(encoding="utf-8"))
    printed = play.play(block, {})
    assert play.shape(printed) == play.shape(block.expected) and play.differing(block.expected, printed) == []
