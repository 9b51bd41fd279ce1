"""`calibrank monitor`."""

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from calibrank._internal.arguments import date_of
from calibrank.cli import console
from calibrank.cli.declared import choose_weight, find_user
from calibrank.cli.failures import UsageError
from calibrank.cli.parse import Given
from calibrank.errors import CalibrankError
from calibrank.maps import CalibrationMap, load
from calibrank.monitor import (
    Day,
    Status,
    Store,
    check,
    digest_of_map,
    refit,
    require_refittable,
    window_of,
)
from calibrank.monitor.check import WINDOW
from calibrank.monitor.table_day import day_of_table
from calibrank.registry import CALIBRATORS, find
from calibrank.report.html_report import monitor_report
from calibrank.tabular.read import Table

ALARM_EXIT_CODE = 7


def monitor(given: Given) -> int:
    """Check whether a deployed map is still right, on a store of daily summaries."""
    console.require_different_outputs(given.out, "--refit", given.refit_to)
    for output in filter(None, (given.out, given.refit_to)):
        _require_outside(output, given)
    calibrator = given.method and find("method", CALIBRATORS, given.method)
    fitted = load(given.map_file)
    if given.refit_to is not None:  # one that cannot be refitted is refused before a table is read
        require_refittable(fitted, calibrator)
    days = Store(given.store)
    new = None if given.add is None else _day(given, fitted)
    # All is computed before anything is written: a command that failed can be repeated.
    found = days.days(digest_of_map(fitted)) if new is None else days.with_day(new)
    status = check(fitted, found, window=given.window or WINDOW)
    about: dict[str, Any] = {"store": given.store, **status.to_dict()}
    refitted = None
    if given.refit_to is not None:
        recent = window_of(found, given.window or WINDOW)
        with _noting(new, "was not added to the store. To add it, leave out --refit."):
            refitted = refit(fitted, recent, calibrator)
        about["refit"] = {"out": str(given.refit_to), "labels": recent.labels}
    if new is not None:
        days.add(new)
    with _noting(new, "was added to the store. To repeat the rest, leave out --add and --date."):
        if given.out is not None:
            page = monitor_report(status.to_dict(), given.store, console.command_line())
            page.save(given.out)
            about["out"] = str(given.out)
        if refitted is not None:
            refitted.save(given.refit_to)
    console.answer(about)
    _print_status(status)
    for what, path in {"Page:": given.out, "New map:": given.refit_to}.items():
        if path is not None:
            console.say_saved(path, what)
    return ALARM_EXIT_CODE if given.fail_on_alarm and status.alarm else 0


def _require_past(date: str) -> None:
    """Refuse a mistyped date: all others would lie before the window that ends on it."""
    tomorrow = dt.datetime.now(dt.UTC).date() + dt.timedelta(days=1)
    if date_of("date", date) > tomorrow.isoformat():
        raise UsageError(
            "--date", f"not be later than tomorrow (UTC), {tomorrow}", date, "Check the year."
        )


@contextmanager
def _noting(new: Day | None, outcome: str) -> Iterator[None]:
    """If a step fails, print what became of the day that was to be added."""
    try:
        yield
    except (CalibrankError, OSError):
        if new is not None:
            console.warn(f"The day {new.date} {outcome}")
        raise


def _require_outside(output: Path, given: Given) -> None:
    """Check that an output overwrites no input and lies outside the store."""
    store = Path(given.store)
    console.require_output(output, given.add, given.map_file, *store.glob("*"))
    if output.resolve().is_relative_to(store.resolve()):
        got = f"{str(output)!r}"
        remedy = "Name a file in another folder."
        raise UsageError("outputs", "lie outside the store of days", got, remedy)


def _day(given: Given, fitted: CalibrationMap) -> Day:
    """The day of a table; one without a label column has only scores."""
    _require_past(given.date)
    table = Table.find(given.add)
    roles = {
        "score": table.resolve("score", given.score),
        "label": table.resolve("label", given.label) if given.label else table.has("label"),
        "weight": choose_weight(table, given.weight),
        "user": find_user(table, given.user),
    }
    columns = {role: name for role, name in roles.items() if name is not None}
    rules = console.rules_for(given)
    with console.reading(table, "Reading", rules) as progress:
        day = day_of_table(table, fitted, columns, rules, given.date, progress)
    if "label" in columns and day.labels < day.rows:
        missing = f"{day.rows - day.labels:,} of {day.rows:,} rows have no label"
        console.warn(f"{missing}: they count for the scores only.")
    return day


def _print_status(status: Status) -> None:
    color = "yellow" if status.alarm else "green"
    console.state(f"[{color}]{console.shown(status.headline)}[/]")
    if status.change is not None:
        console.state(
            f"Since {status.change.date}: level "
            f"{_interval(status.change.level)}, slope {_interval(status.change.slope)}."
        )
    last = status.days[-1]
    if last.level is not None and last.slope is not None:
        console.show(
            f"Last {status.window} days: level {_interval(last.level)} (0 is ideal), "
            f"slope {_interval(last.slope)} (1 is ideal)."
        )
    if last.drift is not None:
        moved = "The scores have moved" if last.drift.matters else "The scores have not moved"
        console.show(
            f"{moved}: distance {last.drift.distance:.3f} (by chance up to "
            f"{last.drift.noise:.3f}), mean probability {100 * last.drift.effect:+.2f} points "
            f"(standard error {100 * last.drift.effect_error:.2f})."
        )
    if status.moved is not None:
        console.warn(f"In the last {status.window} days {status.moved}")


def _interval(estimate: Any) -> str:
    return f"{estimate.value:.2f} ({estimate.low:.2f} to {estimate.high:.2f})"
