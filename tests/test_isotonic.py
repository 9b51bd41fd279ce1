"""Isotonic regression on pooled evidence."""

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, isotonic_regression, minimize

from calibrank._internal import native
from calibrank._internal.isotonic import pool_adjacent_violators


def values_at(positive: np.ndarray, total: np.ndarray) -> np.ndarray:
    blocks = pool_adjacent_violators(positive, total)
    lengths = np.diff([*blocks.starts, len(total)])
    return np.repeat(blocks.values, lengths)


def test_blocks_start_where_the_fit_rises() -> None:
    blocks = pool_adjacent_violators(np.array([1.0, 0.0, 2.0, 2.0]), np.array([2.0, 2.0, 4.0, 2.0]))
    assert blocks.starts.tolist() == [0, 2, 3]
    assert blocks.values.tolist() == [0.25, 0.5, 1.0]


def test_rates_above_one_are_clipped() -> None:
    assert values_at(np.array([0.0, 3.0]), np.array([1.0, 1.0])).tolist() == [0, 1]


@pytest.mark.parametrize("seed", range(5))
def test_the_fit_is_the_best_nondecreasing_one_within_0_and_1(seed: int) -> None:
    rng = np.random.default_rng(seed)
    total = rng.uniform(0.5, 2, 8)
    rate = np.linspace(-0.2, 1.4, 8) + rng.normal(0, 0.4, 8)
    positive = np.maximum(rate, 0) * total
    rises = LinearConstraint(np.diff(np.eye(8), axis=0), lb=0)
    best = minimize(
        lambda p: (total * p**2 - 2 * positive * p).sum(),
        x0=np.linspace(0.1, 0.9, 8),
        jac=lambda p: 2 * (total * p - positive),
        bounds=[(0, 1)] * 8,
        constraints=rises,
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    np.testing.assert_allclose(values_at(positive, total), best.x, atol=1e-6)


@pytest.mark.parametrize("order", ["random", "rising", "falling", "one late drop", "labels"])
@pytest.mark.parametrize("size", [1, 2, 50, 20_000])
def test_blocks_are_those_of_scipy(size: int, order: str) -> None:
    rng = np.random.default_rng(size)
    total = rng.uniform(0.5, 2, size)
    rate = np.sort(rng.random(size))
    if order == "random":
        rng.shuffle(rate)
    elif order == "falling":
        rate = rate[::-1]
    elif order == "one late drop":
        rate[-1] = 0
    elif order == "labels":
        rate = (rng.random(size) < rate).astype(float)
    expected = isotonic_regression(rate, weights=total)
    blocks = pool_adjacent_violators(rate * total, total)
    assert blocks.starts.tolist() == expected.blocks[:-1].tolist()
    np.testing.assert_allclose(values_at(rate * total, total), expected.x, rtol=1e-12, atol=1e-15)


@pytest.mark.skipif(not native.READY, reason="calibrank was installed without a C compiler")
def test_compiled_merging_equals_that_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    total = rng.uniform(0.1, 3, 5000)
    # A slow rise, so that few neighbours merge per round and the rest is merged in order.
    positive = total * (np.linspace(0.3, 0.6, 5000) + 0.02 * np.cumsum(rng.normal(size=5000)) / 70)
    separate = rng.random(5000) < 0.001
    compiled = pool_adjacent_violators(positive, total, separate)
    monkeypatch.setattr(native, "READY", False)
    in_python = pool_adjacent_violators(positive, total, separate)
    assert 10 < len(compiled.starts) < 4000
    np.testing.assert_array_equal(compiled.starts, in_python.starts)
    np.testing.assert_array_equal(compiled.values, in_python.values)
