"""Skip-gram and CBOW: one epoch of a text by the fused engine and by gensim, at equal settings.

PAIR      5 private negatives for each pair (word2vec, gensim)
CENTRE    5 for each window
BLOCK     16 for 16 windows, with weights that sum to 5 per row
cbow-     CBOW, whose window is one example, against gensim with sg=0

Windows are read in text order, as in gensim; `-shuffled` uses our default, train.shuffle: true, which reads the text at
random positions and gives better vectors. `-k20` and `-k64` have as many negatives for each window; `times_sgns` is
their time relative to PAIR, which is sgns as shipped.

Negatives are drawn outside the kernel. `-once` draws for one block only and reuses these negatives: its time relative
to the same layout, `outside`, is a lower bound for drawing inside the kernel, which would have to draw as well. `bound`
is the share of our time on one thread that the rows, the arithmetic and the draws of the epoch take by themselves:
drawing inside is between `outside` and its sum with draws.

With --device cuda the layouts train 2 epochs of the whole text by the kernels of the GPU, against the compiled core on
the threads of the same machine, both in random order, and CENTRE also against FULL-W2V if a program of this name is on
the PATH: then all read the text in lines of 1,000 words, since the windows of FULL-W2V cross the ends of lines.
`words_per_second` has the words of the text, before subsampling, per wall second.
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Sequence
from functools import partial
from typing import Any

from embtrain.cli.bench.harness import bounds, words
from embtrain.cli.bench.harness.base import Group, choose, describe, digits, run
from embtrain.experiment.tasks.windows import WindowsTask

CORPUS, TOKENS = "english-18m", 5_000_000
EPOCHS = 2     # on a GPU
FULL_W2V = "FULL-W2V"
K = 5
LAYOUTS: dict[str, dict[str, Any]] = {
    "PAIR": {"negatives.share_draws_by": "row", "negatives.k": K},
    "CENTRE": {"negatives.share_draws_by": "window", "negatives.k": K},
    "BLOCK": {"negatives.share_draws_by": "block", "negatives.share_size": 16, "negatives.k": 16,
              "negatives.total_weight": K},
}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "": ("sgns", {}), "-shuffled": ("sgns", {"train.shuffle": True}), "-nce": ("nce", {}),
    "-sampled-softmax": ("sampled-softmax", {}), "-once": ("sgns", {})}
WIDE = {f"-{strategy}-k{k}": (strategy, {"negatives.k": k}) for strategy in ("sampled-softmax", "ranking-nce")
        for k in (20, 64)}   # variants of CENTRE alone
DIMS = (100, 300)
MIN_COUNT = 1

Case = tuple[int, int, str, str, dict[str, Any]]  # threads, dim, model, strategy, settings


def cases(threads: Sequence[int]) -> dict[str, Case]:
    """Cases by name, e.g. CENTRE-nce-d100-t1. Each variant is measured once, for sgns in text order."""
    skip_gram = {f"{layout}{suffix}-d{dim}-t{n}": (n, dim, "skipgram", strategy, settings | more)
                 for n in threads for dim in DIMS for layout, settings in LAYOUTS.items()
                 for suffix, (strategy, more) in (VARIANTS | (WIDE if layout == "CENTRE" else {})).items()
                 if not suffix or (dim == DIMS[0] and n == threads[0])}
    return skip_gram | {f"cbow-{layout}-d{DIMS[0]}-t{n}": (n, DIMS[0], "cbow", "sgns", LAYOUTS[layout])
                        for n in threads for layout in ("PAIR", "BLOCK")}


def bench(rounds: int, threads: Sequence[int], only: Sequence[str] | None, corpus: str | None, device: str = "cpu"
          ) -> dict[str, Any]:
    """Rounds of every case; `only` names some, for example CENTRE-d100."""
    if device != "cpu":
        return on_gpu(rounds, threads, only, corpus, device)
    known = cases(threads)
    chosen = {name: known[name] for name in choose(known, only)}
    file = words.prefix(corpus or CORPUS, TOKENS)
    texts = {model: words.read(file, MIN_COUNT, model) for model in dict.fromkeys(case[2] for case in chosen.values())}
    text = next(iter(texts.values()))
    if "skipgram" in texts:
        bounds.require_pairs(texts["skipgram"].windows, corpus or CORPUS)
    about = {"corpus": corpus or CORPUS, "tokens": len(text.corpus.ids), "words": len(text.corpus.vocabulary),
             "measured": "one epoch of training from ids (gensim: corpus_file), reading the vocabulary not timed",
             "settings": words.SHARED}
    groups = []
    for n, dim, model in dict.fromkeys(case[:3] for case in chosen.values()):
        ours = {name: partial(words.ours, file, strategy, MIN_COUNT, n,
                              {"model.dim": dim, "train.engine": "fused", "train.shuffle": False, **settings},
                              once="-once-" in name, model=model)
                for name, (*group, strategy, settings) in chosen.items() if group == [n, dim, model]}
        groups.append(Group(n, ours, {"gensim": partial(words.gensim, file, MIN_COUNT, n, dim,
                                                        sg=int(model == "skipgram"))}))
    summary = run("skipgram", "s an epoch", groups, rounds, about)
    took = {case: statistics.median(seconds) for case, seconds in summary["ours"].items()}
    plain = took.get(f"PAIR-d{DIMS[0]}-t{threads[0]}")
    return summary | {"bound": _bound(text, took) if "skipgram" in texts else {},
                      "times_sgns": {} if plain is None else {
                          case: digits(seconds / plain) for case, seconds in took.items()
                          if case.startswith(tuple(f"CENTRE{suffix}" for suffix in WIDE))},
                      "outside": {case: digits(took[case.replace("-d", "-once-d")] / seconds)
                                  for case, seconds in took.items() if case.replace("-d", "-once-d") in took}}


def _bound(text: WindowsTask, took: dict[str, float]) -> dict[str, dict[str, float]]:
    """The share of a layout's time on one thread that its rows, arithmetic and draws take."""
    found = dict[str, dict[str, float]]()
    for dim in DIMS:
        measured = {f"{layout}-d{dim}-t1": bounds.Layout(settings["negatives.share_draws_by"], settings["negatives.k"],
                                                         settings.get("negatives.share_size", 1))
                    for layout, settings in LAYOUTS.items() if f"{layout}-d{dim}-t1" in took}
        if measured:
            of_epoch = bounds.of_epoch(text.windows, dim, measured)
            found |= {case: {what: digits(seconds / took[case]) for what, seconds in least.items()}
                      for case, least in of_epoch.items()}
    return found


def on_gpu(rounds: int, threads: Sequence[int], only: Sequence[str] | None, corpus: str | None, device: str
            ) -> dict[str, Any]:
    """Rounds of the layouts on a GPU, whose blocks the threads of the host read."""
    known = {f"{layout}-d{DIMS[0]}-t{n}": (n, layout) for n in threads for layout in LAYOUTS}
    chosen = {name: known[name] for name in choose(known, only)}
    file = words.prefix(corpus or CORPUS, 0)
    text = words.read(file, MIN_COUNT)
    program, groups = shutil.which(FULL_W2V), []
    for name, (n, layout) in chosen.items():
        sets = {"model.dim": DIMS[0], "train.engine": "fused", "train.epochs": EPOCHS, "train.shuffle": True,
                **LAYOUTS[layout]}
        rival = program if layout == "CENTRE" else None
        sequences = file if rival is None else words.joined(file)
        train = partial(words.ours, sequences, "sgns", MIN_COUNT, n, sets)
        rivals = {"compiled core": train}
        if rival is not None:
            rivals[FULL_W2V] = partial(words.full_w2v, rival, sequences, MIN_COUNT, n, DIMS[0], EPOCHS)
        groups.append(Group(n, {name: partial(train, device=device)}, rivals))
    about = {"corpus": corpus or CORPUS, "tokens": len(text.corpus.ids), "words": len(text.corpus.vocabulary),
             "epochs": EPOCHS, "device": describe(device),
             "settings": words.shared("train.epochs"),
             "measured": "training from ids, reading the text not timed"}
    summary = run("skipgram", f"s of {EPOCHS} epochs", groups, rounds, about)
    n_words = EPOCHS * len(text.corpus.ids)
    return summary | {"words_per_second": {case: digits(n_words / statistics.median(seconds))
                                           for case, seconds in summary["ours"].items()}}
