"""The verdict of a report: the average error, and whether it is one of shape or of base rate."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from calibrank.metrics.misfit import Misfit
from calibrank.report.headline import percent

# The verdict is good if bins with this fraction of the mass contain the prediction. With correct
# 95% intervals 15 bins fall below it by chance in about 4% of tables.
_MINIMUM_COVERAGE = 0.85

# p-values below this are said to contradict calibration.
_SIGNIFICANT = 0.05

# A bin with fewer rows is not named: its interval is wider than most errors.
_MINIMUM_ROWS = 200

# An interval that misses its prediction by 5 points is an error whatever the coverage: with 200
# rows or more it is over 3 standard errors away, so chance hardly ever does that in 15 bins.
_LARGE_MISS = 0.05

# A base rate, or a slope, that is off by more than 10% is called bad, by less fair.
_LARGE_LOG_RATIO = 0.1
# Slopes closer to 1 change no probability by more than about a point.
_SMALL_LOG_RATIO = 0.05


class Gap(NamedTuple):
    """A bin of a reliability curve whose interval does not contain the mean prediction."""

    predicted: float
    observed: float
    miss: float
    """The distance from the prediction to the interval of the observed rate."""
    share: float
    """The fraction of the rows that is in the bin."""

    @property
    def size(self) -> float:
        return abs(self.observed - self.predicted)

    @property
    def text(self) -> str:
        """The gap in words, as the page writes percentages."""
        direction = "high" if self.predicted > self.observed else "low"
        return (
            f"In {percent(self.share)} of the rows they are too {direction} by "
            f"{100 * self.size:.2g} points: items given {percent(self.predicted)} are liked "
            f"{percent(self.observed)} of the time."
        )


def verdict(main: dict[str, Any], shape: Misfit, *, identified: bool) -> dict[str, Any]:
    """Summarize how well calibrated the main method is, with the numbers that say so.

    Labels weighted by propensities do not identify the base rate (`identified` is False), so with
    them no verdict is better than fair.
    """
    metrics = main["metrics"]
    curve = main["curves"]["mass"]
    contained = (curve["low"] <= curve["predicted"]) & (curve["predicted"] <= curve["high"])
    coverage = float(curve["mass"][contained].sum() / curve["mass"].sum())
    gap = largest_gap(main["curves"])
    tone, title = (
        _constant_verdict(metrics)
        or _shape_verdict(metrics, coverage, gap)
        or _base_rate_verdict(metrics["CalibrationInTheLarge"])
        or _calibrated_verdict(identified=identified)
    )
    facts = _facts(main, gap, shape)
    return {"tone": tone, "error": _average_error(metrics), "title": title, "facts": facts}


def _average_error(metrics: dict[str, Any]) -> str:
    """The mean distance from the observed rates, and what it costs."""
    # Unlike binned errors it is never smaller than that of the mean, and has no bins to choose.
    error = metrics["SmoothECE"]
    points = f"{100 * error['value']:.2g} points"
    interval = ""
    if not np.isnan(error["low"]):
        low, high = 100 * max(error["low"], 0.0), 100 * error["high"]
        interval = f" (95% interval {low:.2g} to {high:.2g})"
    cost = metrics["Miscalibration"]["value"]
    return (
        f"The probabilities are off by {points} on average{interval}, which costs {cost:.4f} of a "
        f"Brier score of {metrics['Brier']['value']:.4f}."
    )


def largest_gap(curves: dict[str, dict[str, Any]]) -> Gap | None:
    """The largest gap that chance does not explain, among bins with enough rows."""
    found = []
    for curve in curves.values():
        # In a small table no bin has enough rows: those with the most must do.
        enough = min(_MINIMUM_ROWS, float(curve["rows"].max()))
        miss = np.maximum(curve["low"] - curve["predicted"], curve["predicted"] - curve["high"])
        share = curve["rows"] / curve["rows"].sum()
        for bin_ in np.flatnonzero((miss > 0) & (curve["rows"] >= enough)):
            columns = (curve["predicted"], curve["observed"], miss, share)
            found.append(Gap(*[float(column[bin_]) for column in columns]))
    return max(found, key=lambda gap: gap.size, default=None)


def _constant_verdict(metrics: dict[str, Any]) -> tuple[str, str] | None:
    gain = metrics["LogLossGain"]["value"]
    if gain >= 0:
        return None
    average = _base_rate_verdict(metrics["CalibrationInTheLarge"])
    return "bad", (
        "They are worse than a constant: predicting the base rate for every row would have a log "
        f"loss lower by {-gain:.4f}." + ("" if average is None else f" {average[1]}")
    )


def _shape_verdict(
    metrics: dict[str, Any], coverage: float, gap: Gap | None
) -> tuple[str, str] | None:
    if gap is not None and (coverage < _MINIMUM_COVERAGE or gap.miss > _LARGE_MISS):
        ratio = metrics["CalibrationInTheLarge"]
        is_bad = gap.miss > _LARGE_MISS or _is_off(ratio, _LARGE_LOG_RATIO)
        return "bad" if is_bad else "fair", gap.text
    slope = metrics["CalibrationSlope"]
    if coverage < _MINIMUM_COVERAGE or _is_off(slope, _SMALL_LOG_RATIO):
        error = "too extreme" if slope["value"] < 1 else "too close to each other"
        tone = "bad" if _is_off(slope, 2 * _LARGE_LOG_RATIO) else "fair"
        return tone, f"They are {error}: the calibration slope is {slope['value']:.2f}."
    return None


def _base_rate_verdict(ratio: dict[str, float]) -> tuple[str, str] | None:
    if not _is_off(ratio, 0.0):
        return None
    direction = "high" if ratio["value"] > 1 else "low"
    tone = "bad" if _is_off(ratio, _LARGE_LOG_RATIO) else "fair"
    return tone, f"They are too {direction} on average."


def _calibrated_verdict(*, identified: bool) -> tuple[str, str]:
    if not identified:
        return "fair", ("They agree with the weighted log, which cannot confirm their base rate.")
    return "good", (
        "They are well calibrated on this table, provided its pairs were shown at random."
    )


def _is_off(estimate: dict[str, float], log_ratio: float) -> bool:
    """Whether the interval excludes 1 and the value is off by more than a factor."""
    if estimate["low"] <= 1 <= estimate["high"]:
        return False
    # Slopes may be negative; without an interval nothing is known to be off.
    value = max(estimate["value"], 1e-300)
    return not np.isnan(estimate["low"]) and abs(float(np.log(value))) > log_ratio


def _facts(main: dict[str, Any], gap: Gap | None, shape: Misfit) -> list[str]:
    """At most four sentences; all metrics are in the table of methods."""
    metrics = main["metrics"]
    log_loss = _with_interval(metrics["LogLoss"], 4)
    constant = metrics["ConstantLogLoss"]["value"]
    gain = metrics["LogLossGain"]["value"]
    side = "lower" if gain >= 0 else "higher"
    slope = _with_interval(metrics["CalibrationSlope"], 3)
    ratio = _with_interval(metrics["CalibrationInTheLarge"], 3)
    compared = f"{abs(gain):.4f} {side} than that of the best constant, {constant:.4f}."
    rates = f"Mean prediction divided by observed rate: {ratio}; calibration slope: {slope}."
    facts = [f"Log loss {log_loss}: {compared}", f"{rates} 1 is ideal for both."]
    if gap is not None:
        facts.append(f"The worst bin: {gap.text}")
    facts.append(_describe_shape(shape, main["calibration_test"]["p_value"]))
    return facts


def _describe_shape(shape: Misfit, p_value: float) -> str:
    size = shape.size[0].upper() + shape.size[1:]
    verb = "contradict" if p_value < _SIGNIFICANT else "agree with"
    test = f"The labels {verb} calibration (test: p = {p_value:.2g})."
    if not shape.matters:
        return f"{size}: no more than chance explains, or too little to matter. {test}"
    return f"{size}: more than chance explains. {test}"


def _with_interval(estimate: dict[str, float], digits: int) -> str:
    value = f"{estimate['value']:.{digits}f}"
    if np.isnan(estimate["low"]):
        return value
    return f"{value} ({estimate['low']:.{digits}f} to {estimate['high']:.{digits}f})"
