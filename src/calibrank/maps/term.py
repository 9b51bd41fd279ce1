"""The terms of a map: what columns beside the score add to the log odds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from calibrank._internal.arguments import whole
from calibrank._internal.json import Saved
from calibrank._internal.segment_keys import column_of
from calibrank._internal.validation import LARGEST_SCORE, Floats, floats, require_role
from calibrank.maps.checks import (
    require,
    require_finite,
    require_increasing,
    require_names,
    require_rows,
    scaled,
)
from calibrank.maps.piecewise import PiecewiseCurve
from calibrank.maps.targets.target import Lines, Target, broken_line

Values: TypeAlias = npt.NDArray[Any]
"""The input of a term, one value per score: numbers, or numbers of levels."""

Margins: TypeAlias = tuple[Floats | float, Floats | float]
"""Distances in log odds from a probability down and up to the ends of its interval."""


class Term(Saved, ABC):
    """A fitted part of a map, which states once what it adds to the log odds.

    A term has one input: a column of numbers, or the level of one or more nested columns.
    """

    role: ClassVar[str]
    """What its input is: "feature", "rank" (both are numbers) or "level"."""
    columns: tuple[str, ...]
    replaces_curve: ClassVar[bool] = False
    """Whether `on` gives the log odds in place of the curve's, to which other terms then add."""

    @abstractmethod
    def on(self, target: Target, score: Any, curve: Any, x: Any) -> Any:
        """What the term adds to the log odds, as an expression of the target.

        `curve` are the log odds of the curve and `x` is the input: a number per row, or what the
        target's `by_level` takes.
        """

    def read(self, columns: Any, rows: int | None = None) -> Values:
        """The input of a mapping or a dataframe, checked; one value per score."""
        return number_column(self.columns[0], columns, rows, self.role)

    def curve_change(self, x: Values) -> Floats | float:
        """By how much the log odds of the curve are multiplied in addition, at each row."""
        return 0.0

    @abstractmethod
    def margins(self, scores: Floats, curve: Floats, x: Values, level: float) -> Margins:
        """Half widths of the confidence interval of what the term adds, in log odds.

        `curve` are the log odds of the curve, as in `on`.
        """

    @abstractmethod
    def moved(self, shift: float, slope: float) -> Self:
        """The term of the map whose log odds are `shift + slope * log odds`.

        The curve is shifted already: a term that adds to it only has to be multiplied.
        """

    @property
    @abstractmethod
    def description(self) -> str:
        """What the term does, in a clause that follows "Changed "."""

    @property
    @abstractmethod
    def largest_term(self) -> float:
        """The largest magnitude that it adds, relative to which it is rounded."""

    @property
    def narrowest(self) -> float:
        """The smallest distance between numbers that the formula divides by."""
        return np.inf

    @abstractmethod
    def example(self, place: int) -> dict[str, str | float]:
        """The values of its columns in test vectors: in turn all that may go wrong."""


def number_column(name: str, columns: Any, rows: int | None, role: str) -> Floats:
    """A column of valid numbers of a mapping or a dataframe, one per score."""
    subject = f"column {name!r}"
    numbers = floats(subject, column_of("columns", name, columns))
    numbers = np.asarray(numbers).reshape(-1).astype(np.float64, copy=False)
    if rows is not None:
        require_rows(name, len(numbers), rows)
    require_role(role, subject, numbers)
    return numbers


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
        count = len(self.knots)
        require(
            2 <= count == len(self.values),
            "a smooth term",
            "have two or more knots and as many values",
            f"{count} and {len(self.values)}",
        )
        require_increasing("the knots of a smooth term", self.knots)
        require_finite("the values of a smooth term", (*self.values, *self.errors))
        is_small = max(map(abs, self.knots)) <= LARGEST_SCORE
        are_apart = is_small and np.isfinite(self._lines[2]).all()
        require(are_apart, "the knots of a smooth term", "lie within +-1e30, and not too close")
        are_errors = len(self.errors) in (0, count) and min(self.errors, default=0.0) >= 0
        require(are_errors, "the errors of a smooth term", "be one per knot, none negative")

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]  # of one column
        return (self.column,)

    def on(self, target: Target, score: Any, curve: Any, x: Any) -> Any:
        return target.lines(x, self.knots, self._lines)

    @cached_property
    def _lines(self) -> Lines:
        # Two knots may be too close for a slope, which is refused.
        with np.errstate(over="ignore"):
            return broken_line(self.knots, self.values, (0.0, 0.0))

    def margins(self, scores: Floats, curve: Floats, x: Floats, level: float) -> Margins:
        if not self.errors:
            return 0.0, 0.0
        margin = -NormalDist().inv_cdf((1 - level) / 2) * np.interp(x, self.knots, self.errors)
        return margin, margin

    def moved(self, shift: float, slope: float) -> Self:
        return replace(self, values=scaled(self.values, slope), errors=scaled(self.errors, slope))

    @property
    def description(self) -> str:
        return f"by a function of {self.column}"

    @property
    def largest_term(self) -> float:
        return max(map(abs, self.values))

    @property
    def narrowest(self) -> float:
        return float(np.diff(self.knots).min())

    def example(self, place: int) -> dict[str, str | float]:
        knots = np.array(self.knots)
        middles = (knots[1:] + knots[:-1]) / 2
        width = knots[-1] - knots[0]
        beyond = [knots[0] - width, knots[-1] + width]
        numbers = np.concatenate([knots, middles, np.nextafter(knots, -np.inf), beyond])
        # Another step than that of levels, so that they do not always come together.
        return {self.column: float(numbers[7 * place % len(numbers)])}


@dataclass(frozen=True, slots=True)
class PositionTerm(Term):
    """For ranks 1 to n, the log odds are those of `curve` plus a function of the rank.

    The rank of a pair is its position in its own list, the highest score first, counted from 1. The
    order of each list's first n, and that of the rest, stays; a pair of rank n + 1 may get a higher
    probability than one of rank n.
    """

    kind: ClassVar[str] = "position"
    role: ClassVar[str] = "rank"
    replaces_curve: ClassVar[bool] = True

    column: str
    n: int
    curve: PiecewiseCurve
    by_rank: SmoothTerm | None = None

    def __post_init__(self) -> None:
        require_names(self.columns, "column")
        object.__setattr__(self, "n", whole("n", self.n, 1))
        named = self.column if self.by_rank is None else self.by_rank.column
        rule = f"be of the column {self.column!r}"
        require(named == self.column, "the function of the rank", rule, f"{named!r}")

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]  # of one column
        return (self.column,)

    def on(self, target: Target, score: Any, curve: Any, x: Any) -> Any:
        inside = self.curve.log_odds_on(target, score)
        if self.by_rank is not None:
            inside = inside + self.by_rank.on(target, score, curve, x)
        # Each formula stands once, times 0 or 1: both are finite at every valid score. Their
        # difference is not added: far from the fit it may be so large that the rest is lost.
        limits = [self.n + 0.5]
        is_top = target.steps(x, limits, [1.0, 0.0])
        return inside * is_top + curve * target.steps(x, limits, [0.0, 1.0])

    def curve_change(self, x: Floats) -> Floats:
        return np.where(self._is_top(x), -1.0, 0.0)

    def margins(self, scores: Floats, curve: Floats, x: Floats, level: float) -> Margins:
        below, above = self.curve.margins(scores, level)
        is_top = self._is_top(x)
        return np.where(is_top, below, 0.0), np.where(is_top, above, 0.0)

    def moved(self, shift: float, slope: float) -> Self:
        by_rank = self.by_rank and self.by_rank.moved(shift, slope)
        return replace(self, curve=self.curve.moved(shift, slope), by_rank=by_rank)

    def _is_top(self, x: Floats) -> Any:
        return x < self.n + 0.5

    @property
    def description(self) -> str:
        return f"in the first {self.n} of each list, by {self.column}"

    @property
    def largest_term(self) -> float:
        added = 0.0 if self.by_rank is None else self.by_rank.largest_term
        return max(self.curve.largest_term, added)

    @property
    def narrowest(self) -> float:
        return self.curve.narrowest

    def example(self, place: int) -> dict[str, str | float]:
        return {self.column: (1, self.n, self.n + 1, 1000)[place % 4]}
