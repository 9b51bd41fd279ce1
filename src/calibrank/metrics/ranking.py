"""Metrics of each user's ranked list: rows tied in the ranking share their ranks equally."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np

from calibrank._internal.arguments import LARGEST_COUNT, whole
from calibrank._internal.validation import Floats, Ids, Indices, Numbers, add_up, score_column
from calibrank.composition import refusal
from calibrank.evidence import Evidence
from calibrank.metrics.metric import (
    Additive,
    Better,
    Metric,
    Ranking,
    codes_of,
    fraction_in_top,
    rank_by_user,
    require_users,
)


class PerUser(NamedTuple):
    """One value and one weight per user for whom the metric is defined."""

    user: Indices
    """Positions among the sorted distinct users."""
    value: Floats
    weight: Floats

    def mean(self) -> float:
        """The weighted mean; NaN without any user."""
        return float(self.means(np.ones((1, self.user.max(initial=0) + 1)))[0])

    def means(self, counts: Floats) -> Floats:
        """The weighted means, with users counted as often as each row of `counts` says."""
        sums = np.zeros((counts.shape[1], 2))
        sums[self.user, 0] = self.value * self.weight
        sums[self.user, 1] = self.weight
        above, total = (counts @ sums).T
        return np.divide(above, total, out=np.full(len(total), np.nan), where=total > 0)


class UserMean(Metric):
    """A mean over users of one value per user's list.

    Only the order within a list counts, so raw scores do as well as probabilities.
    """

    better: ClassVar[Better] = Better.HIGHER
    maximum: ClassVar[float] = 1.0
    needs_users: ClassVar[bool] = True
    needs_labels: ClassVar[str] = "a positive for some user"

    def check(self, probabilities: Numbers) -> Floats:
        return score_column(probabilities, "probabilities")[0]

    @abstractmethod
    def per_user(self, probabilities: Floats, evidence: Evidence, users: Ids) -> PerUser:
        """Compute the value of each user's list."""

    def evaluate(self, probabilities: Floats, evidence: Evidence, users: Ids | None) -> float:
        if evidence.kind == "doubly_robust":
            raise refusal("doubly_robust", "metrics of each user's list")
        return self.per_user(probabilities, evidence, require_users(self, users)).mean()


@dataclass(frozen=True, slots=True)
class TopK(UserMean):
    """A mean over users of one value per user's top k, or per whole list without k."""

    k: int | None = None

    def __post_init__(self) -> None:
        if self.k is not None:
            object.__setattr__(self, "k", whole("k", self.k, 1))

    def __matmul__(self, n: int) -> Metric:
        return Metric.__matmul__(self, n) if self.k else replace(self, k=n)

    @property
    def name(self) -> str:
        return f"{type(self).__name__}@{self.k}" if self.k else type(self).__name__

    @property
    def length(self) -> int:
        """How many rows of a list count."""
        return self.k or LARGEST_COUNT


@dataclass(frozen=True, slots=True)
class NDCG(TopK):
    """Normalized discounted cumulative gain of each user's top k.

    The mean is over users with at least one positive. `NDCG() @ k` is the same as `NDCG(k)`.

    >>> NDCG(1)([0.9, 0.1, 0.2, 0.8], [1, 0, 1, 0], users=[1, 1, 2, 2])
    0.5
    """

    explanation: ClassVar[str] = (
        "Normalized discounted cumulative gain: how close to the top of each user's k best items "
        "the liked ones are. It is 1 when the liked items come first."
    )

    def per_user(self, probabilities: Floats, evidence: Evidence, users: Ids) -> PerUser:
        probabilities, evidence, users = _drop_zero_weights(probabilities, evidence, users)
        gains = evidence.positive / evidence.total
        gained = _discounted_gain(rank_by_user(probabilities, users), gains, self.length)
        ideal = _discounted_gain(rank_by_user(gains, users), gains, self.length)
        return _normalized(users, evidence, gained, ideal)


@dataclass(frozen=True, slots=True)
class Recall(TopK):
    """The fraction of each user's positives that are in the top k.

    The mean is over users with at least one positive.

    >>> Recall(1)([0.9, 0.1, 0.2, 0.8], [1, 0, 1, 0], users=[1, 1, 2, 2])
    0.5
    """

    explanation: ClassVar[str] = (
        "The fraction of each user's liked items that are among the k best."
    )

    def per_user(self, probabilities: Floats, evidence: Evidence, users: Ids) -> PerUser:
        probabilities, evidence, users = _drop_zero_weights(probabilities, evidence, users)
        gains = evidence.positive / evidence.total
        ranking = rank_by_user(probabilities, users)
        ranked_gains = gains[ranking.order]
        found = add_up(ranking.user, ranked_gains * fraction_in_top(ranking, self.length))
        possible = add_up(ranking.user, ranked_gains)
        return _normalized(users, evidence, found, possible)


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


def _normalized(users: Ids, evidence: Evidence, achieved: Floats, possible: Floats) -> PerUser:
    """Divide what each user's list achieved by what is possible, where anything is."""
    codes = codes_of(users)
    # A user counts by the mean weight of the rows, not by their number.
    weight = add_up(codes, evidence.total) / np.bincount(codes)
    defined = np.flatnonzero(possible > 0)
    values = achieved[defined] / possible[defined]
    return PerUser(defined, values, weight[defined])


@dataclass(frozen=True, slots=True)
class AUC(Additive):
    """The chance that a positive is given a higher value than a negative; ties count half.

    Pairs are weighted by positive mass times negative mass (total minus positive). Only the
    order counts, so raw scores do as well as probabilities.

    >>> AUC()([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])
    0.75
    """

    better: ClassVar[Better] = Better.HIGHER
    explanation: ClassVar[str] = (
        "Area under the ROC curve: the chance that a liked item is given a higher probability "
        "than another one. Calibration by an increasing map does not change it."
    )
    maximum: ClassVar[float] = 1.0
    needs_labels: ClassVar[str] = "both classes"
    has_fixed_bins: ClassVar[bool] = False

    def check(self, probabilities: Numbers) -> Floats:
        return score_column(probabilities, "probabilities")[0]

    def bin_indices(self, probabilities: Floats, evidence: Evidence) -> Indices:
        # One bin per distinct value, in increasing order.
        return np.unique(probabilities, return_inverse=True)[1]

    def terms(self, probabilities: Floats, evidence: Evidence) -> Floats:
        return np.array([evidence.positive, evidence.total])

    def compute(self, sums: Floats) -> float:
        positive, total = sums
        one_list = np.zeros(len(total), dtype=np.intp)
        return float(_areas(positive, total - positive, one_list)[0])


@dataclass(frozen=True, slots=True)
class GAUC(UserMean):
    """AUC of each user's list, averaged over users by their number of rows (grouped AUC).

    Users without both classes have no AUC: they are left out, with their rows. `users` may be
    any groups, such as queries.

    >>> GAUC()([0.1, 0.4, 0.8, 0.3, 0.2], [0, 1, 0, 1, 0], users=[1, 1, 1, 2, 2])
    0.7
    """

    explanation: ClassVar[str] = (
        "Grouped AUC: the chance that a liked item of a user is given a higher probability than "
        "another item of the same user, averaged over users by their number of rows. Users "
        "without both classes are left out."
    )
    needs_labels: ClassVar[str] = "both classes for some user"

    def per_user(self, probabilities: Floats, evidence: Evidence, users: Ids) -> PerUser:
        codes = np.unique(users, return_inverse=True)[1]
        ranks = np.unique(probabilities, return_inverse=True)[1]
        # One cell per user and value, in increasing order of the value within each user.
        n_ranks = int(ranks.max()) + 1
        cells, places = np.unique(codes * n_ranks + ranks, return_inverse=True)
        positive = add_up(places, evidence.positive)
        negative = add_up(places, evidence.total - evidence.positive)
        lists = cells // n_ranks
        areas = _areas(positive, negative, lists)
        # Inverse-propensity weights can push the negative mass of a short list below 0.
        has_both = (add_up(lists, positive) > 0) & (add_up(lists, negative) > 0)
        defined = np.flatnonzero(has_both)
        return PerUser(defined, areas[defined], add_up(codes, evidence.total)[defined])


def _areas(positive: Floats, negative: Floats, lists: Indices) -> Floats:
    """The AUC of each list of increasing values; NaN where a class has no mass."""
    positives = add_up(lists, positive)
    negatives = add_up(lists, negative)
    before = np.cumsum(negatives) - negatives
    below = np.cumsum(negative) - negative / 2 - before[lists]
    areas = np.full(len(positives), np.nan)
    pairs = positives * negatives
    return np.divide(add_up(lists, positive * below), pairs, out=areas, where=pairs != 0)
