"""Runs commands, and turns every error into one line and an exit code."""

import io
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import calibrank.cli.commands
import calibrank.cli.search_commands  # noqa: F401  (both declare commands)
from calibrank import __version__
from calibrank._internal.interrupt import raise_on_interrupt
from calibrank.cli.failures import CLOSED_PIPE, print_line, report_failure
from calibrank.cli.parse import COMMANDS as COMMANDS  # noqa: PLC0414  (re-exported)
from calibrank.cli.parse import Command, Given, find_command
from calibrank.errors import MissingExtraError

_PACKAGES = ("rich", "pyarrow", "matplotlib")

# Where the functions of commands are that have no module of their name.
_MODULES = {
    **dict.fromkeys(("compare", "control", "report"), "evaluate"),
    **dict.fromkeys(("apply", "export", "score"), "inspect"),
}


def main() -> None:
    """Run the command line; an error is printed as one line, without a traceback."""
    # Characters that a terminal's encoding lacks are printed as escapes, and are no error.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    warnings.showwarning = _print_warning
    try:
        code = _run(sys.argv[1:])
        # A full disk or a closed pipe shows only now.
        sys.stdout.flush()
    except SystemExit:
        raise  # rich ends so if a pipe is closed
    except BaseException as error:  # noqa: BLE001  (no traceback reaches the user, ever)
        sys.exit(_exit_code(error))
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    command, rest = find_command(arguments)
    given = command.given(rest)
    # Plain text: rich would wrap it, and takes longer to load than all of this.
    if given is None or command.members:
        is_version = given is not None and getattr(given, "version", False)
        print(f"calibrank {__version__}" if is_version else command.help())  # noqa: T201  (see above)
        return 0
    for package in _PACKAGES:
        if find_spec(package) is None:
            raise MissingExtraError(package, "cli")
    function = function_of(command)
    console: Any = import_module("calibrank.cli.console")
    console.screen.quiet = getattr(given, "json", False)
    raise_on_interrupt()  # from here on, files that are being written are removed
    with console.progress_lines(command.name):
        return function(given) or 0


def function_of(command: Command) -> Callable[[Given], int | None]:
    """The function that runs a command; what it needs is imported only now."""
    name, *_ = words = command.name.split()
    module: Any = import_module(f"calibrank.cli.{_MODULES.get(name, name)}")
    return getattr(module, words[-1])


def _exit_code(error: BaseException) -> int:
    if isinstance(error, BrokenPipeError):
        # The reader has seen enough, as in `calibrank inspect map.json | head`: no message.
        sys.stdout = io.StringIO()
        return CLOSED_PIPE
    command, _ = find_command(sys.argv[1:])
    # By the parameters that they set, which errors are about.
    code = report_failure(error, {each.name: each.names[0] for each in command.options})
    try:
        sys.stdout.flush()
    except OSError:
        # Forget text that cannot be written: the interpreter would try again and print an error.
        sys.stdout = io.StringIO()
    return code


def _print_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print_line("33", str(message))
