"""Every calibration method on held-out users: metrics, reliability curves and histograms."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np

from calibrank._internal.logit import logit
from calibrank._internal.validation import Floats
from calibrank.curves import Calibrator, Gaussian, fit_without_each
from calibrank.errors import DataError, FitError, FlatMapWarning
from calibrank.maps import CalibrationMap
from calibrank.metrics import (
    CalibrationTest,
    Clusters,
    EqualMass,
    EqualWidth,
    Estimate,
    bootstrap_sums,
    cluster_sums,
)
from calibrank.metrics.binned import Binning
from calibrank.metrics.panel import PANEL, RANKING, TOP, TOP_ECE, PanelSums, list_estimates
from calibrank.registry import CALIBRATORS
from calibrank.report.rows import ReportRows
from calibrank.summary import Summary

BINNINGS: dict[str, Binning] = {"mass": EqualMass(15), "width": EqualWidth(15)}
# Bins of 2.5 percentage points: narrow enough to show where the predictions are.
HISTOGRAM_BINS = 40

LOG_ODDS_LIMIT = 7.0
"""Log odds beyond this (probabilities below 0.1% or above 99.9%) are in the outermost bins."""


class MethodResult(NamedTuple):
    """A method's held-out probability of each row and its map of all rows, or why it failed."""

    name: str
    probabilities: Floats | None
    fitted: CalibrationMap | None
    error: str = ""


def evaluate_methods(rows: ReportRows, given: CalibrationMap | None) -> Iterator[MethodResult]:
    """Yield the given map, or else the Gaussian method, and then all other methods.

    A given map is evaluated as it is; methods are cross-validated by user.
    """
    summaries = rows.fold_summaries()
    if given is not None:
        yield MethodResult(f"{given.method} (this map)", rows.predict(given), given)
    first = [] if given is not None else [Gaussian()]
    others = [method for method in CALIBRATORS.values() if method not in first]
    for method in [*first, *others]:
        yield _cross_validate(rows, method, summaries)


def _cross_validate(rows: ReportRows, method: Calibrator, summaries: list[Summary]) -> MethodResult:
    try:
        # A flat map is visible in its curve, so it needs no warning.
        with warnings.catch_warnings(action="ignore", category=FlatMapWarning):
            maps = fit_without_each(method, summaries)
            map_of_all = method.fit_fold(reduce(add, summaries))
    except (FitError, DataError) as error:
        return MethodResult(method.name, None, None, str(error))
    return MethodResult(method.name, rows.held_out(maps), map_of_all)


@dataclass(frozen=True, slots=True, eq=False)
class Evaluator:
    """Evaluates probabilities on the rows of a report; what methods share is computed once."""

    rows: ReportRows
    clusters: Clusters

    @classmethod
    def of(cls, rows: ReportRows) -> Evaluator:
        """Prepare what the evaluation of all methods shares."""
        return cls(rows, Clusters.of(rows.clusters))

    def describe(self, result: MethodResult) -> dict[str, Any]:
        """Return what the page shows of one method."""
        if result.probabilities is None:
            return {"name": result.name, "error": result.error}
        estimates, test = self.metrics(result.probabilities, self.order(result))
        curves = {
            name: self.curve(result.probabilities, binning) for name, binning in BINNINGS.items()
        }
        return {
            "name": result.name,
            "error": result.error,
            "metrics": describe_estimates(estimates),
            "calibration_test": test._asdict(),
            "curves": curves,
            "histogram": histograms(result.probabilities),
        }

    def order(self, result: MethodResult) -> Floats:
        """What lists are ordered by: the scores, unless terms change the order.

        All maps increase with the score, and a step function has ties.
        """
        has_terms = result.fitted is not None and result.fitted.terms
        probabilities = result.probabilities
        return probabilities if has_terms and probabilities is not None else self.rows.scores

    def metrics(
        self, probabilities: Floats, order: Floats
    ) -> tuple[dict[str, Estimate], CalibrationTest]:
        """Return each metric by name, with its interval where there is one, and the test.

        `order` decides which rows are each user's first.
        """
        rows = self.rows
        sums = PanelSums(self.clusters.size)
        sums.add(probabilities, rows.evidence, rows.clusters)
        estimates = sums.estimates(Summary.of(probabilities, rows.evidence))
        if rows.users is not None:
            top_rows, evidence = TOP.select(order, rows.evidence, rows.users.codes)
            top_sums = cluster_sums(
                TOP_ECE,
                probabilities[top_rows],
                evidence,
                rows.clusters[top_rows],
                self.clusters.size,
            )
            estimates[TOP.name] = bootstrap_sums(TOP_ECE, top_sums)
        return estimates, sums.calibration_test()

    def ranking(self, order: Floats) -> dict[str, Estimate]:
        """Return the metrics of the order, which maps without terms do not change."""
        evidence = self.rows.evidence
        users = self.rows.users
        if users is None or not evidence.positive.any():
            return {}
        if len(np.unique(users.codes[evidence.total > 0])) < 2:
            return {}
        return list_estimates(order, evidence, users.codes, RANKING)

    def curve(self, probabilities: Floats, binning: Binning) -> dict[str, Any]:
        """Return a reliability curve with its 95% interval, one point per nonempty bin."""
        evidence = self.rows.evidence
        bins = binning.bin_indices(probabilities, evidence)
        rates = self.clusters.rates(bins, probabilities, evidence, int(bins.max()) + 1)
        filled = rates.mass > 0
        columns = {
            "predicted": rates.predicted,
            "observed": rates.observed.value,
            "low": rates.observed.low,
            "high": rates.observed.high,
            "rows": rates.rows,
            "mass": rates.mass,
        }
        return {name: column[filled] for name, column in columns.items()}


def describe_estimates(estimates: dict[str, Estimate]) -> dict[str, dict[str, float]]:
    """Return estimates as plain data, with the loss that the page sorts methods by.

    The direction of a metric stays in Python: on the page the lower loss is the better value.

    >>> describe_estimates({"NDCG@5": Estimate(0.5, 0.4, 0.6)})
    {'NDCG@5': {'value': 0.5, 'low': 0.4, 'high': 0.6, 'loss': -0.5}}
    """
    metrics = {metric.name: metric for metric in PANEL}
    described = {}
    for name, estimate in estimates.items():
        loss = metrics[name].better.loss(estimate.value)
        described[name] = {**estimate._asdict(), "loss": loss}
    return described


def histograms(probabilities: Floats) -> dict[str, Any]:
    """Count rows by predicted probability, in equal steps of probability and of log odds."""
    log_odds = np.clip(logit(probabilities), -LOG_ODDS_LIMIT, LOG_ODDS_LIMIT)
    limits = (-LOG_ODDS_LIMIT, LOG_ODDS_LIMIT)
    return {
        "linear": np.histogram(probabilities, HISTOGRAM_BINS, (0, 1))[0],
        "logit": np.histogram(log_odds, HISTOGRAM_BINS, limits)[0],
    }
