"""Bootstrap intervals for metrics, resampling users because a user's rows are not independent.

One engine serves all intervals: it draws how often each user, or each cluster of users, occurs in
a resample, and recomputes the metric from sums weighted by these counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from calibrank._internal.arguments import instance, real, require_seed, seeded, whole
from calibrank._internal.validation import Floats, IdsLike, Indices, Numbers, floats, ids, require
from calibrank.errors import DataError
from calibrank.evidence import Evidence, Labels, nonzero_evidence
from calibrank.metrics.metric import (
    Additive,
    Metric,
    Ranking,
    Top,
    codes_of,
    mean_probabilities,
    rank_by_user,
)
from calibrank.metrics.ranking import UserMean

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

# Numbers that the sums of a block of resamples may have: 128 MB.
_MOST_SUMS = 2**24

# To which part the ends of an inverted interval are found, far below what resampling resolves.
_SHARE_TOLERANCE = 1e-3
_LARGEST_SHARE = 2.0**40
_MARGIN = 0.1

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
    columns: Any = None,
    *,
    resamples: int = RESAMPLES,
    level: float = 0.95,
    seed: int | np.random.Generator = 0,
) -> Estimate:
    """Compute a metric and its confidence interval by resampling users.

    The interval is the basic (reflected) one; that of a calibration error, to which noise adds,
    is a test of each true error, inverted. Both are widened for few users and where they would
    not contain the value. The ends are NaN where some resample's metric is infinite.

    >>> from calibrank.metrics import LogLoss
    >>> bootstrap(LogLoss(), [0.5, 0.5, 0.5], [0, 1, 0], users=[1, 2, 3], resamples=20).low > 0.6
    True
    """
    instance("metric", metric, Metric, "Use e.g. LogLoss().")
    return bootstrap_all(
        (metric,), probabilities, labels, users, columns, resamples, level=level, seed=seed
    )[0]


def bootstrap_all(
    metrics: Sequence[Metric],
    probabilities: Numbers,
    labels: Labels,
    users: IdsLike,
    columns: Any = None,
    resamples: int = RESAMPLES,
    *,
    level: float = 0.95,
    seed: int | np.random.Generator = 0,
) -> list[Estimate]:
    """Compute several metrics as `bootstrap` does, all of them over the same resamples."""
    require_seed(seed)
    if not metrics:
        return []
    values: Floats = np.empty(0)
    for metric in metrics:
        values = metric.check(probabilities)
    evidence = nonzero_evidence(labels, len(values))
    user_ids = ids("users", users, len(values))
    metrics = [metric.bind(columns, len(values)) for metric in metrics]
    _require_settings(resamples, level)
    chosen: Indices = np.flatnonzero(evidence.total > 0)
    if len(chosen) < len(values):
        values, user_ids, evidence = values[chosen], user_ids[chosen], evidence.rows(chosen)
        metrics = [metric.take(chosen) for metric in metrics]
    codes = codes_of(user_ids)
    if not codes.any():
        raise DataError(
            "users",
            "hold at least 2 distinct ids for an interval",
            "1",
            "Add rows of other users, or leave users out.",
        )
    n_users = int(codes.max()) + 1
    # Metrics of lists of the same length share the sorting.
    lengths = [metric.list_length for metric in metrics]
    rankings: dict[int | None, Ranking] = {
        length: rank_by_user(values, codes, length)
        for length in set(lengths)
        if length and lengths.count(length) > 1
    }
    resampled = [
        _Resampled.of(metric, values, evidence, codes, rankings.get(metric.list_length))
        for metric in metrics
    ]
    at_once = min(_MOST_SUMS // each.size for each in resampled)
    draws = _draws(n_users, resamples, seeded(seed))
    for block in _blocks(draws, int(np.clip(at_once, 1, _BLOCK))):
        for each in resampled:
            each.add(block)
    return [each.interval(level, n_users) for each in resampled]


@dataclass(slots=True)
class _Resampled:
    """What a metric needs of each resample, collected block by block."""

    metric: Metric
    value: float
    of_block: Callable[[Floats], Floats]
    """From how often users are drawn, resamples x users, to sums of terms or values."""
    size: int
    """Numbers per resample that are in memory at once."""
    totals: Floats | None = None
    """The sums of all rows of a metric of sums, terms x bins."""
    found: list[Floats] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        metric: Metric,
        probabilities: Floats,
        evidence: Evidence,
        codes: Codes,
        ranking: Ranking | None,
    ) -> _Resampled:
        n_users = int(codes.max()) + 1
        if isinstance(metric, Top):
            # A user's list is the same in every resample, so the top n is selected once.
            rows, evidence = metric.select(probabilities, evidence, codes, ranking)
            ranking = None
            probabilities = probabilities[rows]
            codes = codes[rows]
            metric = metric.metric.take(rows)
        if isinstance(metric, UserMean):
            # A resample only changes the users' weights, so each list is ranked once.
            per_user = metric.of_lists(probabilities, evidence, codes, ranking)
            return cls(metric, metric.require_defined(per_user.mean()), per_user.means, n_users)
        value = metric.require_defined(metric.evaluate(probabilities, evidence, codes))
        if not isinstance(metric, Additive):
            reweighted = partial(_reweighted, metric, probabilities, evidence, codes)
            return cls(metric, value, reweighted, n_users)
        sums = sums_of_rows(metric, probabilities, evidence, codes, n_users)
        return cls.of_sums(metric, value, sums)

    @classmethod
    def of_sums(cls, metric: Additive, value: float, sums: Any) -> _Resampled:
        """From sums per term, each clusters x bins: an array or sparse matrices."""

        def of_block(counts: Floats) -> Floats:
            return np.stack([counts @ term for term in sums], axis=1)

        totals = of_block(np.ones((1, sums[0].shape[0])))[0]
        return cls(metric, value, of_block, totals.size, totals)

    def add(self, counts: Floats) -> None:
        """Add a block of resamples."""
        found = self.of_block(counts)
        if isinstance(self.metric, Additive) and not self.metric.noise_adds:
            found = self.metric.resampled(found)
        self.found.append(found)

    def interval(self, level: float, clusters: int) -> Estimate:
        """The value with its interval."""
        found = np.concatenate(self.found)
        if self.totals is None or not isinstance(self.metric, Additive):
            return basic_interval(self.metric, self.value, found, level, clusters)
        interval = interval_of_sums(self.metric, self.totals, found, level, clusters)
        return interval.with_value(self.value)


def sums_of_rows(
    metric: Additive, probabilities: Floats, evidence: Evidence, codes: Codes, n_users: int
) -> list[Any]:
    """Each term's sums, users x bins, as sparse matrices: there may be millions of both."""
    from scipy import sparse  # noqa: PLC0415  (slow to load)

    bins = metric.bin_indices(probabilities, evidence)
    shape = (n_users, int(bins.max()) + 1)
    terms = metric.terms(probabilities, evidence)
    return [sparse.csr_array((term, (codes, bins)), shape=shape) for term in terms]


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
    if len(sums) < 2:
        return Estimate(value, float("nan"), float("nan"))
    resampled = _Resampled.of_sums(metric, value, sums.transpose(1, 0, 2))
    for counts in _drawn_blocks(len(sums), resamples, seed):
        resampled.add(counts)
    return resampled.interval(level, len(sums))


def _checked_sums(sums: Floats) -> Floats:
    array = floats("sums", sums)
    if array.ndim != 3 or not array.any():
        raise DataError(
            "sums",
            "be an array of clusters x terms x bins that holds rows",
            f"shape {array.shape}",
            "Make it with cluster_sums.",
        )
    require(np.isfinite, "sums", "be finite", array, "Make them with cluster_sums.")
    return array


def resampled_blocks(
    sums: Floats, resamples: int = RESAMPLES, seed: int | np.random.Generator = 0
) -> Iterator[Floats]:
    """Yield summed terms, resamples x terms x bins; nothing for fewer than two clusters.

    >>> [block.shape for block in resampled_blocks(np.ones((3, 2, 5)), resamples=70)]
    [(64, 2, 5), (6, 2, 5)]
    """
    sums = nonempty(sums)
    if len(sums) < 2:
        return
    for counts in _drawn_blocks(len(sums), resamples, seed):
        yield np.tensordot(counts, sums, 1)


def nonempty(sums: Floats) -> Floats:
    """Drop empty clusters and empty bins: they do not change a metric, but they cost time."""
    sums = sums[sums.any(axis=(1, 2))]
    return sums[:, :, sums.any(axis=(0, 1))]


def interval_of_sums(
    metric: Additive, totals: Floats, found: Floats, level: float = 0.95, clusters: float = np.inf
) -> Estimate:
    """The interval of a metric with the given sums of all rows, terms x bins.

    `found` has the sums of each resample, if noise adds to the metric, otherwise its values.
    """
    if metric.noise_adds:
        return inverted_interval(metric, totals, found, level, clusters)
    value = float(metric.resampled(totals[None])[0])
    return basic_interval(metric, value, found, level, clusters)


def basic_interval(
    metric: Metric,
    value: float,
    replicates: Iterable[float],
    level: float = 0.95,
    clusters: float = np.inf,
) -> Estimate:
    """Return a value with its basic bootstrap interval: quantiles of the replicates, reflected."""
    # A replicate is NaN where the metric is undefined, e.g. a resample without positives.
    drawn = np.array([replicate for replicate in replicates if not np.isnan(replicate)])
    if len(drawn) == 0 or np.isinf(drawn).any():
        # No interval is better than one that leaves the infinite replicates out.
        return Estimate(value, float("nan"), float("nan"))
    distances = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2]) - value
    distances = distances * few_clusters_factor(clusters, level)
    high = min(value - distances[0], metric.maximum)
    low = value - distances[1]
    # Reflection can leave the range of the metric; only weighted losses are ever negative.
    if value >= metric.minimum:
        low = max(low, metric.minimum)
    return Estimate(value, float(min(low, value)), float(max(high, value)))


def inverted_interval(
    metric: Metric, totals: Floats, resamples: Floats, level: float = 0.95, clusters: float = np.inf
) -> Estimate:
    """Return the interval of a calibration error, to which noise adds: a test, inverted.

    The true gaps are taken to be the observed ones times a share. For each share the bootstrap
    knows what would be observed; the interval holds the errors of all shares for which the
    observed error is neither too high nor too low (Carpenter, 1999). Reflection removes the bias
    of resampled data, which is smaller than that of the data where gaps are mostly noise.
    """
    gaps = totals[0] - totals[2]
    mass = totals[1].sum()
    probabilities = mean_probabilities(totals[1], totals[2])[None]
    weights = totals[1:2] / mass
    noise = resamples[:, 0] - resamples[:, 2] - gaps
    noise *= few_clusters_factor(clusters, level)
    drawn = resamples[:, 1].sum(axis=1, keepdims=True)
    value = float(metric.errors((gaps / mass)[None], probabilities, weights)[0])

    def excess(share: float, quantile: float) -> float:
        errors = metric.errors((noise + share * gaps) / drawn, probabilities, weights)
        return float(np.quantile(errors, quantile)) - value

    def end(quantile: float) -> float:
        share = _root(lambda share: excess(share, quantile), _SHARE_TOLERANCE)
        return float(metric.errors((share * gaps / mass)[None], probabilities, weights)[0])

    low = end((1 + level) / 2)
    high = end((1 - level) / 2)
    return Estimate(value, min(low, value), max(high, value))


def _root(function: Callable[[float], float], tolerance: float) -> float:
    """The root of an increasing function, or 0 if it is positive there, by false position."""
    low, above = 0.0, function(0.0)
    if above >= 0:
        return 0.0
    high = 1.0
    below = function(high)
    while below < 0 and high < _LARGEST_SHARE:
        low, above, high = high, below, 2 * high
        below = function(high)
    while high - low > tolerance * high:
        # A step of the secant that is kept away from both ends, so that both move.
        middle = (low * below - high * above) / (below - above)
        margin = _MARGIN * (high - low)
        middle = min(max(middle, low + margin), high - margin)
        value = function(middle)
        if value < 0:
            low, above = middle, value
        else:
            high, below = middle, value
    return (low * below - high * above) / (below - above)


def few_clusters_factor(clusters: float, level: float = 0.95) -> float:
    """How much wider an interval over few clusters must be than the bootstrap says.

    Resampling n clusters understates the variance by (n - 1) / n, and the quantiles are Student's.

    >>> round(few_clusters_factor(30), 3)
    1.061
    """
    if not np.isfinite(clusters):
        return 1.0
    from scipy.special import ndtri, stdtrit  # noqa: PLC0415  (slow to load)

    upper = (1 + level) / 2
    ratio = stdtrit(clusters - 1, upper) / ndtri(upper)
    return float(ratio * np.sqrt(clusters / (clusters - 1)))


class ClusterSums:
    """A metric's sums per cluster of users, accumulated batch by batch in fixed memory."""

    def __init__(self, metric: Additive, n_clusters: int) -> None:
        if not metric.has_fixed_bins:
            raise DataError(
                "metric",
                "have fixed bins to be summed in batches",
                metric.name,
                "Use bootstrap, which needs all rows at once.",
            )
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


def _draws(size: int, resamples: int, rng: np.random.Generator) -> Iterator[Counts]:
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


def _blocks(draws: Iterator[Counts], size: int = _BLOCK) -> Iterator[Floats]:
    """Stack draws into matrices of at most `size` resamples."""
    while block := list(islice(draws, size)):
        yield np.array(block, dtype=np.float64)


def _reweighted(
    metric: Metric, probabilities: Floats, evidence: Evidence, codes: Codes, draws: Floats
) -> Floats:
    """Recompute any metric with each row weighted by how often its user was drawn."""
    replicates = []
    for counts in draws:
        weight = counts[codes]
        positive = evidence.positive * weight
        total = evidence.total * weight
        reweighted = Evidence.trusted(positive, total, evidence.kind)
        replicates.append(metric.evaluate(probabilities, reweighted, codes))
    return np.array(replicates)
