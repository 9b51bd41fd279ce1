"""Maps with covariates: a curve of the score plus a function of each column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Self, overload

import numpy as np

from calibrank._internal.json import Fields
from calibrank._internal.validation import Floats, Indices, Numbers, require_scores
from calibrank.errors import DataError
from calibrank.maps._based import BasedMap, read_base
from calibrank.maps.calibration_map import CalibrationMap
from calibrank.maps.record import FitRecord
from calibrank.maps.targets.numpy import NumpyTarget
from calibrank.maps.targets.target import Target, large_term_problem, narrow_range_problem
from calibrank.maps.terms import CategoryTerm, Term, read_term


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
    terms: tuple[Term | CategoryTerm, ...]
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

        `features` maps each column to one number or category per score (a dict or a dataframe).
        Without it, the result is that of the base map. A category that is not known adds nothing.
        """
        if features is None:
            return self.base.predict(scores)
        result: Floats | float = self._predict_with(scores, features, "features")
        return result

    @property
    def feature_columns(self) -> tuple[str, ...]:
        return tuple(term.column for term in self.terms)

    @property
    def categories(self) -> dict[str, tuple[str, ...]]:
        return {term.column: term.categories for term in self._category_terms}

    @property
    def _category_terms(self) -> list[CategoryTerm]:
        return [term for term in self.terms if isinstance(term, CategoryTerm)]

    def category_index(self, features: Any) -> dict[str, Indices]:
        """The numbers of the categories, as the graphs of `to_onnx` and `to_torch` take them.

        They count the categories of a term from 1 on; 0 is one that is not known.
        """
        return {term.column: term.read_column(features) for term in self._category_terms}

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
        numeric = [term for term in self.terms if isinstance(term, Term)]
        for term in numeric:
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
        features = [term.read_column(columns, size).reshape(shape) for term in self.terms]
        log_odds: Floats = self._changed_on(NumpyTarget(), scores.astype(np.float64), features)
        return log_odds

    def _content(self) -> dict[str, Any]:
        return {
            "base": self._base_content(),
            "intercept": self.intercept,
            "slope": self.slope,
            "terms": [term.content() for term in self.terms],
        }

    @classmethod
    def read(cls, method: str, fields: Fields, record: FitRecord) -> Self:
        fields.only("base", "intercept", "slope", "terms")
        return cls(
            method=method,
            base=read_base(fields, record),
            intercept=fields.number("intercept"),
            slope=fields.number("slope"),
            terms=tuple(read_term(child) for child in fields.children("terms")),
            record=record,
        )
