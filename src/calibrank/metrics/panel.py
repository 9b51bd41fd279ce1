"""The panel of metrics that `calibrank evaluate`, the report and Spark show, computed together.

Three kinds are computed in three ways. Additive metrics are sums per cluster of users. Smooth
ECE, calibration slope and intercept and the parts of the CORP decomposition take their value from
a summary of the probabilities and their interval from sums over bins of log odds. Metrics of each
user's list need all rows in memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from calibrank._internal.validation import Floats, Ids, add_up, row_parts
from calibrank.evidence import Evidence
from calibrank.metrics.binned import ECE, MCE, DebiasedECE
from calibrank.metrics.calibration_test import (
    MODEL_KINDS,
    CalibrationTest,
    Cells,
    Functions,
    Null,
    PositiveMasses,
    row_variances,
    score_functions,
    score_test,
    weighted_score_test,
)
from calibrank.metrics.clustered_bootstrap import (
    CLUSTERS,
    Codes,
    Estimate,
    bootstrap_all,
    bootstrap_sums,
    draw_matrix,
    interval_of_sums,
    nonempty,
)
from calibrank.metrics.metric import Additive, Metric, Top
from calibrank.metrics.pooled import (
    LOG_ODDS_BINS,
    Discrimination,
    Miscalibration,
    Pooled,
    PooledBins,
    log_odds_bins,
    pooled_bins,
)
from calibrank.metrics.proper import (
    Brier,
    CalibrationInTheLarge,
    ConstantLogLoss,
    LogLoss,
    LogLossGain,
)
from calibrank.metrics.ranking import NDCG, Recall, TopK
from calibrank.metrics.recalibration import CalibrationIntercept, CalibrationSlope
from calibrank.metrics.smooth import SmoothECE
from calibrank.summary import Summary

# Metrics of single rows share sums: those of which metric each has, and which of its terms.
_SUMS_OF: dict[Additive, tuple[Additive, list[int]]] = {
    LogLoss(): (LogLossGain(), [0, 2]),
    ConstantLogLoss(): (LogLossGain(), [1, 2]),
    LogLossGain(): (LogLossGain(), [0, 1, 2]),
    Brier(): (Brier(), [0, 1]),
    ECE(): (DebiasedECE(), [0, 1, 2]),
    DebiasedECE(): (DebiasedECE(), [0, 1, 2, 3]),
    MCE(): (DebiasedECE(), [0, 1, 2]),
    CalibrationInTheLarge(): (DebiasedECE(), [2, 0]),
}

ADDITIVE: tuple[Additive, ...] = tuple(_SUMS_OF)
"""Metrics of single rows, which any engine can sum."""

SLOPE = CalibrationSlope()
INTERCEPT = CalibrationIntercept()
MISCALIBRATION = Miscalibration()
DISCRIMINATION = Discrimination()
SMOOTH_ECE = SmoothECE()

LIST_LENGTH = 5
TOP = Top(ECE(), LIST_LENGTH)
"""Calibration of what is shown: the top of each user's list."""

RANKING: tuple[TopK, ...] = (NDCG(LIST_LENGTH), Recall(LIST_LENGTH))
"""Metrics of the order alone, which no strictly increasing map changes."""

PER_LIST: tuple[Metric, ...] = (TOP, *RANKING)

BINNED: tuple[Pooled, ...] = (SMOOTH_ECE, SLOPE, INTERCEPT, MISCALIBRATION, DISCRIMINATION)
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


class ClusterSums:
    """A metric's sums per cluster of users, accumulated batch by batch in fixed memory."""

    def __init__(self, metric: Additive, n_clusters: int) -> None:
        self.metric = metric
        self.n_clusters = n_clusters
        self._sums: Floats = np.zeros((0, n_clusters * metric.n_bins))

    def add(self, probabilities: Floats, evidence: Evidence, clusters: Codes) -> None:
        """Add a batch of rows, each with the number of its cluster."""
        bins = self.metric.bin_indices(probabilities, evidence)
        places = clusters * self.metric.n_bins + bins
        terms = self.metric.terms(probabilities, evidence)
        if not len(self._sums):
            self._sums = np.zeros((len(terms), self.n_clusters * self.metric.n_bins))
        # np.add.at touches only the bins of this batch; bincount would pass over all of them.
        for sums, term in zip(self._sums, terms, strict=True):
            np.add.at(sums, places, term)

    def result(self) -> Floats:
        """Return the sums so far, clusters x terms x bins."""
        by_term = self._sums.reshape(-1, self.n_clusters, self.metric.n_bins)
        return by_term.transpose(1, 0, 2)


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
        kinds = dict.fromkeys(kind for kind, _ in _SUMS_OF.values())
        self._additive = {kind: ClusterSums(kind, n_clusters) for kind in kinds}
        # All binned metrics are computed from the sums of any of them.
        self._log_odds = ClusterSums(MISCALIBRATION, n_clusters)
        self._variances = np.zeros((2, LOG_ODDS_BINS))
        # Only of evidence whose labels cannot be drawn.
        self._by_inverse = np.zeros(LOG_ODDS_BINS)
        self._positive_masses = np.zeros(3)
        self._can_draw = True

    def add(self, probabilities: Floats, evidence: Evidence, clusters: Codes) -> None:
        """Add a batch of rows, each with the number of its cluster."""
        for part in row_parts(len(clusters)):
            self._add(probabilities[part], evidence.rows(part), clusters[part])

    def _add(self, probabilities: Floats, evidence: Evidence, clusters: Codes) -> None:
        for sums in self._additive.values():
            sums.add(probabilities, evidence, clusters)
        self._log_odds.add(probabilities, evidence, clusters)
        residuals = evidence.positive - evidence.total * probabilities
        bins = log_odds_bins(probabilities)
        of_rows = (row_variances(probabilities, evidence), residuals**2)
        self._variances += [add_up(bins, each, LOG_ODDS_BINS) for each in of_rows]
        if evidence.kind not in MODEL_KINDS:
            self._can_draw = False
            self._positive_masses += PositiveMasses.of(evidence)
            self._by_inverse += add_up(bins, evidence.total**2 * probabilities, LOG_ODDS_BINS)

    def calibration_test(self) -> CalibrationTest:
        """Test calibration as `calibration_test` does, with probabilities pooled by log odds."""
        sums = self._log_odds.result()
        filled = sums[:, 1].any(axis=0)
        sums = sums[:, :, filled]
        variances, squares = self._variances[:, filled]
        probabilities, evidence = pooled_bins(sums.sum(axis=0))
        basis = score_functions(probabilities, evidence.total)
        scores = (sums[:, 0] - sums[:, 2]) @ basis
        if not self._can_draw:
            masses = PositiveMasses(*self._positive_masses.tolist())
            variances = variances + (masses.mean_inverse - 1) * self._by_inverse[filled]
            return weighted_score_test(scores, Functions(basis, variances, variances), masses)
        functions = Functions(basis, variances, squares)
        # A row's weight: rows of weight w have a variance of w^2 p (1 - p).
        ones = evidence.total * probabilities * (1 - probabilities)
        weights = np.divide(variances, ones, out=np.ones_like(ones), where=ones > 0)
        cluster, place = np.nonzero(sums[:, 1])
        rows = sums[cluster, 1, place] / weights[place]
        return score_test(
            scores, functions, Null(probabilities, weights, Cells(place, cluster, rows))
        )

    def estimates(self, summary: Summary) -> dict[str, Estimate]:
        """Return each metric by name with its interval; `summary` pools the same probabilities."""
        sums = {kind: kind_sums.result() for kind, kind_sums in self._additive.items()}
        additive = {
            metric.name: bootstrap_sums(metric, sums[kind][:, terms])
            for metric, (kind, terms) in _SUMS_OF.items()
        }
        return additive | self._binned_estimates(summary)

    def _binned_estimates(self, summary: Summary) -> dict[str, Estimate]:
        # A bin's mean probability can leave [0, 1] by rounding.
        probabilities = np.clip(summary.scores, 0, 1)
        exact = {metric: metric(probabilities, summary.evidence) for metric in BINNED}
        sums = nonempty(self._log_odds.result())
        if len(sums) < 2:
            nan = float("nan")
            return {metric.name: Estimate(value, nan, nan) for metric, value in exact.items()}
        # All at once: several metrics are computed from the same fit of each resample.
        resamples = np.tensordot(draw_matrix(len(sums)), sums, 1)
        bins = PooledBins.of(resamples)
        estimates = {}
        for metric, value in exact.items():
            found = resamples if metric.noise_adds else metric.evaluate_all(bins)
            coarse = interval_of_sums(metric, sums.sum(axis=0), found, sums[:, 1].sum(axis=1))
            estimates[metric.name] = coarse.with_value(value)
        return estimates


def list_estimates(
    values: Floats,
    evidence: Evidence,
    users: Ids,
    metrics: tuple[Metric, ...] = PER_LIST,
    columns: Any = None,
) -> dict[str, Estimate]:
    """Return each per-list metric by name with its interval over users.

    `values` are probabilities, or raw scores for the metrics of order alone.

    >>> from calibrank.evidence import naive
    >>> scores, users = np.array([3.0, 1.0, 2.0, 5.0]), np.array([0, 0, 1, 1])
    >>> list_estimates(scores, naive([1, 0, 1, 0]), users, RANKING)["NDCG@5"].value > 0.8
    True
    """
    estimates = bootstrap_all(metrics, values, evidence, users, columns)
    return {metric.name: each for metric, each in zip(metrics, estimates, strict=True)}
