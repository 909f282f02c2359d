"""The commands for files that a user writes: `config schema`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from embtrain.cli import options
from embtrain.common.terminal import plain, show

config = typer.Typer(invoke_without_command=True, rich_markup_mode=None, help="Settings in YAML files.")


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
