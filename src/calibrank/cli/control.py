"""`calibrank control`."""

from pathlib import Path
from typing import Annotated

import typer

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

MapOption = Annotated[Path | None, typer.Option("--map", help=options.MAP_HELP)]
ProbabilityOption = Annotated[
    str | None, options.column_option("Without --map: the probabilities.", "probability")
]
PromiseOption = Annotated[
    list[str],
    typer.Option(
        "--promise",
        metavar="PROMISE",
        help="What lists must keep: 'Precision(0.8)', 'Recall(0.8)', or 'PooledPrecision(0.8)' "
        "with --longest. May be repeated: all are kept together.",
    ),
]
CutOption = Annotated[
    list[str],
    typer.Option(
        "--cut",
        metavar="CUT",
        help="Where a list ends: Threshold (probability), Rank, or Gap (to its best row). May be "
        "repeated: the best is chosen. Rank and Gap need all candidates as rows.",
    ),
]
AbstainOption = Annotated[
    bool,
    typer.Option(
        "--abstain",
        help="Give no answer where the best probability is low, if the promises cannot be kept "
        "for all.",
    ),
]
ConfidenceOption = Annotated[float, typer.Option(help="Confidence of the promise.")]
LongestOption = Annotated[
    int | None,
    typer.Option(
        help="Length of the longest list: of each user's rows, which must be all candidates, only "
        "the best are shown."
    ),
]
ShownOption = Annotated[
    str | None,
    options.column_option(
        "Logged probabilities with which pairs were shown, if they differ.", None, "--propensity"
    ),
]


def control(
    table: options.Table,
    map_file: MapOption = None,
    probability: ProbabilityOption = None,
    score: options.Score = None,
    label: options.Label = None,
    user: options.User = None,
    propensity: ShownOption = None,
    promise: PromiseOption = ["Precision(0.8)"],  # noqa: B006  (typer copies it)
    cut: CutOption = ["Threshold"],  # noqa: B006  (as above)
    abstain: AbstainOption = False,
    confidence: ConfidenceOption = 0.95,
    longest: LongestOption = None,
    on_bad_rows: options.BadRows = options.OnBadRows.error,
    json: options.Json = False,
) -> None:
    """Find where lists must end to keep promises about new users, or queries.

    The rows must be pairs that were shown at random, or with logged probabilities, and not those
    that the map was fitted on.

    Example: calibrank control random.parquet --map map.json --promise "Recall(0.8)" --cut Rank
    """
    if map_file is None:
        console.require_unused("without --map", {"--score": score})
    else:
        console.require_unused("with --map", {"--probability": probability})
    promises = [parse_promise(text) for text in promise]
    cuts = [parse_cut(text) for text in cut]
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
    console.screen.print(f"{console.shown(str(found))}", highlight=False)
    notes = (
        "The promise is about new users like these, shown pairs by the same rule. A change of "
        "users, items or model breaks it, and so do labels that users chose to give."
    )
    if longest is not None or (found.best and found.threshold is None):
        notes += (
            " The best are those of a user's rows in this table: if lists are made of more "
            "candidates than are labelled here, use --cut Threshold without --longest."
        )
    console.screen.print(notes, style="dim", highlight=False)
