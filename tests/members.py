"""Every member that a law must hold for, and tables to hold it on."""

import warnings
from typing import NamedTuple

import numpy as np
from hypothesis import reject
from hypothesis import strategies as st

import calibrank as cr
from calibrank.calibrators import Calibrator, Parametric
from calibrank.metrics import Metric

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


def name(member: object) -> str:
    """A readable test id."""
    return repr(member)


class Table(NamedTuple):
    """A small table to calibrate on."""

    scores: np.ndarray
    labels: np.ndarray
    propensity: np.ndarray
    users: np.ndarray


@st.composite
def tables(draw: st.DrawFn, least: int = 12, most: int = 60, spread: float = 5.0) -> Table:
    """Rows with both classes, some ties, scores of any scale and offset."""
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
    """Fit, or give the example up where no optimum exists; a flat map is fine here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cr.FlatMapWarning)
        try:
            return calibrator.fit(scores, labels)
        except cr.FitError:
            reject()


def probe(scores: np.ndarray) -> np.ndarray:
    """Scores to ask a map about: within its range, at its ends and far outside, in order."""
    low, high = scores.min(), scores.max()
    width = high - low
    return np.concatenate(
        [
            low - width * np.geomspace(1e3, 0.01, 9),
            np.linspace(low, high, 101),
            high + width * np.geomspace(0.01, 1e3, 9),
        ]
    )
