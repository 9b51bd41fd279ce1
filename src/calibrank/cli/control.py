"""`calibrank control`."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from calibrank.cli.console import (
    console,
    print_json,
    progress_bar,
    report_skipped,
    require_unused,
    rules_for,
    shown,
)
from calibrank.cli.declared import choose_label
from calibrank.cli.options import (
    MAP_HELP,
    BadRowsOption,
    JsonOption,
    LabelOption,
    OnBadRows,
    PositiveOption,
    ScoreOption,
    TableArgument,
    UserOption,
)
from calibrank.decisions import Guarantee
from calibrank.decisions import control as find_threshold
from calibrank.evidence import impressions, naive
from calibrank.maps import load
from calibrank.metrics.clustered_bootstrap import Codes
from calibrank.report.read_table import read_report_rows
from calibrank.report.rows import ReportRows
from calibrank.tabular.columns import Columns
from calibrank.tabular.read import Table

MapOption = Annotated[Path | None, typer.Option("--map", help=MAP_HELP)]
ProbabilityOption = Annotated[
    str | None,
    typer.Option(help="Without --map: the column of probabilities."),
]
UnwantedOption = Annotated[
    float,
    typer.Option(help="The largest share of unwanted among what is shown, e.g. 0.2."),
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
    typer.Option(
        "--propensity",
        help="Column of logged probabilities with which pairs were shown, if they differ.",
    ),
]


def control(
    table: TableArgument,
    map_file: MapOption = None,
    probability: ProbabilityOption = None,
    score: ScoreOption = None,
    label: LabelOption = None,
    positive: PositiveOption = None,
    user: UserOption = None,
    propensity: ShownOption = None,
    unwanted: UnwantedOption = 0.2,
    confidence: ConfidenceOption = 0.95,
    longest: LongestOption = None,
    on_bad_rows: BadRowsOption = OnBadRows.error,
    json: JsonOption = False,
) -> None:
    """Find the lowest threshold that keeps a promise about what is shown above it.

    The rows must be pairs that were shown at random, or with logged probabilities, and not those
    that the map was fitted on.

    Example: calibrank control random.parquet --map map.json --unwanted 0.2 --longest 10
    """
    if map_file is None:
        require_unused("without --map", {"--score": score})
    else:
        require_unused("with --map", {"--probability": probability})
    source = Table.find(table)
    rules = rules_for(on_bad_rows)
    fitted = None if map_file is None else load(map_file)
    role = "probability" if fitted is None else "score"
    declared = choose_label(source, label, positive, None, None, soft=False)
    columns = Columns(
        source.resolve(role, probability if fitted is None else score),
        declared.column,
        naive if propensity is None else impressions,
        propensity=propensity,
        label_rule=declared.rule,
        user=source.resolve("user", user),
        score_is=role,
    )
    with progress_bar(source, "Reading") as progress:
        rows = read_report_rows(source, columns, rules, progress, fitted=fitted)
    report_skipped(rules)
    found = find_threshold(
        rows.scores,
        rows.evidence,
        _users(rows),
        unwanted=unwanted,
        confidence=confidence,
        longest=longest,
    )
    if json:
        print_json(asdict(found))
        return
    _print(found, longest)


def _users(rows: ReportRows) -> Codes:
    if rows.users is None:
        raise AssertionError("the user column was resolved and not read")
    return rows.users.codes


def _print(found: Guarantee, longest: int | None) -> None:
    console.print(f"{shown(str(found))}", highlight=False)
    notes = (
        "The promise is about new users like these, shown pairs by the same rule. A change of "
        "users, items or model breaks it, and so do labels that users chose to give."
    )
    if longest is not None:
        notes += (
            f" The {longest} best are those of a user's rows in this table: if lists are made of "
            "more candidates than are labelled here, leave --longest out."
        )
    elif found.threshold is None:
        notes += " Where lists have a greatest length, --longest allows lower thresholds."
    console.print(notes, style="dim", highlight=False)
