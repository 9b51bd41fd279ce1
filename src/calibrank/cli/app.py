"""Assembles the commands, and turns every error into one line and an exit code."""

import io
import sys
import warnings
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.main import get_command

from calibrank import __version__
from calibrank._internal.commands import COMMANDS
from calibrank._internal.interrupt import INTERRUPTED, raise_on_interrupt
from calibrank.cli.failures import CLOSED_PIPE, UsageError, print_line, report_failure
from calibrank.cli.memory import adapt_to_limit


def make_app(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The command line with the named commands; only their modules are imported."""
    app = _empty_app()
    for name in names:
        module = import_module(f"calibrank.cli.{name}")
        function = getattr(module, name)
        parts = getattr(module, "COMMANDS", None)
        if parts is None:
            app.command()(function)
        else:
            group = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")
            group.callback()(function)
            for part, command in parts.items():
                group.command(part)(command)
            app.add_typer(group, name=name)
    return app


def _overview() -> typer.Typer:
    """The command line with first lines of help alone: importing all commands takes seconds."""
    app = _empty_app()
    for name, summary in COMMANDS.items():
        app.command(name, help=summary)(_nothing)
    return app


def _nothing() -> None:
    """Stands for a command that is only listed."""


def _empty_app() -> typer.Typer:
    app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode="rich")
    app.callback()(calibrank)
    return app


def _print_version(requested: bool) -> None:
    if requested:
        # This runs before the arguments are complete, so no command is needed.
        print(f"calibrank {__version__}")  # noqa: T201  (plain text for scripts)
        raise typer.Exit


def calibrank(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Turn any ranking model's scores into preference probabilities you can trust.

    Exit codes: 0 success, 1 a closed pipe, 2 wrong usage, 3 invalid data, 4 no fit exists,
    5 a package is missing, 6 out of memory, 7 an alarm, if asked for, 70 a bug, 130 interrupted.
    """


def main() -> None:
    """Run the command line; an error is printed as one line, without a traceback."""
    adapt_to_limit()
    _degrade_output()
    warnings.showwarning = _print_warning
    requested = [name for name in sys.argv[1:2] if name in COMMANDS]
    try:
        _require_values(sys.argv[1:])
        app = make_app(requested) if requested else _overview()
        raise_on_interrupt()  # from here on, files that are being written are removed
        # Not standalone: typer would print errors in its own way, and others as tracebacks.
        code = app(prog_name="calibrank", standalone_mode=False)
        # A full disk or a closed pipe shows only now.
        sys.stdout.flush()
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001  (no traceback reaches the user, ever)
        sys.exit(_exit_code(error))
    if code == INTERRUPTED:  # typer returns it, and prints nothing
        sys.exit(report_failure(KeyboardInterrupt()))
    sys.exit(code if isinstance(code, int) else 0)


def _require_values(arguments: list[str]) -> None:
    """Refuse empty values, as of `--label "$RULE"` where a variable is not set."""
    option = "an argument"
    for argument in arguments:
        name, has_value, value = argument.partition("=")
        if "\0" in argument:
            raise UsageError("an argument", "not hold a NUL character", got=f"{argument!r}")
        if argument == "" or (name.startswith("--") and has_value and not value):
            subject = name if name.startswith("--") else option
            raise UsageError(
                subject, "not be empty", got="''", remedy="Give a value, or leave it out."
            )
        option = argument if argument.startswith("-") else "an argument"


def _requested() -> Callable[..., None] | None:
    """The function of the command that runs, if it could be imported."""
    name, part = [*sys.argv[1:3], "", ""][:2]
    module = sys.modules.get(f"calibrank.cli.{name}")
    if module is None or name not in COMMANDS:
        return None
    found: Callable[..., None] | None = getattr(module, name, None)
    return getattr(module, "COMMANDS", {}).get(part, found)


def _options() -> dict[str, str]:
    """The options of the command that runs, by the parameters that they set."""
    command = _requested()
    if command is None:
        return {}
    app = typer.Typer()
    app.command()(command)
    return {str(each.name): each.opts[0] for each in get_command(app).params}


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
