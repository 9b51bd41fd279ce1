"""Runs the command line, in this process or in one of its own."""

import os
import subprocess
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from unittest.mock import patch

from calibrank.errors import FlatMapWarning


def run(*arguments: object) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a process; warnings are errors."""
    command = [sys.executable, "-W", "error", "-m", "calibrank", *map(str, arguments)]
    environment = {**os.environ, "COLUMNS": "150"}
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    return result.returncode, result.stdout, result.stderr


def run_here(*arguments: object) -> tuple[int, str, str]:
    """Likewise in this process, which has loaded what a new one would have to load."""
    printed, errors = StringIO(), StringIO()
    with redirect_stdout(printed), redirect_stderr(errors):
        code = exit_code(*arguments)
    return code, printed.getvalue(), errors.getvalue()


def exit_code(*arguments: object) -> int:
    """Run a command in this process, with standard output and error as they are."""
    from calibrank.cli import app

    # The command line replaces `warnings.showwarning`; leaving the context restores it.
    argv = ["calibrank", *map(str, arguments)]
    with patch.object(sys, "argv", argv), warnings.catch_warnings():
        warnings.simplefilter("default", FlatMapWarning)
        try:
            app.main()
        except SystemExit as stop:
            return int(stop.code or 0)
    return 0


def one_line(text: str) -> str:
    """Text as if the terminal were endless: without line breaks and borders of boxes."""
    return " ".join(text.replace("│", " ").split())
