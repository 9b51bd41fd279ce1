"""The commands together, and what an error looks like."""

import sys
import warnings
from collections.abc import Iterable
from importlib import import_module
from typing import Any

import typer
from rich.markup import escape

from calibrank.cli.console import UsageError, log
from calibrank.errors import CalibrankError, DataError, FitError, MissingExtraError
from calibrank.registry import COMMANDS

_EXIT_CODES: tuple[tuple[type[CalibrankError], int], ...] = (
    (UsageError, 2),
    (DataError, 3),
    (FitError, 4),
    (MissingExtraError, 5),
)


def make_app(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The command line with some commands; only their modules are loaded."""
    app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode="rich")
    app.callback()(calibrank)
    for name in names:
        app.command()(getattr(import_module(f"calibrank.cli.{name}"), name))
    return app


def calibrank() -> None:
    """Turn any ranking model's scores into preference probabilities you can trust.

    Exit codes: 0 done, 2 wrong usage, 3 bad data, 4 no fit exists, 5 something to install.
    """


def main() -> None:
    """Run the command line; an expected error is one clean line and its own exit code."""
    warnings.showwarning = _say
    try:
        make_app([name for name in sys.argv[1:2] if name in COMMANDS] or COMMANDS)()
    except CalibrankError as error:
        log.print(f"[red]calibrank:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(next((code for kind, code in _EXIT_CODES if isinstance(error, kind)), 1))
    except OSError as error:
        log.print(f"[red]calibrank:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(3)


def _say(message: Warning | str, *_: Any, **__: Any) -> None:
    log.print(f"[yellow]calibrank:[/] {escape(str(message))}", highlight=False, soft_wrap=True)
