"""Runs commands, and turns every error into one line and an exit code."""

import io
import sys
import warnings
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import calibrank.cli.commands
import calibrank.cli.search_commands  # noqa: F401  (both declare commands)
from calibrank import __version__
from calibrank._internal.interrupt import raise_on_interrupt
from calibrank.cli.failures import CLOSED_PIPE, UsageError, print_line, report_failure
from calibrank.cli.memory import adapt_to_limit
from calibrank.cli.parse import COMMANDS as COMMANDS  # noqa: PLC0414  (re-exported)
from calibrank.cli.parse import find_command
from calibrank.errors import MissingExtraError

_PACKAGES = ("rich", "pyarrow", "matplotlib")


def main() -> None:
    """Run the command line; an error is printed as one line, without a traceback."""
    adapt_to_limit()
    _degrade_output()
    warnings.showwarning = _print_warning
    try:
        _require_values(sys.argv[1:])
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
    module = import_module(f"calibrank.cli.{command.name.split()[0]}")
    function = getattr(module, command.name.split()[-1])
    module.console.screen.quiet = getattr(given, "json", False)
    raise_on_interrupt()  # from here on, files that are being written are removed
    return function(given) or 0


def _require_values(arguments: list[str]) -> None:
    """Refuse empty values, as of `--label "$RULE"` where a variable is not set."""
    option = "an argument"
    for argument in arguments:
        name, has_value, value = argument.partition("=")
        if "\0" in argument:
            raise UsageError("an argument", "not hold a NUL character", f"{argument!r}")
        if argument == "" or (name.startswith("--") and has_value and not value):
            subject = name if name.startswith("--") else option
            raise UsageError(subject, "not be empty", "''", "Give a value, or leave it out.")
        option = argument if argument.startswith("-") else "an argument"


def _options() -> dict[str, str]:
    """The options of the command that runs, by the parameters that they set."""
    command, _ = find_command(sys.argv[1:])
    return {option.name: option.names[0] for option in command.options}


def _exit_code(error: BaseException) -> int:
    if isinstance(error, BrokenPipeError):
        # The reader has seen enough, as in `calibrank inspect map.json | head`: no message.
        sys.stdout = io.StringIO()
        return CLOSED_PIPE
    try:
        return report_failure(error, _options())
    finally:
        _drop_unwritable_output()


def _drop_unwritable_output() -> None:
    """Forget text that cannot be written: the interpreter would try again and print an error."""
    try:
        sys.stdout.flush()
    except OSError:
        sys.stdout = io.StringIO()


def _degrade_output() -> None:
    """Let characters that a terminal's encoding lacks be printed as escapes, not be an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _print_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print_line("33", str(message))
