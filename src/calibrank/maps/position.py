"""Position terms: the first positions of a list have a curve of their own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from calibrank._internal.arguments import whole
from calibrank._internal.validation import Floats
from calibrank.errors import DataError
from calibrank.maps.piecewise import PiecewiseCurve
from calibrank.maps.smooth import SmoothTerm
from calibrank.maps.targets.target import Target
from calibrank.maps.term import Margins, Term, number_column, require_names

# Log odds of an interval's end stay finite.
LARGEST_LOG_ODDS = 700.0


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
        if self.by_rank is not None and self.by_rank.column != self.column:
            raise DataError(
                "the function of the rank",
                f"be of the column {self.column!r}",
                f"{self.by_rank.column!r}",
            )

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]  # of one column
        return (self.column,)

    def on(self, target: Target, score: Any, curve: Any, x: Any) -> Any:
        inside = self.curve.log_odds_on(target, score)
        if self.by_rank is not None:
            inside = inside + self.by_rank.of_number(target, x)
        # Each formula stands once, times 0 or 1: both are finite at every valid score. Their
        # difference is not added: far from the fit it may be so large that the rest is lost.
        limits = [self.n + 0.5]
        is_top = target.steps(x, limits, [1.0, 0.0])
        return inside * is_top + curve * target.steps(x, limits, [0.0, 1.0])

    def read(self, columns: Any, rows: int | None = None) -> Floats:
        return number_column(self.column, columns, rows, self.role)

    def curve_change(self, x: Floats) -> Floats:
        return np.where(self._is_top(x), -1.0, 0.0)

    def margins(self, scores: Floats, curve: Floats, x: Floats, level: float) -> Margins:
        below, above = self.curve.margins(scores, level)
        is_top = self._is_top(x)
        return np.where(is_top, below, 0.0), np.where(is_top, above, 0.0)

    def moved(self, shift: float, slope: float) -> Self:
        by_rank = None if self.by_rank is None else self.by_rank.moved(shift, slope)
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

    def float32_problem(self) -> str | None:
        return self.curve.float32_problem()

    def example(self, place: int) -> dict[str, str | float]:
        return {self.column: (1, self.n, self.n + 1, 1000)[place % 4]}


def bounded(log_odds: Floats) -> Floats:
    """Finite log odds, whatever a probability rounds to."""
    return np.clip(log_odds, -LARGEST_LOG_ODDS, LARGEST_LOG_ODDS)
