"""Commands that write files: their input, the command, and the files whose bits must be reproduced."""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from embtrain.common.files import sha256, write_text
from embtrain.data.catalogue import fetch
from embtrain.data.catalogue.recipes import CorpusFile, CorpusRecipe
from embtrain.experiment.comparison import workers
from embtrain.report.render.document import ReportDocument
from helpers.disks import DEATH, DIED, End, left_over, run, torn
from helpers.hostile import run_command
from helpers.hostile_files import (
    LITTLE,
    NMT,
    TRAIN,
    WORDS,
    hierarchy,
    parallel,
    repository,
    run as run_of,
    text_of,
    triples,
    two_runs,
    vectors_of,
    wordnet,
)
from helpers.in_process import Here, replace_processes
from helpers.serving import FAR_SHA256


@dataclass(frozen=True)
class Writer:
    """`again`: the command that continues once `begun` exists; otherwise the command itself is repeated."""

    make: Callable[[Path], None]
    argv: tuple[str, ...]
    results: tuple[str, ...]            # patterns
    again: tuple[str, ...] | None = None
    begun: str = "run/config.yaml"
    every: int = 1                      # step between the calls that fail

    def goes_on(self, place: Path) -> tuple[str, ...]:
        return self.again if self.again is not None and (place / self.begun).exists() else self.argv

    def found(self, place: Path) -> dict[str, str]:
        """Hashes of the results; hidden files, which a kill leaves half-written, are excluded."""
        paths = (path for pattern in self.results for path in place.glob(pattern) if path.is_file())
        return {name: content_hash(path) for path in paths if "/." not in (name := path.relative_to(place).as_posix())}


def content_hash(path: Path) -> str:
    """Hash of a file; of a manifest of cached data without times and inodes, which a fast machine does not record."""
    if path.name != "manifest.json":
        return sha256(path)
    manifest = json.loads(path.read_text(encoding="utf-8"))
    for entry in manifest.get("files", {}).values():       # the manifest of an unpacked archive has none
        entry.pop("state", None)
    return json.dumps(manifest)


def one_vectors(place: Path) -> None:
    (place / "one").mkdir()
    vectors_of(place, "safetensors")
    shutil.move(place / "v", place / "one" / "vectors.safetensors")


def archive(place: Path) -> None:
    text_of(place)
    (place / "mirror").mkdir()
    with tarfile.open(place / "mirror" / "x.tar.gz", "w:gz") as tar:
        tar.add(place / "text", "text")


def nothing(place: Path) -> None:
    pass


def sets(*keys: str) -> tuple[str, ...]:
    return tuple(word for key in keys for word in ("--set", key))


def dry(strategy: str, model: str, corpus: str, *keys: str) -> tuple[str, ...]:
    return ("fit", "--dry-run", *LITTLE, "--negatives", strategy, "--model", model, "--corpus", corpus, *sets(*keys))


def trained(strategy: str, model: str, corpus: str, *keys: str) -> tuple[str, ...]:
    return ("fit", *LITTLE, "--negatives", strategy, "--model", model, "--corpus", corpus, "--out", "run",
            *sets("train.epochs=1", "train.log_every=1", "evaluate.resamples=40", *keys))


def translator(place: Path) -> None:
    """A run of a translator."""
    parallel(place)
    end = run_command(trained("cosine", "nmt", "both", *NMT), place)
    assert end.code == 0, end


CACHE = ("cache/**/*",)
OF_RUN = ("run/vectors.safetensors", "run/items.safetensors", "run/neighbours.json", "run/*.txt", "run/examples.json",
          "run/relations.safetensors")
RESUME = ("resume", "run", "--quiet")
COMPARE = ("compare", "--negatives", "sgns,nce", "--corpus", "text", "--seeds", "1", "--parallel", "1", "--threads",
           "1", "--quiet", "--out", "all", *LITTLE[3:], *WORDS, *sets(
               "text.valid=.2", "text.test=.2", "train.epochs=1", "train.log_every=1", "evaluate.benchmarks=[]",
               "evaluate.resamples=40", "evaluate.neighbours=[bal]"))
OF_CELLS = ("all/cells/*/vectors.safetensors", "all/cells/*/items.safetensors", "all/cells/*/neighbours.json")


def compared(place: Path) -> None:
    """A comparison without its report."""
    text_of(place)
    end = run(place, COMPARE)
    assert end.code == 0, end
    for name in ("results.json", "report.html", "report.md", "report.tex", "scores.csv"):
        (place / "all" / name).unlink()


WRITERS: dict[str, Writer] = {
    "export": Writer(one_vectors, ("export", "one", "--out", "out/x.txt"), ("out/x.txt",)),
    "fetch, of an archive": Writer(archive, ("data", "fetch", "mine", "--trust"), CACHE),
    "fetch, by download": Writer(nothing, ("data", "fetch", "far"), CACHE),
    "the cache of a text": Writer(text_of, dry("sgns", "skipgram", "text", "text.min_count=1"), CACHE),
    "the cache of a language": Writer(text_of, dry("sampled-softmax", "lm", "text", "language.min_count=1",
                                                   "train.batch=64"), CACHE),
    "the cache of triples": Writer(triples, dry("sgns", "transe", "graph"), CACHE),
    "the cache of pairs": Writer(wordnet, dry("order", "order", "wn"), CACHE),
    "the cache of labels": Writer(repository, dry("sgns", "xc", "docs"), CACHE),
    "the cache of sentences": Writer(parallel, dry("cosine", "nmt", "both", *NMT), CACHE),
    "fit": Writer(text_of, (*TRAIN, "--out", "run"), OF_RUN, RESUME, every=2),
    "fit, with patience": Writer(text_of, (*TRAIN, "--out", "run", *sets("train.patience=1")), OF_RUN, RESUME,
                                 every=10),
    "fit, of a graph": Writer(triples, trained("sgns", "transe", "graph"), OF_RUN, RESUME, every=3),
    "fit, of pairs": Writer(hierarchy, trained("order", "order", "pairs.tsv"), OF_RUN, RESUME, every=2),
    "fit, of a translator": Writer(parallel, trained("cosine", "nmt", "both", *NMT), OF_RUN, RESUME, every=6),
    "resume": Writer(run_of, RESUME, OF_RUN, every=2),
    "diagnose": Writer(run_of, ("diagnose", "run", "--negatives", "sgns", "--m", "2", "--draws", "2", "--threads", "1",
                                "--quiet"), OF_RUN),  # it prints milliseconds, which vary
    "diagnose, drawn columns": Writer(run_of, ("diagnose", "run", "--negatives", "sgns", "--m", "2", "--threads", "1",
                                               "--quiet", "--dump-negatives", "drawn.tsv"), ("drawn.tsv",), every=10),
    "report": Writer(run_of, ("report", "run"), ("run/vectors.safetensors",)),
    "report, of two runs": Writer(two_runs, ("report", "one", "two", "--out", "joined"),
                                  ("joined/results.json", "joined/scores.csv")),
    "compare": Writer(text_of, COMPARE, OF_CELLS, every=20),
    "report, of a comparison": Writer(compared, ("report", "all"), ("all/results.json", "all/scores.csv")),
}


def prepared(patch: pytest.MonkeyPatch, address: str) -> None:
    """Run cells in the process of their comparison, with two corpora: an archive without a known hash, and a file
    served at the address. Reports, which only cost time, are left out."""
    recipes = {
        "mine": CorpusFile(mirror="x.tar.gz", sha256="unverified", members=("text/*",)),
        "far": CorpusFile(url=f"{address}/far.txt", sha256=FAR_SHA256)}
    patch.setattr(fetch, "find_recipe", lambda name: CorpusRecipe(
        name=name, description="x", licence="x", reader="text", tokenizer="words", files=(recipes[name],)))
    patch.setenv("EMBTRAIN_DATA_MIRROR", "mirror")
    patch.delenv("EMBTRAIN_OFFLINE", raising=False)
    replace_processes(patch, Here)
    patch.setattr(Here, "log", [])
    patch.setattr(workers, "_POLL", 0)
    for kind in ("run", "comparison"):
        patch.setattr(f"embtrain.report.{kind}.page.document", lambda *_, **__: ReportDocument("x", "x", [], [], "x"))
    patch.setattr("embtrain.report.render.html.render", lambda document: "<html></html>\n")


def warmed(place: Path) -> None:
    """Run some commands in this process, so that forks need no further imports."""
    two_runs(place)
    parallel(place)
    hierarchy(place)
    for argv in (COMPARE, ("report", "one", "two", "--out", "both-runs"), ("resume", "one"),
                 trained("cosine", "nmt", "both", *NMT), ("report", "run"),
                 ("diagnose", "one", "--negatives", "sgns", "--m", "2", "--draws", "2")):
        end = run_command(argv, place)
        assert end.code == 0, (argv, end)


def owes(writer: Writer, where: str, place: Path, end: End, error: int, before: dict[str, str], whole: dict[str, str]
         ) -> None:
    """Check a writer after a kill or failure: complete files, nothing lost, and the command can be completed."""
    if error == DEATH:
        assert end.code == DIED, (where, end)
    else:
        assert end.code == 4 and end.said.count("embtrain: error: ") == 1, (where, end)
        assert "Traceback" not in end.said, (where, end)
    assert torn(place) == [], where
    for path in place.rglob("*.error.json"):
        assert json.loads(path.read_text())["code"] == 4, (where, path.read_text())
    for name, digest in before.items():
        if (place / name).is_file():  # an older checkpoint may be deleted once a newer one exists
            assert sha256(place / name) == digest or name not in writer.found(place) or \
                content_hash(place / name) == whole[name], (where, name)
        else:
            assert "checkpoints/" in name, (where, name)
    again = run(place, writer.goes_on(place))
    assert again.code == 0, (where, again)
    assert writer.found(place) == whole, where
    for name in left_over(place):                            # the command wrote no further file there
        write_text((place / name).parent / "next", "")
    assert left_over(place) == [], where                     # the next writer deletes leftovers
