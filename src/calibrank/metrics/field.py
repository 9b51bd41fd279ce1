"""Calibration errors by the values of a field, as papers on click-through rates report them.

Pan et al., "Field-aware Calibration" (WWW 2020), define both.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from calibrank._internal.segment_keys import column_of, encode
from calibrank._internal.validation import Floats, Ids, Indices, Mask, add_up, wrong_length
from calibrank.errors import DataError
from calibrank.evidence import Evidence
from calibrank.metrics.binned import calibration_masses
from calibrank.metrics.metric import Additive, Better, Metric, Wrapper


@dataclass(frozen=True, slots=True, init=False)
class FieldMetric(Metric):
    """A metric of the values of one field, or its mean over several fields."""

    better: ClassVar[Better] = Better.LOWER
    fields: tuple[str, ...]

    def __init__(self, *fields: str) -> None:
        if not fields or not all(isinstance(name, str) and name for name in fields):
            raise DataError(
                "fields",
                "be names of columns",
                ", ".join(map(repr, fields)) or "none",
                f'Use e.g. {type(self).__name__}("country").',
            )
        object.__setattr__(self, "fields", fields)

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
            raise DataError(
                "columns",
                f"be given for {self.name}",
                "none",
                f"Pass columns={{{self.fields[0]!r}: ...}}.",
            )
        codes = []
        for name in self.fields:
            column = encode(name, column_of("columns", name, columns)).codes
            if len(column) != rows:
                raise wrong_length(f"column {name!r}", len(column), rows)
            codes.append(column)
        values, cells = np.unique(np.array(codes), axis=1, return_inverse=True)
        return _Bound(self, cells.ravel(), values.astype(np.intp))

    def evaluate(self, probabilities: Floats, evidence: Evidence, users: Ids | None) -> float:
        bound = self.bind(None, len(probabilities))
        return bound.evaluate(probabilities, evidence, users)

    @abstractmethod
    def of_field(self, positive: Floats, total: Floats, predicted: Floats) -> float:
        """Compute the metric from the masses of each value of one field."""


@dataclass(frozen=True, slots=True, init=False, repr=False)
class FieldECE(FieldMetric):
    """ECE by field (F-ECE): the mean gap between predicted and observed rate of a field's values.

    Values are weighted by their mass. With several fields it is the mean over fields.

    >>> country = ["NL", "NL", "DE", "DE"]
    >>> FieldECE("country")([0.5, 0.5, 0.5, 0.5], [0, 1, 1, 1], columns={"country": country})
    0.25
    """

    explanation: ClassVar[str] = (
        "Expected calibration error by field: the mean gap between predicted probability and "
        "observed rate over the values of a column, such as countries."
    )
    noise_adds: ClassVar[bool] = True

    def of_field(self, positive: Floats, total: Floats, predicted: Floats) -> float:
        return float(np.abs(positive - predicted).sum() / total.sum())


@dataclass(frozen=True, slots=True, init=False, repr=False)
class FieldRCE(FieldMetric):
    """Relative calibration error by field (F-RCE): each value's gap divided by its observed rate.

    A value without positives has no relative error: it is dropped, with its rows. Values are
    weighted by their mass. With several fields it is the mean over fields.

    >>> country = ["NL", "NL", "DE", "DE"]
    >>> FieldRCE("country")([0.5, 0.5, 0.5, 0.5], [0, 1, 0, 0], columns={"country": country})
    0.0
    """

    explanation: ClassVar[str] = (
        "Relative calibration error by field: the gap between predicted probability and observed "
        "rate divided by that rate, averaged over the values of a column. Values without any "
        "positive are dropped."
    )

    def of_field(self, positive: Floats, total: Floats, predicted: Floats) -> float:
        kept = positive > 0
        if not kept.any():
            return float("nan")
        relative = np.abs(positive - predicted)[kept] / positive[kept]
        return float(np.average(relative, weights=total[kept]))


@dataclass(frozen=True, slots=True, eq=False)
class _Bound(Wrapper, Additive):
    """A field metric with its columns; its bins are the combinations of values that occur."""

    has_fixed_bins: ClassVar[bool] = False
    metric: FieldMetric
    cells: Indices
    """The combination of values of each row."""
    values: Indices
    """The value of each field in each combination, fields x combinations."""

    def take(self, rows: Indices | Mask) -> Metric:
        return replace(self, cells=self.cells[rows])

    def bin_indices(self, probabilities: Floats, evidence: Evidence) -> Indices:
        return self.cells

    def terms(self, probabilities: Floats, evidence: Evidence) -> Floats:
        return calibration_masses(probabilities, evidence)

    def errors(self, residuals: Floats, probabilities: Floats, weights: Floats) -> Floats:
        found = []
        for values in self.values[:, : residuals.shape[1]]:
            of_value = [add_up(values, one) for one in residuals]
            found.append(np.abs(of_value).sum(axis=1))
        return np.asarray(np.mean(found, axis=0))

    def compute(self, sums: Floats) -> float:
        found = []
        for values in self.values[:, : sums.shape[1]]:
            masses = [add_up(values, term) for term in sums]
            found.append(self.metric.of_field(*masses))
        return float(np.mean(found))
