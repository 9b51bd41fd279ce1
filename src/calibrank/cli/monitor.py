"""`calibrank monitor`."""

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from calibrank._internal.arguments import date_of
from calibrank.cli import console, options
from calibrank.cli.declared import choose_weight, find_user
from calibrank.cli.failures import UsageError
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


def monitor(
    store: str,
    map_file: Path,
    add: str | None,
    date: str | None,
    out: Path | None,
    refit_to: Path | None,
    method: str | None,
    window: int | None,
    score: str | None,
    label: str | None,
    user: str | None,
    weight: str | None,
    on_bad_rows: options.OnBadRows,
    fail_on_alarm: bool,
    json: bool,
) -> int:
    """Check whether a deployed map is still right, on a store of daily summaries."""
    skip = None if on_bad_rows is options.OnBadRows.error else on_bad_rows
    about_table = {"--score": score, "--label": label, "--user": user, "--weight": weight}
    _require_added(add, date, {**about_table, "--on-bad-rows": skip})
    if refit_to is None and method is not None:
        raise UsageError("--method", "go with --refit")
    console.require_different_outputs({"--out": out, "--refit": refit_to})
    for output in filter(None, (out, refit_to)):
        _require_outside(output, store, add, map_file)
    calibrator = None if method is None else find("method", CALIBRATORS, method)
    fitted = load(map_file)
    if refit_to is not None:  # one that cannot be refitted is refused before a table is read
        require_refittable(fitted, calibrator)
    days = Store(store)
    new = None
    if add is not None and date is not None:
        _require_past(date)
        source = Table.find(add)
        named = _columns(source, score, label, user, weight)
        new = _day(source, named, fitted, date, on_bad_rows)
    # All is computed before anything is written: a command that failed can be repeated.
    found = days.days(digest_of_map(fitted)) if new is None else days.with_day(new)
    status = check(fitted, found, window=window or WINDOW)
    about: dict[str, Any] = {"store": store, **status.to_dict()}
    refitted = None
    if refit_to is not None:
        recent = window_of(found, window or WINDOW)
        with _noting(new, "was not added to the store. To add it, leave out --refit."):
            refitted = refit(fitted, recent, calibrator)
        about["refit"] = {"out": str(refit_to), "labels": recent.labels}
    if new is not None:
        days.add(new)
    with _noting(new, "was added to the store. To repeat the rest, leave out --add and --date."):
        if out is not None:
            monitor_report(status.to_dict(), store, console.command_line()).save(out)
            about["out"] = str(out)
        if refit_to is not None and refitted is not None:
            refitted.save(refit_to)
    if json:
        console.print_json(about)
    else:
        _print_status(status, about)
    return ALARM_EXIT_CODE if fail_on_alarm and status.alarm else 0


def _require_added(add: str | None, date: str | None, about_table: dict[str, str | None]) -> None:
    """Refuse options about a day's table where there is none."""
    if (add is None) != (date is None):
        raise UsageError("--add", "go with --date, the date of its rows")
    if add is None:
        console.require_unused("without --add", about_table)


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
            message = f"The day {new.date} {outcome}"
            console.log.print(message, style="yellow", soft_wrap=True)
        raise


def _require_outside(output: Path, store: str, add: str | None, map_file: Path) -> None:
    """Check that an output overwrites no input and lies outside the store."""
    console.require_output(output, add, map_file, *Path(store).glob("*"))
    if output.resolve().is_relative_to(Path(store).resolve()):
        raise UsageError(
            "outputs",
            "lie outside the store of days",
            f"{str(output)!r}",
            "Name a file in another folder.",
        )


def _columns(
    source: Table, score: str | None, label: str | None, user: str | None, weight: str | None
) -> dict[str, str]:
    """The columns of a day's table by role; one without a label column has only scores."""
    found = {
        "score": source.resolve("score", score),
        "label": source.resolve("label", label) if label else source.has("label"),
        "weight": choose_weight(source, weight),
        "user": find_user(source, user),
    }
    return {role: name for role, name in found.items() if name is not None}


def _day(
    source: Table,
    columns: dict[str, str],
    fitted: CalibrationMap,
    date: str,
    on_bad_rows: options.OnBadRows,
) -> Day:
    rules = console.rules_for(on_bad_rows)
    with console.progress_bar(source, "Reading") as progress:
        day = day_of_table(source, fitted, columns, rules, date, progress)
    console.report_skipped(rules)
    if "label" in columns and day.labels < day.rows:
        console.log.print(
            f"{day.rows - day.labels:,} of {day.rows:,} rows have no label: they count for the "
            "scores only.",
            style="yellow",
        )
    return day


def _print_status(status: Status, about: dict[str, Any]) -> None:
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
    for name, what in (("out", "Page"), ("refit", "New map")):
        if name in about:
            path = about[name] if name == "out" else about[name]["out"]
            console.show(f"[bold]{what}:[/] {console.shown(path)}")


def _interval(estimate: Any) -> str:
    return f"{estimate.value:.2f} ({estimate.low:.2f} to {estimate.high:.2f})"
