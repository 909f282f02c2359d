"""`embtrain diagnose --dump-negatives`: each line agrees with the source and the model."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch
from helpers.in_process import small_text

import embtrain
from embtrain import cli
from embtrain.common.errors import UsageError
from embtrain.experiment.diagnosis import dump
from embtrain.experiment.diagnosis.diagnose import heldout_queries, open_run
from embtrain.train.engines.autograd import ReadOnly

pytestmark = pytest.mark.long

SETS = {"text.valid": 0.1, "text.test": 0.1, "text.min_count": 1, "text.sample": 0.01, "model.dim": 6,
        "train.epochs": 1, "train.chunk": 512, "train.batch": 128, "evaluate.heldout_pairs": 100,
        "evaluate.benchmarks": [],
        "evaluate.resamples": 40, "evaluate.neighbours": []}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = small_text(tmp_path_factory.mktemp("dump"))
    return embtrain.fit("sgns", corpus=place / "text", sets=SETS, seed=1, threads=1, out=place / "run").folder


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def test_each_line_agrees_with_source_and_model(run: Path, tmp_path: Path) -> None:
    out, ace = tmp_path / "drawn.tsv", tmp_path / "ace.yaml"
    ace.write_text("negatives: {source: ace, k: 5, filter: none, share_draws_by: row, min_perplexity: 10}\n"
                   "loss: {name: nce}\n")
    assert dump.dump(run, ["sgns", str(ace), "semi-hard"], out, k=5, max_queries=7, threads=1) == len(read(out))
    lines = read(out)
    _, built = open_run(run, ["sgns"], [5])
    view, (query, *_) = ReadOnly(built.model), heldout_queries(built, 7)
    words = list(built.task.candidate_names())
    every = view.score(query, torch.arange(len(words)).unsqueeze(0))
    log_q = built.source.log_prob(query, torch.arange(len(words)).unsqueeze(0)).expand(7, -1)
    known = built.task.known_positives(1 << 30)
    rows = [(words[c], words[t]) for c, t in zip(query.context.tolist(), query.target.tolist(), strict=True)]
    assert len({line["known"] for line in lines}) == 3
    for line in lines:
        i, j = rows.index((line["query"], line["target"])), words.index(line["drawn"])
        assert float(line["score"]) == pytest.approx(float(every[i, j]), rel=1e-4, abs=1e-6)
        seen = bool(known.contains(query.context[i:i + 1], torch.tensor([[j]])))
        assert line["known"] == ("target" if line["drawn"] == line["target"] else "yes" if seen else "no")
        if line["strategy"] == "sgns":
            assert float(line["log_q"]) == pytest.approx(float(log_q[i, j]), rel=1e-4)
            assert (line["drawn_by"], line["weight"]) == ("noise", "1")
    assert {line["drawn_by"] for line in lines if line["strategy"] == str(ace)} == {"noise", "generator", "probe"}
    assert all((line["weight"] == "0") == (line["drawn_by"] == "probe") for line in lines)
    assert all(line["log_q"] == "" for line in lines if line["strategy"] == "semi-hard")


def test_the_command(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
                     monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "drawn.tsv"
    monkeypatch.setattr("sys.argv", ["embtrain", "diagnose", str(run), "--negatives", "uniform", "--m", "2",
                                     "--queries", "3", "--dump-negatives", str(out), "--threads", "1"])
    assert cli.run() == 0
    assert capsys.readouterr().out == f"6 negatives: {out}\n" and len(read(out)) == 6
    assert not (run / "diagnosis").exists()


def test_the_default_is_the_strategy_of_the_run(run: Path, tmp_path: Path) -> None:
    n = dump.dump(run, [], tmp_path / "drawn.tsv", k=2, max_queries=3, threads=1)
    assert n == 6 and {line["strategy"] for line in read(tmp_path / "drawn.tsv")} == {"sgns"}


def test_a_source_that_draws_nothing_is_refused_and_nothing_is_written(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cross-entropy draws nothing"):
        dump.dump(run, ["uniform", "cross-entropy"], tmp_path / "drawn.tsv", k=5, max_queries=3, threads=1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("requested", "used"), [(None, 1), (2, 2)])
def test_a_run_uses_its_own_number_of_threads_by_default(run: Path, requested: int | None, used: int) -> None:
    torch.set_num_threads(3)
    try:
        open_run(run, ["sgns"], [5], requested)
        assert torch.get_num_threads() == used
    finally:
        torch.set_num_threads(1)


def test_a_folder_as_output_file_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^--dump-negatives: .*: is a folder; give a file$"):
        dump.dump(run, [], tmp_path, k=2)


def test_inputs_are_kept(run: Path, tmp_path: Path) -> None:
    text, strategy = run.parent / "text" / "03.txt", tmp_path / "mine.yaml"
    before = text.read_bytes()
    strategy.write_text("negatives: {source: uniform}\n")
    with pytest.raises(UsageError, match=r"^--dump-negatives: .*03.txt: is or may be data of the run .* \(corpus\)"):
        dump.dump(run, [], text, k=2)
    with pytest.raises(UsageError, match=r"mine.yaml: is the file that the command reads; choose another name$"):
        dump.dump(run, [str(strategy)], strategy, k=2)
    assert text.read_bytes() == before and strategy.read_text().startswith("negatives")


def test_negatives_of_a_strategy_for_graphs_are_written(tmp_path: Path) -> None:
    """`bernoulli` sets keys that only models of graphs have."""
    text = tmp_path / "graph.tsv"
    text.write_text("".join(f"e{i % 7}\tr{i % 3}\te{(i * i + 1) % 11}\n" for i in range(120)))
    sets = {"model.dim": 4, "train.epochs": 1, "evaluate.resamples": 40, "triples.valid": 0.1, "triples.test": 0.1}
    run = embtrain.fit("margin", model="transe", corpus=text, sets=sets, seed=1, out=tmp_path / "run").folder
    assert dump.dump(run, ["bernoulli"], tmp_path / "drawn.tsv", k=3, max_queries=4, threads=1) > 0
    assert {line["strategy"] for line in read(tmp_path / "drawn.tsv")} == {"bernoulli"}
