"""What changes a map beyond its scores in `calibrank fit`: segments, features, or the rank."""

from dataclasses import dataclass
from typing import Annotated

import typer

from calibrank._internal.arguments import listed
from calibrank._internal.validation import require_role
from calibrank.anchoring import anchor_top
from calibrank.cli.anchoring import population_of, random_pairs
from calibrank.cli.base_rate import Rates
from calibrank.cli.columns import segment_columns
from calibrank.cli.console import UsageError, rules_for
from calibrank.cli.features import Features, choose_features, fit_features, require_features
from calibrank.cli.options import OnBadRows
from calibrank.cli.segments import fit_segments, require_no_rate
from calibrank.errors import DataError
from calibrank.maps import CalibrationMap
from calibrank.tabular.aggregate import Aggregate, Columns
from calibrank.tabular.read import Table

RankOption = Annotated[
    str | None,
    typer.Option(
        help="Column of the --anchor table: the position of each pair in the list of its user, "
        "from 1. The first positions (--top) get a curve of their own: the odds by rank in all "
        "labels are continued to the top, and labels there count most."
    ),
]
TopOption = Annotated[
    int,
    typer.Option(
        min=1, max=10**6, help="With --rank, the number of first positions with their own curve."
    ),
]
DEFAULT_TOP = 5


@dataclass(frozen=True, slots=True)
class Changes:
    """The columns of segments, of features, or of the rank; at most one kind is given."""

    segments: tuple[str, ...] = ()
    features: Features | None = None
    rank: str | None = None
    top: int = DEFAULT_TOP

    def fit(
        self,
        biased: CalibrationMap,
        fitted: CalibrationMap,
        table: Table,
        columns: Columns,
        aggregated: Aggregate,
        on_bad_rows: OnBadRows,
    ) -> CalibrationMap:
        """The map `fitted` with the changes; `biased` is what it was before it was anchored."""
        if self.rank is not None:
            return self._fit_top(biased, fitted, table, columns, aggregated, on_bad_rows)
        if self.features is not None:
            return fit_features(fitted, table, columns, self.features, aggregated, on_bad_rows)
        return fit_segments(fitted, table, columns, self.segments, aggregated, on_bad_rows)

    def _fit_top(
        self,
        biased: CalibrationMap,
        fitted: CalibrationMap,
        table: Table,
        columns: Columns,
        aggregated: Aggregate,
        on_bad_rows: OnBadRows,
    ) -> CalibrationMap:
        name = str(self.rank)
        rows, (ranks,) = random_pairs(table, columns, rules_for(on_bad_rows), (name,))
        require_role("rank", f"{table.name}, column {name}", ranks)
        # The curve of all pairs is the one that is anchored already, with its record.
        population = population_of(aggregated.summary)
        return anchor_top(
            biased,
            rows.scores,
            rows.labels,
            ranks,
            self.top,
            rows.propensity,
            population,
            rank_column=name,
            record=fitted.record,
        )


def choose_changes(
    table: Table,
    segment: list[str] | None,
    feature: list[str] | None,
    category: list[str] | None,
    rank: str | None,
    top: int,
    rates: Rates,
    user: str | None,
    *,
    keep_order: bool,
) -> Changes:
    """What changes the map, checked before the table is read."""
    require_no_rate(segment, rates.base_rate, rates.activity)
    require_features(feature, category, segment, has_rate=rates.moves, keep_order=keep_order)
    labelled = table if rates.anchor is None else Table.find(rates.anchor)
    if rank is None:
        if top != DEFAULT_TOP:
            raise UsageError("--top must go with --rank, the column of positions.")
        features = choose_features(labelled, feature, category, user, keep_order=keep_order)
        return Changes(segment_columns(table, segment or []), features)
    if rates.anchor is None or segment or feature or category:
        raise UsageError(
            "--rank must go with --anchor, labels of random pairs with their ranks, and without "
            "--segment, --feature and --category."
        )
    if rank not in labelled.columns():
        raise DataError(
            f"{labelled.name} must have the rank column {rank!r}, got "
            f"{listed(labelled.columns())}. Name one of these."
        )
    return Changes(rank=rank, top=top)
