"""Maps with a curve of their own for the first positions of a list (`anchor_top`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, overload

import numpy as np

from calibrank._internal.arguments import text, whole
from calibrank._internal.json import Fields
from calibrank._internal.logit import expit, logit
from calibrank._internal.validation import Floats, Numbers, floats, require_role
from calibrank.errors import DataError
from calibrank.maps._based import BasedMap, read_map_in
from calibrank.maps._blocks import Interval
from calibrank.maps.calibration_map import CalibrationMap
from calibrank.maps.record import FitRecord
from calibrank.maps.targets.numpy import NumpyTarget
from calibrank.maps.targets.target import Target
from calibrank.maps.terms import Term, feature, read_term


@dataclass(frozen=True, slots=True, repr=False)
class TopMap(BasedMap):
    """The map `top` plus a function of the rank for ranks 1 to n, and `base` for all other pairs.

    The rank of a pair is its position in its own list, the highest score first, counted from 1, in
    the column `column`; `term`, if there is one, is added to the log odds of `top`, and falls with
    the rank. The order of each list's first n, and that of the rest, stays; a pair of rank n + 1
    may get a higher probability than one of rank n.

    Without `ranks`, the methods of a map (`predict`, `interval`, plots) are those of `base`.
    """

    kind: ClassVar[str] = "top"
    number_role: ClassVar[str] = "rank"

    method: str
    base: CalibrationMap
    top: CalibrationMap
    column: str
    n: int
    record: FitRecord
    term: Term | None = None

    def __post_init__(self) -> None:
        text("column", self.column, "It names the column of ranks.")
        object.__setattr__(self, "n", whole("n", self.n, 1))
        for each in (self.base, self.top):
            if each.segment_columns or each.feature_columns:
                raise DataError("the two maps of a map by rank must be of scores alone.")
        if self.term is not None and self.term.column != self.column:
            raise DataError(
                f"the term of a map by rank must be of the column {self.column!r}, "
                f"got {self.term.column!r}."
            )
        self._share_record()
        top = replace(self.top, record=self.record)  # type: ignore[type-var]  # a dataclass
        object.__setattr__(self, "top", top)

    @overload
    def predict(self, scores: float, ranks: float | None = None) -> float: ...

    @overload
    def predict(self, scores: Numbers, ranks: Numbers | None = None) -> Floats: ...

    def predict(
        self, scores: Numbers | float, ranks: Numbers | float | None = None
    ) -> Floats | float:
        """Probabilities, in the shape and float type of the scores.

        `ranks` has the position of each pair in its list, from 1 on. Without it, the result is that
        of the map of all pairs.
        """
        if ranks is None:
            return self.base.predict(scores)
        probabilities: Floats | float = self._predict_with(scores, {self.column: ranks}, "ranks")
        return probabilities

    @overload
    def interval(
        self, scores: float, level: float = 0.95, ranks: float | None = None
    ) -> Interval[float]: ...

    @overload
    def interval(
        self, scores: Numbers, level: float = 0.95, ranks: Numbers | None = None
    ) -> Interval[Floats]: ...

    def interval(
        self,
        scores: Numbers | float,
        level: float = 0.95,
        ranks: Numbers | float | None = None,
    ) -> Interval[Floats] | Interval[float]:
        """Confidence interval of the probability, for the sampling error of the fit alone."""
        if ranks is None:
            return self.base.interval(scores, level)
        array = floats("scores", scores)
        is_top = self._is_top(array, {self.column: ranks})
        inside, outside = self.top.interval(array, level), self.base.interval(array, level)
        added = self._added(array, {self.column: ranks})
        low = np.where(is_top, expit(logit(inside.low) + added), outside.low)
        high = np.where(is_top, expit(logit(inside.high) + added), outside.high)
        if array.ndim == 0:
            return Interval(float(low), float(high))
        return Interval(low.astype(array.dtype), high.astype(array.dtype))

    @property
    def feature_columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def description(self) -> str:
        return (
            f"{self.base.description} In the first {self.n} of each list, by {self.column}: "
            f"{self.top.description}"
        )

    @property
    def breakpoints(self) -> tuple[float, ...]:
        return tuple(sorted({*self.base.breakpoints, *self.top.breakpoints}))

    @property
    def largest_term(self) -> float:
        added = 0.0 if self.term is None else max(abs(value) for value in self.term.values)
        return max(self.base.largest_term, self.top.largest_term, added)

    def float32_problem(self) -> str | None:
        return self.base.float32_problem() or self.top.float32_problem()

    def log_odds_on(self, target: Target, score: Any) -> Any:
        """The log odds of the map of all pairs as an expression of the target."""
        return self.base.log_odds_on(target, score)

    def _changed_on(self, target: Target, score: Any, columns: Sequence[Any]) -> Any:
        # Each formula stands once, times 0 or 1: both are finite at every valid score.
        edge = [self.n + 0.5]
        inside = self.top.log_odds_on(target, score)
        if self.term is not None:
            inside = inside + self.term.on(target, columns[0])
        inside = inside * target.steps(columns[0], edge, [1.0, 0.0])
        rest = self.base.log_odds_on(target, score) * target.steps(columns[0], edge, [0.0, 1.0])
        return inside + rest

    def _log_odds_with(self, scores: Floats, columns: Any) -> Floats:
        outside = self._base_log_odds(scores)
        inside = self.top.log_odds_on(NumpyTarget(), scores.astype(np.float64))
        inside = inside + self._added(scores, columns)
        log_odds: Floats = np.where(self._is_top(scores, columns), inside, outside)
        return log_odds

    def _probabilities_with(self, scores: Floats, columns: Any) -> Floats:
        if self.term is not None:
            probabilities: Floats = expit(self._log_odds_with(scores, columns))
            return probabilities
        # Both maps are compiled: computing both takes less time than log odds do.
        is_top = self._is_top(scores, columns)
        return np.where(is_top, self.top.predict(scores), self.base.predict(scores))

    def _is_top(self, scores: Floats, columns: Any) -> Any:
        ranks = feature(self.column, columns, scores.size).reshape(scores.shape)
        require_role(self.number_role, f"feature {self.column!r}", ranks)
        return ranks < self.n + 0.5

    def _added(self, scores: Floats, columns: Any) -> Any:
        """What the rank adds to the log odds of `top`."""
        if self.term is None:
            return 0.0
        ranks = self.term.read_column(columns, scores.size)
        return self.term.on(NumpyTarget(), ranks).reshape(scores.shape)

    def _content(self) -> dict[str, Any]:
        content = {
            "base": self._base_content(),
            "top": self._content_of(self.top),
            "column": self.column,
            "n": self.n,
        }
        if self.term is not None:
            content["term"] = self.term.content()
        return content

    @classmethod
    def read(cls, method: str, fields: Fields, record: FitRecord) -> Self:
        fields.only("base", "top", "column", "n", "term")
        return cls(
            method=method,
            base=read_map_in(fields, "base", record),
            top=read_map_in(fields, "top", record),
            column=fields.text("column"),
            n=fields.count("n"),
            record=record,
            term=_read_term(fields.child("term")) if fields.holds("term") else None,
        )


def _read_term(fields: Fields) -> Term:
    term = read_term(fields)
    if not isinstance(term, Term):
        raise DataError("the term of a map by rank must be of numbers, got categories.")
    return term
