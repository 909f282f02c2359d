"""The command `embtrain`: commands.py defines what it can do, entry_point.py how it ends."""

from typing import NoReturn


def main() -> NoReturn:
    """The console command. The imports take a third of a second, and Ctrl-C may come before they are done."""
    from embtrain.cli import interrupt

    interrupt.end_at_once()
    from embtrain.cli import entry_point

    entry_point.main()


def run() -> int:
    """Run sys.argv in this process and return the exit code; signals and streams stay as they are."""
    from embtrain.cli import entry_point

    return entry_point.run()


__all__ = ["main", "run"]
