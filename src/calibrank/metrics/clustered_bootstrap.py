"""Bootstrap intervals for metrics, resampling users because a user's rows are not independent.

One engine serves all intervals: it draws how often each cluster of users occurs in a resample, and
recomputes the metric from sums weighted by these counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from calibrank._internal.arguments import instance, real, require_seed, seeded, whole
from calibrank._internal.validation import Floats, IdsLike, Indices, Numbers, add_up, ids
from calibrank.errors import DataError
from calibrank.evidence import Evidence, Labels, nonzero_evidence
from calibrank.metrics.lists import Ranking, codes_of, rank_by_user
from calibrank.metrics.metric import Additive, Metric, Top, mean_probabilities
from calibrank.metrics.ranking import UserMean

Codes = npt.NDArray[np.intp]

RESAMPLES = 500
"""The number of resamples behind every interval.

A 2.5% quantile of 500 replicates has a standard error of sqrt(0.025 * 0.975 / 500) / 0.058 = 0.12
standard deviations, 6% of the interval's half-width. Halving that takes four times the time.
"""

CLUSTERS = 2048
"""The number of clusters that the users of a large table are put into.

Sums are kept per cluster, so memory does not grow with the number of users, and an interval over
2,048 clusters is practically as wide as one over users.
"""

# Numbers that the sums of a block of resamples may have: 128 MB.
_MOST_SUMS = 2**24

# Sums of clusters and bins that are kept as they are, zeros included: 8 MB.
_MOST_DENSE = 2**20

# To which part the ends of an inverted interval are found, far below what resampling resolves.
_SHARE_TOLERANCE = 1e-3
_LARGEST_SHARE = 2.0**40
_MARGIN = 0.1

# Far beyond what the ends of an interval can resolve.
_MOST_RESAMPLES = 10_000


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
    is a test of each true error, inverted. Both are widened for few users (of which one with most
    rows leaves few), and where they would not contain the value. That of a ratio is of its
    logarithm. The ends are NaN where some resample's metric is infinite. More than 2,048 users are
    put into as many clusters.

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
    real("level", level, "(0, 1)", "Use e.g. 0.95.")
    whole("resamples", resamples, 1, _MOST_RESAMPLES)
    values: Floats = np.empty(0)
    for metric in metrics:
        values = metric.check(probabilities)
    evidence = nonzero_evidence(labels, len(values))
    user_ids = ids("users", users, len(values))
    metrics = [metric.bind(columns, len(values)) for metric in metrics]
    is_weighted = evidence.total > 0
    if not is_weighted.all():
        chosen: Indices = np.flatnonzero(is_weighted)
        values, user_ids, evidence = values[chosen], user_ids[chosen], evidence.rows(chosen)
        metrics = [metric.take(chosen) for metric in metrics]
    codes = codes_of(user_ids)
    if not codes.any():
        rule, found = "hold at least 2 distinct ids for an interval", "1"
        raise DataError("users", rule, found, "Add rows of other users, or leave users out.")
    draws = draw_matrix(min(int(codes.max()) + 1, CLUSTERS), resamples, seed)
    # Metrics of lists of the same length share the sorting.
    lengths = [metric.list_length for metric in metrics]
    rankings: dict[int | None, Ranking] = {
        length: rank_by_user(values, codes, length)
        for length in set(lengths)
        if length and lengths.count(length) > 1
    }
    return [
        _estimate(metric, values, evidence, codes, draws, level, rankings.get(metric.list_length))
        for metric in metrics
    ]


def _estimate(
    metric: Metric,
    probabilities: Floats,
    evidence: Evidence,
    codes: Codes,
    draws: Floats,
    level: float,
    ranking: Ranking | None = None,
) -> Estimate:
    """The interval of one metric; `codes` number the users, `draws` are resamples x clusters."""
    if isinstance(metric, Top):
        # A user's list is the same in every resample, so the top n is selected once.
        rows, shown = metric.select(probabilities, evidence, codes, ranking)
        inner = metric.metric.take(rows)
        return _estimate(inner, probabilities[rows], shown, codes[rows], draws, level)
    size = draws.shape[1]
    if isinstance(metric, UserMean):
        # A resample only changes the users' weights, so each list is ranked once.
        per_user = metric.of_lists(probabilities, evidence, codes, ranking)
        value = metric.require_defined(per_user.mean())
        clusters = effective_clusters(add_up(per_user.user % size, per_user.weight, size))
        return basic_interval(metric, value, per_user.means(draws), level, clusters)
    value = metric.require_defined(metric.evaluate(probabilities, evidence, codes))
    if not isinstance(metric, Additive):
        found = _reweighted(metric, probabilities, evidence, codes, draws)
        clusters = effective_clusters(add_up(codes % size, evidence.total, size))
        return basic_interval(metric, value, found, level, clusters)
    sums = sums_of_rows(metric, probabilities, evidence, codes % size, size)
    parts = []
    most = max(1, _MOST_SUMS // (len(sums) * sums[0].shape[1]))
    for first in range(0, len(draws), most):
        block = np.stack([draws[first : first + most] @ term for term in sums], axis=1)
        parts.append(block if metric.noise_adds else metric.resampled(block))
    totals = np.array([term.sum(axis=0) for term in sums])
    masses = np.asarray(sums[1].sum(axis=1))
    interval = interval_of_sums(metric, totals, np.concatenate(parts), masses, level)
    return interval.with_value(value)


def sums_of_rows(
    metric: Additive, probabilities: Floats, evidence: Evidence, clusters: Codes, size: int
) -> list[Any]:
    """Each term's sums, clusters x bins; as sparse matrices where there are many bins."""
    bins = metric.bin_indices(probabilities, evidence)
    n_bins = int(bins.max()) + 1
    terms = metric.terms(probabilities, evidence)
    if size * n_bins <= _MOST_DENSE:
        places = clusters * n_bins + bins
        return [add_up(places, term, size * n_bins).reshape(size, n_bins) for term in terms]
    from scipy import sparse  # noqa: PLC0415  (slow to load)

    shape = (size, n_bins)
    return [sparse.csr_array((term, (clusters, bins)), shape=shape) for term in terms]


def bootstrap_sums(metric: Additive, sums: Floats) -> Estimate:
    """Compute a metric and its interval as `bootstrap` does, from sums per cluster of users.

    `sums` is an array of clusters x terms x bins. With fewer than two nonempty clusters there is
    no interval.

    >>> from calibrank.metrics import Brier
    >>> bootstrap_sums(Brier(), np.array([[[0.5], [2.0]], [[0.5], [2.0]]]))
    Estimate(value=0.25, low=0.25, high=0.25)
    """
    sums = nonempty(sums)
    value = metric.compute_clusters(sums)
    if len(sums) < 2:
        return Estimate(value, float("nan"), float("nan"))
    found = np.tensordot(draw_matrix(len(sums)), sums, 1)
    if not metric.noise_adds:
        found = metric.resampled(found)
    masses = sums[:, 1].sum(axis=1)
    return interval_of_sums(metric, sums.sum(axis=0), found, masses).with_value(value)


def nonempty(sums: Floats) -> Floats:
    """Drop empty clusters and empty bins: they do not change a metric, but they cost time."""
    clusters, bins = np.any(sums, axis=(1, 2)), np.any(sums, axis=(0, 1))
    # Most often there is nothing to drop, and a copy would be large.
    if not clusters.all():
        sums = sums[clusters]
    return sums if bins.all() else sums[:, :, bins]


def interval_of_sums(
    metric: Additive, totals: Floats, found: Floats, masses: Floats, level: float = 0.95
) -> Estimate:
    """The interval of a metric with the given sums of all rows, terms x bins.

    `found` has the sums of each resample, if noise adds to the metric, otherwise its values;
    `masses` has the sum of the second term of each cluster, which metrics divide by.
    """
    if metric.noise_adds:
        return inverted_interval(metric, totals, found, level, len(masses))
    value = float(metric.resampled(totals[None])[0])
    return basic_interval(metric, value, found, level, effective_clusters(masses))


def basic_interval(
    metric: Metric,
    value: float,
    replicates: Floats | Sequence[float],
    level: float = 0.95,
    clusters: float = np.inf,
) -> Estimate:
    """Return a value with its basic bootstrap interval: quantiles of the replicates, reflected."""
    # A replicate is NaN where the metric is undefined, e.g. a resample without positives.
    drawn = np.asarray(replicates)
    drawn = drawn[~np.isnan(drawn)]
    if len(drawn) == 0 or np.isinf(drawn).any():
        # No interval is better than one that leaves the infinite replicates out.
        return Estimate(value, float("nan"), float("nan"))
    quantiles = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    factor = few_clusters_factor(clusters, level)
    if metric.is_ratio and min(value, quantiles[0]) > 0:
        # On the log scale, where half as much is as far as twice as much.
        ends = value * (value / quantiles) ** factor
        return Estimate(value, min(float(ends[1]), value), max(float(ends[0]), value))
    distances = (quantiles - value) * factor
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

    # The searches for both ends begin with the same shares.
    @cache
    def errors_of(share: float) -> Floats:
        return metric.errors((noise + share * gaps) / drawn, probabilities, weights)

    def excess(share: float, quantile: float) -> float:
        return float(np.quantile(errors_of(share), quantile)) - value

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


def effective_clusters(masses: Floats) -> float:
    """How many clusters of equal mass vary as much (Kish): beside a giant the others hardly count.

    >>> effective_clusters(np.array([2.0, 2.0, 0.0]))
    2.0
    """
    squares = float(masses @ masses)
    # Below 2, no interval would end.
    return max(float(masses.sum()) ** 2 / squares, 2.0) if squares > 0 else 2.0


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


def draw_matrix(
    size: int, resamples: int = RESAMPLES, seed: int | np.random.Generator = 0
) -> Floats:
    """Draw how often each cluster occurs in each resample, resamples x clusters."""
    require_seed(seed)
    if isinstance(seed, np.random.Generator):
        return _drawn(size, resamples, seed)
    return _kept_draws(size, resamples, seed)


def _drawn(size: int, resamples: int, seed: int | np.random.Generator) -> Floats:
    rng = seeded(seed)
    counts = [np.bincount(rng.integers(size, size=size), minlength=size) for _ in range(resamples)]
    return np.array(counts, dtype=np.float64)


# All metrics of a table need the same draws.
_kept_draws = lru_cache(maxsize=1)(_drawn)


def _reweighted(
    metric: Metric, probabilities: Floats, evidence: Evidence, codes: Codes, draws: Floats
) -> Floats:
    """Recompute any metric with each row weighted by how often its user was drawn."""
    replicates = []
    for counts in draws:
        weight = counts[codes % len(counts)]
        positive = evidence.positive * weight
        total = evidence.total * weight
        reweighted = Evidence.trusted(positive, total, evidence.kind)
        replicates.append(metric.evaluate(probabilities, reweighted, codes))
    return np.array(replicates)
