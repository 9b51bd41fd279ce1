"""A test of calibration: whether labels contradict probabilities more than chance explains.

A score test of `logit P(Y = 1) = logit(p) + sum of coefficient * function(p)` against all
coefficients 0, with the functions 1 (level), the log odds (slope), and two curves over the ranks
of the probabilities. It needs no fit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from calibrank._internal.logit import logit
from calibrank._internal.validation import (
    Floats,
    IdsLike,
    Indices,
    Numbers,
    add_up,
    ids,
    probability_column,
    starts_of,
)
from calibrank.evidence import Evidence, Labels, nonzero_evidence

# Probabilities of 0 and 1 have infinite log odds.
_CLIP = 1e-9

# Directions with less than this share of the largest variance are copies of others, up to rounding.
_RANK_TOLERANCE = 1e-8

# Within-user products are estimated from the residuals and can make a variance too small, even
# negative, by chance. Real dependence within users raises it, so it is kept above half of what
# independent rows would have.
_LEAST_SHARE = 0.5

# For inverse-propensity evidence the variance of independent rows is itself an estimate.
_LEAST_SHARE_ESTIMATED = 1.0

MODEL_KINDS = ("naive", "impressions")
"""Kinds of evidence whose labels can be drawn from the probabilities."""

# With fewer expected positives, or negatives, of equal weight, the statistic is not chi-squared:
# with 5 the test rejects 2.5% to 3.5% at the 1% level. Labels are then drawn this often.
_FEW = 20
_DRAWS = 999


class CalibrationTest(NamedTuple):
    """The statistic is chi-squared with as many degrees of freedom if there is no contradiction.

    With few expected positives (or negatives), the p-value is a share of simulated tables. For
    inverse-propensity evidence the statistic has an F distribution, by the number of positives.
    """

    statistic: float
    degrees_of_freedom: int
    p_value: float


def calibration_test(
    probabilities: Numbers, labels: Labels, *, users: IdsLike | None = None
) -> CalibrationTest:
    """Test whether probabilities are calibrated; small p-values contradict it.

    With `users`, labels of one user may depend on each other; without, rows are independent. Of
    inverse-propensity evidence only the positives tell the propensities: with fewer than 20,
    p-values are hardly ever small.

    >>> probabilities = [0.1] * 50 + [0.6] * 50
    >>> calibration_test(probabilities, [0, 0, 0, 0, 1] * 20).p_value < 1e-6
    True
    >>> round(calibration_test(probabilities, [0] * 45 + [1] * 35 + [0] * 20).p_value, 6)
    1.0
    """
    p = probability_column(probabilities).astype(np.float64)
    evidence = nonzero_evidence(labels, len(p))
    codes = np.arange(len(p))
    if users is not None:
        codes = np.unique(ids("users", users, len(p)), return_inverse=True)[1]
    cells = Cells(np.arange(len(p)), codes, np.ones(len(p)))
    basis = score_functions(p, evidence.total)
    residuals = evidence.positive - evidence.total * p
    scores = cells.scores(basis, residuals)
    if evidence.kind in MODEL_KINDS:
        functions = Functions(basis, row_variances(p, evidence), residuals**2)
        return score_test(scores, functions, Null(p, evidence.total, cells))
    masses = PositiveMasses.of(evidence)
    variances = row_variances(p, evidence, masses.mean_inverse)
    return weighted_score_test(scores, Functions(basis, variances, variances), masses)


def row_variances(probabilities: Floats, evidence: Evidence, mean_inverse: float = 1.0) -> Floats:
    """The variance of each row's residual if its probability is right, by the mean of 1/propensity.

    A label of weight w and propensity q has `w^2 p (1/q - p)`, which is exact also where positives
    are rare. Squared residuals are far too small without a positive.
    """
    return evidence.total**2 * probabilities * (mean_inverse - probabilities)


class PositiveMasses(NamedTuple):
    """Sums over rows that tell about propensities, which evidence does not keep."""

    positive: float
    squares: float
    weighted: float
    """Of positive mass times total mass."""

    @classmethod
    def of(cls, evidence: Evidence) -> PositiveMasses:
        positive = evidence.positive
        return cls(
            float(positive.sum()), float(positive @ positive), float(positive @ evidence.total)
        )

    @property
    def mean_inverse(self) -> float:
        """The mean of 1/propensity over liked pairs: masses w/q add up to w p / q when squared."""
        return max(self.squares / self.weighted, 1.0) if self.weighted > 0 else 1.0

    @property
    def number(self) -> float:
        """How many positives of equal mass vary as much (Kish)."""
        return self.positive**2 / self.squares if self.squares else 0.0


def score_functions(probabilities: Floats, total: Floats) -> Floats:
    """The functions whose correlation with the residuals is functions, rows x functions."""
    information = total * probabilities * (1 - probabilities)
    if not information.any():
        return np.ones((len(probabilities), 1))
    log_odds = logit(np.clip(probabilities, _CLIP, 1 - _CLIP))
    log_odds = log_odds - np.average(log_odds, weights=information)
    scale = np.sqrt(np.average(log_odds**2, weights=information))
    _, groups = np.unique(probabilities, return_inverse=True)
    mass = add_up(groups, information)
    # Ranks weighted by information: most rows of a recommender have tiny probabilities.
    rank = ((np.cumsum(mass) - mass / 2) / mass.sum())[groups]
    return np.column_stack(
        [
            np.ones_like(log_odds),
            log_odds / max(scale, _CLIP),
            # Shifted Legendre polynomials: one and two changes of direction.
            6 * rank**2 - 6 * rank + 1,
            20 * rank**3 - 30 * rank**2 + 12 * rank - 1,
        ]
    )


class Cells(NamedTuple):
    """The rows by probability and cluster: a cell is one row, or all rows of a bin and a user."""

    bin: Indices
    """The row of the basis that belongs to the cell."""
    cluster: Indices
    rows: Floats
    """How many rows the cell has."""

    def scores(self, basis: Floats, residuals: Floats) -> Floats:
        """Sums of residuals times functions, clusters x functions."""
        columns = (basis[self.bin] * residuals[:, None]).T
        return np.column_stack([add_up(self.cluster, column) for column in columns])


class Null(NamedTuple):
    """What is needed to draw labels from the probabilities."""

    probabilities: Floats
    weights: Floats
    """The probability and the weight of a row of each bin."""
    cells: Cells


class Functions(NamedTuple):
    """The functions that are functions, bins x functions, and sums of each bin."""

    basis: Floats
    variances: Floats
    """Sums of `row_variances`."""
    squares: Floats
    """Sums of squared residuals, which products of scores contain; or the variances themselves."""


def score_test(scores: Floats, functions: Functions, null: Null | None = None) -> CalibrationTest:
    """Test sums of residuals times functions: `scores` is an array of clusters x functions."""
    from scipy.special import chdtrc  # noqa: PLC0415  (slow to load)

    whitening = _whitening(functions)
    degrees = whitening.shape[1]
    if degrees == 0:
        return _without_chance(scores)
    statistic = _observed(scores, functions, whitening, _LEAST_SHARE)
    if null is not None and _is_rare(null):
        tail = _simulated_tail(statistic, whitening, functions, null)
    else:
        tail = float(chdtrc(degrees, statistic))
    return CalibrationTest(statistic, degrees, tail)


def weighted_score_test(
    scores: Floats, functions: Functions, masses: PositiveMasses
) -> CalibrationTest:
    """The same for inverse-propensity evidence, whose labels cannot be drawn.

    The variance is estimated from few positives, as that of a mean: Hotelling's F, in the form that
    needs no more positives than functions.
    """
    from scipy.special import fdtrc  # noqa: PLC0415  (slow to load)

    whitening = _whitening(functions)
    degrees = whitening.shape[1]
    if degrees == 0:
        return _without_chance(scores)
    statistic = _observed(scores, functions, whitening, _LEAST_SHARE_ESTIMATED)
    # Without a positive, propensities may be as small as it takes.
    tail = float(fdtrc(degrees, masses.number, statistic / degrees)) if masses.number else 1.0
    return CalibrationTest(statistic, degrees, tail)


def _without_chance(scores: Floats) -> CalibrationTest:
    """Probabilities of 0 and 1 alone leave nothing to chance."""
    return CalibrationTest(0.0, 0, 0.0 if np.any(scores.sum(axis=0) != 0) else 1.0)


def _observed(scores: Floats, functions: Functions, whitening: Floats, least: float) -> float:
    products = scores.T @ scores - (functions.basis.T * functions.squares) @ functions.basis
    return float(_statistics(scores.sum(axis=0)[None], products[None], whitening, least)[0])


def _whitening(functions: Functions) -> Floats:
    """Turn the functions into uncorrelated ones of variance 1, for independent rows."""
    sizes, axes = np.linalg.eigh((functions.basis.T * functions.variances) @ functions.basis)
    kept = sizes > _RANK_TOLERANCE * max(sizes.max(), 0.0)
    return np.asarray(axes[:, kept] / np.sqrt(sizes[kept]))


def _statistics(
    totals: Floats, products: Floats, whitening: Floats, least: float = _LEAST_SHARE
) -> Floats:
    """The squared length of sums, in units of their standard deviations, table by table.

    The products of different rows of a cluster are added to the variance of independent rows.
    """
    dependent = np.eye(whitening.shape[1]) + whitening.T @ products @ whitening
    shares, rotations = np.linalg.eigh(dependent)
    standardized = np.einsum("tij,ti->tj", rotations, totals @ whitening)
    return np.asarray(np.sum(standardized**2 / np.maximum(shares, least), axis=1))


def _is_rare(null: Null) -> bool:
    p = null.probabilities
    rows = add_up(null.cells.bin, null.cells.rows, len(p))
    for rate in (p, 1 - p):
        # As many of equal weights have the same variance (Kish).
        mass, squares = float(rows @ (null.weights * rate)), float(rows @ (null.weights**2 * rate))
        if mass**2 < _FEW * squares:
            return True
    return False


def _simulated_tail(statistic: float, whitening: Floats, functions: Functions, null: Null) -> float:
    """The share of tables with labels drawn from the probabilities that deviate as much."""
    p = null.probabilities
    cells = null.cells
    # The rarer class is drawn, by its few members.
    is_positive = cells.rows @ p[cells.bin] <= cells.rows.sum() / 2
    rate = p if is_positive else 1 - p
    sign = 1.0 if is_positive else -1.0
    without = cells.scores(functions.basis, -sign * (null.weights * rate)[cells.bin] * cells.rows)
    step = sign * null.weights[:, None] * functions.basis
    squares = null.weights**2 * rate**2
    rows = add_up(cells.bin, cells.rows, len(p))
    base_squares = (functions.basis.T * (squares * rows)) @ functions.basis
    base_products = without.T @ without - base_squares
    table, hits = _draw(cells.rows, np.minimum(rate, 1 - _CLIP)[cells.bin])
    added = step[cells.bin[hits]]
    totals = without.sum(axis=0) + _sum_by(table, added)
    pairs, places = np.unique(table * len(without) + cells.cluster[hits], return_inverse=True)
    changes = _sum_by(places, added, len(pairs))
    mixed = without[pairs % len(without), :, None] * changes[:, None]
    squared = changes[:, :, None] * changes[:, None]
    products = _sum_by(pairs // len(without), mixed + mixed.transpose(0, 2, 1) + squared)
    # A drawn label moves a squared residual from w^2 p^2 to w^2 (1 - p)^2.
    basis = functions.basis[cells.bin[hits]]
    moved = (null.weights**2 * (1 - 2 * rate))[cells.bin[hits]]
    products -= _sum_by(table, basis[:, :, None] * (basis * moved[:, None])[:, None])
    drawn = _statistics(totals, base_products + products, whitening)
    exceeding = int(np.count_nonzero(drawn >= statistic * (1 - _RANK_TOLERANCE)))
    return (1 + exceeding) / (1 + _DRAWS)


def _draw(rows: Floats, rate: Floats) -> tuple[Indices, Indices]:
    """Draw the members of a rare class: the table and the cell of each."""
    rng = np.random.default_rng(0)
    # Poisson points of this intensity hit a row at least once with the chance of its label.
    ends = np.cumsum(rows * -np.log1p(-rate))
    points = rng.poisson(_DRAWS * ends[-1])
    table = rng.integers(_DRAWS, size=points)
    cell = np.searchsorted(ends, rng.random(points) * ends[-1])
    row = np.floor(rng.random(points) * rows[cell])
    order = np.lexsort((row, cell, table))
    table, cell, row = table[order], cell[order], row[order]
    is_first = starts_of(table) | starts_of(cell) | starts_of(row)
    return table[is_first], cell[is_first]


def _sum_by(places: Indices, values: Floats, size: int = _DRAWS) -> Floats:
    """Sum values, of any shape per row, over the rows of each place."""
    columns = values.reshape(len(values), -1).T
    sums = np.column_stack([add_up(places, column, size) for column in columns])
    return sums.reshape(size, *values.shape[1:])
