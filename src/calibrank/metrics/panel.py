"""The panel of metrics that `calibrank evaluate`, the report and Spark show, computed together.

Three kinds are computed in three ways. Additive metrics are sums per cluster of users. Smooth
ECE, calibration slope and intercept and the parts of the CORP decomposition take their value from
a summary of the probabilities and their interval from sums over bins of log odds. Metrics of each
user's list need all rows in memory.
"""

from __future__ import annotations

import numpy as np

from calibrank._internal.validation import Floats, Ids, add_up
from calibrank.evidence import Evidence
from calibrank.metrics._resampled import (
    PooledBins,
    decompose_brier,
    fit_recalibrations,
    smooth_eces,
)
from calibrank.metrics.binned import ECE, MCE
from calibrank.metrics.calibration_test import (
    CalibrationTest,
    row_variances,
    score_functions,
    score_test,
)
from calibrank.metrics.clustered_bootstrap import (
    CLUSTERS,
    ClusterSums,
    Codes,
    Estimate,
    basic_interval,
    bootstrap,
    bootstrap_sums,
    nonempty,
    resampled_blocks,
)
from calibrank.metrics.constant import ConstantLogLoss, LogLossGain
from calibrank.metrics.corp import (
    Discrimination,
    LogOddsBinned,
    Miscalibration,
    decompose_sums,
    pooled_bins,
)
from calibrank.metrics.debiased import DebiasedECE
from calibrank.metrics.metric import Additive, Metric
from calibrank.metrics.proper import Brier, CalibrationInTheLarge, LogLoss
from calibrank.metrics.ranking import NDCG, Recall, TopN, UserMean
from calibrank.metrics.recalibration import (
    CalibrationIntercept,
    CalibrationSlope,
    Recalibration,
    fit_recalibration,
)
from calibrank.metrics.smooth import SmoothECE
from calibrank.summary import Summary

ADDITIVE: tuple[Additive, ...] = (
    LogLoss(),
    ConstantLogLoss(),
    LogLossGain(),
    Brier(),
    ECE(),
    DebiasedECE(),
    MCE(),
    CalibrationInTheLarge(),
)
"""Metrics of single rows, which any engine can sum."""

SLOPE = CalibrationSlope()
INTERCEPT = CalibrationIntercept()
MISCALIBRATION = Miscalibration()
DISCRIMINATION = Discrimination()
SMOOTH_ECE = SmoothECE()

LIST_LENGTH = 5
TOP_ECE = ECE()
TOP = TopN(TOP_ECE, LIST_LENGTH)
"""Calibration of what is shown: the top of each user's list."""

RANKING: tuple[UserMean, ...] = (NDCG(LIST_LENGTH), Recall(LIST_LENGTH))
"""Metrics of the order alone, which no strictly increasing map changes."""

PER_LIST: tuple[Metric, ...] = (TOP, *RANKING)

BINNED: tuple[Metric, ...] = (SMOOTH_ECE, SLOPE, INTERCEPT, MISCALIBRATION, DISCRIMINATION)
"""Metrics whose intervals come from sums over bins of log odds."""

PANEL: tuple[Metric, ...] = (*ADDITIVE, *BINNED, *PER_LIST)
"""Every metric shown, in the order of tables."""

HEADLINE: tuple[Metric, ...] = (
    LogLoss(),
    ConstantLogLoss(),
    LogLossGain(),
    Brier(),
    ECE(),
    CalibrationInTheLarge(),
    SLOPE,
    INTERCEPT,
)
"""The metrics printed for every fit: a proper score first, and beside it that of a constant."""

# All binned metrics are computed from the sums of any of them.
_LOG_ODDS_SUMS = LogOddsBinned(MISCALIBRATION)


class PanelSums:
    """Sums per cluster of users for all metrics of the panel that need no lists.

    >>> from calibrank.evidence import naive
    >>> probabilities, evidence = np.array([0.2, 0.8, 0.5]), naive([0, 1, 1])
    >>> sums = PanelSums(n_clusters=3)
    >>> sums.add(probabilities, evidence, np.array([0, 1, 2]))
    >>> round(sums.estimates(Summary.of(probabilities, evidence))["Brier"].value, 3)
    0.11
    """

    def __init__(self, n_clusters: int = CLUSTERS) -> None:
        self._additive = {metric: ClusterSums(metric, n_clusters) for metric in ADDITIVE}
        self._log_odds = ClusterSums(_LOG_ODDS_SUMS, n_clusters)
        self._variances = np.zeros((2, _LOG_ODDS_SUMS.n_bins))

    def add(
        self,
        probabilities: Floats,
        evidence: Evidence,
        clusters: Codes,
    ) -> None:
        """Add a batch of rows, each with the number of its cluster."""
        for sums in self._additive.values():
            sums.add(probabilities, evidence, clusters)
        self._log_odds.add(probabilities, evidence, clusters)
        residuals = evidence.positive - evidence.total * probabilities
        bins = _LOG_ODDS_SUMS.bin_indices(probabilities, evidence)
        of_rows = (row_variances(probabilities, evidence), residuals**2)
        self._variances += [add_up(bins, each, _LOG_ODDS_SUMS.n_bins) for each in of_rows]

    def calibration_test(self) -> CalibrationTest:
        """Test calibration as `calibration_test` does, with probabilities pooled by log odds."""
        sums = self._log_odds.result()
        filled = sums[:, 1].any(axis=0)
        residuals = (sums[:, 0] - sums[:, 2])[:, filled]
        probabilities, evidence = pooled_bins(sums.sum(axis=0))
        basis = score_functions(probabilities, evidence.total)
        return score_test(residuals @ basis, basis, *self._variances[:, filled])

    def estimates(self, summary: Summary) -> dict[str, Estimate]:
        """Return each metric by name with its interval; `summary` pools the same probabilities."""
        additive = {
            metric.name: bootstrap_sums(metric, sums.result())
            for metric, sums in self._additive.items()
        }
        return additive | self._binned_estimates(summary)

    def _binned_estimates(self, summary: Summary) -> dict[str, Estimate]:
        # A bin's mean probability can leave [0, 1] by rounding.
        probabilities = np.clip(summary.scores, 0, 1)
        sums = nonempty(self._log_odds.result())
        binned = _binned_values(sums.sum(axis=0))
        replicates = _binned_replicates(sums, binned)
        estimates = {}
        for metric in BINNED:
            coarse = basic_interval(metric, binned[metric], replicates[metric])
            exact = metric(probabilities, summary.evidence)
            estimates[metric.name] = coarse.with_value(exact)
        return estimates


def _binned_values(sums: Floats) -> dict[Metric, float]:
    """The metrics of `BINNED` for sums over bins of log odds."""
    probabilities, evidence = pooled_bins(sums)
    slope, intercept = fit_recalibration(probabilities, evidence)
    decomposition = decompose_sums(sums)
    return {
        SMOOTH_ECE: SMOOTH_ECE.evaluate(probabilities, evidence, None),
        SLOPE: slope,
        INTERCEPT: intercept,
        MISCALIBRATION: decomposition.miscalibration,
        DISCRIMINATION: decomposition.discrimination,
    }


def _binned_replicates(sums: Floats, binned: dict[Metric, float]) -> dict[Metric, list[float]]:
    """The metrics of `BINNED` for each resample; they are the slow part of the panel."""
    replicates: dict[Metric, list[float]] = {metric: [] for metric in BINNED}
    start = Recalibration(binned[SLOPE], binned[INTERCEPT])
    for block in resampled_blocks(sums):
        bins = PooledBins.of(block)
        slopes, intercepts = fit_recalibrations(bins, start)
        miscalibration, discrimination = decompose_brier(bins)
        replicates[SMOOTH_ECE] += smooth_eces(bins, binned[SMOOTH_ECE]).tolist()
        replicates[SLOPE] += slopes.tolist()
        replicates[INTERCEPT] += intercepts.tolist()
        replicates[MISCALIBRATION] += miscalibration.tolist()
        replicates[DISCRIMINATION] += discrimination.tolist()
    return replicates


def list_estimates(
    values: Floats, evidence: Evidence, users: Ids, metrics: tuple[Metric, ...] = PER_LIST
) -> dict[str, Estimate]:
    """Return each per-list metric by name with its interval over users.

    `values` are probabilities, or raw scores for the metrics of order alone.

    >>> from calibrank.evidence import naive
    >>> scores, users = np.array([3.0, 1.0, 2.0, 5.0]), np.array([0, 0, 1, 1])
    >>> list_estimates(scores, naive([1, 0, 1, 0]), users, RANKING)["NDCG@5"].value > 0.8
    True
    """
    return {metric.name: bootstrap(metric, values, evidence, users) for metric in metrics}
