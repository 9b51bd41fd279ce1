"""`calibrank report`."""

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from calibrank.cli import console, options
from calibrank.cli.declared import (
    Log,
    choose_columns,
    choose_label,
    choose_weighting,
    require_columns,
)
from calibrank.cli.failures import UsageError
from calibrank.errors import DataError
from calibrank.evidence import naive
from calibrank.maps import load
from calibrank.report.html_report import Report, report_on_rows, results_report
from calibrank.report.provenance import fingerprint_files
from calibrank.report.read_table import read_report_rows
from calibrank.tabular.read import Table

OptionalTableArgument = Annotated[
    str | None,
    typer.Argument(metavar="[TABLE]", help="Parquet or CSV file, folder, or quoted glob."),
]
OutOption = Annotated[Path, typer.Option("--out", "-o", help="Where to write the HTML page.")]
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
    score: options.Score = None,
    label: options.Label = None,
    user: options.User = None,
    item: options.Item = None,
    propensity: options.Propensity = None,
    weight: options.Weight = None,
    segment: options.Segment = None,
    log_kind: options.Log = None,
    on_bad_rows: options.BadRows = options.OnBadRows.error,
    results: ResultsOption = None,
    json: options.Json = False,
) -> None:
    """Write an interactive HTML page on how well probabilities are calibrated.

    The page is one file and needs no network. Without --log or --propensity, labels are used as
    they are, and users and items only name groups on the page. With --json, all numbers of the
    page are also printed.

    Example: calibrank report test.parquet --map map.json --user user_id -o report.html
    """
    if (table is None) == (results is None):
        raise UsageError("a report", "be about a TABLE or about --results", got="both or neither")
    console.require_output(out, table, map_file)
    # Without --log, users and items only label the page.
    ids = (None, None) if log_kind is None else (item, user)
    declared_log = Log(log_kind, propensity, *ids)
    if table is None:
        console.require_only(context, "--results", ("results", "out", "json"))
        _save(_report_on_results(results or Path()), out, json=json)
        return
    source = Table.find(table)
    console.require_output(out, *source.files)
    rules = console.rules_for(on_bad_rows)
    declared = choose_label(source, label)
    weighting = choose_weighting(source, declared_log, declared, needs_weights=False)
    # Users and items also label the page, so columns with a usual name are read in any case.
    user_column = user or source.has("user")
    item_column = item or source.has("item")
    columns = choose_columns(source, score, declared, weighting, weight, item_column, user_column)
    fitted = None if map_file is None else load(map_file)
    columns = replace(columns, others=require_columns(source, segment or [], "segment"))
    with console.progress_bar(source, "Reading") as progress:
        rows = read_report_rows(source, columns, rules, progress, fitted=fitted)
    console.report_skipped(rules)
    with console.log.status("Fitting and evaluating every method ..."):
        fingerprint = fingerprint_files(source.files)
        made = report_on_rows(rows, fitted, table, fingerprint, _command_line())
    _save(made, out, json=json)
    if weighting.evidence is naive:
        _note_unweighted_labels()


def _note_unweighted_labels() -> None:
    console.say(
        "Labels were used as they are, which is correct if the pairs were shown at random. "
        "To weight labels of a biased log, use --log interactions."
    )


def _save(made: Report, out: Path, *, json: bool) -> None:
    made.save(out)
    if json:
        console.print_json({"out": str(out), "headline_text": made.headline, **made.data})
        return
    console.screen.print(console.shown(made.headline), highlight=False)
    megabytes = out.stat().st_size / 1e6
    console.screen.print(
        f"[bold]Report:[/] {console.shown(out)} ({megabytes:.2f} MB, one file, no network needed)"
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
