"""What commands share: consoles, checks of options and outputs, and progress bars."""

import json
import math
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Any, TypeAlias

from rich.console import Console
from rich.errors import MarkupError
from rich.markup import escape
from rich.table import Table as RichTable
from rich.text import Text

from calibrank._internal.arguments import path_of
from calibrank.cli.failures import printable
from calibrank.cli.parse import Given
from calibrank.errors import DataError
from calibrank.tabular.files import Progress as OnProgress
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


# What is being done now, such as "Reading: 40%"; empty between two steps that can be counted.
_now_doing: list[str] = []

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


def print_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[object]],
    title: str | None = None,
    *,
    numbers: bool = False,
    **settings: Any,
) -> None:
    """Print rows as a table; with `numbers`, all columns but the first are aligned to the right.

    Cells may come from outside: only a `Text` has a style.
    """
    made = RichTable(title=title and shown(title), title_justify="left", **settings)
    for place, heading in enumerate(headings):
        made.add_column(shown(heading), justify="right" if numbers and place else "left")
    for row in rows:
        made.add_row(*[cell if isinstance(cell, Text) else shown(cell) for cell in row])
    screen.print(made)


def rules_for(given: Given) -> Rules:
    """The checks that every row must pass, as --on-bad-rows asks for."""
    is_skipped = given.on_bad_rows == "skip"
    return Rules(skip=is_skipped, only_missing_labels=is_skipped)


def require_output(out: Path, *inputs: str | Path | None, is_folder: bool | None = False) -> None:
    """Check, before any work is done, that an output can be written and overwrites no input.

    `is_folder` is None where the output is a folder for a folder, and a file for a file.
    """
    path_of("the output", out)
    if is_folder is False and out.is_dir():
        raise DataError(out, "be a file to write", "a folder", "Name a file in it.")
    existing = next((each for each in (out, *out.parents)[not is_folder :] if each.exists()), None)
    if existing is not None and not existing.is_dir():
        rule = "be a folder" if is_folder else "be in a folder"
        raise DataError(out, rule, f"{existing}, which is a file")
    if existing is not None and not os.access(existing, os.W_OK):
        raise DataError(out, "be in a folder to write to", "one without permission")
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
    with progress_bar(description, table.size) as progress:
        yield progress
    if rules is not None:
        report_skipped(rules)


def report_skipped(rules: Rules) -> None:
    """Print how many rows were skipped, by the column whose value is invalid."""
    for role, count in rules.skipped.items():
        warn(f"skipped {count:,} rows with an invalid {role}")


@contextmanager
def progress_bar(description: str, total: int) -> Iterator[Advance]:
    """A progress bar over so many steps; without a terminal, `progress_lines` prints it."""
    if log.is_terminal:
        from rich.progress import Progress  # noqa: PLC0415  (slow to load)

        with Progress(console=log, transient=True) as progress:
            task = progress.add_task(description, total=total)

            def move(done: int, what: str = description) -> None:
                progress.update(task, advance=done, description=shown(what))

            yield move
        return
    sum_done = 0

    def state_done(done: int, what: str = description) -> None:
        nonlocal sum_done
        sum_done += done
        _now_doing[:] = [f"{what}: {sum_done / max(total, 1):.0%}"]

    state_done(0)
    try:
        yield state_done
    finally:
        _now_doing.clear()


@contextmanager
def progress_lines(command: str) -> Iterator[None]:
    """Print now and then what is being done, where there is no terminal: also while fitting."""
    if log.is_terminal:
        yield
        return
    begun, ended = monotonic(), Event()

    def print_lines() -> None:
        # In log files a progress bar would be thousands of lines.
        while not ended.wait(SECONDS_PER_LINE):
            seconds = monotonic() - begun
            say(" ".join([f"{command}: {seconds:,.0f} seconds so far.", *_now_doing]))

    printing = Thread(target=print_lines, daemon=True)
    printing.start()
    try:
        yield
    finally:
        ended.set()
        printing.join()


def answer(content: Mapping[str, Any]) -> None:
    """Print one JSON object if --json was given, which silences the screen.

    Named tuples and data classes become objects, NaN and infinities null.
    """
    if screen.quiet:
        text = json.dumps(_json_ready(content), indent=1, allow_nan=False)
        print(text)  # noqa: T201  (rich would wrap long lines)


def _json_ready(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {key: _json_ready(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_json_ready(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no NaN, and many parsers refuse Python's
    return value
