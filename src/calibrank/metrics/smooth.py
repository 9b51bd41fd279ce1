"""Smooth ECE: the calibration error of kernel-smoothed residuals (Błasiok & Nakkiran, 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from calibrank._internal.validation import Floats, add_up
from calibrank.metrics.metric import Better
from calibrank.metrics.pooled import Pooled, PooledBins

Spectra = npt.NDArray[np.complex128]

# Residuals are spread over a grid of this many steps, each between its two nearest points. The
# step is far below every bandwidth that is chosen, and a power of two makes the transform fast.
_STEPS = 1024

_TOLERANCE = 1e-10
# Steps of the false position method; about three are needed from a good start.
_MOST_BANDWIDTHS = 60
# Resamples transformed at once: their spectra stay in cache.
_BLOCK = 64

# Of a Gaussian's transform at bandwidth 1; mirrored residuals repeat with period 2.
_EXPONENT = -0.5 * (np.pi * np.arange(_STEPS + 1)) ** 2
# Beyond this frequency, divided by the bandwidth, the transform is below exp(-50).
_DAMPED = 10 / np.pi


@dataclass(frozen=True, slots=True)
class SmoothECE(Pooled):
    """Smooth ECE: the mean gap between predicted probability and observed rate, without bins.

    It is averaged with a kernel, whose width follows from the data, so no number of bins is chosen.

    The kernel is a Gaussian reflected at 0 and 1. Its bandwidth equals the resulting error: the
    one solution of `error(bandwidth) = bandwidth`, so that nothing is chosen.

    >>> round(SmoothECE()([0.2, 0.2, 0.2, 0.2, 0.2], [0, 1, 1, 0, 1]), 3)
    0.4
    """

    better: ClassVar[Better] = Better.LOWER
    noise_adds: ClassVar[bool] = True

    def evaluate_all(self, bins: PooledBins) -> Floats:
        residuals = (bins.positive - bins.total * bins.probabilities) / bins.mass
        return self.errors(residuals, bins.probabilities, bins.total)

    def errors(self, residuals: Floats, probabilities: Floats, weights: Floats) -> Floats:
        probabilities = np.broadcast_to(probabilities, residuals.shape)
        # A start for all, from the mean of the resamples.
        start = 1.0
        if len(residuals) > 1:
            start = float(self.errors(residuals.mean(axis=0)[None], probabilities[:1], weights)[0])
        found = []
        for first in range(0, len(residuals), _BLOCK):
            block = slice(first, first + _BLOCK)
            spread = _spread(probabilities[block], residuals[block])
            found.append(_fixed_points(np.fft.rfft(_mirrored(spread)), start))
        return np.concatenate(found)


def _spread(probabilities: Floats, residuals: Floats) -> Floats:
    """Divide each residual between its two nearest points of the grid of its resample."""
    rows, points = len(probabilities), _STEPS + 1
    position = probabilities * _STEPS
    below = np.minimum(position.astype(np.intp), _STEPS - 1)
    share = position - below
    places = (below + points * np.arange(rows)[:, None]).ravel()
    lower = add_up(places, ((1 - share) * residuals).ravel(), rows * points)
    upper = add_up(places + 1, (share * residuals).ravel(), rows * points)
    return (lower + upper).reshape(rows, points)


def _mirrored(spread: Floats) -> Floats:
    """Residuals over the grid, along the last axis, followed by their reflection at 1."""
    # A residual at an end is its own mirror image.
    spread[..., [0, -1]] *= 2
    return np.concatenate([spread, spread[..., -2:0:-1]], axis=-1)


def _errors(spectra: Spectra, bandwidths: Floats) -> Floats:
    """The integral of the absolute smoothed residuals over [0, 1], each row with its bandwidth."""
    # Higher frequencies are damped below rounding; the inverse transform fills them with zeros.
    narrowest = max(float(bandwidths.min()), 1e-9)
    kept = 1 + min(_STEPS, int(np.ceil(_DAMPED / narrowest)))
    damping = np.exp(_EXPONENT[:kept] * bandwidths[:, None] ** 2)
    smoothed = np.fft.irfft(spectra[:, :kept] * damping, 2 * _STEPS)
    sizes = np.abs(smoothed[:, : _STEPS + 1])
    # The trapezoidal rule: the ends count half.
    return np.asarray(sizes.sum(axis=1) - (sizes[:, 0] + sizes[:, -1]) / 2)


def _fixed_points(spectra: Spectra, start: float) -> Floats:
    """Solve `error(bandwidth) = bandwidth` for each row by false position.

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
    active = np.flatnonzero((above > _TOLERANCE) & (below < -_TOLERANCE))
    result[above <= _TOLERANCE] = (low + above)[above <= _TOLERANCE]
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
        # An end that stays for a second step counts half (the Illinois rule), which keeps the
        # bracket from shrinking on one side only.
        below[up] = np.where(was_above[up] > 0, below[up] / 2, below[up])
        above[down] = np.where(was_above[down] < 0, above[down] / 2, above[down])
        low[up], above[up] = middle[is_above], value[is_above]
        high[down], below[down] = middle[~is_above], value[~is_above]
        was_above[up], was_above[down] = 1, -1
        active = active[np.abs(value) >= _TOLERANCE]
    return result
