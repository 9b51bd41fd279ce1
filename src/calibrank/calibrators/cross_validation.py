"""Cross-validation on pooled evidence: one map per fold, fitted on the other folds."""

from __future__ import annotations

import warnings
from functools import reduce
from operator import add

from calibrank.calibrators.calibrator import Calibrator
from calibrank.errors import FlatMapWarning
from calibrank.maps import CalibrationMap
from calibrank.summary import Summary


def fit_without_each(calibrator: Calibrator, folds: list[Summary]) -> list[CalibrationMap]:
    """Fit one map per fold on the evidence of all other folds.

    >>> from calibrank import Platt
    >>> first = Summary.of([0.0, 1.0, 2.0, 3.0], [0, 1, 0, 1])
    >>> second = Summary.of([0.5, 1.5, 2.5, 3.5], [0, 0, 1, 0])
    >>> [fitted.record.rows for fitted in fit_without_each(Platt(), [first, second])]
    [4, 4]
    """
    maps = []
    with warnings.catch_warnings():
        # A flat map needs no warning here: its held-out log loss shows it.
        warnings.simplefilter("ignore", FlatMapWarning)
        for held_out in range(len(folds)):
            others = folds[:held_out] + folds[held_out + 1 :]
            maps.append(calibrator.fit_summary(reduce(add, others)))
    return maps
