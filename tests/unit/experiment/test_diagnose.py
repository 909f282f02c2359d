"""`embtrain diagnose`: sources compared with the softmax of a trained model, as tables, JSON and a page."""

from __future__ import annotations

import itertools
import json
import math
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.in_process import small_text
from helpers.pages import checked
from torch import Tensor

import embtrain
from embtrain import cli, experiment
from embtrain.common.errors import DataError, UsageError
from embtrain.common.types import ModelView, Negatives, Query
from embtrain.evaluate import gradient_bias
from embtrain.evaluate.words import hubness
from embtrain.experiment.diagnosis import diagnose as diagnosing, sampler_quality as measuring, subset_view
from embtrain.experiment.diagnosis.sampler_quality import measure_sampler
from embtrain.experiment.diagnosis.subset_view import SubsetView
from embtrain.experiment.run import components, stored
from embtrain.experiment.tasks import base as tasks
from embtrain.negatives.sampling import inner_product
from embtrain.negatives.softmax.cells.cluster import Cluster
from embtrain.negatives.static.uniform import Uniform
from embtrain.report.diagnosis import page as diagnosis, table as diagnosis_table
from embtrain.report.diagnosis.page import Measurement
from embtrain.train.engines.autograd import ReadOnly

pytestmark = pytest.mark.long

SETS = {"text.valid": 0.1, "text.test": 0.1, "text.min_count": 1, "text.sample": 0.01, "model.dim": 6,
        "train.epochs": 2, "train.chunk": 512, "train.batch": 128, "evaluate.heldout_pairs": 400,
        "evaluate.benchmarks": [],
        "evaluate.resamples": 40, "evaluate.neighbours": []}
NAMES = ["exp", "sampled-softmax", "rff", "cluster", "resampled", "in-batch", "in-batch-streaming", "semi-hard",
         "softmax", "uniform"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = small_text(tmp_path_factory.mktemp("diagnose"))
    cosine = {"model.similarity": "cosine", "model.tau": 6.0, "train.lr": 0.05}
    return embtrain.fit("cluster", corpus=place / "text", sets=SETS | cosine, seed=1, threads=1,
                        out=place / "run").folder


@pytest.fixture(scope="module")
def lines(run: Path) -> dict[tuple[str, int], Measurement]:
    found = diagnosing.diagnose(run, NAMES, [5, 20], max_queries=12, draws=800, threads=1)
    return {(line.strategy, line.m): line for line in found.lines}


def test_every_strategy_is_measured_at_every_size(lines: dict[tuple[str, int], Measurement]) -> None:
    assert set(lines) == {(name, m) for name in NAMES for m in (5, 20)}
    assert all(line.ms > 0 for line in lines.values())
    assert lines["cluster", 5].note == "" and "not corrected" in lines["semi-hard", 5].note


def test_the_softmax_has_distance_zero(lines: dict[tuple[str, int], Measurement]) -> None:
    for m in (5, 20):
        exp, unigram, every = (lines[name, m] for name in ("exp", "sampled-softmax", "softmax"))
        assert exp.kl == pytest.approx(0, abs=1e-6) and exp.ess == pytest.approx(1, abs=1e-5)
        assert exp.gap == pytest.approx(0, abs=1e-4)
        # The bias of the unbiased source is chance; that of the unigram is larger.
        assert exp.bias < exp.floor and unigram.bias > 1.5 * unigram.floor and unigram.kl > 0.01
        assert unigram.rmse > exp.rmse and every.bias == every.rmse == 0
        # It draws nothing, so no theorem applies; its time is that of scoring all candidates.
        assert (every.kl, every.tv, every.ess) == (0, 0, 1) and every.chi is every.low is every.lower is None
        assert every.note == "scores every candidate; the time includes that"
    assert lines["sampled-softmax", 20].bias < lines["sampled-softmax", 5].bias


def test_undefined_measures_are_not_reported(lines: dict[tuple[str, int], Measurement]) -> None:
    hard, resampled, rff = lines["semi-hard", 5], lines["resampled", 5], lines["rff", 5]
    assert hard.bias is None and hard.kl is None and resampled.kl is None and resampled.bias is not None
    assert lines["in-batch", 5].kl == pytest.approx(lines["sampled-softmax", 5].kl) and "estimates" in \
        lines["in-batch", 5].note
    assert lines["in-batch", 5].lower is None and hard.lower is None and resampled.lower is None
    assert -1e-4 < lines["exp", 5].lower <= 0 and lines["cluster", 5].lower < 0
    assert 0 < rff.low <= rff.high and rff.factor > 0 and 0 < rff.negative < 1
    assert {line.negative for (name, _), line in lines.items() if name == "rff"} == {rff.negative}
    assert all(line.low is None for (name, _), line in lines.items() if name != "rff")
    assert lines["exp", 5].negative is None


def test_an_estimated_distribution_is_trained_before_it_is_measured(lines: dict[tuple[str, int], Measurement]) -> None:
    """The batches have the frequencies of the data, so the estimate is nearer to the data than the uniform one."""
    kl = {name: lines[name, 20].kl for name in ("in-batch", "in-batch-streaming", "uniform")}
    assert kl["in-batch"] < kl["in-batch-streaming"] < 0.5 * (kl["in-batch"] + kl["uniform"])


def test_a_wrong_estimate_appears_as_bias(run: Path) -> None:
    trained = experiment.Run(run)
    built = components.build(trained.settings, tasks.read(trained.settings))
    stored.restore(run, trained.settings, built)
    view, (query, training, _) = ReadOnly(built.model), diagnosing.heldout_queries(built, 12)
    source, _ = diagnosing.source_of("in-batch", built, trained.settings, view, [20])
    exact = measure_sampler(source, query, training, view, built.problem, 20).error(20, 800)
    source.log_q = torch.full_like(source.log_q, -math.log(len(source.log_q)))
    wrong_estimate = measure_sampler(source, query, training, view, built.problem, 20).error(20, 800)
    assert wrong_estimate["bias"] > 1.5 * exact["bias"] and wrong_estimate["bias"] > 3 * wrong_estimate["floor"]


def test_the_softmax_time_is_that_of_scoring_all_candidates(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = experiment.Run(run)
    built = components.build(trained.settings, tasks.read(trained.settings))
    view, (query, training, _) = ReadOnly(built.model), diagnosing.heldout_queries(built, 12)
    source, _ = diagnosing.source_of("softmax", built, trained.settings, view, [20])
    scored, score = [], view.score
    monkeypatch.setattr(view, "score", lambda q, ids: (scored.append(len(q) * ids.shape[1]), score(q, ids))[1])
    monkeypatch.setattr(gradient_bias, "milliseconds", lambda call, seconds: float(call() is None))
    monkeypatch.setattr(measuring, "MAX_SCORES_HELD", 3 * view.n_candidates)
    assert measure_sampler(source, query, training, view, built.problem, 20).milliseconds(20) == 1 / len(training)
    assert sum(scored) == len(training) * view.n_candidates and max(scored) == 3 * view.n_candidates


def test_results_do_not_depend_on_the_number_of_timed_draws(
        run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources are measured at every m before they are timed, because q may depend on earlier draws."""

    def closeness(name: str, times: int) -> list[tuple[float | None, ...]]:
        def timed(call: Callable[[], object], seconds: float) -> float:
            for _ in range(times):
                call()
            return 1.0
        monkeypatch.setattr(gradient_bias, "milliseconds", timed)
        return [(line.m, line.bias, line.rmse, line.kl, line.tv, line.ess)
                for line in diagnosing.diagnose(run, [name], [5, 20], 4, 5, 1, tmp_path).lines]

    class Remembers(Uniform):
        """Source with q: half uniform, half the share of the last 50 targets."""

        name = "remembers"
        last = torch.zeros(50, dtype=torch.int64)

        def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
            self.last = torch.cat([self.last, query.target])[-50:]
            return super().draw(query, k, view)

        def log_prob(self, query: Query, ids: Tensor) -> Tensor:
            counts = torch.bincount(self.last, minlength=self.problem.n_candidates)
            return (0.5 / self.problem.n_candidates + 0.5 * counts[ids] / 50).log().expand(len(query), -1)
    original = diagnosing.source_of
    assert closeness("in-batch-streaming", 1) == closeness("in-batch-streaming", 40)

    def source_of(*args: Any, **more: Any) -> Any:
        source, note = original(*args, **more)
        source.__class__ = Remembers
        return source, note

    monkeypatch.setattr(diagnosing, "source_of", source_of)
    assert closeness("uniform", 1) == closeness("uniform", 40)


def test_bounds_of_theorem_1_are_reported_where_they_hold(run: Path, lines: dict[tuple[str, int], Measurement]) -> None:
    trained = experiment.Run(run)
    built = components.build(trained.settings, tasks.read(trained.settings))
    stored.restore(run, trained.settings, built)
    view, (query, _, _) = ReadOnly(built.model), diagnosing.heldout_queries(built, 12)
    source, _ = diagnosing.source_of("sampled-softmax", built, trained.settings, view, [20])
    everyone = torch.arange(view.n_candidates).unsqueeze(0)
    log_q = source.log_prob(query, everyone).double().expand(len(query), -1)
    one = gradient_bias.theorem1(view.score(query, everyone), inner_product.candidate_vectors(view), query.target,
                                 log_q, 20)
    line = lines["sampled-softmax", 20]
    assert (one.g < 0).any() and line.lower == pytest.approx(float(one.lower.median()))
    assert line.upper == pytest.approx(float(one.upper[one.g >= 0].median()))
    assert line.lower < 0 < line.upper and lines["sampled-softmax", 5].lower == pytest.approx(4 * line.lower)


def test_fewer_candidates_are_a_subset_of_the_model(run: Path) -> None:
    trained = experiment.Run(run)
    built = components.build(trained.settings, tasks.read(trained.settings))
    view, (query, _, _) = ReadOnly(built.model), diagnosing.heldout_queries(built, 2)
    sets = subset_view.nested_subsets(query.target, view.n_candidates, 1)
    assert [len(ids) for ids in sets] == [view.n_candidates // 4] and subset_view.nested_subsets(
        torch.arange(9), 120, 1
    ) == []
    sizes = subset_view.nested_subsets(query.target, 1000, 1)
    assert [len(ids) for ids in sizes] == [15, 62, 250]
    for fewer, more in itertools.pairwise(sizes):
        assert set(query.target.tolist()) <= set(fewer.tolist()) < set(more.tolist()) and (fewer.diff() > 0).all()
    few = SubsetView(view, ids := sets[0])
    restricted, problem = few.restrict_query(query), few.restrict_problem(built.problem)
    assert torch.equal(ids[restricted.target], query.target) and problem.n_candidates == few.n_candidates == len(ids)
    everyone = torch.arange(len(ids)).unsqueeze(0)
    torch.testing.assert_close(few.score(restricted, everyone), view.score(query, ids.unsqueeze(0)))
    assert torch.equal(few.table(), view.table()[ids]) and torch.equal(problem.counts, built.problem.counts[ids])
    assert problem.words == [built.problem.words[i] for i in ids.tolist()]


def test_bias_and_time_are_reported_for_fewer_candidates(run: Path, tmp_path: Path,
                                                         capsys: pytest.CaptureFixture[str]) -> None:
    (learner := tmp_path / "learner.yaml").write_text("negatives: "
                                                      "{source: ace, min_perplexity: 4, shortlist: 8, filter: none}\n")
    found = diagnosing.diagnose(run, ["softmax", "uniform", "cluster", str(learner)], [3, 6], 2, 400, 1, tmp_path)
    n = found.candidates
    at = {(size.strategy, size.n): size for size in found.growth}
    # An adaptive source is not trained on a subset.
    assert set(at) == {(name, n) for name in found.strategies} | {(name, n // 4) for name in found.strategies[:3]}
    assert all(size.m == 6 and size.ms > 0 for size in found.growth) and at["softmax", n // 4].bias == 0
    whole = next(line for line in found.lines if line.strategy == "uniform" and line.m == 6)
    # Which is larger depends on the vectors that were trained.
    assert at["uniform", n].bias == whole.bias != at["uniform", n // 4].bias > at["softmax", n // 4].bias
    page = (tmp_path / "diagnosis.html").read_text()
    checked(page)
    assert "Bias against n" in page and page.count("<svg viewBox") == 4
    printed = diagnosis_table.table(found)
    assert f"{n // 4:,}" in printed and max(map(len, printed.splitlines()[:-4])) <= 80


def test_distances_equal_their_definitions(run: Path, lines: dict[tuple[str, int], Measurement]) -> None:
    """The unigram and the softmax, both without the target, written out."""
    trained = experiment.Run(run)
    built = components.build(trained.settings, text := tasks.read(trained.settings))
    stored.restore(run, trained.settings, built)
    query, training, part = diagnosing.heldout_queries(built, 12)
    o = ReadOnly(built.model).score(query, torch.arange(built.problem.n_candidates).unsqueeze(0)).double()
    q = torch.from_numpy(text.windows.target_counts).double()
    found = []
    for i, t in enumerate(query.target.tolist()):
        others = [j for j in range(len(q)) if j != t]
        p = o[i, others].softmax(0)
        found.append(float((p * (p.log() - (q[others] / q[others].sum()).log())).sum()))
    assert part == "test" and len(query) == 12 and len(training) == 11
    measured_pairs = {(q.item(), t.item()) for q, t in zip(query.context, query.target, strict=True)}
    assert len({(q.item(), t.item()) for q, t in zip(training.context, training.target,
                                                     strict=True)} - measured_pairs) > 5
    assert lines["sampled-softmax", 5].kl == pytest.approx(sum(found) / len(found), rel=1e-4)


def test_a_source_is_trained_and_measured_on_different_queries(
        run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    received, hear = list[Query](), Cluster._record_queries
    monkeypatch.setattr(
        Cluster, "_record_queries", lambda self, query, view: (received.append(query), hear(self, query, view))
    )
    diagnosing.diagnose(run, ["cluster"], [5], 12, 20, 1, tmp_path)
    trained = experiment.Run(run)
    query, training, _ = diagnosing.heldout_queries(components.build(trained.settings, tasks.read(trained.settings)),
                                                    12)
    assert len(received) > 1 and all(torch.equal(one.target, training.target) for one in received)
    assert not torch.equal(query.target[:11], training.target)


def test_sampled_and_stated_q_give_equal_corrections(run: Path) -> None:
    """Both ways to measure a source with an exact q agree within chance."""
    measured = experiment.Run(run)
    built = components.build(measured.settings, tasks.read(measured.settings))
    stored.restore(run, measured.settings, built)
    view, (query, training, _) = ReadOnly(built.model), diagnosing.heldout_queries(built, 6)
    built.source.on_epoch_start(view)
    measured = measure_sampler(built.source, query, training, view, built.problem, 5)
    for way in (measured._draw_from_density, measured._draw_from_source):
        ids, log_mq = way(query, 5)(3)
        assert ids.shape == (6, 3, 5) and not (ids == query.target.view(6, 1, 1)).any()
        expected = measured._log_q(query).gather(1, ids.view(6, 15)).view(6, 3, 5) + math.log(5)
        torch.testing.assert_close(log_mq, expected, rtol=0, atol=1e-5)
    o, c, t = measured._scores(query), measured.c, query.target
    one, other = (
        gradient_bias.error_of_draws(o, c, t, 5, 600, way(query, 5))
        for way in (measured._draw_from_density, measured._draw_from_source)
    )
    torch.testing.assert_close(one.rmse, other.rmse, rtol=0.2, atol=0)


def test_files_and_terminal(run: Path, lines: dict[tuple[str, int], Measurement], tmp_path: Path,
                            monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads((run / "diagnosis" / "diagnosis.json").read_text())
    assert len(found["lines"]) == len(lines) and found["queries"] == 12 and found["part"] == "test"
    page = (run / "diagnosis" / "diagnosis.html").read_text()
    checked(page)
    assert page.count("<svg viewBox") == 2 and "http:" not in page.replace("http://www.w3.org", "")
    assert "| exp |" in (run / "diagnosis" / "diagnosis.md").read_text()
    words = ["embtrain", "diagnose", str(run), "--negatives", "exp,rff", "--m", "5", "--queries", "4", "--draws", "20",
             "--threads", "1", "--out", str(tmp_path / "out"), "--quiet"]
    monkeypatch.setattr("sys.argv", words)
    assert cli.run() == 0
    printed = capsys.readouterr().out
    assert "rff m=5" in printed and max(map(len, printed.splitlines()[:-1])) <= 80 and (tmp_path / "out").is_dir()
    monkeypatch.setattr("sys.argv", [*words, "--json"])
    assert cli.run() == 0
    assert [line["m"] for line in json.loads(capsys.readouterr().out)["lines"]] == [5, 5]


def test_a_number_with_too_many_digits_is_a_usage_error(run: Path, monkeypatch: pytest.MonkeyPatch,
                                                        capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["embtrain", "diagnose", str(run), "--negatives", "exp", "--m", "9" * 5000])
    assert cli.run() == 2
    assert "--m: '999" in (err := capsys.readouterr().err) and len(err) < 300


def test_an_impossible_measurement_is_refused_in_one_line(run: Path, tmp_path: Path) -> None:
    for names, sizes, message in ((["cross-entropy"], [5], "draws nothing"), (["nosuch"], [5], "nosuch"),
                               (["semi-hard"], [500], r"negatives\.k: 500")):
        with pytest.raises(UsageError, match=message) as caught:
            diagnosing.diagnose(run, names, sizes, 4, 10, 1, tmp_path)
        assert len(str(caught.value).splitlines()) == 1
    with pytest.raises(DataError, match="is not a run"):
        diagnosing.diagnose(tmp_path, ["exp"], [5])


def test_a_folder_that_cannot_be_written_is_refused_before_any_work(run: Path, tmp_path: Path,
                                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my.txt").write_text("mine")
    monkeypatch.setattr(diagnosing, "_open_run", lambda *_: pytest.fail("worked first"))
    with pytest.raises(UsageError, match=r"^--out: \S*my\.txt: is not a folder; choose another$"):
        diagnosing.diagnose(run, [], [5], out=tmp_path / "my.txt")
    with pytest.raises(DataError, match="is not a run"):
        diagnosing.diagnose(tmp_path / "my.txt", [], [5])


@pytest.mark.parametrize("name", diagnosing.FILES)
def test_a_folder_in_the_place_of_a_file_is_refused_before_any_work(run: Path, tmp_path: Path, name: str,
                                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    diagnosing.diagnose(run, [], [5], out=tmp_path)
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir()
    monkeypatch.setattr(diagnosing, "_open_run", lambda *_: pytest.fail("worked first"))
    message = "belongs to no diagnosis" if name == "diagnosis.json" else \
        rf"^--out: {tmp_path / name}: is not a file, and a diagnosis needs a file there; move it, or choose another f"
    with pytest.raises(UsageError, match=message):
        diagnosing.diagnose(run, [], [5], out=tmp_path)


def test_an_unfinished_run_gives_a_warning(run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    half = tmp_path / "half"
    shutil.copytree(run, half, ignore=shutil.ignore_patterns("scores.json", "diagnosis"))
    found = diagnosing.diagnose(half, ["uniform"], [5], 4, 20, 1)
    note = caplog.messages[-1].removeprefix(f"{half}: ")
    assert re.fullmatch(r"not finished: 2 of 2 epochs, step \d+", note)
    assert found.run == f"half, {note}" and found.lines[0].note.startswith(note)
    assert note in diagnosis_table.table(found)
    for name in ("json", "md", "html"):
        assert note in (half / "diagnosis" / f"diagnosis.{name}").read_text()
    caplog.clear()
    assert diagnosing.diagnose(run, [], [5], out=tmp_path / "out").run == run.name and not caplog.messages


def test_all_sources_without_significant_bias_are_named() -> None:
    def least_biased(**bias: tuple[float, float, float]) -> str:
        lines = [Measurement(name, 5, ms, bias=b, floor=floor) for name, (ms, b, floor) in bias.items()]
        return " ".join(diagnosis.document(diagnosis.Diagnosis("r", "lm", "c", "test", 3, 9, 10, 1, lines)).verdict)
    text = least_biased(exp=(5.0, 0.0, 0.01), midx=(2.0, 0.0, 0.02), uniform=(1.0, 0.3, 0.05))
    assert "no bias above chance is observed with exp, midx; of these midx is the cheapest, 2" in text
    assert "uniform is the cheapest of those whose bias is known, 0.3" in text
    assert "least biased with exp" in least_biased(exp=(5.0, 0.1, 0.01), uniform=(1.0, 0.3, 0.05))


def test_a_non_finite_number_is_null_and_text_is_escaped() -> None:
    assert measuring._known(torch.tensor(math.inf)) is None and measuring._known(torch.tensor(2.0)) == 2
    found = diagnosis.Diagnosis("<b>", "skipgram", "<i>", "test", 3, 9, 10, 1,
                                [Measurement("<script>x", 5, 0.1, bias=0.2, floor=0.1, rmse=0.3)])
    document = diagnosis.document(found)
    assert document.name == "skipgram · on <i> · 9 candidates · 3 queries of test · 10 draws each · 1 thread · <b>"
    one = diagnosis.document(replace(found, queries=1, draws=1, threads=2)).name
    assert " · 1 query of test · 1 draw each · 2 threads · " in one
    page = diagnosis.html.render(document)
    assert "<script>x" not in page and "<i>" not in re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)


def test_the_table_geometry_is_reported_with_and_without_strategies(run: Path, tmp_path: Path,
                                                                    monkeypatch: pytest.MonkeyPatch,
                                                                    capsys: pytest.CaptureFixture[str]) -> None:
    diagnosed = diagnosing.diagnose(run, [], [5], out=tmp_path / "out")
    assert diagnosed.lines == [] and diagnosed.table is not None
    built = experiment.Run(run)
    words = tasks.read(built.settings).corpus.vocabulary.words  # type: ignore[attr-defined]
    assert diagnosed.table.rows == len(words) and {hub.name for hub in diagnosed.table.hubs} <= set(words)
    result = json.loads((tmp_path / "out" / "diagnosis.json").read_text())
    lines = (run / "vocabulary.txt").read_text(encoding="utf-8").splitlines()
    times = {word: int(n) for word, n in (line.split("\t") for line in lines)}
    assert [hub.count for hub in diagnosed.table.hubs] == [times[hub.name] for hub in diagnosed.table.hubs]
    n_rows = [sum(low <= n < high for n in times.values()) for _, low, high in hubness.FREQUENCY_BANDS]
    assert [band.rows for band in diagnosed.table.bands] == [n for n in n_rows if n]
    assert result["table"]["hubs"][0]["name"] == diagnosed.table.hubs[0].name and result["table"]["bands"]
    page = (tmp_path / "out" / "diagnosis.html").read_text()
    checked(page)
    assert diagnosed.table.hubs[0].name in page and "Theorem" not in page
    monkeypatch.setattr("sys.argv", ["embtrain", "diagnose", str(run), "--out", str(tmp_path / "out"), "--quiet"])
    assert cli.run() == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"table of {len(words):,} rows" and max(map(len, lines[:-1])) <= 80
