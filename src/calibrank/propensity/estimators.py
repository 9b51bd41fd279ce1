"""Propensity estimators: an estimator is fitted to a log and predicts P(observed) of pairs.

Code for numpy, Parquet and Spark takes the formulas from here: `Popularity.exposure` and
`Popularity.propensity` of numbers of positives, `Exposure.factor` of numbers of impressions.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from calibrank._internal.arguments import instance, real, seeded
from calibrank._internal.validation import (
    Floats,
    Ids,
    IdsLike,
    Numbers,
    column,
    floats,
    ids,
    is_probability,
    require,
    require_role,
    row_numbers,
)
from calibrank.errors import DataError
from calibrank.tables import Frame, Index, Interactions, as_interactions, mix_bits

Maximum = Callable[[Any, float], Any]
"""The elementwise maximum of values and a number: numpy's, or that of another engine."""


class FittedPropensity(ABC):
    """A fitted estimate of P(observed)."""

    def predict(self, users: IdsLike, items: IdsLike) -> Floats:
        """P(observed) of each pair, in (0, 1]."""
        users = ids("users", users)
        items = ids("items", items, len(users))
        return self._predict(users, items)

    @abstractmethod
    def _predict(self, users: Ids, items: Ids) -> Floats:
        """P(observed) of checked pairs."""


class Propensity(Protocol):
    """The configuration of an estimator; `fit` returns the fitted estimate."""

    def fit(self, interactions: Interactions) -> FittedPropensity:
        """Estimate P(observed) from a log."""


def power_law(exposure: Any, power: float, clip: float, maximum: Maximum = np.maximum) -> Any:
    """The propensity of a relative exposure in [0, 1]: exposure ** power, at least `clip`.

    `maximum` is the target's own for values other than numpy arrays, such as Spark columns.
    """
    return maximum(exposure**power, clip)


@dataclass(frozen=True, slots=True)
class Popularity:
    """Propensity = relative exposure ** power, at least `clip`, as in the paper.

    The relative exposure of an item is its number of positives over that of the most popular item.
    This orders items by exposure but cannot determine the absolute rate: the most popular item gets
    propensity 1 by definition.

    >>> log = Interactions(users=[1, 2, 3, 4, 1], items=["a", "a", "a", "a", "b"])
    >>> Popularity().fit(log).predict([9, 9, 9], ["a", "b", "new"])
    array([1. , 0.5, 0.1])
    """

    power: float = 0.5
    clip: float = 0.1

    def __post_init__(self) -> None:
        real("clip", self.clip, "(0, 1]")
        object.__setattr__(self, "power", real("power", self.power, "[0, inf)"))

    def fit(self, interactions: Interactions | Frame) -> ByIds:
        """Count the positives of each item.

        The log may be a dataframe with columns user, item and label; so for other estimators.
        """
        log = as_interactions(interactions)
        items, counts = _count(log.items[log.labels == 1], "a positive to estimate popularity")
        propensity = self.propensity(self.exposure(counts, counts.max()))
        return ByIds((items, propensity), None, self.clip)

    @staticmethod
    def exposure(counts: Any, highest: Any) -> Any:
        """Relative exposure: numbers of positives over the highest number, in [0, 1].

        >>> Popularity.exposure(np.array([8, 2, 0]), 8)
        array([1.  , 0.25, 0.  ])
        """
        return counts / highest

    def propensity(self, exposure: Any, maximum: Maximum = np.maximum) -> Any:
        """The propensity of a relative exposure: exposure ** power, at least `clip`.

        >>> Popularity(power=0.5, clip=0.1).propensity(np.array([1.0, 0.25, 0.0]))
        array([1. , 0.5, 0.1])
        """
        return power_law(exposure, self.power, self.clip, maximum)


@dataclass(frozen=True, slots=True)
class Exposure:
    """P(shown) up to a constant factor: item exposure x user exposure, each at least `clip`.

    The exposure of an item is its number of impressions, whatever their labels, over that of the
    item shown most; that of a user likewise. The logarithm is thus additive in items and users, as
    it is if who is shown much does not depend on what is shown. Use it with `impressions`, whose
    rates are self-normalised, so that the constant factor does not matter.

    >>> log = Interactions(users=[1, 1, 2, 2], items=["a", "b", "a", "a"], labels=[0, 1, 0, 1])
    >>> Exposure().fit(log).predict([1, 1, 2], ["a", "b", "b"]).round(3)
    array([1.   , 0.333, 0.333])
    """

    by_user: bool = True
    """Whether exposure differs between users; otherwise only the item counts."""
    clip: float = 0.01

    def __post_init__(self) -> None:
        instance("by_user", self.by_user, bool)
        real("clip", self.clip, "(0, 1]")

    def fit(self, interactions: Interactions | Frame) -> ByIds:
        """Count the impressions of each item and user."""
        log = as_interactions(interactions)
        users = self._factors(log.users) if self.by_user else None
        return ByIds(self._factors(log.items), users, self.clip)

    def factor(self, counts: Any, highest: Any, maximum: Maximum = np.maximum) -> Any:
        """The relative exposure for a number of impressions: the share of the highest number.

        >>> Exposure(clip=0.1).factor(np.array([8, 2, 0]), 8)
        array([1.  , 0.25, 0.1 ])
        """
        return power_law(counts / highest, 1, self.clip, maximum)

    def _factors(self, names: Ids) -> tuple[Ids, Floats]:
        distinct, counts = _count(names, "an impression to estimate exposure")
        return distinct, self.factor(counts, counts.max())


@dataclass(frozen=True, slots=True, eq=False)
class ByIds(FittedPropensity):
    """A propensity by item, times one by user where it depends on users too.

    Each is a pair of sorted ids and their values; ids that are not in the log get `unseen`.
    """

    items: tuple[Ids, Floats]
    users: tuple[Ids, Floats] | None
    unseen: float

    def _predict(self, users: Ids, items: Ids) -> Floats:
        by_item = self._look_up("items", items, *self.items)
        if self.users is None:
            return by_item
        return by_item * self._look_up("users", users, *self.users)

    def _look_up(self, side: str, names: Ids, known: Ids, values: Floats) -> Floats:
        rows, is_known = Index(known).find(side, names)
        return np.where(is_known, values[rows], self.unseen)


@dataclass(frozen=True, slots=True, eq=False)
class NaiveBayes:
    """P(observed | positive) = P(positive, observed) / P(positive) (Schnabel et al. 2016).

    P(positive) is the mean of `unbiased`: labels of randomly shown pairs. Without ratings all
    positives get the same propensity, at least `clip`: it corrects the base rate and does not
    change the shape. With the `ratings` of the same pairs there is one propensity per rating value,
    P(rating, observed) / P(rating), which `fitted.of_ratings` returns.

    >>> log = Interactions(users=[1, 2], items=[1, 1], n_users=4, n_items=5, ratings=[4, 5])
    >>> NaiveBayes(unbiased=[1, 0, 0, 0, 0]).fit(log).predict([1], [1])
    array([0.5])
    >>> fitted = NaiveBayes(unbiased=[1, 1, 1, 0, 0], ratings=[4, 4, 5, 1, 2]).fit(log)
    >>> fitted.of_ratings([4, 5])
    array([0.125, 0.25 ])
    """

    unbiased: Numbers
    clip: float = 0.001
    ratings: Numbers | None = None

    def __post_init__(self) -> None:
        real("clip", self.clip, "(0, 1]")
        labels = column("unbiased labels", self.unbiased)
        require_role("label", "unbiased labels", labels)
        if not labels.any():
            raise DataError(
                "unbiased labels", "hold a positive", f"none in {len(labels)}", "Collect more."
            )
        if self.ratings is not None:
            column("ratings", self.ratings, len(labels))

    def fit(self, interactions: Interactions | Frame) -> ByRating:
        """Divide the log's positives per pair by the unbiased positive rate, by rating value."""
        log = as_interactions(interactions)
        pairs = log.n_users * log.n_items
        positive = np.mean(column("unbiased labels", self.unbiased))
        of_positives = float(np.clip(log.labels.sum() / pairs / positive, self.clip, 1))
        if self.ratings is None:
            return ByRating(np.zeros(0), np.zeros(0), of_positives)
        if log.ratings is None:
            raise DataError(
                "interactions",
                "have ratings to compare with the unbiased ones",
                "none",
                "Pass Interactions(..., ratings=...), or no ratings to NaiveBayes.",
            )
        unbiased = column("ratings", self.ratings)
        values = np.unique(unbiased)
        propensity = np.zeros(len(values))
        for place, value in enumerate(values):
            value_and_observed = np.count_nonzero(log.ratings == value) / pairs
            propensity[place] = value_and_observed / np.mean(unbiased == value)
        return ByRating(values, np.clip(propensity, self.clip, 1), of_positives)


@dataclass(frozen=True, slots=True, eq=False)
class ByRating(FittedPropensity):
    """One propensity per rating value; `predict` knows no ratings and gives that of a positive."""

    ratings: Floats
    """Distinct values, sorted; empty if propensities do not depend on the rating."""
    values: Floats
    of_positives: float

    def of_ratings(self, ratings: Numbers) -> Floats:
        """P(observed) of pairs with these ratings; other values, and NaN, are taken as positives.

        A pair that was not rated is no positive, so that its propensity has no effect.
        """
        asked = column("ratings", ratings)
        if not len(self.ratings):
            return np.full(len(asked), self.of_positives)
        places = np.minimum(np.searchsorted(self.ratings, asked), len(self.ratings) - 1)
        return np.where(self.ratings[places] == asked, self.values[places], self.of_positives)

    def _predict(self, users: Ids, items: Ids) -> Floats:
        return np.full(len(users), self.of_positives)


class _Given(FittedPropensity):
    """Nothing is estimated, but it can be used wherever an estimator can."""

    __slots__ = ()

    def fit(self, interactions: Interactions | Frame) -> Self:
        """Return itself; the log is only checked."""
        as_interactions(interactions)
        return self


@dataclass(frozen=True, slots=True, eq=False)
class Known(_Given):
    """P(observed) that was logged or published: one row per user and one column per item.

    Values below `clip` are raised to it, which lowers all probabilities: with true propensities
    down to 0.005, a clip of 0.1 makes a base rate of 16% one of 2%.

    >>> Known([[0.5, 0.25]]).fit(Interactions([0], [0])).predict([0], [1])
    array([0.25])
    """

    matrix: Floats
    clip: float

    def __init__(self, matrix: Numbers, clip: float = 1e-6) -> None:
        array = floats("matrix", matrix)
        if array.ndim != 2:
            rule, found = "have one row per user and one column per item", f"shape {array.shape}"
            raise DataError("matrix", rule, found, "Pass one list of propensities per user.")
        remedy = "Divide counts by exposures first."
        require(is_probability, "matrix", "lie in [0, 1]", array, remedy)
        real("clip", clip, "(0, 1]")
        object.__setattr__(self, "matrix", array)
        object.__setattr__(self, "clip", clip)

    def _predict(self, users: Ids, items: Ids) -> Floats:
        n_users, n_items = self.matrix.shape
        rows = row_numbers("users", users, n_users)
        columns = row_numbers("items", items, n_items)
        return np.maximum(self.matrix[rows, columns], self.clip)


@dataclass(frozen=True, slots=True)
class Uniform(_Given):
    """Every pair is observed with the same probability; with 1, `ips` equals `naive`.

    >>> Uniform(0.5).fit(Interactions([1], [1])).predict([1, 2], [3, 4])
    array([0.5, 0.5])
    """

    value: float = 1.0

    def __post_init__(self) -> None:
        real("value", self.value, "(0, 1]")

    def _predict(self, users: Ids, items: Ids) -> Floats:
        return np.full(len(users), self.value)


@dataclass(frozen=True, slots=True)
class Random(_Given):
    """A random propensity per pair, uniform on (0, 1]: a baseline that estimates should beat.

    Values below `clip` are raised to it. Each comes from a hash of the pair's ids, so that no list
    of all pairs is needed.

    >>> fitted = Random(seed=1).fit(Interactions([1, 2], ["a", "b"]))
    >>> fitted.predict([1, 2, 1], ["a", "a", "a"]).round(2)
    array([0.47, 0.12, 0.47])
    """

    seed: int | np.random.Generator = 0
    clip: float = 0.1
    _salt: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        real("clip", self.clip, "(0, 1]")
        object.__setattr__(self, "_salt", int(seeded(self.seed).integers(2**63)))

    def _predict(self, users: Ids, items: Ids) -> Floats:
        by_user = mix_bits(_numbers(users) + np.uint64(self._salt))
        mixed = mix_bits(by_user ^ _numbers(items))
        # The upper 53 bits, as many as a float has, give a number in (0, 1].
        values = ((mixed >> np.uint64(11)).astype(np.float64) + 1) / 2**53
        return np.maximum(values, self.clip)


def _numbers(names: Ids) -> npt.NDArray[np.uint64]:
    """Integer ids as they are; other ids by the hash of their text."""
    if names.dtype.kind in "iu":
        return names.astype(np.uint64)
    distinct, codes = np.unique(names, return_inverse=True)
    hashes = [zlib.crc32(str(name).encode()) for name in distinct]
    return np.array(hashes, dtype=np.uint64)[codes]


def _count(names: Ids, needed: str) -> tuple[Ids, npt.NDArray[np.intp]]:
    """The distinct ids and the number of each."""
    if not len(names):
        raise DataError("interactions", f"hold {needed}", "none", "Fit on a log that has one.")
    return np.unique(names, return_counts=True)
