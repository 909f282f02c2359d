"""The kinds of damaged files: small valid examples and the commands that read them."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import yaml

from embtrain import experiment
from embtrain.common import shipped
from embtrain.data.vectors import vectors
from helpers.hostile import Kind, another_value, cut_or_flip, numbers_of, run_command

LITTLE = ("--threads", "1", "--quiet", "--set", "model.dim=4", "--set", "train.chunk=64", "--set", "train.batch=32")
DRY = ("fit", "--dry-run", *LITTLE, "--negatives")
TEXT = "\n".join(" ".join(f"{a}{b}l" for a in "bdfk" for b in "aeiou"[i % 3:]) + "." for i in range(20)) + "\nשלום é\n"
WORDS = ("--set", "text.min_count=1")
OF_TEXT = tuple((*DRY, "sgns", "--corpus", "text", *WORDS, *more) for more in ((), ("--set", "text.tokenizer=words")))
NMT = ("model.hidden=4", "model.embed=4", "train.chunk=60", "train.batch=60", "translation.max_length=20",
       "translation.min_count=1", "evaluate.sentences=4", "evaluate.examples=1", "translation.source=de",
       "translation.target=en")
TRAIN = ("fit", *LITTLE, *WORDS, "--negatives", "nce-learned-z", "--corpus", "text", "--set", "text.valid=.2",
         "--set", "text.test=.2", "--set", "train.epochs=2", "--set", "train.log_every=1", "--set",
         "evaluate.benchmarks=[]",
         "--set", "evaluate.resamples=40", "--set", "evaluate.neighbours=[bal]", "--set", "train.checkpoint_every=1e-9")


def write(place: Path, name: str, content: str | bytes) -> None:
    path = place / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def text_of(place: Path) -> None:
    for d in range(4):
        write(place, f"text/{d}.txt", TEXT)


def bare(path: Path) -> str:
    """The lines of a YAML file without comments."""
    return yaml.safe_dump(yaml.safe_load(path.read_text("utf-8")), sort_keys=False)


def settings(place: Path) -> None:
    text_of(place)
    write(place, "mine.yaml", bare(shipped.path("configs", "default")))
    write(place, "strategy.yaml", bare(shipped.path("configs", "ace", "strategies")))


def candidates(place: Path, form: str) -> None:
    """Lists of candidates for the words of the text."""
    text_of(place)
    rows = [(f"{a}{b}l", [f"{c}{b}l" for c in "bdfk" if c != a]) for a in "bdfk" for b in "aeiou"]
    write(place, f"lists.{form}", "".join(
        json.dumps({"query": word, "candidates": others, "weights": [1, 2.5, 3]}) + "\n" if form == "jsonl" else
        "".join(f"{word}\t{other}\t{i + 0.5}\n" for i, other in enumerate(others)) for word, others in rows))


def packed(place: Path, name: str) -> None:
    """The same text in one archive or compressed file."""
    plain = TEXT.encode()
    if name == "zip":
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for d in range(3):
                archive.writestr(f"in/{d}.txt", plain)
        write(place, "text", out.getvalue())
        return
    if name.startswith("tar"):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as tar:
            for d in range(3):
                member = tarfile.TarInfo(f"in/{d}.txt")
                member.size = len(plain)
                tar.addfile(member, io.BytesIO(plain))
        plain, name = out.getvalue(), name.removeprefix("tar").removeprefix(".")
    pack: dict[str, Callable[[bytes], bytes]] = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}
    write(place, "text", pack.get(name, bytes)(plain))


def vectors_of(place: Path, format: vectors.Format) -> None:
    table = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)
    vectors.write(place / "v", vectors.Vectors(["bal", "dil", "été", "gam", "hin", "jan"], table), format)
    if format == "word2vec-binary":
        write(place, "v", (place / "v").read_bytes())


def triples(place: Path) -> None:
    def rows(numbers: range) -> str:
        return "".join(f"e{i % 20}\tr{i % 3}\te{(i * 7 + 1) % 20}\n" for i in numbers)
    for part, numbers in (("train", range(60)), ("valid", range(60, 64)), ("test", range(64, 68))):
        write(place, f"graph/{part}.txt", rows(numbers))


def openke(place: Path) -> None:
    for part, n in (("train", 60), ("valid", 4), ("test", 4)):
        rows = "".join(f"{i % 20} {(i * 7 + 1) % 20} {i % 3}\n" for i in range(n))
        write(place, f"graph/{part}2id.txt", f"{n}\n{rows}")
    for name, n in (("entity2id", 20), ("relation2id", 3)):
        write(place, f"graph/{name}.txt", f"{n}\n" + "".join(f"{name[0]}{i}\t{i}\n" for i in range(n)))


def hierarchy(place: Path) -> None:
    write(place, "pairs.tsv", "".join(f"n{i}\tn{(i - 1) // 2}\n" for i in range(1, 60)))


def split(place: Path) -> None:
    for part, rows in {"vocab": "0\troot\n1\ta\n2\tb\n3\tc\n4\td\n", "train_0percent": "0\t1\n0\t4\n1\t2\n2\t3\n",
                       "train_10percent": "0\t1\n0\t4\n1\t2\n2\t3\n0\t3\n", "valid": "0\t2\n", "test": "1\t3\n",
                       "valid_neg": "4\t2\n", "test_neg": "1\t4\n"}.items():
        write(place, f"split/x.tsv.{part}", rows)


def wordnet(place: Path) -> None:
    data, index = "  1 a licence\n", "  1 a licence\n"
    for i in range(30):
        up = f"001 @ {(i - 1) // 2 * 1000 + 1000:08d} n 0000" if i else "000"
        data += f"{i * 1000 + 1000:08d} 03 n 01 w{i} 0 {up} | what it is  \n"
        index += f"w{i} n 1 1 @ 1 0 {i * 1000 + 1000:08d}  \n"
    write(place, "wn/data.noun", data)
    write(place, "wn/index.noun", index)


def repository(place: Path) -> None:
    for part, n in (("train", 40), ("test", 10)):
        rows = "".join(f"{i % 7},{(i * 3 + 1) % 7} {i % 11}:0.5 {i % 9 + 11}:{i % 5 + 1}.25\n" for i in range(n))
        write(place, f"docs/mine_{part}.txt", f"{n} 20 7\n{rows}")


def split_repository(place: Path) -> None:
    rows = "".join(f"{i % 7} {i % 11}:0.5\n" for i in range(20))
    write(place, "docs/mine.txt", f"20 20 7\n{rows}")
    write(place, "docs/mine_trSplit.txt", "".join(f"{i + 1}\n" for i in range(15)))
    write(place, "docs/mine_tstSplit.txt", "".join(f"{i + 1}\n" for i in range(15, 20)))


def arff(place: Path) -> None:
    head = "@relation 'mine: -C 2'\n@attribute size numeric\n@attribute 'a word' {0,1}\n@attribute x {0,1}\n" \
           "@attribute \"y z\" {0, 1}\n\n@data\n"
    write(place, "docs/mine.arff", head + "{0 2.5, 2 1}\n{3 1}\n0,1,0,1\n% end\n{ 1 1 ,3 1 }\n" * 8)
    write(place, "docs/mine.xml", '<?xml version="1.0"?><labels xmlns="http://mulan.sourceforge.net/labels">'
                                  '<label name="y z"/><label name="x"></label></labels>')


def parallel(place: Path) -> None:
    """Numerals in two languages, forwards and backwards."""
    ones, theirs = "one two three four five".split(), "eins zwei drei vier fünf".split()
    for part, n in (("train", 40), ("dev", 6), ("test", 6)):
        for words, name, step in ((ones, "en", 1), (theirs, "de", -1)):
            write(place, f"both/{part}.{name}", "".join(
                " ".join(words[(i * 7 + j) % 5] for j in range(2 + i % 4)[::step]) + ".\n" for i in range(n)))


def table_of_sentences(place: Path) -> None:
    write(place, "both/own.tsv", "".join(f"{'eins zwei drei'[:4 + 5 * (i % 3)]} {i}\tone {i}\n" for i in range(40)))


def dense(place: Path) -> None:
    write(place, "docs/digits.txt", "".join(f"{i % 5 + 1} {i * .25} -1.5 0.{i}\n" for i in range(30)))


def run(place: Path) -> None:
    """A finished run with two checkpoints and all its files."""
    text_of(place)
    end = run_command((*TRAIN, "--out", "run"), place)
    assert end.code == 0, end


def cached(place: Path) -> None:
    """A cached text."""
    text_of(place)
    assert run_command(OF_TEXT[0], place).code == 0


def ids(place: Path, out: str) -> object:
    """The training ids, rebuilt if damaged; the first reading is used only if they are gone."""
    return {path.relative_to(place): path.read_bytes() for path in place.glob("cache/**/text-text-*/*.npy")}


def two_runs(place: Path) -> None:
    run(place)
    shutil.move(place / "run", place / "one")
    arguments = ["sgns" if word == "nce-learned-z" else word for word in TRAIN]
    assert run_command((*arguments, "--out", "two"), place).code == 0


def order_run(place: Path) -> None:
    hierarchy(place)
    end = run_command(("fit", *LITTLE, "--model", "order", "--negatives", "order", "--corpus", "pairs.tsv", "--set",
                "train.epochs=1", "--set", "evaluate.resamples=40", "--out", "run"), place)
    assert end.code == 0, end


def trained(place: Path, out: str) -> object:
    """The result of a resumed run: the bits of its vectors and its scores."""
    return (place / "run" / "vectors.safetensors").read_bytes(), list(numbers_of(place / "run" / "scores.json"))


def printed(place: Path, out: str) -> object:
    return out


def differences(place: Path, out: str) -> object:
    return (place / "joined" / "items.csv").exists(), (place / "joined" / "results.json").read_text().count("mean_")


def values(place: Path, model: str, strategy: str, corpus: str, sound: Callable[[Path], None], *more: str) -> None:
    """Every key of the settings of a run, in mine.yaml."""
    sound(place)
    sets = ["model.dim=4", "train.chunk=64", "train.batch=32", "train.threads=1", *more]
    resolved = experiment.resolve(strategy, model, "none", sets=sets).model_dump(mode="json", by_alias=True)
    write(place, "mine.yaml", json.dumps(resolved | {"corpus": corpus}))


def _values(model: str, strategy: str, corpus: str, sound: Callable[[Path], None], *more: str) -> Kind:
    return Kind(f"values-{model}-{strategy}", lambda place: values(place, model, strategy, corpus, sound, *more),
                "mine.yaml", (("fit", "--dry-run", "--quiet", "--config", "mine.yaml"),), flips=0, harm=another_value)


def _of(model: str, strategy: str, corpus: str, *sets: str) -> tuple[str, ...]:
    return (*DRY, strategy, "--model", model, "--corpus", corpus, *(x for key in sets for x in ("--set", key)))


KINDS = (
    Kind("settings", settings, "mine.yaml", ((*DRY, "sgns", "--corpus", "text", "--config", "mine.yaml", *WORDS),)),
    Kind("strategy", settings, "strategy.yaml",
         ((*DRY, "strategy.yaml", "--corpus", "text", *WORDS, "--set", "negatives.min_perplexity=5"),)),
    _values("skipgram", "ace", "text", text_of, "text.min_count=1", "negatives.min_perplexity=5"),
    _values("transe", "kbgan", "graph", triples),
    _values("order", "order", "pairs.tsv", hierarchy),
    _values("xc", "rff", "docs", repository),
    _values("lm", "sampled-softmax", "text", text_of, "language.min_count=1", "train.batch=64"),
    Kind("text", text_of, "text/*", OF_TEXT),
    *(Kind(f"text-{name}", lambda place, name=name: packed(place, name), "text", OF_TEXT[:1])  # type: ignore[misc]
      for name in ("gz", "bz2", "xz", "zip", "tar", "tar.gz")),
    *(Kind(f"vectors-{name}", lambda place, name=name: vectors_of(place, name), "v",  # type: ignore[misc]
           (("neighbours", "v", "bal", "été"), ("evaluate", "v", "--on", "wordsim353", "--quiet")))
      for name in ("word2vec", "word2vec-binary", "glove")),
    Kind("vectors-safetensors", lambda place: vectors_of(place, "safetensors"), "v",
         (("neighbours", "v", "bal", "dil"),), flips=0.5, answer=printed, harm=cut_or_flip),
    Kind("triples", triples, "graph/*", (_of("transe", "sgns", "graph"), _of("distmult", "bernoulli", "graph"))),
    Kind("openke", openke, "graph/*", (_of("transe", "sgns", "graph", "triples.format=openke"),)),
    Kind("hierarchy", hierarchy, "pairs.tsv", (_of("order", "order", "pairs.tsv"),)),
    Kind("published-split", split, "split/*", (_of("order", "order", "split", "pairs.protocol=given"),)),
    Kind("wordnet", wordnet, "wn/*", (_of("order", "order", "wn"),)),
    *(Kind(f"candidates-{name}", lambda place, name=name: candidates(place, name), "lists.*",  # type: ignore[misc]
           ((*DRY, "candidates", "--corpus", "text", *WORDS, "--set", f"negatives.file=lists.{name}"),))
      for name in ("tsv", "jsonl")),
    Kind("repository", repository, "docs/*", (_of("xc", "sgns", "docs"),)),
    Kind("repository-split", split_repository, "docs/*", (_of("xc", "sgns", "docs"),)),
    Kind("arff", arff, "docs/*", (_of("xc", "sgns", "docs"),)),
    Kind("parallel", parallel, "both/*", (_of("nmt", "cosine", "both", *NMT),)),
    Kind("parallel-table", table_of_sentences, "both/*", (_of("nmt", "cosine", "both", *NMT),)),
    Kind("dense", dense, "docs/*", (_of("xc", "softmax", "docs"),)),
    Kind("cache", cached, "cache/**/*", OF_TEXT[:1], flips=0.5, answer=ids, harm=cut_or_flip),
    Kind("checkpoint", run, "run/checkpoints/*", (("resume", "run", "--quiet"),), flips=0.5, answer=trained),
    Kind("resumed", run, "run/[civ]*[yt]*", (("resume", "run", "--quiet"),)),
    Kind("exported", run, "run/vectors.safetensors",
         (("neighbours", "run", "bal"), ("export", "run", "--out", "x"), ("evaluate", "run", "--on", "wordsim353")),
         flips=0.5, answer=printed, harm=cut_or_flip),
    Kind("run-files", run, "run/[cims]*[nl]", (("report", "run"),)),
    Kind("joined", two_runs, "one/*.[sjy]*", (("report", "one", "two", "--out", "joined"),)),
    Kind("order-run", order_run, "run/*.txt", (("evaluate", "run", "--quiet"), ("resume", "run", "--quiet"))),
)
