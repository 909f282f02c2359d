"""The output table: random, from a file, mixed; and what a file can do wrong."""

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
from embtrain.models.skipgram import SkipGram, SkipGramConfig
from embtrain.train.config import TrainConfig
from embtrain.train.engines import choose
from embtrain.train.loop import optimizers

D = 6
WORDS = ["the", "</s>", "<unk>", "cat", "sat", "mat", "zyx", *(f"w{i}" for i in range(40))]
COUNTS = torch.tensor([90.0, 50, 40, 30, 20, 10, 1, *range(45, 5, -1)], dtype=torch.float64)
P = np.random.default_rng(3).normal(size=(len(WORDS), D)).astype(np.float32) + 1


def file(folder: Path, words: list[str], table: np.ndarray = P) -> str:
    path = folder / "some.safetensors"
    files.write(path, Vectors(words, table[:len(words)]), "safetensors")
    return str(path)


def world(seed: int = 1, **more: Any) -> ProblemSpec:
    return ProblemSpec(len(WORDS), COUNTS, len(WORDS), dim=D, seed=seed, words=WORDS, vectors=read_any, **more)


def made(**keys: Any) -> Tensor:
    found = initial_table(OutputTableConfig(**keys), world(), D)
    assert found is not None and found.shape == (len(WORDS), D) and found.dtype == torch.float32
    torch.testing.assert_close(found.norm(dim=1), torch.ones(len(WORDS)))
    return found


def unit(x: np.ndarray) -> Tensor:
    return torch.from_numpy(x / np.linalg.norm(x, axis=1, keepdims=True)).float()


def test_random_tables_are_of_the_seed_and_even() -> None:
    for kind in ("sphere", "hypercube"):
        assert torch.equal(made(kind=kind), made(kind=kind))
        other = initial_table(OutputTableConfig(kind=kind), world(2), D)
        assert other is not None and not torch.equal(made(kind=kind), other)
        many = initial_table(OutputTableConfig(kind=kind), ProblemSpec(4000, torch.ones(4000), seed=1), D)
        assert many is not None and float(many.mean(0).norm()) < 0.1
        torch.testing.assert_close(many.T @ many / 4000, torch.eye(D) / D, atol=0.02, rtol=0)
    assert made(kind="hypercube").abs().unique().numel() == 1


def test_words_have_the_vectors_of_the_file_at_length_1(tmp_path: Path) -> None:
    found = made(kind="pretrained", file=file(tmp_path, WORDS))
    torch.testing.assert_close(found, unit(P))
    order = WORDS[::-1]
    torch.testing.assert_close(made(kind="pretrained", file=file(tmp_path, order)), unit(P[::-1].copy()))


def test_words_that_the_file_lacks_have_rows_of_the_sphere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    known = [i for i, word in enumerate(WORDS) if word not in ("<unk>", "</s>", "zyx", "sat")]
    with caplog.at_level(logging.WARNING):
        found = made(kind="pretrained", file=file(tmp_path, [WORDS[i] for i in known], P[known]))
    assert "has vectors for 43 of 45 words" in caplog.text
    sphere = made(kind="sphere")
    for i, word in enumerate(WORDS):
        if word in ("zyx", "sat", "</s>"):
            assert torch.equal(found[i], sphere[i])
        elif word != "<unk>":
            torch.testing.assert_close(found[i], unit(P)[i])
    rare = sorted(known, key=lambda i: float(COUNTS[i]))[:len(known) // 10]
    torch.testing.assert_close(found[2], torch.nn.functional.normalize(unit(P)[rare].mean(0), dim=0))


def test_the_end_of_a_text_and_what_is_unknown_may_have_another_name_there(tmp_path: Path) -> None:
    there = [{"</s>": "<eos>", "<unk>": "UNK"}.get(word, word) for word in WORDS]
    torch.testing.assert_close(made(kind="pretrained", file=file(tmp_path, there)), unit(P))


def test_a_zero_row_points_nowhere_and_a_huge_one_somewhere(tmp_path: Path) -> None:
    table = P.copy()
    table[3], table[4] = 0, 1e38
    found = made(kind="pretrained", file=file(tmp_path, WORDS, table))
    assert torch.equal(found[3], made(kind="sphere")[3])
    torch.testing.assert_close(found[4], torch.full((D,), D ** -0.5))


def test_centred_and_combined(tmp_path: Path) -> None:
    path = file(tmp_path, WORDS)
    x = unit(P).double()
    assert float(x.mean(0).norm()) > 0.5
    centred = made(kind="pretrained", file=path, centred=True)
    torch.testing.assert_close(centred, unit((x - x.mean(0)).numpy()))
    fewer = made(kind="pretrained", file=file(tmp_path, WORDS[:-9]), centred=True)
    y = x[:-9] - x[:-9].mean(0)                                              # the mean is that of the known words
    torch.testing.assert_close(fewer[:-9], unit(y.numpy()))
    path = file(tmp_path, WORDS)
    sphere = made(kind="sphere")
    torch.testing.assert_close(made(kind="combined", file=path, alpha=0), sphere)
    torch.testing.assert_close(made(kind="combined", file=path, alpha=1), x.float())
    mixed = made(kind="combined", file=path, alpha=0.25, centred=True)
    torch.testing.assert_close(mixed, torch.nn.functional.normalize(0.25 * centred + 0.75 * sphere, dim=1))


def test_a_table_in_a_narrow_cone_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for far, warned in ((0.1, True), (3.0, False)):
        table = (np.ones(D) + far * np.random.default_rng(0).normal(size=P.shape)).astype(np.float32)
        x = unit(table).double()
        n = len(x)
        mean = float((x @ x.T).sum() - n) / (n * (n - 1))
        assert (mean > 0.5) == warned
        path = file(tmp_path, WORDS, table)
        with caplog.at_level(logging.WARNING):
            made(kind="pretrained", file=path, centred=True)
            assert not caplog.text
            made(kind="pretrained", file=path)
        assert (f"the mean cosine between words is {mean:.2f}" in caplog.text) == warned
        caplog.clear()


@pytest.mark.parametrize("kind", ["learned", "sphere", "hypercube"])
def test_a_file_that_is_not_read_is_told(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """Else the wrong table is trained on in silence."""
    initial_table(OutputTableConfig(kind=kind, file="x"), world(), D)  # type: ignore[arg-type]
    wanted = f"/x is not used, because model.output_table.kind is {kind}; set it to pretrained"
    assert [wanted in r.message for r in caplog.records] == [True]
    caplog.clear()
    initial_table(OutputTableConfig(kind=kind), world(), D)  # type: ignore[arg-type]
    assert not caplog.records


def test_the_folder_of_a_run_is_as_good_as_its_file(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    files.write(tmp_path / "run" / "vectors.safetensors", Vectors(WORDS, P), "safetensors")
    torch.testing.assert_close(made(kind="pretrained", file=str(tmp_path / "run")), unit(P))
    assert OutputTableConfig(kind="pretrained", file="x").file == str(Path("x").absolute())


class Wrong:
    """A reader of vectors that are not checked."""

    def __init__(self, table: np.ndarray):
        self.table = table

    def find(self, words: list[str]) -> np.ndarray:
        return np.arange(len(words))


def test_what_is_wrong_with_a_file_is_said_in_one_line(tmp_path: Path) -> None:
    path = file(tmp_path, WORDS)

    def says(error: type[Exception], text: str, of: ProblemSpec | None = None, dim: int = D, **keys: Any) -> None:
        with pytest.raises(error, match=text) as caught:
            initial_table(OutputTableConfig(**{"kind": "pretrained", "file": path, **keys}), of or world(), dim)
        assert len(str(caught.value).splitlines()) == 1

    says(UsageError, r"vectors of 6 numbers, but model\.dim is 7; set model\.dim: 6", dim=7)
    says(UsageError, r"model\.output_table\.file", file=None)
    says(UsageError, "candidates of this model are not words", ProblemSpec(9, torch.ones(9)))
    says(UsageError, r"learned: a frozen table must be given", kind="learned", frozen=True)
    says(DataError, "nothing.safetensors", file=str(tmp_path / "nothing.safetensors"))
    few = file(tmp_path, ["mat", "zyx", "w39"])
    says(DataError, r"has vectors for 3 of 45 words, 1\.5% of the running words; 50% are needed", file=few)
    odd = P.copy()
    odd[4, 2] = np.nan
    says(DataError, "the vector of 'sat' contains NaN or infinity",
         ProblemSpec(len(WORDS), COUNTS, words=WORDS, vectors=lambda _: Wrong(odd)))


def test_a_frozen_table_is_no_parameter_and_one_that_is_not_is_trained() -> None:
    for frozen in (True, False):
        given = OutputTableConfig(kind="sphere", frozen=frozen)
        for model in (SkipGram(SkipGramConfig(dim=D, output_table=given), world()),
                      Lm(LmConfig(dim=D, tied=False, output_table=given), world())):
            assert model.has_frozen_table == frozen and torch.equal(model.table(), made(kind="sphere"))
            mine = {id(p) for o in optimizers(model, torch.nn.Module(), TrainConfig())  # type: ignore[arg-type]
                    for g in o.param_groups for p in g["params"]}
            assert (id(model.table()) in mine) == (not frozen)
            assert "v" in model.state_dict()


def test_a_language_model_that_reads_what_it_asks_for_is_given_no_table() -> None:
    with pytest.raises(UsageError, match=r"set model\.tied: false"):
        Lm(LmConfig(dim=D, output_table=OutputTableConfig(kind="sphere")), world())


def test_the_kernels_leave_a_frozen_table_to_autograd() -> None:
    from embtrain.losses.base import LossConfig
    from embtrain.negatives.static.unigram import Unigram, UnigramConfig

    for frozen in (True, False):
        config = SkipGramConfig(output_table=OutputTableConfig(kind="sphere", frozen=frozen))
        said = choose.why_not_fused(config, Unigram, UnigramConfig(), LossConfig(), TrainConfig(), True)
        assert [line.split(":")[0] for line in said] == (["model.output_table.frozen"] if frozen else [])
