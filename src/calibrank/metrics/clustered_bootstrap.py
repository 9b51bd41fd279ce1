"""Intervals for any metric by resampling users: rows of one user are not independent."""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from calibrank._validation import Floats, Ids, IdsLike, Numbers, ids, probability_column
from calibrank.errors import DataError
from calibrank.evidence import Evidence, Labels, nonzero_evidence
from calibrank.metrics.metric import Additive, Metric
from calibrank.metrics.ranking import TopN, UserMean

Counts = npt.NDArray[np.int64]


class Estimate(NamedTuple):
    """A metric's value and its interval."""

    value: float
    low: float
    high: float


def bootstrap(
    metric: Metric,
    probabilities: Numbers,
    labels: Labels,
    users: IdsLike,
    *,
    resamples: int = 500,
    level: float = 0.95,
    rng: np.random.Generator | int = 0,
) -> Estimate:
    """A metric with its interval over resampled users.

    The interval is the reflected ("basic") one: binned errors are biased upwards, resampling doubles that bias,
    and reflection takes it off again. It is widened to hold the value where need be, and not a number where the
    metric may be infinite.

    >>> from calibrank.metrics import LogLoss
    >>> bootstrap(LogLoss(), [0.5, 0.5, 0.5], [0, 1, 0], users=[1, 2, 3], resamples=20).low > 0.6
    True
    """
    probabilities = probability_column(probabilities)
    evidence = nonzero_evidence(labels, len(probabilities))
    known = ids("users", users, len(probabilities))
    if not 0 < level < 1 or resamples < 1:
        raise DataError(
            f"level must lie in (0, 1) and resamples be positive, got {level} and {resamples}."
        )
    heard = evidence.total > 0
    if not heard.all():
        probabilities, known = probabilities[heard], known[heard]
        evidence = evidence.rows(heard)
    value = metric.evaluate(probabilities, evidence, known)
    people = len(np.unique(known))
    if people < 2:
        raise DataError("users must be at least 2 to tell an interval, got 1.")
    draws = _draws(people, resamples, np.random.default_rng(rng))
    return _reflected(
        metric, value, _replicates(metric, probabilities, evidence, known, draws), level
    )


def bootstrap_sums(
    metric: Additive, sums: Floats, *, resamples: int = 500, level: float = 0.95
) -> Estimate:
    """As `bootstrap`, from sums kept by group of users: groups x terms x cells.

    >>> from calibrank.metrics import Brier
    >>> bootstrap_sums(Brier(), np.array([[[0.5], [2.0]], [[0.5], [2.0]]]), resamples=10)
    Estimate(value=0.25, low=0.25, high=0.25)
    """
    filled = sums.any(axis=(0, 1))
    sums = sums[:, :, filled] if filled.any() else sums
    flat = sums.reshape(len(sums), -1)
    if len(sums) < 2:
        return Estimate(metric.compute(sums.sum(axis=0)), float("nan"), float("nan"))
    draws = _draws(len(sums), resamples, np.random.default_rng(0))
    drawn = (part @ flat for part in _together(draws))
    replicates = (metric.compute(one.reshape(sums.shape[1:])) for part in drawn for one in part)
    return _reflected(metric, metric.compute(sums.sum(axis=0)), replicates, level)


def about(value: float, estimate: Estimate) -> Estimate:
    """An exact value with the interval of a coarser estimate, widened to hold it where need be.

    >>> about(0.25, Estimate(0.5, 0.4, 0.75))
    Estimate(value=0.25, low=0.25, high=0.75)
    """
    return Estimate(
        value, float(np.minimum(estimate.low, value)), float(np.maximum(estimate.high, value))
    )


class GroupSums:
    """A metric's sums by group of users, batch after batch, in memory that is taken once."""

    def __init__(self, metric: Additive, size: int) -> None:
        self.metric, self.size = metric, size
        self.sums: Floats = np.zeros((0, size * metric.size))

    def add(self, probabilities: Floats, evidence: Evidence, groups: npt.NDArray[np.intp]) -> None:
        """Add a batch of rows."""
        places = groups * self.metric.size + self.metric.cells(probabilities, evidence)
        terms = self.metric.terms(probabilities, evidence)
        if not len(self.sums):
            self.sums = np.zeros((len(terms), self.size * self.metric.size))
        for line, term in zip(self.sums, terms, strict=True):
            np.add.at(line, places, term)

    def result(self) -> Floats:
        """The sums so far: groups x terms x cells."""
        return self.sums.reshape(-1, self.size, self.metric.size).transpose(1, 0, 2)


def group_sums(
    metric: Additive,
    probabilities: Floats,
    evidence: Evidence,
    groups: npt.NDArray[np.intp],
    size: int,
) -> Floats:
    """What `bootstrap_sums` takes: a metric's sums by group of users, groups x terms x cells.

    >>> from calibrank.metrics import Brier
    >>> from calibrank.evidence import naive
    >>> group_sums(Brier(), np.array([0.5, 0.5]), naive([0, 1]), np.array([0, 1]), 2).shape
    (2, 2, 1)
    """
    sums = GroupSums(metric, size)
    sums.add(probabilities, evidence, groups)
    return sums.result()


def _reflected(metric: Metric, value: float, replicates: Iterator[float], level: float) -> Estimate:
    drawn = np.array(
        [replicate for replicate in replicates if not np.isnan(replicate)]
    )  # undefined: nobody liked
    if len(drawn) == 0 or np.isinf(drawn).any():
        return Estimate(
            value, float("nan"), float("nan")
        )  # no interval, rather than one that leaves the worst out
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    reflected_low, reflected_high = 2 * value - high, min(2 * value - low, metric.highest)
    if value >= 0:
        reflected_low = max(reflected_low, 0.0)
    return Estimate(value, float(min(reflected_low, value)), float(max(reflected_high, value)))


def _draws(users: int, resamples: int, rng: np.random.Generator) -> Iterator[Counts]:
    """How often each user is drawn, resample by resample."""
    for _ in range(resamples):
        yield np.bincount(rng.integers(users, size=users), minlength=users)


def _together(draws: Iterator[Counts]) -> Iterator[Floats]:
    """Some draws at a time: one product of matrices for all of them."""
    while some := list(islice(draws, 64)):
        yield np.array(some, dtype=np.float64)


def _replicates(
    metric: Metric, probabilities: Floats, evidence: Evidence, users: Ids, draws: Iterator[Counts]
) -> Iterator[float]:
    codes = np.unique(users, return_inverse=True)[1]
    if isinstance(metric, TopN):
        chosen, evidence = metric.select(probabilities, evidence, codes)
        probabilities, codes, metric = probabilities[chosen], codes[chosen], metric.metric
    if isinstance(metric, Additive):
        return _additive(metric, probabilities, evidence, codes, draws)
    if isinstance(metric, UserMean):
        return _user_mean(metric, probabilities, evidence, codes, draws)
    return _reweighted(metric, probabilities, evidence, codes, draws)


def _additive(
    metric: Additive,
    probabilities: Floats,
    evidence: Evidence,
    codes: npt.NDArray[np.intp],
    draws: Iterator[Counts],
) -> Iterator[float]:
    """Sum once by user and cell, then each resample is one small product."""
    from scipy import sparse  # noqa: PLC0415  (slow to load)

    cells = metric.cells(probabilities, evidence)
    shape = (int(codes.max()) + 1, int(cells.max()) + 1)
    terms = metric.terms(probabilities, evidence)
    tables = [sparse.csr_array((term, (codes, cells)), shape=shape) for term in terms]
    return (metric.compute(np.array([counts @ table for table in tables])) for counts in draws)


def _user_mean(
    metric: UserMean,
    probabilities: Floats,
    evidence: Evidence,
    codes: npt.NDArray[np.intp],
    draws: Iterator[Counts],
) -> Iterator[float]:
    each = metric.per_user(probabilities, evidence, codes)
    for counts in draws:
        weight = each.weight * counts[each.user]
        yield float(each.value @ weight / weight.sum()) if weight.sum() > 0 else float("nan")


def _reweighted(
    metric: Metric,
    probabilities: Floats,
    evidence: Evidence,
    codes: npt.NDArray[np.intp],
    draws: Iterator[Counts],
) -> Iterator[float]:
    for counts in draws:
        weight = counts[codes]
        again = Evidence.trusted(evidence.positive * weight, evidence.total * weight, evidence.kind)
        yield metric.evaluate(probabilities, again, codes)
