"""Score histograms by class with fitted densities, and map curves over the raw score."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from calibrank._internal.logit import expit
from calibrank._internal.validation import Floats, add_up
from calibrank.maps import CalibrationMap, FitRecord, LevelTerm, describe_range
from calibrank.maps.targets.numpy import NumpyTarget
from calibrank.metrics import Clusters
from calibrank.report.lists import shorten
from calibrank.report.methods import MethodResult
from calibrank.report.rows import Categorical, ReportRows

HISTOGRAM_BINS = 48
CURVE_POINTS = 121

LEVELS_SHOWN = 6
"""Curves of single levels, the largest."""

# The fraction of scores cut off at either end of the axis.
_TAIL = 0.0005


def score_histograms(rows: ReportRows, probabilities: Floats, clusters: Clusters) -> dict[str, Any]:
    """Return densities of the score for positives and negatives, and what the map implies."""
    evidence = rows.evidence
    low, high = _score_range(rows)
    edges = np.linspace(low, high, HISTOGRAM_BINS + 1)
    position = (rows.scores - low) / (high - low) * HISTOGRAM_BINS
    # Scores beyond the axis are counted in the outermost bins.
    bins = np.clip(position.astype(np.intp), 0, HISTOGRAM_BINS - 1)
    rates = clusters.rates(bins, probabilities, evidence, HISTOGRAM_BINS)
    total = rates.mass
    positive = add_up(bins, evidence.positive, HISTOGRAM_BINS)
    by_map = add_up(bins, evidence.total * probabilities, HISTOGRAM_BINS)
    # Inverse-propensity weights can make the positive mass of a bin exceed its total mass.
    masses = {
        "positive": positive,
        "negative": np.maximum(total - positive, 0),
        "positive_by_map": by_map,
        "negative_by_map": np.maximum(total - by_map, 0),
    }
    densities = {name: _density(mass, edges[1] - edges[0]) for name, mass in masses.items()}
    return {"edges": edges, "rows": rates.rows, **densities, "observed": rates.observed._asdict()}


def map_curves(rows: ReportRows, results: list[MethodResult]) -> dict[str, Any]:
    """Return each method's map, fitted on all rows, with its interval over the same scores.

    Of a map with terms this is the average one, and its largest levels have a curve each.
    """
    scores = np.linspace(*_score_range(rows), CURVE_POINTS)
    curves = {}
    for result in results:
        if result.fitted is not None:
            average = result.fitted.without_terms()
            low, high = average.sampling_interval(scores)
            value = average.predict(scores)
            curves[result.name] = {"value": value, "low": low, "high": high}
    main = results[0].fitted
    terms = () if main is None else main.terms
    return {
        "scores": scores,
        "curves": curves,
        "terms": [term.description for term in terms],
        "levels": [] if main is None else _level_curves(rows, main, scores),
    }


def _level_curves(rows: ReportRows, fitted: CalibrationMap, scores: Floats) -> list[dict[str, Any]]:
    """The curves of the levels with the most rows, of the first level of the map."""
    term = next((term for term in fitted.terms if isinstance(term, LevelTerm)), None)
    if term is None:
        return []
    shown = rows.segments[term.columns[0]]
    # A column of many numbers is shown in groups, which are no levels.
    if not isinstance(shown, Categorical):
        return []
    counts = shown.counts()
    alone = replace(fitted, terms=(term,))
    found = []
    for code in np.argsort(-counts, kind="stable")[:LEVELS_SHOWN].tolist():
        node = np.full(len(scores), term.node((shown.names[code],)))
        value = expit(alone.log_odds_on(NumpyTarget(), scores, [node]))
        name = f"{term.columns[0]} {shorten(shown.names[code])}"
        found.append({"name": name, "rows": counts[code], "value": value})
    return found


def parameters(fitted: CalibrationMap) -> dict[str, Any]:
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


def sensitivity_band(fitted: CalibrationMap, scores: Floats) -> dict[str, Any] | None:
    """Return how far the map depends on the propensity model, where alternatives were fitted."""
    sensitivity = fitted.record.sensitivity
    if sensitivity is None:
        return None
    low, high = fitted.band(scores)
    return {
        "base_rates": describe_range(sensitivity),
        "alternatives": [[one.name, one.rate, one.top_rate] for one in sensitivity.alternatives],
        "low": low,
        "high": high,
    }


def _score_range(rows: ReportRows) -> tuple[float, float]:
    """Return limits that contain nearly all scores: one outlier would squeeze all others."""
    low, high = np.quantile(rows.scores, [_TAIL, 1 - _TAIL]).tolist()
    return (low, high) if low < high else (low - 0.5, high + 0.5)


def _density(mass: Floats, width: float) -> Floats:
    total = mass.sum()
    return mass / (total * width) if total > 0 else mass
