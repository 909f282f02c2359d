"""Translation: training speed of each loss compared with cross-entropy on the same network, and decoding speed.

The advantage of continuous outputs depends on V, the vocabulary size, so the target embedding table is padded with
random rows to 6,000, 50,000 and 200,000: cross-entropy computes a logit for every row at each training step; losses on
a predicted vector do not. Training is timed over blocks; a block is the examples of one step. Decoding searches all
rows in both cases: `decode` is greedy, compared with a beam of 5; `decode-bfloat16` does the same with
`evaluate.table: bfloat16`, and reports the share of translations identical to float32. Each translation is limited to
the length of its reference, because the network is untrained. `sampled-softmax` has 500 negatives per batch and
`lazy-adam`; `sampled-softmax-cosine` has as many, and a frozen table.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from embtrain import experiment
from embtrain.cli.bench.harness.base import Group, Timed, Work, choose, run, timed
from embtrain.common.errors import DataError
from embtrain.common.types import ProblemSpec
from embtrain.data.parallel.batches import TranslationBatch, make_batch
from embtrain.evaluate.translation import decoding
from embtrain.evaluate.translation.bf16_search import Bf16Search
from embtrain.experiment.run import components, scoring
from embtrain.experiment.tasks.translation import TranslationTask
from embtrain.models.nmt.model import Nmt
from embtrain.train.loop import Trainer

CORPUS, BLOCKS, SENTENCES = "multi30k-de-en", 6, 200
SIZES = (6_000, 50_000, 200_000)
STRATEGIES = ("syn-margin-projection", "syn-margin-difference", "vmf", "cosine", "margin-random",
              "margin-most-informative", "sampled-softmax", "sampled-softmax-cosine")
RIVAL = "cross-entropy"
DECODING = {"decode": "float32", "decode-bfloat16": "bfloat16"}  # by evaluate.table
MORE = {"sampled-softmax": ("negatives.k=500", "negatives.share_draws_by=batch", "train.optimizer=lazy-adam")}


def bench(rounds: int, threads: Sequence[int], only: Sequence[str] | None, corpus: str | None) -> dict[str, Any]:
    """Rounds of every case; `only` names some, for example vmf-v50000."""
    name = corpus or CORPUS
    cases = {f"{strategy}-v{v}-t{n}": (strategy, v, n) for n in threads for v in SIZES
             for strategy in (*STRATEGIES, *DECODING)}
    chosen = {case: cases[case] for case in choose(cases, only)}
    groups = []
    for n in threads:
        for v in SIZES:
            ours: dict[str, Work] = {
                case: partial(_trained, strategy, v, n, name)
                for case, (strategy, *size) in chosen.items() if size == [v, n] and strategy not in DECODING}
            if ours:
                groups.append(Group(n, ours, {RIVAL: partial(_trained, RIVAL, v, n, name)}))
            searched: dict[str, Work] = {case: partial(_decoded, v, n, name, 1, DECODING[strategy])
                                         for case, (strategy, *size) in chosen.items()
                                         if size == [v, n] and strategy in DECODING}
            if searched:
                groups.append(Group(n, searched, {"beam-5": partial(_decoded, v, n, name, 5, "float32")}))
    return run("nmt", f"s for {BLOCKS} blocks; decode: s for {SENTENCES} sentences", groups, rounds,
               {"corpus": name, "blocks": BLOCKS, "sentences": SENTENCES,
                "measured": "training from ids, or translating; making model and blocks not timed"})


class Padded(TranslationTask):
    """A translation task with candidates that are not words, up to V in total."""

    V: int

    def problem_spec(self, device: str) -> ProblemSpec:
        problem = super().problem_spec(device)
        more = torch.ones(max(0, self.V - problem.n_candidates), dtype=problem.counts.dtype)
        v = problem.n_candidates + len(more)
        return replace(problem, n_candidates=v, n_contexts=v + 1, counts=torch.cat([problem.counts, more]), words=None)

    def moved(self, batch: TranslationBatch) -> TranslationBatch:
        """A batch of the padded task: the beginning of a sentence has the id after all candidates."""
        begins = batch.prev_tokens == len(self.target)
        return replace(batch, prev_tokens=torch.where(begins, max(self.V, len(self.target)), batch.prev_tokens))


def _build(strategy: str, v: int, threads: int, corpus: str) -> tuple[components.Components, Padded]:
    settings = experiment.resolve(strategy, "nmt", corpus, threads=threads,
                                  sets=["model.tied=true", *MORE.get(strategy, ())])
    components.use_threads(threads)
    task = cast(Padded, Padded.read(settings))
    task.V = v
    return components.build(settings, task), task


def _trained(strategy: str, v: int, threads: int, corpus: str) -> Timed:
    parts, task = _build(strategy, v, threads, corpus)
    with tempfile.TemporaryDirectory() as folder:
        fit = Trainer(parts.model, parts.source, parts.loss, task.examples, parts.train, Path(folder), dict, None)
        read = [task.moved(block) for block in islice(task.examples.blocks(0, fit.block_size), BLOCKS + 1)]
        if len(read) <= BLOCKS:
            raise DataError(f"--corpus: {corpus}: has {len(read)} of the {BLOCKS + 1} blocks of training pairs "
                            "needed; give a larger one")
        first, *blocks = read
        parts.source.on_epoch_start(fit.step.view)
        fit.step(first)                                      # creates the state of the optimizer
        seconds, cpu, _ = timed(lambda: [fit.step(block) for block in blocks])
    pairs = sum(len(block.source) for block in blocks)
    return Timed(seconds, cpu, {"pairs_per_cpu_second": pairs / cpu, "pairs_per_second": pairs / seconds})


def _decoded(v: int, threads: int, corpus: str, beam: int, table: str) -> Timed:
    parts, task = _build("cosine", v, threads, corpus)
    size, test = task.text.source.size(), task.text.part("test")[:SENTENCES]
    if len(test) < SENTENCES:
        raise DataError(f"--corpus: {corpus}: has {len(test)} of the {SENTENCES} test sentences needed; "
                        "give a larger one")
    sentences = np.array(sorted(test, key=lambda i: int(size[i])))  # similar lengths together, as in `translate`
    batches = [make_batch(task.text, sentences[begin:begin + 100]) for begin in range(0, len(sentences), 100)]
    words = [torch.bincount(batch.window) for batch in batches]     # of each reference, with <eos>
    logits, model = scoring.logits(parts, corrected=True), cast(Nmt, parts.model)

    def work(best: decoding.BestWord | None) -> list[decoding.Decoded]:
        return [
            decoded
            for batch, most in zip(batches, words, strict=True)
            for decoded in decoding.translate(
                model, logits, batch.source, batch.length, beam, max_words=most, best=best, step=lambda z, _: z
            )
        ]
    rounded = Bf16Search(model) if table == "bfloat16" else None
    seconds, cpu, found = timed(lambda: work(rounded))
    n = len(sentences)
    quality = {"sentences_per_cpu_second": n / cpu, "sentences_per_second": n / seconds}
    if rounded is not None:
        quality["same_as_float32"] = sum(a == b for a, b in zip(found, work(None), strict=True)) / n
    return Timed(seconds, cpu, quality)
