"""A test of calibration: whether labels contradict probabilities more than chance explains.

A score test of `logit P(Y = 1) = logit(p) + sum of coefficient * function(p)` against all
coefficients 0, with the functions 1 (level), the log odds (slope), and two curves over the ranks
of the probabilities. It needs no fit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from calibrank._internal.logit import logit
from calibrank._internal.validation import Floats, IdsLike, Numbers, add_up, ids, probability_column
from calibrank.errors import DataError
from calibrank.evidence import Evidence, Labels, naive, nonzero_evidence

# Probabilities of 0 and 1 have infinite log odds.
_CLIP = 1e-9

# Directions with less than this share of the largest variance are copies of others, up to rounding.
_RANK_TOLERANCE = 1e-8

# Within-user products are estimated from the residuals and can make a variance too small, even
# negative, by chance. Real dependence within users raises it, so it is kept above half of what
# independent rows would have.
_LEAST_SHARE = 0.5

_MODEL_KINDS = ("naive", "impressions")


class CalibrationTest(NamedTuple):
    """The statistic is chi-squared with as many degrees of freedom if there is no contradiction."""

    statistic: float
    degrees_of_freedom: int
    p_value: float


def calibration_test(
    probabilities: Numbers,
    labels: Labels,
    *,
    users: IdsLike | None = None,
    weights: Numbers | None = None,
) -> CalibrationTest:
    """Test whether probabilities are calibrated; small p-values contradict it.

    With `users`, labels of one user may depend on each other; without, rows are independent.
    `weights` are importance weights; they go with plain labels, evidence has its own.

    >>> probabilities = [0.1] * 50 + [0.6] * 50
    >>> calibration_test(probabilities, [0, 0, 0, 0, 1] * 20).p_value < 1e-6
    True
    >>> round(calibration_test(probabilities, [0] * 45 + [1] * 35 + [0] * 20).p_value, 6)
    1.0
    """
    p = probability_column(probabilities).astype(np.float64)
    evidence = nonzero_evidence(_weighted(labels, weights), len(p))
    residuals = evidence.positive - evidence.total * p
    basis = score_functions(p, evidence.total)
    scores = basis * residuals[:, None]
    if users is not None:
        codes = np.unique(ids("users", users, len(p)), return_inverse=True)[1]
        scores = np.column_stack([add_up(codes, column) for column in scores.T])
    variance = row_variances(p, evidence)
    return score_test(scores, basis, variance, residuals**2)


def _weighted(labels: Labels, weights: Numbers | None) -> Labels:
    if weights is None:
        return labels
    if isinstance(labels, Evidence):
        raise DataError(
            "weights must go with plain labels, got evidence, which has weights of its own. "
            "Pass the weights to the function that made the evidence."
        )
    return naive(labels, weights=weights)


def row_variances(probabilities: Floats, evidence: Evidence) -> Floats:
    """The variance of each row's residual if its probability is right.

    A label of weight w has `w^2 p (1 - p)`, which is exact also where positives are rare. For
    inverse-propensity evidence it depends on propensities that are not kept, and the squared
    residual stands for it.
    """
    if evidence.kind in _MODEL_KINDS:
        return evidence.total**2 * probabilities * (1 - probabilities)
    return (evidence.positive - evidence.total * probabilities) ** 2


def score_functions(probabilities: Floats, total: Floats) -> Floats:
    """The functions whose correlation with the residuals is tested, rows x functions."""
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


def score_test(
    scores: Floats, basis: Floats, variances: Floats, squares: Floats
) -> CalibrationTest:
    """Test sums of residuals times functions: `scores` is an array of clusters x functions.

    `variances` and `squares` are sums of `row_variances` and of squared residuals, one per row of
    the basis. The products of different rows of a cluster are added to the variance of
    independent rows.
    """
    independent = (basis.T * variances) @ basis
    products = scores.T @ scores - (basis.T * squares) @ basis
    total = scores.sum(axis=0)
    sizes, axes = np.linalg.eigh(independent)
    kept = sizes > _RANK_TOLERANCE * max(sizes.max(), 0.0)
    if not kept.any():
        # Probabilities of 0 and 1 alone leave nothing to chance.
        return CalibrationTest(0.0, 0, 0.0 if np.any(total != 0) else 1.0)
    whitening = axes[:, kept] / np.sqrt(sizes[kept])
    shares, rotation = np.linalg.eigh(np.eye(kept.sum()) + whitening.T @ products @ whitening)
    standardized = rotation.T @ whitening.T @ total
    statistic = float(np.sum(standardized**2 / np.maximum(shares, _LEAST_SHARE)))
    degrees = int(kept.sum())
    return CalibrationTest(statistic, degrees, _chi_squared_tail(statistic, degrees))


def _chi_squared_tail(statistic: float, degrees: int) -> float:
    from scipy.special import chdtrc  # noqa: PLC0415  (slow to load)

    return float(chdtrc(degrees, statistic))
