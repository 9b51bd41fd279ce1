"""What every calibrator can do: settings in, a fitted map out."""

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

import numpy as np

from calibrank._validation import Numbers
from calibrank.errors import DataError, FitError
from calibrank.evidence import Labels
from calibrank.maps import CalibrationMap, FitRecord
from calibrank.summary import Summary

SMALLEST_RANGE = 1e-100
"""Scores nearer together than this are one score: their squares would vanish."""


class Desiderata(NamedTuple):
    """The paper's three wishes for a calibration function (its Table 2)."""

    any_score: bool
    """Takes scores from all of R, not only from [0, 1]."""
    increasing: bool
    """A higher score never gets a lower probability."""
    expressive: bool
    """Bends to unlike class distributions, and tells every two scores apart."""


class Calibrator(ABC):
    """Frozen settings that fit maps; there is no unfitted state."""

    meets: ClassVar[Desiderata]
    learns: ClassVar[bool] = True
    """Whether the labels matter (baselines only rescale)."""

    def fit(self, scores: Numbers, labels: Labels) -> CalibrationMap:
        """Fit on one score a row and 0/1 labels, or evidence such as `ips(labels, propensity)`."""
        return self.fit_summary(Summary.of(scores, labels))

    def fit_summary(self, summary: Summary) -> CalibrationMap:
        """Fit on pooled evidence: the same answer as on its rows."""
        if self.learns:
            require_both_classes(summary)
            require_spread(summary)
        return self._fit(summary)

    @property
    def name(self) -> str:
        """How the method is called in tables and saved maps."""
        return type(self).__name__

    @abstractmethod
    def _fit(self, summary: Summary) -> CalibrationMap: ...


def record_of(summary: Summary) -> FitRecord:
    """What a map remembers of its data."""
    positive, total = float(summary.positive.sum()), float(summary.total.sum())
    return FitRecord(summary.kind, summary.rows, positive, total, summary.exact)


def require_both_classes(summary: Summary) -> None:
    """Learning needs something liked and something not."""
    if summary.positive.sum() == 0:
        raise FitError(
            f"labels must hold both classes, got no positive in {summary.rows:,} rows. "
            "Calibrate on a sample that holds interactions too."
        )
    if not summary.squared_residuals(np.ones(len(summary))).any():
        raise FitError(
            f"labels must hold both classes, got only positives in {summary.rows:,} rows. "
            "Add pairs without an interaction (negatives)."
        )


def require_spread(summary: Summary) -> None:
    """Scores must tell rows apart."""
    if summary.high - summary.low < SMALLEST_RANGE:
        raise DataError(
            f"scores must differ from row to row, got only {summary.low:.6g}. "
            "A constant score says nothing: check the model or the column."
        )
