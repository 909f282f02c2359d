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
from embtrain.common.files import write_atomically
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
    from embtrain.experiment.run.components import Parts

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
    found = entailment.score_pairs(gold, scorer)
    if items is not None and metric == "spearman":
        items |= {f"{name}/score": found.forward, f"{name}/gold": gold.label}
    if items is not None and metric == "accuracy":
        items |= {f"{name}/correct": entailment.correct(gold, found)[0],
                  f"{name}/cluster": np.arange(len(gold.pairs), dtype=np.int64)}
    return entailment.scores(name, metric, gold, found, scorer.describe_scores(gold.pairs), config)


def check_names(names: Sequence[str], kind: str | None = None, said: str = "evaluate.on") -> None:
    """UsageError for a benchmark that does not exist, or is of another kind; ResourceError where what one that trains
    needs is not here: before anything is trained. said: what named them."""
    for name in names:
        try:
            recipe = load_recipe("evals", name)
        except UsageError as error:
            raise UsageError(f"{said}: {error}") from error
        if kind not in (None, recipe.kind):
            of_kind = [other for other in shipped.names("evals") if load_recipe("evals", other).kind == kind]
            raise UsageError(f"{said}: {name} is of kind {recipe.kind}, and here {kind} is measured: "
                             f"{', '.join(of_kind)}")
        if recipe.training is not None:
            fetch.corpus_paths(load_recipe("corpora", recipe.training.corpus))


def likelihood(parts: Parts, batch: Batch, part: str, config: LikelihoodConfig, items: Items | None = None,
               clusters: np.ndarray | None = None) -> list[Score]:
    """Held-out rows under the benchmark name `part` (valid or test). `items`: is filled with what they rest on.

    clusters (B,): what is resampled together, where it is not neighbouring centres.
    """
    query = ask(parts, batch)
    if len(query) == 0:
        rows = heldout.heldout(logits(parts, corrected=True), query, config)
    else:
        found = heldout.ranks(logits(parts, corrected=True), query)
        learned = parts.loss.log_partition(query)
        c = 0.0 if learned is None else learned.double().cpu().numpy()
        log_sum, found = found.log_z, found._replace(log_z=found.log_z - c)
        clusters = heldout.default_clusters(query) if clusters is None else clusters
        rows = heldout.scores(found, clusters, config)
        if items is not None:
            items |= {f"{part}/log_p": found.log_p, f"{part}/rank": found.rank, f"{part}/cluster": clusters}
        if config.log_z and learned is not None:
            rows += heldout.mean_scores({"learned_log_z": np.asarray(c), "log_sum_mean": log_sum}, clusters, config,
                                      "c that the loss has learnt; log Σ e^s, c not taken off")
    if _odds(parts):
        bare = heldout.heldout(logits(parts, corrected=False), query, config, clusters)
        rows += [row._replace(metric=f"{row.metric}/scores") for row in bare]
    return [row._replace(benchmark=part) for row in rows]


def labels(parts: Parts, batch: Batch, part: str, p: np.ndarray, config: LabelsEvaluate, items: Items | None = None
           ) -> list[Score]:
    """PREC@k, nDCG@k and PSP@k of held-out documents, whose (document, label) pairs are the rows of `batch`.

    p (V,): propensities of the labels. `items`: is filled with what each document got.
    """
    query = ask(parts, batch)
    found = label_precision.top_labels(logits(parts, corrected=True), query, p)
    note = f"{len(query):,} labels, {parts.world.n_candidates:,} candidates"
    rows = label_precision.scores(found, config, note)
    if items is not None and len(query):
        items |= {f"{part}/{name}": values for name, values in found.items().items()}
    if _odds(parts):
        bare = label_precision.scores(
            label_precision.top_labels(logits(parts, corrected=False), query, p), config, note
        )
        rows += [row._replace(metric=f"{row.metric}/scores") for row in bare]
    return [row._replace(benchmark=part) for row in rows]


def ask(parts: Parts, batch: Batch) -> Query:
    """What a held-out batch asks, of the model as it answers when it does not train."""
    machine.release_free_memory()  # pieces left by others are too small for this
    was = parts.model.training
    parts.model.eval()
    with torch.no_grad():
        query = parts.model.encode(batch.to(parts.world.device)).detach()
    parts.model.train(was)
    return query


def asking(parts: Parts, few: Batch, n: int) -> int:
    """Bytes that n held-out examples take: in proportion what a `few` of them do while they are asked, and ranking as
    many questions as are looked at together."""
    if not len(few):
        return 0
    query, asked = machine.measure_peak(lambda: ask(parts, few))
    questions = query.unique()[0]
    distinct = -(-len(questions) * n // len(query))                  # about so many there are in all
    at_once = min(distinct, 1 + heldout.MAX_SCORES_HELD // parts.world.n_candidates)  # the first is ranked alone
    some = questions.rows(slice(0, at_once))
    _, ranked = machine.measure_peak(lambda: heldout.ranks(logits(parts, corrected=True), some))
    return asked * n // len(query) + ranked * at_once // len(some)


def write_items(path: Path, items: Items) -> None:
    with write_atomically(path) as file:
        file.writelines(checksummed.file_chunks(items))


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


def logits(parts: Parts, corrected: bool) -> Callable[[Query], Tensor]:
    """Questions -> what the loss says their scores estimate, (Q, V). corrected: q is given back to log-odds.

    A log Z that the loss learns is not taken off: it is one constant for each question.
    """
    model, loss, source = parts.model, parts.loss, parts.source
    everyone = torch.arange(parts.world.n_candidates, device=parts.world.device).unsqueeze(0)  # (1, V)
    give_back = corrected and _odds(parts)
    if give_back:
        source.prepare_log_prob(ReadOnly(model))  # a run that was finished when it was resumed draws no more
    def of(query: Query) -> Tensor:
        z = loss.unnormalized(model.score(query, everyone), query)                                   # (Q, V)
        return z + source.log_prob(query, everyone) if give_back else z
    return of


def estimates_probabilities(parts: Parts) -> bool:
    """Whether the softmax of `logits(parts, corrected=True)` estimates P: the loss does, and q can be given back where
    the loss needs it."""
    return parts.loss.estimates_log_prob and (_odds(parts) or not parts.loss.estimates_log_odds)


def _odds(parts: Parts) -> bool:
    """Whether the scores are log-odds against a noise whose q the source can state of every candidate."""
    return parts.loss.estimates_log_odds and parts.source.density in ("exact", "estimated")
