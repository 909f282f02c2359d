"""The command `continue`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from embtrain.cli import options
from embtrain.common import machine


def continue_run(
    run: Annotated[Path, typer.Argument(
        metavar="RUN", readable=False, callback=options.check_run,
        help="Run folder of skip-gram or CBOW; it does not change.")],
    corpus: Annotated[str, typer.Option(
        metavar="NAME|PATH", autocompletion=options.corpora, callback=options.check_corpus,
        help="Corpus: a name that `embtrain data list` prints, or the path of your own data.")],
    overrides: Annotated[list[str] | None, typer.Option(
        "--set", metavar="KEY.KEY=VALUE", help="Override one key of the run. Repeatable.")] = None,
    seed: Annotated[int | None, typer.Option(
        metavar="N", help="Seed of new rows, order and draws (default: that of RUN plus 1).")
                    ] = None,
    threads: options.Threads = None,
    out: options.Out = None,
    dry_run: options.DryRun = False,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Train a run further on another text, in a new run folder."""
    with machine.paused_collector():
        from embtrain import experiment
        from embtrain.experiment import continuation
        from embtrain.train.group import launch

    options.configure_output(quiet)
    with launch.join() as group:
        settings = continuation.continued_settings(run, corpus, overrides or [], seed, threads)
        if dry_run:
            if group.is_first:
                plan = experiment.plan(settings, group, out)
                options.emit(plan.tree(), as_json, lambda: plan)
            return
        done = experiment.fit(settings, out) if group.size == 1 else experiment.fit_in_group(settings, out, group)
        if group.is_first:
            options.emit_run(done, as_json)
