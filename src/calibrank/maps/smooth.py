"""Smooth terms: a function of a column of numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from statistics import NormalDist
from typing import Any, ClassVar, Self

import numpy as np

from calibrank._internal.validation import LARGEST_SCORE, Floats
from calibrank.errors import DataError
from calibrank.maps.targets.target import Lines, Target, broken_line, narrow_range_problem
from calibrank.maps.term import (
    Margins,
    Term,
    number_column,
    require_finite,
    require_increasing,
    require_names,
)


@dataclass(frozen=True, slots=True)
class SmoothTerm(Term):
    """What a number adds to the log odds: linear between knots, constant beyond the outer ones."""

    kind: ClassVar[str] = "smooth"
    role: ClassVar[str] = "feature"

    column: str
    knots: tuple[float, ...]
    values: tuple[float, ...]
    errors: tuple[float, ...] = ()
    """Standard errors of the values; none are known of maps that older versions saved."""

    def __post_init__(self) -> None:
        require_names(self.columns, "column")
        if len(self.knots) < 2 or len(self.values) != len(self.knots):
            raise DataError(
                "a smooth term",
                "have two or more knots and as many values",
                f"{len(self.knots)} and {len(self.values)}",
            )
        require_increasing("the knots of a smooth term", self.knots)
        require_finite("the values of a smooth term", (*self.values, *self.errors))
        if max(map(abs, self.knots)) > LARGEST_SCORE or not np.isfinite(self._lines[2]).all():
            raise DataError("the knots of a smooth term", "lie within +-1e30, and not too close")
        if self.errors and (len(self.errors) != len(self.knots) or min(self.errors) < 0):
            raise DataError("the errors of a smooth term", "be one per knot, none negative")

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]  # of one column
        return (self.column,)

    def on(self, target: Target, score: Any, curve: Any, x: Any) -> Any:
        return self.of_number(target, x)

    def of_number(self, target: Target, x: Any) -> Any:
        """The function as an expression of the target."""
        return target.lines(x, self.knots, self._lines)

    @cached_property
    def _lines(self) -> Lines:
        # Two knots may be too close for a slope, which is refused.
        with np.errstate(over="ignore"):
            return broken_line(self.knots, self.values, (0.0, 0.0))

    def read(self, columns: Any, rows: int | None = None) -> Floats:
        return number_column(self.column, columns, rows, self.role)

    def margins(self, scores: Floats, curve: Floats, x: Floats, level: float) -> Margins:
        if not self.errors:
            return 0.0, 0.0
        margin = -NormalDist().inv_cdf((1 - level) / 2) * np.interp(x, self.knots, self.errors)
        return margin, margin

    def moved(self, shift: float, slope: float) -> Self:
        values = tuple(slope * value for value in self.values)
        return replace(self, values=values, errors=tuple(slope * each for each in self.errors))

    @property
    def description(self) -> str:
        return f"by a function of {self.column}"

    @property
    def largest_term(self) -> float:
        return max(map(abs, self.values))

    def float32_problem(self) -> str | None:
        problems = [narrow_range_problem(low, high) for low, high in pairwise(self.knots)]
        return next((problem for problem in problems if problem is not None), None)

    def example(self, place: int) -> dict[str, str | float]:
        knots = np.array(self.knots)
        middles = (knots[1:] + knots[:-1]) / 2
        width = knots[-1] - knots[0]
        beyond = [knots[0] - width, knots[-1] + width]
        numbers = np.concatenate([knots, middles, np.nextafter(knots, -np.inf), beyond])
        # Another step than that of levels, so that they do not always come together.
        return {self.column: float(numbers[7 * place % len(numbers)])}
