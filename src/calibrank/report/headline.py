"""The top of a report: observed rates in a sentence, a verdict, and what is not known."""

from __future__ import annotations

from typing import Any

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
from calibrank.report.rows import ReportRows

PROBABILITIES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
PREFERRED = 0.3
"""The probability of the first sentence, where enough rows are near it."""

# Rows within 0.25 log odds of a probability count as given that probability: 25% to 36% for 30%.
# They are corrected for how far from it they are on average, so the window adds no bias.
_WINDOW = 0.25
_MINIMUM_ROWS = 200

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
    positive = clusters.sums(bins, evidence.positive, 1, near)
    total = clusters.sums(bins, evidence.total, 1, near)
    excess = clusters.sums(bins, evidence.total * (predicted - probability), 1, near)
    rate = clusters.ratios(positive, total, np.array([float(len(near))]), excess)
    low = float(np.clip(rate.low[0], 0, 1))
    high = float(np.clip(rate.high[0], 0, 1))
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
