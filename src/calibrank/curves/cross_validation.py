"""Cross-validation on pooled evidence: one map per fold, fitted on the other folds."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import add

import numpy as np

from calibrank._internal.logit import logit
from calibrank._internal.validation import Floats
from calibrank.curves.calibrator import Calibrator
from calibrank.errors import FitError, FlatMapWarning
from calibrank.maps import CalibrationMap
from calibrank.summary import Summary

# Log odds are clipped there, so that one row cannot make the mean infinite (as in `LogLoss`).
_MOST_LOG_ODDS = -float(logit(1e-12))


def sums_without_each(folds: Sequence[Summary]) -> list[Summary]:
    """The evidence of all other folds, for each fold."""
    before = list(accumulate(folds[:-1], add))
    after = list(accumulate(folds[:0:-1], add))[::-1]
    # The sums of the folds before and after each are shared, so merging takes linear time.
    inner = [add(*sums) for sums in zip(before[:-1], after[1:], strict=True)]
    return [after[0], *inner, before[-1]]


def fit_without_each(calibrator: Calibrator, folds: list[Summary]) -> list[CalibrationMap]:
    """Fit one map per fold on the evidence of all other folds.

    >>> from calibrank import Platt
    >>> first = Summary.of([0.0, 1.0, 2.0, 3.0], [0, 1, 0, 1])
    >>> second = Summary.of([0.5, 1.5, 2.5, 3.5], [0, 0, 1, 0])
    >>> [fitted.record.rows for fitted in fit_without_each(Platt(), [first, second])]
    [4, 4]
    """
    if len(folds) < 2:
        raise FitError(
            "cross-validation",
            "have rows of at least 2 users or folds",
            len(folds),
            "Use a larger table.",
        )
    with warnings.catch_warnings():
        # A flat map needs no warning here: its held-out log loss shows it.
        warnings.simplefilter("ignore", FlatMapWarning)
        return [calibrator.fit_fold(rest) for rest in sums_without_each(folds)]


@dataclass(frozen=True, slots=True, eq=False)
class HeldOutLosses:
    """The log loss of each fold under the map of the other folds."""

    sums: Floats
    totals: Floats

    @property
    def mean(self) -> float:
        """Mean over all folds together: a mean of means would weight small folds too much."""
        return float(self.sums.sum() / self.totals.sum())

    def standard_error_of_difference(self, other: HeldOutLosses) -> float:
        """Standard error of the difference of two means over the same folds.

        Folds are paired: what makes a fold hard is common to both methods. The difference is a
        ratio of sums, so the residuals are those of the ratio estimator, (d_k - t_k D) / sum(t).
        """
        differences = self.sums - other.sums
        residuals = differences - self.totals * (self.mean - other.mean)
        count = len(self.sums)
        variance = (residuals**2).sum() * count / (count - 1)
        return float(np.sqrt(variance) / self.totals.sum())


def held_out_losses(
    calibrator: Calibrator, folds: list[Summary], others: Sequence[Summary] | None = None
) -> HeldOutLosses:
    """Cross-validate a calibrator by log loss.

    Who compares several calibrators passes `sums_without_each(folds)` as `others`.

    >>> from calibrank import Platt
    >>> first = Summary.of([0.0, 1.0, 2.0, 3.0], [0, 1, 0, 1])
    >>> second = Summary.of([0.5, 1.5, 2.5, 3.5], [0, 0, 1, 0])
    >>> round(held_out_losses(Platt(), [first, second]).mean, 4)
    0.8342
    """
    with warnings.catch_warnings():
        # A flat map needs no warning here: its held-out log loss shows it.
        warnings.simplefilter("ignore", FlatMapWarning)
        curves = calibrator.fit_curves(others or sums_without_each(folds))
    sums = []
    for curve, held_out in zip(curves, folds, strict=True):
        log_odds = curve.log_odds(held_out.scores)
        log_odds = np.clip(log_odds, -_MOST_LOG_ODDS, _MOST_LOG_ODDS)
        # -log(1 - p) = softplus(log odds), and -log p is smaller by the log odds.
        loss = held_out.total @ np.logaddexp(0, log_odds) - held_out.positive @ log_odds
        sums.append(float(loss))
    totals = [float(held_out.total.sum()) for held_out in folds]
    return HeldOutLosses(np.array(sums), np.array(totals))
