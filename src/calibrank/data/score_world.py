"""Synthetic *scored pairs* to test calibrators on: the true probability of every score is known.

A preference R is drawn for each pair, an exposure O from its propensity (popular and liked items
are shown more often), and the log shows only Y = O * R. Scores depend on R alone, through two
known distributions, so P(R = 1 | score) has a closed form that tests compare fits with.

It is no dataset to train models on. For that see `toy_dataset.simulate`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
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


def _pair(name: str, value: object, described: str) -> tuple[object, object]:
    if isinstance(value, str) or not isinstance(value, Sequence) or len(value) != 2:
        raise DataError(name, f"be {described}", shown(value), "Use e.g. (1.5, 0.9).")
    return value[0], value[1]


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
class GaussianScores(Scores):
    """Normal scores given by (mean, standard deviation): Gaussian calibration is correct here."""

    disliked: tuple[float, float] = (0.0, 1.0)
    liked: tuple[float, float] = (1.5, 0.9)

    def __post_init__(self) -> None:
        for name in ("disliked", "liked"):
            mean, deviation = _pair(name, getattr(self, name), "(mean, standard deviation)")
            real(f"{name}, mean", mean)
            real(f"{name}, standard deviation", deviation, "(0, 1e100]")

    def draw(self, liked: Floats, seed: int | np.random.Generator) -> Floats:
        rng = seeded(seed)
        mean = np.where(liked == 1, self.liked[0], self.disliked[0])
        deviation = np.where(liked == 1, self.liked[1], self.disliked[1])
        return mean + deviation * rng.standard_normal(len(liked))

    def log_ratio(self, scores: Floats) -> Floats:
        def log_density(mean: float, deviation: float) -> Floats:
            return -(((scores - mean) / deviation) ** 2) / 2 - np.log(deviation)

        return log_density(*self.liked) - log_density(*self.disliked)


@dataclass(frozen=True, slots=True)
class GammaScores(Scores):
    """Gamma scores given by (shape, rate): Gamma calibration is correct here."""

    disliked: tuple[float, float] = (2.0, 1.0)
    liked: tuple[float, float] = (4.0, 0.9)

    def __post_init__(self) -> None:
        for name in ("disliked", "liked"):
            shape, rate = _pair(name, getattr(self, name), "(shape, rate)")
            real(f"{name}, shape", shape, "(0, 1e100]")
            real(f"{name}, rate", rate, "(0, 1e100]")

    def draw(self, liked: Floats, seed: int | np.random.Generator) -> Floats:
        rng = seeded(seed)
        shape = np.where(liked == 1, self.liked[0], self.disliked[0])
        rate = np.where(liked == 1, self.liked[1], self.disliked[1])
        return rng.standard_gamma(shape) / rate

    def log_ratio(self, scores: Floats) -> Floats:
        from scipy.special import gammaln  # noqa: PLC0415  (slow to load)

        def log_density(shape: float, rate: float) -> Floats:
            kernel = (shape - 1) * np.log(scores) - rate * scores
            return kernel + shape * np.log(rate) - gammaln(shape)

        return log_density(*self.liked) - log_density(*self.disliked)


@dataclass(frozen=True, slots=True)
class MixedScores(Scores):
    """Normal scores for disliked pairs, a mixture of two normals for liked ones.

    No parametric calibrator contains this shape.
    """

    means: ClassVar[tuple[float, float]] = (0.6, 2.6)
    """The means of the two components; every standard deviation is 1."""
    mixture_weights: ClassVar[tuple[float, float]] = (0.6, 0.4)
    """The mixture weights."""

    def draw(self, liked: Floats, seed: int | np.random.Generator) -> Floats:
        rng = seeded(seed)
        in_first = rng.random(len(liked)) < self.mixture_weights[0]
        means = np.where(in_first, *self.means)
        return rng.standard_normal(len(liked)) + liked * means

    def log_ratio(self, scores: Floats) -> Floats:
        # log N(s; m, 1) - log N(s; 0, 1) = m s - m^2 / 2, for each component of the mixture.
        components = [
            np.log(weight) + mean * scores - mean**2 / 2
            for weight, mean in zip(self.mixture_weights, self.means, strict=True)
        ]
        return np.logaddexp(*components)


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
    popularity = _popularity(n_items, rng)
    user_effect = rng.normal(0, 0.5, n_users)
    item_effect = rng.normal(0, 0.5, n_items) + 1.5 * (popularity - popularity.mean())
    # The intercept puts the base rate near 10%.
    affinity = expit(-2.4 + user_effect[users] + item_effect[items])
    # Exposure depends on popularity and on affinity: labels are missing not at random.
    propensity = np.clip(popularity[items] * (0.6 + 2 * affinity), 0.05, 0.95)
    empty = np.zeros(pairs)
    world = World(users, items, empty, empty, empty, empty, propensity, affinity, scores)
    return world.redraw(seed)


def _popularity(n_items: int, rng: np.random.Generator) -> Floats:
    """Popularity by a power law in a random order: few popular items, many unpopular ones."""
    ranks = rng.permutation(n_items) + 1
    return (ranks / n_items * 20 + 1) ** -0.6


def _bernoulli(probability: Floats, rng: np.random.Generator) -> Floats:
    return (rng.random(len(probability)) < probability).astype(np.float64)
