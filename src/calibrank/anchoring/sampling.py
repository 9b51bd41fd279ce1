"""The sampling error of the base rate, for impressions whose propensities are known."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np

from calibrank._internal.logit import expit, logit
from calibrank.errors import DataError
from calibrank.maps import CalibrationMap
from calibrank.summary import Summary

# Standard errors to either end of a 95% interval, and the least reach of it in log odds.
_TWO_SIDED_95 = 1.96
_SMALLEST_REACH = 1e-6

Map = TypeVar("Map", bound=CalibrationMap)


def with_sampling_range(fitted: Map, summary: Summary) -> Map:
    """Keep the 95% interval of the base rate that the sampling error of impressions leaves.

    Only where the propensities are those of the policy that showed the pairs: the sampling error
    says nothing about what users would have chosen to see. Random labels that the map is anchored
    on later are weighed against the interval.

    >>> from calibrank import Platt, impressions
    >>> summary = Summary.of([0.0, 1.0, 2.0, 3.0], impressions([0, 1, 0, 1], [0.5, 1.0, 0.5, 1.0]))
    >>> with_sampling_range(Platt().fit_summary(summary), summary).record.base_rate_range[1] > 0.5
    True
    """
    if summary.kind != "impressions":
        raise DataError(
            "evidence",
            "be impressions to have a sampling error",
            summary.kind,
            "Use impressions(labels, propensity).",
        )
    total = float(summary.total.sum())
    rate = float(summary.positive.sum()) / total
    # The rate is a ratio of weighted sums, whose variance is linearised.
    residuals = summary.squared_residuals(np.full(len(summary), rate))
    error = float(np.sqrt(residuals.sum())) / total / (rate * (1 - rate))
    reach = max(_TWO_SIDED_95 * error, _SMALLEST_REACH)
    low, high = expit(logit(rate) + np.array([-reach, reach])).tolist()
    record = replace(fitted.record, base_rate_range=(low, high))
    return replace(fitted, record=record)
