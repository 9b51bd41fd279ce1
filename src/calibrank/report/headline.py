"""The top of a report: the average error, observed rates in sentences, and what is not known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from calibrank._internal.logit import expit, logit
from calibrank._internal.validation import Floats
from calibrank.maps import CalibrationMap
from calibrank.maps.score_shift import AnchorLabels
from calibrank.metrics import Estimate
from calibrank.metrics.cluster_rates import Clusters
from calibrank.metrics.clustered_bootstrap import Codes
from calibrank.metrics.pooled import Misfit
from calibrank.report.rows import ReportRows

PROBABILITIES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
PREFERRED = 0.3
"""The probability of the first sentence, where enough rows are near it."""

# Rows within 0.25 log odds of a probability count as given that probability: 25% to 36% for 30%.
# They are corrected for how far from it they are on average, so the window adds no bias.
_WINDOW = 0.25
_MINIMUM_ROWS = 200
"""With fewer rows no rate is stated, and no bin named: its interval is wider than most errors."""

OWN_ROWS = (
    "The map was probably fitted on these rows: as many, with the same lowest and highest score. "
    "On its own rows it looks better than it is."
)

ANCHOR_ROWS = (
    "The map was anchored on these labels, or on most of them. On them it looks better than it is."
)

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
    found = []
    for probability in PROBABILITIES:
        low, high = expit(logit(probability) + np.array([-_WINDOW, _WINDOW]))
        near = np.flatnonzero((probabilities >= low) & (probabilities <= high))
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
    out_of = _OUT_OF[-1]
    for fewer in _OUT_OF[-2::-1]:
        if fewer * probability >= 2 and round(fewer * low) < round(fewer * high):
            out_of = fewer
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


def describe_source(fitted: CalibrationMap) -> dict[str, Any]:
    """Describe where the base rate of the map comes from."""
    record = fitted.record
    text = record.base_rate_description
    if record.sensitivity is not None:
        text = f"{text} {record.sensitivity.description}".strip()
    titles = {
        "random labels": "Random labels",
        "known rate": "A known rate",
        "naive": "The labels, used as they are",
        "impressions": "Logged impressions",
    }
    assumed = titles.get(record.evidence, "Assumed: the log does not identify it")
    if record.population is not None:
        assumed = "Judged documents"
    title = titles.get(record.base_rate_source, assumed)
    return {"title": title, "text": text, "identified": record.is_base_rate_known}


def limitations(rows: ReportRows, fitted: CalibrationMap) -> list[str]:
    """List what this report cannot show, each in one to three sentences."""
    found = [_evidence_limitation(rows)]
    positive = float(rows.evidence.positive.sum())
    low, high = float(rows.scores.min()), float(rows.scores.max())
    if fitted.record.looks_fitted_on(len(rows), low, high, positive):
        found.append(OWN_ROWS)
    anchored_on = AnchorLabels(fitted.record)
    anchored_on.add(rows.scores, rows.evidence.positive)
    if anchored_on.are_used_again:
        found.append(ANCHOR_ROWS)
    if rows.users is None or len(rows.users.names) < 2:
        found.append(
            "There are no users to group rows by, so intervals treat rows as independent and are "
            "too narrow. Name a column of users."
        )
    if rows.rows_in_table > len(rows):
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


# p-values below this are said to contradict calibration.
_SIGNIFICANT = 0.05

# Average errors below half a point are called good whatever the test says: large tables find any.
_SMALL_ERROR = 0.005
_LARGE_ERROR = 0.05

# A base rate, or a slope, that is off by more than 10% is called bad, by less fair.
_LARGE_LOG_RATIO = 0.1


class Gap(NamedTuple):
    """A bin of a reliability curve whose interval does not contain the mean prediction."""

    predicted: float
    observed: float
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
            f"in {percent(self.share)} of the rows they are too {direction} by "
            f"{100 * self.size:.2g} points: items given {percent(self.predicted)} are liked "
            f"{percent(self.observed)} of the time."
        )


def verdict(
    estimates: Mapping[str, Estimate],
    curves: Mapping[str, Mapping[str, Any]],
    shape: Misfit,
    p_value: float,
    *,
    identified: bool,
) -> dict[str, Any]:
    """Summarize how well calibrated the map is, with the numbers that say so.

    Labels weighted by propensities do not identify the base rate (`identified` is False), so with
    them no verdict is better than fair.
    """
    gap = _largest_gap(curves)
    ratio, slope = estimates["CalibrationInTheLarge"], estimates["CalibrationSlope"]
    gain = estimates["LogLossGain"].value
    error = estimates["SmoothECE"].value
    is_bad = error > _LARGE_ERROR or _is_off(ratio, _LARGE_LOG_RATIO)
    tone = "bad" if is_bad or _is_off(slope, 2 * _LARGE_LOG_RATIO) else "fair"
    average = ""
    if _is_off(ratio, 0.0):
        average = f"They are too {'high' if ratio.value > 1 else 'low'} on average."
    if gain < 0:
        tone = "bad"
        title = (
            "They are worse than a constant: predicting the base rate for every row would have a "
            f"log loss lower by {-gain:.4f}. {average}"
        ).strip()
    elif p_value >= _SIGNIFICANT or error < _SMALL_ERROR:
        tone = "good" if identified else "fair"
        title = "They are well calibrated on this table, if its pairs were shown at random."
        if not identified:
            title = "They agree with the weighted log, which cannot confirm their base rate."
    elif average:
        title = average
    elif _is_off(slope, 0.0) or gap is None:
        extreme = "too extreme" if slope.value < 1 else "too close to each other"
        title = f"They are {extreme}: the calibration slope is {slope.value:.2f}."
    else:
        title = f"I{gap.text[1:]}"
    curve = next(iter(curves.values()))
    predicted, observed = np.average(
        [curve["predicted"], curve["observed"]], axis=1, weights=curve["mass"]
    )
    rates = (
        f"{percent(predicted)} predicted on average, {percent(observed)} observed: ratio "
        f"{_with_interval(ratio, 3)}. Calibration slope {_with_interval(slope, 3)}. 1 is ideal for "
        "both."
    )
    worst = []
    if gap is not None and gap.text[1:] != title[1:]:
        worst.append(f"The worst bin: {gap.text}")
    facts = [_loss_fact(estimates), rates, *worst, _test_fact(shape, p_value)]
    return {"tone": tone, "error": _average_error(estimates), "title": title, "facts": facts}


def _average_error(estimates: Mapping[str, Estimate]) -> str:
    """The mean distance from the observed rates, and what it costs."""
    # Unlike binned errors it is never smaller than that of the mean, and has no bins to choose.
    error = estimates["SmoothECE"]
    interval = ""
    if not np.isnan(error.low):
        low, high = 100 * max(error.low, 0.0), 100 * error.high
        interval = f" (95% interval {low:.2g} to {high:.2g})"
    return (
        f"The probabilities are off by {100 * error.value:.2g} points on average{interval}, which "
        f"costs {estimates['Miscalibration'].value:.4f} of a Brier score of "
        f"{estimates['Brier'].value:.4f}."
    )


def _largest_gap(curves: Mapping[str, Mapping[str, Any]]) -> Gap | None:
    """The largest gap that chance does not explain, among bins with enough rows."""
    found = []
    for curve in curves.values():
        # In a small table no bin has enough rows: those with the most must do.
        enough = min(_MINIMUM_ROWS, float(curve["rows"].max()))
        miss = np.maximum(curve["low"] - curve["predicted"], curve["predicted"] - curve["high"])
        share = curve["rows"] / curve["rows"].sum()
        for bin_ in np.flatnonzero((miss > 0) & (curve["rows"] >= enough)):
            columns = (curve["predicted"], curve["observed"], share)
            found.append(Gap(*[float(column[bin_]) for column in columns]))
    return max(found, key=lambda gap: gap.size, default=None)


def _is_off(estimate: Estimate, log_ratio: float) -> bool:
    """Whether the interval excludes 1 and the value is off by more than a factor."""
    if np.isnan(estimate.low) or estimate.low <= 1 <= estimate.high:
        return False
    # Slopes may be negative.
    return abs(float(np.log(max(estimate.value, 1e-300)))) > log_ratio


def _loss_fact(estimates: Mapping[str, Estimate]) -> str:
    gain = estimates["LogLossGain"].value
    side = "lower" if gain >= 0 else "higher"
    constant = f"the best constant, {estimates['ConstantLogLoss'].value:.4f}"
    loss = _with_interval(estimates["LogLoss"], 4)
    return f"Log loss {loss}: {abs(gain):.4f} {side} than that of {constant}."


def _test_fact(shape: Misfit, p_value: float) -> str:
    verb = "contradict" if p_value < _SIGNIFICANT else "agree with"
    test = f"The labels {verb} calibration (test: p = {p_value:.2g})."
    if shape.matters:
        test += f" {shape.size[0].upper()}{shape.size[1:]}: more than chance explains."
    return test


def _with_interval(estimate: Estimate, digits: int) -> str:
    value = f"{estimate.value:.{digits}f}"
    if np.isnan(estimate.low):
        return value
    return f"{value} ({estimate.low:.{digits}f} to {estimate.high:.{digits}f})"
