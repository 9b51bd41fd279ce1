"""How much labels of one group count: those of one query or user are alike."""

from __future__ import annotations

import numpy as np

from calibrank._internal.logit import expit
from calibrank._internal.validation import Floats, IdsLike, add_up, ids
from calibrank.evidence import Evidence
from calibrank.maps import CalibrationMap

# The correlation of two labels of one group before the labels, and how many groups it counts for.
# Queries of judged pools have 0.1 to 0.3.
PRIOR_CORRELATION = 0.2
PRIOR_GROUPS = 5.0
_SMALLEST_VARIANCE = 1e-6
# Newton steps for the level and slope of the residuals; the problem has two unknowns.
_STEPS = 25


def group_weights(
    fitted: CalibrationMap,
    scores: Floats,
    evidence: Evidence,
    offset: Floats | None,
    groups: IdsLike,
) -> Floats:
    """The weight of each label: m labels with correlation r count as m / (1 + (m - 1) r).

    The correlation is that of the residuals of two labels of one group, after the level and the
    slope of the map were fitted to all labels; with few groups it stays near its prior.
    """
    names, codes = np.unique(ids("groups", groups, len(scores)), return_inverse=True)
    sizes = np.bincount(codes)
    pairs = float((sizes * (sizes - 1)).sum())
    if not pairs:
        return np.ones(len(scores))
    log_odds = fitted.curve.log_odds(scores).clip(-14, 14)
    if offset is not None:
        log_odds = log_odds + offset
    shares = evidence.positive / np.maximum(evidence.total, 1e-300)
    probabilities = _refitted(log_odds, shares)
    variances = np.maximum(probabilities * (1 - probabilities), _SMALLEST_VARIANCE)
    residuals = (shares - probabilities) / np.sqrt(variances)
    sums = add_up(codes, residuals)
    products = float((sums**2).sum() - (residuals**2).sum())
    count = len(names)
    # A level and a slope were fitted to the same labels, which takes two groups' worth from them.
    found = np.clip(products / pairs * count / max(count - 2, 1), 0, 1)
    informative = float((sizes > 1).sum())
    weight = max(informative - 2, 0.0)
    correlation = (weight * found + PRIOR_GROUPS * PRIOR_CORRELATION) / (weight + PRIOR_GROUPS)
    weights: Floats = 1 / (1 + (sizes - 1) * correlation)
    return weights[codes]


def _refitted(log_odds: Floats, shares: Floats) -> Floats:
    """Probabilities after a level and a slope are fitted to the labels, with weak priors."""
    design = np.vstack([np.ones_like(log_odds), log_odds])
    at = np.array([0.0, 1.0])
    precision = np.diag([0.25, 4.0])
    for _ in range(_STEPS):
        p = expit(at @ design)
        gradient = design @ (p - shares) + precision @ (at - [0.0, 1.0])
        hessian = (design * (p * (1 - p))) @ design.T + precision
        step = np.clip(np.linalg.solve(hessian, gradient), -1, 1)
        at = at - step
        if np.abs(step).max() < 1e-9:
            break
    probabilities: Floats = expit(at @ design)
    return probabilities
