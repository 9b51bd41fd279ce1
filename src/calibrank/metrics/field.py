"""Calibration errors by the values of a field, as papers on click-through rates report them.

Pan et al., "Field-aware Calibration" (WWW 2020), define both.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from calibrank._internal.segment_keys import column_of, encode
from calibrank._internal.validation import Floats, Indices, Mask, add_up, wrong_length
from calibrank.errors import DataError
from calibrank.evidence import Evidence
from calibrank.metrics.metric import Additive, Better, Metric, calibration_masses

_NONE: Indices = np.empty(0, dtype=np.intp)


@dataclass(frozen=True, slots=True, init=False)
class FieldMetric(Additive):
    """A metric of the values of one field, or its mean over several fields."""

    better: ClassVar[Better] = Better.LOWER
    has_fixed_bins: ClassVar[bool] = False
    fields: tuple[str, ...]
    cells: Indices = field(compare=False)
    """The combination of values of each row: the bins. Without columns there are none."""
    values: Indices = field(compare=False)
    """The value of each field in each combination, fields x combinations."""

    def __init__(self, *fields: str, cells: Indices = _NONE, values: Indices = _NONE) -> None:
        if not fields or not all(isinstance(name, str) and name for name in fields):
            rule, remedy = "be names of columns", f'Use e.g. {type(self).__name__}("country").'
            raise DataError("fields", rule, ", ".join(map(repr, fields)) or "none", remedy)
        object.__setattr__(self, "fields", fields)
        object.__setattr__(self, "cells", cells)
        object.__setattr__(self, "values", values)

    @property
    def name(self) -> str:
        quoted = [json.dumps(name, ensure_ascii=False) for name in self.fields]
        return f"{type(self).__name__}({', '.join(quoted)})"

    def __repr__(self) -> str:
        return self.name

    @property
    def columns(self) -> tuple[str, ...]:
        return self.fields

    def bind(self, columns: Any, rows: int) -> Metric:
        if columns is None:
            raise self._without_columns()
        codes = []
        for name in self.fields:
            column = encode(name, column_of("columns", name, columns)).codes
            if len(column) != rows:
                raise wrong_length(f"column {name!r}", len(column), rows)
            codes.append(column)
        values, cells = np.unique(np.array(codes), axis=1, return_inverse=True)
        return type(self)(*self.fields, cells=cells.ravel(), values=values.astype(np.intp))

    def _without_columns(self) -> DataError:
        remedy = f"Pass columns={{{self.fields[0]!r}: ...}}."
        return DataError("columns", f"be given for {self.name}", "none", remedy)

    def take(self, rows: Indices | Mask) -> Metric:
        return type(self)(*self.fields, cells=self.cells[rows], values=self.values)

    def bin_indices(self, probabilities: Floats, evidence: Evidence) -> Indices:
        if not len(self.values):
            raise self._without_columns()
        return self.cells

    def terms(self, probabilities: Floats, evidence: Evidence) -> Floats:
        return calibration_masses(probabilities, evidence)

    def compute(self, sums: Floats) -> float:
        return float(np.mean([self.of_field(*masses) for masses in self._by_field(sums)]))

    def _by_field(self, masses: Floats) -> list[Floats]:
        """Sums of each line over the combinations that have a value, field by field."""
        values = self.values[:, : masses.shape[1]]
        return [np.array([add_up(each, line) for line in masses]) for each in values]

    @abstractmethod
    def of_field(self, positive: Floats, total: Floats, predicted: Floats) -> float:
        """Compute the metric from the masses of each value of one field."""


@dataclass(frozen=True, slots=True, init=False, repr=False)
class FieldECE(FieldMetric):
    """Expected calibration error by field (F-ECE): the mean gap over a column's values.

    The gap is that between predicted probability and observed rate of each value, such as a
    country, weighted by its mass. With several fields it is the mean over fields.

    >>> country = ["NL", "NL", "DE", "DE"]
    >>> FieldECE("country")([0.5, 0.5, 0.5, 0.5], [0, 1, 1, 1], columns={"country": country})
    0.25
    """

    noise_adds: ClassVar[bool] = True

    def of_field(self, positive: Floats, total: Floats, predicted: Floats) -> float:
        return float(np.abs(positive - predicted).sum() / total.sum())

    def errors(self, residuals: Floats, probabilities: Floats, weights: Floats) -> Floats:
        gaps = [np.abs(of_value).sum(axis=1) for of_value in self._by_field(residuals)]
        return np.asarray(np.mean(gaps, axis=0))


@dataclass(frozen=True, slots=True, init=False, repr=False)
class FieldRCE(FieldMetric):
    """Relative calibration error by field (F-RCE): each value's gap over its observed rate.

    Values of the column are weighted by their mass. A value without positives has no relative
    error: it is dropped, with its rows. With several fields it is the mean over fields.

    >>> country = ["NL", "NL", "DE", "DE"]
    >>> FieldRCE("country")([0.5, 0.5, 0.5, 0.5], [0, 1, 0, 0], columns={"country": country})
    0.0
    """

    def of_field(self, positive: Floats, total: Floats, predicted: Floats) -> float:
        kept = positive > 0
        if not kept.any():
            return float("nan")
        relative = np.abs(positive - predicted)[kept] / positive[kept]
        return float(np.average(relative, weights=total[kept]))
