"""The members that every law is tested on, and random tables to test it with."""

import warnings

import numpy as np
from hypothesis import reject
from hypothesis import strategies as st

import calibrank as cr
from calibrank import metrics
from calibrank.curves import Calibrator, Parametric
from calibrank.errors import FlatMapWarning
from calibrank.metrics import AUC, GAUC, Metric
from calibrank.propensity import (
    Exposure,
    Known,
    Logistic,
    NaiveBayes,
    Popularity,
    Propensity,
    Random,
    Uniform,
)
from tests.checks import Example as Table

CALIBRATORS: tuple[Calibrator, ...] = (
    cr.MinMax(),
    cr.Sigmoid(),
    cr.Histogram(bins=7),
    cr.Isotonic(),
    cr.BBQ(bins=(3, 8)),
    cr.Spline(knots=12),
    cr.Platt(),
    cr.Temperature(),
    cr.Beta(),
    cr.Gaussian(),
    cr.Gamma(),
    cr.Gamma(margin=0.5),
    cr.GammaGaussian(),
)
MODELS: tuple[cr.Model, ...] = (
    cr.Gaussian() + cr.Level("country"),
    cr.Isotonic() + cr.Level("country", "city"),
    cr.Spline(knots=12) + cr.Level("city", slopes=False),
    cr.Beta() + cr.Smooth("price", knots=4),
    cr.Platt() + cr.Level("country") + cr.Smooth("price", knots=3),
    cr.Gamma() + cr.Level("country", "city") + cr.Smooth("price", knots=2),
)
"""A model for each way of fitting terms: from sums, and jointly."""
GROUPED: tuple[cr.Model, ...] = (
    cr.Auto() + cr.Group("query"),
    cr.Platt() + cr.Group("query", folds=2),
)
"""Models of groups that never come again, whose maps need no column."""
PARAMETRIC = tuple(member for member in CALIBRATORS if isinstance(member, Parametric))
METRICS: tuple[Metric, ...] = (
    cr.ECE(),
    metrics.EqualMassECE(bins=5),
    metrics.DebiasedECE(),
    cr.SmoothECE(),
    metrics.MCE(),
    metrics.ReleasedECE(),
    metrics.ReleasedMCE(),
    cr.LogLoss(),
    metrics.ConstantLogLoss(),
    metrics.LogLossGain(),
    cr.Brier(),
    metrics.CalibrationInTheLarge(),
    metrics.CalibrationSlope(),
    metrics.CalibrationIntercept(),
    metrics.Miscalibration(),
    metrics.Discrimination(score=cr.LogLoss()),
    AUC(),
    GAUC(),
    metrics.NDCG(3),
    metrics.Recall(2),
    cr.ECE() @ 2,
)

PROPENSITY_SIZE = 9
"""Users and items of the logs that propensities are checked on."""
_FEATURES = np.random.default_rng(0).normal(size=(PROPENSITY_SIZE, 2))
PROPENSITIES: tuple[Propensity, ...] = (
    Popularity(),
    Popularity(power=1.0, clip=0.5),
    Exposure(),
    Exposure(by_user=False, clip=0.3),
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
    """Tables with both classes, sometimes ties, and scores of any scale and offset.

    `spread` bounds the decimal exponent of the scale; 0 leaves scores at scale 1.
    """
    rows = draw(st.integers(least, most))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scores = rng.normal(0, 1, rows)
    if draw(st.booleans()):
        scores = np.round(scores, 1)
    slope = draw(st.floats(-0.5, 2))
    labels = (rng.random(rows) < 1 / (1 + np.exp(-scores * slope))).astype(float)
    labels[:2] = [0, 1]
    scale = 10 ** draw(st.floats(-spread, spread)) if spread else 1.0
    offset = draw(st.sampled_from([0.0, 0.0, 3.0, -20.0]))
    propensity = rng.uniform(0.3, 1, rows)
    users = rng.integers(0, 6, rows)
    # The first two rows differ in their label, so that some user has both classes.
    users[1] = users[0]
    return Table((scores + offset) * scale, labels, propensity, users)


SCORE_KINDS = ("normal", "float32", "narrow", "heavy", "lognormal", "few")


def sample_scores(rows: int, seed: int, kind: str) -> np.ndarray:
    """Scores of one of the `SCORE_KINDS`; "few" has only five distinct values."""
    rng = np.random.default_rng(seed)
    samples = {
        "normal": lambda: rng.normal(0, 1, rows),
        "float32": lambda: rng.normal(0, 1, rows).astype(np.float32),
        "narrow": lambda: 100 + rng.random(rows),
        "heavy": lambda: rng.standard_cauchy(rows),
        "lognormal": lambda: np.exp(rng.normal(0, 4, rows)),
        "few": lambda: rng.integers(1, 6, rows).astype(float),
    }
    return samples[kind]()


def fit(calibrator: Calibrator, scores: np.ndarray, labels: object) -> cr.CalibrationMap:
    """Fit a calibrator, and reject the Hypothesis example if no optimum exists.

    A flat map is a valid result here, so its warning is ignored.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FlatMapWarning)
        try:
            return calibrator.fit(scores, labels)
        except cr.FitError:
            reject()


def probe(scores: np.ndarray) -> np.ndarray:
    """Scores to evaluate a map at, in order: inside its range, at the ends and far outside."""
    low, high = scores.min(), scores.max()
    width = high - low
    return np.concatenate(
        [
            low - width * np.geomspace(1e3, 0.01, 9),
            np.linspace(low, high, 101),
            high + width * np.geomspace(0.01, 1e3, 9),
        ]
    )
