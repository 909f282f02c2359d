"""The output table: random, from a file, mixed; and the errors of a file."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from embtrain.common.errors import DataError, UsageError
from embtrain.common.types import ProblemSpec
from embtrain.data.vectors import vectors as files
from embtrain.data.vectors.folders import read_any
from embtrain.data.vectors.vectors import Vectors
from embtrain.models.lm import Lm, LmConfig
from embtrain.models.output_table import OutputTableConfig, initial_table
from embtrain.models.words.skipgram import SkipGram, SkipGramConfig
from embtrain.train.config import TrainConfig
from embtrain.train.engines import choose
from embtrain.train.optimizers import make_optimizers

D = 6
WORDS = ["the", "</s>", "<unk>", "cat", "sat", "mat", "zyx", *(f"w{i}" for i in range(40))]
COUNTS = torch.tensor([90.0, 50, 40, 30, 20, 10, 1, *range(45, 5, -1)], dtype=torch.float64)
P = np.random.default_rng(3).normal(size=(len(WORDS), D)).astype(np.float32) + 1


def file(folder: Path, words: list[str], table: np.ndarray = P) -> str:
    path = folder / "some.safetensors"
    files.write(path, Vectors(words, table[:len(words)]), "safetensors")
    return str(path)


def problem(seed: int = 1, **more: Any) -> ProblemSpec:
    return ProblemSpec(len(WORDS), COUNTS, len(WORDS), dim=D, seed=seed, words=WORDS, vectors=read_any, **more)


def build(**keys: Any) -> Tensor:
    table = initial_table(OutputTableConfig(**keys), problem(), D)
    assert table is not None and table.shape == (len(WORDS), D) and table.dtype == torch.float32
    torch.testing.assert_close(table.norm(dim=1), torch.ones(len(WORDS)))
    return table


def unit(x: np.ndarray) -> Tensor:
    return torch.from_numpy(x / np.linalg.norm(x, axis=1, keepdims=True)).float()


def test_random_tables_follow_the_seed_and_are_uniform() -> None:
    for kind in ("sphere", "hypercube"):
        assert torch.equal(build(kind=kind), build(kind=kind))
        other = initial_table(OutputTableConfig(kind=kind), problem(2), D)
        assert other is not None and not torch.equal(build(kind=kind), other)
        many = initial_table(OutputTableConfig(kind=kind), ProblemSpec(4000, torch.ones(4000), seed=1), D)
        assert many is not None and float(many.mean(0).norm()) < 0.1
        torch.testing.assert_close(many.T @ many / 4000, torch.eye(D) / D, atol=0.02, rtol=0)
    assert build(kind="hypercube").abs().unique().numel() == 1


def test_words_have_the_vectors_of_the_file_at_length_1(tmp_path: Path) -> None:
    table = build(kind="pretrained", file=file(tmp_path, WORDS))
    torch.testing.assert_close(table, unit(P))
    order = WORDS[::-1]
    torch.testing.assert_close(build(kind="pretrained", file=file(tmp_path, order)), unit(P[::-1].copy()))


def test_words_missing_in_the_file_have_random_unit_rows(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    known = [i for i, word in enumerate(WORDS) if word not in ("<unk>", "</s>", "zyx", "sat")]
    with caplog.at_level(logging.WARNING):
        table = build(kind="pretrained", file=file(tmp_path, [WORDS[i] for i in known], P[known]))
    assert "has vectors for 43 of 45 words" in caplog.text
    sphere = build(kind="sphere")
    for i, word in enumerate(WORDS):
        if word in ("zyx", "sat", "</s>"):
            assert torch.equal(table[i], sphere[i])
        elif word != "<unk>":
            torch.testing.assert_close(table[i], unit(P)[i])
    rare = sorted(known, key=lambda i: float(COUNTS[i]))[:len(known) // 10]
    torch.testing.assert_close(table[2], torch.nn.functional.normalize(unit(P)[rare].mean(0), dim=0))


def test_end_and_unknown_words_may_have_another_name_in_the_file(tmp_path: Path) -> None:
    there = [{"</s>": "<eos>", "<unk>": "UNK"}.get(word, word) for word in WORDS]
    torch.testing.assert_close(build(kind="pretrained", file=file(tmp_path, there)), unit(P))


def test_zero_row_has_no_direction_and_a_huge_one_has(tmp_path: Path) -> None:
    table = P.copy()
    table[3], table[4] = 0, 1e38
    result = build(kind="pretrained", file=file(tmp_path, WORDS, table))
    assert torch.equal(result[3], build(kind="sphere")[3])
    torch.testing.assert_close(result[4], torch.full((D,), D ** -0.5))


def test_centred_and_combined(tmp_path: Path) -> None:
    path = file(tmp_path, WORDS)
    x = unit(P).double()
    assert float(x.mean(0).norm()) > 0.5
    centred = build(kind="pretrained", file=path, centred=True)
    torch.testing.assert_close(centred, unit((x - x.mean(0)).numpy()))
    fewer = build(kind="pretrained", file=file(tmp_path, WORDS[:-9]), centred=True)
    y = x[:-9] - x[:-9].mean(0)                                              # the mean is that of the known words
    torch.testing.assert_close(fewer[:-9], unit(y.numpy()))
    path = file(tmp_path, WORDS)
    sphere = build(kind="sphere")
    torch.testing.assert_close(build(kind="combined", file=path, alpha=0), sphere)
    torch.testing.assert_close(build(kind="combined", file=path, alpha=1), x.float())
    mixed = build(kind="combined", file=path, alpha=0.25, centred=True)
    torch.testing.assert_close(mixed, torch.nn.functional.normalize(0.25 * centred + 0.75 * sphere, dim=1))


def test_table_in_a_narrow_cone_gives_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for far, warned in ((0.1, True), (3.0, False)):
        table = (np.ones(D) + far * np.random.default_rng(0).normal(size=P.shape)).astype(np.float32)
        x = unit(table).double()
        n = len(x)
        mean = float((x @ x.T).sum() - n) / (n * (n - 1))
        assert (mean > 0.5) == warned
        path = file(tmp_path, WORDS, table)
        with caplog.at_level(logging.WARNING):
            build(kind="pretrained", file=path, centred=True)
            assert not caplog.text
            build(kind="pretrained", file=path)
        assert (f"the mean cosine between words is {mean:.2f}" in caplog.text) == warned
        caplog.clear()


@pytest.mark.parametrize("kind", ["learned", "sphere", "hypercube"])
def test_unused_file_is_reported(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise the wrong table would be used without a warning."""
    initial_table(OutputTableConfig(kind=kind, file="x"), problem(), D)  # type: ignore[arg-type]
    expected = f"/x is not used, because model.output_table.kind is {kind}; set it to pretrained"
    assert [expected in r.message for r in caplog.records] == [True]
    caplog.clear()
    initial_table(OutputTableConfig(kind=kind), problem(), D)  # type: ignore[arg-type]
    assert not caplog.records


def test_run_folder_is_as_good_as_its_file(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    files.write(tmp_path / "run" / "vectors.safetensors", Vectors(WORDS, P), "safetensors")
    torch.testing.assert_close(build(kind="pretrained", file=str(tmp_path / "run")), unit(P))
    assert OutputTableConfig(kind="pretrained", file="x").file == str(Path("x").absolute())


class Wrong:
    """A reader that does not check its vectors."""

    def __init__(self, table: np.ndarray):
        self.table = table

    def find(self, words: list[str]) -> np.ndarray:
        return np.arange(len(words))


def test_file_error_is_one_line(tmp_path: Path) -> None:
    path = file(tmp_path, WORDS)

    def error_of(error: type[Exception], text: str, spec: ProblemSpec | None = None, dim: int = D, **keys: Any) -> None:
        with pytest.raises(error, match=text) as caught:
            initial_table(OutputTableConfig(**{"kind": "pretrained", "file": path, **keys}), spec or problem(), dim)
        assert len(str(caught.value).splitlines()) == 1

    error_of(UsageError, r"vectors of 6 numbers, but model\.dim is 7; set model\.dim: 6", dim=7)
    error_of(UsageError, r"model\.output_table\.file", file=None)
    error_of(UsageError, "candidates of this model are not words", ProblemSpec(9, torch.ones(9)))
    error_of(UsageError, r"learned: a frozen table must be given", kind="learned", frozen=True)
    error_of(DataError, "nothing.safetensors", file=str(tmp_path / "nothing.safetensors"))
    few = file(tmp_path, ["mat", "zyx", "w39"])
    error_of(DataError, r"has vectors for 3 of 45 words, 1\.5% of the running words; 50% are needed", file=few)
    odd = P.copy()
    odd[4, 2] = np.nan
    error_of(DataError, "the vector of 'sat' contains NaN or infinity",
             ProblemSpec(len(WORDS), COUNTS, words=WORDS, vectors=lambda _: Wrong(odd)))


def test_frozen_table_is_not_a_parameter_and_a_trained_one_is() -> None:
    for frozen in (True, False):
        fixed = OutputTableConfig(kind="sphere", frozen=frozen)
        for model in (SkipGram(SkipGramConfig(dim=D, output_table=fixed), problem()),
                      Lm(LmConfig(dim=D, tied=False, output_table=fixed), problem())):
            assert model.has_frozen_table == frozen and torch.equal(model.table(), build(kind="sphere"))
            actual = {id(p) for o in make_optimizers(model, torch.nn.Module(), TrainConfig())  # type: ignore[arg-type]
                      for g in o.param_groups for p in g["params"]}
            assert (id(model.table()) in actual) == (not frozen)
            assert "v" in model.state_dict()


def test_tied_language_model_rejects_an_output_table() -> None:
    with pytest.raises(UsageError, match=r"set model\.tied: false"):
        Lm(LmConfig(dim=D, output_table=OutputTableConfig(kind="sphere")), problem())


def test_kernels_leave_a_frozen_table_to_autograd() -> None:
    from embtrain.losses.base import LossConfig
    from embtrain.negatives.static.unigram import Unigram, UnigramConfig

    for frozen in (True, False):
        config = SkipGramConfig(output_table=OutputTableConfig(kind="sphere", frozen=frozen))
        actual = choose.why_not_fused(config, Unigram, UnigramConfig(), LossConfig(), TrainConfig(), True)
        assert [line.split(":")[0] for line in actual] == (["model.output_table.frozen"] if frozen else [])
