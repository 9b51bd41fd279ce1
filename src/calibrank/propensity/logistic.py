"""Propensities by logistic regression on what is known of users and items."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from calibrank._logit import expit, logit
from calibrank._validation import Floats, Ids, Numbers, floats, require, row_numbers
from calibrank.errors import DataError
from calibrank.propensity.propensity import FittedPropensity, require_probability
from calibrank.tables import Interactions

_LARGEST_GRID = 50_000_000
_CHUNK = 2**16


@dataclass(frozen=True, slots=True, eq=False)
class Logistic:
    """P(observed) from features: row k of `user_features` is user k's, row k of `item_features` item k's.

    Every logged pair is an observation, every other pair of the world a non-observation. `ridge` is the weight of
    the squared penalty; predictions are at least `clip`.

    >>> log = Interactions(users=[0, 1, 1], items=[0, 0, 0], n_users=2, n_items=2)
    >>> fitted = Logistic(user_features=[[0.0], [1.0]], item_features=[[1.0], [0.0]]).fit(log)
    >>> bool(fitted.predict([0], [0])[0] > fitted.predict([0], [1])[0])
    True
    """

    user_features: Numbers
    item_features: Numbers
    ridge: float = 1.0
    clip: float = 0.01

    def __post_init__(self) -> None:
        require_probability("clip", self.clip)
        if not self.ridge > 0:
            raise DataError(f"ridge must be above 0, got {self.ridge}: features may be collinear.")

    def fit(self, interactions: Interactions) -> "FeatureLogit":
        users, items = _features("user", self.user_features), _features("item", self.item_features)
        if len(users) * len(items) > _LARGEST_GRID:
            size = f"{len(users):,} x {len(items):,}"
            raise DataError(
                f"the world must have at most {_LARGEST_GRID:,} pairs, got {size}. Fit on a sample."
            )
        pairs = (
            row_numbers("users", interactions.users, len(users)),
            row_numbers("items", interactions.items, len(items)),
        )
        observed = np.zeros((len(users), len(items)))
        np.add.at(observed, pairs, 1.0)
        weights = _ridge_logit(users, items, np.minimum(observed, 1), self.ridge)
        return FeatureLogit(users, items, weights, self.clip)


@dataclass(frozen=True, slots=True, eq=False)
class FeatureLogit(FittedPropensity):
    """A fitted logistic regression over user and item features."""

    user_features: Floats
    item_features: Floats
    weights: Floats
    clip: float

    def _predict(self, users: Ids, items: Ids) -> Floats:
        by_user = self.user_features @ self.weights[1 : 1 + self.user_features.shape[1]]
        by_item = self.item_features @ self.weights[1 + self.user_features.shape[1] :]
        people = row_numbers("users", users, len(by_user))
        things = row_numbers("items", items, len(by_item))
        return np.maximum(expit(self.weights[0] + by_user[people] + by_item[things]), self.clip)


def _features(what: str, values: Numbers) -> Floats:
    array = floats(f"{what}_features", values).astype(np.float64)
    if array.ndim != 2:
        raise DataError(
            f"{what}_features must have one row a {what}, one column a feature, got shape {array.shape}."
        )
    require(np.isfinite, f"{what}_features", "be finite", array, "Fill in missing features.")
    return array


def _ridge_logit(users: Floats, items: Floats, observed: Floats, ridge: float) -> Floats:
    """Newton's method over the whole grid of pairs, a few users at a time."""
    size = 1 + users.shape[1] + items.shape[1]
    penalty = np.full(size, ridge)
    penalty[0] = 0
    weights = np.zeros(size)
    weights[0] = logit(np.clip(observed.mean(), 1e-9, 1 - 1e-9))
    for _ in range(50):
        gradient, curvature = penalty * weights, np.diag(penalty + 1e-12)
        for design, target in _grid(users, items, observed):
            probabilities = expit(design @ weights)
            gradient += design.T @ (probabilities - target)
            curvature += (design * (probabilities * (1 - probabilities))[:, None]).T @ design
        step = np.linalg.solve(curvature, gradient)
        weights = weights - step
        if np.abs(step).max() < 1e-9:
            return weights
    raise DataError(
        "the propensity regression must converge, and did not. Raise ridge or scale the features."
    )


def _grid(users: Floats, items: Floats, observed: Floats) -> Iterator[tuple[Floats, Floats]]:
    people = max(1, _CHUNK // len(items))
    for start in range(0, len(users), people):
        block = users[start : start + people]
        left = np.repeat(block, len(items), axis=0)
        right = np.tile(items, (len(block), 1))
        yield (
            np.hstack([np.ones((len(left), 1)), left, right]),
            observed[start : start + people].ravel(),
        )
