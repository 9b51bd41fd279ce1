"""`calibrank control`."""

from dataclasses import replace

from calibrank.cli import console
from calibrank.cli.declared import choose_evaluated
from calibrank.cli.parse import Given
from calibrank.decisions import Guarantee, Predicted
from calibrank.decisions import control as find_cut
from calibrank.evidence import impressions
from calibrank.registry import parse_cut, parse_promise
from calibrank.report.read_table import read_report_rows
from calibrank.tabular.read import Table


def control(given: Given) -> None:
    """Find where lists must end to keep promises about new users, or queries."""
    promises = [parse_promise(text) for text in given.promise or ["Precision(0.8)"]]
    cuts = [parse_cut(text) for text in given.cut or ["Threshold"]]
    table = Table.find(given.table)
    rules = console.rules_for(given)
    fitted, columns = choose_evaluated(table, given)
    columns = replace(columns, user=table.resolve("user", given.user))
    if given.propensity is not None:
        columns = replace(columns, evidence=impressions, propensity=given.propensity)
    with console.reading(table, "Reading", rules) as progress:
        rows = read_report_rows(table, columns, rules, progress, fitted=fitted)
    if rows.users is None:
        raise AssertionError("the user column was resolved and not read")
    found = find_cut(
        rows.scores if fitted is None else Predicted(fitted, rows.scores, rows.columns),
        rows.evidence,
        rows.users.codes,
        promises,
        cut=cuts,
        confidence=given.confidence,
        longest=given.longest,
        abstain=given.abstain,
    )
    console.answer(found.content())
    _print(found, given.longest)


def _print(found: Guarantee, longest: int | None) -> None:
    console.show(f"{console.shown(str(found))}")
    notes = (
        "The promise is about new users like these, shown pairs by the same rule. A change of "
        "users, items or model breaks it, and so do labels that users chose to give."
    )
    if longest is not None or (found.best and found.threshold is None):
        notes += (
            " The best are those of a user's rows in this table: if lists are made of more "
            "candidates than are labelled here, use --cut Threshold without --longest."
        )
    console.show(notes, style="dim")
