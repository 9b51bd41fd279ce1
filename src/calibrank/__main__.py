"""Entry point of `calibrank` and `python -m calibrank`."""

import gc
import os
import sys

from calibrank import __version__
from calibrank._internal.commands import COMMANDS
from calibrank._internal.interrupt import exit_on_interrupt
from calibrank.errors import MissingExtraError


def main() -> None:
    """Run the command line, or print how to install it."""
    exit_on_interrupt()
    # Imported modules stay for the whole run; scanning them for garbage would take 0.1 s.
    gc.set_threshold(100_000)
    _replace_closed_streams()
    try:
        from calibrank.cli.failures import report_failure  # noqa: PLC0415  (an extra)
    except MissingExtraError as error:
        sys.exit(_without_packages(error))
    try:
        from calibrank.cli.app import main as run  # noqa: PLC0415  (may fail for want of memory)

        run()
    except Exception as error:  # noqa: BLE001  (even an import must not end in a traceback)
        sys.exit(report_failure(error))
    finally:
        gc.freeze()  # the interpreter would otherwise collect everything once more at exit


def _without_packages(error: MissingExtraError) -> int:
    """What the core alone can answer: its version, and which commands there would be."""
    # ruff: noqa: T201  (rich may be missing)
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        print(f"calibrank {__version__}")
        return 0
    if arguments in ([], ["--help"]):
        lines = [f"  {name:10} {summary}" for name, summary in COMMANDS.items()]
        print("Usage: calibrank COMMAND ...\n\nCommands:", *lines, sep="\n")
        print(f"\nThe commands need more packages: {error}")
        return 0
    print(f"calibrank: {error}", file=sys.stderr)
    return 5


def _replace_closed_streams() -> None:
    """Discard what is printed if a stream was closed, as by `calibrank inspect map.json >&-`."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            # It also takes the stream's number, which the next file would get otherwise.
            nowhere = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115  (stays open)
            setattr(sys, name, nowhere)


if __name__ == "__main__":
    main()
