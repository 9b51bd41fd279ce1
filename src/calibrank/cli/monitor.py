"""`calibrank monitor`."""

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np

from calibrank._internal.arguments import date_of
from calibrank._internal.atomic import write_all_atomic
from calibrank.cli import console
from calibrank.cli.declared import Label, choose_label, choose_weight, find_user
from calibrank.cli.failures import UsageError
from calibrank.cli.parse import Given
from calibrank.maps import CalibrationMap, load
from calibrank.monitor import Day, Status, Store, check, refit, require_refittable, window_of
from calibrank.monitor.table_day import day_of_table
from calibrank.report.html_report import monitor_report
from calibrank.tabular.read import Table

ALARM_EXIT_CODE = 7
# Segments that are printed; --json has all.
_MOST_SEGMENTS = 12


def monitor(given: Given) -> int:
    """Check whether a deployed map is still right, on a store of daily summaries."""
    named = [each for each in (given.out, given.refit) if each is not None]
    if len({each.resolve() for each in named}) < len(named):
        raise UsageError("--out and --refit", "be different files", f"{str(given.out)!r} for both")
    for output in named:
        _require_outside(output, given)
    fitted = load(given.map)
    if given.refit is not None:  # one that cannot be refitted is refused before a table is read
        require_refittable(fitted)
    days = Store(given.store)
    new = None if given.add is None else _day(given, fitted)
    # All is computed before anything is written, and the day is added last: a command that failed
    # can be repeated.
    found = days.days(fitted.digest) if new is None else days.with_day(new)
    status = check(fitted, found, window=given.window)
    about: dict[str, Any] = {"store": given.store, **status.to_dict()}
    outputs: dict[Path, str | bytes] = {}
    if given.out is not None:
        page = monitor_report(status.to_dict(), given.store, console.command_line())
        outputs[given.out] = page.page
        about["out"] = str(given.out)
    if given.refit is not None:
        recent = window_of(found, given.window)
        outputs[given.refit] = refit(fitted, recent).to_json()
        about["refit"] = {"out": str(given.refit), "labels": recent.labels}
    write_all_atomic(outputs)
    if new is not None:
        days.add(new)
    console.answer(about)
    colour = "yellow" if status.alarm else "green"
    console.state(f"[{colour}]{console.shown(status.headline)}[/]")
    _print_segments(status)
    if status.moved is not None:
        console.warn(f"In the last {status.window} days {status.moved}")
    for path in outputs:
        console.say_saved(path)
    return ALARM_EXIT_CODE if given.fail_on_alarm and status.alarm else 0


def _print_segments(status: Status) -> None:
    """Print which segments are off now, where the headline is about the whole map."""
    off = [each for each in status.changes if each.segment is not None and each.until is None]
    if status.change is None or not off:
        return
    rows = []
    for each in off[:_MOST_SEGMENTS]:
        since = "the start" if each.from_start else each.date
        rates = [f"{rate:.2g}" for rate in (100 * np.array(each.rates)).tolist()]
        rows.append([" > ".join(each.segment or ()), *[f"{rate}%" for rate in rates], since])
    if len(off) > len(rows):
        rows.append([f"and {len(off) - len(rows):,} more", "", "", ""])
    console.print_table(("segment", "predicted", "observed", "since"), rows, numbers=True)


def _require_outside(output: Path, given: Given) -> None:
    """Check that an output overwrites no input and lies outside the store."""
    store = Path(given.store)
    console.require_output(output, given.add, given.map, *store.glob("*"))
    if output.resolve().is_relative_to(store.resolve()):
        got = f"{str(output)!r}"
        remedy = "Name a file in another folder."
        raise UsageError("outputs", "lie outside the store of days", got, remedy)


def _day(given: Given, fitted: CalibrationMap) -> Day:
    """The day of a table; one without a label column has only scores."""
    # A mistyped date: all others would lie before the window that ends on it.
    tomorrow = dt.datetime.now(dt.UTC).date() + dt.timedelta(days=1)
    if date_of("date", given.date) > tomorrow.isoformat():
        rule = f"not be later than tomorrow (UTC), {tomorrow}"
        raise UsageError("--date", rule, given.date, "Check the year.")
    table = Table.find(given.add)
    label = choose_label(table, given.label) if given.label else Label(table.has("label") or "")
    if label.rule is not None and not label.rule.is_binary:
        rule, remedy = "be 0 or 1 for each row", "Give a rule such as 'rating >= 4'."
        raise UsageError(f"--label '{label.rule}'", rule, remedy=remedy)
    roles = {
        "score": table.resolve("score", given.score),
        "label": label.column or None,
        "weight": choose_weight(table, given.weight),
        "user": find_user(table, given.user),
    }
    columns = {role: name for role, name in roles.items() if name is not None}
    rules = console.rules_for(given)
    with console.reading(table, "Reading", rules) as progress:
        day = day_of_table(table, fitted, columns, rules, given.date, progress, label.rule)
    if "label" in columns and day.labels < day.rows:
        missing = f"{day.rows - day.labels:,} of {day.rows:,} rows have no label"
        console.warn(f"{missing}: they count for the scores only.")
    return day
