"""Synthetic *scored pairs* to test calibrators on: the true probability of every score is known.

A preference R is drawn for each pair, an exposure O from its propensity (popular and liked items
are shown more often), and the log shows only Y = O * R. Scores depend on R alone, through two
known distributions, so P(R = 1 | score) has a closed form that tests compare fits with.

It is no dataset to train models on. For that see `simulate`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from math import lgamma
from typing import ClassVar

import numpy as np

from calibrank._internal.arguments import instance, real, seeded, shown, whole
from calibrank._internal.logit import expit, logit
from calibrank._internal.validation import Floats, Ids, Numbers, floats
from calibrank.errors import DataError
from calibrank.tables import Interactions

# About 10 GB of columns.
_MOST_PAIRS = 10**8

# Streams of one seed: what stays fixed when a world is redrawn, and what is drawn again.
_WORLD_STREAM = 0
_DRAW_STREAM = 1


@dataclass(frozen=True, slots=True)
class Scores(ABC):
    """How a model scores liked and disliked pairs."""

    @abstractmethod
    def draw(self, liked: Floats, seed: int | np.random.Generator) -> Floats:
        """One score per pair; `liked` is 1 or 0."""

    @abstractmethod
    def log_ratio(self, scores: Floats) -> Floats:
        """Log density of liked scores minus log density of disliked scores."""


@dataclass(frozen=True, slots=True)
class _TwoClasses(Scores):
    """Scores of one family of distributions, with two parameters for each class."""

    disliked: tuple[float, float]
    liked: tuple[float, float]

    _parameters: ClassVar[dict[str, str]]
    """Where each parameter must lie, by its name."""

    def __post_init__(self) -> None:
        for name in ("disliked", "liked"):
            given = getattr(self, name)
            if not isinstance(given, tuple | list) or len(given) != 2:
                rule = f"be ({', '.join(self._parameters)})"
                raise DataError(name, rule, shown(given), "Use e.g. (1.5, 0.9).")
            for (parameter, allowed), value in zip(self._parameters.items(), given, strict=True):
                real(f"{name}, {parameter}", value, allowed)

    def draw(self, liked: Floats, seed: int | np.random.Generator) -> Floats:
        parameters = np.where(liked[:, None] == 1, self.liked, self.disliked)
        return self._draw(seeded(seed), parameters[:, 0], parameters[:, 1])

    def log_ratio(self, scores: Floats) -> Floats:
        return self._log_density(scores, *self.liked) - self._log_density(scores, *self.disliked)

    @abstractmethod
    def _draw(self, rng: np.random.Generator, first: Floats, second: Floats, /) -> Floats: ...

    @abstractmethod
    def _log_density(self, scores: Floats, first: float, second: float, /) -> Floats: ...


@dataclass(frozen=True, slots=True)
class GaussianScores(_TwoClasses):
    """Normal scores given by (mean, standard deviation): Gaussian calibration is correct here."""

    disliked: tuple[float, float] = (0.0, 1.0)
    liked: tuple[float, float] = (1.5, 0.9)

    _parameters = {"mean": "(-inf, inf)", "standard deviation": "(0, 1e100]"}  # noqa: RUF012  (never changed)

    def _draw(self, rng: np.random.Generator, mean: Floats, deviation: Floats) -> Floats:
        return mean + deviation * rng.standard_normal(len(mean))

    def _log_density(self, scores: Floats, mean: float, deviation: float) -> Floats:
        return -(((scores - mean) / deviation) ** 2) / 2 - np.log(deviation)


@dataclass(frozen=True, slots=True)
class GammaScores(_TwoClasses):
    """Gamma scores given by (shape, rate): Gamma calibration is correct here."""

    disliked: tuple[float, float] = (2.0, 1.0)
    liked: tuple[float, float] = (4.0, 0.9)

    _parameters = {"shape": "(0, 1e100]", "rate": "(0, 1e100]"}  # noqa: RUF012  (never changed)

    def _draw(self, rng: np.random.Generator, shape: Floats, rate: Floats) -> Floats:
        return rng.standard_gamma(shape) / rate

    def _log_density(self, scores: Floats, shape: float, rate: float) -> Floats:
        kernel = (shape - 1) * np.log(scores) - rate * scores
        return kernel + shape * np.log(rate) - lgamma(shape)


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """Scored pairs of users and items, with the quantities that are usually unobserved.

    `labels` is what a log shows (Y). The truth behind it is `preferences` (R), `exposures` (O),
    `propensity` P(O = 1) and `affinity` P(R = 1).
    """

    users: Ids
    items: Ids
    scores: Floats
    labels: Floats
    preferences: Floats
    exposures: Floats
    propensity: Floats
    affinity: Floats
    score_model: Scores

    def __len__(self) -> int:
        return len(self.users)

    @property
    def base_rate(self) -> float:
        """The expected fraction of pairs that are liked."""
        return float(self.affinity.mean())

    def probability(self, scores: Numbers) -> Floats:
        """The true P(R = 1 | score), which a calibrated map should return."""
        log_ratio = self.score_model.log_ratio(floats("scores", scores))
        # Bayes' rule on the logit scale.
        return expit(log_ratio + logit(self.base_rate))

    def interactions(self) -> Interactions:
        """The observed positives: the log that a recommender would be trained on."""
        observed = self.labels == 1
        n_users = len(np.unique(self.users))
        n_items = len(np.unique(self.items))
        return Interactions(self.users[observed], self.items[observed], None, n_users, n_items)

    def redraw(self, seed: int | np.random.Generator) -> World:
        """New preferences, exposures and scores with the same probabilities: a fresh test set."""
        rng = seeded(seed, _DRAW_STREAM)
        preferences = _bernoulli(self.affinity, rng)
        exposures = _bernoulli(self.propensity, rng)
        return replace(
            self,
            scores=self.score_model.draw(preferences, rng),
            labels=preferences * exposures,
            preferences=preferences,
            exposures=exposures,
        )


def make_world(
    pairs: int = 100_000,
    scores: Scores = GaussianScores(),  # noqa: B008  (frozen)
    seed: int | np.random.Generator = 0,
) -> World:
    """Make a synthetic world of `pairs` user-item pairs with known truth.

    >>> world = make_world(pairs=1_000)
    >>> len(world), bool((world.labels <= world.preferences).all())
    (1000, True)
    """
    pairs = whole("pairs", pairs, 10, _MOST_PAIRS)
    instance("scores", scores, Scores, "Use e.g. GaussianScores().")
    rng = seeded(seed, _WORLD_STREAM)
    # Twice as many users as items, and just enough of both for the pairs.
    n_users = int(np.ceil(np.sqrt(2 * pairs)))
    n_items = -(-pairs // n_users)
    users, items = np.divmod(np.arange(pairs), n_items)
    # A power law in a random order: few popular items, many unpopular ones.
    popularity = ((rng.permutation(n_items) + 1) / n_items * 20 + 1) ** -0.6
    user_effect = rng.normal(0, 0.5, n_users)
    item_effect = rng.normal(0, 0.5, n_items) + 1.5 * (popularity - popularity.mean())
    # The intercept puts the base rate near 10%.
    affinity = expit(-2.4 + user_effect[users] + item_effect[items])
    # Exposure depends on popularity and on affinity: labels are missing not at random.
    propensity = np.clip(popularity[items] * (0.6 + 2 * affinity), 0.05, 0.95)
    empty = np.zeros(pairs)
    world = World(users, items, empty, empty, empty, empty, propensity, affinity, scores)
    return world.redraw(seed)


def _bernoulli(probability: Floats, rng: np.random.Generator) -> Floats:
    return (rng.random(len(probability)) < probability).astype(np.float64)
