"""The formula of a map, for arrays and for every target: a curve plus terms; and its inverse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from calibrank._internal import native
from calibrank._internal.logit import expit
from calibrank._internal.rules import COLUMN_RULES
from calibrank._internal.segment_keys import names_of
from calibrank._internal.validation import LARGEST_SCORE, Floats, Mask, require_scores
from calibrank.errors import DataError
from calibrank.maps.curve import Curve, Ends
from calibrank.maps.level import LevelTerm
from calibrank.maps.targets.numpy import NumpyTarget
from calibrank.maps.targets.target import Target
from calibrank.maps.term import Term, Values

# An interval that is narrower than this, relative to the scores of the map, is due to rounding.
_RELATIVE = 1e-9


class Formula:
    """What a curve and its terms compute, and the columns that they compute it from."""

    curve: Curve
    terms: tuple[Term, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the terms need, each once."""
        return tuple(dict.fromkeys(name for term in self.terms for name in term.columns))

    @property
    def level_columns(self) -> tuple[str, ...]:
        """Those of the columns that are read as text: their values are levels."""
        names = [name for term in self.terms if term.role == "level" for name in term.columns]
        return tuple(dict.fromkeys(names))

    @property
    def number_columns(self) -> dict[str, str]:
        """Those of the columns that are numbers, with their role ("feature" or "rank")."""
        return {term.columns[0]: term.role for term in self.terms if term.role != "level"}

    def input_names(self) -> list[str]:
        """The name of each term's input in graphs: its column, or its columns joined by "_"."""
        names = ["score", "probability"]
        for term in self.terms:
            name = "_".join(term.columns)
            while name in names:
                name += "_"
            names.append(name)
        return names[2:]

    @property
    def largest_term(self) -> float:
        """The largest magnitude among the terms of the formula, to which rounding is relative."""
        return max(self.curve.largest_term, *[term.largest_term for term in self.terms], 0.0)

    @property
    def narrowest(self) -> float:
        """The smallest distance between numbers that the formula divides by."""
        return min(self.curve.narrowest, *[term.narrowest for term in self.terms], np.inf)

    def on(self, target: Target, score: Any, inputs: Sequence[Any] = ()) -> Any:
        """The probability as an expression of the target; `inputs` has one value per term."""
        if not self.terms:
            return self.curve.on(target, score)
        return target.sigmoid(self.log_odds_on(target, score, inputs))

    def log_odds_on(self, target: Target, score: Any, inputs: Sequence[Any] = ()) -> Any:
        """The log odds as an expression of the target."""
        return self._with_terms(target, score, self.curve.log_odds_on(target, score), inputs)

    def _with_terms(self, target: Target, score: Any, curve: Any, inputs: Sequence[Any]) -> Any:
        """Log odds of the curve, or of what replaces it, with the other terms added."""
        pairs = list(zip(self.terms, inputs, strict=True))
        for term, x in pairs:
            if term.replaces_curve:
                curve = term.on(target, score, curve, x)
        result = curve
        for term, x in pairs:
            if not term.replaces_curve:
                result = result + term.on(target, score, curve, x)
        return result

    def where_valid(self, target: Target, score: Any, inputs: Sequence[Any] = ()) -> Any:
        """As `on`; null or NaN (which of the two depends on the target) where an input is invalid.

        An input of a level is invalid where it is missing; a number where `predict` refuses it.
        """
        conditions = []
        for term, x in zip(self.terms, inputs, strict=True):
            if isinstance(term, LevelTerm):
                conditions.append(target.is_level(x, len(term)))
            else:
                conditions.append(target.is_valid(x, COLUMN_RULES[term.role]))
        return target.where_valid(score, lambda valid: self.on(target, valid, inputs), conditions)

    def inputs(self, columns: Any, rows: int | None = None) -> list[Values]:
        """The input of each term, read from a mapping or a dataframe and checked."""
        if columns is None and self.terms:
            rule = f"have {', '.join(self.columns)}, which this map needs"
            remedy = "Pass columns=..., a mapping or dataframe, or use map.without_terms()."
            raise DataError("columns", rule, "none", remedy)
        if columns is not None:
            names_of("columns", columns)
        inputs = []
        # No comprehension: a warning of `read` counts frames to the caller's line.
        for term in self.terms:
            inputs.append(term.read(columns, rows))  # noqa: PERF401  (see above)
        return inputs

    def _log_odds_of(self, scores: Floats, *inputs: Values) -> Floats:
        """Log odds of a block of valid scores, with the terms."""
        curve = self._curve_log_odds(scores)
        return self._with_terms(NumpyTarget(), scores, curve, inputs)

    def _curve_log_odds(self, scores: Floats) -> Floats:
        """Finite log odds of the curve, of valid scores."""
        compiled = native.probabilities(scores, self.curve.log_odds_program)
        if compiled is not None:
            return compiled
        require_scores(scores)
        return self.curve.log_odds_on(NumpyTarget(), scores)

    def _ends(self, scores: Floats, *inputs: Values, level: float) -> Ends:
        """Ends of the interval: the errors of the curve and of the terms are independent."""
        if not self.terms:
            return self.curve.interval_ends(scores, level)
        middle = self._log_odds_of(scores, *inputs)
        curve = self._curve_log_odds(scores)
        below, above = self.curve.margins(scores, level)
        pairs = list(zip(self.terms, inputs, strict=True))
        for term, x in pairs:
            if term.replaces_curve:
                kept, (down, up) = 1 + term.curve_change(x), term.margins(scores, curve, x, level)
                below, above = np.hypot(kept * below, down), np.hypot(kept * above, up)
                curve = term.on(NumpyTarget(), scores, curve, x)
        pairs = [(term, x) for term, x in pairs if not term.replaces_curve]
        # Slopes of several terms add up, and multiply the error of the curve alone.
        factor = 1 + sum(term.curve_change(x) for term, x in pairs)
        below, above = factor * below, factor * above
        for term, x in pairs:
            down, up = term.margins(scores, curve, x, level)
            below, above = np.hypot(below, down), np.hypot(above, up)
        return expit(middle - below), expit(middle + above)


def scores_at(
    function: Callable[[Floats], Floats], probability: float, rows: int, width: float
) -> tuple[Floats, Floats]:
    """The lowest score that reaches the probability, and the highest that does not exceed it.

    `function` gives the probabilities of `rows` scores, each of which it increases with. They are
    infinite where the curve is flat up to its end. `width` is that of the usual scores.
    """
    ends = np.full(rows, LARGEST_SCORE)
    lowest, highest = function(-ends), function(ends)
    outside = np.flatnonzero((probability < lowest) | (probability > highest))
    if len(outside):
        row = int(outside[0])
        raise DataError(
            "probability",
            f"be one that the map reaches, {lowest[row]:.6g} to {highest[row]:.6g}",
            got=f"{probability:.6g}",
            row=row if rows > 1 else None,
        )
    low = np.where(
        lowest >= probability, -np.inf, _first(lambda s: function(s) >= probability, rows)
    )
    # The last score that is not above is the one before the first that is.
    above = _first(lambda s: function(s) > probability, rows)
    high = np.where(highest <= probability, np.inf, np.nextafter(above, -np.inf))
    is_point = np.isfinite(low) & ~(high - low > _RELATIVE * np.maximum(np.abs(low), width))
    return low, np.where(is_point, low, high)


def _first(holds: Callable[[Floats], Mask], rows: int) -> Floats:
    """The lowest score at which a condition holds that holds from there on."""
    below = np.full(rows, _number(-LARGEST_SCORE))
    above = np.full(rows, _number(LARGEST_SCORE))
    while np.any(above > below + 1):
        # The mean, rounded down; the sum of both would be too large.
        middle = (below >> 1) + (above >> 1) + (below & above & 1)
        is_above = holds(_score(middle))
        below = np.where(is_above, below, middle)
        above = np.where(is_above, middle, above)
    return _score(above)


# Floats in increasing order are whole numbers in increasing order: halving an interval of numbers
# finds a score to its last digit in 63 steps, wherever it lies.
def _number(score: float) -> int:
    bits = int(np.float64(abs(score)).view(np.int64))
    return bits if score >= 0 else -bits


def _score(numbers: np.ndarray) -> Floats:
    return np.copysign(np.abs(numbers).view(np.float64), numbers)
