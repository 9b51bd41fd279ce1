"""Assembles the commands, and turns expected errors into one line and an exit code."""

import sys
import warnings
from collections.abc import Iterable
from importlib import import_module
from typing import Annotated, Any

import typer
from rich.markup import escape

from calibrank import __version__
from calibrank.cli.console import UsageError, log
from calibrank.errors import CalibrankError, DataError, FitError, MissingExtraError
from calibrank.registry import COMMANDS

# Scripts depend on these numbers; `calibrank --help` and docs/cli.md list them.
_EXIT_CODES: tuple[tuple[type[Exception], int], ...] = (
    (UsageError, 2),
    (DataError, 3),
    (FitError, 4),
    (MissingExtraError, 5),
    (OSError, 3),  # a file that cannot be read or written
)


def make_app(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The command line with the named commands; only their modules are imported."""
    app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode="rich")
    app.callback()(calibrank)
    for name in names:
        module = import_module(f"calibrank.cli.{name}")
        app.command()(getattr(module, name))
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
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the version and exit.",
        ),
    ] = False,
) -> None:
    """Turn any ranking model's scores into preference probabilities you can trust.

    Exit codes: 0 success, 2 wrong usage, 3 invalid data, 4 no fit exists, 5 a package is missing.
    """


def main() -> None:
    """Run the command line; an expected error is printed as one line, without a traceback."""
    warnings.showwarning = _print_warning
    # Importing the other commands would only delay the start.
    requested = [name for name in sys.argv[1:2] if name in COMMANDS]
    app = make_app(requested or COMMANDS)
    try:
        app(prog_name="calibrank")
    except (CalibrankError, OSError) as error:
        _print_line("red", str(error))
        sys.exit(_exit_code(error))


def _exit_code(error: Exception) -> int:
    for kind, code in _EXIT_CODES:
        if isinstance(error, kind):
            return code
    return 1  # a CalibrankError of a new kind, not listed above


def _print_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    _print_line("yellow", str(message))


def _print_line(colour: str, message: str) -> None:
    # Without soft_wrap rich would break the line, and with it file names and searches in logs.
    text = f"[{colour}]calibrank:[/] {escape(message)}"
    log.print(text, highlight=False, soft_wrap=True)
