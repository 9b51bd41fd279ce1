"""`calibrank report`."""

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from calibrank.cli.console import (
    BadRowsOption,
    LabelOption,
    Loss,
    OnBadRows,
    PropensityOption,
    ScoreOption,
    UsageError,
    UserOption,
    WeightOption,
    choose_columns,
    console,
    log,
    reading,
    require_output,
    say_skipped,
)
from calibrank.errors import DataError
from calibrank.evidence import naive
from calibrank.maps import load
from calibrank.report.html_report import Report, report_on_rows, results_report
from calibrank.report.provenance import fingerprint_files
from calibrank.report.read_table import read_report_rows
from calibrank.tabular.aggregate import Columns
from calibrank.tabular.read import Table
from calibrank.tabular.rules import Rules


def report(
    table: Annotated[
        str | None,
        typer.Argument(metavar="[TABLE]", help="Parquet or CSV file, folder, or glob in quotes."),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Where to write the page (HTML).")
    ] = Path("report.html"),
    map_file: Annotated[
        Path | None,
        typer.Option(
            "--map", help="Map to judge; without one, Gaussian is fitted and cross-validated."
        ),
    ] = None,
    score: ScoreOption = None,
    label: LabelOption = None,
    user: UserOption = None,
    item: Annotated[
        str | None, typer.Option(help="Item column; item, item_id, itemID ... unless named.")
    ] = None,
    propensity: PropensityOption = None,
    weight: WeightOption = None,
    segment: Annotated[
        list[str] | None, typer.Option(help="Column to show calibration by; may be repeated.")
    ] = None,
    loss: Annotated[
        Loss | None,
        typer.Option(
            help="How labels become evidence: ips where propensities are given, else naive, unless named."
        ),
    ] = None,
    on_bad_rows: BadRowsOption = OnBadRows.error,
    results: Annotated[
        Path | None,
        typer.Option(help="Instead of a table: the folder that calibrank reproduce wrote rows to."),
    ] = None,
) -> None:
    """Write one self-contained, interactive HTML page on how far the probabilities can be trusted.

    Example: calibrank report test.parquet --map map.json --user user_id --item item_id -o report.html
    """
    if (table is None) == (results is None):
        raise UsageError("a report must be about a TABLE or about --results, got both or neither.")
    require_output(out, table, map_file)
    if table is None:
        _save(_of_results(results or Path()), out)
        return
    source, rules = Table.find(table), Rules(skip=on_bad_rows is OnBadRows.skip)
    columns = _columns(source, score, label, user, item, propensity, weight, segment, loss)
    fitted = None if map_file is None else load(map_file)
    with reading(source, "Reading") as progress:
        rows = read_report_rows(source, columns, rules, progress)
    say_skipped(rules)
    with console.status("Fitting and judging every method ..."):
        made = report_on_rows(rows, fitted, table, fingerprint_files(source.files), _command())
    _save(made, out)
    if columns.evidence is naive:
        log.print(
            "labels were taken at their word, as if the pairs had been shown at random; --loss ips weighs them.",
            style="dim",
            highlight=False,
        )


def _save(made: Report, out: Path) -> None:
    made.save(out)
    console.print(f"{made.headline}.", highlight=False)
    console.print(
        f"[bold]Report:[/] {out} ({out.stat().st_size / 1e6:.2f} MB, opens anywhere, loads nothing)"
    )


def _of_results(folder: Path) -> Report:
    from calibrank.experiment.overview import overview, read_rows  # noqa: PLC0415  (torch)
    from calibrank.experiment.spec import find_folder  # noqa: PLC0415  (torch)
    from calibrank.experiment.tables import Published  # noqa: PLC0415  (torch)

    rows = read_rows(folder)
    try:
        file = find_folder("aaai22") / "published.csv"
    except DataError:  # installed without the repository: our numbers stand alone
        return results_report(overview(rows, lambda *_: None), str(folder), "", _command())
    return results_report(
        overview(rows, Published.load(file).find), str(folder), "aaai22/published.csv", _command()
    )


def _columns(
    table: Table,
    score: str | None,
    label: str | None,
    user: str | None,
    item: str | None,
    propensity: str | None,
    weight: str | None,
    segment: list[str] | None,
    loss: Loss | None,
) -> Columns:
    """As for other commands; users and items are taken by alias where not named, for they serve as names too."""
    chosen = loss or (Loss.naive if propensity is None else Loss.ips)
    who, what = user or table.has("user"), item or table.has("item")
    columns = choose_columns(table, score, label, chosen, propensity, what, weight, who)
    for name in segment or ():
        if name not in table.columns():
            names = ", ".join(map(repr, table.columns()))
            raise DataError(
                f"{table.name} must have the segment column {name!r}, got {names}. Name one of these."
            )
    return replace(columns, others=tuple(dict.fromkeys(segment or ())))


def _command() -> str:
    return shlex.join(["calibrank", *sys.argv[1:]])
