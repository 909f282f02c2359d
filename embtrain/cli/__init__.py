"""The command `embtrain`.

    commands.py     the application and most of its commands
    continuation.py  continue
    experiments.py  compare, reproduce, report, diagnose, bench and submit
    prediction.py   predict and translate
    vectors.py      neighbours, export and align
    own_files.py    config: settings in files of the user
    doctor.py       doctor
    options.py      options shared by several commands
    entry_point.py  errors as one line and an exit code
    interrupt.py    SIGINT, SIGTERM and SIGHUP
    limits.py       limits of the machine, as errors
    streams.py      standard streams that are closed, full or gone
    bench           the benchmarks of speed
"""

from typing import NoReturn


def main() -> NoReturn:
    """Run the console command. Handles Ctrl-C before the imports, which take a third of a second."""
    from embtrain.cli import interrupt

    interrupt.install_exit_handler()
    from embtrain.cli import entry_point

    entry_point.main()


def run() -> int:
    """Run sys.argv in this process and return the exit code; signal handlers and streams are not replaced."""
    from embtrain.cli import entry_point
    from embtrain.common import machine

    with machine.unfrozen_at_end():
        return entry_point.run()


__all__ = ["main", "run"]
