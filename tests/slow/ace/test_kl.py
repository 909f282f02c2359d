"""KL divergence of ACE's default adversary from one without a shortlist that learns from the same draws.

`ace` is trained on the excerpt that gensim ships. An adversary with a logit for each candidate receives the
same draws and costs at the same pace; on draws of the default adversary it learns off policy, with ρ = min(clip,
g_full / g_default). After training both KL are computed exactly, over all candidates, for 200 centres drawn by
frequency. A second full one, with the same input and another initial state, gives the scale of this KL.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from embtrain.common.types import ModelView, Negatives, Query
from embtrain.experiment import fit, resolve
from embtrain.experiment.tasks import base as tasks
from embtrain.kernels.sampling.reinforce import ReinforceSums
from embtrain.negatives import base
from embtrain.negatives.adversarial.ace import Ace, AceState
from embtrain.negatives.adversarial.shared_draws import negative_fraction

EPOCHS, CENTRES = 3, 200
SETS = [f"train.epochs={EPOCHS}", "evaluate.benchmarks=[]", "evaluate.neighbours=[]"]


class Full(Ace):
    """Adversary with a logit for each candidate that learns from the draws of another one."""

    theirs: Tensor                                        # (G, K) log g of the adversary that drew
    state: AceState                                       # state of that draw, from this generator

    def listen(self, context: Tensor, drawn: Negatives, log_g: Tensor) -> None:
        assert drawn.ids is not None
        row = self.cache.find_rows(context)
        self.state, self.theirs = AceState(self.cache.generation, row, self.cache.density(drawn.ids, row)[0]), log_g

    def _coefficients(self, drawn: Negatives, log_g: Tensor, cost: Tensor) -> tuple[Tensor, ReinforceSums]:
        return self._coefficients_torch(drawn, log_g, cost, negative_fraction(drawn))

    def _rho(self, log_g: Tensor, ids: Tensor, mine: Tensor, off: Tensor) -> Tensor:
        ratio = (log_g - self.theirs).exp().clamp(max=self.config.clip)
        return torch.where(mine > 0, ratio, super()._rho(log_g, ids, mine, off))


class Watched(Ace):
    """The default adversary, which passes its draws to two full ones."""

    instance: Watched

    def __init__(self, config, problem) -> None:            # type: ignore[no-untyped-def]
        super().__init__(config, problem)
        self.full, self.other = (Full(config.model_copy(update={"shortlist": None}), replace(problem, seed=seed))
                                 for seed in (problem.seed, problem.seed + 1000))
        Watched.instance = self

    def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
        drawn = super().draw(query, k, view)
        assert drawn.draw_id is not None and isinstance(drawn.state, AceState)
        first = torch.searchsorted(drawn.draw_id, torch.arange(int(drawn.draw_id[-1]) + 1))
        for full in (self.full, self.other):
            full.listen(query.context[first], drawn, drawn.state.log_g)
        return drawn

    def on_epoch_start(self, view: ModelView) -> None:
        for full in (self.full, self.other):
            full.on_epoch_start(view)
        super().on_epoch_start(view)

    def learn(self, query: Query, drawn: Negatives, cost: Tensor) -> dict[str, float]:
        for full in (self.full, self.other):
            full.learn(query, replace(drawn, state=full.state), cost)
        return super().learn(query, drawn, cost)


def kl(p: Tensor, q: Tensor) -> float:
    """Return the mean KL of rows of log-probabilities."""
    return float((p.exp() * (p - q)).sum(1).mean())


@pytest.mark.slow
def test_the_default_is_within_a_twentieth_of_a_nat_of_a_full_adversary(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = base.find
    monkeypatch.setattr(base, "find", lambda name: Watched if name == "ace" else find(name))
    settings = resolve("ace", sets=SETS, seed=1, threads=1)
    fit(settings, tmp_path / "run")
    source = Watched.instance
    counts = torch.from_numpy(tasks.read(settings).windows.kept_counts)
    centre = torch.multinomial(counts, CENTRES, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        default, full, other = (adversary.generator(centre).double() for adversary in (source, source.full,
                                                                                       source.other))
    noise = (source.cache.p / source.cache.p.sum()).double().log()
    mixed = [torch.logaddexp(x, noise) - torch.tensor(2.0).log() for x in (full, default)]
    divergences = {"KL(full || default)": kl(full, default), "KL(default || full)": kl(default, full),
             "of the mixtures": kl(*mixed),
             "KL(full || full, other start)": kl(full, other),
             "KL(full || noise)": kl(full, noise), "KL(default || noise)": kl(default, noise)}
    print("\n" + "\n".join(f"{name:30} {value:.4f}" for name, value in divergences.items()))
    assert len(source.generator.w) < len(source.full.generator.w)
    assert divergences["KL(default || noise)"] > 0.1             # it has changed, so the comparison is not trivial
    assert divergences["KL(default || full)"] <= 0.05 and divergences["KL(full || default)"] <= 0.05
