"""Hypernym pairs: protocols, rows of an epoch, positives, and runs on a small tree, resumed and compared."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.cores import NATIVE

import embtrain.train.loop as loop
from embtrain import experiment
from embtrain.cli import bench
from embtrain.common.errors import DataError, UsageError
from embtrain.data.hierarchy import closure
from embtrain.data.hierarchy.closure import PairSet
from embtrain.data.hierarchy.examples import HYPERNYM, HYPONYM, PairExamples, PairsConfig, known_pairs, load
from embtrain.data.hierarchy.files import RawHierarchy
from embtrain.data.hierarchy.splits import N_NEGATIVES, split
from embtrain.evaluate.pairs import hypernymy
from embtrain.experiment.run import components, scoring
from embtrain.experiment.run.settings import resolve
from embtrain.experiment.tasks import base as tasks
from embtrain.experiment.tasks.pairs import PairsTask
from embtrain.train.engines.autograd import Step
from embtrain.train.engines.compiled_pairs import CompiledPairs
from embtrain.train.optimizers import make_optimizers

pytestmark = pytest.mark.long

N = 121
#: A tree of three levels with three and more branches, and some concepts with two hypernyms.
TREE = np.array([(i, (i - 1) // 3) for i in range(1, N)] + [(i, (i - 1) // 3 - 1) for i in range(50, N, 7)])
NAMES = [f"c{i}" for i in range(N)]
READ = RawHierarchy(NAMES, TREE)
WHOLE = closure.closure(TREE, N, NAMES, "tree")


def pairs_of(protocol: str = "clean", by: str = "edge", n: int = 30, seed: int = 0, read: RawHierarchy = READ):
    return split(read, None, protocol, by, 0, (n, n), seed, "tree")


def rows(pairs: np.ndarray) -> list[tuple[int, ...]]:
    return sorted(map(tuple, pairs.tolist()))


@pytest.mark.parametrize("by", ["edge", "node"])
def test_clean_parts_are_the_closure_and_are_disjoint(by: str) -> None:
    task = pairs_of(by=by)
    assert rows(np.concatenate([task.train, task.held["valid"].pairs, task.held["test"].pairs])) == rows(WHOLE)
    for held in task.held.values():
        assert len(held) >= 30 and held.leak == held.false_negatives == 0
        assert held.negatives.shape == (len(held), N_NEGATIVES, 2)
        assert (
            not PairSet(WHOLE, N).contains(held.negatives).any()
            and (held.negatives[..., 0] != held.negatives[..., 1]).all()
        )
        shared = held.negatives == held.pairs[:, None]
        assert (shared.sum(2) == 1).all()                               # one end is replaced
        assert 0.5 <= shared[..., 0].mean() < 0.85                     # both kinds


def test_by_node_holds_out_all_but_the_direct_pairs_of_a_concept() -> None:
    task, direct = pairs_of(by="node"), set(rows(closure.reduction(TREE, WHOLE, N)))
    held = [*rows(task.held["valid"].pairs), *rows(task.held["test"].pairs)]
    hyponyms = {u for u, _ in held}
    assert not direct & set(held)
    assert {pair for pair in rows(task.train) if pair[0] in hyponyms} <= direct
    assert all(held.implied > 0.9 for held in task.held.values())


@pytest.mark.parametrize("n", [1, 7, 30, 4000])
def test_by_node_holds_out_less_than_one_concept_more(n: int) -> None:
    """The number, or a tenth of all pairs, is reached by the last concept, and every description states it."""
    task = pairs_of(by="node", n=n)
    target = min(n, len(WHOLE) // 10)
    for held in task.held.values():
        pairs_per_concept = np.bincount(held.pairs[:, 0])
        assert target <= len(held) < target + pairs_per_concept.max()
    for key in ("valid", "test"):
        assert "split: node may take fewer than the pairs of one concept more" in \
            " ".join((PairsConfig.model_fields[key].description or "").split())


def test_legacy_repeats_a_pair_for_each_path_and_leaks() -> None:
    task, above = pairs_of("legacy"), closure.closure_with_paths(TREE, N, NAMES, "tree")
    assert (above.paths > 1).any()
    whole = np.concatenate([task.train, task.held["valid"].pairs, task.held["test"].pairs])
    assert rows(whole) == rows(np.repeat(above.pairs, above.paths, 0)) and len(whole) > len(WHOLE)
    assert task.held["test"].negatives.shape[1] == 1
    leaks = [task.held[part].leak for task in (pairs_of("legacy", seed=s) for s in range(8)) for part in task.held]
    assert (
        max(leaks) > 0 and max(task.held["test"].false_negatives for task in (pairs_of("legacy", seed=s)
                                                                              for s in range(8))) > 0
    )


def test_legacy_counts_the_paths_of_the_reduction_of_a_closed_table() -> None:
    closed = RawHierarchy(NAMES, WHOLE, direct=False)
    assert len(pairs_of("legacy", read=closed).train) == len(pairs_of("legacy").train)


def test_a_split_depends_on_its_seed_only() -> None:
    a, b, c = (pairs_of(seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(a.held["test"].negatives, b.held["test"].negatives) and np.array_equal(a.train, b.train)
    assert not np.array_equal(a.held["test"].pairs, c.held["test"].pairs)


def test_at_most_a_tenth_is_held_out_and_too_few_pairs_are_refused() -> None:
    assert len(pairs_of(n=10_000).held["test"]) == len(WHOLE) // 10
    with pytest.raises(DataError, match="too few to hold some out"):
        split(RawHierarchy(["a", "b", "c"], np.array([[0, 1], [1, 2]])), None, "clean", "edge", 0, (1, 1), 0, "x")
    chain = RawHierarchy(NAMES[:20], np.stack([np.arange(1, 20), np.arange(19)], 1))
    with pytest.raises(UsageError, match="contains no split"):
        split(chain, None, "given", "edge", 0, (1, 1), 0, "x")


# --- rows ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("slot", ["random", "both", "hypernym", "hyponym"])
def test_rows_of_an_epoch(slot: str) -> None:
    examples = PairExamples(TREE, slot, seed=3)
    blocks = list(examples.blocks(2, 50))
    assert len(blocks) == examples.n_blocks(2, 50)
    slots = torch.cat([b.slot for b in blocks]).numpy()
    given, target = (torch.cat([getattr(b, name) for b in blocks]).numpy() for name in ("concept", "target"))
    pairs = np.where((slots == HYPERNYM)[:, None], np.stack([given, target], 1), np.stack([target, given], 1))
    assert rows(pairs) == rows(np.repeat(TREE, 2 if slot == "both" else 1, 0))
    share = {"random": (0.3, 0.7), "both": (0.5, 0.5), "hypernym": (0, 0), "hyponym": (1, 1)}[slot]
    assert share[0] <= (slots == HYPONYM).mean() <= share[1]
    later = list(examples.blocks(2, 50, start=1))
    assert all(torch.equal(a.target, b.target) and torch.equal(a.slot, b.slot)
               for a, b in zip(blocks[1:], later, strict=True))
    assert not torch.equal(next(iter(examples.blocks(3, 50))).concept, blocks[0].concept)
    expected = torch.stack([torch.bincount(torch.from_numpy(target), minlength=N).double()])
    counts = examples.counts(N)
    if slot != "random":
        assert torch.equal(counts, expected[0])
    assert float(counts.sum()) == examples.n


def test_unshuffled_rows_have_the_order_of_the_pairs() -> None:
    part_rows = PairExamples(TREE, "hypernym", 0)
    assert torch.cat([b.concept for b in part_rows.blocks(0, 7, shuffle=False)]).tolist() == TREE[:, 0].tolist()


def test_positives_of_each_open_end() -> None:
    known = known_pairs(TREE, N, 1 << 20)
    everyone = torch.arange(N)[None]
    for concept in (0, 1, 60, 120):
        up, down = known.contains(torch.tensor([[concept, HYPERNYM], [concept, HYPONYM]]), everyone)
        assert up.nonzero().flatten().tolist() == sorted(TREE[TREE[:, 0] == concept, 1].tolist())
        assert down.nonzero().flatten().tolist() == sorted(TREE[TREE[:, 1] == concept, 0].tolist())
    assert known.nbytes == 16 * len(TREE) and known.to("cpu").nbytes == known.nbytes


# --- runs ----------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tree") / "tree.tsv"
    path.write_text("".join(f"{NAMES[u]}\t{NAMES[v]}\n" for u, v in TREE.tolist()))
    return path


def settings(tree: Path, strategy: str = "order", loss: str | None = None, **keys: object):
    keys = {"train.epochs": 40, "model.dim": 10, "train.lr": 0.5, "train.batch": 32, "evaluate.resamples": 40} | keys
    return resolve(strategy, "order", str(tree), loss, sets=[f"{key}={value}" for key, value in keys.items()],
                   threads=1)


def scores(run: experiment.Run) -> dict[str, float]:
    return {f"{row.benchmark}/{row.metric}": row.value for row in run.scores
            if row.value is not None and row.benchmark != "training"}


def test_pairs_that_follow_from_training_are_masked_on_request(tree: Path) -> None:
    """Some held-out pairs follow from those of training. The answers marked as known stay those of training."""
    everyone, masked = torch.arange(N)[None], {}
    for observed in ("train", "closure"):
        config = settings(tree, **{"negatives.filter": "observed", "pairs.observed": observed})
        task = tasks.read(config)
        assert isinstance(task, PairsTask)
        names = [int(name[1:]) for name in task.hierarchy.concepts]
        known = components.build(config, task).known_positives
        assert known is not None
        contexts = torch.tensor([[concept, HYPERNYM] for concept in range(N)])
        masked[observed] = {(names[u], names[v]) for u, v in known.contains(contexts, everyone).nonzero().tolist()}
        assert len(task.known_positives(1 << 30)) == 2 * len(task.train)
    train = {(names[u], names[v]) for u, v in task.train.tolist()}
    assert masked["train"] == train < masked["closure"]
    closed = closure.closure(np.array(sorted(train)), N, NAMES, "train")
    assert masked["closure"] == set(map(tuple, closed.tolist()))
    with pytest.raises(UsageError, match=r"^pairs\.observed: closure: has no effect with negatives\.filter: target"):
        tasks.find(config).check(settings(tree, **{"negatives.filter": "target", "pairs.observed": "closure"}))


def accuracy(config: experiment.Settings) -> float:
    """Return the accuracy on the test pairs after training without a folder."""
    task = tasks.read(config)
    assert isinstance(task, PairsTask)
    built = components.build(config, task)
    optimizers = make_optimizers(built.model, built.loss, config.train)
    trainer = CompiledPairs if built.train.engine == "fused" else Step
    step = trainer(built.model, built.source, built.loss, optimizers, built.train, built.known_positives)
    for epoch in range(config.train.epochs):
        built.source.on_epoch_start(step.view)
        for block in task.examples.blocks(epoch, 512):
            assert np.isfinite(float(step(block).loss))
    return float(hypernymy.correct(task.score_held_out(built, "test"), task.score_held_out(built, "valid")).mean())


@pytest.mark.parametrize("engine", [*(["fused"] if NATIVE else []), "autograd"])
@pytest.mark.parametrize("orthant", ["clamp", "abs"])
def test_it_learns_a_tree(tree: Path, engine: str, orthant: str) -> None:
    assert accuracy(settings(tree, **{"train.engine": engine, "model.orthant": orthant})) > 0.68


#: Strategies and the loss that each is tested with.
STRATEGIES = {"uniform": "margin", "sgns": "order", "log-uniform": "order", "in-batch": "order", "resampled": "order",
              "semi-hard": "order", "cross-entropy": "nce", "softmax": "softmax"}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_strategy_learns_the_tree(tree: Path, strategy: str) -> None:
    own = {} if STRATEGIES[strategy] in ("nce", "softmax") else {"negatives.k": 8}
    loss = None if strategy in ("cross-entropy", "softmax") else STRATEGIES[strategy]
    assert accuracy(settings(tree, strategy, loss, **own)) > 0.65


@pytest.mark.parametrize("strategy", ["rff", "quadratic", "cluster"])
def test_a_source_that_needs_an_inner_product_is_refused(tree: Path, strategy: str) -> None:
    with pytest.raises(UsageError, match="scores by order"):
        accuracy(settings(tree, strategy, "logistic"))


def test_fit_writes_the_files_of_a_run(tree: Path, tmp_path: Path) -> None:
    result = scores(experiment.fit(settings(tree, **{"train.epochs": 2}), tmp_path / "run"))
    assert set(result) == {f"{part}/{name}{suffix}" for part in ("valid", "test") for name in ("accuracy", "f1", "ap")
                          for suffix in ("", "@10")}
    assert (tmp_path / "run" / "concepts.txt").read_text().splitlines()[0] == "c1"
    items = scoring.read_items(tmp_path / "run" / "items.safetensors")
    assert set(items) == {f"{part}/{name}" for part in ("valid", "test") for name in ("correct", "cluster")}
    assert items["test/correct"].mean() == pytest.approx(result["test/accuracy"])
    assert len(experiment.Run(tmp_path / "run").word_vectors) == N


def test_a_run_resumes_bit_for_bit(tree: Path, tmp_path: Path) -> None:
    cut = settings(tree, **{"train.epochs": 3, "train.chunk": 200, "train.log_every": 1})
    whole = experiment.fit(cut, tmp_path / "whole")
    original, calls = loop.Trainer.log, []

    def stop(self: loop.Trainer, reported: object) -> None:
        calls.append(1)
        original(self, reported)  # type: ignore[arg-type]
        if len(calls) == 3:
            self.save()
            raise KeyboardInterrupt
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop.Trainer, "log", stop)
        with pytest.raises(KeyboardInterrupt):
            experiment.fit(cut, tmp_path / "cut")
    assert scores(experiment.resume(tmp_path / "cut")) == scores(whole)
    assert (tmp_path / "cut" / "vectors.safetensors").read_bytes() == \
        (tmp_path / "whole" / "vectors.safetensors").read_bytes()


def test_another_hierarchy_under_the_same_name_is_refused(tree: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.tsv"
    own.write_text(tree.read_text().replace("c7\t", "other\t"))
    first, different = tasks.read(settings(tree)), tasks.read(settings(own))
    assert first.identity["sha256"] != different.identity["sha256"]
    first.describe(tmp_path)
    first.check_ids(tmp_path)
    with pytest.raises(DataError, match=r"concepts\.txt: differs from what the corpus gives"):
        different.check_ids(tmp_path)


def test_names_may_contain_line_separators(tree: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.tsv"
    own.write_bytes(tree.read_text().replace("c7\t", "c\u20287\x85\t").encode())
    stored = tasks.read(settings(own))
    stored.describe(tmp_path)
    stored.check_ids(tmp_path)


def test_a_plan_contains_the_counts_of_pairs(tree: Path) -> None:
    assert "121 concepts" in str(experiment.plan(settings(tree, **{"train.epochs": 1})))


def test_text_is_refused_as_a_hierarchy() -> None:
    with pytest.raises(UsageError, match=r"reader is .*, and model.name: order learns from a hierarchy; choose"):
        experiment.fit(resolve("order", "order", "three-novels"), Path("never"))


def test_the_split_is_part_of_the_identity(tree: Path) -> None:
    whole = load([tree], PairsConfig(valid=20, test=20), "tree", root="top")
    assert whole.concepts[-1] == "top" and whole.identity["settings"]["root"] == "top"
    assert whole.identity["counts"] == {"concepts": N + 1, "pairs read": len(TREE), "train": len(WHOLE) + N - 40,
                                        "valid": 20, "test": 20}


@pytest.mark.skipif(not NATIVE, reason="core: no compiled core here")
def test_the_bench_runs_on_a_small_tree(tree: Path) -> None:
    summary = bench.find("order")(1, [1], ["k4"], str(tree))
    assert set(summary["ratio"]) == {"k4-t1"} and summary["pairs_per_second"]["k4-t1"] > 0
    assert all(0.4 < quality["accuracy"] <= 1 for quality in summary["quality"]["k4-t1"].values())


@pytest.mark.parametrize(("keys", "message"), [
    ({"percent": 25}, "percent: requires protocol: given, but the protocol is clean"),
    ({"percent": 25, "protocol": "legacy"}, "percent: requires protocol: given, but the protocol is legacy"),
    ({"split": "node", "protocol": "legacy"}, "split: requires protocol: clean, but the protocol is legacy"),
    ({"split": "node", "protocol": "given"}, "split: requires protocol: clean, but the protocol is given")])
def test_a_key_of_another_protocol_is_refused(keys: dict[str, object], message: str) -> None:
    """Without this refusal another training set would be used silently."""
    with pytest.raises(ValueError, match=message):
        PairsConfig(**keys)  # type: ignore[arg-type]
