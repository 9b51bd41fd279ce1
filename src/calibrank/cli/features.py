"""Features of `calibrank fit`: the options, the fit with covariates, and the printed result."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import typer
from rich.table import Table as RichTable

from calibrank._internal.arguments import listed
from calibrank.cli.console import (
    UsageError,
    console,
    log,
    progress_bar,
    rules_for,
    shown,
)
from calibrank.cli.options import OnBadRows
from calibrank.curves import Covariates
from calibrank.curves.covariates import varying_columns
from calibrank.errors import DataError
from calibrank.maps import AdditiveMap, CalibrationMap, CategoryTerm, Term, TopMap
from calibrank.tabular.aggregate import Aggregate, Columns
from calibrank.tabular.features import FeatureRows, is_text_column, read_features
from calibrank.tabular.read import Table

# Categories that are printed; --json and the saved map have all.
_MOST_PRINTED = 8

FeatureOption = Annotated[
    list[str] | None,
    typer.Option(
        "--feature",
        help="Column that changes the map: of numbers, such as log popularity, by a smooth "
        "function; of text, such as country, by a number per value. May be repeated. With "
        "--anchor, the random pairs must have the columns.",
    ),
]
CategoryOption = Annotated[
    list[str] | None,
    typer.Option(
        "--category",
        help="As --feature, for a column of numbers that are names, such as postal codes.",
    ),
]
KeepOrderOption = Annotated[
    bool,
    typer.Option(
        "--keep-order",
        help="Refuse features that vary within a user's list, so that each list keeps its order.",
    ),
]


@dataclass(frozen=True, slots=True)
class Features:
    """The features of a fit, in the order given, and which of them are categories."""

    names: tuple[str, ...]
    categories: tuple[str, ...]
    user: str | None
    keep_order: bool


def require_features(
    feature: list[str] | None,
    category: list[str] | None,
    segment: list[str] | None,
    *,
    has_rate: bool,
    keep_order: bool,
) -> None:
    """Check the options about features before the table is read."""
    if not feature and not category:
        if keep_order:
            raise UsageError("--keep-order must go with --feature or --category.")
        return
    both = [name for name in feature or [] if name in (category or [])]
    if both:
        raise UsageError(
            f"--feature and --category must name different columns, got {both[0]!r} for both."
        )
    if segment:
        raise UsageError(
            "--feature must not go with --segment. Pass segment columns with --category."
        )
    if has_rate:
        raise UsageError(
            "--feature must not go with --base-rate or --activity: a rate of all pairs says "
            "nothing about features. Use --anchor with labels of random pairs."
        )


def choose_features(
    table: Table,
    feature: list[str] | None,
    category: list[str] | None,
    user: str | None,
    *,
    keep_order: bool,
) -> Features | None:
    """The columns of features; text columns are categories."""
    names = tuple(dict.fromkeys([*(feature or []), *(category or [])]))
    if not names:
        return None
    columns = table.columns()
    for name in names:
        if name not in columns:
            raise DataError(
                f"{table.name} must have the feature column {name!r}, got {listed(columns)}. "
                "Name one of these."
            )
    declared = category or []
    categories = [name for name in names if name in declared or is_text_column(table, name)]
    # The table of random pairs may lack the users of the log.
    user = user if user in columns else table.has("user")
    if keep_order and user is None:
        raise UsageError("--keep-order must have a user column, got none. Name it with --user.")
    return Features(names, tuple(categories), user, keep_order)


def fit_features(
    fitted: CalibrationMap,
    table: Table,
    columns: Columns,
    features: Features,
    aggregated: Aggregate,
    on_bad_rows: OnBadRows,
) -> CalibrationMap:
    """Add functions of features to a map; the table is read once more, into memory."""
    rows = _read(table, columns, features, aggregated, on_bad_rows)
    calibrator = Covariates(
        features.names, categories=features.categories, keep_list_order=features.keep_order
    )
    read = calibrator.read(rows.features, len(rows.scores), rows.users)
    # Random labels refine the anchored map; a log is what the map itself was fitted on.
    is_anchored = fitted.record.base_rate_source == "random labels"
    result = calibrator.fit_columns(
        fitted, rows.scores, rows.evidence, read, shrink_curve=is_anchored
    )
    varying = None if rows.users is None else varying_columns(read, rows.users)
    log.print(_order(features.names, varying), highlight=False, soft_wrap=True)
    return result


def _read(
    table: Table,
    columns: Columns,
    features: Features,
    aggregated: Aggregate,
    on_bad_rows: OnBadRows,
) -> FeatureRows:
    numbers = [name for name in features.names if name not in features.categories]
    columns = replace(
        columns,
        user=features.user,
        features=tuple(numbers),
        segments=features.categories,
    )
    exposure = aggregated.exposure if columns.needs_exposure else None
    with progress_bar(table, "Reading features") as progress:
        # Rows that are skipped were counted in the first pass.
        return read_features(table, columns, rules_for(on_bad_rows), exposure, progress)


def _listed(names: Sequence[str]) -> str:
    return shown(" and ".join(names))


def _order(names: tuple[str, ...], varying: list[str] | None) -> str:
    """What the features do to the order of lists."""
    if varying is None:
        return (
            f"Order: {_listed(names)} may change the order between users, and within a user's list "
            "if values differ by item. There is no user column to tell; name one with "
            "--user."
        )
    if not varying:
        return (
            f"Order: all rows of a user have the same {_listed(names)}. The order "
            "between users changes, and each user's list keeps its order."
        )
    verb = "varies" if len(varying) == 1 else "vary"
    return (
        f"Order: {_listed(varying)} {verb} within a user's list. The order between users "
        "changes, and so does the order within lists. --keep-order refuses such features."
    )


def print_features(fitted: CalibrationMap) -> None:
    """Print what each feature adds to the log odds."""
    if isinstance(fitted, TopMap):
        text = f"a curve of its own for the first {fitted.n} positions, by {fitted.column}."
        console.print(f"[bold]Top of the list:[/] {shown(text)}", highlight=False)
    if not isinstance(fitted, AdditiveMap):
        return
    console.print("[bold]Features:[/] what is added to the log odds", highlight=False)
    table = RichTable("feature", "value", "log odds")
    for term in fitted.terms:
        for place, (value, change) in enumerate(_shown_values(term)):
            table.add_row(shown(term.column) if not place else "", shown(value), f"{change:+.3f}")
    console.print(table)


def _shown_values(term: Term | CategoryTerm) -> list[tuple[str, float]]:
    if isinstance(term, CategoryTerm):
        pairs = list(zip(term.categories, term.values, strict=True))
        pairs.sort(key=lambda pair: -abs(pair[1]))
        return [*pairs[:_MOST_PRINTED], ("(not seen)", 0.0)]
    return [(f"{knot:.4g}", value) for knot, value in zip(term.knots, term.values, strict=True)]
