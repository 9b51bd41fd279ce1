"""A new map from the labels of recent days, with the digest of the old one in its record."""

from __future__ import annotations

from dataclasses import replace

from calibrank._internal.arguments import instance
from calibrank.curves import Calibrator, Segments
from calibrank.errors import DataError
from calibrank.maps import CalibrationMap, GroupedMap
from calibrank.monitor.day import Day, digest_of_map, uses_columns
from calibrank.monitor.segment_evidence import MOST_SEGMENTS
from calibrank.registry import CALIBRATORS
from calibrank.summary import Summary


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
    instance("fitted", fitted, CalibrationMap, "Fit one, or read one with calibrank.load.")
    instance("window", window, Day, "Make one with window_of(days).")
    if calibrator is not None:
        instance("calibrator", calibrator, Calibrator, "E.g. Platt().")
    if window.labelled is None:
        raise DataError("a window to refit on must hold labels, got none. Add labelled days.")
    refitted = _refitted(fitted, window, window.labelled, calibrator)
    record = replace(
        refitted.record,
        previous_map=digest_of_map(fitted),
        model_name=fitted.record.model_name,
        date=window.date,
    )
    return replace(refitted, record=record)  # type: ignore[type-var]  # all maps are dataclasses


def _refitted(
    fitted: CalibrationMap, window: Day, labelled: Summary, calibrator: Calibrator | None
) -> CalibrationMap:
    if isinstance(fitted, GroupedMap) and not fitted.base.feature_columns:
        return _refitted_by_segment(fitted, window, calibrator)
    if uses_columns(fitted):
        names = ", ".join(fitted.feature_columns)
        raise DataError(
            "a map to refit from days must depend on scores and segments alone, got one that uses "
            f"{names}, which days do not hold. Fit again to the tables of these days."
        )
    return (calibrator or _method_of(fitted)).fit_summary(labelled)


def _refitted_by_segment(
    fitted: GroupedMap, window: Day, calibrator: Calibrator | None
) -> GroupedMap:
    """The same columns, and slopes if the old map has any; the base by its method or another."""
    evidence = window.by_segment
    held = 0 if evidence is None else evidence.summary.rows
    if evidence is None or held < window.labels:
        raise DataError(
            f"days must hold the segments of all labels, got those of {held:,} of "
            f"{window.labels:,} labels: a window keeps at most {MOST_SEGMENTS:,} segments. "
            "Fit again to the tables of these days."
        )
    slopes = any(slope != 1 for slope in fitted.slopes)
    method = Segments(fitted.columns, calibrator or _method_of(fitted.base), slopes=slopes)
    return method.fit_sums(evidence.summary, evidence.sums)


def _method_of(fitted: CalibrationMap) -> Calibrator:
    if fitted.method not in CALIBRATORS:
        raise DataError(
            f"the method of a refit must be one of {', '.join(CALIBRATORS)}, got that of the old "
            f"map, {fitted.method!r}. Name a method."
        )
    return CALIBRATORS[fitted.method]
