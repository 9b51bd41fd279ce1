"""What commands share: consoles, checks of options and outputs, and progress bars."""

import json
import math
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any, TypeAlias

from rich.console import Console
from rich.errors import MarkupError
from rich.markup import escape
from rich.table import Table as RichTable
from rich.text import Text

from calibrank._internal.arguments import path_of
from calibrank.cli.failures import UsageError, printable
from calibrank.cli.parse import Given
from calibrank.errors import DataError
from calibrank.tabular.read import Progress as OnProgress
from calibrank.tabular.read import Table
from calibrank.tabular.rules import Rules

SECONDS_PER_LINE = 30
"""How often progress is printed where there is no terminal."""

# What is drawn with characters that ASCII lacks.
_ASCII = str.maketrans({"█": "#", "·": ".", "┃": "|"})


class SafeConsole(Console):
    """A console that no text can control: escape sequences are shown, broken markup is plain."""

    def render_str(self, text: str, **settings: Any) -> Text:
        """Every string that is printed comes through here, also the cells of tables."""
        text = printable(text)
        if not self.encoding.startswith("utf"):
            text = text.translate(_ASCII)
        try:
            return super().render_str(text, **settings)
        except MarkupError:
            return Text(text, style=settings.get("style", ""))


Advance: TypeAlias = Callable[..., None]
"""Called with the number of steps done since the last call, and what is being done now."""

# Results go to stdout and everything else to stderr, so that results can be piped.
screen = SafeConsole(emoji=False, highlight=False)
log = SafeConsole(stderr=True, emoji=False, highlight=False)
show = screen.print


def shown(value: object) -> str:
    """A name or a path from outside, so that rich prints it as it is, without its markup."""
    return escape(str(value))


def say(message: object, style: str = "") -> None:
    """Print a sentence beside the results, on standard error: --json stays one JSON object."""
    log.print(shown(message), style=style, soft_wrap=True)


def warn(message: object) -> None:
    """Print a warning beside the results."""
    say(message, "yellow")


def state(text: str) -> None:
    """Print a sentence of the results, which may have markup."""
    screen.print(text, soft_wrap=True)


def say_saved(out: Path, what: str = "Saved:") -> None:
    """Print where a result was written."""
    state(f"[bold]{what}[/] {shown(out)}")


def command_line() -> str:
    """The command that runs, as it is typed."""
    return shlex.join(["calibrank", *sys.argv[1:]])


def table(*headings: str, title: str | None = None, **settings: Any) -> RichTable:
    """A table whose columns after the first are numbers."""
    made = RichTable(title=title, title_justify="left", **settings)
    for place, heading in enumerate(headings):
        made.add_column(heading, justify="right" if place else "left")
    return made


def rules_for(given: Given) -> Rules:
    """The checks that every row must pass, as --on-bad-rows asks for."""
    is_skipped = given.on_bad_rows == "skip"
    return Rules(skip=is_skipped, only_missing_labels=is_skipped)


def require_output(out: Path, *inputs: str | Path | None) -> None:
    """Check, before any work is done, that an output can be written and overwrites no input."""
    path_of("the output", out)
    if out.is_dir():
        raise DataError(out, "be a file to write", "a folder", "Name a file in it.")
    existing = [parent for parent in out.parents if parent.exists()]
    if existing and not existing[0].is_dir():
        raise DataError(out, "be in a folder", f"{existing[0]}, which is a file")
    if existing and not os.access(existing[0], os.W_OK):
        raise DataError(out, "be in a folder to write to", "one without permission")
    require_other_file(out, *inputs)


def require_different_outputs(out: Path | None, option: str, other: Path | None) -> None:
    """Check that no output overwrites another one of the same command."""
    if out is not None and other is not None and out.resolve() == other.resolve():
        got = f"{str(out)!r} for both"
        raise UsageError(f"--out and {option}", "be different files", got)


def require_folder(out: Path) -> None:
    """Check, before any work is done, that an output can be a folder."""
    existing = [path for path in (out, *out.parents) if path.exists()]
    if existing and not existing[0].is_dir():
        raise DataError(out, "be a folder", f"{existing[0]}, which is a file")


def require_other_file(out: Path, *inputs: str | Path | None) -> None:
    """Check that an output is none of the inputs, under any name."""
    if not out.is_file():
        return  # a device is no input, and nothing is overwritten where there is no file
    for given in inputs:
        if given is not None and Path(given).exists() and out.samefile(given):
            raise DataError(
                out,
                f"not be the input {given}: it would be overwritten",
                remedy="Name another output.",
            )


@contextmanager
def reading(table: Table, description: str, rules: Rules | None = None) -> Iterator[OnProgress]:
    """A progress bar over the bytes of a table's files, and then how many rows were skipped."""
    with progress_bar(description, table.size, in_bytes=True) as progress:
        yield progress
    if rules is not None:
        report_skipped(rules)


def report_skipped(rules: Rules) -> None:
    """Print how many rows were skipped, by the column whose value is invalid."""
    for role, count in rules.skipped.items():
        warn(f"skipped {count:,} rows with an invalid {role}")


@contextmanager
def progress_bar(description: str, total: int, *, in_bytes: bool = False) -> Iterator[Advance]:
    """A progress bar over so many steps; without a terminal, a line now and then."""
    if not log.is_terminal:
        # In log files a progress bar would be thousands of lines.
        yield _Lines(description, total)
        return
    from rich.progress import (  # noqa: PLC0415  (slow to load)
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn() if in_bytes else MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=log, transient=True) as progress:
        task = progress.add_task(description, total=total)

        def advance(done: int, what: str = description) -> None:
            progress.update(task, advance=done, description=shown(what))

        yield advance


class _Lines:
    """Progress in log files: a line every half minute."""

    def __init__(self, description: str, total: int) -> None:
        self.description = description
        self.total = total
        self.done = 0
        self.last = monotonic()

    def __call__(self, done: int, what: str = "") -> None:
        self.description = what or self.description
        self.done += done
        if monotonic() - self.last >= SECONDS_PER_LINE:
            self.last = monotonic()
            say(f"{self.description}: {self.done / max(self.total, 1):.0%}")


def report_written(given: Given, table: Table, rules: Rules, rows: int, up_to_date: int) -> None:
    """Print what a command wrote that adds a column to a table."""
    files = len(table.files)
    about = {"out": str(given.out), "rows": rows, "files": files}
    answer({**about, "already_done": up_to_date, "skipped": rules.skipped})
    if up_to_date == files:
        say_saved(given.out, "Already up to date:")
        return
    kept = f"; {up_to_date} of {files} files were already up to date" if up_to_date else ""
    text = f"{shown(given.out)}: {rows:,} rows with the new column '{shown(given.to)}'{kept}"
    show(f"[bold]Wrote[/] {text}")


def answer(content: Mapping[str, Any]) -> None:
    """Print one JSON object if --json was given, which silences the screen.

    NaN and infinities become null.
    """
    if screen.quiet:
        text = json.dumps(_json_ready(content), indent=1, allow_nan=False)
        print(text)  # noqa: T201  (rich would wrap long lines)


def _json_ready(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _json_ready(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_json_ready(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no NaN, and many parsers refuse Python's
    return value
