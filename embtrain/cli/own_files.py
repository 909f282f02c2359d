"""The commands for files that a user writes: `check` and `config schema`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from embtrain.cli import options
from embtrain.common.errors import DataError
from embtrain.common.terminal import plain, show

config = typer.Typer(invoke_without_command=True, rich_markup_mode=None, help="Settings in YAML files.")


def check(
    path: Annotated[Path, typer.Argument(
        metavar="FILE", help="Python file with samplers (it is run), or YAML file of a strategy.")],
    deterministic: Annotated[bool, typer.Option(
        "--deterministic", help="The samplers draw the same under every seed.")] = False,
    as_json: options.Json = False,
) -> None:
    """Check that your sampler keeps the contract of samplers.

    Prints each rule with its result. The exit code is 3 if one is broken. Prints - for a rule that does not apply.
    """
    from embtrain.testing.own_files import check_file, format_line

    options.configure_output(False)
    results = check_file(path, deterministic)
    rows = []
    for result in results:
        rows.append(result)
        if not as_json:
            show(format_line(result), flush=True)
    if as_json:
        options.emit([row._asdict() for row in rows], True, str)
    if broken := [row for row in rows if row.problem]:
        raise DataError(f"{path}: {len(broken)} of {sum(row.problem is not None for row in rows)} rules are broken; "
                        f"correct {broken[0].source}: {broken[0].rule} first")


@config.command("schema")
def schema(out: Annotated[Path | None, typer.Option(
        metavar="FILE", help="Output file (default: standard output).")] = None) -> None:
    """Print the JSON schema of the settings, for editors.

    In the first line of a YAML file: # yaml-language-server: $schema=PATH
    """
    from embtrain.common.files import check_output_file, write_json
    from embtrain.experiment.catalogue.schema import settings_schema

    out_file = None if out is None else check_output_file(out)
    if out_file is None:
        options.emit(settings_schema(), True, str)
    else:
        write_json(out_file, settings_schema())
        show(plain(str(out)))
