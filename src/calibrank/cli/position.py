"""Position bias in `calibrank fit`: ranks become propensities, by a table or by an estimate."""

from dataclasses import replace
from typing import Annotated

import numpy as np
import typer

from calibrank._internal.validation import Floats
from calibrank.cli.console import UsageError, log, shown
from calibrank.cli.options import LogKind
from calibrank.errors import DataError
from calibrank.evidence import naive
from calibrank.propensity import Position, estimate_position
from calibrank.tabular.batch import names_of
from calibrank.tabular.columns import Columns
from calibrank.tabular.ids import unify_ids
from calibrank.tabular.read import Table
from calibrank.tabular.rows import Rows, rows_of
from calibrank.tabular.rules import Rules

# A standard error from so many resamples is itself right to about 10%.
_RESAMPLES = 50
# Ranks whose examination is printed.
_PRINTED = 5

PositionOption = Annotated[
    str | None,
    typer.Option(
        help="Column of the ranks at which rows were shown, from 1: labels are clicks, which need "
        "that the rank is examined. Examination comes from --examination, or is estimated from "
        "items (--item) that were shown at several ranks."
    ),
]
ExaminationOption = Annotated[
    str | None,
    typer.Option(help="Table with columns rank and examination, P(examined) of each rank."),
]


def require_position(
    position: str | None,
    examination: str | None,
    propensity: str | None,
    item: str | None,
    log_kind: LogKind | None,
    loss: str | None,
) -> None:
    """Check the options about ranks before the table is read."""
    if position is None:
        if examination is not None:
            raise UsageError("--examination must go with --position, the column of ranks.")
        return
    if propensity is not None:
        raise UsageError(
            "--position and --propensity must not both be given: propensities either come from "
            "ranks or are read. Multiply them yourself if a row was shown and examined by chance."
        )
    if (examination is None) == (item is None):
        raise UsageError(
            "--position must go with either --examination, a table of P(examined) by rank, or "
            "--item, to estimate it from items that were shown at several ranks."
        )
    if log_kind is LogKind.impressions or loss in ("naive", "impressions"):
        raise UsageError(
            "--position must go with --loss ips, its default, got a log in which label 0 means not "
            "liked: a row that was not clicked may not have been examined. Leave --log and --loss "
            "out."
        )


def with_examination(
    table: Table,
    columns: Columns,
    examination: str | None,
    rules: Rules,
) -> Columns:
    """The columns with examination by rank, which turns the column of ranks into propensities."""
    if examination is not None:
        position = _read_examination(Table.find(examination))
        source = f"from {examination}"
    else:
        position = _estimate(table, columns, rules)
        source = "estimated from items at several ranks"
    log.print(shown(f"Examination by rank, {source}: {_describe(position)}"), highlight=False)
    # Items only served the estimate: propensities do not come from their popularity.
    return replace(columns, examination=position, item=None)


def _read_examination(table: Table) -> Position:
    names = [table.resolve(role, role) for role in ("rank", "examination")]
    columns = Columns(names[0], names[1], naive)
    ranks = []
    values = []
    for batch in table.batches(names):
        Rules(skip=False).valid_rows(batch, {"rank": columns.score, "propensity": columns.label})
        ranks.append(batch.numbers(columns.score))
        values.append(batch.numbers(columns.label))
    order = np.argsort(np.concatenate(ranks)) if ranks else np.array([], dtype=np.intp)
    expected: Floats = np.arange(1.0, len(order) + 1)
    if not len(order) or (np.concatenate(ranks)[order] != expected).any():
        raise DataError(
            f"{table.name} must hold every rank from 1 once, got {len(order)} rows with other "
            "ranks. Add the missing ranks."
        )
    return Position(np.concatenate(values)[order])


def _estimate(table: Table, columns: Columns, rules: Rules) -> Position:
    # Ranks stand in for scores: there is no examination yet to turn them into propensities.
    ranked = replace(
        columns, score=str(columns.propensity), score_is="rank", propensity=None, evidence=naive
    )
    batches = list(rows_of(table, ranked, Rules(skip=rules.skip), None))
    if not batches:
        raise DataError(f"{table.name} must hold at least one valid row, got none. Check it.")
    joined = Rows.joined(batches)
    clusters = None if columns.user is None else _names([rows.users for rows in batches])
    items = _names([rows.items for rows in batches])
    return estimate_position(items, joined.scores, joined.labels, clusters, _RESAMPLES)


def _names(chunks: list[object]) -> np.ndarray:
    return np.concatenate([names_of(chunk) for chunk in unify_ids(chunks)])


def _describe(position: Position) -> str:
    parts = []
    for rank, value in enumerate(position.examination[:_PRINTED], start=1):
        error = ""
        if position.standard_errors is not None and rank > 1:
            error = f" ± {position.standard_errors[rank - 1]:.2g}"
        parts.append(f"{rank}: {value:.3g}{error}")
    more = "" if len(position.examination) <= _PRINTED else f", ... to {len(position.examination)}"
    return f"{', '.join(parts)}{more}"
