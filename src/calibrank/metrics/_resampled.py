"""The binned metrics of many resamples at once: one pass over arrays instead of one per resample.

Each row is a resample, each column a bin of log odds. The results are those of `SmoothECE`,
`fit_recalibration` and `decompose_sums`, row by row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from calibrank._internal.isotonic import pool_adjacent_violators
from calibrank._internal.logit import expit, logit
from calibrank._internal.validation import Floats, Mask, add_up, starts_of
from calibrank.metrics.recalibration import (
    CLIP,
    CLOSE,
    LARGEST,
    LEAST_VARIANCE,
    MOST_STEPS,
    RIDGE,
    TOLERANCE,
    Recalibration,
)
from calibrank.metrics.smooth import EXPONENT, SMOOTH_TOLERANCE, STEPS, mirrored

Spectra = npt.NDArray[np.complex128]

# Steps of the false position method; about three are needed.
_MOST_BANDWIDTHS = 60


class PooledBins(NamedTuple):
    """The masses of bins, resamples x bins; a bin without rows has mass 0 and any probability."""

    probabilities: Floats
    positive: Floats
    total: Floats

    @classmethod
    def of(cls, sums: Floats) -> PooledBins:
        """From summed terms, resamples x terms x bins."""
        positive, total, predicted = sums.transpose(1, 0, 2)
        means = np.divide(predicted, total, out=np.full_like(total, 0.5), where=total > 0)
        # Rounding can move the mean of probabilities outside [0, 1].
        return cls(np.clip(means, 0, 1), positive, total)

    @property
    def mass(self) -> Floats:
        """The total of each resample, as a column."""
        return self.total.sum(axis=1, keepdims=True)


# ----- smooth ECE -----
def smooth_eces(bins: PooledBins, start: float) -> Floats:
    """The smooth ECE of each resample; `start` is that of all rows."""
    residuals = (bins.positive - bins.total * bins.probabilities) / bins.mass
    spectra = np.fft.rfft(mirrored(_spread(bins.probabilities, residuals)))
    return _fixed_points(spectra, start)


def _spread(probabilities: Floats, residuals: Floats) -> Floats:
    """Divide each residual between its two nearest points of the grid of its resample."""
    rows, points = len(probabilities), STEPS + 1
    position = probabilities * STEPS
    below = np.minimum(position.astype(np.intp), STEPS - 1)
    share = position - below
    places = (below + points * np.arange(rows)[:, None]).ravel()
    lower = add_up(places, ((1 - share) * residuals).ravel(), rows * points)
    upper = add_up(places + 1, (share * residuals).ravel(), rows * points)
    return (lower + upper).reshape(rows, points)


def _errors(spectra: Spectra, bandwidths: Floats) -> Floats:
    """The integral of the absolute smoothed residuals, each row with its own bandwidth."""
    smoothed = np.fft.irfft(spectra * np.exp(EXPONENT * bandwidths[:, None] ** 2))
    sizes = np.abs(smoothed[:, : STEPS + 1])
    # The trapezoidal rule: the ends count half.
    return np.asarray(sizes.sum(axis=1) - (sizes[:, 0] + sizes[:, -1]) / 2)


def _fixed_points(spectra: Spectra, start: float) -> Floats:
    """Solve `error(bandwidth) = bandwidth` for each row, by the method of `SmoothECE`.

    The error falls with the bandwidth, so the solution lies between any bandwidth and its error.
    """
    guess = np.full(len(spectra), start)
    error = _errors(spectra, guess)
    other = np.minimum(error, 1.0)
    at_other = _errors(spectra, other) - other
    rising = error > guess
    low, high = np.where(rising, guess, other), np.where(rising, other, guess)
    above = np.where(rising, error - guess, at_other)
    below = np.where(rising, at_other, error - guess)
    # Inverse-propensity weights can make residuals larger than any bandwidth.
    result = high + below
    active = np.flatnonzero((above > SMOOTH_TOLERANCE) & (below < -SMOOTH_TOLERANCE))
    result[above <= SMOOTH_TOLERANCE] = (low + above)[above <= SMOOTH_TOLERANCE]
    was_above = np.zeros(len(spectra), dtype=np.int8)
    for _ in range(_MOST_BANDWIDTHS):
        if not len(active):
            break
        a, b = above[active], below[active]
        middle = (low[active] * b - high[active] * a) / (b - a)
        value = _errors(spectra[active], middle) - middle
        result[active] = middle + value
        is_above = value > 0
        up, down = active[is_above], active[~is_above]
        # An end that stays for a second step counts half.
        below[up] = np.where(was_above[up] > 0, below[up] / 2, below[up])
        above[down] = np.where(was_above[down] < 0, above[down] / 2, above[down])
        low[up], above[up] = middle[is_above], value[is_above]
        high[down], below[down] = middle[~is_above], value[~is_above]
        was_above[up], was_above[down] = 1, -1
        active = active[np.abs(value) >= SMOOTH_TOLERANCE]
    return result


# ----- slope and intercept -----
class _Losses(NamedTuple):
    """The loss of `fit_recalibration` for each resample, with coefficients in columns."""

    log_odds: Floats
    positive: Floats
    total: Floats
    ridge: Floats

    @classmethod
    def of(cls, bins: PooledBins) -> _Losses:
        log_odds = logit(np.clip(bins.probabilities, CLIP, 1 - CLIP))
        mass = bins.mass
        rate = np.clip(bins.positive.sum(axis=1) / mass[:, 0], 0, 1)
        ridge = RIDGE * np.maximum(rate * (1 - rate), LEAST_VARIANCE)
        return cls(log_odds, bins.positive / mass, bins.total / mass, ridge)

    def values(self, slope: Floats, intercept: Floats) -> Floats:
        z = slope[:, None] * self.log_odds + intercept[:, None]
        softplus = np.maximum(z, 0) + np.log1p(np.exp(-np.abs(z)))
        losses = (self.total * softplus - self.positive * z).sum(axis=1)
        return np.asarray(losses + self.ridge / 2 * ((slope - 1) ** 2 + intercept**2))

    def derivatives(self, slope: Floats, intercept: Floats) -> tuple[Floats, Floats]:
        """Gradients, resamples x 2, and the entries (0, 0), (0, 1) and (1, 1) of the Hessians."""
        p = expit(slope[:, None] * self.log_odds + intercept[:, None])
        residuals = self.total * p - self.positive
        weights = self.total * p * (1 - p)
        weighted = weights * self.log_odds
        by_slope = (residuals * self.log_odds).sum(axis=1) + self.ridge * (slope - 1)
        by_intercept = residuals.sum(axis=1) + self.ridge * intercept
        entries = [
            (weighted * self.log_odds).sum(axis=1) + self.ridge,
            weighted.sum(axis=1),
            weights.sum(axis=1) + self.ridge,
        ]
        return np.column_stack([by_slope, by_intercept]), np.array(entries)


def fit_recalibrations(bins: PooledBins, start: Recalibration) -> tuple[Floats, Floats]:
    """The slope and intercept of each resample, by the method of `fit_recalibration`."""
    losses = _Losses.of(bins)
    slope = np.full(len(bins.total), start.slope)
    intercept = np.full(len(bins.total), start.intercept)
    for _ in range(MOST_STEPS):
        gradient, (first, mixed, second) = losses.derivatives(slope, intercept)
        moving = np.abs(gradient).max(axis=1) > TOLERANCE
        if not moving.any():
            break
        determinant = first * second - mixed**2
        steps = np.column_stack(
            [
                second * gradient[:, 0] - mixed * gradient[:, 1],
                first * gradient[:, 1] - mixed * gradient[:, 0],
            ]
        )
        steps *= (moving / determinant)[:, None]
        # So close to the optimum full steps converge, and rounding hides their gain.
        is_close = (gradient * steps).sum(axis=1) <= CLOSE * losses.ridge
        steps = _shorten(losses, slope, intercept, steps, moving & ~is_close)
        slope, intercept = slope - steps[:, 0], intercept - steps[:, 1]
    return np.clip(slope, -LARGEST, LARGEST), np.clip(intercept, -LARGEST, LARGEST)


def _shorten(
    losses: _Losses, slope: Floats, intercept: Floats, steps: Floats, checked: Mask
) -> Floats:
    """Halve the checked steps until no loss rises."""
    if not checked.any():
        return steps
    before = losses.values(slope, intercept)
    while True:
        after = losses.values(slope - steps[:, 0], intercept - steps[:, 1])
        rising = checked & (after > before)
        if not rising.any():
            return steps
        steps = np.where(rising[:, None], steps / 2, steps)


# ----- the parts of the Brier score -----
def decompose_brier(bins: PooledBins) -> tuple[Floats, Floats]:
    """Miscalibration and discrimination of the Brier score of each resample."""
    p, positive, total = bins
    mass = total.sum(axis=1)
    as_given = (positive * (1 - 2 * p) + total * p**2).sum(axis=1) / mass
    positives = positive.sum(axis=1)
    # Inverse-propensity weights can push the rate above 1, which no proper score accepts.
    rate = np.clip(positives / mass, 0, 1)
    constant = (positives * (1 - 2 * rate) + mass * rate**2) / mass
    best = _isotonic_briers(positive, total)
    return as_given - best, constant - best


def _isotonic_briers(positive: Floats, total: Floats) -> Floats:
    """The Brier score of each resample after isotonic regression of its bins."""
    filled = total > 0
    # The bins of all resamples in one array, which is fitted once: a call per resample takes
    # longer than its sums.
    resample = np.nonzero(filled)[0]
    positive, total = positive[filled], total[filled]
    starts, values = pool_adjacent_violators(positive, total, starts_of(resample))
    positives = np.add.reduceat(positive, starts)
    masses = np.add.reduceat(total, starts)
    losses = positives * (1 - 2 * values) + masses * values**2
    size = len(filled)
    block = resample[starts]
    return add_up(block, losses, size) / add_up(block, masses, size)
