"""`calibrank monitor`."""

import datetime as dt
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from calibrank._internal.arguments import date_of
from calibrank.cli import console, options
from calibrank.cli.declared import choose_weight, find_user
from calibrank.cli.failures import UsageError
from calibrank.curves import Calibrator
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
from calibrank.monitor.check import LONGEST_WINDOW, WINDOW
from calibrank.monitor.table_day import DayColumns, day_of_table
from calibrank.registry import CALIBRATORS, find
from calibrank.report.html_report import monitor_report
from calibrank.tabular.read import Table

ALARM_EXIT_CODE = 7

StoreArgument = Annotated[
    str,
    typer.Argument(metavar="STORE", help="Folder of days, or an address such as s3://bucket/days."),
]
MapOption = Annotated[
    Path, typer.Option("--map", help=f"{options.MAP_HELP} The one that is deployed.")
]
AddOption = Annotated[
    str | None,
    typer.Option(
        help="Table of one day (Parquet or CSV) to add first. Rows without a label count for the "
        "scores."
    ),
]
DateOption = Annotated[
    str | None, typer.Option(help="With --add: the date of all its rows, such as 2026-01-31.")
]
OutOption = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="Where to write an HTML page with the time series."),
]
RefitOption = Annotated[
    Path | None,
    typer.Option("--refit", help="Where to save a new map, fitted to the labels of the window."),
]
RefitMethodOption = Annotated[
    str | None,
    options.choice("With --refit: the method. Default: that of the old map.", CALIBRATORS),
]
WindowOption = Annotated[
    int | None,
    typer.Option(
        help=f"Days that estimates, score drift and the refit look back. Default: {WINDOW}.",
        min=1,
        max=LONGEST_WINDOW,
    ),
]
HalfLifeOption = Annotated[
    float | None,
    typer.Option(
        help="With --refit: days after which a label counts half. All days, unless --window is "
        "given."
    ),
]
FailOnAlarmOption = Annotated[
    bool,
    typer.Option(
        "--fail-on-alarm", help=f"Exit with code {ALARM_EXIT_CODE} if calibration has changed."
    ),
]


def monitor(
    store: StoreArgument,
    map_file: MapOption,
    add: AddOption = None,
    date: DateOption = None,
    out: OutOption = None,
    refit_to: RefitOption = None,
    method: RefitMethodOption = None,
    window: WindowOption = None,
    half_life: HalfLifeOption = None,
    score: options.Score = None,
    label: options.Label = None,
    user: options.User = None,
    weight: options.Weight = None,
    on_bad_rows: options.BadRows = options.OnBadRows.error,
    fail_on_alarm: FailOnAlarmOption = False,
    json: options.Json = False,
) -> None:
    """Check whether a deployed map is still right, on a store of daily summaries.

    --add sums up one day's table into the store. The check may be run every day: in a year
    without change the probability of an alarm is at most 5%. --refit fits a new map to recent
    labels.

    Example: calibrank monitor days --map map.json --add today.parquet --date 2026-01-31
    """
    _require_pairs(add, date, refit_to, method, half_life)
    columns = {"--score": score, "--label": label, "--user": user, "--weight": weight}
    _require_table(add, columns, on_bad_rows)
    console.require_different_outputs({"--out": out, "--refit": refit_to})
    for output in (out, refit_to):
        if output is not None:
            _require_outside(output, store, add, map_file)
    calibrator = _calibrator(method)
    fitted = _deployed(map_file, refit_to, calibrator)
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
        recent = _recent(found, window, half_life)
        with _noting(new, "was not added to the store. To add it, leave out --refit."):
            refitted = refit(fitted, recent, calibrator)
        about["refit"] = {"out": str(refit_to), "labels": recent.labels}
    if new is not None:
        days.add(new)
    with _noting(new, "was added to the store. To repeat the rest, leave out --add and --date."):
        if out is not None:
            _write_page(status, store, out)
            about["out"] = str(out)
        if refit_to is not None and refitted is not None:
            refitted.save(refit_to)
    if json:
        console.print_json(about)
    else:
        _print_status(status, about)
    if fail_on_alarm and status.alarm:
        raise typer.Exit(ALARM_EXIT_CODE)


def _deployed(
    map_file: Path, refit_to: Path | None, calibrator: Calibrator | None
) -> CalibrationMap:
    """The map; one that is to be refitted and cannot be is refused before any table is read."""
    fitted = load(map_file)
    if refit_to is not None:
        require_refittable(fitted, calibrator)
    return fitted


def _require_pairs(
    add: str | None,
    date: str | None,
    refit_to: Path | None,
    method: str | None,
    half_life: float | None,
) -> None:
    """Refuse options without the ones that they belong to."""
    if (add is None) != (date is None):
        raise UsageError("--add", "go with --date, the date of its rows")
    if refit_to is None and (method is not None or half_life is not None):
        raise UsageError("--method and --half-life", "go with --refit")


def _require_table(
    add: str | None, columns: dict[str, str | None], bad_rows: options.OnBadRows
) -> None:
    """Refuse options about a table where there is none."""
    if add is None:
        skip = None if bad_rows is options.OnBadRows.error else bad_rows
        console.require_unused("without --add", {**columns, "--on-bad-rows": skip})


def _write_page(status: Status, store: str, out: Path) -> None:
    command = shlex.join(["calibrank", *sys.argv[1:]])
    monitor_report(status.to_dict(), store, command).save(out)


def _require_past(date: str) -> None:
    """Refuse a mistyped date: all others would lie before the window that ends on it."""
    tomorrow = dt.datetime.now(dt.UTC).date() + dt.timedelta(days=1)
    if date_of("date", date) > tomorrow.isoformat():
        raise UsageError(
            "--date",
            f"not be later than tomorrow (UTC), {tomorrow}",
            got=date,
            remedy="Check the year.",
        )


@contextmanager
def _noting(new: Day | None, outcome: str) -> Iterator[None]:
    """If a step fails, print what became of the day that was to be added."""
    try:
        yield
    except (CalibrankError, OSError):
        if new is not None:
            message = f"The day {new.date} {outcome}"
            console.log.print(message, style="yellow", highlight=False, soft_wrap=True)
        raise


def _require_outside(output: Path, store: str, add: str | None, map_file: Path) -> None:
    """Check that an output overwrites no input and lies outside the store."""
    console.require_output(output, add, map_file, *Path(store).glob("*"))
    if output.resolve().is_relative_to(Path(store).resolve()):
        raise UsageError(
            "outputs",
            "lie outside the store of days",
            got=f"{str(output)!r}",
            remedy="Name a file in another folder.",
        )


def _columns(
    source: Table, score: str | None, label: str | None, user: str | None, weight: str | None
) -> DayColumns:
    """The columns of a day's table; one without a label column has only scores."""
    name = source.resolve("label", label) if label else source.has("label")
    return DayColumns(
        score=source.resolve("score", score),
        label=name,
        weight=choose_weight(source, weight),
        user=find_user(source, user),
    )


def _day(
    source: Table,
    columns: DayColumns,
    fitted: CalibrationMap,
    date: str,
    on_bad_rows: options.OnBadRows,
) -> Day:
    rules = console.rules_for(on_bad_rows)
    with console.progress_bar(source, "Reading") as progress:
        day = day_of_table(source, fitted, columns, rules, date, progress)
    console.report_skipped(rules)
    if columns.label is not None and day.labels < day.rows:
        console.log.print(
            f"{day.rows - day.labels:,} of {day.rows:,} rows have no label: they count for the "
            "scores only.",
            style="yellow",
            highlight=False,
        )
    return day


def _calibrator(method: str | None) -> Calibrator | None:
    return None if method is None else find("method", CALIBRATORS, method)


def _recent(found: list[Day], window: int | None, half_life: float | None) -> Day:
    length = WINDOW if window is None and half_life is None else window
    return window_of(found, length, half_life)


def _print_status(status: Status, about: dict[str, Any]) -> None:
    color = "yellow" if status.alarm else "green"
    console.screen.print(
        f"[{color}]{console.shown(status.headline)}[/]", highlight=False, soft_wrap=True
    )
    if status.change is not None:
        console.screen.print(
            f"Since {status.change.date}: level "
            f"{_interval(status.change.level)}, slope {_interval(status.change.slope)}.",
            highlight=False,
            soft_wrap=True,
        )
    last = status.days[-1]
    if last.level is not None and last.slope is not None:
        console.screen.print(
            f"Last {status.window} days: level {_interval(last.level)} (0 is ideal), "
            f"slope {_interval(last.slope)} (1 is ideal).",
            highlight=False,
        )
    if last.drift is not None:
        moved = "The scores have moved" if last.drift.matters else "The scores have not moved"
        console.screen.print(
            f"{moved}: distance {last.drift.distance:.3f} (by chance up to "
            f"{last.drift.noise:.3f}), mean probability {100 * last.drift.effect:+.2f} points "
            f"(standard error {100 * last.drift.effect_error:.2f}).",
            highlight=False,
        )
    for name, what in (("out", "Page"), ("refit", "New map")):
        if name in about:
            path = about[name] if name == "out" else about[name]["out"]
            console.screen.print(f"[bold]{what}:[/] {console.shown(path)}")


def _interval(estimate: Any) -> str:
    return f"{estimate.value:.2f} ({estimate.low:.2f} to {estimate.high:.2f})"
