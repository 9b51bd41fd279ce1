"""Position bias in `calibrank fit`: examination by rank, estimated from items at several ranks."""

from dataclasses import replace

import numpy as np

from calibrank.cli import console
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


def with_examination(table: Table, columns: Columns, rules: Rules) -> Columns:
    """The columns with examination by rank, which turns the column of ranks into propensities."""
    position = _estimate(table, columns, rules)
    console.say(
        "Examination by rank, estimated from items at several ranks with similar scores: "
        f"{_describe(position)}"
    )
    # Items only served the estimate: propensities do not come from their popularity.
    return replace(columns, examination=position, item=None)


def _estimate(table: Table, columns: Columns, rules: Rules) -> Position:
    # Ranks are read as a feature: there is no examination yet to turn them into propensities.
    ranks = {str(columns.propensity): "rank"}
    ranked = replace(columns, features=ranks, segments=(), propensity=None, evidence=naive)
    batches = list(rows_of(table, ranked, Rules(skip=rules.skip), None))
    if not batches:
        raise DataError(table.name, "hold at least one valid row", "none", "Check it.")
    joined = Rows.joined(batches)
    clusters = None if columns.user is None else _names([rows.users for rows in batches])
    items = _names([rows.items for rows in batches])
    places = np.concatenate([rows.features[0] for rows in batches])
    return estimate_position(
        items, places, joined.labels, clusters, _RESAMPLES, scores=joined.scores
    )


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
