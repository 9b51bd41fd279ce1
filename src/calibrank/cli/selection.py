"""The curve of a fit: by the method that is named, or by one that cross-validation chooses."""

import warnings

import numpy as np

from calibrank.cli import console
from calibrank.cli.parse import as_typed
from calibrank.curves import Auto, Calibrator, Platt
from calibrank.curves.auto import with_selection
from calibrank.errors import FitError, FlatMapWarning
from calibrank.maps import CalibrationMap, LogisticCurve
from calibrank.registry import CALIBRATORS, SELECTORS, find
from calibrank.summary import Summary
from calibrank.summary.grid import CAPACITY
from calibrank.tabular.aggregate import Aggregate

FALLBACK = Platt()
"""The method where none can be selected: the simplest one."""

# Fewer positives or negatives per fold than this choose a method by chance.
_FEWEST_PER_FOLD = 10

# Standard errors below 1/2 from which an AUC says that scores are reversed.
_CLEARLY = 3.0


class Method:
    """A method by name: `auto` needs folds to choose by."""

    def __init__(self, name: str) -> None:
        selects = name in map(as_typed, SELECTORS)
        self.selector: Auto | None = find("method", SELECTORS, name) if selects else None
        self._calibrator = None if selects else find("method", CALIBRATORS, name)

    @property
    def folds(self) -> int:
        """How many folds to aggregate."""
        return 1 if self.selector is None else self.selector.folds

    @property
    def distinct_scores(self) -> int:
        """How many distinct scores get a bin of their own."""
        return CAPACITY if self._calibrator is None else self._calibrator.distinct_scores

    def fit(self, aggregated: Aggregate) -> tuple[Calibrator, CalibrationMap]:
        """The method that was named or chosen, and its fit."""
        calibrator, fitted = self._fit(aggregated)
        _warn_if_reversed(fitted, aggregated.summary)
        return calibrator, fitted

    def _fit(self, aggregated: Aggregate) -> tuple[Calibrator, CalibrationMap]:
        summary = aggregated.summary
        if self._calibrator is not None:
            return self._calibrator, self._calibrator.fit_summary(summary)
        try:
            _require_enough(aggregated.folds)
            calibrator, selection = (self.selector or Auto()).choose(aggregated.folds)
        except FitError as error:
            # A table that is too small to select on may still be fitted.
            fitted = FALLBACK.fit_summary(summary)
            console.say(f"Method: {FALLBACK.name}, because none could be chosen: {error}")
            return FALLBACK, fitted
        return calibrator, with_selection(calibrator.fit_summary(summary), selection)


def _require_enough(folds: tuple[Summary, ...]) -> None:
    for summary in folds:
        squares = float(summary.masses.positive_squared.sum())
        # Kish's effective number: equal weights count each positive once.
        positives = float(summary.positive.sum()) ** 2 / squares if squares else 0.0
        fewest = min(positives, summary.rows - positives)
        if fewest < _FEWEST_PER_FOLD:
            raise FitError(
                f"each of the {len(folds)} folds",
                (f"have {_FEWEST_PER_FOLD} or more positives and negatives to compare methods on"),
                f"{fewest:.0f}",
            )


def _warn_if_reversed(fitted: CalibrationMap, summary: Summary) -> None:
    """Warn where higher scores have fewer positives; logistic curves have warned already."""
    if isinstance(fitted.curve, LogisticCurve):
        return
    positive = summary.positive
    negative = np.maximum(summary.total - positive, 0)
    below = np.cumsum(negative) - negative / 2
    masses = float(positive.sum()), float(negative.sum())
    auc = float(positive @ below) / max(masses[0] * masses[1], 1e-300)
    error = np.sqrt((1 / max(masses[0], 1) + 1 / max(masses[1], 1)) / 12)
    ends = fitted.predict(np.array([summary.low, summary.high]))
    if auc < 0.5 - _CLEARLY * error or ends[0] == ends[1]:
        warnings.warn(
            f"the fitted {fitted.method} map hardly rises: AUC {auc:.3f}. Higher scores do not go "
            "with more positives here: if lower is better (distances, ranks), negate them.",
            FlatMapWarning,
            stacklevel=2,
        )
