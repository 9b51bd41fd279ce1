"""The curve of a map: a fitted, immutable function of the score alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, Self

import numpy as np

from calibrank._internal.json import Saved
from calibrank._internal.logit import expit, logit
from calibrank._internal.validation import Floats
from calibrank.composition import refusal
from calibrank.maps._blocks import Ends
from calibrank.maps._program import of_log_odds
from calibrank.maps.targets.numpy import NumpyTarget
from calibrank.maps.targets.target import Target

# Log odds of the ends of an interval stay finite.
_SMALLEST_PROBABILITY = 1e-12


class Curve(Saved, ABC):
    """A function from scores to probabilities.

    A kind of curve states its formula once, in `on`; every engine computes it from there.
    """

    @property
    def parameters(self) -> dict[str, float]:
        """The parameters of the curve by name; empty for kinds that have none with a name."""
        return {}

    @property
    def standard_errors(self) -> dict[str, float]:
        """Standard errors of `parameters`."""
        return {}

    @property
    @abstractmethod
    def description(self) -> str:
        """The form of the curve in one sentence."""

    @property
    @abstractmethod
    def breakpoints(self) -> tuple[float, ...]:
        """Scores at which the formula changes its form, in increasing order; there may be none."""

    @property
    def span(self) -> tuple[float, float]:
        """The range of scores over which a plot shows the curve."""
        return self.breakpoints[0], self.breakpoints[-1]

    @property
    def largest_term(self) -> float:
        """The largest magnitude among the terms of the formula, to which rounding is relative."""
        return 1.0

    def float32_problem(self) -> str | None:
        """Why the formula would be inaccurate in float32, as a sentence; None if it would not."""
        return None

    @abstractmethod
    def on(self, target: Target, score: Any) -> Any:
        """The probability as an expression of the target; `score` is one as well."""

    def log_odds_on(self, target: Target, score: Any) -> Any:
        """The log odds as an expression of the target; not every kind of curve has them."""
        raise refusal("MinMax", "terms, another base rate")

    def moved(self, shift: float, slope: float = 1.0) -> Self:
        """The curve whose log odds are `shift + slope * log odds`."""
        raise refusal("MinMax", "terms, another base rate")

    def probabilities(self, scores: Floats) -> Floats:
        """Probabilities of valid float64 scores."""
        probabilities: Floats = self.on(NumpyTarget(), scores)
        return probabilities

    def log_odds(self, scores: Floats) -> Floats:
        """Log odds of valid float64 scores; infinite where a probability is 0 or 1."""
        log_odds: Floats = logit(self.probabilities(scores))
        return log_odds

    @abstractmethod
    def interval_ends(self, scores: Floats, level: float) -> Ends:
        """Ends of the confidence interval of the probability at each score."""

    def margins(self, scores: Floats, level: float) -> Ends:
        """Distances from the log odds down and up to the ends of the interval, in log odds.

        A curve that knows them overrides this: beyond log odds of 36, ends round to 0 or 1.
        """
        low, high = self.interval_ends(scores, level)
        middle: Floats = self.log_odds_on(NumpyTarget(), scores)
        smallest, largest = _SMALLEST_PROBABILITY, 1 - _SMALLEST_PROBABILITY
        below = middle - logit(np.clip(low, smallest, largest))
        above = logit(np.clip(high, smallest, largest)) - middle
        return np.maximum(below, 0), np.maximum(above, 0)

    @cached_property
    def program(self) -> bytes:
        """The curve as the C loops read it, packed once; empty if there is no loop for it."""
        # A subclass of a kind of curve may have another formula.
        return self._compile() if "_compile" in vars(type(self)) else b""

    @cached_property
    def log_odds_program(self) -> bytes:
        """As `program`, for the log odds."""
        return of_log_odds(self.program)

    def _compile(self) -> bytes:
        return b""


class LogOddsCurve(Curve):
    """A curve whose formula is that of its log odds, in `log_odds_on`; its errors are normal."""

    def on(self, target: Target, score: Any) -> Any:
        return target.sigmoid(self.log_odds_on(target, score))

    def log_odds(self, scores: Floats) -> Floats:
        log_odds: Floats = self.log_odds_on(NumpyTarget(), scores)
        return log_odds

    def interval_ends(self, scores: Floats, level: float) -> Ends:
        below, above = self.margins(scores, level)
        middle = self.log_odds(scores)
        return expit(middle - below), expit(middle + above)
