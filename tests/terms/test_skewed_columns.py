"""Smooth terms of heavy-tailed columns: they do not follow a few rows far out."""

import numpy as np
import pytest

import calibrank as cr


def prices(kind: str, rng: np.random.Generator, rows: int) -> np.ndarray:
    if kind == "lognormal":
        return rng.lognormal(3, 1.2, rows)
    return 1 + rng.pareto(1.2, rows)


@pytest.mark.parametrize("kind", ["lognormal", "pareto"])
def test_the_end_of_a_skewed_column_is_not_extrapolated(kind: str) -> None:
    """The effect is linear in the logarithm; the last of 2,000 prices is far from the others."""
    errors = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        scores, price = rng.normal(size=2_000), prices(kind, rng, 2_000)
        effect = -0.35 * (np.log(price) - np.log(price).mean())
        labels = rng.random(2_000) < 1 / (1 + np.exp(0.5 - 0.8 * scores - effect))
        fitted = (cr.Gaussian() + cr.Smooth("price")).fit(scores, labels, {"price": price})
        at = np.quantile(price, [0.5, 0.9995])
        found = np.diff(fitted.log_odds([0.0, 0.0], {"price": at}))[0]
        errors.append(found + 0.35 * np.diff(np.log(at))[0])
    # Linear in the price itself, it was 2.4 too low for the lognormal one.
    assert abs(np.mean(errors)) < 0.8
    largest = fitted.log_odds([0.0, 0.0], {"price": [fitted.terms[0].knots[-1], 1e9]})
    assert largest[0] == largest[1]


def test_a_column_with_one_value_in_nearly_all_rows_has_a_term() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=3_000)
    flag = np.zeros(3_000)
    flag[:9] = 1.0
    labels = rng.random(3_000) < 1 / (1 + np.exp(-scores))
    fitted = (cr.Platt() + cr.Smooth("flag")).fit(scores, labels, {"flag": flag})
    assert fitted.terms[0].knots == (0.0, 1.0)
