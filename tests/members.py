"""The members that every law is checked for, and random tables to check them on."""

import warnings

import numpy as np
from hypothesis import reject
from hypothesis import strategies as st

import calibrank as cr
from calibrank.calibrators import Calibrator, Parametric
from calibrank.metrics import Metric
from calibrank.propensity import (
    Known,
    Logistic,
    NaiveBayes,
    Popularity,
    Propensity,
    Random,
    Uniform,
)
from calibrank.testing import Example as Table
from calibrank.testing.examples import probe_between

CALIBRATORS: tuple[Calibrator, ...] = (
    cr.MinMax(),
    cr.Sigmoid(),
    cr.Histogram(bins=7),
    cr.Isotonic(),
    cr.BBQ(bins=(3, 8)),
    cr.Platt(),
    cr.Temperature(),
    cr.Beta(),
    cr.Gaussian(),
    cr.Gamma(),
    cr.Gamma(margin=0.5),
    cr.GammaGaussian(),
)
PARAMETRIC = tuple(member for member in CALIBRATORS if isinstance(member, Parametric))
METRICS: tuple[Metric, ...] = (
    cr.ECE(),
    cr.EqualMassECE(bins=5),
    cr.MCE(),
    cr.ReleasedECE(),
    cr.ReleasedMCE(),
    cr.LogLoss(),
    cr.Brier(),
    cr.CalibrationInTheLarge(),
    cr.Miscalibration(),
    cr.Discrimination(score=cr.LogLoss()),
    cr.NDCG(3),
    cr.Recall(2),
    cr.TopN(cr.ECE(), 2),
)

PROPENSITY_SIZE = 9
"""Users and items of the logs that propensities are checked on."""
_FEATURES = np.random.default_rng(0).normal(size=(PROPENSITY_SIZE, 2))
PROPENSITIES: tuple[Propensity, ...] = (
    Popularity(),
    Popularity(power=1.0, clip=0.5),
    Uniform(0.3),
    Random(seed=4),
    NaiveBayes([0, 1, 0, 1]),
    Logistic(_FEATURES, _FEATURES),
    Known(np.full((PROPENSITY_SIZE, PROPENSITY_SIZE), 0.2)),
)


def name(member: object) -> str:
    """A readable test id."""
    return repr(member)


@st.composite
def tables(draw: st.DrawFn, least: int = 12, most: int = 60, spread: float = 5.0) -> Table:
    """Rows of both classes with some ties, and scores of any scale and offset."""
    rows = draw(st.integers(least, most))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scores = rng.normal(0, 1, rows)
    if draw(st.booleans()):
        scores = np.round(scores, 1)
    labels = (rng.random(rows) < 1 / (1 + np.exp(-scores * draw(st.floats(-0.5, 2))))).astype(float)
    labels[:2] = [0, 1]
    scale = 10 ** draw(st.floats(-spread, spread)) if spread else 1.0
    offset = draw(st.sampled_from([0.0, 0.0, 3.0, -20.0]))
    return Table(
        (scores + offset) * scale, labels, rng.uniform(0.3, 1, rows), rng.integers(0, 6, rows)
    )


def fit(calibrator: Calibrator, scores: np.ndarray, labels: object) -> cr.CalibrationMap:
    """Fit, or reject the example if no optimum exists; the map may be flat."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cr.FlatMapWarning)
        try:
            return calibrator.fit(scores, labels)
        except cr.FitError:
            reject()


def probe(scores: np.ndarray) -> np.ndarray:
    """Increasing scores to evaluate a map at: within the range, at its ends, far outside."""
    return probe_between(scores.min(), scores.max())
