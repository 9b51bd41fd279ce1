"""Maps to test with."""

import numpy as np

import calibrank as cr
from calibrank.maps import FitRecord, LogisticMap, PiecewiseMap, StepMap
from calibrank.maps.basis import Basis

RECORD = FitRecord("naive", 4, 2.0, 4.0, exact=True)


def gaussian_map() -> LogisticMap:
    """A quadratic logistic map of 2,000 standard normal scores."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=2_000)
    labels = rng.random(2_000) < 1 / (1 + np.exp(1 - 2 * scores))
    fitted = cr.Gaussian().fit(scores, labels)
    assert isinstance(fitted, LogisticMap)
    return fitted


def logistic_map(basis: Basis, low: float, high: float) -> LogisticMap:
    """A map of any basis, without uncertainty."""
    size = len(basis.parameters)
    coefficients = (0.3, 0.7, 0.2)[: size - 1]
    covariance = ((0.0,) * size,) * size
    return LogisticMap("Sample", basis, low, high, -1.0, coefficients, covariance, RECORD)


def step_map(steps: int) -> StepMap:
    """Random steps between standard normal edges."""
    rng = np.random.default_rng(steps)
    edges = np.sort(rng.normal(size=steps - 1))
    values = np.sort(rng.random(steps))
    effective_rows = (1.0,) * steps
    return StepMap(
        "Isotonic", tuple(edges.tolist()), tuple(values.tolist()), effective_rows, RECORD
    )


def spline_map() -> PiecewiseMap:
    """A piecewise map of 2,000 standard normal scores."""
    rng = np.random.default_rng(1)
    scores = rng.normal(size=2_000)
    labels = rng.random(2_000) < 1 / (1 + np.exp(2 - 2 * np.tanh(scores)))
    fitted = cr.Spline(knots=8).fit(scores, labels)
    assert isinstance(fitted, PiecewiseMap)
    return fitted


def min_max_map() -> cr.CalibrationMap:
    """The identity on [0, 1]."""
    return cr.MinMax().fit([0.0, 1.0], [0, 1])
