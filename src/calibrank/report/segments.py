"""Calibration by segment: item popularity, user activity and any named column."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from calibrank._internal.segment_keys import Encoded
from calibrank._internal.validation import Floats, add_up
from calibrank.maps import CalibrationMap
from calibrank.metrics import Clusters
from calibrank.metrics.clustered_bootstrap import Codes
from calibrank.metrics.multicalibration import SegmentSums, adjusted_p_values
from calibrank.report.lists import shorten
from calibrank.report.rows import MISSING, Categorical, ReportRows
from calibrank.terms import Level, Smooth, TermSpec

# Quintiles: enough to show a trend, few enough for narrow intervals.
QUANTILE_GROUPS = 5
# Larger numbers are written with an exponent.
_LONGEST_WHOLE = 1e15

MOST_VALUES = 30
"""How many values of a column are shown by name; the others are pooled into one segment."""


SIGNIFICANT = 0.05
"""Adjusted p-values below this are called miscalibrated."""


def segment_tables(
    rows: ReportRows,
    probabilities: Floats,
    clusters: Clusters,
    global_probabilities: Floats | None = None,
) -> list[dict[str, Any]]:
    """Return one table per column, the one with the worst segment first.

    With the probabilities of a global map, segments also have its mean prediction.
    """
    columns = list(_columns(rows))
    if not columns:
        return []
    statistics = []
    for _, _, categories in columns:
        column = Encoded(categories.codes, list(categories.names))
        sums = SegmentSums.of(probabilities, rows.evidence, column, clusters.codes)
        statistics.append(sums.statistics)
    tables = []
    # Adjusted for all segments of all columns, both level and slope.
    for (title, note, categories), p_values in zip(
        columns, adjusted_p_values(statistics), strict=True
    ):
        smaller = np.minimum(*np.split(p_values, 2))
        segments = _evaluate_segments(rows, probabilities, clusters, categories, smaller)
        if global_probabilities is not None:
            _add_global(segments, rows, global_probabilities, categories)
        if segments:
            tables.append({"title": title, "note": note, "segments": segments})
    return sorted(tables, key=lambda table: -table["segments"][0]["excess_gap"])


def segment_test(
    tables: list[dict[str, Any]], rows: ReportRows, fitted: CalibrationMap
) -> dict[str, Any] | None:
    """Return how many segments deviate more than chance explains, and terms that would fit them.

    The chance is that of any segment of any column deviating as much.
    """
    p_values = [segment["p_value"] for table in tables for segment in table["segments"]]
    if not p_values:
        return None
    terms = []
    for table in tables:
        deviates = any(segment["p_value"] < SIGNIFICANT for segment in table["segments"])
        if deviates and table["title"] in rows.segments and table["title"] not in fitted.columns:
            terms += _term_for(table["title"], rows.segments[table["title"]])
    return {
        "tested": len(p_values),
        "deviating": sum(p_value < SIGNIFICANT for p_value in p_values),
        "p_value": min(p_values),
        "terms": " + ".join(map(repr, terms)),
    }


def _term_for(name: str, column: Categorical | Floats) -> list[TermSpec]:
    """A term of the column, if there is one: a missing value has no level and no number."""
    if isinstance(column, Categorical):
        return [] if MISSING in column.names else [Level(name)]
    return [Smooth(name)] if np.isfinite(column).all() else []


def _add_global(
    segments: list[dict[str, Any]], rows: ReportRows, predicted: Floats, categories: Categorical
) -> None:
    total = rows.evidence.total
    size = len(categories.names)
    mass = np.maximum(add_up(categories.codes, total, size), 1e-300)
    means = add_up(categories.codes, total * predicted, size) / mass
    by_name = dict(zip(map(shorten, categories.names), means.tolist(), strict=True))
    for segment in segments:
        segment["global_predicted"] = by_name[segment["name"]]


def _columns(rows: ReportRows) -> Iterator[tuple[str, str, Categorical]]:
    """Yield the title, a note and the segments of each column."""
    if rows.items is not None:
        note = (
            "Groups by the number of likes that the item has from users in other folds, so a "
            "row's own label does not influence its group."
        )
        popularity = _likes_in_other_folds(rows, rows.items)
        yield "Popularity of the item", note, _quantile_groups(popularity, "likes")
    if rows.users is not None:
        activity = rows.users.counts()[rows.users.codes].astype(np.float64)
        note = "Groups by the number of rows that the user has in the table."
        yield "Activity of the user", note, _quantile_groups(activity, "rows")
    for name, column in rows.segments.items():
        if isinstance(column, Categorical):
            yield name, "Values of the column.", _most_common(column)
        else:
            yield name, "Groups of about equally many rows.", _quantile_groups(column, "")


def _likes_in_other_folds(rows: ReportRows, items: Categorical) -> Floats:
    """Count the likes that each row's item has outside the row's own fold."""
    folds = int(rows.folds.max()) + 1
    places = items.codes * folds + rows.folds
    size = len(items.names) * folds
    likes = add_up(places, rows.labels, size).reshape(-1, folds)
    of_item = likes.sum(axis=1)[items.codes]
    in_own_fold = likes[items.codes, rows.folds]
    return of_item - in_own_fold


def _quantile_groups(values: Floats, unit: str) -> Categorical:
    """Group values at their quintiles; equal values share a group, NaN has its own."""
    missing = np.isnan(values)
    known = values[~missing]
    edges = known
    if len(known):
        quantiles = np.arange(1, QUANTILE_GROUPS) / QUANTILE_GROUPS
        # "higher" returns values that occur, so that no edge lies between equal values.
        edges = np.unique(np.quantile(known, quantiles, method="higher"))
    codes = np.searchsorted(edges, values, side="right")
    names = []
    for group in range(len(edges) + 1):
        inside = values[(codes == group) & ~missing]
        names.append(_range_name(inside, unit) if len(inside) else "")
    codes = np.where(missing, len(names), codes).astype(np.intp)
    return Categorical(codes, [*names, MISSING])


def _range_name(values: Floats, unit: str) -> str:
    low = _number(values.min())
    high = _number(values.max())
    text = low if low == high else f"{low} to {high}"
    return f"{text} {unit}".strip()


def _number(value: float) -> str:
    # Infinity cannot be rounded, and 1e308 would have 309 digits.
    is_short = abs(value) < _LONGEST_WHOLE
    return f"{value:,.0f}" if is_short and value == round(value) else f"{value:,.4g}"


def _most_common(column: Categorical) -> Categorical:
    """Keep the most common categories and pool the others into one."""
    if len(column.names) <= MOST_VALUES:
        return column
    counts = column.counts()
    kept = np.argsort(-counts, kind="stable")[:MOST_VALUES]
    places = np.full(len(counts), MOST_VALUES)
    places[kept] = np.arange(MOST_VALUES)
    names = [column.names[category] for category in kept]
    names.append(f"all {len(counts) - MOST_VALUES:,} other values")
    return Categorical(places[column.codes].astype(np.intp), names)


def _evaluate_segments(
    rows: ReportRows,
    probabilities: Floats,
    clusters: Clusters,
    categories: Categorical,
    p_values: Floats,
) -> list[dict[str, Any]]:
    """Compare predicted and observed rates per segment, the surest gap first."""
    size = len(categories.names)
    rates = clusters.rates(categories.codes, probabilities, rows.evidence, size)
    user_counts = _count_users(rows, categories.codes, size)
    segments = []
    for code in np.flatnonzero(rates.mass > 0).tolist():
        segment = {
            "name": shorten(categories.names[code]),
            "rows": int(rates.rows[code]),
            "users": None if user_counts is None else int(user_counts[code]),
            "predicted": rates.predicted[code],
            "observed": rates.observed.value[code],
            "low": rates.observed.low[code],
            "high": rates.observed.high[code],
            "gap": rates.gap.value[code],
            "p_value": float(p_values[code]),
            # How far the interval of the gap is from 0; 0 where it contains 0.
            "excess_gap": max(rates.gap.low[code], -rates.gap.high[code], 0.0),
        }
        segments.append(segment)
    return sorted(segments, key=lambda one: (-one["excess_gap"], -abs(one["gap"])))


def _count_users(rows: ReportRows, codes: Codes, size: int) -> Codes | None:
    """Count the distinct users of each segment; None where there are no users."""
    if rows.users is None:
        return None
    occurs = np.zeros((size, len(rows.users.names)), dtype=bool)
    occurs[codes, rows.users.codes] = True
    return occurs.sum(axis=1)
