"""A trained model, asked in the words of its data. `_` stands for what is asked for.

    brazil locatedin _      of a graph: what may stand there; the head may be open as well
    beagle _    _ mammal    of a hierarchy: what stands above a concept, what below it
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from embtrain import machine
from embtrain.experiment import judge, parts
from embtrain.experiment.diagnose import opened
from embtrain.report.tables import cells, number


class Answer(NamedTuple):
    name: str
    score: float
    known: bool   # training has seen it


def ask(folder: Path, words: Sequence[str], count: int = 10) -> tuple[str, list[Answer]]:
    """The question as it was understood, and the best answers, best first. What is given is none of them, since it lies
    nearest to itself whatever is asked, unless training has it as an answer."""
    _, made = opened(folder, [], [])
    query = judge.ask(made, made.task.question(words))
    everyone = torch.arange(made.world.n_candidates).unsqueeze(0)                            # (1, V)
    with torch.no_grad():
        score = made.model.score(query, everyone)[0].double()                                # (V,)
    right = made.task.answers(int(parts.OBSERVED_SHARE * machine.free()))
    best = torch.argsort(score, descending=True, stable=True)
    given = query.context[:, :1]
    if not right.contains(query.context, given).any():
        best = best[best != given[0, 0]]
    best = best[:count]
    known = right.contains(query.context, best.unsqueeze(0))
    names = made.task.candidates()
    return made.task.asked(query)[0], [Answer(names[i], float(score[i]), bool(seen))
                                       for i, seen in zip(best.tolist(), known[0], strict=True)]


def told(question: str, answers: Sequence[Answer]) -> str:
    """A line for each answer."""
    wide = max((cells(answer.name) for answer in answers), default=0)
    lines = [f"{i:>3}  {answer.name}{' ' * (wide - cells(answer.name))}  {number(answer.score):>9}"
             f"{'  in training' if answer.known else ''}" for i, answer in enumerate(answers, 1)]
    return "\n".join([question, *lines])
