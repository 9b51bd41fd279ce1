"""What a few labels say of a curve: log odds by score, drawn from around a biased fit, weighed by how they foretell.

A curve is a level, a slope along a leading shape, and bends: what polynomials add that level and slope cannot. How
steep the slope is to start with, how many bends there are and how far they may reach is not set: each on a small grid
is tried, along the biased shape and along a straight line, and every answer counts by how well it foretells the labels
(their marginal likelihood, by Laplace's approximation).

What comes out is the mean *probability* of all these curves at each score, doubt included, not the probability of a
mean curve: with few labels that is the better forecast. Each trial's centre is set so that with no labels at all this
mean has the biased fit's base rate, and nearly its shape.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np

from calibrank._logit import expit, logit
from calibrank._validation import Floats, starts_of
from calibrank.base_rate.shift import root
from calibrank.errors import FitError
from calibrank.maps import LogisticMap
from calibrank.maps.basis import Quadratic

LEVEL = 2.0
"""Prior standard deviation of the level in log odds: a biased fit wrong by a factor of ten is no surprise."""
SLOPES = (2.0, 1.0, 0.5, 0.25)
"""Slopes tried to start from, relative to the biased fit's: logs make scores look more telling than they are."""
SLOPE = 0.3
"""Prior standard deviation of the slope about each of them, relative to the biased fit's."""
BENDS = (0.1, 0.3, 1.0, 3.0)
"""Prior standard deviations tried for the first bend, in log odds over the population; each further one has half."""
TAIL = 0.005
"""Share of the population beyond either end of the range on which curves bend."""

_DEGREES = 4
_FLAT = 0.5  # log odds that spread less than this are no hint that they ought to
_GRID = 200
_MANY, _RUNS = 2048, 1024
_STEPS, _NEAR = 100, 1e-9  # of a prior standard deviation


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """Scores with the mass of all and of liked pairs shown there."""

    scores: Floats
    total: Floats
    liked: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """Mean probabilities over a population's scores, the doubt in their log odds, and what the labels had a say in."""

    scores: Floats
    probabilities: Floats
    covariance: Floats
    intercept: float
    slope: float
    curvature: float


def curve(start: LogisticMap, labels: Labels, population: Floats) -> Curve:
    """The mean of the curves that the labels leave likely; the population's scores come in order."""
    places = (np.arange(_GRID) + 0.5) / _GRID
    grid = np.quantile(population, places)
    if not grid[0] < grid[-1]:
        grid = np.quantile(population[starts_of(population)], places)  # all but a few are the same
    quadratic = isinstance(start.basis, Quadratic)
    degrees = _DEGREES if quadratic else len(start.basis.parameters) - 1
    trials = list(_Family.of(start, labels, grid, straight=False).trials(1, degrees))
    if quadratic:
        trials += _Family.of(start, labels, grid, straight=True).trials(2, degrees)
    return _mean(grid, trials)


@dataclass(frozen=True, slots=True, eq=False)
class _Trial:
    """One prior's answer, and how well it foretold the labels."""

    curves: Floats
    """A row each direction, in units of prior doubt; a column each of the population's scores."""
    solution: Floats
    covariance: Floats
    evidence: float

    @property
    def shares(self) -> Floats:
        """How much of each direction's doubt the labels took away: level, slope, bends."""
        return 1 - np.diag(self.covariance)


@dataclass(frozen=True, slots=True, eq=False)
class _Family:
    """Curves along one leading shape: directions of unit spread that do not overlap over the population."""

    grid: Floats
    """A row each direction, a column each of the population's scores."""
    design: Floats
    """The same for the labels' scores."""
    total: Floats
    liked: Floats
    lead: Floats
    """Log odds of the leading shape over the population; its level and spread are the biased fit's."""
    rate: float
    """The mean probability of the biased fit."""

    @classmethod
    def of(cls, start: LogisticMap, labels: Labels, grid: Floats, *, straight: bool) -> Self:
        shape = _Shape.of(start, grid, straight=straight)
        rows = shape.columns(labels.scores) * labels.total
        total, liked = labels.total, labels.liked
        if len(total) > _MANY:
            order = np.argsort(labels.scores)
            starts = np.linspace(0, len(order), _RUNS, endpoint=False).astype(np.intp)
            rows, total, liked = (
                np.add.reduceat(values[..., order], starts, axis=-1)
                for values in (rows, total, liked)
            )
        own = shape.columns(grid)
        change = _spread_out(own)
        rate = float(expit(start.log_odds(grid)).mean().clip(1e-300, 1 - 1e-15))
        return cls(change @ own, change @ (rows / total), total, liked, own[1], rate)

    def trials(self, least: int, most: int) -> Iterator[_Trial]:
        """Answers with each number of directions beside the level; all numbers count alike before the labels."""
        slope = SLOPE * max(float(self.lead.std()), _FLAT)
        starts = [steep * self.lead for steep in SLOPES]
        starts = [start + self._shift(start, np.ones(len(start))) for start in starts]
        for degree in range(least, min(most, len(self.grid) - 1) + 1):
            bends = np.array(BENDS if degree > 1 else BENDS[:1])[:, None] * 0.5 ** np.arange(
                degree - 1
            )
            widths = np.array([[LEVEL, slope, *reach] for reach in bends])
            priors = [(self._centre(start, width), width) for start in starts for width in widths]
            yield from self._trials(*(np.array(part) for part in zip(*priors, strict=True)))

    def _centre(self, expected: Floats, widths: Floats) -> Floats:
        """Coefficients from which doubt of these widths leads to the expected curve, or near it with its base rate."""
        directions = self.grid[: len(widths)]
        blur = _blur(widths**2 @ directions**2)
        centre: Floats = directions @ (expected * blur) / len(expected)
        centre[0] += self._shift(centre @ directions, blur)
        return centre

    def _shift(self, log_odds: Floats, blur: Floats) -> float:
        """What brings the mean probability of blurred log odds to that of the biased fit."""
        moves = logit(self.rate) * blur - log_odds
        low, high = float(moves.min()) - 1, float(moves.max()) + 1
        return root(
            lambda shift: float(expit((log_odds + shift) / blur).mean()) - self.rate, low, high
        )

    def _trials(self, centres: Floats, widths: Floats) -> Iterator[_Trial]:
        """Answers under priors around these centres, all at once; in units of the priors' doubts."""
        design = self.design[: widths.shape[1]]
        problem = _Priors(design, self.total, self.liked, centres, widths)
        solutions, curvatures = problem.solve()
        evidence = (
            -problem.loss(solutions) - np.linalg.slogdet(curvatures)[1] / 2 - np.log(len(widths))
        )
        for solution, curvature, width, value in zip(
            solutions, curvatures, widths, evidence, strict=True
        ):
            curves = self.grid[: len(width)] * width[:, None]
            yield _Trial(curves, solution / width, np.linalg.inv(curvature), float(value))


@dataclass(frozen=True, slots=True, eq=False)
class _Priors:
    """The labels under several priors of the same directions: a row each."""

    design: Floats
    total: Floats
    liked: Floats
    centres: Floats
    widths: Floats

    def loss(self, solutions: Floats) -> Floats:
        """Each prior's loss: what the labels and the distance from the centre cost, in nats."""
        z = solutions @ self.design
        away = (solutions - self.centres) / self.widths
        softplus = np.maximum(z, 0) + np.log1p(np.exp(-np.abs(z)))
        return softplus @ self.total - z @ self.liked + (away**2).sum(axis=1) / 2

    def solve(self) -> tuple[Floats, Floats]:
        """The most likely solution under each prior, by Newton's steps, and its curvature in units of the doubt."""
        size = len(self.design)
        pairs = (self.design[:, None] * self.design).reshape(size * size, -1)
        scales = self.widths[:, :, None] * self.widths[:, None]
        solutions = self.centres
        for _ in range(_STEPS):
            p = expit(solutions @ self.design)
            gradient = ((self.total * p - self.liked) @ self.design.T) * self.widths
            gradient += (solutions - self.centres) / self.widths
            curvatures = ((self.total * p * (1 - p)) @ pairs.T).reshape(
                -1, size, size
            ) * scales + np.eye(size)
            step = np.linalg.solve(curvatures, gradient[:, :, None])[:, :, 0]
            if np.abs(step).max() < _NEAR:
                return solutions, curvatures
            solutions = self._descend(solutions, step * self.widths)
        raise FitError(
            f"labels must lead to an answer within {_STEPS} steps, got none. Drop outlying scores from them."
        )

    def _descend(self, solutions: Floats, step: Floats) -> Floats:
        """Each step, halved until its loss does not rise."""
        before, share = self.loss(solutions), np.ones((len(step), 1))
        for _ in range(_STEPS):
            following = solutions - share * step
            worse = self.loss(following) > before + 1e-12 * (1 + np.abs(before))
            if not worse.any():
                break
            share[worse] /= 2
        return following


@dataclass(frozen=True, slots=True, eq=False)
class _Shape:
    """Columns of a score: one, the leading shape, and polynomials; all but the first of these stop at the tails."""

    start: LogisticMap
    low: float
    high: float
    line: tuple[float, float] | None

    @classmethod
    def of(cls, start: LogisticMap, grid: Floats, *, straight: bool) -> Self:
        low, high = np.quantile(grid, [TAIL, 1 - TAIL]).tolist()
        if not low < high:
            low, high = grid[[0, -1]].tolist()
        shape = cls(start, low, high, None)
        if not straight:
            return shape
        place = shape.place(grid)
        rise, level = np.polyfit(place, start.log_odds(grid), 1).tolist()
        return cls(start, low, high, (max(rise, 1e-6), level))

    def place(self, scores: Floats) -> Floats:
        return (2 * scores - self.low - self.high) / (self.high - self.low)

    def columns(self, scores: Floats) -> Floats:
        # A label far outside says no more than one at some distance: curves are for the population.
        scores = scores.clip(2 * self.low - self.high, 2 * self.high - self.low)
        place = self.place(scores)
        within = place.clip(-1, 1)
        powers = [within**degree for degree in range(2, _DEGREES + 1)]
        if self.line is None:
            return np.array([np.ones_like(place), self.start.log_odds(scores), place, *powers])
        rise, level = self.line
        return np.array([np.ones_like(place), level + rise * place, *powers])


def _spread_out(columns: Floats) -> Floats:
    """What turns columns into directions: each less what those before it explain, in unit spread; none that is left."""
    size = columns.shape[1]
    directions: list[Floats] = [np.eye(len(columns))[0]]
    for at, column in enumerate(columns[1:], start=1):
        change = np.eye(len(columns))[at]
        for _ in range(2):  # once more, for what rounding left
            known = np.array(directions)
            change = change - (change @ columns) @ (known @ columns).T / size @ known
        spread = float(np.sqrt(np.mean((change @ columns) ** 2)))
        if spread > 1e-6 * max(float(np.std(column)), 1e-300):
            directions.append(change / spread)
    return np.array(directions)


def _mean(grid: Floats, trials: list[_Trial]) -> Curve:
    evidence = np.array([trial.evidence for trial in trials])
    weights = np.exp(evidence - evidence.max())
    weights /= weights.sum()
    log_odds, doubts = (np.empty((len(trials), len(grid))) for _ in range(2))
    covariance = np.zeros((len(grid), len(grid)))
    for at, (trial, weight) in enumerate(zip(trials, weights, strict=True)):
        spread = trial.covariance @ trial.curves
        log_odds[at], doubts[at] = (
            trial.solution @ trial.curves,
            (trial.curves * spread).sum(axis=0),
        )
        covariance += weight * (trial.curves.T @ spread)
    apart = log_odds - weights @ log_odds
    covariance += (apart * weights[:, None]).T @ apart
    probabilities = weights @ expit(log_odds / _blur(doubts))
    level, slope = (float(weights @ [trial.shares[which] for trial in trials]) for which in (0, 1))
    bent = [
        (weight, trial.shares[2:].mean())
        for weight, trial in zip(weights, trials, strict=True)
        if len(trial.shares) > 2
    ]
    bend = float(np.dot(*np.array(bent).T) / sum(weight for weight, _ in bent)) if bent else slope
    level, slope, bend = np.clip([level, slope, bend], 0, 1).tolist()
    return Curve(grid, probabilities, covariance, level, slope, bend)


def _blur(variance: Floats) -> Floats:
    """By what doubt in log odds divides them: the mean probability is nearly that of the quotient (MacKay's)."""
    return np.sqrt(1 + np.pi / 8 * variance)
