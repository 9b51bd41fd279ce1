"""Figures show the numbers that the map gives."""

import numpy as np
import pytest

import calibrank as cr
from calibrank.errors import DataError

rng = np.random.default_rng(0)
SCORES = rng.normal(size=200)
LABELS = (rng.random(200) < 1 / (1 + np.exp(-SCORES))).astype(float)
PLAIN = cr.Platt().fit(SCORES, LABELS)


@pytest.mark.parametrize("scores", [None, [-1.0, 0.5, 2.0]])
def test_a_map_plots_its_probabilities_and_its_interval(scores):
    axes = PLAIN.plot(scores).axes[0]
    x, y = axes.lines[0].get_data()
    np.testing.assert_allclose(y, PLAIN.predict(x))
    assert (x[0], x[-1]) == (PLAIN.curve.span if scores is None else (-1.0, 2.0))
    band = axes.collections[0].get_paths()[0].vertices
    interval = PLAIN.sampling_interval(x)
    for end in (interval.low, interval.high):
        assert set(end.round(12)) <= set(band[:, 1].round(12))


def test_a_map_with_terms_plots_its_average_and_says_so():
    countries = np.where(np.arange(200) % 2, "fr", "de")
    fitted = (cr.Platt() + cr.Level("country")).fit(SCORES, LABELS, {"country": countries})
    axes = fitted.plot().axes[0]
    x, y = axes.lines[0].get_data()
    np.testing.assert_allclose(y, fitted.without_terms().predict(x))
    assert "average" in axes.get_title()


def test_scores_that_are_no_numbers_are_refused():
    with pytest.raises(DataError, match="scores must"):
        PLAIN.plot([0.0, np.nan])
