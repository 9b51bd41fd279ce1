"""Metrics over each user's list. Tied rows share their places equally, so the order of rows never matters."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from calibrank._validation import Floats, Ids, Numbers, add_up, score_column
from calibrank.errors import DataError
from calibrank.evidence import Evidence
from calibrank.metrics.metric import Better, Metric, require_users


class Lists(NamedTuple):
    """Rows in list order (user by user, best first), where each starts and how wide its tie is."""

    order: npt.NDArray[np.intp]
    user: npt.NDArray[np.intp]
    place: npt.NDArray[np.intp]
    """The first place, from 0, that the row's tie takes in its user's list."""
    tied: npt.NDArray[np.intp]
    """How many rows share the tie."""


def lists(values: Floats, users: Ids) -> Lists:
    """Sort rows into each user's list, highest value first."""
    codes = np.unique(users, return_inverse=True)[1]
    order = np.lexsort((-values, codes))
    user, sorted_values = codes[order], values[order]
    new_user = np.concatenate([[True], user[1:] != user[:-1]])
    new_tie = new_user | np.concatenate([[True], sorted_values[1:] != sorted_values[:-1]])
    user_starts, tie_starts = np.flatnonzero(new_user), np.flatnonzero(new_tie)
    tie = np.cumsum(new_tie) - 1
    place = tie_starts[tie] - user_starts[user]
    return Lists(order, user, place, np.diff([*tie_starts, len(values)])[tie])


class PerUser(NamedTuple):
    """One value a user, and its weight; users for whom the metric is undefined are left out."""

    user: npt.NDArray[np.intp]
    value: Floats
    weight: Floats


@dataclass(frozen=True, slots=True)
class UserMean(Metric):
    """A metric over each user's top k that is the mean of one value a user. Only order counts: raw scores will do."""

    better: ClassVar[Better] = Better.HIGHER
    highest: ClassVar[float] = 1.0
    k: int

    def __post_init__(self) -> None:
        _require_k(self.k)

    def check(self, probabilities: Numbers) -> Floats:
        return score_column(probabilities)[0]

    @property
    def name(self) -> str:
        return f"{type(self).__name__}@{self.k}"

    @abstractmethod
    def per_user(self, probabilities: Floats, evidence: Evidence, users: Ids) -> PerUser:
        """Each user's value; `user` numbers users in sorted order."""

    def evaluate(self, probabilities: Floats, evidence: Evidence, users: Ids | None) -> float:
        each = self.per_user(probabilities, evidence, require_users(self, users))
        if each.weight.sum() == 0:
            raise DataError(
                f"labels must hold a positive for some user, got none: {self.name} is undefined."
            )
        return float(each.value @ each.weight / each.weight.sum())


@dataclass(frozen=True, slots=True)
class NDCG(UserMean):
    """Normalised discounted cumulative gain of each user's top k, averaged over users who like something.

    >>> NDCG(1)([0.9, 0.1, 0.2, 0.8], [1, 0, 1, 0], users=[1, 1, 2, 2])
    0.5
    """

    def per_user(self, probabilities: Floats, evidence: Evidence, users: Ids) -> PerUser:
        probabilities, evidence, users = _heard(probabilities, evidence, users)
        gains = evidence.positive / evidence.total
        got = _discounted(lists(probabilities, users), gains, self.k)
        ideal = _discounted(lists(gains, users), gains, self.k)
        return _defined(users, evidence, got, ideal)


@dataclass(frozen=True, slots=True)
class Recall(UserMean):
    """The share of each user's liked items found in the top k, averaged over users who like something.

    >>> Recall(1)([0.9, 0.1, 0.2, 0.8], [1, 0, 1, 0], users=[1, 1, 2, 2])
    0.5
    """

    def per_user(self, probabilities: Floats, evidence: Evidence, users: Ids) -> PerUser:
        probabilities, evidence, users = _heard(probabilities, evidence, users)
        gains = evidence.positive / evidence.total
        rows = lists(probabilities, users)
        found = add_up(rows.user, gains[rows.order] * _share_in_top(rows, self.k))
        return _defined(users, evidence, found, add_up(rows.user, gains[rows.order]))


@dataclass(frozen=True, slots=True)
class TopN(Metric):
    """Any metric over each user's n most probable rows only: what is shown (Sato, RecSys 2024).

    >>> from calibrank.metrics import ECE
    >>> round(TopN(ECE(), 1)([0.9, 0.1, 0.8, 0.2], [1, 1, 1, 0], users=[1, 1, 2, 2]), 4)
    0.15
    """

    metric: Metric
    n: int

    def __post_init__(self) -> None:
        _require_k(self.n)

    @property
    def name(self) -> str:
        return f"{self.metric.name} of top {self.n}"

    @property
    def better(self) -> Better:  # type: ignore[override]  # follows the metric it wraps
        """As for the metric itself."""
        return self.metric.better

    def evaluate(self, probabilities: Floats, evidence: Evidence, users: Ids | None) -> float:
        chosen, shown = self.select(probabilities, evidence, require_users(self, users))
        known = None if users is None else users[chosen]
        return self.metric.evaluate(probabilities[chosen], shown, known)

    def select(
        self, probabilities: Floats, evidence: Evidence, users: Ids
    ) -> tuple[npt.NDArray[np.intp], Evidence]:
        """The rows shown, and their evidence; rows tied for the last place share it."""
        heard = np.flatnonzero(evidence.total > 0)  # a row of no weight takes no place in a list
        rows = lists(probabilities[heard], users[heard])
        share = _share_in_top(rows, self.n)
        chosen, share = heard[rows.order[share > 0]], share[share > 0]
        return chosen, Evidence.trusted(
            evidence.positive[chosen] * share, evidence.total[chosen] * share, evidence.kind
        )


def _share_in_top(rows: Lists, k: int) -> Floats:
    """How much of each row (in list order) the top k holds: all, none, or a share of the last tie."""
    return np.clip((k - rows.place) / rows.tied, 0, 1)


def _discounted(rows: Lists, gains: Floats, k: int) -> Floats:
    discounts = np.concatenate([[0.0], np.cumsum(1 / np.log2(np.arange(2, k + 2)))])
    first, last = np.minimum(rows.place, k), np.minimum(rows.place + rows.tied, k)
    share = (discounts[last] - discounts[first]) / rows.tied
    return add_up(rows.user, gains[rows.order] * share)


def _heard(probabilities: Floats, evidence: Evidence, users: Ids) -> tuple[Floats, Evidence, Ids]:
    heard = evidence.total > 0
    if heard.all():
        return probabilities, evidence, users
    kept = evidence.rows(heard)
    return probabilities[heard], kept, users[heard]


def _defined(users: Ids, evidence: Evidence, found: Floats, possible: Floats) -> PerUser:
    codes = np.unique(users, return_inverse=True)[1]
    weight = add_up(codes, evidence.total) / np.bincount(codes)
    defined = np.flatnonzero(possible > 0)
    return PerUser(defined, found[defined] / possible[defined], weight[defined])


def _require_k(k: int) -> None:
    if k < 1:
        raise DataError(f"the list length must be at least 1, got {k}.")
