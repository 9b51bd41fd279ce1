"""Sums per cluster of users, of all rows at once."""

import numpy as np

import calibrank as cr
from calibrank.metrics import Additive
from calibrank.metrics.panel import ClusterSums


def cluster_sums(
    metric: Additive, p: np.ndarray, evidence: cr.Evidence, clusters: np.ndarray, size: int
) -> np.ndarray:
    """Clusters x terms x bins."""
    sums = ClusterSums(metric, size)
    sums.add(p, evidence, clusters)
    return sums.result()
