"""The top of a report: the average error, observed rates in sentences, and what is not known."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from calibrank._internal.logit import logit
from calibrank._internal.validation import Floats
from calibrank.maps import (
    CalibrationMap,
    FitRecord,
    describe_base_rate,
    describe_range,
    is_base_rate_known,
)
from calibrank.metrics import Clusters
from calibrank.metrics.clustered_bootstrap import Codes
from calibrank.metrics.misfit import Misfit
from calibrank.report.rows import ReportRows

PROBABILITIES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
PREFERRED = 0.3
"""The probability of the first sentence, where enough rows are near it."""

# Rows within 0.25 log odds of a probability count as given that probability: 25% to 36% for 30%.
# They are corrected for how far from it they are on average, so the window adds no bias.
_WINDOW = 0.25
_MINIMUM_ROWS = 200
"""With fewer rows no rate is stated, and no bin named: its interval is wider than most errors."""

# Counts are stated per 100 items, or per more where both ends would round to the same number.
_OUT_OF = (100, 1000, 10_000)


def percent(probability: float) -> str:
    """Write a probability as a percentage the way the page's scripts do.

    >>> percent(0.3), percent(0.1234), percent(0.00123), percent(0.9999)
    ('30%', '12.3%', '0.12%', '100%')
    """
    hundred = 100 * probability
    places = 1
    if hundred == 0 or hundred >= 99.95:
        places = 0
    elif hundred < 0.1:
        places = 3
    elif hundred < 1 or hundred > 99:
        places = 2
    # Trailing zeros are dropped: 30%, not 30.0%.
    return f"{float(f'{hundred:.{places}f}'):g}%"


def sentences(rows: ReportRows, probabilities: Floats, clusters: Clusters) -> list[dict[str, Any]]:
    """Return one sentence per probability that enough rows are near, the preferred one first."""
    log_odds = logit(probabilities)
    found = []
    for probability in PROBABILITIES:
        near = np.flatnonzero(np.abs(log_odds - logit(probability)) <= _WINDOW)
        if len(near) >= _MINIMUM_ROWS:
            found.append(_sentence(rows, probabilities, clusters, near, probability))
    if not found:
        mean = np.average(probabilities, weights=rows.evidence.total)
        rounded = float(f"{np.clip(mean, 1e-4, 1 - 1e-4):.2g}")
        found = [_sentence(rows, probabilities, clusters, np.arange(len(rows)), rounded)]
    return sorted(found, key=lambda one: abs(logit(one["probability"]) - logit(PREFERRED)))


def _sentence(
    rows: ReportRows, probabilities: Floats, clusters: Clusters, near: Codes, probability: float
) -> dict[str, Any]:
    """State the observed rate of rows near a probability, corrected for their mean distance."""
    evidence = rows.evidence.rows(near)
    predicted = probabilities[near]
    bins = np.zeros(len(near), dtype=np.intp)
    # The mean gap to the prediction, added to the probability that is stated.
    gap = clusters.rates(bins, predicted, evidence, 1, near).gap
    low = float(np.clip(probability + gap.low[0], 0, 1))
    high = float(np.clip(probability + gap.high[0], 0, 1))
    out_of = _denominator(probability, low, high)
    lowest = round(out_of * low)
    highest = round(out_of * high)
    return {
        "probability": probability,
        "out_of": out_of,
        "low": lowest,
        "high": highest,
        "text": (
            f"Of {out_of:,} items given {percent(probability)}, {lowest:,} to {highest:,} are liked"
        ),
        "rows": len(near),
        "lowest_prediction": float(predicted.min()),
        "highest_prediction": float(predicted.max()),
    }


def _denominator(probability: float, low: float, high: float) -> int:
    """Choose the number of items that makes both ends of the interval distinct whole numbers."""
    for out_of in _OUT_OF:
        if out_of * probability >= 2 and round(out_of * low) < round(out_of * high):
            return out_of
    return _OUT_OF[-1]


def describe_source(fitted: CalibrationMap) -> dict[str, Any]:
    """Describe where the base rate of the map comes from."""
    record = fitted.record
    text = describe_base_rate(record)
    sensitivity = record.sensitivity
    base_rates = "" if sensitivity is None else describe_range(sensitivity)
    if base_rates:
        text += f" {base_rates}"
    return {"title": _source_title(record), "text": text, "identified": is_base_rate_known(record)}


def _source_title(record: FitRecord) -> str:
    if record.base_rate_source == "random labels":
        return "Random labels"
    if record.base_rate_source == "known rate":
        return "A known rate"
    if record.evidence == "naive":
        return "The labels, used as they are"
    if record.evidence == "impressions":
        return "Logged impressions"
    return "Assumed: the log does not identify it"


def limitations(rows: ReportRows, fitted: CalibrationMap, *, given: bool) -> list[str]:
    """List what this report cannot show, each in one to three sentences."""
    found = [_evidence_limitation(rows)]
    if given and _looks_fitted_here(fitted.record, rows):
        found.append(
            "The map was fitted on as many rows of the same mass, probably on these. Evaluated on "
            "its own training data it looks slightly better than it is. The other methods in the "
            "table are cross-validated."
        )
    if rows.users is None or len(rows.users.names) < 2:
        found.append(
            "There are no users to group rows by, so intervals treat rows as independent and are "
            "too narrow. Name a column of users."
        )
    if rows.is_sample:
        found.append(
            f"The table has {rows.rows_in_table:,} rows. This report covers {len(rows):,} of "
            "them: all rows of a random sample of users."
        )
    return found


def _evidence_limitation(rows: ReportRows) -> str:
    if rows.evidence.kind == "naive":
        return (
            "Labels were used as they are. If the pairs were not shown at random, the base rate "
            "among all pairs is unknown, and so is the calibration on them."
        )
    if rows.evidence.kind == "impressions":
        return (
            "Observed rates are those of impressions, weighted by the policy that chose them. "
            "They hold for all pairs that the policy could have shown; nothing is known about "
            "pairs that it never shows."
        )
    source = "estimated from the popularity of items" if rows.estimated_propensity else "as given"
    return (
        f"Observed rates are weighted by inverse propensities, {source}. A biased log does not "
        "identify the base rate: if the propensities are wrong by a factor, so is every observed "
        "rate here."
    )


def _looks_fitted_here(record: FitRecord, rows: ReportRows) -> bool:
    """Guess whether a map was fitted on these rows, by the number of rows and their masses."""
    evidence = rows.evidence
    if record.rows != rows.rows_in_table or record.total != float(evidence.total.sum()):
        return False
    same_positive = np.isclose(record.positive, evidence.positive.sum())
    return record.evidence == evidence.kind and bool(same_positive)


# The verdict is good if bins with this fraction of the mass contain the prediction. With correct
# 95% intervals 15 bins fall below it by chance in about 4% of tables.
_MINIMUM_COVERAGE = 0.85

# p-values below this are said to contradict calibration.
_SIGNIFICANT = 0.05

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
