"""Scores of a model: benchmarks on its vectors, exact likelihood and rank on held-out text.

Held-out text is scored by P(b|a) = softmax_b of the loss's unnormalized estimate. Scores of negative sampling are
log-odds against the noise, s = log P(b|a) - log(M q(b|a)) with the total weight M of the negatives. So log q, exact or
estimated, is added to them; the bare scores are then evaluated as well (metrics ending in `/scores`). With
`evaluate.log_z`, a loss that learns log Z is compared with the truth: learned_log_z = mean c, log_sum_mean =
mean log Σ_b e^{s_ab}, log_z_mean = their difference.

Per-item values can be stored too, so that two runs can be compared on the same items.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import safetensors
import torch
from torch import Tensor

from embtrain.common import machine, shipped
from embtrain.common.errors import DataError, UsageError, read_error
from embtrain.common.files import write_atomically
from embtrain.common.terminal import format_count, format_part
from embtrain.common.types import Batch, Query, Score
from embtrain.data.benchmarks import find_benchmark
from embtrain.data.catalogue import fetch
from embtrain.data.catalogue.benchmark import EvalRecipe
from embtrain.data.catalogue.recipes import load_recipe
from embtrain.data.storage import checksummed
from embtrain.data.vectors.vectors import Vectors
from embtrain.evaluate import heldout, label_precision
from embtrain.evaluate.config import LabelsEvaluate, LikelihoodConfig, WordsConfig
from embtrain.evaluate.pairs import entailment
from embtrain.evaluate.pairs.scorer import Scorer
from embtrain.evaluate.words import analogy, similarity
from embtrain.experiment.run.model_parts import ModelParts
from embtrain.train.engines.autograd import ReadOnly

CHECKED_EXAMPLES = 256  # held-out examples whose likelihood shows whether a run has diverged (results/divergence.py)
MAX_ITEMS = 1 << 30  # bytes of items.safetensors, with MAX_HEADER for its names
MAX_HEADER = 1 << 20
_log = logging.getLogger("embtrain")

# Graded pairs: NAME/score, NAME/gold (n,), NaN for skipped pairs. Labelled pairs scored by accuracy: NAME/correct,
# NAME/cluster (n,). Held-out text: valid/log_p, valid/rank, valid/cluster (n,), the same for test. Held-out documents:
# valid/precision@1 (m,) and so on. Items follow the order of the gold file or the text, so they match across runs.
Items = dict[str, np.ndarray]


def benchmarks(vectors: Vectors, names: Sequence[str], config: WordsConfig, items: Items | None = None,
               scorer: Scorer | None = None) -> list[Score]:
    """Score vectors on the named benchmarks, except those that train a run of their own (downstream.py).

    items: filled with the per-item values. scorer: scores pairs of words if their cosine is not the right measure.
    """
    rows: list[Score] = []
    for name in names:
        found = find_benchmark(name)
        if found.recipe.training is None:
            rows += benchmark(vectors, found.recipe, found.gold, config, items, scorer)
    return rows


def benchmark(vectors: Vectors, recipe: EvalRecipe, path: Path, config: WordsConfig, items: Items | None = None,
              scorer: Scorer | None = None) -> list[Score]:
    """Score one benchmark whose gold file is `path`; other arguments as in `benchmarks`."""
    name, vectors = recipe.name, vectors.centred if config.centred else vectors
    if recipe.kind == "entailment":
        return _entailment(recipe, path, scorer or Scorer(vectors), config, items)
    if recipe.kind == "analogy":
        return analogy.score(name, vectors, analogy.read_questions(path, recipe.format), config)
    pairs = similarity.read_pairs(path, recipe.format, recipe.half)
    if items is not None:
        items[f"{name}/score"] = similarity.cosines(vectors, pairs, config.oov)[0]
        items[f"{name}/gold"] = np.array([pair.gold for pair in pairs])
    return similarity.scores(name, vectors, pairs, config)


def has_known_items(vectors: Vectors, recipe: EvalRecipe, path: Path, scorer: Scorer | None = None) -> bool:
    """Whether one pair or question of a gold file has known words alone; arguments as in `benchmark`."""
    if recipe.kind == "entailment":
        gold = entailment.read(path, recipe.format, graded=recipe.metric == "spearman")
        return bool(entailment.score_pairs(gold, scorer or Scorer(vectors)).known.any())
    if recipe.kind == "analogy":
        items = [question[1:] for question in analogy.read_questions(path, recipe.format)]
        return any((vectors.find(words, True) >= 0).all() for words in items)
    pairs = similarity.read_pairs(path, recipe.format, recipe.half)
    return bool(similarity.cosines(vectors, pairs, composed=vectors.subword_source is not None)[1].any())


def _entailment(
    recipe: EvalRecipe, path: Path, scorer: Scorer, config: WordsConfig, items: Items | None
) -> list[Score]:
    name, metric = recipe.name, recipe.metric
    gold = entailment.read(path, recipe.format, graded=metric == "spearman")
    answers = entailment.score_pairs(gold, scorer)
    if items is not None and metric == "spearman":
        items |= {f"{name}/score": answers.forward, f"{name}/gold": gold.label}
    if items is not None and metric == "accuracy":
        items |= {f"{name}/correct": entailment.correct(gold, answers)[0],
                  f"{name}/cluster": np.arange(len(gold.pairs), dtype=np.int64)}
    return entailment.scores(name, metric, gold, answers, scorer.describe_scores(gold.pairs), config)


def check_names(names: Sequence[str], kind: str | None = None, flag: str = "evaluate.benchmarks") -> None:
    """Check benchmark names before anything is trained.

    UsageError for a benchmark that does not exist, is of another kind or has the name of another part of the scores;
    DataError for a wrong file; ResourceError if a benchmark that trains needs data that is missing. flag: the flag or
    key that names them, for errors.
    """
    name_by_label: dict[str, str] = {part: f"the rows {part}" for part in ("valid", "test", heldout.TRAINING,
                                                                           heldout.DRIFT, heldout.FAR_NEIGHBOURS)}
    for name in names:
        try:
            recipe = find_benchmark(name).recipe
        except UsageError as error:
            is_file = not os.path.isabs(name) and Path(name).suffix
            raise UsageError(f"{flag}: {error}{'; and there is no file of this name' * bool(is_file)}") from error
        shipped.check_benchmark_label(name, name_by_label, flag)
        is_own = os.path.isabs(name)
        if is_own and recipe.training is not None:
            raise UsageError(f"{flag}: {name}: trains a translator, which is possible for benchmarks of evals/ only; "
                             "to score a trained run on it: embtrain evaluate RUN --on FILE")
        if kind not in (None, recipe.kind):
            same_kind = [name_of_kind for name_of_kind in shipped.names("evals")
                         if load_recipe("evals", name_of_kind).kind == kind]
            raise UsageError(f"{flag}: {name} is of kind {recipe.kind}, but this run needs kind {kind}; choose from "
                             f"{', '.join(same_kind)}")
        if recipe.training is not None:
            fetch.corpus_paths(load_recipe("corpora", recipe.training.corpus))
        if is_own:                                        # every line is read, as after training
            benchmarks(Vectors(["a", "b"], np.ones((2, 1), np.float32)), [name], WordsConfig(resamples=0))


def likelihood(parts: ModelParts, batch: Batch, part: str, config: LikelihoodConfig, items: Items | None = None,
               clusters: np.ndarray | None = None) -> list[Score]:
    """Held-out rows under the benchmark name `part` (valid or test). items: filled with the per-item values.

    clusters (B,): clusters of the intervals, if not neighbouring centres.
    """
    query = encode_heldout(parts, batch)
    if len(query) == 0:
        rows = heldout.heldout(logits(parts, corrected=True), query, config)
    else:
        results = heldout.ranks(logits(parts, corrected=True), query)
        learned = parts.loss.log_partition(query)
        c = 0.0 if learned is None else learned.double().cpu().numpy()
        log_sum, results = results.log_z, results._replace(log_z=results.log_z - c)
        clusters = heldout.default_clusters(query) if clusters is None else clusters
        rows = heldout.scores(results, clusters, config)
        if items is not None:
            items |= {f"{part}/log_p": results.log_p, f"{part}/rank": results.rank, f"{part}/cluster": clusters}
        if config.log_z and learned is not None:
            rows += heldout.mean_scores({"learned_log_z": np.asarray(c), "log_sum_mean": log_sum}, clusters, config,
                                      "c learned by the loss; log Σ e^s without subtracting c")
    if _are_log_odds(parts):
        bare_scores = heldout.heldout(logits(parts, corrected=False), query, config, clusters)
        rows += [row._replace(metric=f"{row.metric}/scores") for row in bare_scores]
    return [row._replace(benchmark=part) for row in rows]


def labels(parts: ModelParts, batch: Batch, part: str, p: np.ndarray, config: LabelsEvaluate, items: Items | None = None
           ) -> list[Score]:
    """PREC@k, nDCG@k and PSP@k of held-out documents; the rows of `batch` are their (document, label) pairs.

    p (V,): propensities of the labels. items: filled with the values of each document.
    """
    query = encode_heldout(parts, batch)
    results = label_precision.top_labels(logits(parts, corrected=True), query, p)
    note = f"{format_count(len(query), 'label')}, {format_count(parts.problem.n_candidates, 'candidate')}"
    rows = label_precision.scores(results, config, note)
    if items is not None and len(query):
        items |= {f"{part}/{name}": values for name, values in results.items().items()}
    if _are_log_odds(parts):
        bare_scores = label_precision.scores(
            label_precision.top_labels(logits(parts, corrected=False), query, p), config, note
        )
        rows += [row._replace(metric=f"{row.metric}/scores") for row in bare_scores]
    return [row._replace(benchmark=part) for row in rows]


def encode_heldout(parts: ModelParts, batch: Batch) -> Query:
    """Encode a held-out batch in evaluation mode, without gradients; returns a detached Query."""
    machine.release_free_memory()  # freed blocks are too fragmented for this
    was_training = parts.model.training
    parts.model.eval()
    with torch.no_grad():
        query = parts.model.encode(batch.to(parts.problem.device)).detach()
    parts.model.train(was_training)
    return query


def evaluation_bytes(parts: ModelParts, sample: Batch, n: int) -> int:
    """Estimate the bytes that evaluating n held-out examples needs.

    Encoding is measured on `sample` and scaled to n; ranking, during which only the queries of encoding are left, on as
    many queries as are ranked together.
    """
    if not len(sample):
        return 0
    query, encoding_bytes = machine.measure_peak(lambda: encode_heldout(parts, sample))
    unique_queries = query.unique()[0]
    n_unique = -(-len(unique_queries) * n // len(query))                  # estimated total
    n_together = min(n_unique, 1 + heldout.MAX_SCORES_HELD // parts.problem.n_candidates)  # the first is ranked alone
    first_queries = unique_queries.rows(slice(0, n_together))
    _, ranking_bytes = machine.measure_peak(lambda: heldout.ranks(logits(parts, corrected=True), first_queries))
    query_bytes = sum(x.nbytes for x in vars(query).values() if isinstance(x, Tensor))
    return max(encoding_bytes * n // len(query),
               query_bytes * n // len(query) + ranking_bytes * n_together // len(first_queries))


def write_items(path: Path, items: Items) -> None:
    """Write per-item values; none, with a warning, if they are more than `read_items` reads."""
    if (size := sum(values.nbytes for values in items.values())) > MAX_ITEMS - MAX_HEADER:
        _log.warning("%s: the %s bytes of values of held-out items are too many and are not kept; comparisons of items "
                     "are left out, those of seeds are not", path, f"{size:,}")
        items = {}
    with write_atomically(path) as file:
        file.writelines(checksummed.file_chunks(items))


def read_items(path: Path) -> Items:
    """Read per-item values; empty if there is no file, DataError if `write_items` did not write it."""
    if not path.exists():
        return {}
    try:
        if (size := path.stat().st_size) > MAX_ITEMS:
            raise DataError(f"{path}: {size:,} bytes are too many; at most {MAX_ITEMS:,} are read")
        with safetensors.safe_open(path, framework="numpy") as file:
            items = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  not a dict
            metadata = file.metadata()
    except (OSError, safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
        raise read_error(path, error, f"contains no items of a run: {error}") from error
    checksummed.check(path, metadata, items)
    for name, values in items.items():
        if values.ndim != 1 or values.dtype != (np.int64 if name.endswith("/cluster") else np.float64):
            raise DataError(f"{path}: {name}: {values.dtype} of shape {values.shape}; should be a column of numbers")
    return items


def logits(parts: ModelParts, corrected: bool, at_once: int | None = None) -> Callable[[Query], Tensor]:
    """Return a function that maps queries to logits (Q, V). With `corrected`, log q is added to log-odds.

    at_once: candidates scored at the same time, for models that read their vectors again for each query; None: all.
    A log Z that the loss learns is not subtracted: it is constant for each query.
    """
    model, loss, source = parts.model, parts.loss, parts.source
    all_ids = torch.arange(parts.problem.n_candidates, device=parts.problem.device).unsqueeze(0)  # (1, V)
    adds_log_q = corrected and _are_log_odds(parts)
    if adds_log_q:
        source.prepare_log_prob(ReadOnly(model))  # a resumed run that had finished does not draw again
    def compute_logits(query: Query) -> Tensor:
        parts_of_z = [of_ids(query, ids) for ids in all_ids.split(at_once or all_ids.shape[1], 1)]
        return parts_of_z[0] if len(parts_of_z) == 1 else torch.cat(parts_of_z, 1)                   # (Q, V)

    def of_ids(query: Query, ids: Tensor) -> Tensor:
        z = loss.unnormalized(model.score(query, ids), query)
        return z + source.log_prob(query, ids) if adds_log_q else z
    return compute_logits


def undrawn_targets(parts: ModelParts, batch: Batch) -> str:
    """State how many held-out targets have q = 0, so that the log q added to their log-odds is −∞; '' if none has."""
    if not _are_log_odds(parts) or not len(query := encode_heldout(parts, batch)):
        return ""
    parts.source.prepare_log_prob(ReadOnly(parts.model))
    n = int(parts.source.log_prob(query, query.target.unsqueeze(1)).expand(len(query), 1).isneginf().sum())
    part = format_part(n, len(query), "held-out targets", "has", "have")
    return f"{part} probability 0 under {parts.source.name}" if n else ""


def estimates_probabilities(parts: ModelParts) -> bool:
    """Whether softmax of `logits(parts, corrected=True)` estimates P.

    The loss must estimate log P, or log-odds whose q the source can state.
    """
    return parts.loss.traits.estimates_log_prob and (_are_log_odds(parts) or not parts.loss.traits.estimates_log_odds)


def _are_log_odds(parts: ModelParts) -> bool:
    """Whether scores are log-odds against a noise distribution whose q the source states for all candidates.

    It states no q of draws from a mean over queries: that depends on the batches of training.
    """
    traits = parts.source.traits
    return parts.loss.traits.estimates_log_odds and traits.density in ("exact", "estimated") \
        and not traits.mixes_queries
