"""The training loop: rates, log lines, when it ends, and that it keeps what was learned."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.bits import same
from hypothesis import given, strategies as some

from embtrain.common.errors import DataError, Stopped, UsageError
from embtrain.common.types import ProblemSpec
from embtrain.data.text.windows import SkipGramBatch
from embtrain.losses import base as losses
from embtrain.models.words.skipgram import SkipGram, SkipGramConfig
from embtrain.negatives import base as sources
from embtrain.train.checks.finite import is_finite
from embtrain.train.checks.target_metric import first_passing, parse_threshold
from embtrain.train.config import TrainConfig
from embtrain.train.engines.autograd import clip_gradients
from embtrain.train.loop import Trainer
from embtrain.train.state import checkpoint
from embtrain.train.state.metrics_log import read

V, ROWS = 12, 6
RARE = V - 1  # a word that no batch and no draw contains

BETTER = "valid/log_likelihood"  # the metric that Fit monitors by default


class Blocks:
    """`n` blocks of ROWS examples an epoch, determined by (epoch, block); `before[step]` is called before that step."""

    def __init__(self, n: int = 4, empty: tuple[int, ...] = ()):
        self.n, self.empty, self.n_requests, self.before = n, empty, 0, dict[int, Callable[[], None]]()

    def n_blocks(self, epoch: int, block: int) -> int:
        return 0 if epoch in self.empty else self.n

    def blocks(self, epoch: int, block: int, start: int = 0, shuffle: bool = True) -> Iterator[SkipGramBatch]:
        for i in range(start, self.n_blocks(epoch, block)):
            self.before.get(epoch * self.n + i, int)()
            draw = torch.Generator().manual_seed(1000 * epoch + i)
            target, centre = torch.randint(RARE, (2, ROWS), generator=draw)
            self.n_requests += 1
            yield SkipGramBatch(target, torch.zeros_like(target), centre, torch.arange(ROWS))


def never() -> dict[str, float]:
    return {}


def fit(folder: Path, evaluate: Callable[[], dict[str, float]] = never, blocks: Blocks | None = None,
        source: str = "unigram", loss: str = "logistic", loss_settings: dict[str, Any] | None = None,
        **train: Any) -> Trainer:
    counts = torch.arange(V, 0, -1).double()
    counts[RARE] = 0
    problem = ProblemSpec(V, counts, n_contexts=V, raw_counts=counts, dim=4, seed=3)
    model = SkipGram(SkipGramConfig(dim=4), problem)
    with torch.no_grad():
        model.v.copy_(model.u.flip(0))
    cost = losses.find(loss)
    draws = sources.find(source)
    more = {"min_perplexity": 2, "hidden": 3} if source == "ace" else {}
    settings = draws.Config(source=source, k=3, filter="none" if loss == "nce" else "target", **more)
    return Trainer(
        model, draws(settings, problem), cost(cost.Config(name=loss, **(loss_settings or {})), problem),
        blocks or Blocks(), TrainConfig(**{"epochs": 2, "lr": 0.1, "log_every": 1, **train}), folder, evaluate)


def lines(folder: Path, key: str = "loss") -> list[dict[str, Any]]:
    return [line for line in read(folder / "metrics.jsonl") if key in line]


def series(*values: float) -> Callable[[], dict[str, float]]:
    left = iter(values)
    return lambda: {BETTER: next(left)}


# -- rates ----------------------------------------------------------------------------------------------------------


def test_rate_falls_linearly_after_warm_up(tmp_path: Path) -> None:
    fit(tmp_path, lr=0.1, min_lr=0.02, warmup=3, epochs=2).run()
    line = [0.1 - 0.08 * step / 8 for step in range(8)]
    assert [x["lr"] for x in lines(tmp_path)] == pytest.approx([line[0] / 3, line[1] * 2 / 3, *line[2:]], rel=1e-12)


def test_rate_is_a_tenth_in_the_epochs_of_burn_in_and_a_warm_up_multiplies_it(tmp_path: Path) -> None:
    fit(tmp_path, lr=0.1, min_lr=0.02, warmup=2, burn_in=1, epochs=3).run()
    line = [0.1 - 0.08 * step / 12 for step in range(12)]
    assert [x["lr"] for x in lines(tmp_path)] == pytest.approx(
        [line[0] / 20, *(x / 10 for x in line[1:4]), *line[4:]], rel=1e-12)


def test_floor_above_the_rate_keeps_the_rate(tmp_path: Path) -> None:
    fit(tmp_path, lr=0.1, min_lr=0.5, epochs=1).run()
    assert [x["lr"] for x in lines(tmp_path)] == [0.1] * 4


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adam"])
def test_optimizer_gets_the_rate_and_the_loss_its_own(tmp_path: Path, optimizer: str) -> None:
    training = fit(tmp_path, loss="nce", loss_settings={"partition": "global"}, optimizer=optimizer, lr=0.1, min_lr=0.0,
                   loss_lr=0.03, epochs=1)
    training.run()
    tables, own = training.optimizers
    assert isinstance(own, torch.optim.Adam)
    classes = {"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad, "adam": torch.optim.Adam}
    assert isinstance(tables, classes[optimizer])
    assert tables.param_groups[0]["lr"] == pytest.approx(0.1 / 4) and own.param_groups[0]["lr"] == 0.03


def test_rate_of_the_last_block_updates_the_tables(tmp_path: Path) -> None:
    """Two runs that differ only in min_lr separate at the second block, not before."""
    one, other = (fit(tmp_path / str(low), min_lr=low, epochs=1, blocks=Blocks(2)) for low in (0.0, 0.09))
    steps = [[training.model.u.detach().clone()] for training in (one, other)]
    for training, seen in zip((one, other), steps, strict=True):
        training.examples.before = {1: lambda t=training, s=seen: s.append(t.model.u.detach().clone())}
        training.run()
        seen.append(training.model.u.detach().clone())
    assert same(steps[0][1], steps[1][1]) and not same(steps[0][2], steps[1][2])


# -- log lines ------------------------------------------------------------------------------------------------------


def test_log_lines_at_intervals_and_at_the_end_of_each_epoch(tmp_path: Path) -> None:
    at = fit(tmp_path, log_every=3).run()
    result = lines(tmp_path)
    assert [(x["step"], x["epoch"], x["examples"]) for x in result] == [(3, 0, 18), (4, 1, 24), (6, 1, 36), (8, 2, 48)]
    assert (at.step, at.examples, at.epoch) == (8, 48, 2)
    clock = [x["seconds"] for x in result]
    assert clock == sorted(clock) and all(x["cpu_seconds"] >= 0 for x in result)


def test_log_line_contains_what_the_step_reported(tmp_path: Path) -> None:
    training = fit(tmp_path, epochs=1)
    result, step = [], training.step
    training.step = lambda *args, **keys: result.append(step(*args, **keys)) or result[-1]  # type: ignore[assignment]
    training.step.view = step.view
    training.run()
    for line, step_result in zip(lines(tmp_path), result, strict=True):
        assert line["loss"] == float(step_result.loss)
        hits = step_result.drawn.ids == step_result.query.target.unsqueeze(1)
        # a false negative is not a negative
        assert line["loss/noise"] == pytest.approx(float(step_result.cost[~hits].mean()))
        assert line["masked"] == pytest.approx(float(hits.double().mean()))
    assert any(line["masked"] > 0 for line in lines(tmp_path))


def test_log_line_contains_what_source_and_loss_learned(tmp_path: Path) -> None:
    fit(tmp_path / "a", source="ace", epochs=1).run()
    assert {"source/entropy", "source/reward", "loss/noise", "loss/generator"} <= lines(tmp_path / "a")[-1].keys()
    training = fit(tmp_path / "z", loss="nce", loss_settings={"partition": "global"}, epochs=1)
    training.run()
    assert lines(tmp_path / "z")[-1]["loss/log_z/mean"] == training.loss.metrics()["log_z/mean"] != 0


@pytest.mark.parametrize(("warmup", "blocks", "warning"), [
    (7, 4, ""), (0, 0, ""),
    (8, 4, "train.warmup: 8: the run has only 8 blocks, so it ends while the learning rate still rises to train.lr; "
           "set at most 4, or raise train.epochs"),
    (2000, 4, "train.warmup: 2,000: the run has only 8 blocks, so it ends while the learning rate still rises to "
              "train.lr; set at most 4, or raise train.epochs")])
def test_warmup_as_long_as_the_run_gives_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture, warmup: int,
                                                   blocks: int, warning: str) -> None:
    training = fit(tmp_path, blocks=Blocks(blocks), warmup=warmup)
    training.run()
    assert caplog.messages == [warning] * bool(warning)
    training.run()                                                      # nothing is left to train
    assert caplog.messages == [warning] * bool(warning)


def test_warmup_of_a_run_of_one_block(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fit(tmp_path, blocks=Blocks(1), epochs=1, warmup=3).run()
    assert caplog.messages == ["train.warmup: 3: the run has only 1 block, so it ends while the learning rate still "
                               "rises to train.lr; set 0, or raise train.epochs"]


# -- evaluations, the target, patience --------------------------------------------------------------------------------


def test_evaluation_after_each_epoch(tmp_path: Path) -> None:
    fit(tmp_path, series(-3.0, -2.0)).run()
    assert [(x["step"], x["epoch"], x[BETTER]) for x in lines(tmp_path, BETTER)] == [(4, 1, -3), (8, 2, -2)]


def test_evaluation_every_n_blocks(tmp_path: Path) -> None:
    fit(tmp_path, series(-3.0, -2.0), evaluate_every=3).run()
    assert [(x["step"], x[BETTER]) for x in lines(tmp_path, BETTER)] == [(3, -3), (6, -2)]


def test_epoch_without_blocks(tmp_path: Path) -> None:
    at = fit(tmp_path, series(-3.0, -2.0), blocks=Blocks(empty=(1,)), epochs=3).run()
    assert (at.epoch, at.step) == (3, 8) and [x["step"] for x in lines(tmp_path, BETTER)] == [4, 8]


@pytest.mark.parametrize("every", [0, 2])
def test_training_stops_without_patience_and_restores_the_best(tmp_path: Path, every: int) -> None:
    tables: list[torch.Tensor] = []
    worth = series(-3.0, -1.0, -2.0, -1.0)

    def evaluate() -> dict[str, float]:
        tables.append(training.model.u.detach().clone())
        return worth()

    training = fit(tmp_path, evaluate, patience=2, epochs=9, evaluate_every=every)
    at = training.run()
    assert len(tables) == 4 and at.step == 4 * (every or 4)  # equal to the best is not better
    assert (at.best, at.evaluations_since_best) == (-1.0, 2)
    assert same(training.model.u.detach(), tables[3])
    training.load("best")
    assert same(training.model.u.detach(), tables[1]) and training.position is at
    assert len(list((tmp_path / "best").glob("*.json"))) == 1

    again = fit(tmp_path, evaluate, patience=2, epochs=9, evaluate_every=every)  # a resume trains no further
    again.load()
    again.run()
    assert len(tables) == 4 and again.position.step == at.step and same(again.model.u.detach(), tables[3])


@pytest.mark.parametrize("between", [False, True])
def test_killed_run_never_resumes_before_its_best(tmp_path: Path, between: bool,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed after the best of step 4, or between the checkpoint and the best; no checkpoint was due before."""
    class Killed(BaseException):
        pass

    def save(self: Trainer, subfolder: str = "checkpoints") -> None:
        if subfolder == "best" and between:
            raise Killed
        honest(self, subfolder)

    def end() -> None:
        raise Killed

    honest, blocks = Trainer.save, Blocks(8)
    blocks.before[5] = end
    monkeypatch.setattr(Trainer, "save", save)
    first = fit(tmp_path, series(-2.0, -1.0, -3.0), patience=5, epochs=1, evaluate_every=2, checkpoint_every=3600,
                blocks=blocks)
    with pytest.raises(Killed):
        first.run()
    monkeypatch.undo()
    again = fit(tmp_path, series(-3.0, -3.0, -3.0), patience=5, epochs=1, evaluate_every=2, blocks=Blocks(8))
    again.load()
    reached = 2 if between else 4
    assert (again.position.step, again.position.best_step) == (reached, reached)
    assert again.position.best == (-2.0 if between else -1.0)
    again.run()
    assert max(line[BETTER] for line in lines(tmp_path, BETTER)) == again.position.best
    again.load("best")
    assert len(list((tmp_path / "best").glob("*.json"))) == 1
    assert checkpoint.load(tmp_path / "best")["position"]["step"] == reached


def test_patience_left_does_not_stop_training(tmp_path: Path) -> None:
    assert fit(tmp_path, series(-3.0, -4.0, -2.0, -4.0, -1.0, -2.0), patience=2, epochs=6).run().step == 24


@pytest.mark.parametrize("every", [3, 4, 5, 100])
def test_patience_evaluates_the_last_step_once(tmp_path: Path, every: int) -> None:
    """The best state is that of the last step, whether or not `evaluate_every` divides its number."""
    at = fit(tmp_path, series(*range(-9, 0)), evaluate_every=every, patience=9).run()
    steps = [x["step"] for x in lines(tmp_path, BETTER)]
    assert steps == [*range(every, 8, every), 8] and at.best_step == 8
    assert checkpoint.load(tmp_path / "best")["position"]["step"] == 8
    again = fit(tmp_path, lambda: pytest.fail("evaluated again"), evaluate_every=every, patience=9)
    again.load()
    again.run()


@pytest.mark.parametrize(("threshold", "steps"), [("-2.5", [6, 8]), ("-3.5", [6]), ("-1", [6, 8])])
def test_target_is_evaluated_after_the_last_step_unless_reached(tmp_path: Path, threshold: str,
                                                                steps: list[int]) -> None:
    fit(tmp_path, series(-9.0, -3.0, -2.0), evaluate_every=6, track_until=f"{BETTER}>{threshold}").run()
    assert [x["step"] for x in lines(tmp_path, BETTER)] == steps


def test_patience_without_a_metric_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^train\.patience: .*set train\.patience: 0$"):
        fit(tmp_path, lambda: {"x": 1.0}, patience=1).run()


@pytest.mark.parametrize(("text", "step"), [("valid/log_likelihood>-2.5", 8), ("valid/log_likelihood > -3.5", 4),
                                            ("valid/log_likelihood<-2", 4), ("valid/log_likelihood<-2.9", 4),
                                            ("valid/log_likelihood<-3", None), ("valid/log_likelihood>-1", None)])
def test_first_time_the_target_is_reached_is_reported(tmp_path: Path, text: str, step: int | None) -> None:
    # the first evaluation that sees the keys
    training = fit(tmp_path, series(-9.0, -3.0, -2.0, -1.0), track_until=text, epochs=3)
    training.run()
    line = first_passing(text, read(tmp_path / "metrics.jsonl"))
    assert line == (None if step is None else lines(tmp_path, BETTER)[step // 4 - 1])
    assert training.position.reached == (None if step is None else text)
    again = fit(tmp_path, track_until=text, epochs=3)
    again.load()
    assert again.position.reached == training.position.reached


@pytest.mark.parametrize("every", [0, 3, 4, 100])
def test_lines_of_the_log_count_whole_epochs(tmp_path: Path, every: int) -> None:
    """An epoch has 4 blocks. Its last line counts it, also if no evaluation follows."""
    fit(tmp_path, series(*range(-9, 0)), epochs=3, evaluate_every=every).run()
    logged = lines(tmp_path)
    assert [x["epoch"] for x in logged] == [x["step"] // 4 for x in logged] and logged[-1]["epoch"] == 3


def test_a_resumed_run_counts_the_epoch_whose_last_block_it_has_trained(tmp_path: Path) -> None:
    """Training is stopped during the evaluation after the last block of an epoch, which is then due again."""
    def stop() -> dict[str, float]:
        request_stop()
        return {BETTER: -9.0}

    with pytest.raises(Stopped):
        fit(tmp_path, stop, epochs=2, evaluate_every=4).run()
    again = fit(tmp_path, series(-9.0, -8.0), epochs=2, evaluate_every=4)
    again.load()
    again.run()
    assert [(x["step"], x["epoch"]) for x in lines(tmp_path, BETTER)] == [(4, 1), (8, 2)]


def test_target_that_is_not_measured_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^train\.track_until: no evaluation gives 'valid/mrr'; there are: a/b, "
                                         r"valid/log"):
        fit(tmp_path, lambda: {BETTER: -1.0, "a/b": 2.0}, track_until="valid/mrr>.5").run()
    assert lines(tmp_path) == []  # reported before training


@pytest.mark.parametrize("text", ["", "mrr", "mrr>", "mrr>high", "mrr=5", "mrr>=5"])
def test_target_that_is_not_a_comparison_is_an_error(text: str) -> None:
    with pytest.raises(UsageError, match=r"^train\.track_until: .*write e\.g\."):
        parse_threshold(text)


# -- numbers that are not finite --------------------------------------------------------------------------------------


def poison(training: Trainer, where: str, value: float) -> None:
    with torch.no_grad():
        {"seen": training.model.u.data, "never seen": training.model.v.data[RARE],
         "loss": next(training.loss.parameters(), torch.zeros(1)).data,
         "source": getattr(training.source, "generator", training.model).state_dict().popitem()[1],
         }[where].fill_(value)


def test_step_error_from_non_finite_numbers_is_reported_at_once(tmp_path: Path) -> None:
    training = fit(tmp_path, never, Blocks(16), log_every=8, epochs=1)

    def stumble(block: Any, keep_costs: bool) -> Any:
        raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
    training.step = stumble  # type: ignore[assignment]
    with pytest.raises(RuntimeError, match="probability tensor"):
        training.run_step(None)  # the numbers are finite: the error has another cause
    poison(training, "seen", math.nan)
    with pytest.raises(UsageError, match=r"^train\.lr: the model is no longer finite"):
        training.run_step(None)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", ["seen", "never seen", "loss", "source"])
def test_training_stops_within_a_log_interval_and_keeps_last_finite_state(tmp_path: Path, where: str,
                                                                          value: float) -> None:
    """After block 5 a number is not finite; the next line is due at 8."""
    more: dict[str, Any] = {"loss": {"loss": "nce", "loss_settings": {"partition": "global"}},
                            "source": {"source": "ace"}}
    training = fit(tmp_path, never, Blocks(16), log_every=4, checkpoint_every=1e-9, epochs=1, keep=1,
                   **more.get(where, {}))
    good: list[dict] = []
    training.examples.before = {5: lambda: good.append(checkpoint.load(tmp_path / "checkpoints"))
                                or poison(training, where, value)}
    with pytest.raises(UsageError) as error:
        training.run()
    assert 5 < training.position.step <= 8 and error.value.code == 2
    assert str(error.value).count("\n") == 0 and str(error.value).startswith("train.lr: the ")
    assert str(tmp_path / "checkpoints") in str(error.value)
    kept = checkpoint.load(tmp_path / "checkpoints")
    assert same(kept, good[0]) and kept["position"]["step"] == 5 and is_finite(kept)


def test_far_too_high_rate_stops_training(tmp_path: Path) -> None:
    training = fit(tmp_path, lr=1e17, min_lr=1e17, epochs=100, log_every=2)
    training.save()
    with pytest.raises(UsageError, match=r"^train\.lr: 1e\+17: the loss is (nan|inf) at block .*; lower it$"):
        training.run()
    assert training.position.step <= 10 and is_finite(checkpoint.load(tmp_path / "checkpoints"))


def test_no_evaluation_gets_non_finite_numbers(tmp_path: Path) -> None:
    training = fit(tmp_path, lambda: pytest.fail("evaluated"), Blocks(16), log_every=9, evaluate_every=3)
    training.examples.before = {2: lambda: poison(training, "never seen", math.nan)}
    with pytest.raises(UsageError, match="the model is no longer finite at block 3"):
        training.run()


def test_finite_check_covers_all_parameters() -> None:
    assert is_finite({"a": [torch.ones(3), (torch.tensor([1, 2]), 5, None)], "b": {"c": torch.zeros(0)}, "d": math.nan})
    for bad in (math.nan, math.inf, -math.inf):
        for state in ([torch.tensor([1.0, bad])], {"a": ({"b": torch.tensor(bad)},)}):
            assert not is_finite(state)
    assert not is_finite(torch.tensor([math.inf, -math.inf]))
    largest = torch.full((3, 8), torch.finfo(torch.float32).max)[:, :5]  # padded; their sum overflows
    assert is_finite(largest) and is_finite(-largest)
    for number in (math.inf, -math.inf, math.nan):
        broken = torch.zeros(3, 8)[:, :5]
        broken[2, 4] = number
        assert not is_finite(broken)


# -- clipping and reduction -------------------------------------------------------------------------------------------


@given(rows=some.lists(some.integers(0, 4), max_size=8), largest=some.floats(0.01, 50), seed=some.integers(0, 99))
def test_sparse_gradients_are_clipped_with_the_dense_ones(
        rows: list[int], largest: float, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    table, other, idle = (torch.zeros(5, 3, dtype=torch.float64, requires_grad=True) for _ in range(3))
    values = torch.randn(len(rows), 3, generator=draw, dtype=torch.float64)
    index = torch.tensor([rows], dtype=torch.int64)
    table.grad = torch.sparse_coo_tensor(index, values, (5, 3), check_invariants=True)  # a row may occur there twice
    other.grad = torch.randn(5, 3, generator=draw, dtype=torch.float64)
    before = torch.cat([table.grad.to_dense(), other.grad])
    clip_gradients([table, idle, other], largest)
    assert table.grad.is_sparse and idle.grad is None
    after = torch.cat([table.grad.to_dense(), other.grad])
    norm = float(before.norm())
    torch.testing.assert_close(after, before * min(1.0, largest / norm))
    assert float(after.norm()) <= largest * (1 + 1e-9)


def test_clipping_without_gradients() -> None:
    idle = torch.zeros(3, requires_grad=True)
    clip_gradients([idle], 1.0)
    assert idle.grad is None


def moved(folder: Path, **train: Any) -> torch.Tensor:
    """Return how far one block moves the tables."""
    training = fit(folder, blocks=Blocks(1), epochs=1, **train)
    before = [p.detach().clone() for p in training.model.parameters()]
    training.run()
    return torch.cat([p.detach() - b for p, b in zip(training.model.parameters(), before, strict=True)])


def test_clipped_update_has_the_configured_length(tmp_path: Path) -> None:
    free, clipped = (moved(tmp_path / str(clip), clip=clip, lr=0.5) for clip in (None, 0.01))
    assert float(clipped.norm()) == pytest.approx(0.5 * 0.01, rel=1e-4) and float(free.norm()) > 0.05
    torch.testing.assert_close(clipped / clipped.norm(), free / free.norm(), rtol=1e-3, atol=1e-5)


def test_mean_is_the_sum_divided_by_the_rows_of_its_batch(tmp_path: Path) -> None:
    whole = {name: moved(tmp_path / name, reduction=name) for name in ("sum", "mean")}
    torch.testing.assert_close(whole["sum"], ROWS * whole["mean"], rtol=1e-4, atol=1e-6)
    # Batches of 4 and 2 rows: up to a rate of 1e-4 the two updates simply add up.
    parts = {name: moved(tmp_path / f"{name} split", reduction=name, batch=4, lr=1e-4, min_lr=1e-4)
             for name in ("sum", "mean")}
    one = fit(tmp_path / "one", blocks=Blocks(1), batch=4, lr=1e-4)
    block = next(one.examples.blocks(0, 0))
    drawn = one.step(block).drawn
    expected = torch.zeros_like(parts["mean"])
    for rows in (slice(0, 4), slice(4, 6)):
        part = fit(tmp_path / str(rows.start), lr=1e-4)
        before = torch.cat([p.detach().clone() for p in part.model.parameters()])
        batch = block.rows(rows)
        part.step.update(batch, part.model.encode(batch), drawn.rows(rows), 0)
        expected += (torch.cat([p.detach() for p in part.model.parameters()]) - before) / (rows.stop - rows.start)
    torch.testing.assert_close(parts["mean"], expected, rtol=0.02, atol=1e-8)
    assert not torch.allclose(parts["mean"], parts["sum"] / ROWS, rtol=0.02, atol=1e-8)


# -- signals and checkpoints --------------------------------------------------------------------------------------


def request_stop(number: int = signal.SIGTERM) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signal_ends_training_after_the_block_with_all_saved(tmp_path: Path, number: int) -> None:
    training = fit(tmp_path, series(-1.0, -1.0))
    training.examples.before = {5: lambda: request_stop(number)}
    with pytest.raises(Stopped) as stopped:
        training.run()
    assert stopped.value.code == 128 + number
    kept = checkpoint.load(tmp_path / "checkpoints")
    assert [kept["position"][key] for key in ("step", "epoch", "block")] == [6, 1, 2] and training.position.step == 6
    assert same(kept["model"]["u"], training.model.u.detach())
    assert kept["position"]["log_offset"] == (tmp_path / "metrics.jsonl").stat().st_size


@pytest.mark.parametrize("every", [0, 2])
def test_signal_during_evaluation_ends_at_once_and_resume_evaluates(tmp_path: Path, every: int) -> None:
    """An evaluation may take longer than the user waits."""
    whole = fit(tmp_path / "whole", series(*range(8)), evaluate_every=every, patience=3)
    whole.run()

    calls, finished = [], []

    def evaluate() -> dict[str, float]:
        calls.append(training.position.step)
        if len(calls) == 2:
            request_stop()
            finished.append(True)
        return {BETTER: {s: i for i, s in enumerate(sorted(set(calls)))}[training.position.step]}

    training = fit(tmp_path / "cut", evaluate, evaluate_every=every, patience=3)
    with pytest.raises(Stopped):
        training.run()
    second = 2 * (every or 4)
    assert calls[-1] == second and not finished
    kept = checkpoint.load(tmp_path / "cut" / "checkpoints")
    assert kept["position"]["step"] == second and [x["step"] for x in lines(tmp_path / "cut", BETTER)] == [second // 2]
    training = fit(tmp_path / "cut", evaluate, evaluate_every=every, patience=3)
    training.load()
    training.run()
    assert calls[2] == second and len(calls) == len(set(calls)) + 1

    def evaluated_lines(folder: Path) -> list[dict[str, Any]]:
        return [{k: v for k, v in x.items() if "seconds" not in k} for x in read(folder / "metrics.jsonl")]

    assert evaluated_lines(tmp_path / "cut") == evaluated_lines(tmp_path / "whole")
    assert same(training.model.state_dict(), whole.model.state_dict())


def test_signal_before_evaluation_skips_it(tmp_path: Path) -> None:
    training = fit(tmp_path, lambda: pytest.fail("evaluated"), evaluate_every=2)
    training.examples.before = {1: request_stop}
    with pytest.raises(Stopped):
        training.run()
    assert checkpoint.load(tmp_path / "checkpoints")["position"]["step"] == 2


def test_signal_while_an_epoch_is_prepared(tmp_path: Path) -> None:
    training = fit(tmp_path)
    plain = training.examples.n_blocks

    def slow(epoch: int, block: int) -> int:
        if epoch == 1:
            request_stop()
        return plain(epoch, block)

    training.examples.n_blocks = slow  # type: ignore[method-assign]
    with pytest.raises(Stopped):
        training.run()
    assert training.examples.n_requests == 4 and checkpoint.load(tmp_path / "checkpoints")["position"]["epoch"] == 1


def test_checkpoints_at_intervals_and_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("embtrain.train.loop.time.monotonic", lambda: now[0])
    training = fit(tmp_path, checkpoint_every=2.5)
    training.examples.before = {step: lambda: now.__setitem__(0, now[0] + 1) for step in range(8)}
    saved: list[int] = []
    save = training.save
    training.save = lambda subfolder="checkpoints": saved.append(training.position.step) or save(subfolder)  # type: ignore[assignment]
    training.run()
    assert saved == [3, 6, 8]


def test_time_continues_after_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("embtrain.train.loop.time.monotonic", lambda: now[0])

    def tick() -> None:
        now[0] += 1

    training = fit(tmp_path)
    training.examples.before = {**dict.fromkeys(range(8), tick), 5: request_stop}
    with pytest.raises(Stopped):
        training.run()
    assert training.position.seconds == 5
    now[0] = 7.0
    again = fit(tmp_path)
    again.load()
    again.examples.before = dict.fromkeys(range(8), tick)
    assert again.run().seconds == 7


@pytest.mark.parametrize("clock", ["monotonic", "process_time"])
def test_times_leave_out_evaluations_and_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: str
                                                     ) -> None:
    """A step takes one second, an evaluation or a checkpoint 100."""
    now = [0.0]
    monkeypatch.setattr(f"embtrain.train.stopwatch.time.{clock}", lambda: now[0])

    def take(seconds: float) -> None:
        now[0] += seconds

    def evaluate() -> dict[str, float]:
        take(100)
        return {BETTER: now[0]}

    write = checkpoint.save
    monkeypatch.setattr(checkpoint, "save", lambda *state: take(100) or write(*state))
    training = fit(tmp_path, evaluate, evaluate_every=3, patience=9, track_until=f"{BETTER}>1e9")
    training.examples.before = dict.fromkeys(range(8), lambda: take(1))
    training.run()
    key = {"monotonic": "seconds", "process_time": "cpu_seconds"}[clock]
    assert [(x["step"], x[key]) for x in lines(tmp_path)] == [(step, step) for step in range(1, 9)]
    assert [x[key] for x in lines(tmp_path, BETTER)] == [3, 6, 8] and now[0] > 1000


OTHERS: dict[str, dict[str, Any]] = {
    "optimizer": {"optimizer": "adam"}, "source": {"source": "ace"},
    "loss": {"loss": "nce", "loss_settings": {"partition": "global"}},
}


@pytest.mark.parametrize("other", OTHERS)
def test_checkpoint_of_another_run_is_rejected_in_one_line(tmp_path: Path, other: str) -> None:
    for first, then in (({}, OTHERS[other]), (OTHERS[other], {})):
        fit(tmp_path / str(bool(first)), **first).run()
        with pytest.raises(DataError, match="belongs to another model, source, loss or optimizer") as error:
            fit(tmp_path / str(bool(first)), **then).load()
        assert "\n" not in str(error.value)


def test_checkpoint_of_another_size_or_incomplete_is_rejected(tmp_path: Path) -> None:
    training = fit(tmp_path)
    training.save()
    state = checkpoint.load(tmp_path / "checkpoints")
    wider = {**state, "model": {"u": torch.zeros(V, 5), "v": torch.zeros(V, 5)}}
    for broken in ({}, wider, {**state, "position": {"epoch": 1, "finished": True}}, {**state, "optimizers": []},
                   {**state, "optimizers": [{}]}, {**state, "source": None}, {**state, "source": {"random": 5}},
                   {**state, "model": 3}, {**state, "loss": [1]}, {**state, "position": 3}):
        checkpoint.save(tmp_path / "checkpoints", 1, broken, 1)
        with pytest.raises(DataError, match="belongs to another model"):
            fit(tmp_path).load()
