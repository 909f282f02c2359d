"""The command `embtrain`: commands.py says what it can do, end.py how it ends."""

from embtrain.cli.end import main, run

__all__ = ["main", "run"]
