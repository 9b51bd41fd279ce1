"""A new map from the labels of recent days, made as the deployed one was."""

from __future__ import annotations

from dataclasses import replace

from calibrank._internal.arguments import instance
from calibrank._internal.validation import Floats
from calibrank.anchoring import anchor, to_base_rate, undo_undersampling
from calibrank.composition import refusal
from calibrank.curves import Calibrator
from calibrank.errors import DataError
from calibrank.maps import CalibrationMap, FitRecord, PositionTerm, SmoothTerm
from calibrank.maps.calibration_map import require_map
from calibrank.model import Model
from calibrank.monitor.day import MOST_SEGMENTS, Day, LevelRows, proportional
from calibrank.registry import parse_model
from calibrank.summary import Summary
from calibrank.terms import Group, Level

# Rows that stand for a population with levels: a known rate is met to about 1e-5 of itself.
_POPULATION = 200_000


def refit(fitted: CalibrationMap, window: Day) -> CalibrationMap:
    """Make a new map from the labels of a window of days, as the deployed one was made.

    Its curve and level are fitted to these labels, by the recipe in its record. Then, if the
    deployed map was moved to a known rate, so is the new one; if it was corrected for sampled
    negatives, so is the new one. A map that was anchored is anchored again: what is deployed is the
    start, and the labels of the days are those that it is anchored on.

    >>> from calibrank import Platt
    >>> fitted = Platt().fit([-1.0, 0.0, 1.0, 2.0], [0, 1, 0, 1])
    >>> day = Day.of(fitted, [0.0, 1.0, 2.0, 3.0], [0, 0, 1, 0], date="2026-01-05")
    >>> refit(fitted, day).record.previous_map == fitted.digest
    True
    """
    require_refittable(fitted)
    instance("window", window, Day, "Make one with window_of(days).")
    if window.labelled is None:
        raise DataError("a window to refit on", "hold labels", "none", "Add labelled days.")
    _require_levels(fitted, window)
    if _is_anchored(fitted.record):
        refitted = _anchored_again(fitted, window)
    else:
        refitted = _with_base_rate(_fitted_again(fitted, window), fitted.record, window)
    record = replace(
        refitted.record,
        previous_map=fitted.digest,
        model_name=fitted.record.model_name,
        population=fitted.record.population,
        date=window.date,
    )
    return replace(refitted, record=record)


def require_refittable(fitted: CalibrationMap) -> None:
    """Raise a `DataError` if days do not hold what a map was made from; it needs no days."""
    require_map(fitted)
    refused = _refused_part(fitted)
    if refused is not None:
        raise refusal(refused, "refit")
    if not _is_anchored(fitted.record):
        _model_of(fitted.record)


def _refused_part(fitted: CalibrationMap) -> str | None:
    """What days do not hold the data of, as in the table of refused combinations."""
    record = fitted.record
    for term in fitted.terms:
        if isinstance(term, SmoothTerm | PositionTerm):
            return "Smooth" if isinstance(term, SmoothTerm) else "Position"
    if len(fitted.terms) > 1:
        return "several levels"
    if _is_anchored(record):
        return None
    if record.evidence != "naive":
        return "weighted evidence"
    if record.base_rate_source == "assumed" and record.base_rate is not None:
        return "a rate assumed from activity"
    return None


def _is_anchored(record: FitRecord) -> bool:
    return record.base_rate_source == "random labels"


def _model_of(record: FitRecord) -> tuple[Calibrator, Level | None]:
    """The calibrator of a map, and its level if it has one."""
    if record.recipe is None:
        rule, found = "say how it was fitted", f"the method {record.method!r} without a recipe"
        raise DataError("the map to refit", rule, found, "Fit it again to the rows.")
    model = parse_model(record.recipe)
    if isinstance(model, Calibrator):
        return model, None
    if any(isinstance(term, Group) for term in model.terms):
        raise refusal("Group", "refit")
    return instance("the curve", model.curve, Calibrator), model.level_alone


def _require_levels(fitted: CalibrationMap, window: Day) -> None:
    """Check that the labels by level are all of them, where the map has a level."""
    held = sum(int(sums.by_segment[2].sum()) for sums in window.by_segment)
    if fitted.terms and held < window.labels:
        raise DataError(
            "days",
            "hold the segments of all labels",
            f"those of {held:,} of {window.labels:,} labels: a window keeps at most "
            f"{MOST_SEGMENTS:,} segments",
            "Fit again to the tables of these days.",
        )


def _anchored_again(fitted: CalibrationMap, window: Day) -> CalibrationMap:
    if window.by_segment:
        rows = LevelRows.of(window.by_segment[0])
        anchored = anchor(fitted, rows.scores, rows.evidence, rows.columns)
    else:
        labelled = _labelled(window)
        anchored = anchor(fitted, labelled.scores, labelled.evidence)
    anchoring = anchored.record.anchoring
    if anchoring is None:
        raise AssertionError("an anchored map knows its labels")
    # Rows are pooled, so that there are fewer of them than labels.
    anchoring = replace(anchoring, labels=window.labels)
    return replace(anchored, record=replace(anchored.record, anchoring=anchoring))


def _labelled(window: Day) -> Summary:
    """Scores and labels, also where the map has terms."""
    return instance("labels", window.by_score or window.labelled, Summary)


def _fitted_again(fitted: CalibrationMap, window: Day) -> CalibrationMap:
    curve, level = _model_of(fitted.record)
    refitted = curve.fit_summary(_labelled(window))
    if level is None:
        return refitted
    return Model(curve, (level,)).fit_sums(refitted, window.by_segment[0])


def _with_base_rate(refitted: CalibrationMap, record: FitRecord, window: Day) -> CalibrationMap:
    """The map corrected for sampled negatives, and moved to the known rate, as the old one was."""
    if record.negatives_kept is not None:
        refitted = undo_undersampling(refitted, record.negatives_kept)
    if record.base_rate_source != "known rate" or record.base_rate is None:
        return refitted
    population: Summary | Floats = window.scores
    columns = None
    if window.by_segment:
        rows = LevelRows.of(window.by_segment[0])
        chosen = proportional(rows.evidence.total, _POPULATION)
        population = rows.scores[chosen]
        columns = {name: values[chosen] for name, values in rows.columns.items()}
    return to_base_rate(
        refitted,
        record.base_rate,
        population,
        top_rate=record.top_rate,
        rate_range=record.base_rate_range,
        columns=columns,
    )
