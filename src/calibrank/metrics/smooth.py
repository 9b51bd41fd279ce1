"""Smooth ECE: the calibration error of kernel-smoothed residuals (Błasiok & Nakkiran, 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from calibrank._internal.validation import Floats, Ids, add_up
from calibrank.evidence import Evidence
from calibrank.metrics.metric import Better, Metric

# Residuals are spread over a grid of this many steps, each between its two nearest points. The
# step is far below every bandwidth that is chosen, and a power of two makes the transform fast.
STEPS = 1024

SMOOTH_TOLERANCE = 1e-10
_MOST_STEPS = 60

# Of a Gaussian's transform at bandwidth 1; mirrored residuals repeat with period 2.
EXPONENT = -0.5 * (np.pi * np.arange(STEPS + 1)) ** 2


@dataclass(frozen=True, slots=True)
class SmoothECE(Metric):
    """The mean absolute residual after smoothing over the probability, without bins.

    The kernel is a Gaussian reflected at 0 and 1. Its bandwidth equals the resulting error: the
    one solution of `error(bandwidth) = bandwidth`, so that nothing is chosen.

    >>> round(SmoothECE()([0.2, 0.2, 0.2, 0.2, 0.2], [0, 1, 1, 0, 1]), 3)
    0.4
    """

    better: ClassVar[Better] = Better.LOWER
    explanation: ClassVar[str] = (
        "Smooth ECE: the mean gap between predicted probability and observed rate, averaged with "
        "a kernel instead of bins. The width of the kernel follows from the data, so no number "
        "of bins is chosen."
    )

    def evaluate(
        self,
        probabilities: Floats,
        evidence: Evidence,
        users: Ids | None,
    ) -> float:
        p = probabilities.astype(np.float64)
        residuals = (evidence.positive - evidence.total * p) / evidence.total.sum()
        return _fixed_point(_Smoother(p, residuals))


class _Smoother:
    """The error of residuals as a function of the bandwidth."""

    def __init__(self, probabilities: Floats, residuals: Floats) -> None:
        self._spectrum = np.fft.rfft(mirrored(_spread(probabilities, residuals)))

    def error(self, bandwidth: float) -> float:
        """The integral of the absolute smoothed residuals over [0, 1]."""
        smoothed = np.fft.irfft(self._spectrum * np.exp(EXPONENT * bandwidth**2))
        sizes = np.abs(smoothed[: STEPS + 1])
        # The trapezoidal rule: the ends count half.
        return float(sizes.sum() - (sizes[0] + sizes[-1]) / 2)


def mirrored(spread: Floats) -> Floats:
    """Residuals over the grid, along the last axis, followed by their reflection at 1."""
    spread = spread.copy()
    # A residual at an end is its own mirror image.
    spread[..., [0, -1]] *= 2
    return np.concatenate([spread, spread[..., -2:0:-1]], axis=-1)


def _spread(probabilities: Floats, residuals: Floats) -> Floats:
    """Divide each residual between its two nearest points of the grid."""
    position = probabilities * STEPS
    below = np.minimum(position.astype(np.intp), STEPS - 1)
    share = position - below
    lower = add_up(below, (1 - share) * residuals, STEPS + 1)
    return lower + add_up(below + 1, share * residuals, STEPS + 1)


def _fixed_point(smoother: _Smoother) -> float:
    """Solve `error(bandwidth) = bandwidth`: the error falls with the bandwidth."""
    low = 0.0
    high = 1.0
    above = smoother.error(low)
    below = smoother.error(high) - high
    if below >= 0:
        # Inverse-propensity weights can make residuals larger than any bandwidth.
        return below + high
    # False position. An end that stays for a second step counts half (the Illinois rule), which
    # keeps the bracket from shrinking on one side only.
    was_above = None
    for _ in range(_MOST_STEPS):
        middle = (low * below - high * above) / (below - above)
        value = smoother.error(middle) - middle
        if abs(value) < SMOOTH_TOLERANCE:
            break
        is_above = value > 0
        if is_above:
            low, above = middle, value
            below = below / 2 if was_above is True else below
        else:
            high, below = middle, value
            above = above / 2 if was_above is False else above
        was_above = is_above
    return middle + value
