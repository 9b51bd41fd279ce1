"""Piecewise curves: log odds linear between knots (Spline, CenteredIsotonic, anchored curves)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from statistics import NormalDist
from typing import Any, ClassVar, Self

import numpy as np

from calibrank._internal.validation import Floats
from calibrank.errors import DataError
from calibrank.maps._blocks import Ends
from calibrank.maps._program import pack_lines
from calibrank.maps.curve import LogOddsCurve
from calibrank.maps.targets.target import (
    Lines,
    Target,
    broken_line,
    large_term_problem,
    narrow_range_problem,
)

MOST_KNOTS = 1000
"""Knots that a curve may have: enough for any smooth one, and SQL engines still parse it."""


@dataclass(frozen=True, slots=True, repr=False)
class PiecewiseCurve(LogOddsCurve):
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
        if not 1 <= count <= MOST_KNOTS:
            raise DataError("knots", f"be 1 to {MOST_KNOTS}", count)
        if len(self.values) != count or len(self.value_errors) != count:
            raise DataError(
                "values and value_errors",
                f"be as many as knots ({count})",
                f"{len(self.values)} and {len(self.value_errors)}",
            )
        if not all(low < high for low, high in pairwise(self.knots)):
            raise DataError("knots", "be strictly increasing")
        if not all(low <= high for low, high in pairwise(self.values)):
            raise DataError("values", "not decrease")
        if len(self.end_slopes) != 2 or min(self.end_slopes) < 0:
            raise DataError("end_slopes", "be 2 numbers of 0 or more", self.end_slopes)
        if len(self.slope_errors) != 2 or min(*self.slope_errors, *self.value_errors) < 0:
            raise DataError("slope_errors", "be 2 numbers, and no standard error negative")

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

    def float32_problem(self) -> str | None:
        # Slopes are differences over the distance of two knots, which float32 must hold.
        for low, high in pairwise(self.knots):
            problem = narrow_range_problem(low, high)
            if problem is not None:
                return problem
        return large_term_problem(self.largest_term)

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
        return replace(
            self,
            values=tuple(slope * value + shift for value in self.values),
            end_slopes=(slope * self.end_slopes[0], slope * self.end_slopes[1]),
            value_errors=tuple(slope * error for error in self.value_errors),
            slope_errors=(slope * self.slope_errors[0], slope * self.slope_errors[1]),
        )
