"""Uncertainty of maps, against covariances of the same line and sums by construction."""

from dataclasses import replace

import numpy as np
import pytest

from calibrank._internal.logit import expit, logit
from calibrank.maps import LevelTerm, Sensitivity, SmoothTerm
from calibrank.maps.level import SlopeErrors
from calibrank.maps.sensitivity import _margin
from tests.maps.samples import gaussian_map

KEYS = (("a",), ("b",), ("a", "c"))


def test_a_band_moves_with_what_the_terms_add() -> None:
    fitted = gaussian_map()
    band = Sensitivity(0.1, 0.9, (), scores=(-2.0, 2.0), low=(-9.0, -5.0), high=(4.0, 6.0))
    alone = replace(fitted, record=replace(fitted.record, sensitivity=band))
    both = replace(alone, terms=(SmoothTerm("x", (0.0, 1.0), (-1.0, 2.0)),))
    scores, x = np.linspace(-2, 2, 5), np.linspace(0, 1, 5)
    for found, end in zip(both.band(scores, {"x": x}), alone.band(scores), strict=True):
        np.testing.assert_allclose(logit(found), logit(end) + 3 * x - 1)


def test_a_level_that_is_not_known_varies_as_its_columns_do() -> None:
    errors, spreads = (0.1, 0.2, 0.05), (0.3, 0.4)
    term = LevelTerm(("x", "y"), KEYS, (0, 0, 0), (1, 1, 1), errors, (9, 9, 9), spreads)
    inputs = term.read({"x": ["?", "a", "b", "a"], "y": ["c", "?", "c", "c"]}, 4)
    margin, _ = term.margins(np.zeros(4), np.zeros(4), inputs, 0.95)
    variances = [0.3**2 + 0.4**2, 0.1**2 + 0.4**2, 0.2**2 + 0.4**2, 0.05**2]
    assert margin == pytest.approx(1.959964 * np.sqrt(variances))


def test_errors_of_a_level_and_its_slope_are_those_of_a_line() -> None:
    of = SlopeErrors(0.5, (0.2, 0.1), (-0.03, 0.01), (0.0,))
    term = LevelTerm(("x",), KEYS[:2], (0, 0), (1, 1), (0.3, 0.4), (9, 9), (0.0,), 0.0, of)
    curve = np.array([-2.0, 0.5, 3.0, 3.0])
    inputs = term.read({"x": ["a", "a", "a", "b"]}, 4)
    margin, _ = term.margins(np.zeros(4), curve, inputs, 0.95)
    matrices = [np.array([[0.09, -0.03], [-0.03, 0.04]])] * 3
    matrices.append(np.array([[0.16, 0.01], [0.01, 0.01]]))
    lines = [np.array([1, z - 0.5]) for z in curve]
    variances = [line @ each @ line for line, each in zip(lines, matrices, strict=True)]
    assert margin == pytest.approx(1.959964 * np.sqrt(variances))


def test_the_margin_of_a_rate_is_that_of_drawn_labels() -> None:
    drawn = np.random.default_rng(0).binomial(100, float(expit(-1.0)), 20_000) / 100
    assert _margin(float(expit(-1.0)), 100) == pytest.approx(1.96 * drawn.std(), rel=0.03)
