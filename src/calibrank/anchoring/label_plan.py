"""Plan how many random labels to collect, by simulation.

True curves are drawn from the sensitivity band of a fit, random labels are drawn from each curve,
the fit is anchored on them, and the error against the true curve is averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from calibrank._internal.arguments import instance, seeded, whole, whole_numbers
from calibrank._internal.logit import expit
from calibrank._internal.validation import Floats, Numbers, score_column
from calibrank.anchoring.anchor import anchor
from calibrank.errors import DataError
from calibrank.maps import CalibrationMap, Sensitivity

SIZES = (0, 30, 100, 300, 1_000, 3_000)
# Scores: each is predicted for every draw and size.
_MAX_POPULATION = 2_000
# Each draw anchors a map; more draws, or more labels than anyone collects, only take time.
_MOST_DRAWS = 10_000
_MOST_LABELS = 10**7
# Where the band reaches probability 1, that is a bound and not a plausible truth.
_HIGHEST_LOG_ODDS = 3.0


class ExpectedError(NamedTuple):
    """The expected error after anchoring on a number of labels of randomly shown pairs."""

    labels: int
    error: float
    """Mean absolute difference of predicted and true probabilities: an ECE without bins."""


def plan_labels(
    fitted: CalibrationMap,
    population: Numbers,
    sizes: Sequence[int] = SIZES,
    draws: int = 10,
    seed: int | np.random.Generator = 0,
) -> list[ExpectedError]:
    """Estimate how the expected error decreases with the number of random labels.

    True curves are drawn from the map's sensitivity band, so the map must have one
    (`fit_with_sensitivity`). They have the shape that the log says: where it is wrong, few labels
    leave more error than planned (0.07 to 0.09 after 30 labels where 0.05 to 0.06 was planned, on
    rankers of randomly exposed datasets). `population` holds scores of the pairs that probabilities
    are wanted for.

    >>> from calibrank import Platt, fit_with_sensitivity
    >>> rng = np.random.default_rng(0)
    >>> scores, exposure = rng.normal(size=2000), rng.uniform(0.2, 1, 2000)
    >>> labels = rng.random(2000) < exposure * 0.3 / (1 + np.exp(-scores))
    >>> fitted = fit_with_sensitivity(Platt(), scores, labels, exposure)
    >>> without, few = plan_labels(fitted, scores, sizes=(0, 300), draws=5)
    >>> few.error < without.error
    True
    """
    instance("fitted", fitted, CalibrationMap, "Fit one, or read one with calibrank.load.")
    band = fitted.record.sensitivity
    if band is None:
        raise DataError(
            "the map to plan for",
            "carry a sensitivity band",
            got=f"a {fitted.method} without",
            remedy="Use fit_with_sensitivity.",
        )
    draws = whole("draws", draws, 1, _MOST_DRAWS)
    sizes = whole_numbers("sizes", sizes, 0, _MOST_LABELS, "E.g. (0, 300).")
    rng = seeded(seed)
    scores = score_column(population, "population")[0].astype(np.float64)
    step = max(1, len(scores) // _MAX_POPULATION)
    scores = scores[::step]
    # The same true curves for all sizes, so that the errors are comparable.
    truths = _true_curves(band, scores, draws)
    plan = []
    for size in sizes:
        errors = [_error_after(fitted, scores, truth, size, rng) for truth in truths]
        plan.append(ExpectedError(size, float(np.mean(errors))))
    return plan


def _true_curves(band: Sensitivity, scores: Floats, count: int) -> list[Floats]:
    """Evenly spaced curves of probabilities from the lower to the upper end of the band."""
    band_low = np.minimum(band.low, _HIGHEST_LOG_ODDS)
    band_high = np.minimum(band.high, _HIGHEST_LOG_ODDS)
    low = np.interp(scores, band.scores, band_low)
    high = np.interp(scores, band.scores, band_high)
    fractions = (np.arange(count) + 0.5) / count
    return [expit(low + fraction * (high - low)) for fraction in fractions]


def _error_after(
    fitted: CalibrationMap, scores: Floats, truth: Floats, size: int, rng: np.random.Generator
) -> float:
    """The error of the map after anchoring on `size` labels drawn from the true curve."""
    anchored = fitted
    if size:
        pairs = rng.integers(len(scores), size=size)
        labels = (rng.random(size) < truth[pairs]).astype(np.float64)
        anchored = anchor(fitted, scores[pairs], labels, population=scores)
    return float(np.abs(anchored.predict(scores) - truth).mean())
