"""Models in a file of the user: a wrong result is one line with file and line number, never another training."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from embtrain.cli import entry_point
from embtrain.common.config.foreign_classes import unchecked
from embtrain.common.errors import UsageError, WrongClass
from embtrain.common.types import Batch, ProblemSpec
from embtrain.data.hierarchy.examples import PairBatch
from embtrain.data.triples.examples import TripleBatch
from embtrain.models import base as models

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from helpers import tiny_runs

B, K, V, D = 6, 3, 5, 4
MODEL = """import torch
from torch import nn
from embtrain.common.types import Query
from embtrain.models.base import Model, rank_keys


class Own(Model):
    name = "own"

    def __init__(self, config, problem):
        super().__init__(config, problem)
        self.u, self.v = (nn.Parameter(torch.randn(problem.n_candidates, config.dim)) for _ in range(2))

    def encode(self, batch):
        return Query(self.u[batch.slot], batch.slot, batch.target, batch.slot, rank_keys(batch.slot))

    def score(self, query, candidates):
        v = candidates if candidates.is_floating_point() else self.v[candidates]
        return (query.vector.unsqueeze(1) * v).sum(-1)

    def table(self):
        return self.v
"""
HOOKS = {"encode": (14, "Query(self.u[batch.slot], batch.slot, batch.target, batch.slot, rank_keys(batch.slot))"),
         "score": (17, "(query.vector.unsqueeze(1) * v).sum(-1)"), "table": (21, "self.v")}
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


def _made(**problem: Any) -> Any:
    found = models.find("own")
    return found(found.Config(name="own", dim=D), ProblemSpec(
        V, torch.ones(V, dtype=torch.float64, device="cpu"), V, **problem))


def _batch() -> Batch:
    return Batch(torch.arange(B) % V, torch.arange(B) // 2)


def _used(model: Any) -> Any:
    """The scores of a batch, as an update computes them."""
    query = model.encode(_batch())
    return model.score(query.with_vector(query.vector.detach().requires_grad_()), torch.zeros(B, K, dtype=torch.int64))


def _with(hook: str, result: str) -> str:
    return MODEL.replace(f"return {HOOKS[hook][1]}\n", f"return {result}\n")


def _more(text: str) -> str:
    """The model with another method, at line 24."""
    return f"{MODEL}\n    {text}\n"


def _query(vectors: str = "self.u[batch.slot]", context: str = "batch.slot", target: str = "batch.target",
           slot: str = "batch.slot", others: str = "") -> str:
    return f"Query({vectors}, {context}, {target}, {slot}{others and ', '}{others})"


VECTORS = rf"return floats of shape \({B}, D\), one for each example \(Query\.vectors\)$"
SCORES = rf"return floats of shape \({B}, {K}\), of each query and candidate$"
CANDIDATES = rf"return floats of shape \({V}, D\), the vectors of all candidates$"


@pytest.mark.parametrize(("result", "message"), [
    ("None", r"returned NoneType; return Query\(vectors, context, target, slot\)"),
    ("self.u[batch.slot]", "returned Tensor; return Query"),
    (_query("self.u"), rf"returned torch\.float32 of shape \({V}, {D}\); {VECTORS}"),
    (_query("self.u[batch.slot].sum(1)"), rf"returned torch\.float32 of shape \({B},\); {VECTORS}"),
    (_query("self.u[batch.slot].long()"), rf"returned torch\.int64 of shape \({B}, {D}\); {VECTORS}"),
    (_query("self.u[batch.slot].to('meta')"), r"returned a tensor on meta; return .*, on cpu \(Query\.vectors\)$"),
    (_query("None"), "returned NoneType; return floats"),
    (_query("self.u[batch.slot].detach()"), "returned vectors without a gradient; compute them from"),
    (_query(context="batch.slot.float()"), r"returned context of torch\.float32; return int64"),
    (_query(context="batch.slot[:2]"), rf"returned context of shape \(2,\); return \({B},\) or \({B}, columns\), one"),
    (_query(slot="0"), "returned slot of the type int; return a tensor"),
    (_query(slot="batch.slot.to('meta')"), "returned slot on meta, but the batch is on cpu; make it there"),
    (_query(target="batch.slot"), r"returned a target that is not that of the batch; return batch\.target"),
    (_query(target="batch.target.unsqueeze(1)"), rf"returned target of shape \({B}, 1\); return \({B},\), one row"),
    (_query(others="batch.slot + 7"), r"returned a query_id from 7 to 9; return 0\.\.Q-1 for Q"),
    (_query(others="2 * batch.slot"), r"returned a query_id from 0 to 4; return 0\.\.Q-1 for Q"),
    (_query(others="batch.slot - 1"), r"returned a query_id from -1 to 1; return 0\.\.Q-1"),
    (_query(others="torch.zeros_like(batch.slot)"), "returned a query_id that rows with different vectors have"),
    (_query(others="window=-batch.slot"), "returned a window that is not ascending; return the windows of the batch"),
    (_query(others="window=batch.slot, window_offsets=torch.arange(4)"), "returned window_offsets that are"),
    (_query(others="by_id=True"), "returned vectors by id without query_id; return it, or a vector for each example"),
    (_query(others="rank_keys(batch.slot), by_id=True"), rf"returned .*; return floats of shape \({B // 2}, D\)"),
])
def test_wrong_queries_are_refused(write: Write, result: str, message: str) -> None:
    path = write(_with("encode", result))
    with pytest.raises(UsageError, match=rf"^{path}:14: model\.name: own: encode {message}") as wrong:
        _used(_made())
    assert "\n" not in str(wrong.value)


@pytest.mark.parametrize(("result", "message"), [
    ("None", f"returned NoneType; {SCORES}"), ("0.5", f"returned float; {SCORES}"),
    ("(query.vector.unsqueeze(1) * v).sum()", rf"returned torch\.float32 of shape \(\); {SCORES}"),
    ("(query.vector.unsqueeze(1) * v).sum((1, 2))", rf"returned torch\.float32 of shape \({B},\); {SCORES}"),
    ("(query.vector.unsqueeze(1) * v).sum(-1)[:1]", rf"returned torch\.float32 of shape \(1, {K}\); {SCORES}"),
    ("(query.vector.unsqueeze(1) * v)", rf"returned torch\.float32 of shape \({B}, {K}, {D}\); {SCORES}"),
    ("(query.vector.unsqueeze(1) * v).sum(-1) > 0", rf"returned torch\.bool of shape \({B}, {K}\); {SCORES}"),
    ("(query.vector.unsqueeze(1) * v).sum(-1).to('meta')", rf"returned a tensor on meta; {SCORES[:-1]}, on cpu$"),
    ("(query.vector.unsqueeze(1) * v).sum(-1).detach()", "returned scores without a gradient"),
    ("(query.vector.detach().unsqueeze(1) * v).sum(-1)", r"returned scores that do not depend on query\.vector"),
])
def test_wrong_scores_are_refused(write: Write, result: str, message: str) -> None:
    path = write(_with("score", result))
    with pytest.raises(UsageError, match=rf"^{path}:17: model\.name: own: score {message}") as wrong:
        _used(_made())
    assert "\n" not in str(wrong.value)


@pytest.mark.parametrize(("result", "message"), [
    ("None", f"returned NoneType; {CANDIDATES}"), ("self.v.T", rf"returned torch\.float32 of shape \({D}, {V}\);"),
    ("self.v[0]", rf"returned torch\.float32 of shape \({D},\); {CANDIDATES}"),
    ("self.v.to('meta')", "returned a tensor on meta; return .*, on cpu$")])
def test_a_wrong_table_is_refused(write: Write, result: str, message: str) -> None:
    path = write(_with("table", result))
    with pytest.raises(UsageError, match=rf"^{path}:21: model\.name: own: table {message}"):
        _made().table()


ROWS = torch.arange(V)


@pytest.mark.parametrize(("method", "arguments", "message"), [
    ("penalty(self, batch): return self.v.square().sum()", (_batch(),), r"penalty returned torch\.float32 of shape "
     rf"\(\); return floats of shape \({B},\), one for each example, or None$"),
    ("penalty(self, batch): return 0.0", (_batch(),), "penalty returned float; return floats"),
    ("penalty(self, batch): return torch.zeros(len(batch))", (_batch(),), "penalty returned a penalty without a"),
    ("relation_table(self, relation): return self.v", (0,), "relation_table returned torch.float32 of shape .*; return "
     r"a geometry and a table, as \(\"dot\", self\.table\(\)\)$"),
    ("relation_table(self, relation): return 'euclid', self.v", (0,), "relation_table returned tuple; return a"),
    ("relation_table(self, relation): return 'l1', self.v[:2]", (0,), f"relation_table returned .*; {CANDIDATES}"),
    ("vectors(self, which='input'): return self.v[:2]", (), "vectors returned .*, one for each entry of the voc"),
    ("vectors(self, which='input'): return self.v.long()", ("sum",), r"vectors returned torch\.int64 of shape"),
    ("relations(self): return self.v[0]", (), r"relations returned .* shape \(R, D\), one for each relation, or None$"),
    ("earlier_rows(self, earlier, row): return {'u': row}", (None, ROWS), "earlier_rows returned NoneType for 'v'"),
    ("earlier_rows(self, earlier, row): return row", (None, ROWS), "earlier_rows returned Tensor; return a dict of"),
    ("earlier_rows(self, earlier, row): return dict.fromkeys('uv', row[:2])", (None, ROWS), "earlier_rows returned"),
    ("get_extra_state(self): return {'a': {1}}", (), r"get_extra_state returned set at \['a'\], which"),
])
def test_a_wrong_result_of_another_hook_is_refused(write: Write, method: str, arguments: tuple[Any, ...], message: str
                                                   ) -> None:
    path = write(_more(f"def {method}"))
    with pytest.raises(UsageError, match=rf"^{path}:24: model\.name: own: {message}"):
        getattr(_made(), method.partition("(")[0])(*arguments)


@pytest.mark.parametrize(("old", "new", "line", "message"), [
    ("encode(self, batch)", "encode(self)", 14, r"encode: TypeError: .*takes 1 positional argument but 2 were"),
    ("(self, config, problem)", "(self, config)", 10, "__init__: TypeError: .*takes 2 positional arguments but 3 were"),
    ("super().__init__(config, problem)", "nn.Module.__init__(self)", 10,
     r"__init__ leaves out the base class; call super\(\)\.__init__\(config, problem\) first"),
    ("nn.Parameter(torch.randn(problem.n_candidates, config.dim))",
     "torch.randn(problem.n_candidates, config.dim, requires_grad=True)", 10,
     r"u: is a tensor that no optimizer updates; assign it as nn\.Parameter$"),
    ("nn.Parameter(torch.randn(problem.n_candidates, config.dim))", "torch.randn(problem.n_candidates, config.dim)", 10,
     r"has no parameters to train; assign its tables as nn\.Parameter$"),
    ("for _ in range(2))", "for _ in range(2)); self.geometry = 'euclid'", 10, "geometry = 'euclid': is not a score"),
    ("for _ in range(2))", "for _ in range(2)); self.penalty = 0.1", 10,
     "penalty: is an attribute in place of the method; rename it")])
def test_a_model_that_cannot_be_built_or_called_is_one_line(write: Write, old: str, new: str, line: int, message: str
                                                            ) -> None:
    path = write(MODEL.replace(old, new))
    with pytest.raises(UsageError, match=rf"^{path}:{line}: model\.name: own: {message}"):
        _used(_made())


@pytest.mark.parametrize("definition", ["table = None", "table = property(lambda self: self.v)"])
def test_a_hook_that_is_not_a_method_is_refused(write: Write, definition: str) -> None:
    path = write(_more(definition))
    with pytest.raises(WrongClass, match=rf"^{path}: Own: table is not a method; define it with def$") as wrong:
        models.find("own")
    assert wrong.value.code == UsageError.code


@pytest.mark.parametrize(("declaration", "message"), [
    ('geometry = "euclid"', "geometry = 'euclid': is not a score function; set one of dot, cosine, l1"),
    ("tau = 'x'", "tau = 'x': is not a number above 0; set"),
    ("has_frozen_table = 'no'", "has_frozen_table = 'no': is not a boolean; set True or False")])
def test_a_wrong_declaration_is_refused_without_a_constructor(write: Write, declaration: str, message: str) -> None:
    path = write("from embtrain.models.words.skipgram import SkipGram\n"
                 f"class Own(SkipGram):\n    name = 'own'\n    {declaration}\n")
    with pytest.raises(WrongClass, match=rf"^{path}: Own: {message}"):
        models.find("own")


def test_declarations_can_be_properties_and_attributes_views_of_parameters(write: Write) -> None:
    write(_more("geometry = property(lambda self: 'cosine')\n    tau = property(lambda self: 2.0)").replace(
        "for _ in range(2))", "for _ in range(2)); self.first = self.v[:2]"))
    assert _made().tau == 2.0


def test_scores_can_be_computed_in_a_checkpoint_without_a_gradient_of_their_own(write: Write) -> None:
    write(MODEL.replace("import torch\n", "import torch\nfrom torch.utils.checkpoint import checkpoint\n", 1).replace(
        "(query.vector.unsqueeze(1) * v).sum(-1)",
        "checkpoint(lambda h, c: (h.unsqueeze(1) * c).sum(-1), query.vector, v, use_reentrant=True)"))
    _used(model := _made())
    assert model.training


ORDER = """import torch
from embtrain.models.hierarchies.base import HierarchyModel

class Own(HierarchyModel):
    name = "own"
    def start(self, generator):
        return torch.rand(self.problem.n_candidates, self.config.dim)
    @staticmethod
    def entailment_score(u, v, config):
        return -(u - v).square().sum(-1)
"""
PAIRS = rf"return floats of shape \({B}, {K}\), the score of each pair$"


@pytest.mark.parametrize(("old", "new", "message"), [
    (".sum(-1)", ".sum(-1).mean(1)", rf":8: model\.name: own: entailment_score returned .* \({B},\); {PAIRS}"),
    (".sum(-1)", ".sum()", rf":8: model\.name: own: entailment_score returned .* \(\); {PAIRS}"),
    (", config)", ")", r":8: model\.name: own: entailment_score: TypeError: .*takes 2 positional arguments but 3 were"),
    ("u - v", "u.detach() - v.detach()", r":8: model\.name: own: entailment_score returned numbers without a gradi"),
    ("(self.problem.n_candidates, ", "(2, ", r":6: model\.name: own: start returned .*\(2, 4\); return"),
    ("    @staticmethod\n    def entailment_score(u, v, config)", "    def pair_score(self, u, v)",
     "")])
def test_a_hierarchy_with_a_wrong_score_of_pairs_is_refused(write: Write, old: str, new: str, message: str) -> None:
    path = write(ORDER.replace(old, new))
    ids, batch = torch.zeros(B, K, dtype=torch.int64), PairBatch(torch.arange(B) % V, torch.zeros(B, dtype=torch.int64),
                                                                torch.zeros(B, dtype=torch.int64))
    def scored() -> Tensor:
        model = _made(context_sizes=(V, 2))
        scores: Tensor = model.score(model.encode(batch), ids)
        return scores
    if not message:
        assert scored().shape == (B, K)
        return
    with pytest.raises(UsageError, match=rf"^{path}{message}"):
        scored()


def test_a_static_score_of_pairs_is_checked_without_an_object(write: Write) -> None:
    path = write(ORDER.replace(".sum(-1)", ".sum()"))
    own, u = models.find("own"), torch.ones(B, D)
    with pytest.raises(UsageError, match=rf"^{path}:8: model\.name: own: entailment_score returned"):
        own.entailment_score(u, u, own.Config())


@pytest.mark.parametrize(("result", "message"), [
    ("sum(0)", rf"returned .*\({B}, D\), one for"), ("detach()", "returned vectors without a gradient; compute")])
def test_a_graph_model_with_a_wrong_query_vector_is_refused(write: Write, result: str, message: str) -> None:
    path = write("from embtrain.models.triples.distmult import DistMult\nclass Own(DistMult):\n    name = 'own'\n"
                 f"    def query_vector(self, entity, relation, sign):\n        return self.e[entity].{result}\n")
    zeros = torch.zeros(B, dtype=torch.int64)
    with pytest.raises(UsageError, match=rf"^{path}:4: model\.name: own: query_vector {message}"):
        _made(context_sizes=(V, 4)).encode(TripleBatch(zeros, zeros, zeros, zeros))


@pytest.mark.parametrize(("result", "message"), [
    ("context[:, 0].float()", r"returned query_id of torch\.float32; return int64$"),
    ("context", rf"returned query_id of shape \({B}, 2\); return \({B},\), one row for each example$"),
    ("context[:, 0] + 9", r"returned a query_id from 9 to 9; return 0\.\.Q-1 for Q distinct queries"), ("None", "")])
def test_a_graph_model_with_wrong_query_ids_is_refused(write: Write, result: str, message: str) -> None:
    path = write("from embtrain.models.triples.distmult import DistMult\nclass Own(DistMult):\n    name = 'own'\n"
                 f"    def query_ids(self, context):\n        return {result}\n")
    zeros = torch.zeros(B, dtype=torch.int64)
    model, batch = _made(context_sizes=(V, 4)), TripleBatch(zeros, zeros, zeros, zeros)
    if not message:
        assert model.encode(batch).query_id is None
        return
    with pytest.raises(UsageError, match=rf"^{path}:4: model\.name: own: query_ids {message}"):
        model.encode(batch)


@pytest.mark.parametrize(("result", "message"), [
    ("batch.concept", r"returned no tuple of three or four tensors; return \(context, target, slot, query_id\)$"),
    ("batch.concept, batch.target[:2], batch.slot", rf"returned target of shape \(2,\); return \({B},\)"),
    ("batch.concept, batch.target + 1, batch.slot", "returned a target that is not that of the batch"),
    ("batch.concept, batch.target, batch.slot, batch.slot - 1", "returned a query_id from -1 to -1; return"),
    ("batch.concept, batch.target, batch.slot", "")])
def test_a_hierarchy_with_wrong_fields_of_queries_is_refused(write: Write, result: str, message: str) -> None:
    path = write(f"{ORDER}    def query_fields(self, batch):\n        return {result}\n")
    zeros = torch.zeros(B, dtype=torch.int64)
    model, batch = _made(context_sizes=(V, 2)), PairBatch(zeros, zeros, zeros)
    if not message:
        assert model.encode(batch).query_id is None
        return
    with pytest.raises(UsageError, match=rf"^{path}:11: model\.name: own: query_fields {message}"):
        model.encode(batch)


def test_a_correct_model_has_no_error(write: Write) -> None:
    write(MODEL)
    model = _made()
    assert _used(model).shape == (B, K) and type(model) is models.find("own") is not unchecked(type(model))
    assert type(model).__module__ == unchecked(type(model)).__module__
    query, everyone = model.encode(_batch()), torch.arange(V).unsqueeze(0)
    assert model.score(query, everyone).shape == (B, V) and model.score(query, torch.ones(B, K, D)).shape == (B, K)
    with torch.no_grad():
        assert model.score(model.encode(_batch()), everyone).shape == (B, V)
    assert len(model.encode(Batch(ROWS[:0], ROWS[:0]))) == 0
    assert model.vectors().shape == model.table().shape == (V, D) and model.penalty(_batch()) is None
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert type(other) is type(model)
        assert torch.equal(other.score(query, everyone), model.score(query, everyone))
    model.eval()
    model.u.requires_grad_(False)
    assert model.encode(_batch()).vectors.shape == (B, D)


def test_numbers_that_are_not_finite_are_left_to_the_training(write: Write) -> None:
    write(MODEL)
    for value in (torch.nan, torch.inf):
        model = _made()
        model.u.data[0, 0] = value
        assert not _used(model).isfinite().all()


def test_models_of_embtrain_are_used_as_they_are(write: Write) -> None:
    write(MODEL)
    assert all(unchecked(found) is found for name in ("skipgram", "order", "lm") for found in [models.find(name)])


def test_a_run_with_a_wrong_model_ends_in_one_line(
        write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    path = write("from embtrain.models.words.skipgram import SkipGram\nclass Own(SkipGram):\n    name = 'own'\n"
                 "    def score(self, query, candidates):\n        return super().score(query, candidates)[:, :1]\n")
    tiny_runs.write(tmp_path)
    sets = [word for text in [*tiny_runs.TRAIN, *tiny_runs.OF_TEXT] for word in ("--set", text)]
    monkeypatch.setattr(sys, "argv", ["embtrain", "fit", "--model", "own", "--corpus", str(tmp_path / "text"), "--out",
                                      str(tmp_path / "run"), *sets])
    assert entry_point.run() == UsageError.code
    assert f"embtrain: error: {path}:4: model.name: own: score returned torch.float32" in capsys.readouterr().err
