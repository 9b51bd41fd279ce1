"""The commands together, and what an error looks like."""

import sys
import warnings
from typing import Any

import typer
from rich.markup import escape

from calibrank.cli.apply import apply
from calibrank.cli.compare import compare
from calibrank.cli.console import log
from calibrank.cli.demonstrate import demo
from calibrank.cli.diagnose import diagnose
from calibrank.cli.evaluate import evaluate
from calibrank.cli.export import export
from calibrank.cli.fit import fit
from calibrank.cli.inspect import inspect
from calibrank.cli.report import report
from calibrank.cli.reproduce import reproduce
from calibrank.cli.score import score
from calibrank.cli.train import train
from calibrank.errors import CalibrankError, DataError, FitError, MissingExtra

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode="rich")
for command in (train, score, diagnose, fit, apply, evaluate, compare, inspect, report, export, reproduce, demo):
    app.command()(command)

_EXIT_CODES: tuple[tuple[type[CalibrankError], int], ...] = ((DataError, 3), (FitError, 4), (MissingExtra, 5))


@app.callback()
def calibrank() -> None:
    """Turn any ranking model's scores into preference probabilities you can trust.

    Exit codes: 0 done, 2 wrong usage, 3 bad data, 4 no fit exists, 5 something to install.
    """


def main() -> None:
    """Run the command line; an expected error is one clean line and its own exit code."""
    warnings.showwarning = _say
    try:
        app()
    except CalibrankError as error:
        log.print(f"[red]calibrank:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(next((code for kind, code in _EXIT_CODES if isinstance(error, kind)), 1))
    except OSError as error:
        log.print(f"[red]calibrank:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(3)


def _say(message: Warning | str, *_: Any, **__: Any) -> None:
    log.print(f"[yellow]calibrank:[/] {escape(str(message))}", highlight=False, soft_wrap=True)
