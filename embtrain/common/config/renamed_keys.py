"""Keys and values that were renamed, and names of other tools: old name to new name, for one clear error, no alias.

A key is listed by its path in the settings. Keys of a nested source (negatives.inner) are listed under negatives.
"""

from __future__ import annotations

import re

#: Old key -> new key.
KEYS = {
    "train.block": "train.chunk",
    "train.target": "train.track_until",
    "model.targets": "model.output_table",
    "model.feeding": "model.input_feeding",
    "loss.wrong": "loss.normalize_by",
    "evaluate.on": "evaluate.benchmarks",
    "evaluate.every": "evaluate.during_training",
    "evaluate.during": "evaluate.valid_triples (of a translator: evaluate.valid_sentences)",
    "during": "during_training",  # of a paper
    "translation.longest": "translation.max_length",
    "walks.reads": "walks.format",
    "negatives.mask": "negatives.filter",
    "negatives.share": "negatives.share_draws_by",
    "negatives.block": "negatives.share_size",
    "negatives.mass": "negatives.total_weight",
    "negatives.counted": "negatives.counts",
    "negatives.columns": "negatives.sampling",
    "negatives.modes": "negatives.min_perplexity",
    "negatives.refresh": "negatives.update_every",
    "negatives.recluster": "negatives.recluster_every",
    "negatives.inside": "negatives.within_cell (of a tree: negatives.within_leaf)",
    "negatives.alone": "negatives.singleton_threshold",
    "negatives.sums": "negatives.sum_dtype",
    "negatives.update": "negatives.update_every",
    "negatives.rebuild": "negatives.rebuild_every",
    "negatives.memory": "negatives.max_gib",
    "negatives.prior": "negatives.prior_exponent",
    "negatives.order": "negatives.leaf_order",
    "negatives.fan": "negatives.branching",
    "negatives.leaf": "negatives.leaf_size",
    "negatives.of": "negatives.argument",
    "negatives.pause": "negatives.update_every",
    "negatives.cached": "negatives.cache_size",
    "negatives.fresh": "negatives.pool_size",
    "negatives.never": "negatives.excluded",
}

#: Name of a parameter of gensim, fastText or PyKEEN -> key; docs/guide/coming-from.md explains the differences.
OF_OTHER_TOOLS = {
    "vector_size": "model.dim",
    "embedding_dim": "model.dim",
    "dim": "model.dim",
    "window": "text.window",
    "ws": "text.window",
    "minCount": "text.min_count",
    "max_final_vocab": "text.max_size",
    "shrink_windows": "text.dynamic_window",
    "negative": "negatives.k",
    "neg": "negatives.k",
    "num_negs_per_pos": "negatives.k",
    "ns_exponent": "negatives.exponent",
    "alpha": "train.lr",
    "learning_rate": "train.lr",
    "min_alpha": "train.min_lr",
    "epoch": "train.epochs",
    "num_epochs": "train.epochs",
    "batch_size": "train.batch",
    "workers": "train.threads",
    "thread": "train.threads",
    "random_seed": "train.seed",
    "minn": "model.subword.min_n",
    "maxn": "model.subword.max_n",
    "bucket": "model.subword.buckets",
}

#: Key, by its new name -> {old value: new value}.
VALUES = {
    "train.engine": {"step": "autograd"},
    "loss.normalize_by": {"question": "query"},
    "negatives.counts": {"before": "raw", "after": "subsampled"},
    "negatives.sampling": {"both": "stratified"},
    "negatives.within_cell": {"copied": "quantized"},
    "negatives.within_leaf": {"copied": "quantized"},
}

#: Begin of a key of a nested source, to any depth; its keys are those of negatives.
NESTED = re.compile(r"^negatives\.(?:(?:inner|plain|fallback)\.)+")


def settings_key(key: str) -> str:
    """Return the key under which the tables list a dotted key: that of negatives for one of a nested source."""
    return NESTED.sub("negatives.", key)


def new_name(key: str) -> str | None:
    """Return the new name of a dotted key with its changed values, as errors show it; None if it was not renamed."""
    new = KEYS.get(settings_key(key))
    if new is None:
        return None
    values = VALUES.get(new.split(" ")[0], {})
    if nested := NESTED.match(key):
        new = new.replace("negatives.", nested[0])
    return f"{new} ({', '.join(f'{old} -> {name}' for old, name in values.items())})" if values else new


def new_value(key: str, value: object) -> str | None:
    """Return the new name of a value of a dotted key; None if it was not renamed."""
    return VALUES.get(settings_key(key), {}).get(value) if isinstance(value, str) else None
