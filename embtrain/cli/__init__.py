"""The command `embtrain`: commands.py defines the subcommands, entry_point.py handles errors and exit codes."""

from typing import NoReturn


def main() -> NoReturn:
    """Run the console command. Handles Ctrl-C before the imports, which take a third of a second."""
    from embtrain.cli import interrupt

    interrupt.end_at_once()
    from embtrain.cli import entry_point

    entry_point.main()


def run() -> int:
    """Run sys.argv in this process and return the exit code; signal handlers and streams are not replaced."""
    from embtrain.cli import entry_point

    return entry_point.run()


__all__ = ["main", "run"]
