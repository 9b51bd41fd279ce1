"""Runs the command line in a process of its own."""

import os
import subprocess
import sys


def run(*arguments: object) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command; warnings are errors."""
    command = [sys.executable, "-W", "error", "-m", "calibrank", *map(str, arguments)]
    environment = {**os.environ, "COLUMNS": "150"}
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    return result.returncode, result.stdout, result.stderr


def one_line(text: str) -> str:
    """Text as if the terminal were endless: without line breaks and borders of boxes."""
    return " ".join(text.replace("│", " ").split())
