"""List the figures of the documentation, each with its command and the commit that last wrote it.

    python tools/figures.py [PAGE ...]

On the page of measurements, figures are the rows of tables that hold numbers. Their command is the
one in the last cell of the row, or the nearest one above in the section, or else the first one
below. On other pages, figures are lines with a number that looks measured: one with a unit, a
number of times, an odd percentage, or three decimals. Their paragraph must name its command, or
link to the measurements. The commit is the newest of these lines (`git blame`): it says when the
figures were last written, not that they would come out the same today.
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
_UNIT = r"(?:[nmu]?s|seconds?|minutes?|hours?|[kMGT]B|times)\b"
# Not 30%, 95% or 1%: these are levels, examples and limits.
_ODD = r"(?:\d*\.\d+|\d*[2-46-9]|\d+1)"
_MEASURED = re.compile(rf"(?<![\w.])(?:[\d.,]*\d {_UNIT}|{_ODD}%|\d*\.\d{{3}})|±")
_NOT_PROSE = re.compile(r"`[^`]*`|\]\([^)]*\)|\"[^\"]*\"")
_LINK = re.compile(r"measurements\.md(?:#[\w-]+)?")
_BLAMED = re.compile(r"\^?([0-9a-f]+) .*?(\d{4}-\d\d-\d\d \d\d:\d\d)")


class Figures(NamedTuple):
    """Rows of numbers, or lines of text, that one command makes."""

    line: int
    """The first of them."""
    command: str
    rows: int
    written: str
    """Date and commit of the newest row."""


def figures_of(lines: list[str], commits: list[str]) -> list[Figures]:
    """The figures of the page of measurements, given the date and commit of each line."""
    found: dict[str, Figures] = {}
    current = NO_COMMAND
    for place, line in enumerate(lines):
        if line.startswith("#"):
            current = _first_command(lines[place + 1 :])
        elif not line.startswith("|"):
            current = _command(line) or current
        elif _NUMBER.search(re.sub("`[^`]*`", "", line)):
            command = _command(line.rstrip(" |").rpartition("|")[2]) or current
            _count(found, command, place, commits)
    return list(found.values())


def figures_in_text(lines: list[str], commits: list[str]) -> list[Figures]:
    """The figures of any other page, by the command or the link of their paragraphs."""
    found: dict[str, Figures] = {}
    in_code = False
    for place, line in enumerate(lines):
        in_code ^= line.lstrip().startswith("```")
        if not in_code and _MEASURED.search(_NOT_PROSE.sub("", line)):
            paragraph = line if line.startswith("|") else _paragraph(lines, place)
            link = _LINK.search(paragraph)
            source = _command(paragraph) or (link[0] if link else NO_COMMAND)
            _count(found, source, place, commits)
    return list(found.values())


def _paragraph(lines: list[str], place: int) -> str:
    """The lines around this one, up to empty ones."""
    first, last = place, place
    while first > 0 and lines[first - 1].strip():
        first -= 1
    while last < len(lines) and lines[last].strip():
        last += 1
    return " ".join(lines[first:last])


def _count(found: dict[str, Figures], command: str, place: int, commits: list[str]) -> None:
    """One more line of figures from a command."""
    figures = found.get(command, Figures(place + 1, command, 0, ""))
    written = max(figures.written, commits[place])
    found[command] = figures._replace(rows=figures.rows + 1, written=written)


def pages() -> list[Path]:
    """The pages that are read as of today; the changelog's figures are history."""
    top = [page for page in sorted(ROOT.glob("*.md")) if page.name != "CHANGELOG.md"]
    # Numbers of the page about the paper are the paper's.
    return top + [page for page in sorted((ROOT / "docs").rglob("*.md")) if page.name != "paper.md"]


def figures_on(page: Path, commits: list[str]) -> list[Figures]:
    """The figures of a page, by where they come from."""
    lines = page.read_text(encoding="utf-8").splitlines()
    is_measurements = page.name == "measurements.md"
    return (figures_of if is_measurements else figures_in_text)(lines, commits)


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
    for page in [Path(name).resolve() for name in names] or pages():
        for each in figures_on(page, commits_of(page)):
            where = f"{page.name}:{each.line}"
            print(f"{where:22}{each.rows:4} lines  {each.written:30}{each.command}")


if __name__ == "__main__":
    main(sys.argv[1:])
