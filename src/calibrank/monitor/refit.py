"""A new map from the labels of recent days, with the digest of the old one in its record."""

from __future__ import annotations

from dataclasses import replace

from calibrank.calibrators import Calibrator
from calibrank.errors import DataError
from calibrank.maps import CalibrationMap
from calibrank.monitor.day import Day, digest_of_map, uses_columns
from calibrank.registry import CALIBRATORS


def refit(
    fitted: CalibrationMap, window: Day, calibrator: Calibrator | None = None
) -> CalibrationMap:
    """Fit a new map to the labels of a window of days; by default by the old map's method.

    The labels are used as they are: the new map describes the pairs that were shown.

    >>> from calibrank import Platt
    >>> fitted = Platt().fit([-1.0, 0.0, 1.0, 2.0], [0, 1, 0, 1])
    >>> day = Day.of(fitted, [0.0, 1.0, 2.0, 3.0], [0, 0, 1, 0], date="2026-01-05")
    >>> refit(fitted, day).record.previous_map == digest_of_map(fitted)
    True
    """
    if window.labelled is None:
        raise DataError("a window to refit on must hold labels, got none. Add labelled days.")
    if uses_columns(fitted):
        raise DataError(
            f"a map to refit from days must depend on scores alone, got a {fitted.kind} map: days "
            "do not hold its columns. Fit again to the tables of these days."
        )
    if calibrator is None:
        calibrator = _method_of(fitted)
    refitted = calibrator.fit_summary(window.labelled)
    record = replace(
        refitted.record,
        previous_map=digest_of_map(fitted),
        model_name=fitted.record.model_name,
        date=window.date,
    )
    return replace(refitted, record=record)  # type: ignore[type-var]  # all maps are dataclasses


def _method_of(fitted: CalibrationMap) -> Calibrator:
    if fitted.method not in CALIBRATORS:
        raise DataError(
            f"the method of a refit must be one of {', '.join(CALIBRATORS)}, got that of the old "
            f"map, {fitted.method!r}. Name a method."
        )
    return CALIBRATORS[fitted.method]
