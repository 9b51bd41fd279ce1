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
from calibrank.metrics.lists import Ranking, codes_of, rank_by_user
from calibrank.metrics.metric import Additive, Better, Metric, require_users


class PerUser(NamedTuple):
    """One value and one weight per user for whom the metric is defined."""

    user: Indices
    """Positions among the sorted distinct users."""
    value: Floats
    weight: Floats

    def mean(self) -> float:
        """The weighted mean; NaN without any user."""
        return float(self.means(np.ones((1, 1)))[0])

    def means(self, counts: Floats) -> Floats:
        """The weighted means, with clusters of users counted as each row of `counts` says."""
        size = counts.shape[1]
        clusters = self.user % size
        above = counts @ add_up(clusters, self.value * self.weight, size)
        total = counts @ add_up(clusters, self.weight, size)
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
    def per_user(
        self, probabilities: Floats, evidence: Evidence, users: Ids, ranking: Ranking | None = None
    ) -> PerUser:
        """Compute the value of each user's list; `ranking` is that of all rows, where known."""

    def of_lists(
        self, probabilities: Floats, evidence: Evidence, users: Ids, ranking: Ranking | None = None
    ) -> PerUser:
        """The same, for evidence of which lists can be made."""
        if evidence.kind == "doubly_robust":
            raise refusal("doubly_robust", "metrics of each user's list")
        return self.per_user(probabilities, evidence, users, ranking)

    def evaluate(self, probabilities: Floats, evidence: Evidence, users: Ids | None) -> float:
        return self.of_lists(probabilities, evidence, require_users(self, users)).mean()


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
    def list_length(self) -> int | None:
        return self.k

    def per_user(
        self, probabilities: Floats, evidence: Evidence, users: Ids, ranking: Ranking | None = None
    ) -> PerUser:
        weighted = evidence.total > 0
        if not weighted.all():
            probabilities, users = probabilities[weighted], users[weighted]
            evidence = evidence.rows(weighted)
        codes = codes_of(users)
        gains = evidence.positive / evidence.total
        achieved = self.gained(ranking or rank_by_user(probabilities, codes, self.k), gains)
        possible = self.possible(gains, codes)
        # A user counts by the mean weight of the rows, not by their number.
        weight = add_up(codes, evidence.total) / np.bincount(codes)
        defined = np.flatnonzero(possible > 0)
        return PerUser(defined, achieved[defined] / possible[defined], weight[defined])

    @abstractmethod
    def gained(self, ranking: Ranking, gains: Floats) -> Floats:
        """What each user's ranked list achieves; gains are the shares of positives of rows."""

    @abstractmethod
    def possible(self, gains: Floats, codes: Indices) -> Floats:
        """What the best list of each user achieves."""


@dataclass(frozen=True, slots=True)
class NDCG(TopK):
    """Normalized discounted cumulative gain of each user's k best items.

    It says how close to the top the liked ones are, and is 1 when the liked items come first.

    The mean is over users with at least one positive. `NDCG() @ k` is the same as `NDCG(k)`.

    >>> NDCG(1)([0.9, 0.1, 0.2, 0.8], [1, 0, 1, 0], users=[1, 1, 2, 2])
    0.5
    """

    def gained(self, ranking: Ranking, gains: Floats) -> Floats:
        return _discounted_gain(ranking, gains, self.k or LARGEST_COUNT)

    def possible(self, gains: Floats, codes: Indices) -> Floats:
        # Rows without any gain add nothing, and there are many.
        liked = np.flatnonzero(gains > 0)
        if not len(liked):
            return np.zeros(int(codes.max()) + 1)
        ranking = rank_by_user(gains[liked], codes[liked], self.k)
        ranking = ranking._replace(order=liked[ranking.order], user=codes[liked[ranking.order]])
        return _discounted_gain(ranking, gains, self.k or LARGEST_COUNT, int(codes.max()) + 1)


@dataclass(frozen=True, slots=True)
class Recall(TopK):
    """The fraction of each user's liked items that are among the k best.

    The mean is over users with at least one positive.

    >>> Recall(1)([0.9, 0.1, 0.2, 0.8], [1, 0, 1, 0], users=[1, 1, 2, 2])
    0.5
    """

    def gained(self, ranking: Ranking, gains: Floats) -> Floats:
        return add_up(
            ranking.user, gains[ranking.order] * ranking.fraction_in_top(self.k or LARGEST_COUNT)
        )

    def possible(self, gains: Floats, codes: Indices) -> Floats:
        return add_up(codes, gains)


def _discounted_gain(ranking: Ranking, gains: Floats, k: int, users: int = 0) -> Floats:
    """Sum each user's gains, discounted by 1 / log2(rank + 2) with ranks from 0."""
    # A list has no ranks beyond its length.
    k = min(k, int((ranking.rank + ranking.ties).max()))
    discounts = 1 / np.log2(np.arange(2, k + 2))
    cumulative = np.concatenate([[0.0], np.cumsum(discounts)])
    first = np.minimum(ranking.rank, k)
    last = np.minimum(ranking.rank + ranking.ties, k)
    # Tied rows each get the mean discount of the ranks that their tie spans.
    discount = (cumulative[last] - cumulative[first]) / ranking.ties
    return add_up(ranking.user, gains[ranking.order] * discount, users)


@dataclass(frozen=True, slots=True)
class AUC(Additive):
    """Area under the ROC curve: the chance that a positive has a higher value than a negative.

    Calibration by an increasing map does not change it.

    Ties count half. Pairs are weighted by positive mass times negative mass (total minus
    positive). Only the order counts, so raw scores do as well as probabilities.

    >>> AUC()([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])
    0.75
    """

    better: ClassVar[Better] = Better.HIGHER
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
    """Grouped AUC: AUC of each user's list, averaged over users by their number of rows.

    It is the chance that a liked item is given a higher probability than another item of the same
    user. Users without both classes are left out, with their rows.

    `users` may be any groups, such as queries.

    >>> GAUC()([0.1, 0.4, 0.8, 0.3, 0.2], [0, 1, 0, 1, 0], users=[1, 1, 1, 2, 2])
    0.7
    """

    needs_labels: ClassVar[str] = "both classes for some user"

    def per_user(
        self, probabilities: Floats, evidence: Evidence, users: Ids, ranking: Ranking | None = None
    ) -> PerUser:
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
