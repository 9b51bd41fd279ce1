"""`calibrank control`."""

from pathlib import Path

from calibrank.cli import console, options
from calibrank.cli.declared import choose_label
from calibrank.decisions import Guarantee, Predicted
from calibrank.decisions import control as find_cut
from calibrank.evidence import impressions, naive
from calibrank.maps import load
from calibrank.metrics.clustered_bootstrap import Codes
from calibrank.registry import parse_cut, parse_promise
from calibrank.report.read_table import read_report_rows
from calibrank.report.rows import ReportRows
from calibrank.tabular.columns import Columns
from calibrank.tabular.read import Table


def control(
    table: str,
    map_file: Path | None,
    probability: str | None,
    score: str | None,
    label: str | None,
    user: str | None,
    propensity: str | None,
    promise: list[str] | None,
    cut: list[str] | None,
    abstain: bool,
    confidence: float,
    longest: int | None,
    on_bad_rows: options.OnBadRows,
    json: bool,
) -> None:
    """Find where lists must end to keep promises about new users, or queries."""
    console.require_map_or_probability(map_file, score, probability)
    promises = [parse_promise(text) for text in promise or ["Precision(0.8)"]]
    cuts = [parse_cut(text) for text in cut or ["Threshold"]]
    source = Table.find(table)
    rules = console.rules_for(on_bad_rows)
    fitted = None if map_file is None else load(map_file)
    role = "probability" if fitted is None else "score"
    declared = choose_label(source, label)
    columns = Columns(
        source.resolve(role, probability if fitted is None else score),
        declared.column,
        naive if propensity is None else impressions,
        propensity=propensity,
        label_rule=declared.rule,
        user=source.resolve("user", user),
        score_is=role,
    )
    with console.progress_bar(source, "Reading") as progress:
        rows = read_report_rows(source, columns, rules, progress, fitted=fitted)
    console.report_skipped(rules)
    values = rows.scores if fitted is None else Predicted(fitted, rows.scores, rows.columns)
    found = find_cut(
        values,
        rows.evidence,
        _users(rows),
        promises,
        cut=cuts,
        confidence=confidence,
        longest=longest,
        abstain=abstain,
    )
    if json:
        console.print_json(found.content())
        return
    _print(found, longest)


def _users(rows: ReportRows) -> Codes:
    if rows.users is None:
        raise AssertionError("the user column was resolved and not read")
    return rows.users.codes


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
