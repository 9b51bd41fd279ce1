"""Maps to test with."""

import numpy as np

import calibrank as cr
from calibrank.maps import (
    CalibrationMap,
    Curve,
    FitRecord,
    LevelTerm,
    LogisticCurve,
    PiecewiseCurve,
    PositionTerm,
    SmoothTerm,
    StepCurve,
    Term,
)
from calibrank.maps.basis import Basis

RECORD = FitRecord("naive", 4, 2.0, 4.0, exact=True, method="Sample")


def map_of(curve: Curve, *terms: Term) -> CalibrationMap:
    """A map of any curve and terms."""
    return CalibrationMap(curve, RECORD, terms)


def gaussian_map() -> CalibrationMap:
    """A quadratic logistic map of 2,000 standard normal scores."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=2_000)
    labels = rng.random(2_000) < 1 / (1 + np.exp(1 - 2 * scores))
    fitted = cr.Gaussian().fit(scores, labels)
    assert isinstance(fitted.curve, LogisticCurve)
    return fitted


def logistic_map(basis: Basis, low: float, high: float) -> CalibrationMap:
    """A map of any basis, without uncertainty."""
    size = len(basis.parameters)
    coefficients = (0.3, 0.7, 0.2)[: size - 1]
    covariance = ((0.0,) * size,) * size
    return map_of(LogisticCurve(basis, low, high, -1.0, coefficients, covariance))


def step_map(steps: int) -> CalibrationMap:
    """Random steps between standard normal edges."""
    rng = np.random.default_rng(steps)
    edges = np.sort(rng.normal(size=steps - 1))
    values = np.sort(rng.random(steps))
    effective_rows = (1.0,) * steps
    return map_of(StepCurve(tuple(edges.tolist()), tuple(values.tolist()), effective_rows))


def spline_map() -> CalibrationMap:
    """A piecewise map of 2,000 standard normal scores."""
    rng = np.random.default_rng(1)
    scores = rng.normal(size=2_000)
    labels = rng.random(2_000) < 1 / (1 + np.exp(2 - 2 * np.tanh(scores)))
    fitted = cr.Spline(knots=8).fit(scores, labels)
    assert isinstance(fitted.curve, PiecewiseCurve)
    return fitted


def min_max_map() -> CalibrationMap:
    """The identity on [0, 1]."""
    return cr.MinMax().fit([0.0, 1.0], [0, 1])


def level_term(*columns: str, typical: float = 0.0) -> LevelTerm:
    """Levels of one or two columns, with texts that are hard to write in SQL."""
    keys = [("NL",), ('it\'s \\ a "test"\n',), ("7",), ("NL", "Delft"), ("7", "8")]
    numbers = {
        "intercepts": (0.5, -1.0, 2.0, -0.3, 0.1),
        "slopes": (1.2, 0.7, 1.0, 2.0, 0.5),
        "errors": (0.1, 0.1, 0.1, 0.2, 0.2),
        "rows": (10, 10, 10, 5, 5),
    }
    count = 3 if len(columns) == 1 else 5
    return LevelTerm(
        columns,
        tuple(keys[:count]),
        **{name: values[:count] for name, values in numbers.items()},
        spreads=(1.0, 0.5)[: len(columns)],
        typical=typical,
    )


def smooth_term(column: str = "x") -> SmoothTerm:
    """A function that falls and rises."""
    return SmoothTerm(column, (-1.0, 0.0, 2.0), (0.5, -0.3, 1.0), (0.1, 0.05, 0.2))


def position_term(column: str = "rank", n: int = 5) -> PositionTerm:
    """A curve for the first positions, and a function of the rank."""
    curve = PiecewiseCurve((0.0, 2.0), (-1.0, 0.5), (0.5, 0.1), (0.1, 0.2), (0.0, 0.1))
    by_rank = SmoothTerm(column, (1.0, 3.0, n + 0.5), (0.7, 0.2, -0.3))
    return PositionTerm(column, n, curve, by_rank)
