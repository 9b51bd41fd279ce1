"""Propensities by logistic regression on features of users and items."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from calibrank._internal.arguments import real
from calibrank._internal.logit import expit, logit
from calibrank._internal.validation import Floats, Ids, Numbers, floats, require, row_numbers
from calibrank.errors import DataError
from calibrank.propensity.estimators import FittedPropensity
from calibrank.tables import Frame, Interactions, as_interactions

# Every pair is a row of the regression.
_MAX_PAIRS = 50_000_000
# Rows of the design matrix in memory at a time.
_CHUNK_ROWS = 2**16
_MAX_STEPS = 50
# Of a Newton step.
_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Logistic:
    """P(observed) by ridge logistic regression on user and item features.

    Row k of `user_features` belongs to user k, row k of `item_features` to item k. Every logged
    pair counts as observed and every other pair as unobserved. `ridge` is the weight of the squared
    penalty; predictions are at least `clip`.

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
        real("clip", self.clip, "(0, 1]")
        ridge = real("ridge", self.ridge, "(0, 1e100]", "Features may be collinear.")
        object.__setattr__(self, "ridge", ridge)

    def fit(self, interactions: Interactions | Frame) -> FeatureLogit:
        """Regress whether a pair is in the log on its features, over all pairs."""
        users = _features("user", self.user_features)
        items = _features("item", self.item_features)
        if len(users) * len(items) > _MAX_PAIRS:
            rule, found = f"span at most {_MAX_PAIRS:,} pairs", f"{len(users):,} x {len(items):,}"
            raise DataError("user and item features", rule, found, "Fit on a sample.")
        log = as_interactions(interactions)
        rows = row_numbers("users", log.users, len(users))
        columns = row_numbers("items", log.items, len(items))
        observed = np.zeros((len(users), len(items)))
        observed[rows, columns] = 1.0
        weights = _ridge_logit(users, items, observed, self.ridge)
        return FeatureLogit(users, items, weights, self.clip)


@dataclass(frozen=True, slots=True, eq=False)
class FeatureLogit(FittedPropensity):
    """A fitted logistic regression on user and item features."""

    user_features: Floats
    item_features: Floats
    weights: Floats
    """Intercept, weights of the user features, weights of the item features."""
    clip: float

    def _predict(self, users: Ids, items: Ids) -> Floats:
        item_start = 1 + self.user_features.shape[1]
        by_user = self.user_features @ self.weights[1:item_start]
        by_item = self.item_features @ self.weights[item_start:]
        user_rows = row_numbers("users", users, len(by_user))
        item_rows = row_numbers("items", items, len(by_item))
        log_odds = self.weights[0] + by_user[user_rows] + by_item[item_rows]
        return np.maximum(expit(log_odds), self.clip)


def _features(side: str, values: Numbers) -> Floats:
    name = f"{side}_features"
    array = floats(name, values).astype(np.float64)
    if array.ndim != 2:
        raise DataError(
            name, f"have one row per {side} and one column per feature", f"shape {array.shape}"
        )
    require(np.isfinite, name, "be finite", array, "Fill in missing features.")
    return array


def _ridge_logit(users: Floats, items: Floats, observed: Floats, ridge: float) -> Floats:
    """Newton's method over all pairs, a few users at a time; the intercept is not penalized."""
    size = 1 + users.shape[1] + items.shape[1]
    penalty = np.full(size, ridge)
    penalty[0] = 0
    weights = np.zeros(size)
    weights[0] = logit(np.clip(observed.mean(), 1e-9, 1 - 1e-9))
    for _ in range(_MAX_STEPS):
        gradient = penalty * weights
        hessian = np.diag(penalty + 1e-12)
        for design, target in _chunks(users, items, observed):
            probabilities = expit(design @ weights)
            variances = probabilities * (1 - probabilities)
            gradient += design.T @ (probabilities - target)
            hessian += (design * variances[:, None]).T @ design
        step = np.linalg.solve(hessian, gradient)
        weights = weights - step
        if np.abs(step).max() < _TOLERANCE:
            return weights
    raise DataError(
        "the propensity regression",
        f"converge within {_MAX_STEPS} steps, and did not",
        remedy="Raise ridge or scale the features.",
    )


def _chunks(users: Floats, items: Floats, observed: Floats) -> Iterator[tuple[Floats, Floats]]:
    """The design matrix and the target of all pairs, for a few users at a time."""
    chunk_users = max(1, _CHUNK_ROWS // len(items))
    for start in range(0, len(users), chunk_users):
        rows = slice(start, start + chunk_users)
        user_columns = np.repeat(users[rows], len(items), axis=0)
        item_columns = np.tile(items, (len(users[rows]), 1))
        intercept = np.ones((len(user_columns), 1))
        design = np.hstack([intercept, user_columns, item_columns])
        yield design, observed[rows].ravel()
