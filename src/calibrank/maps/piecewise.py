"""Curves of pieces: lines between knots (Spline, anchored), steps (Isotonic, BBQ), and MinMax."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from statistics import NormalDist
from typing import Any, ClassVar, Self

import numpy as np

from calibrank._internal.logit import expit, logit
from calibrank._internal.validation import Floats
from calibrank.maps._program import Kind, pack, pack_lines, pack_steps
from calibrank.maps.checks import (
    require,
    require_increasing,
    require_none_negative,
    require_range,
    require_sizes,
    scaled,
)
from calibrank.maps.curve import Curve, Ends
from calibrank.maps.targets.numpy import NumpyTarget
from calibrank.maps.targets.target import Lines, Target, broken_line

MOST_KNOTS = 1000
"""Knots that a curve may have: enough for any smooth one, and SQL engines still parse it."""
# A step at 0 or 1 has infinite log odds, which no segment could change.
_SMALLEST_PROBABILITY = 1e-12


@dataclass(frozen=True, slots=True, repr=False)
class PiecewiseCurve(Curve):
    """Log odds `values[k]` at `knots[k]`, linear between knots and straight beyond the outer ones.

    `end_slopes` are the slopes below the first and above the last knot. Neither the values nor the
    slopes may decrease, so the curve never reverses an order. `value_errors` are the standard
    errors of `values`, `slope_errors` those of `end_slopes`.
    """

    kind: ClassVar[str] = "piecewise"

    knots: tuple[float, ...]
    values: tuple[float, ...]
    end_slopes: tuple[float, float]
    value_errors: tuple[float, ...]
    slope_errors: tuple[float, float]

    def __post_init__(self) -> None:
        count = len(self.knots)
        require(1 <= count <= MOST_KNOTS, "knots", f"be 1 to {MOST_KNOTS}", count)
        require_sizes("values and value_errors", count, self.values, self.value_errors)
        require_sizes("end_slopes and slope_errors", 2, self.end_slopes, self.slope_errors)
        require_increasing("knots", self.knots)
        never_falls = all(low <= high for low, high in pairwise(self.values))
        require(never_falls, "values", "not decrease")
        require_none_negative("end_slopes", self.end_slopes)
        require_none_negative("standard errors", self.slope_errors + self.value_errors)

    @property
    def description(self) -> str:
        low, high = self.span
        return (
            f"Log odds linear between {len(self.knots):,} knots "
            f"from {low:.4g} to {high:.4g}, straight lines beyond."
        )

    @property
    def breakpoints(self) -> tuple[float, ...]:
        return self.knots

    @property
    def span(self) -> tuple[float, float]:
        low, high = self.knots[0], self.knots[-1]
        # A single knot has no width: half a unit on either side shows the slopes.
        return (low, high) if low < high else (low - 0.5, high + 0.5)

    @property
    def largest_term(self) -> float:
        return max(abs(self.values[0]), abs(self.values[-1]))

    def log_odds_on(self, target: Target, score: Any) -> Any:
        """The log odds as an expression of the target."""
        return target.lines(score, self.knots, self._lines)

    def _compile(self) -> bytes:
        return pack_lines(self.knots, self.values, self._lines[2])

    @cached_property
    def _lines(self) -> Lines:
        """Origin, value and slope of each segment."""
        return broken_line(self.knots, self.values, self.end_slopes)

    def margins(self, scores: Floats, level: float) -> Ends:
        """Normal intervals of the log odds, as far as an increasing curve can be.

        The upper end at a higher score bounds the curve here too, and so does a lower end below.
        """
        quantile = -NormalDist().inv_cdf((1 - level) / 2)
        middle = self.log_odds(scores)
        margin = quantile * self.errors_at(scores)
        values, reach = np.array(self.values), quantile * np.array(self.value_errors)
        lowest = np.minimum.accumulate((values + reach)[::-1])[::-1]
        highest = np.maximum.accumulate(values - reach)
        after = np.searchsorted(self.knots, scores, side="left")
        before = np.searchsorted(self.knots, scores, side="right")
        high = np.minimum(middle + margin, np.append(lowest, np.inf)[after])
        low = np.maximum(middle - margin, np.insert(highest, 0, -np.inf)[before])
        return middle - low, high - middle

    def errors_at(self, scores: Floats) -> Floats:
        """Standard errors of the log odds.

        The standard error of a weighted mean of two values is at most the weighted mean of their
        standard errors, so interpolating standard errors never makes an interval too narrow.
        """
        outside_low = np.maximum(self.knots[0] - scores, 0)
        outside_high = np.maximum(scores - self.knots[-1], 0)
        error: Floats = np.interp(scores, self.knots, self.value_errors)
        error += self.slope_errors[0] * outside_low + self.slope_errors[1] * outside_high
        return error

    def moved(self, shift: float, slope: float = 1.0) -> Self:
        """The curve with its values, slopes and standard errors changed."""
        below, above = scaled(self.end_slopes, slope)
        error_below, error_above = scaled(self.slope_errors, slope)
        return replace(
            self,
            values=tuple(slope * value + shift for value in self.values),
            end_slopes=(below, above),
            value_errors=scaled(self.value_errors, slope),
            slope_errors=(error_below, error_above),
        )


@dataclass(frozen=True, slots=True, repr=False)
class StepCurve(Curve):
    """Probability `values[k]` from `edges[k - 1]` up to `edges[k]`.

    `effective_rows[k]` is the effective sample size of step k.

    Intervals are Jeffreys intervals for that many rows. Steps chosen by the data (Isotonic, BBQ)
    are more uncertain than that: their intervals are lower bounds of the true width.
    """

    kind: ClassVar[str] = "step"

    edges: tuple[float, ...]
    values: tuple[float, ...]
    effective_rows: tuple[float, ...]

    def __post_init__(self) -> None:
        steps = len(self.edges) + 1
        require_sizes("values and effective_rows", steps, self.values, self.effective_rows)
        require_increasing("edges", self.edges)
        are_rates = all(0 <= value <= 1 for value in self.values)
        found = f"{min(self.values)} to {max(self.values)}"
        require(are_rates, "values", "lie in [0, 1]", found)
        require_none_negative("effective_rows", self.effective_rows)

    @property
    def description(self) -> str:
        return f"{len(self.values):,} steps, from {min(self.values):.4f} to {max(self.values):.4f}."

    @property
    def breakpoints(self) -> tuple[float, ...]:
        return self.edges

    @property
    def span(self) -> tuple[float, float]:
        # The first and the last step are beyond the outer edges: a tenth more shows them too.
        edges = self.edges or (0.0, 1.0)
        margin = (edges[-1] - edges[0]) / 10 or 1.0
        return edges[0] - margin, edges[-1] + margin

    @property
    def narrowest(self) -> float:
        return np.inf  # scores are compared with edges, and nothing is divided

    def on(self, target: Target, score: Any) -> Any:
        return target.steps(score, self.edges, self.values)

    def log_odds(self, scores: Floats) -> Floats:
        return logit(self.probabilities(scores))

    def _compile(self) -> bytes:
        return pack_steps(self.edges, self.values)

    def log_odds_on(self, target: Target, score: Any) -> Any:
        """The log odds as an expression of the target; they stay finite for steps at 0 and 1."""
        return target.steps(score, self.edges, self._finite_log_odds.tolist())

    @property
    def _finite_log_odds(self) -> Floats:
        return _finite_logit(np.array(self.values))

    def moved(self, shift: float, slope: float = 1.0) -> Self:
        """The curve with its steps changed; those at 0 and 1 are so within 1e-12."""
        return replace(self, values=tuple(expit(slope * self._finite_log_odds + shift).tolist()))

    def interval_ends(self, scores: Floats, level: float) -> Ends:
        """Jeffreys intervals: quantiles of the posterior under a Beta(1/2, 1/2) prior."""
        # Slow to load, and only intervals need it.
        from scipy.special import betaincinv  # noqa: PLC0415  (slow to load)

        edges, all_values, all_rows = self._arrays
        # Of these steps alone: a block of scores meets few of many.
        used, step = np.unique(np.searchsorted(edges, scores, side="right"), return_inverse=True)
        values, effective_rows = all_values[used], all_rows[used]
        positives = values * effective_rows + 0.5
        negatives = (1 - values) * effective_rows + 0.5
        # The posterior quantiles can leave out a value of 0 or 1: the interval contains the value.
        low = np.minimum(betaincinv(positives, negatives, (1 - level) / 2), values)
        high = np.maximum(betaincinv(positives, negatives, (1 + level) / 2), values)
        return low[step], high[step]

    def margins(self, scores: Floats, level: float) -> Ends:
        low, high = self.interval_ends(scores, level)
        middle: Floats = self.log_odds_on(NumpyTarget(), scores)
        below, above = middle - _finite_logit(low), _finite_logit(high) - middle
        return np.maximum(below, 0), np.maximum(above, 0)

    @cached_property
    def _arrays(self) -> tuple[Floats, Floats, Floats]:
        return np.array(self.edges), np.array(self.values), np.array(self.effective_rows)


def _finite_logit(probabilities: Floats) -> Floats:
    bounded = np.clip(probabilities, _SMALLEST_PROBABILITY, 1 - _SMALLEST_PROBABILITY)
    return logit(bounded)


@dataclass(frozen=True, slots=True, repr=False)
class RescaleCurve(Curve):
    """0 at low, 1 at high, a straight line between.

    It estimates nothing, so its intervals have no width.
    """

    kind: ClassVar[str] = "rescale"

    low: float
    high: float

    def __post_init__(self) -> None:
        require_range(self.low, self.high)

    @property
    def description(self) -> str:
        return f"A straight line from 0 at {self.low:.4g} to 1 at {self.high:.4g}: no calibration."

    @property
    def breakpoints(self) -> tuple[float, ...]:
        return self.low, self.high

    def on(self, target: Target, score: Any) -> Any:
        position = target.place(score, self.low, self.high - self.low)
        return target.maximum(target.minimum(position, 1.0), 0.0)

    def log_odds(self, scores: Floats) -> Floats:
        return logit(self.probabilities(scores))

    def _compile(self) -> bytes:
        return pack(Kind.RESCALE, self.low, self.high - self.low)

    def interval_ends(self, scores: Floats, level: float) -> Ends:
        probabilities = self.probabilities(scores)
        return probabilities, probabilities
