"""Pooling that is too coarse for the scores is measured and reported."""

import warnings

import numpy as np
import pytest

import calibrank as cr
from calibrank.summary.resolution import concentration

ROWS = 200_000


def labelled(scores: np.ndarray, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Labels whose rate rises with the rank of the score."""
    ranks = np.argsort(np.argsort(scores)) / len(scores)
    labels = np.random.default_rng(seed).random(len(scores)) < 0.02 + 0.4 * ranks
    return scores, labels.astype(float)


def normal() -> np.ndarray:
    return np.random.default_rng(0).normal(size=ROWS)


RESOLVED = {
    "normal": normal,
    "shifted a little": lambda: normal() + 3,
    "uniform": lambda: np.random.default_rng(0).random(ROWS),
    "lognormal": lambda: np.exp(normal()),
    "float32": lambda: normal().astype(np.float32),
    "tiny": lambda: normal() * 1e-9,
    "huge": lambda: normal() * 1e9,
    "half of the scores tied": lambda: np.where(np.arange(ROWS) % 2 == 0, 0.37, normal()),
}
COARSE = {
    "shifted by a million": lambda: normal() + 1e6,
    "shifted by a billion": lambda: normal() + 1e9,
    "one outlier": lambda: np.append(normal(), 1e20),
}


@pytest.mark.parametrize("kind", RESOLVED)
@pytest.mark.parametrize("method", [cr.Gaussian(), cr.Isotonic(), cr.Spline()], ids=repr)
def test_resolved_scores_raise_no_warning(kind: str, method: cr.Calibrator) -> None:
    scores, labels = labelled(RESOLVED[kind]())
    with warnings.catch_warnings():
        warnings.simplefilter("error", cr.PooledScoresWarning)
        method.fit(scores, labels)


@pytest.mark.parametrize("kind", COARSE)
def test_scores_that_share_few_bins_raise_a_warning(kind: str) -> None:
    scores, labels = labelled(COARSE[kind]())
    with pytest.warns(cr.PooledScoresWarning, match="probabilities may be off by about"):
        cr.Isotonic().fit(scores, labels)


def test_few_distinct_scores_are_never_pooled() -> None:
    scores, labels = labelled(normal().round(2) + 1e9)
    assert concentration(cr.Summary.of(scores, labels)) == 0
