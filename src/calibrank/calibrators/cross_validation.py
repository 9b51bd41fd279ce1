"""Cross-validation on pooled evidence: each share is judged by a fit on the others."""

import warnings
from functools import reduce
from operator import add

from calibrank.calibrators.calibrator import Calibrator
from calibrank.errors import FlatMapWarning
from calibrank.maps import CalibrationMap
from calibrank.summary import Summary


def fit_without_each(method: Calibrator, parts: list[Summary]) -> list[CalibrationMap]:
    """One map a part, fitted on all the other parts.

    >>> from calibrank import Platt
    >>> parts = [Summary.of([0.0, 1.0, 2.0, 3.0], [0, 1, 0, 1]), Summary.of([0.5, 1.5, 2.5, 3.5], [0, 0, 1, 0])]
    >>> [fitted.record.rows for fitted in fit_without_each(Platt(), parts)]
    [4, 4]
    """
    rests = [
        reduce(add, parts[:held_out] + parts[held_out + 1 :]) for held_out in range(len(parts))
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FlatMapWarning)  # a flat map shows in its log loss
        return [method.fit_summary(rest) for rest in rests]
