"""A synthetic world in which the truth is known: who would like what, what was shown, and how a model scored it.

Preferences R are drawn from each pair's probability, exposures O from its propensity (popular items and liked ones
are shown more), and the log holds only Y = O * R. Scores depend on R alone, through two distributions that are known,
so P(R = 1 | score) has a formula. Nothing else in calibrank has this privilege: tests measure against it.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.special import gammaln

from calibrank._logit import expit, logit
from calibrank._validation import Floats, Ids, Numbers, floats
from calibrank.errors import DataError
from calibrank.tables import Interactions


@dataclass(frozen=True, slots=True)
class Scores(ABC):
    """How a model scores disliked and liked pairs."""

    @abstractmethod
    def draw(self, liked: Floats, rng: np.random.Generator) -> Floats:
        """One score a pair."""

    @abstractmethod
    def log_ratio(self, scores: Floats) -> Floats:
        """Log density of liked scores less that of disliked scores."""


@dataclass(frozen=True, slots=True)
class GaussianScores(Scores):
    """Normal scores, each class with its own spread: the world of Gaussian calibration."""

    disliked: tuple[float, float] = (0.0, 1.0)
    liked: tuple[float, float] = (1.5, 0.9)

    def draw(self, liked: Floats, rng: np.random.Generator) -> Floats:
        mean, spread = (
            np.where(liked == 1, one, zero)
            for zero, one in zip(self.disliked, self.liked, strict=True)
        )
        return mean + spread * rng.standard_normal(len(liked))

    def log_ratio(self, scores: Floats) -> Floats:
        def log_density(mean: float, spread: float) -> Floats:
            return -(((scores - mean) / spread) ** 2) / 2 - np.log(spread)

        return log_density(*self.liked) - log_density(*self.disliked)


@dataclass(frozen=True, slots=True)
class GammaScores(Scores):
    """Gamma scores given by (shape, rate): the world of Gamma calibration."""

    disliked: tuple[float, float] = (2.0, 1.0)
    liked: tuple[float, float] = (4.0, 0.9)

    def draw(self, liked: Floats, rng: np.random.Generator) -> Floats:
        shape, rate = (
            np.where(liked == 1, one, zero)
            for zero, one in zip(self.disliked, self.liked, strict=True)
        )
        return rng.standard_gamma(shape) / rate

    def log_ratio(self, scores: Floats) -> Floats:
        def log_density(shape: float, rate: float) -> Floats:
            return (
                (shape - 1) * np.log(scores) - rate * scores + shape * np.log(rate) - gammaln(shape)
            )

        return log_density(*self.liked) - log_density(*self.disliked)


@dataclass(frozen=True, slots=True)
class MixedScores(Scores):
    """Normal disliked scores, and liked ones of two sorts: a world that no family here contains."""

    shifts: ClassVar[tuple[float, float]] = (0.6, 2.6)
    shares: ClassVar[tuple[float, float]] = (0.6, 0.4)

    def draw(self, liked: Floats, rng: np.random.Generator) -> Floats:
        shift = np.where(rng.random(len(liked)) < self.shares[0], *self.shifts)
        return rng.standard_normal(len(liked)) + liked * shift

    def log_ratio(self, scores: Floats) -> Floats:
        sorts = [
            np.log(share) + shift * scores - shift**2 / 2
            for share, shift in zip(self.shares, self.shifts, strict=True)
        ]
        return np.logaddexp(*sorts)


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """Pairs of users and items with everything that is usually hidden.

    `labels` is what a log shows (Y); `preferences` (R), `exposures` (O), `propensity` P(O = 1) and `affinity`
    P(R = 1) are the truth behind it.
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
        """The share of all pairs that are liked, on average."""
        return float(self.affinity.mean())

    def probability(self, scores: Numbers) -> Floats:
        """The true P(R = 1 | score), which a calibrated map should give."""
        return expit(self.score_model.log_ratio(floats("scores", scores)) + logit(self.base_rate))

    def interactions(self) -> Interactions:
        """The log that a recommender would train on: the observed positives."""
        seen = self.labels == 1
        counts = (len(np.unique(ids)) for ids in (self.users, self.items))
        return Interactions(self.users[seen], self.items[seen], None, *counts)

    def redraw(self, seed: int) -> "World":
        """The same users, items and odds, with new preferences, exposures and scores: a fresh test set."""
        rng = np.random.default_rng([seed, 1])
        preferences = _coin(self.affinity, rng)
        exposures = _coin(self.propensity, rng)
        return replace(
            self,
            scores=self.score_model.draw(preferences, rng),
            labels=preferences * exposures,
            preferences=preferences,
            exposures=exposures,
        )


def make_world(pairs: int = 100_000, scores: Scores = GaussianScores(), seed: int = 0) -> World:  # noqa: B008  (frozen)
    """Make a world of that many user-item pairs; the same seed makes the same world.

    >>> world = make_world(pairs=1_000)
    >>> len(world), bool((world.labels <= world.preferences).all())
    (1000, True)
    """
    if pairs < 10:
        raise DataError(f"pairs must be at least 10, got {pairs}.")
    rng = np.random.default_rng([seed, 0])
    n_users = int(np.ceil(np.sqrt(2 * pairs)))
    n_items = -(-pairs // n_users)
    users, items = np.divmod(np.arange(pairs), n_items)
    popularity = _popularity(n_items, rng)
    mood = rng.normal(0, 0.5, n_users)
    quality = rng.normal(0, 0.5, n_items) + 1.5 * (popularity - popularity.mean())
    affinity = expit(-2.4 + mood[users] + quality[items])
    propensity = np.clip(popularity[items] * (0.6 + 2 * affinity), 0.05, 0.95)
    empty = np.zeros(pairs)
    return World(users, items, empty, empty, empty, empty, propensity, affinity, scores).redraw(
        seed
    )


def _popularity(n_items: int, rng: np.random.Generator) -> Floats:
    """A few popular items and a long tail."""
    ranks = rng.permutation(n_items) + 1
    return (ranks / n_items * 20 + 1) ** -0.6


def _coin(probability: Floats, rng: np.random.Generator) -> Floats:
    return (rng.random(len(probability)) < probability).astype(np.float64)
