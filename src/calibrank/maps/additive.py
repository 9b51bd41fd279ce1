"""Maps with covariates: a curve of the score plus a function of each numeric column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Self, overload

import numpy as np

from calibrank._json import Fields
from calibrank._segment_keys import column_of
from calibrank._validation import Floats, Numbers, floats, require_scores
from calibrank.errors import DataError
from calibrank.maps._based import BasedMap, read_base
from calibrank.maps.calibration_map import CalibrationMap
from calibrank.maps.record import FitRecord
from calibrank.maps.targets.numpy import NumpyTarget
from calibrank.maps.targets.target import Target, large_term_problem, narrow_range_problem


@dataclass(frozen=True, slots=True)
class Term:
    """What a column adds to the log odds: linear between knots, constant beyond the outer ones."""

    column: str
    knots: tuple[float, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.knots) < 2 or len(self.values) != len(self.knots):
            raise DataError(
                f"a term must have two or more knots and as many values, got {len(self.knots)} "
                f"and {len(self.values)}."
            )
        if not all(low < high for low, high in pairwise(self.knots)):
            raise DataError("the knots of a term must be strictly increasing.")

    def on(self, target: Target, x: Any) -> Any:
        """The term as an expression of the target."""
        slopes = [0.0]
        for (low, high), (below, above) in zip(
            pairwise(self.knots), pairwise(self.values), strict=True
        ):
            slopes.append((above - below) / (high - low))
        slopes.append(0.0)
        origins = (self.knots[0], *self.knots)
        values = (self.values[0], *self.values)
        return target.lines(x, self.knots, origins, values, slopes)


@dataclass(frozen=True, slots=True, repr=False)
class AdditiveMap(BasedMap):
    """Log odds `intercept + slope * z + terms`, where z are those of `base`, a map of scores alone.

    For equal values of the columns, probabilities increase with the score. Rows with different
    values may change their order: between users, and within a user's list if a column varies by
    item.

    Without `features`, the methods of a map (`predict`, `interval`, plots) are those of `base`.
    """

    kind: ClassVar[str] = "additive"

    method: str
    base: CalibrationMap
    intercept: float
    slope: float
    terms: tuple[Term, ...]
    record: FitRecord

    def __post_init__(self) -> None:
        names = self.feature_columns
        if not names or len(set(names)) < len(names):
            raise DataError(f"terms must be of one or more different columns, got {names}.")
        if not self.slope > 0:
            raise DataError(f"slope must be positive, got {self.slope}.")
        if self.base.segment_columns or self.base.feature_columns:
            raise DataError("the base of a map with covariates must be of scores alone.")
        self._share_record()

    @overload
    def predict(self, scores: float, features: Any = None) -> float: ...

    @overload
    def predict(self, scores: Numbers, features: Any = None) -> Floats: ...

    def predict(self, scores: Numbers, features: Any = None) -> Floats | float:
        """Probabilities, in the shape and float type of the scores.

        `features` maps each column to one number per score (a dict or a dataframe). Without it, the
        result is that of the base map.
        """
        if features is None:
            return self.base.predict(scores)
        result: Floats | float = self._predict_with(scores, features, "features")
        return result

    @property
    def feature_columns(self) -> tuple[str, ...]:
        return tuple(term.column for term in self.terms)

    @property
    def description(self) -> str:
        names = ", ".join(self.feature_columns)
        return f"{self.base.description} Changed by a function of each of {names}."

    @property
    def largest_term(self) -> float:
        largest = [abs(self.intercept), self.slope * self.base.largest_term]
        for term in self.terms:
            largest += [abs(value) for value in term.values]
        return max(largest)

    def float32_problem(self) -> str | None:
        for term in self.terms:
            for low, high in pairwise(term.knots):
                problem = narrow_range_problem(low, high)
                if problem is not None:
                    return problem
        return self.base.float32_problem() or large_term_problem(self.largest_term)

    def _changed_on(self, target: Target, score: Any, columns: Sequence[Any]) -> Any:
        result = self.base.log_odds_on(target, score) * self.slope + self.intercept
        for term, column in zip(self.terms, columns, strict=True):
            result = result + term.on(target, column)
        return result

    def _log_odds_with(self, scores: Floats, columns: Any) -> Floats:
        require_scores(scores)
        size, shape = scores.size, scores.shape
        features = [feature(name, columns, size).reshape(shape) for name in self.feature_columns]
        log_odds: Floats = self._changed_on(NumpyTarget(), scores.astype(np.float64), features)
        return log_odds

    def _content(self) -> dict[str, Any]:
        terms = []
        for term in self.terms:
            about = {"column": term.column, "knots": list(term.knots), "values": list(term.values)}
            terms.append(about)
        return {
            "base": self._base_content(),
            "intercept": self.intercept,
            "slope": self.slope,
            "terms": terms,
        }

    @classmethod
    def read(cls, method: str, fields: Fields, record: FitRecord) -> Self:
        fields.only("base", "intercept", "slope", "terms")
        return cls(
            method=method,
            base=read_base(fields, record),
            intercept=fields.number("intercept"),
            slope=fields.number("slope"),
            terms=tuple(_read_term(child) for child in fields.children("terms")),
            record=record,
        )


def _read_term(fields: Fields) -> Term:
    fields.only("column", "knots", "values")
    return Term(
        fields.text("column"), tuple(fields.numbers("knots")), tuple(fields.numbers("values"))
    )


def feature(name: str, features: Any, rows: int) -> Floats:
    """A column of finite numbers, one per score, of a mapping or a dataframe."""
    numbers = floats(f"feature {name!r}", np.asarray(column_of("features", name, features)))
    numbers = numbers.reshape(-1).astype(np.float64)
    if len(numbers) != rows:
        raise DataError(
            f"feature {name!r} must have one number per score ({rows}), got {len(numbers)}."
        )
    if not np.isfinite(numbers).all():
        raise DataError(f"feature {name!r} must be finite, got NaN or infinity. Fill them first.")
    return numbers
