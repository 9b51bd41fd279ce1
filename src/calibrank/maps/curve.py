"""The curve of a map: a fitted, immutable function of the score alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Generic, NamedTuple, Self, TypeAlias, TypeVar

import numpy as np

from calibrank._internal.json import Saved
from calibrank._internal.logit import expit
from calibrank._internal.validation import Floats, require_scores
from calibrank.composition import refusal
from calibrank.maps._program import of_log_odds
from calibrank.maps.targets.numpy import NumpyTarget
from calibrank.maps.targets.target import Target

BLOCK = 2**15
"""Scores computed at a time: temporary arrays of this size stay in the processor's cache."""

Values = TypeVar("Values")
Ends: TypeAlias = tuple[Floats, Floats]


class Interval(NamedTuple, Generic[Values]):
    """Lower and upper ends, one of each per score: arrays, or floats for a single score."""

    low: Values
    high: Values


def unwrapped(result: Floats) -> Floats | float:
    """An array of no dimensions as a float."""
    return float(result) if result.ndim == 0 else result


def in_blocks(
    function: Callable[..., Any],
    scores: Floats,
    dtype: Any,
    inputs: Sequence[Any] = (),
    results: tuple[int, ...] = (),
) -> Floats:
    """Apply a function of float64 scores to scores of any shape, one block at a time.

    `inputs` are further arguments, one value per score each. With results (2,), the function
    returns two numbers per score, and so does this one.
    """
    require_scores(scores)
    flat = scores.reshape(-1)
    found = np.empty((*results, len(flat)), dtype=dtype)
    for start in range(0, len(flat), BLOCK):
        block = slice(start, start + BLOCK)
        exact = flat[block].astype(np.float64, copy=False)
        found[..., block] = function(exact, *[x[block] for x in inputs])
    return found.reshape((*results, *scores.shape))


def interval_in_blocks(
    function: Callable[..., Ends], scores: Floats, inputs: Sequence[Any] = ()
) -> Interval[Any]:
    """An interval per score: floats for a single one."""
    low, high = in_blocks(function, scores, scores.dtype, inputs, (2,))
    return Interval(unwrapped(low), unwrapped(high))


class Curve(Saved, ABC):
    """A function from scores to probabilities.

    A kind of curve states its formula once, in `log_odds_on`; every engine computes it from there.
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

    @property
    def narrowest(self) -> float:
        """The smallest distance between scores that the formula divides by."""
        return float(np.diff(self.breakpoints).min(initial=np.inf))

    def log_odds_on(self, target: Target, score: Any) -> Any:
        """The log odds as an expression of the target; not every kind of curve has them."""
        raise refusal("MinMax", "terms, another base rate")

    def moved(self, shift: float, slope: float = 1.0) -> Self:
        """The curve whose log odds are `shift + slope * log odds`."""
        raise refusal("MinMax", "terms, another base rate")

    def on(self, target: Target, score: Any) -> Any:
        """The probability as an expression of the target; `score` is one as well."""
        return target.sigmoid(self.log_odds_on(target, score))

    def probabilities(self, scores: Floats) -> Floats:
        """Probabilities of valid float64 scores."""
        return self.on(NumpyTarget(), scores)

    def log_odds(self, scores: Floats) -> Floats:
        """Log odds of valid float64 scores; infinite where a probability is 0 or 1."""
        return self.log_odds_on(NumpyTarget(), scores)

    def interval_ends(self, scores: Floats, level: float) -> Ends:
        """Ends of the confidence interval of the probability at each score."""
        below, above = self.margins(scores, level)
        middle = self.log_odds(scores)
        return expit(middle - below), expit(middle + above)

    def margins(self, scores: Floats, level: float) -> Ends:
        """Distances from the log odds down and up to the ends of the interval, in log odds."""
        raise refusal("MinMax", "terms, another base rate")

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
