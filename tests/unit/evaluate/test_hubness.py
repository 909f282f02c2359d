"""Hubs of a table: by hand, and on tables with known hubs or none."""

from __future__ import annotations

import pytest
import torch

from embtrain.evaluate.words import hubness
from embtrain.evaluate.words.hubness import FrequencyBand


def test_a_table_by_hand() -> None:
    table = torch.tensor([[3.0, 0], [0, 2], [0.6, 0.8], [0, -1]])
    result = hubness.hubness(table, torch.tensor([300.0, 100, 7, 2]), ["a", "b", "c", "d"])
    e = torch.tensor([[1.0, 0], [0, 1], [0.6, 0.8], [0, -1]])
    pairs = [float(e[i] @ e[j]) for i in range(4) for j in range(4) if i != j]
    assert result.rows == 4 and result.mean_cosine == pytest.approx(sum(pairs) / 12)
    mean = (torch.tensor([300.0, 100, 7, 2]) / 409) @ e
    near = e @ (mean / mean.norm())
    assert [(h.name, h.count) for h in result.hubs] == [("a", 300), ("c", 7), ("b", 100), ("d", 2)]
    assert [h.cosine for h in result.hubs] == pytest.approx([float(near[i]) for i in (0, 2, 1, 3)])
    bands = (("100 times and more", 2, 0.7), ("6 to 99 times", 1, 0.8), ("at most 5 times", 1, 0.0))
    assert result.bands == [FrequencyBand(name, rows, pytest.approx(crowding)) for name, rows, crowding in bands]


def test_frequencies_are_those_of_the_data_and_the_mean_that_of_the_positives() -> None:
    table, counts = torch.tensor([[3.0, 0], [0, 2], [0.6, 0.8], [0, -1]]), torch.tensor([300.0, 100, 7, 2])
    positives = hubness.hubness(table, counts, ["a", "b", "c", "d"])
    result = hubness.hubness(table, counts, ["a", "b", "c", "d"], torch.tensor([99, 6, 5, 1]))
    assert [(h.name, h.count) for h in result.hubs] == [("a", 99), ("c", 5), ("b", 6), ("d", 1)]
    assert [h.cosine for h in result.hubs] == [h.cosine for h in positives.hubs]
    assert [(band.name, band.rows) for band in result.bands] == [("6 to 99 times", 2), ("at most 5 times", 2)]


def test_rows_of_zeros_have_no_direction() -> None:
    e = torch.eye(3)
    assert hubness.hubness(torch.stack([e[0], e[0], 0 * e[0]]), torch.ones(3), None).mean_cosine == pytest.approx(1)
    assert hubness.hubness(torch.zeros(2, 3), torch.ones(2), None).mean_cosine == 0


def test_rows_are_sampled_evenly_and_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    table = torch.randn(60, 5, generator=torch.Generator().manual_seed(0))
    counts = torch.arange(60.0)
    whole = hubness.hubness(table, counts, None)
    monkeypatch.setattr(hubness, "MAX_PRODUCTS_HELD", 130)
    assert hubness.hubness(table, counts, None) == whole
    monkeypatch.setattr(hubness, "MAX_BAND_ROWS", 27)
    assert hubness.hubness(table, counts, None).bands[0].rows == whole.bands[0].rows == 54
    assert hubness.hubness(table, counts, None).bands[0].crowding != whole.bands[0].crowding
    assert whole.hubs[0].name.isdigit()


def test_overlapping_rare_words_and_a_common_mean_are_detected() -> None:
    draw = torch.Generator().manual_seed(1)
    table, counts = torch.randn(400, 30, generator=draw), torch.tensor([200.0, 2.0]).repeat_interleave(200)
    even = hubness.hubness(table, counts, None)
    assert abs(even.mean_cosine) < 0.01 and abs(even.bands[0].crowding - even.bands[1].crowding) < 0.05
    table[200:] = table[200] + 0.1 * table[200:]
    crowded = hubness.hubness(table + 1, counts, None)
    assert crowded.mean_cosine > 0.3 and crowded.bands[1].crowding > 0.9 > crowded.bands[0].crowding
