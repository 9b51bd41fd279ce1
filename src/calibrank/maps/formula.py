"""The formula of a map: log odds of a curve plus terms, for arrays and for every target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrank._internal import native
from calibrank._internal.logit import expit
from calibrank._internal.rules import COLUMN_RULES
from calibrank._internal.segment_keys import names_of
from calibrank._internal.validation import Floats, require_scores
from calibrank.errors import DataError
from calibrank.maps._blocks import BLOCK, Ends
from calibrank.maps.curve import Curve
from calibrank.maps.level import LevelTerm
from calibrank.maps.targets.numpy import NumpyTarget
from calibrank.maps.targets.target import Target, large_term_problem
from calibrank.maps.term import Term, Values


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

    def input_names(self, taken: Sequence[str] = ("score", "probability")) -> list[str]:
        """The name of each term's input in graphs: its column, or its columns joined by "_"."""
        names: list[str] = []
        for term in self.terms:
            name = "_".join(term.columns)
            while name in (*taken, *names):
                name += "_"
            names.append(name)
        return names

    @property
    def largest_term(self) -> float:
        """The largest magnitude among the terms of the formula, to which rounding is relative."""
        return max(self.curve.largest_term, *[term.largest_term for term in self.terms], 0.0)

    def float32_problem(self) -> str | None:
        """Why the formula would be inaccurate in float32, as a sentence; None if it would not."""
        problems = [self.curve.float32_problem()]
        problems += [term.float32_problem() for term in self.terms]
        for problem in problems:
            if problem is not None:
                return problem
        return large_term_problem(self.largest_term) if self.terms else None

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
            raise DataError(
                "columns",
                f"have {', '.join(self.columns)}, which this map needs",
                "none",
                ("Pass columns=..., a mapping or dataframe, or use map.without_terms()."),
            )
        if columns is not None:
            names_of("columns", columns)
        inputs = []
        # No comprehension: a warning of `read` counts frames to the caller's line.
        for term in self.terms:
            inputs.append(term.read(columns, rows))  # noqa: PERF401  (see above)
        return inputs

    def _log_odds_with(self, scores: Floats, inputs: Sequence[Values]) -> Floats:
        """Log odds with the terms, in the shape of the scores."""
        return self._with_inputs(scores, inputs, lambda log_odds: log_odds, np.float64)

    def _with_inputs(
        self,
        scores: Floats,
        inputs: Sequence[Values],
        function: Callable[[Floats], Floats],
        dtype: npt.DTypeLike,
    ) -> Floats:
        """A function of the log odds with the terms, computed block by block."""
        require_scores(scores)
        flat = scores.reshape(-1)
        result = np.empty(len(flat), dtype=dtype)
        for start in range(0, len(flat), BLOCK):
            rows = slice(start, start + BLOCK)
            exact = flat[rows].astype(np.float64, copy=False)
            curve = self._curve_log_odds(exact)
            values = [x[rows] for x in inputs]
            result[rows] = function(self._with_terms(NumpyTarget(), exact, curve, values))
        return result.reshape(scores.shape)

    def _curve_log_odds(self, scores: Floats) -> Floats:
        """Finite log odds of the curve, of valid scores."""
        compiled = native.probabilities(scores, self.curve.log_odds_program)
        if compiled is not None:
            return compiled
        require_scores(scores)
        log_odds: Floats = self.curve.log_odds_on(NumpyTarget(), scores)
        return log_odds

    def _ends_with(self, scores: Floats, inputs: Sequence[Values], level: float) -> Ends:
        """Ends of the interval: the errors of the curve and of the terms are independent."""
        exact: Floats = scores.reshape(-1).astype(np.float64)
        curve = self._curve_log_odds(exact)
        middle = self._with_terms(NumpyTarget(), exact, curve, inputs)
        below, above = self.curve.margins(exact, level)
        pairs = list(zip(self.terms, inputs, strict=True))
        # As in the formula: what replaces the curve is multiplied by slopes as well.
        for replaces in (True, False):
            for term, x in pairs:
                if term.replaces_curve == replaces:
                    factor = 1 + term.curve_change(x)
                    down, up = term.margins(exact, curve, x, level)
                    below, above = np.hypot(factor * below, down), np.hypot(factor * above, up)
                if term.replaces_curve and replaces:
                    curve = term.on(NumpyTarget(), exact, curve, x)
        shape = scores.shape
        return expit(middle - below).reshape(shape), expit(middle + above).reshape(shape)
