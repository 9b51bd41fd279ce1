"""What the position in a list says at its top, from labels at all positions.

Of 1,000 uniformly random labels, about seven are among the first five of lists of 700. Labels at
all other positions say how the odds fall along the list, and they fall close to a power of the
rank: log odds = a - c * log(rank - 1/2). Where lists are long and positives rare, such a list has
an AUC of 1 / (2 - c), which is how the prior of c is known. Within a position, log odds follow
those of the map of all pairs, as a deviation from their mean at the position.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from calibrank._internal.isotonic import isotonic_values
from calibrank._internal.logit import expit, softplus
from calibrank._internal.validation import Floats
from calibrank.anchoring._laplace import LogisticPosteriors
from calibrank.maps import PiecewiseCurve, SmoothTerm
from calibrank.maps.targets.numpy import NumpyTarget

EXPONENTS = ((0.6, 0.2), (0.0, 0.1))
"""Prior mean and standard deviation of c. The first is an AUC of 0.63 to 0.83 on random pairs, as
rankers have; the second is a ranker that tells nothing."""
EXPONENT_PROBABILITIES = (0.97, 0.03)
"""Prior probabilities of the two."""
DEVIATION_SD = 0.3
"""Prior standard deviation of the slope of deviations from the mean at a position, around 1."""
TOP_SD = 0.3
"""Prior standard deviation of the first n positions' own change of the intercept."""
POSITION_LOG_ODDS = 3.0
"""Prior log odds that this model predicts the top better than the map of all pairs does."""

_INTERCEPT_SD = 5.0
_SMALLEST_SLOPE = 0.01
# Quantiles of positions between which the mean log odds are linear; the last only with many rows.
_MEAN_LEVELS = (0.0, 0.3, 0.6, 0.8, 0.95)
_TOP_LEVEL = 0.99
_TOP_LEVEL_FROM = 2_000
# Positions up to here have a knot each, and one halfway to the next for ties.
_SINGLE_KNOTS = 10
_MOST_KNOTS = 40
_LARGEST_LEVERAGE = 0.9


class Pairs(NamedTuple):
    """Scores and ranks of pairs, with the weight of each."""

    scores: Floats
    ranks: Floats
    weights: Floats

    def first(self, n: int) -> Floats | None:
        """The scores of ranks 1 to n, if there are any."""
        scores: Floats = self.scores[self.ranks < n + 0.5]
        return scores if len(scores) else None


@dataclass(frozen=True, slots=True, eq=False)
class TopCurve:
    """Log odds at the first positions: a curve of the score plus a function of the rank."""

    curve: PiecewiseCurve
    by_rank: SmoothTerm

    def predict(self, scores: Floats, ranks: Floats) -> Floats:
        """Probabilities of pairs at the first positions."""
        return expit(self.curve.log_odds(scores) + self.by_rank.of_number(NumpyTarget(), ranks))


def fit_positions(
    fitted: PiecewiseCurve,
    shown: Pairs,
    labels: Floats,
    top_weights: Floats,
    n: int,
    column: str,
    population: Pairs | None = None,
) -> TopCurve:
    """The log odds of the first n positions, from labels at all positions.

    `top_weights` are the weights of the labels at the top, among each other. `population` has more
    pairs than the labels', for the mean log odds at each position.
    """
    means = _MeanByPosition.of(fitted, population or shown)
    model = _Model.of(fitted, shown, n, means)
    posteriors = model.posteriors(labels)
    inside = shown.ranks < n + 0.5
    own = fitted.log_odds(shown.scores[inside])
    gain = posteriors.held_out(inside, labels, top_weights)
    gain -= _log_likelihood(own, labels[inside], top_weights)
    weight = float(expit(gain + POSITION_LOG_ODDS))
    knots = _rank_knots(n)
    curve = posteriors.average(model.top_rows(knots))
    slope = max(weight * curve.slope + 1 - weight, _SMALLEST_SLOPE)
    values = weight * (curve.levels - curve.slope * means(knots))
    by_rank = SmoothTerm(column, tuple(knots.tolist()), tuple(_falling(values).tolist()))
    return TopCurve(_scaled(fitted, slope, weight, curve.error), by_rank)


@dataclass(frozen=True, slots=True, eq=False)
class _MeanByPosition:
    """The mean log odds at each position, linear in its logarithm between a few quantiles."""

    knots: Floats
    values: Floats

    @classmethod
    def of(cls, fitted: PiecewiseCurve, pairs: Pairs) -> _MeanByPosition:
        positions = _log_positions(pairs.ranks)
        levels = [*_MEAN_LEVELS, 1.0]
        if len(positions) >= _TOP_LEVEL_FROM:
            levels.insert(-1, _TOP_LEVEL)
        knots = np.unique(np.quantile(positions, levels))
        hats = np.array([np.interp(positions, knots, unit) for unit in np.eye(len(knots))])
        root = np.sqrt(pairs.weights)
        log_odds = fitted.log_odds(pairs.scores)
        values = np.linalg.lstsq((hats * root).T, log_odds * root, rcond=None)[0]
        return cls(knots, values)

    def __call__(self, ranks: Floats) -> Floats:
        return np.interp(_log_positions(ranks), self.knots, self.values)


@dataclass(frozen=True, slots=True, eq=False)
class _Model:
    """Intercept, logarithm of the position, deviation from its mean, and the top's own change."""

    design: Floats
    """One row per coefficient, one column per label."""
    weights: Floats
    center: float
    level: float

    @classmethod
    def of(cls, fitted: PiecewiseCurve, shown: Pairs, n: int, means: _MeanByPosition) -> _Model:
        positions = _log_positions(shown.ranks)
        log_odds = fitted.log_odds(shown.scores)
        center = float(np.average(positions, weights=shown.weights))
        level = float(np.average(log_odds, weights=shown.weights))
        inside = (shown.ranks < n + 0.5).astype(np.float64)
        deviations = log_odds - means(shown.ranks)
        design = np.array([np.ones_like(positions), positions - center, deviations, inside])
        return cls(design, shown.weights, center, level)

    def top_rows(self, ranks: Floats) -> Floats:
        """The design at ranks of the top, where log odds are at their mean."""
        ones = np.ones_like(ranks)
        return np.array([ones, _log_positions(ranks) - self.center, np.zeros_like(ranks), ones])

    def posteriors(self, labels: Floats) -> _Posteriors:
        means = []
        sds = []
        for exponent, sd in EXPONENTS:
            means.append([self.level, exponent, 1.0, 0.0])
            sds.append([_INTERCEPT_SD, sd, DEVIATION_SD, TOP_SD])
        prior_sds = np.array(sds)
        problem = LogisticPosteriors(
            self.design, self.weights, self.weights * labels, np.array(means), prior_sds
        )
        modes, hessians = problem.solve()
        evidence = -problem.loss(modes) - np.linalg.slogdet(hessians)[1] / 2
        evidence += np.log(EXPONENT_PROBABILITIES)
        weights = np.exp(evidence - evidence.max())
        scales = prior_sds[:, :, None] * prior_sds[:, None]
        covariances = np.linalg.inv(hessians) * scales
        return _Posteriors(modes, covariances, weights / weights.sum(), self)


class _Average(NamedTuple):
    """Levels at some ranks, the slope of deviations, and the standard error of the levels."""

    levels: Floats
    slope: float
    error: float


@dataclass(frozen=True, slots=True, eq=False)
class _Posteriors:
    """The posterior under each prior of the exponent, and the weight of each."""

    modes: Floats
    covariances: Floats
    weights: Floats
    model: _Model

    def average(self, rows: Floats) -> _Average:
        """The moderated mean over the posteriors, at rows of the design."""
        levels = self.modes @ rows
        variances = np.einsum("kr,pkl,lr->pr", rows, self.covariances, rows).mean(axis=1)
        # MacKay: E[expit(z)] is about expit(mean / sqrt(1 + pi / 8 * variance)).
        factors = self.weights / np.sqrt(1 + np.pi / 8 * variances)
        mean = levels.mean(axis=1)
        spread = float(self.weights @ (mean - self.weights @ mean) ** 2)
        error = float(np.sqrt(self.weights @ variances + spread))
        return _Average(factors @ levels, float(factors @ np.maximum(self.modes[:, 2], 0)), error)

    def held_out(self, rows: np.ndarray, labels: Floats, top_weights: Floats) -> float:
        """The mean log likelihood of labels, each approximately without itself in the fit."""
        design = self.model.design[:, rows]
        chosen = labels[rows]
        found = 0.0
        for mode, covariance, weight in zip(
            self.modes, self.covariances, self.weights.tolist(), strict=True
        ):
            log_odds = mode @ design
            p = expit(log_odds)
            variances = (design * (covariance @ design)).sum(axis=0) * self.model.weights[rows]
            # One Newton step from the mode without the label.
            leverage = np.minimum(variances * p * (1 - p), _LARGEST_LEVERAGE)
            without = log_odds - variances * (chosen - p) / (1 - leverage)
            found += weight * _log_likelihood(without, chosen, top_weights)
        return found


def _log_positions(ranks: Floats) -> Floats:
    """Minus the logarithm of the position, where position k of a list covers k - 1 to k."""
    return -np.log(ranks - 0.5)


def _log_likelihood(log_odds: Floats, labels: Floats, weights: Floats) -> float:
    return float(weights @ (labels * log_odds - softplus(log_odds)))


def _falling(values: Floats) -> Floats:
    """The nearest values that do not rise with the rank, which keeps the order of each list."""
    highest = float(values.max())
    span = max(highest - float(values.min()), 1e-12)
    rising = isotonic_values((highest - values) / span, np.ones(len(values)))
    falling: Floats = highest - span * rising
    return falling


def _rank_knots(n: int) -> Floats:
    """Ranks 1 to n and a half, on which the function of the rank is given."""
    single = np.arange(1.0, min(n, _SINGLE_KNOTS) + 0.75, 0.5)
    further = np.geomspace(single[-1], n + 0.5, _MOST_KNOTS)
    return np.union1d(single, further) if n > _SINGLE_KNOTS else single


def _scaled(fitted: PiecewiseCurve, slope: float, weight: float, error: float) -> PiecewiseCurve:
    """The map with its log odds times a slope, and standard errors of the mixture."""
    errors = weight * error + (1 - weight) * np.array(fitted.value_errors)
    low, high = fitted.end_slopes
    return replace(
        fitted,
        values=tuple((slope * np.array(fitted.values)).tolist()),
        end_slopes=(slope * low, slope * high),
        value_errors=tuple(errors.tolist()),
    )
