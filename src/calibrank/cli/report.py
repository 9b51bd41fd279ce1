"""`calibrank report`."""

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from calibrank.cli.columns import choose_columns, segment_columns
from calibrank.cli.console import (
    UsageError,
    console,
    log,
    print_json,
    progress_bar,
    report_skipped,
    require_effect,
    require_only,
    require_output,
    rules_for,
    shown,
)
from calibrank.cli.declared import choose_label
from calibrank.cli.options import (
    BadRowsOption,
    ItemOption,
    JsonOption,
    LabelOption,
    LogKind,
    LogOption,
    OnBadRows,
    OptionalLossOption,
    PositiveOption,
    PropensityOption,
    ScoreOption,
    SegmentOption,
    UserOption,
    WeightOption,
    as_typed,
)
from calibrank.cli.recorded import Weighting, choose_weighting
from calibrank.errors import DataError
from calibrank.maps import load
from calibrank.report.html_report import Report, report_on_rows, results_report
from calibrank.report.provenance import fingerprint_files
from calibrank.report.read_table import read_report_rows
from calibrank.tabular.columns import Columns
from calibrank.tabular.read import Table

OptionalTableArgument = Annotated[
    str | None,
    typer.Argument(metavar="[TABLE]", help="Parquet or CSV file, folder, or quoted glob."),
]
OutOption = Annotated[
    Path,
    typer.Option("--out", "-o", help="Where to write the HTML page."),
]
MapOption = Annotated[
    Path | None,
    typer.Option(
        "--map", help="Map to evaluate; without one, Gaussian is fitted and cross-validated."
    ),
]
ResultsOption = Annotated[
    Path | None,
    typer.Option(help="Instead of a table: a folder of results of calibrank reproduce."),
]


def report(
    context: typer.Context,
    table: OptionalTableArgument = None,
    out: OutOption = Path("report.html"),
    map_file: MapOption = None,
    score: ScoreOption = None,
    label: LabelOption = None,
    positive: PositiveOption = None,
    user: UserOption = None,
    item: ItemOption = None,
    propensity: PropensityOption = None,
    weight: WeightOption = None,
    segment: SegmentOption = None,
    log_kind: LogOption = None,
    loss: OptionalLossOption = None,
    on_bad_rows: BadRowsOption = OnBadRows.error,
    results: ResultsOption = None,
    json: JsonOption = False,
) -> None:
    """Write a self-contained, interactive HTML report on how well probabilities are calibrated.

    With --json, all numbers of the page are also printed.

    Example: calibrank report test.parquet --map map.json --user user_id -o report.html
    """
    if (table is None) == (results is None):
        raise UsageError("a report must be about a TABLE or about --results, got both or neither.")
    require_output(out, table, map_file)
    require_effect(loss, propensity)
    if table is None:
        require_only(context, "--results", ("results", "out", "json"))
        _save(_report_on_results(results or Path()), out, json=json)
        return
    source = Table.find(table)
    require_output(out, *source.files)
    rules = rules_for(on_bad_rows)
    declared = choose_label(source, label, positive)
    # Without --loss or --log, users and items only label the page.
    is_weighted = bool(loss or log_kind)
    weighting = choose_weighting(
        source,
        log_kind,
        loss,
        propensity,
        item if is_weighted else None,
        user if is_weighted else None,
        needs_weights=False,
    )
    # Users and items also label the page, so columns with a usual name are read in any case.
    user_column = user or source.has("user")
    item_column = item or source.has("item")
    columns = choose_columns(source, score, declared, weighting, item_column, weight, user_column)
    fitted = None if map_file is None else load(map_file)
    used = [] if fitted is None else [*fitted.segment_columns, *fitted.feature_columns]
    columns = replace(columns, others=segment_columns(source, [*(segment or []), *used]))
    with progress_bar(source, "Reading") as progress:
        rows = read_report_rows(source, columns, rules, progress)
    report_skipped(rules)
    with log.status("Fitting and evaluating every method ..."):
        fingerprint = fingerprint_files(source.files)
        options = _fit_options(columns, weighting, log_kind, positive, on_bad_rows)
        made = report_on_rows(rows, fitted, table, fingerprint, _command_line(), options)
    _save(made, out, json=json)
    if weighting.loss == "naive":
        _note_unweighted_labels()


def _fit_options(
    columns: Columns,
    weighting: Weighting,
    log_kind: LogKind | None,
    positive: str | None,
    on_bad_rows: OnBadRows,
) -> list[str]:
    """The options of `calibrank fit` that use the columns as this report does."""
    named = {"--score": columns.score, "--weight": columns.weight, "--positive": positive}
    if positive is None:
        named["--label"] = columns.label
    if log_kind is not None:
        named["--log"] = log_kind.value
    if log_kind is None or weighting.loss == "naive":
        named["--loss"] = as_typed(weighting.loss)
    named["--propensity"] = columns.propensity
    if columns.needs_popularity or columns.item in weighting.exposure:
        named["--item"] = columns.item
    # Folds, by which the method is chosen, are of whole users.
    named["--user"] = columns.user
    if on_bad_rows is OnBadRows.skip:
        named["--on-bad-rows"] = on_bad_rows.value
    options = []
    for option, value in named.items():
        if value is not None:
            options += [option, value]
    return options


def _note_unweighted_labels() -> None:
    log.print(
        "Labels were used as they are, which is correct if the pairs were shown at random. "
        "To weight labels of a biased log, use --loss ips.",
        style="dim",
        highlight=False,
    )


def _save(made: Report, out: Path, *, json: bool) -> None:
    made.save(out)
    if json:
        print_json({"out": str(out), "headline_text": made.headline, **made.data})
        return
    console.print(f"{shown(made.headline)}.", highlight=False)
    megabytes = out.stat().st_size / 1e6
    console.print(
        f"[bold]Report:[/] {shown(out)} ({megabytes:.2f} MB, one file, no network needed)"
    )


def _report_on_results(folder: Path) -> Report:
    from calibrank.experiment.overview import overview, read_rows  # noqa: PLC0415  (torch)
    from calibrank.experiment.published import Published  # noqa: PLC0415  (torch)
    from calibrank.experiment.spec import find_folder  # noqa: PLC0415  (torch)

    rows = read_rows(folder)
    try:
        file = find_folder("aaai22") / "published.csv"
    except DataError:
        # Without the repository there are no published numbers to compare with.
        found = overview(rows, lambda *_: None)
        return results_report(found, str(folder), "", _command_line())
    found = overview(rows, Published.load(file).find)
    return results_report(found, str(folder), "aaai22/published.csv", _command_line())


def _command_line() -> str:
    return shlex.join(["calibrank", *sys.argv[1:]])
