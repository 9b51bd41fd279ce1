"""Entry point of `calibrank` and `python -m calibrank`."""

import gc
import os
import sys

from calibrank._internal.interrupt import exit_on_interrupt
from calibrank.cli.failures import report_failure


def main() -> None:
    """Run the command line."""
    exit_on_interrupt()
    # Imported modules stay for the whole run; scanning them for garbage would take 0.1 s.
    gc.set_threshold(100_000)
    _replace_closed_streams()
    try:
        from calibrank.cli.app import main as run  # noqa: PLC0415  (may fail for want of memory)

        run()
    except Exception as error:  # noqa: BLE001  (even an import must not end in a traceback)
        sys.exit(report_failure(error))
    finally:
        gc.freeze()  # the interpreter would otherwise collect everything once more at exit


def _replace_closed_streams() -> None:
    """Discard what is printed if a stream was closed, as by `calibrank inspect map.json >&-`."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            # It also takes the stream's number, which the next file would get otherwise.
            nowhere = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115  (stays open)
            setattr(sys, name, nowhere)


if __name__ == "__main__":
    main()
