"""`calibrank report`."""

from dataclasses import replace
from pathlib import Path

from calibrank.cli import console, options
from calibrank.cli.declared import Log, choose_columns, require_columns
from calibrank.evidence import naive
from calibrank.maps import load
from calibrank.report.html_report import Report, fingerprint_files, report_on_rows
from calibrank.report.read_table import read_report_rows
from calibrank.tabular.read import Table


def report(
    table: str,
    out: Path,
    map_file: Path | None,
    score: str | None,
    label: str | None,
    user: str | None,
    item: str | None,
    propensity: str | None,
    weight: str | None,
    segment: list[str] | None,
    log_kind: options.LogKind | None,
    on_bad_rows: options.OnBadRows,
    json: bool,
) -> None:
    """Write an interactive HTML page on how well probabilities are calibrated."""
    console.require_output(out, table, map_file)
    # Without --log, users and items only label the page.
    ids = (None, None) if log_kind is None else (item, user)
    declared_log = Log(log_kind, propensity, *ids)
    source = Table.find(table)
    console.require_output(out, *source.files)
    rules = console.rules_for(on_bad_rows)
    # Users and items also label the page, so columns with a usual name are read in any case.
    user_column = user or source.has("user")
    item_column = item or source.has("item")
    named = (score, label, weight, item_column, user_column)
    columns = choose_columns(source, declared_log, *named, needs_weights=False)
    fitted = None if map_file is None else load(map_file)
    columns = replace(columns, others=require_columns(source, segment or [], "segment"))
    with console.progress_bar(source, "Reading") as progress:
        rows = read_report_rows(source, columns, rules, progress, fitted=fitted)
    console.report_skipped(rules)
    with console.log.status("Fitting and evaluating every method ..."):
        fingerprint = fingerprint_files(source.files)
        made = report_on_rows(rows, fitted, table, fingerprint, console.command_line())
    _save(made, out, json=json)
    if columns.evidence is naive:
        console.say(
            "Labels were used as they are, which is correct if the pairs were shown at random. "
            "To weight labels of a biased log, use --log interactions."
        )


def _save(made: Report, out: Path, *, json: bool) -> None:
    made.save(out)
    if json:
        console.print_json({"out": str(out), "headline_text": made.headline, **made.data})
        return
    console.show(console.shown(made.headline))
    megabytes = out.stat().st_size / 1e6
    console.show(
        f"[bold]Report:[/] {console.shown(out)} ({megabytes:.2f} MB, one file, no network needed)"
    )
