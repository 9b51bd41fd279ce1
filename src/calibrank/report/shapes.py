"""Scores by class with the densities that were fitted to them, and maps over the raw score."""

from typing import Any

import numpy as np

from calibrank._validation import Floats, add_up
from calibrank.maps import CalibrationMap
from calibrank.report.evaluate import Evaluated
from calibrank.report.ledger import Ledger
from calibrank.report.resampling import Clusters

BINS = 48
POINTS = 121
_TAIL = 0.0005


def score_shapes(ledger: Ledger, main: CalibrationMap, clusters: Clusters) -> dict[str, Any]:
    """Histograms of liked and not liked mass over the score, and two guesses at the densities behind them."""
    evidence = ledger.evidence
    low, high = _ends(ledger)
    edges = np.linspace(low, high, BINS + 1)
    cells = np.clip(((ledger.scores - low) / (high - low) * BINS).astype(np.intp), 0, BINS - 1)
    liked, total = add_up(cells, evidence.positive, BINS), add_up(cells, evidence.total, BINS)
    rest = np.maximum(
        total - liked, 0
    )  # weighted by inverse propensity, a thin bin may fall below nothing
    middles = (edges[1:] + edges[:-1]) / 2
    probability = add_up(cells, evidence.total * main.predict(ledger.scores), BINS)
    width = edges[1] - edges[0]
    positive, everyone = (
        clusters.sums(cells, mass, BINS) for mass in (evidence.positive, evidence.total)
    )
    rates = clusters.ratios(positive, everyone, add_up(cells, None, BINS))
    return {
        "edges": edges,
        "rows": add_up(cells, None, BINS),
        "liked": _density(liked, width),
        "rest": _density(rest, width),
        "map_liked": _density(probability, width),
        "map_rest": _density(np.maximum(total - probability, 0), width),
        "normal_liked": _normal(ledger.scores, evidence.positive, middles),
        "normal_rest": _normal(ledger.scores, evidence.total - evidence.positive, middles),
        "observed": {"value": rates.value, "low": rates.low, "high": rates.high},
    }


def map_curves(ledger: Ledger, methods: list[Evaluated]) -> dict[str, Any]:
    """Every method's map of all rows, with its interval, over the same scores."""
    scores = np.linspace(*_ends(ledger), POINTS)
    curves = {}
    for method in methods:
        if method.fitted is not None:
            low, high = method.fitted.interval(scores)
            curves[method.name] = {"value": method.fitted.predict(scores), "low": low, "high": high}
    return {"scores": scores, "curves": curves}


def parameters(fitted: CalibrationMap) -> dict[str, Any]:
    """What there is to know of a map: its shape in words, its numbers, what it was fitted on."""
    record = fitted.record
    held = (
        " Held up by the rule that a higher score never gets a lower probability."
        if record.at_bound
        else ""
    )
    return {
        "method": fitted.method,
        "rows": record.rows,
        "evidence": record.evidence,
        "rate": record.positive / record.total,
        "description": fitted.description + held,
        "parameters": [
            [name, value, fitted.standard_errors[name]] for name, value in fitted.parameters.items()
        ],
    }


def doubt(fitted: CalibrationMap, scores: Floats) -> dict[str, Any] | None:
    """What a biased log leaves open, where the fit has varied its choices."""
    open_ = fitted.record.sensitivity
    if open_ is None:
        return None
    low, high = fitted.band(scores)
    return {
        "low_rate": open_.low_rate,
        "high_rate": open_.high_rate,
        "choices": [[choice.name, choice.rate, choice.top_rate] for choice in open_.alternatives],
        "low": low,
        "high": high,
    }


def _ends(ledger: Ledger) -> tuple[float, float]:
    """A range that holds nearly all scores: a stray one would squeeze the rest into a corner."""
    low, high = np.quantile(ledger.scores, [_TAIL, 1 - _TAIL]).tolist()
    return (low, high) if low < high else (low - 0.5, high + 0.5)


def _density(mass: Floats, width: float) -> Floats:
    total = mass.sum()
    return mass / (total * width) if total > 0 else mass


def _normal(scores: Floats, mass: Floats, at: Floats) -> Floats:
    total = mass.sum()
    if total <= 0:
        return np.zeros(len(at))
    mean = float(mass @ scores / total)
    variance = float(mass @ (scores - mean) ** 2 / total)
    if variance <= 0:
        return np.zeros(len(at))
    return np.exp(-((at - mean) ** 2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)
