"""What a model is worth: benchmarks on its vectors, exact likelihood and rank on held-out text.

Held-out text is judged by P(b|a) = softmax_b of what the loss says the scores estimate. Negative sampling's scores are
log-odds against the noise, s = log P(b|a) - log(mass·q(b|a)), so q is given back to them, exact or estimated; the bare
scores are then judged as well (metrics ending in `/scores`). With `evaluate.log_z`, a loss that learns log Z is told
beside the truth: learned_log_z = mean c, log_sum_mean = mean log Σ_b e^{s_ab}, log_z_mean = their difference.

What a score rests on, item by item, can be asked for too: with it two runs are compared on the same items.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import safetensors
import torch
from torch import Tensor

from embtrain.common import machine, shipped
from embtrain.common.errors import DataError, UsageError
from embtrain.common.files import write_whole
from embtrain.common.types import Batch, Query, Score
from embtrain.data.catalogue import fetch
from embtrain.data.catalogue.recipes import EvalRecipe, load_recipe
from embtrain.data.storage import checksummed
from embtrain.data.vectors.vectors import Vectors
from embtrain.evaluate import heldout, label_precision
from embtrain.evaluate.config import LabelsEvaluate, LikelihoodConfig, WordsConfig
from embtrain.evaluate.pairs import entailment
from embtrain.evaluate.pairs.scorer import Scorer
from embtrain.evaluate.words import analogy, similarity
from embtrain.train.engines.autograd import ReadOnly

if TYPE_CHECKING:
    from embtrain.experiment.run.components import Components

MAX_ITEMS = 1 << 30  # bytes of items.safetensors

# NAME/score, NAME/gold (n,) of a benchmark of graded pairs, NaN where a pair is left out; NAME/correct, NAME/cluster of
# one of labelled pairs that is judged by its accuracy; valid/log_p, valid/rank, valid/cluster (n,) and those of test;
# valid/precision@1 (m,) and the like of held-out documents. The order is that of the gold file and of the text: the
# same in every run.
Items = dict[str, np.ndarray]


def benchmarks(vectors: Vectors, names: Sequence[str], config: WordsConfig, items: Items | None = None,
               scorer: Scorer | None = None) -> list[Score]:
    """The rows of the named benchmarks (evals/*.yaml) on some vectors, those left out that train a run of their own
    (downstream.py). `items`: is filled with what they rest on.

    scorer: what says how surely a word is another, where that is not the vectors' cosine.
    """
    rows: list[Score] = []
    for name in names:
        recipe = load_recipe("evals", name)
        if recipe.training is None:
            rows += benchmark(vectors, recipe, fetch.gold_path(recipe), config, items, scorer)
    return rows


def benchmark(vectors: Vectors, recipe: EvalRecipe, path: Path, config: WordsConfig, items: Items | None = None,
              scorer: Scorer | None = None) -> list[Score]:
    """The rows of one benchmark, whose gold is in the file `path`; the rest as in `benchmarks`."""
    name = recipe.name
    if recipe.kind == "entailment":
        return _entailment(recipe, path, scorer or Scorer(vectors), config, items)
    if recipe.kind == "analogy":
        return analogy.score(name, vectors, analogy.read_questions(path, recipe.format), config)
    pairs = similarity.read_pairs(path, recipe.format)
    if items is not None:
        items[f"{name}/score"] = similarity.cosines(vectors, pairs, config.oov)[0]
        items[f"{name}/gold"] = np.array([pair.gold for pair in pairs])
    return [similarity.score(name, vectors, pairs, config)]


def _entailment(
    recipe: EvalRecipe, path: Path, scorer: Scorer, config: WordsConfig, items: Items | None
) -> list[Score]:
    name, metric = recipe.name, recipe.metric
    gold = entailment.read(path, recipe.format, graded=metric == "spearman")
    answers = entailment.ask(gold, scorer)
    if items is not None and metric == "spearman":
        items |= {f"{name}/score": answers.there, f"{name}/gold": gold.label}
    if items is not None and metric == "accuracy":
        items |= {f"{name}/correct": entailment.correct(gold, answers)[0],
                  f"{name}/cluster": np.arange(len(gold.asked), dtype=np.int64)}
    return entailment.rows(name, metric, gold, answers, scorer.said(gold.asked), config)


def check_names(names: Sequence[str], kind: str | None = None, flag: str = "evaluate.on") -> None:
    """UsageError for a benchmark that does not exist, or is of another kind; ResourceError where what one that trains
    needs is not here: before anything is trained. said: what named them."""
    for name in names:
        try:
            recipe = load_recipe("evals", name)
        except UsageError as error:
            raise UsageError(f"{flag}: {error}") from error
        if kind not in (None, recipe.kind):
            same_kind = [name_of_kind for name_of_kind in shipped.names("evals")
                         if load_recipe("evals", name_of_kind).kind == kind]
            raise UsageError(f"{flag}: {name} is of kind {recipe.kind}, and here {kind} is measured: "
                             f"{', '.join(same_kind)}")
        if recipe.training is not None:
            fetch.corpus_paths(load_recipe("corpora", recipe.training.corpus))


def likelihood(parts: Components, batch: Batch, part: str, config: LikelihoodConfig, items: Items | None = None,
               clusters: np.ndarray | None = None) -> list[Score]:
    """Held-out rows under the benchmark name `part` (valid or test). `items`: is filled with what they rest on.

    clusters (B,): what is resampled together, where it is not neighbouring centres.
    """
    query = encode_heldout(parts, batch)
    if len(query) == 0:
        rows = heldout.heldout(logits(parts, corrected=True), query, config)
    else:
        results = heldout.ranks(logits(parts, corrected=True), query)
        learned = parts.loss.log_partition(query)
        c = 0.0 if learned is None else learned.double().cpu().numpy()
        log_sum, results = results.log_z, results._replace(log_z=results.log_z - c)
        clusters = heldout.clusters_of(query) if clusters is None else clusters
        rows = heldout.rows(results, clusters, config)
        if items is not None:
            items |= {f"{part}/log_p": results.log_p, f"{part}/rank": results.rank, f"{part}/cluster": clusters}
        if config.log_z and learned is not None:
            rows += heldout.mean_rows({"learned_log_z": np.asarray(c), "log_sum_mean": log_sum}, clusters, config,
                                      "c that the loss has learnt; log Σ e^s, c not taken off")
    if _are_log_odds(parts):
        bare_scores = heldout.heldout(logits(parts, corrected=False), query, config, clusters)
        rows += [row._replace(metric=f"{row.metric}/scores") for row in bare_scores]
    return [row._replace(benchmark=part) for row in rows]


def labels(parts: Components, batch: Batch, part: str, p: np.ndarray, config: LabelsEvaluate, items: Items | None = None
           ) -> list[Score]:
    """PREC@k, nDCG@k and PSP@k of held-out documents, whose (document, label) pairs are the rows of `batch`.

    p (V,): propensities of the labels. `items`: is filled with what each document got.
    """
    query = encode_heldout(parts, batch)
    results = label_precision.tops(logits(parts, corrected=True), query, p)
    note = f"{len(query):,} labels, {parts.world.n_candidates:,} candidates"
    rows = label_precision.rows(results, config, note)
    if items is not None and len(query):
        items |= {f"{part}/{name}": values for name, values in results.items().items()}
    if _are_log_odds(parts):
        bare_scores = label_precision.rows(label_precision.tops(logits(parts, corrected=False), query, p), config, note)
        rows += [row._replace(metric=f"{row.metric}/scores") for row in bare_scores]
    return [row._replace(benchmark=part) for row in rows]


def encode_heldout(parts: Components, batch: Batch) -> Query:
    """What a held-out batch asks, of the model as it answers when it does not train."""
    machine.give_back()                                              # pieces left by others are too small for this
    was_training = parts.model.training
    parts.model.eval()
    with torch.no_grad():
        query = parts.model.encode(batch.to(parts.world.device)).detach()
    parts.model.train(was_training)
    return query


def evaluation_bytes(parts: Components, sample: Batch, n: int) -> int:
    """Bytes that n held-out examples take: in proportion what a `few` of them do while they are asked, and ranking as
    many questions as are looked at together."""
    if not len(sample):
        return 0
    query, encoding_bytes = machine.most_of(lambda: encode_heldout(parts, sample))
    unique_queries = query.unique()[0]
    n_unique = -(-len(unique_queries) * n // len(query))                  # about so many there are in all
    n_together = min(n_unique, 1 + heldout.CELLS // parts.world.n_candidates)  # the first is ranked alone
    first_queries = unique_queries.rows(slice(0, n_together))
    _, ranking_bytes = machine.most_of(lambda: heldout.ranks(logits(parts, corrected=True), first_queries))
    return encoding_bytes * n // len(query) + ranking_bytes * n_together // len(first_queries)


def write_items(path: Path, items: Items) -> None:
    with write_whole(path) as file:
        file.writelines(checksummed.pieces(items))


def read_items(path: Path) -> Items:
    """DataError where the file is not one that `write_items` wrote; a missing file holds no items."""
    if not path.exists():
        return {}
    try:
        if (size := path.stat().st_size) > MAX_ITEMS:
            raise DataError(f"{path}: {size:,} bytes are too many; at most {MAX_ITEMS:,} are read")
        with safetensors.safe_open(path, framework="numpy") as file:
            items = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  it is no dict
            metadata = file.metadata()
    except (OSError, safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: no items of a run: {error}") from error
    checksummed.check(path, metadata, items)
    for name, values in items.items():
        if values.ndim != 1 or values.dtype != (np.int64 if name.endswith("/cluster") else np.float64):
            raise DataError(f"{path}: {name}: {values.dtype} of shape {values.shape}; should be a column of numbers")
    return items


def logits(parts: Components, corrected: bool) -> Callable[[Query], Tensor]:
    """Questions -> what the loss says their scores estimate, (Q, V). corrected: q is given back to log-odds.

    A log Z that the loss learns is not taken off: it is one constant for each question.
    """
    model, loss, source = parts.model, parts.loss, parts.source
    all_ids = torch.arange(parts.world.n_candidates, device=parts.world.device).unsqueeze(0)  # (1, V)
    adds_log_q = corrected and _are_log_odds(parts)
    if adds_log_q:
        source.prepare_log_prob(ReadOnly(model))  # a run that was finished when it was resumed draws no more
    def compute_logits(query: Query) -> Tensor:
        z = loss.unnormalized(model.score(query, all_ids), query)                                   # (Q, V)
        return z + source.log_prob(query, all_ids) if adds_log_q else z
    return compute_logits


def estimates_probabilities(parts: Components) -> bool:
    """Whether the softmax of `logits(parts, corrected=True)` estimates P: the loss does, and q can be given back where
    the loss needs it."""
    return parts.loss.estimates_log_prob and (_are_log_odds(parts) or not parts.loss.estimates_log_odds)


def _are_log_odds(parts: Components) -> bool:
    """Whether the scores are log-odds against a noise whose q the source can state of every candidate."""
    return parts.loss.estimates_log_odds and parts.source.density in ("exact", "estimated")
