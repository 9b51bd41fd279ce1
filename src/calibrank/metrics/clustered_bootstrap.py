"""Bootstrap intervals for metrics, resampling users because a user's rows are not independent.

One engine serves all intervals: it draws how often each user, or each cluster of users, occurs in
a resample, and recomputes the metric from sums weighted by these counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from calibrank._internal.arguments import instance, real, require_seed, seeded, whole
from calibrank._internal.validation import Floats, Ids, IdsLike, Numbers, floats, ids, require
from calibrank.errors import DataError
from calibrank.evidence import Evidence, Labels, nonzero_evidence
from calibrank.metrics.metric import Additive, Metric
from calibrank.metrics.ranking import TopN, UserMean

Counts = npt.NDArray[np.int64]
Codes = npt.NDArray[np.intp]

RESAMPLES = 500
"""The number of resamples behind every interval.

A 2.5% quantile of 500 replicates has a standard error of sqrt(0.025 * 0.975 / 500) / 0.058 = 0.12
standard deviations, 6% of the interval's half-width. Halving that takes four times the time.
"""

CLUSTERS = 2048
"""The number of clusters that the users of a large table are hashed into.

Sums are kept per cluster, so memory does not grow with the number of users, and an interval over
2,048 clusters is practically as wide as one over users.
"""

# Resamples multiplied at once: a block of counts stays in cache, and one product of matrices is
# much faster than 64 products with a vector.
_BLOCK = 64

# Far beyond what the ends of an interval can resolve.
_MOST_RESAMPLES = 10**6


class Estimate(NamedTuple):
    """A metric's value with its confidence interval; the ends are NaN where there is none."""

    value: float
    low: float
    high: float

    def with_value(self, value: float) -> Estimate:
        """Replace an approximate value by the exact one, widening the interval to contain it.

        >>> Estimate(0.5, 0.4, 0.75).with_value(0.25)
        Estimate(value=0.25, low=0.25, high=0.75)
        """
        # np.minimum, unlike min, returns NaN where an end is NaN.
        low = float(np.minimum(self.low, value))
        high = float(np.maximum(self.high, value))
        return Estimate(value, low, high)


def bootstrap(
    metric: Metric,
    probabilities: Numbers,
    labels: Labels,
    users: IdsLike,
    *,
    resamples: int = RESAMPLES,
    level: float = 0.95,
    seed: int | np.random.Generator = 0,
) -> Estimate:
    """Compute a metric and its confidence interval by resampling users.

    The interval is the basic (reflected) one. Binned errors are biased upwards, resampling adds
    the same bias again, and reflection at the value removes it. The interval is widened where it
    would not contain the value, and its ends are NaN where some resample's metric is infinite.

    >>> from calibrank.metrics import LogLoss
    >>> bootstrap(LogLoss(), [0.5, 0.5, 0.5], [0, 1, 0], users=[1, 2, 3], resamples=20).low > 0.6
    True
    """
    instance("metric", metric, Metric, "Use e.g. LogLoss().")
    require_seed(seed)
    probabilities = metric.check(probabilities)
    evidence = nonzero_evidence(labels, len(probabilities))
    user_ids = ids("users", users, len(probabilities))
    _require_settings(resamples, level)
    weighted = evidence.total > 0
    if not weighted.all():
        probabilities = probabilities[weighted]
        user_ids = user_ids[weighted]
        evidence = evidence.rows(weighted)
    value = metric.evaluate(probabilities, evidence, user_ids)
    n_users = len(np.unique(user_ids))
    if n_users < 2:
        raise DataError(
            "users must hold at least 2 distinct ids for an interval, got 1. "
            "Add rows of other users, or leave users out."
        )
    draws = _draws(n_users, resamples, seeded(seed))
    replicates = _replicates(metric, probabilities, evidence, user_ids, draws)
    return basic_interval(metric, value, replicates, level)


def bootstrap_sums(
    metric: Additive,
    sums: Floats,
    *,
    resamples: int = RESAMPLES,
    level: float = 0.95,
    seed: int | np.random.Generator = 0,
) -> Estimate:
    """Compute a metric and its interval as `bootstrap` does, from sums per cluster of users.

    `sums` is an array of clusters x terms x bins, as `ClusterSums` builds it. With fewer than two
    nonempty clusters there is no interval.

    >>> from calibrank.metrics import Brier
    >>> bootstrap_sums(Brier(), np.array([[[0.5], [2.0]], [[0.5], [2.0]]]), resamples=10)
    Estimate(value=0.25, low=0.25, high=0.25)
    """
    instance("metric", metric, Additive, "Use e.g. LogLoss().")
    _require_settings(resamples, level)
    sums = nonempty(_checked_sums(sums))
    value = metric.compute_clusters(sums)
    replicates = map(metric.compute, resampled_sums(sums, resamples, seed))
    return basic_interval(metric, value, replicates, level)


def _checked_sums(sums: Floats) -> Floats:
    array = floats("sums", sums)
    if array.ndim != 3 or not array.any():
        raise DataError(
            "sums must be an array of clusters x terms x bins that holds rows, "
            f"got shape {array.shape}. Make it with cluster_sums."
        )
    require(np.isfinite, "sums", "be finite", array, "Make them with cluster_sums.")
    return array


def resampled_sums(
    sums: Floats, resamples: int = RESAMPLES, seed: int | np.random.Generator = 0
) -> Iterator[Floats]:
    """Yield the summed terms of each resample, terms x bins; nothing for fewer than two clusters.

    >>> [one.tolist() for one in resampled_sums(np.ones((3, 1, 1)), resamples=2)]
    [[[3.0]], [[3.0]]]
    """
    for block in resampled_blocks(sums, resamples, seed):
        yield from block


def resampled_blocks(
    sums: Floats, resamples: int = RESAMPLES, seed: int | np.random.Generator = 0
) -> Iterator[Floats]:
    """Yield the same sums in blocks, resamples x terms x bins.

    >>> [block.shape for block in resampled_blocks(np.ones((3, 2, 5)), resamples=70)]
    [(64, 2, 5), (6, 2, 5)]
    """
    sums = nonempty(sums)
    if len(sums) < 2:
        return
    flat = sums.reshape(len(sums), -1)
    for counts in _drawn_blocks(len(sums), resamples, seed):
        yield (counts @ flat).reshape(len(counts), *sums.shape[1:])


def nonempty(sums: Floats) -> Floats:
    """Drop empty clusters and empty bins: they do not change a metric, but they cost time."""
    sums = sums[sums.any(axis=(1, 2))]
    return sums[:, :, sums.any(axis=(0, 1))]


def basic_interval(
    metric: Metric, value: float, replicates: Iterable[float], level: float = 0.95
) -> Estimate:
    """Return a value with its basic bootstrap interval: quantiles of the replicates, reflected."""
    # A replicate is NaN where the metric is undefined, e.g. a resample without positives.
    drawn = np.array([replicate for replicate in replicates if not np.isnan(replicate)])
    if len(drawn) == 0 or np.isinf(drawn).any():
        # No interval is better than one that leaves the infinite replicates out.
        return Estimate(value, float("nan"), float("nan"))
    if metric.is_debiased:
        # Resampling adds noise that the value is free of.
        drawn = drawn - drawn.mean() + value
    quantiles = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    low = 2 * value - quantiles[1]
    high = min(2 * value - quantiles[0], metric.maximum)
    # Reflection can leave the range of the metric; only weighted losses are ever negative.
    if value >= metric.minimum:
        low = max(low, metric.minimum)
    return Estimate(value, float(min(low, value)), float(max(high, value)))


class ClusterSums:
    """A metric's sums per cluster of users, accumulated batch by batch in fixed memory."""

    def __init__(self, metric: Additive, n_clusters: int) -> None:
        self.metric = metric
        self.n_clusters = n_clusters
        self._sums: Floats = np.zeros((0, n_clusters * metric.n_bins))

    def add(
        self,
        probabilities: Floats,
        evidence: Evidence,
        clusters: Codes,
    ) -> None:
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


def cluster_sums(
    metric: Additive, probabilities: Floats, evidence: Evidence, clusters: Codes, n_clusters: int
) -> Floats:
    """Sum a metric's terms per cluster of users, clusters x terms x bins.

    >>> from calibrank.metrics import Brier
    >>> from calibrank.evidence import naive
    >>> cluster_sums(Brier(), np.array([0.5, 0.5]), naive([0, 1]), np.array([0, 1]), 2).shape
    (2, 2, 1)
    """
    sums = ClusterSums(metric, n_clusters)
    sums.add(probabilities, evidence, clusters)
    return sums.result()


def draw_matrix(
    size: int, resamples: int = RESAMPLES, seed: int | np.random.Generator = 0
) -> Floats:
    """Draw how often each cluster occurs in each resample, resamples x clusters."""
    draws = _draws(size, resamples, seeded(seed))
    return np.array(list(draws), dtype=np.float64)


def _require_settings(resamples: int, level: float) -> None:
    real("level", level, "(0, 1)", "Use e.g. 0.95.")
    whole("resamples", resamples, 1, _MOST_RESAMPLES)


def _draws(
    size: int,
    resamples: int,
    rng: np.random.Generator,
) -> Iterator[Counts]:
    """Yield how often each of `size` users or clusters occurs, resample by resample."""
    for _ in range(resamples):
        yield np.bincount(rng.integers(size, size=size), minlength=size)


def _drawn_blocks(size: int, resamples: int, seed: int | np.random.Generator) -> Iterable[Floats]:
    """The draws in matrices of at most `_BLOCK` resamples."""
    require_seed(seed)
    if isinstance(seed, np.random.Generator) or size * resamples > CLUSTERS * RESAMPLES:
        return _blocks(_draws(size, resamples, seeded(seed)))
    return _kept_blocks(size, resamples, seed)


# A report needs the same draws for each metric of each method. They take at most 8 MB.
@lru_cache(maxsize=1)
def _kept_blocks(size: int, resamples: int, seed: int) -> tuple[Floats, ...]:
    return tuple(_blocks(_draws(size, resamples, seeded(seed))))


def _blocks(draws: Iterator[Counts]) -> Iterator[Floats]:
    """Stack draws into matrices of at most `_BLOCK` resamples."""
    while block := list(islice(draws, _BLOCK)):
        yield np.array(block, dtype=np.float64)


def _replicates(
    metric: Metric, probabilities: Floats, evidence: Evidence, users: Ids, draws: Iterator[Counts]
) -> Iterator[float]:
    """Yield the metric of each resample by the fastest way that the metric allows."""
    codes = np.unique(users, return_inverse=True)[1]
    if isinstance(metric, TopN):
        # A user's list is the same in every resample, so the top n is selected once.
        rows, evidence = metric.select(probabilities, evidence, codes)
        probabilities = probabilities[rows]
        codes = codes[rows]
        metric = metric.metric
    if isinstance(metric, Additive):
        return _additive(metric, probabilities, evidence, codes, draws)
    if isinstance(metric, UserMean):
        return _user_mean(metric, probabilities, evidence, codes, draws)
    return _reweighted(metric, probabilities, evidence, codes, draws)


def _additive(
    metric: Additive,
    probabilities: Floats,
    evidence: Evidence,
    codes: Codes,
    draws: Iterator[Counts],
) -> Iterator[float]:
    """Sum the terms once per user and bin; each resample is then a sparse product."""
    from scipy import sparse  # noqa: PLC0415  (slow to load)

    bins = metric.bin_indices(probabilities, evidence)
    shape = (int(codes.max()) + 1, int(bins.max()) + 1)
    terms = metric.terms(probabilities, evidence)
    tables = [sparse.csr_array((term, (codes, bins)), shape=shape) for term in terms]
    for counts in draws:
        sums = [counts @ table for table in tables]
        yield metric.compute(np.array(sums))


def _user_mean(
    metric: UserMean,
    probabilities: Floats,
    evidence: Evidence,
    codes: Codes,
    draws: Iterator[Counts],
) -> Iterator[float]:
    """Compute each user's value once; a resample only changes the users' weights."""
    each = metric.per_user(probabilities, evidence, codes)
    for counts in draws:
        weight = each.weight * counts[each.user]
        total = weight.sum()
        yield float(each.value @ weight / total) if total > 0 else float("nan")


def _reweighted(
    metric: Metric,
    probabilities: Floats,
    evidence: Evidence,
    codes: Codes,
    draws: Iterator[Counts],
) -> Iterator[float]:
    """Recompute any metric with each row weighted by how often its user was drawn."""
    for counts in draws:
        weight = counts[codes]
        positive = evidence.positive * weight
        total = evidence.total * weight
        reweighted = Evidence.trusted(positive, total, evidence.kind)
        yield metric.evaluate(probabilities, reweighted, codes)
