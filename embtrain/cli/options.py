"""Options shared by several commands: shell completion, quiet mode and JSON output; the help of bench."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from embtrain.common import terminal
from embtrain.common.errors import EmbtrainError, UsageError

if TYPE_CHECKING:
    from embtrain.data.vectors.open import ReadOptions
    from embtrain.experiment import Run

Quiet = Annotated[bool, typer.Option("--quiet", help="Do not print progress; warnings and errors remain.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON value.")]



def _is_alone() -> bool:
    """Whether no launcher has started this process as one of several.

    Several check paths when they have joined: then an error is reported once, and only process 0 needs a run folder.
    """
    return os.environ.get("WORLD_SIZE", "1") == "1"


# Callbacks check paths, so that a mistyped one ends the command before it imports PyTorch, which takes seconds.
def check_vectors(path: Path) -> Path:
    """Raise DataError if a run folder or vector file does not exist."""
    from embtrain.common import files

    files.check_exists(path, "a run folder or a vector file")
    return path


def check_run(path: Path) -> Path:
    """Raise DataError if a run folder does not exist."""
    from embtrain.common import files

    if _is_alone():
        files.check_exists(path)
    return path


def check_runs(paths: list[Path]) -> list[Path]:
    """Raise DataError for the first of several run folders that does not exist."""
    return [check_run(Path(path)) for path in paths]


def check_corpus(name: str | None) -> str | None:
    """Raise DataError if a corpus is neither a recipe nor a path that exists."""
    from embtrain.common import shipped

    if name is not None and _is_alone():
        shipped.check_corpus(name)
    return name


def check_yaml(path: Path | None) -> Path | None:
    """Raise UsageError or ResourceError if a settings file is not readable or no mapping; report an empty one."""
    from embtrain.common.config.layers import read_yaml

    if path is not None and _is_alone() and not read_yaml(path).tree:
        terminal.note(f"embtrain: {path}: is empty, so it changes no setting")
    return path


def strategies() -> list[str]:
    from embtrain.common import shipped

    return shipped.names("configs", "strategies")


def models() -> list[str]:
    from embtrain.common import shipped

    return shipped.names("configs", "models")


def corpora() -> list[str]:
    from embtrain.common import shipped

    return shipped.names("corpora")


def papers() -> list[str]:
    from embtrain.common import shipped

    return shipped.names("configs", "paper")


def benchmarks() -> list[str]:
    from embtrain.common import shipped

    return shipped.names("evals")


RunFolder = Annotated[Path, typer.Argument(metavar="RUN", readable=False, help="Run folder.", callback=check_run)]
Vectors = Annotated[Path, typer.Argument(
    metavar="PATH", readable=False, callback=check_vectors,
    help="Run folder, Hugging Face folder, or vector file (word2vec, GloVe, fastText .bin, safetensors).")]
Limit = Annotated[int | None, typer.Option(
    "--limit", metavar="N", help="Read only the first N vectors; other words have none, or that of their n-grams "
                                    "(default: all).")]
Strategy = Annotated[str | None, typer.Option(
    "--strategy", "--negatives", metavar="NAME", autocompletion=strategies,
    help="Strategy: a name that `embtrain list` prints, or your YAML file (default: the model's).")]
Model = Annotated[str | None, typer.Option(
    metavar="NAME", autocompletion=models, help="Model: a name that `embtrain list` prints (default: skipgram).")]
Corpus = Annotated[str | None, typer.Option(
    metavar="NAME|PATH", autocompletion=corpora, callback=check_corpus,
    help="Corpus: a name that `embtrain data list` prints, or the path of your own data (default: the model's).")]
Loss = Annotated[str | None, typer.Option(
    metavar="NAME", help="Loss: a name that `embtrain list` prints (default: the strategy's).")]
Epochs = Annotated[int | None, typer.Option(
    "--epochs", metavar="N", min=1, help="Passes over the data; short for --set train.epochs=N (default: the "
                                         "model's).")]
Dim = Annotated[int | None, typer.Option(
    "--dim", metavar="N", min=1, help="Dimensions of a vector; short for --set model.dim=N (default: the model's).")]
Threads = Annotated[int | None, typer.Option(metavar="N", help="Number of threads; 0: all cores (default: 0).")]
Out = Annotated[Path | None, typer.Option(
    metavar="DIR", readable=False, help="Run folder (default: runs/<stamp>-...).")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the configuration, memory and time; train nothing.")]
Encoding = Annotated[str | None, typer.Option(
    "--encoding", metavar="NAME", help="Encoding of the words in a vector file, e.g. latin-1 (default: UTF-8).")]

Join = Annotated[bool, typer.Option(
    "--join", help="Train the runs together with all machines that execute the same command on the same --out.")]
RetryFailed = Annotated[bool, typer.Option("--retry-failed", help="With --join: run failed runs once more.")]
LeaseSeconds = Annotated[float | None, typer.Option(
    "--lease-seconds", metavar="SECONDS", min=1,
    help="With --join: seconds without a sign of life after which a run is taken over from its machine (default: 20).")]


def sharing(join: bool, retry_failed: bool, lease_seconds: float | None) -> dict[str, Any]:
    """The arguments for a comparison on several machines; empty without --join. UsageError for its other options."""
    from embtrain.experiment.comparison.shared.sharing import STALE_AFTER, Sharing

    if join:
        return {"sharing": Sharing(lease_seconds or STALE_AFTER, retry_failed)}
    if retry_failed or lease_seconds is not None:
        raise UsageError(f"{'--retry-failed' if retry_failed else '--lease-seconds'}: needs --join")
    return {}


def read_options(limit: int | None, encoding: str | None) -> tuple[ReadOptions, ...]:
    """The options for reading a vector file; empty if none was given."""
    from embtrain.data.vectors.open import ReadOptions

    return () if limit is None and encoding is None else (ReadOptions(limit, encoding or "utf-8", True),)


def short_sets(epochs: int | None, dim: int | None) -> dict[str, str]:
    """The `--set` of each short option that was given: KEY=VALUE -> the option, as errors name it."""
    given = (("train.epochs", "--epochs", epochs), ("model.dim", "--dim", dim))
    return {f"{key}={value}": f"{flag} {value}" for key, flag, value in given if value is not None}


@contextlib.contextmanager
def named_flags(flags: Mapping[str, tuple[str, Any]]) -> Iterator[None]:
    """Let errors of the block that begin with a key begin with the flag that set it.

    flags: key -> flag and its value; None: the flag was not given.
    """
    try:
        yield
    except EmbtrainError as error:
        given = {key: flag for key, (flag, value) in flags.items() if value is not None}
        lines = [f"{given[key]}: {line}" if (key := line.partition(": ")[0]) in given else line for line in error.args]
        if lines == list(error.args):
            raise
        raise type(error)(*lines) from error


def key_hint(option: str) -> str:
    """Return the `--set` for an unknown option that is named like a key of the settings, here or in gensim, fastText or
    PyKEEN; '' if none is."""
    from embtrain.common import shipped
    from embtrain.common.config.renamed_keys import OF_OTHER_TOOLS

    name = option.lstrip("-").replace("-", "_")
    keys = [OF_OTHER_TOOLS[name]] if name in OF_OTHER_TOOLS else []
    # The YAML files name every general key and those of the models, and they need no import of PyTorch.
    keys += [key for key in shipped.setting_keys() if name in (key, key.rpartition(".")[2])]
    return f"; to set that key: {' or '.join(f'--set {key}=VALUE' for key in dict.fromkeys(keys))}" if keys else ""


def configure_output(quiet: bool) -> None:
    """Turn progress off if `quiet`, and send warnings to standard error, one line each."""
    import logging

    from embtrain.common import progress

    progress.quiet = quiet
    to_stderr = logging.StreamHandler()
    to_stderr.setFormatter(terminal.OneLine())
    logging.basicConfig(handlers=[to_stderr], level=logging.WARNING)


class BenchCommand(TyperCommand):
    """Command whose help lists the benchmarks; with NAME it describes that one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # --help ends the command before NAME has its place among the parameters.
        ctx.meta["name"] = self.make_parser(ctx).parse_args(args=list(args))[0].get("name")
        return super().parse_args(ctx, args)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        from embtrain.cli import bench

        known = bench.names()
        if (name := ctx.meta.get("name")) in known:
            formatter.write(f"\n{bench.documentation(name)}\n")
            return
        with formatter.section("Benchmarks (embtrain bench NAME --help describes one)"):
            formatter.write_dl([(name, bench.documentation(name).partition("\n")[0]) for name in known])


def names(text: str | None, flag: str) -> list[str] | None:
    """Split names at commas. Raises UsageError for an empty name."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise UsageError(f"{flag}: {text!r} should be names, separated by commas")
    return names


def emit(value: Any, as_json: bool, text: Callable[[], object]) -> None:
    """Print the result of a command: one JSON value, or the equivalent text."""
    import codecs
    import json
    import sys

    # JSON escapes characters that the terminal cannot show in its own way; `backslashreplace` would break it.
    ascii_only = codecs.lookup(sys.stdout.encoding or "ascii").name != "utf-8"
    if as_json:
        print(terminal.json_escaped(json.dumps(value, indent=1, ensure_ascii=ascii_only, allow_nan=False)))
    else:
        terminal.show(str(text()))


def emit_run(run: Run, as_json: bool) -> None:
    """Print the scores and the folder of a run."""
    tree = {"run": str(run.folder), "scores": [row._asdict() for row in run.scores]}
    emit(tree, as_json, lambda: f"{run.table()}\nrun: {terminal.plain(str(run.folder))}")


def emit_json_stream(values: Iterable[Any], key: str, after: Callable[[], dict[str, Any]] = dict) -> None:
    """Print one JSON object: the values under `key`, each as soon as it is computed, then what `after` returns."""
    import codecs
    import json
    import sys

    ascii_only = codecs.lookup(sys.stdout.encoding or "ascii").name != "utf-8"
    def text(value: Any) -> str:
        return terminal.json_escaped(json.dumps(value, ensure_ascii=ascii_only, allow_nan=False))

    before = head = f'{{"{key}": ['        # printed with the first value: a failure before it prints nothing
    for value in values:
        print(f"{before}\n {text(value)}", end="")
        before = ","
    end = f"{head}]" if before == head else "\n]"
    print(end + "".join(f', "{name}": {text(value)}' for name, value in after().items()) + "}")


def emit_stream(values: Iterable[dict[str, str]], as_json: bool, line: Callable[[dict[str, str]], str]) -> None:
    """Print several results: one JSON list, or one line for each as soon as it is computed."""
    if as_json:
        emit(list(values), as_json, str)
    else:
        for value in values:
            terminal.show(line(value), flush=True)
