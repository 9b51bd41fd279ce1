"""`calibrank report`."""

from dataclasses import replace

from calibrank.cli import console
from calibrank.cli.declared import choose_columns, require_columns
from calibrank.cli.parse import Given
from calibrank.evidence import naive
from calibrank.maps import load
from calibrank.report.html_report import fingerprint_files, report_on_rows
from calibrank.report.read_table import read_report_rows
from calibrank.tabular.read import Table


def report(given: Given) -> None:
    """Write an interactive HTML page on how well probabilities are calibrated."""
    table = Table.find(given.table)
    console.require_output(given.out, given.map_file, *table.files)
    rules = console.rules_for(given)
    # Users and items also label the page, so columns with a usual name are read in any case.
    item, user = given.item or table.has("item"), given.user or table.has("user")
    # Without --log, they do nothing else.
    declared = given if given.log_kind else given.but(item=None, user=None)
    columns = choose_columns(table, declared, item, user, needs_weights=False)
    columns = replace(columns, others=require_columns(table, given.segment, "segment"))
    fitted = None if given.map_file is None else load(given.map_file)
    with console.reading(table, "Reading", rules) as progress:
        rows = read_report_rows(table, columns, rules, progress, fitted=fitted)
    with console.log.status("Fitting and evaluating every method ..."):
        fingerprint = fingerprint_files(table.files)
        made = report_on_rows(rows, fitted, given.table, fingerprint, console.command_line())
    made.save(given.out)
    console.answer({"out": str(given.out), "headline_text": made.headline, **made.data})
    console.show(console.shown(made.headline))
    size = f"({given.out.stat().st_size / 1e6:.2f} MB, one file, no network needed)"
    console.show(f"[bold]Report:[/] {console.shown(given.out)} {size}")
    if columns.evidence is naive:
        console.say(
            "Labels were used as they are, which is correct if the pairs were shown at random. "
            "To weight labels of a biased log, use --log interactions."
        )
