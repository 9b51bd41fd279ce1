"""All numbers and texts of a report, as plain data for the page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np

from calibrank._internal.blas import one_blas_thread
from calibrank._internal.logit import logit
from calibrank._internal.segment_keys import Encoded
from calibrank._internal.threads import meanwhile
from calibrank._internal.validation import Floats, add_up, bins_between, row_parts
from calibrank.evidence import Evidence
from calibrank.maps import CalibrationMap, FitRecord
from calibrank.metrics import EqualMass, EqualWidth, Estimate, Metric
from calibrank.metrics.binned import Binning
from calibrank.metrics.calibration_test import MODEL_KINDS, CalibrationTest
from calibrank.metrics.cluster_rates import Clusters
from calibrank.metrics.multicalibration import SegmentSums, adjusted_p_values
from calibrank.metrics.panel import PANEL, PER_LIST, PanelSums, list_estimates
from calibrank.metrics.pooled import Misfit, misfit
from calibrank.report.headline import describe_source, limitations, sentences, verdict
from calibrank.report.rows import MISSING, Categorical, ReportRows
from calibrank.summary import Summary
from calibrank.terms import Level, Smooth, TermSpec

BINNINGS: dict[str, Binning] = {"mass": EqualMass(15), "width": EqualWidth(15)}
# Bins of 2.5 percentage points: narrow enough to show where the predictions are.
PROBABILITY_BINS = 40
LOG_ODDS_LIMIT = 7.0
"""Log odds beyond this (probabilities below 0.1% or above 99.9%) are in the outermost bins."""

SCORE_BINS = 48
CURVE_POINTS = 121
# The fraction of scores cut off at either end of the axis.
_TAIL = 0.0005

# Quintiles: enough to show a trend, few enough for narrow intervals.
QUANTILE_GROUPS = 5
_FOLDS = 5
# Larger numbers are written with an exponent.
_LONGEST_WHOLE = 1e15

MOST_VALUES = 30
"""How many values of a column are shown by name; the others are pooled into one segment."""


LONGEST_NAME = 160

SIGNIFICANT = 0.05
"""Adjusted p-values below this are called miscalibrated."""


Tables: TypeAlias = list[dict[str, Any]]


@one_blas_thread()
def page_data(rows: ReportRows, fitted: CalibrationMap) -> dict[str, Any]:
    """Compute everything that the page shows."""
    evidence = rows.evidence
    probabilities = rows.predict(fitted)
    clusters = Clusters.of(rows.clusters)
    sums = PanelSums(clusters.size)

    def of_sums() -> tuple[dict[str, Estimate], CalibrationTest]:
        sums.add(probabilities, evidence, rows.clusters)
        return sums.estimates(Summary.of(probabilities, evidence)), sums.calibration_test()

    # NumPy works without Python's lock, so the halves share the cores. The other thread has the one
    # with small arrays: there memory of large ones is not used again.
    with meanwhile(of_sums) as other_half:
        of_lists = _of_lists(rows, probabilities)
        shape = _misfit(rows, fitted, probabilities)
        histogram = _histograms(probabilities)
        score_range = _score_range(rows)
        scores = _score_histograms(rows, probabilities, clusters, score_range)
        curves = {
            name: _curve(clusters, probabilities, evidence, binning)
            for name, binning in BINNINGS.items()
        }
        segments = segment_tables(rows, probabilities, clusters)
        lines = sentences(rows, probabilities, clusters)
        estimates, test = other_half()
    estimates |= of_lists
    p_value, identified = test.p_value, rows.base_rate_identified
    return {
        "headline": {
            "sentences": lines,
            "verdict": verdict(estimates, curves, shape, p_value, identified=identified),
            "base_rate_source": describe_source(fitted),
            "limitations": limitations(rows, fitted),
        },
        "misfit": {**shape._asdict(), "matters": shape.matters},
        "estimates": {name: estimate._asdict() for name, estimate in estimates.items()},
        "calibration_test": test._asdict(),
        "curves": curves,
        "metrics": describe_metrics(PANEL),
        "histogram": histogram,
        "scores": scores,
        "map_curve": _map_curve(score_range, fitted),
        "parameters": _parameters(fitted),
        "segments": segments,
        "segment_test": segment_test(segments, rows, fitted),
    }


def _of_lists(rows: ReportRows, probabilities: Floats) -> dict[str, Estimate]:
    """The metrics of each user's list; none without two users and a positive."""
    evidence = rows.evidence
    if rows.users is None or not evidence.positive.any():
        return {}
    counted = add_up(rows.users.codes, evidence.total)
    if np.count_nonzero(counted) < 2:
        return {}
    return list_estimates(probabilities, evidence, rows.users.codes, PER_LIST)


def _curve(
    clusters: Clusters, probabilities: Floats, evidence: Evidence, binning: Binning
) -> dict[str, Any]:
    """Return a reliability curve with its 95% interval, one point per nonempty bin."""
    bins = binning.bin_indices(probabilities, evidence)
    rates = clusters.rates(bins, probabilities, evidence, int(bins.max()) + 1)
    filled = rates.mass > 0
    columns = {
        "predicted": rates.predicted,
        "observed": rates.observed.value,
        "low": rates.observed.low,
        "high": rates.observed.high,
        "rows": rates.rows,
        "mass": rates.mass,
    }
    return {name: column[filled] for name, column in columns.items()}


def _misfit(rows: ReportRows, fitted: CalibrationMap, probabilities: Floats) -> Misfit:
    """The distance from isotonic regression on the score, or on the probability with terms."""
    if fitted.terms:
        summary = Summary.of(probabilities, rows.evidence)
        # The mean of a bin can leave [0, 1] by rounding.
        return misfit(np.clip(summary.scores, 0, 1), summary)
    summary = Summary.of(rows.scores, rows.evidence)
    return misfit(fitted.predict(summary.scores), summary)


def describe_metrics(metrics: Iterable[Metric]) -> dict[str, str]:
    """Return each metric's explanation and direction by name, as the metric itself states them.

    >>> from calibrank.metrics import Recall
    >>> describe_metrics([Recall(5)])["Recall@5"][-17:]
    'Higher is better.'
    """
    return {
        metric.name: f"{metric.explanation} {metric.better.value.capitalize()}."
        for metric in metrics
    }


def _histograms(probabilities: Floats) -> dict[str, Any]:
    """Count rows by predicted probability, in equal steps of probability and of log odds."""
    limits = (-LOG_ODDS_LIMIT, LOG_ODDS_LIMIT)
    linear, of_log_odds = np.zeros((2, PROBABILITY_BINS), dtype=np.intp)
    for part in row_parts(len(probabilities)):
        log_odds = np.clip(logit(probabilities[part]), *limits)
        linear += np.histogram(probabilities[part], PROBABILITY_BINS, (0, 1))[0]
        of_log_odds += np.histogram(log_odds, PROBABILITY_BINS, limits)[0]
    return {
        "bins": PROBABILITY_BINS,
        "log_odds_limit": LOG_ODDS_LIMIT,
        "linear": linear,
        "logit": of_log_odds,
    }


def _score_histograms(
    rows: ReportRows, probabilities: Floats, clusters: Clusters, score_range: tuple[float, float]
) -> dict[str, Any]:
    """Return densities of the score for positives and negatives, and the observed rates."""
    evidence = rows.evidence
    low, high = score_range
    edges = np.linspace(low, high, SCORE_BINS + 1)
    bins = np.empty(len(rows), dtype=np.intp)
    for part in row_parts(len(rows)):
        position = (rows.scores[part] - low) / (high - low) * SCORE_BINS
        # Scores beyond the axis are counted in the outermost bins.
        bins[part] = np.clip(position.astype(np.intp), 0, SCORE_BINS - 1)
    rates = clusters.rates(bins, probabilities, evidence, SCORE_BINS)
    positive = add_up(bins, evidence.positive, SCORE_BINS)
    # Inverse-propensity weights can make the positive mass of a bin exceed its total mass.
    masses = {"positive": positive, "negative": np.maximum(rates.mass - positive, 0)}
    width = edges[1] - edges[0]
    densities = {name: mass / max(mass.sum() * width, 1e-300) for name, mass in masses.items()}
    return {"edges": edges, "rows": rates.rows, **densities, "observed": rates.observed._asdict()}


def _score_range(rows: ReportRows) -> tuple[float, float]:
    """Return limits that contain nearly all scores: one outlier would squeeze all others."""
    low, high = np.quantile(rows.scores, [_TAIL, 1 - _TAIL]).tolist()
    return (low, high) if low < high else (low - 0.5, high + 0.5)


def _map_curve(score_range: tuple[float, float], fitted: CalibrationMap) -> dict[str, Any]:
    """Return the map with its interval over the scores; of a map with terms the average one."""
    scores = np.linspace(*score_range, CURVE_POINTS)
    average = fitted.without_terms()
    low, high = average.sampling_interval(scores)
    terms = [term.description for term in fitted.terms]
    return {
        "scores": scores,
        "value": average.predict(scores),
        "low": low,
        "high": high,
        "terms": terms,
    }


def _parameters(fitted: CalibrationMap) -> dict[str, Any]:
    """Return a map's description, its parameters and what it was fitted on."""
    record = fitted.record
    description = fitted.description
    if record.at_bound:
        description += (
            " Constrained by the rule that a higher score never gets a lower probability."
        )
    errors = fitted.standard_errors
    return {
        "method": fitted.method,
        "rows": record.rows,
        "evidence": record.evidence,
        "rate": _rate(record),
        "description": description,
        "parameters": [[name, value, errors[name]] for name, value in fitted.parameters.items()],
    }


def _rate(record: FitRecord) -> float:
    """The base rate that the map has: not that of the log, where it was anchored or moved."""
    if record.anchoring is not None and record.anchoring.rate is not None:
        return record.anchoring.rate
    return record.positive / record.total if record.base_rate is None else record.base_rate


def segment_tables(
    rows: ReportRows, probabilities: Floats, clusters: Clusters
) -> list[dict[str, Any]]:
    """Return one table per column, the one with the worst segment first."""
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
    adjusted = adjusted_p_values(statistics, is_estimated=rows.evidence.kind not in MODEL_KINDS)
    for (title, note, categories), p_values in zip(columns, adjusted, strict=True):
        smaller = np.minimum(*np.split(p_values, 2))
        segments = _evaluate_segments(rows, probabilities, clusters, categories, smaller)
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
    folds = rows.partition(_FOLDS)
    liked = (rows.evidence.positive > 0).astype(np.float64)
    places = items.codes * _FOLDS + folds
    likes = add_up(places, liked, len(items.names) * _FOLDS).reshape(-1, _FOLDS)
    return likes.sum(axis=1)[items.codes] - likes[items.codes, folds]


def _quantile_groups(values: Floats, unit: str) -> Categorical:
    """Group values at their quintiles; equal values share a group, NaN has its own."""
    missing = np.isnan(values)
    known = np.sort(values[~missing])
    quantiles = np.arange(1, QUANTILE_GROUPS) / QUANTILE_GROUPS
    # Values that occur: no edge lies between equal ones.
    places = np.ceil(quantiles * (len(known) - 1)).astype(np.intp)
    edges = np.unique(known[places]) if len(known) else known
    codes = bins_between(edges, values)
    groups = np.split(known, np.searchsorted(known, edges))
    names = [_range_name(group, unit) if len(group) else "" for group in groups]
    codes = np.where(missing, len(names), codes).astype(np.intp)
    return Categorical(codes, [*names, MISSING])


def _range_name(ordered: Floats, unit: str) -> str:
    low, high = _number(ordered[0]), _number(ordered[-1])
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
    segments = []
    for code in np.flatnonzero(rates.mass > 0).tolist():
        segment = {
            "name": _shorten(categories.names[code]),
            "rows": int(rates.rows[code]),
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


def _shorten(name: str) -> str:
    """Cut a name that is longer than a line or two, visibly."""
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"
