"""Metrics of each user's ranked list.

Rows tied in the ranking share their ranks equally, so the order of the input rows never matters.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from calibrank._internal.arguments import instance, whole
from calibrank._internal.validation import Floats, Ids, Numbers, add_up, score_column
from calibrank.errors import DataError
from calibrank.evidence import Evidence
from calibrank.metrics.metric import Better, Metric, require_users

Indices = npt.NDArray[np.intp]


class Ranking(NamedTuple):
    """Rows sorted user by user, highest value first, with the ranks that each one's tie spans."""

    order: Indices
    """Row numbers in ranked order; the other columns are in this order."""
    user: Indices
    rank: Indices
    """The first rank of the row's tie in the user's list, counted from 0."""
    ties: Indices
    """How many rows share the tie."""


def rank_by_user(values: Floats, users: Ids) -> Ranking:
    """Sort rows into one list per user, highest value first."""
    codes = np.unique(users, return_inverse=True)[1]
    # lexsort sorts by its last key first: by user, then by descending value.
    order = np.lexsort((-values, codes))
    user = codes[order]
    ranked = values[order]
    starts_user = _changes(user)
    starts_tie = starts_user | _changes(ranked)
    user_starts = np.flatnonzero(starts_user)
    tie_starts = np.flatnonzero(starts_tie)
    tie = np.cumsum(starts_tie) - 1
    rank = tie_starts[tie] - user_starts[user]
    tie_sizes = np.diff([*tie_starts, len(values)])
    return Ranking(order, user, rank, tie_sizes[tie])


def _changes(ordered: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Mark the first of each run of equal values."""
    return np.concatenate([[True], ordered[1:] != ordered[:-1]])


class PerUser(NamedTuple):
    """One value and one weight per user for whom the metric is defined."""

    user: Indices
    """Positions among the sorted distinct users."""
    value: Floats
    weight: Floats


@dataclass(frozen=True, slots=True)
class UserMean(Metric):
    """A mean over users of one value per user's top k.

    Only the order within a list counts, so raw scores do as well as probabilities.
    """

    better: ClassVar[Better] = Better.HIGHER
    maximum: ClassVar[float] = 1.0
    needs_users: ClassVar[bool] = True
    k: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", whole("k", self.k, 1))

    def check(self, probabilities: Numbers) -> Floats:
        return score_column(probabilities, "probabilities")[0]

    @property
    def name(self) -> str:
        return f"{type(self).__name__}@{self.k}"

    @abstractmethod
    def per_user(
        self,
        probabilities: Floats,
        evidence: Evidence,
        users: Ids,
    ) -> PerUser:
        """Compute the value of each user's list."""

    def evaluate(
        self,
        probabilities: Floats,
        evidence: Evidence,
        users: Ids | None,
    ) -> float:
        users = require_users(self, users)
        each = self.per_user(probabilities, evidence, users)
        total = each.weight.sum()
        if total == 0:
            raise DataError(
                f"labels must hold a positive for some user, got none: {self.name} is undefined."
            )
        return float(each.value @ each.weight / total)


@dataclass(frozen=True, slots=True)
class NDCG(UserMean):
    """Normalized discounted cumulative gain of each user's top k.

    The mean is over users with at least one positive.

    >>> NDCG(1)([0.9, 0.1, 0.2, 0.8], [1, 0, 1, 0], users=[1, 1, 2, 2])
    0.5
    """

    explanation: ClassVar[str] = (
        "Normalized discounted cumulative gain: how close to the top of each user's k best items "
        "the liked ones are. It is 1 when the liked items come first."
    )

    def per_user(
        self,
        probabilities: Floats,
        evidence: Evidence,
        users: Ids,
    ) -> PerUser:
        probabilities, evidence, users = _drop_zero_weights(probabilities, evidence, users)
        gains = evidence.positive / evidence.total
        gained = _discounted_gain(rank_by_user(probabilities, users), gains, self.k)
        ideal = _discounted_gain(rank_by_user(gains, users), gains, self.k)
        return _normalized(users, evidence, gained, ideal)


@dataclass(frozen=True, slots=True)
class Recall(UserMean):
    """The fraction of each user's positives that are in the top k.

    The mean is over users with at least one positive.

    >>> Recall(1)([0.9, 0.1, 0.2, 0.8], [1, 0, 1, 0], users=[1, 1, 2, 2])
    0.5
    """

    explanation: ClassVar[str] = (
        "The fraction of each user's liked items that are among the k best."
    )

    def per_user(
        self,
        probabilities: Floats,
        evidence: Evidence,
        users: Ids,
    ) -> PerUser:
        probabilities, evidence, users = _drop_zero_weights(probabilities, evidence, users)
        gains = evidence.positive / evidence.total
        ranking = rank_by_user(probabilities, users)
        ranked_gains = gains[ranking.order]
        found = add_up(ranking.user, ranked_gains * _fraction_in_top(ranking, self.k))
        possible = add_up(ranking.user, ranked_gains)
        return _normalized(users, evidence, found, possible)


@dataclass(frozen=True, slots=True)
class TopN(Metric):
    """Any metric over each user's n most probable rows only (Sato, RecSys 2024).

    >>> from calibrank.metrics import ECE
    >>> round(TopN(ECE(), 1)([0.9, 0.1, 0.8, 0.2], [1, 1, 1, 0], users=[1, 1, 2, 2]), 4)
    0.15
    """

    needs_users: ClassVar[bool] = True
    metric: Metric
    n: int

    def __post_init__(self) -> None:
        instance("metric", self.metric, Metric, "Use e.g. TopN(ECE(), 5).")
        object.__setattr__(self, "n", whole("n", self.n, 1))

    @property
    def name(self) -> str:
        return f"{self.metric.name} of top {self.n}"

    @property
    def better(self) -> Better:  # type: ignore[override]  # a property, to follow `metric`
        return self.metric.better

    @property
    def explanation(self) -> str:  # type: ignore[override]  # a property, to follow `metric`
        limit = f"Only each user's {self.n} best items count: what is really shown."
        return f"{self.metric.explanation} {limit}"

    def evaluate(
        self,
        probabilities: Floats,
        evidence: Evidence,
        users: Ids | None,
    ) -> float:
        users = require_users(self, users)
        rows, shown = self.select(probabilities, evidence, users)
        return self.metric.evaluate(probabilities[rows], shown, users[rows])

    def select(
        self, probabilities: Floats, evidence: Evidence, users: Ids
    ) -> tuple[Indices, Evidence]:
        """Return the rows in the top n and their evidence; rows tied for the last rank share it."""
        # A row with zero weight must not take a rank from a row that counts.
        weighted = np.flatnonzero(evidence.total > 0)
        ranking = rank_by_user(probabilities[weighted], users[weighted])
        fraction = _fraction_in_top(ranking, self.n)
        inside = fraction > 0
        rows = weighted[ranking.order[inside]]
        fraction = fraction[inside]
        positive = evidence.positive[rows] * fraction
        total = evidence.total[rows] * fraction
        return rows, Evidence.trusted(positive, total, evidence.kind)


def _fraction_in_top(ranking: Ranking, k: int) -> Floats:
    """Return how much of each ranked row is in the top k: 1, 0, or its share of the last tie."""
    return np.clip((k - ranking.rank) / ranking.ties, 0, 1)


def _discounted_gain(ranking: Ranking, gains: Floats, k: int) -> Floats:
    """Sum each user's gains, discounted by 1 / log2(rank + 2) with ranks from 0."""
    # A list has no ranks beyond its length.
    k = min(k, int((ranking.rank + ranking.ties).max()))
    discounts = 1 / np.log2(np.arange(2, k + 2))
    cumulative = np.concatenate([[0.0], np.cumsum(discounts)])
    first = np.minimum(ranking.rank, k)
    last = np.minimum(ranking.rank + ranking.ties, k)
    # Tied rows each get the mean discount of the ranks that their tie spans.
    discount = (cumulative[last] - cumulative[first]) / ranking.ties
    return add_up(ranking.user, gains[ranking.order] * discount)


def _drop_zero_weights(
    probabilities: Floats, evidence: Evidence, users: Ids
) -> tuple[Floats, Evidence, Ids]:
    weighted = evidence.total > 0
    if weighted.all():
        return probabilities, evidence, users
    return probabilities[weighted], evidence.rows(weighted), users[weighted]


def _normalized(
    users: Ids,
    evidence: Evidence,
    achieved: Floats,
    possible: Floats,
) -> PerUser:
    """Divide what each user's list achieved by what is possible, where anything is."""
    codes = np.unique(users, return_inverse=True)[1]
    # A user counts by the mean weight of the rows, not by their number.
    weight = add_up(codes, evidence.total) / np.bincount(codes)
    defined = np.flatnonzero(possible > 0)
    values = achieved[defined] / possible[defined]
    return PerUser(defined, values, weight[defined])
