"""List the figures of the documentation, each with its command and the commit that last wrote it.

    python tools/figures.py [PAGE ...]

Figures are the rows of tables that hold numbers. Their command is the one in the last cell of the
row, or the nearest one above in the section, or else the first one below. The commit is the newest
of these lines (`git blame`): it says when the figures were last written, not that they would come
out the same today.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
NO_COMMAND = "(no command)"
_COMMAND = re.compile(r"(?:^|`)((?:python (?:-m )?benchmarks|calibrank [a-z]|make [a-z])[^`]*)")
_NUMBER = re.compile(r"(?<![\w.])\.?\d")
_BLAMED = re.compile(r"\^?([0-9a-f]+) .*?(\d{4}-\d\d-\d\d \d\d:\d\d)")


class Figures(NamedTuple):
    """Rows of numbers that one command makes."""

    line: int
    """The first of them."""
    command: str
    rows: int
    written: str
    """Date and commit of the newest row."""


def figures_of(lines: list[str], commits: list[str]) -> list[Figures]:
    """The figures of a page, by command, given the date and commit of each line."""
    found: dict[str, Figures] = {}
    current = NO_COMMAND
    for place, line in enumerate(lines):
        if line.startswith("#"):
            current = _first_command(lines[place + 1 :])
        elif not line.startswith("|"):
            current = _command(line) or current
        elif _NUMBER.search(re.sub("`[^`]*`", "", line)):
            command = _command(line.rstrip(" |").rpartition("|")[2]) or current
            figures = found.get(command, Figures(place + 1, command, 0, ""))
            written = max(figures.written, commits[place])
            found[command] = figures._replace(rows=figures.rows + 1, written=written)
    return list(found.values())


def commits_of(page: Path) -> list[str]:
    """Date and commit of each line of a page."""
    command = ["git", "blame", "--date=iso", str(page)]
    run = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    blamed = [_BLAMED.match(line) for line in run.stdout.splitlines()]
    return [f"{match[2]} {match[1]}" if match else "" for match in blamed]


def _command(text: str) -> str:
    match = _COMMAND.search(text)
    return match[1].strip() if match else ""


def _first_command(below: list[str]) -> str:
    """The first command of a section, outside its tables."""
    for line in below:
        if line.startswith("#"):
            break
        if not line.startswith("|") and _command(line):
            return _command(line)
    return NO_COMMAND


def main(names: list[str]) -> None:
    """Print the figures of these pages, by default of all."""
    pages = [Path(name).resolve() for name in names] or sorted((ROOT / "docs").glob("*.md"))
    for page in pages:
        lines = page.read_text(encoding="utf-8").splitlines()
        for each in figures_of(lines, commits_of(page)):
            where = f"{page.name}:{each.line}"
            print(f"{where:22}{each.rows:4} rows  {each.written:30}{each.command}")


if __name__ == "__main__":
    main(sys.argv[1:])
