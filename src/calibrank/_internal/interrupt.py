"""Ctrl-C while the command line starts: one line and exit code 130, without a traceback.

The package imports this module first. Elsewhere than in the command line, it changes nothing.
"""

# Nothing that takes long to import: a traceback would follow Ctrl-C until the handler is there.
import os
import signal
import sys

INTERRUPTED = 130


def exit_on_interrupt() -> None:
    """End the process at once on Ctrl-C: while modules are imported, nothing needs cleaning up."""
    # Not where Ctrl-C is ignored, as by nohup.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _exit)


def raise_on_interrupt() -> None:
    """Turn Ctrl-C into a KeyboardInterrupt again, as in any Python program."""
    if signal.getsignal(signal.SIGINT) is _exit:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _exit(*_: object) -> None:
    # An exception could be lost: modules written in C ignore some, and some imports catch all.
    try:
        os.write(2, b"calibrank: interrupted.\n")
    finally:
        os._exit(INTERRUPTED)


def _is_command_line() -> bool:
    """Whether this process runs `calibrank` or `python -m calibrank`."""
    program = next(iter(getattr(sys, "argv", [])), "")
    if program == "-m":  # while the module is located
        return "calibrank" in sys.orig_argv
    return os.path.basename(program) in ("calibrank", "calibrank.exe")  # noqa: PTH119  (fast)


if _is_command_line():
    exit_on_interrupt()
