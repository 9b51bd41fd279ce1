"""Pooled fits equal exact ones for scores of any position, scale and tail, or warn."""

import warnings

import numpy as np
import pytest

import calibrank as cr
from calibrank import Summary, ips
from calibrank._internal.logit import expit
from calibrank.curves.calibrator import POOLING_TOLERANCE
from calibrank.errors import FlatMapWarning, PooledScoresWarning
from calibrank.registry import CALIBRATORS
from calibrank.summary.grid import AROUND_ZERO, MOST_DISTINCT
from calibrank.summary.pooling import coarser, pooling_error, spreads, two_points

ROWS = 80_000
"""More distinct scores than a summary keeps apart."""

# Methods whose steps are placed between single rows: the block of rows at a step is uncertain.
STEPS = ("Histogram", "Isotonic", "BBQ")
# Narrow clusters far apart, of which a grid resolves one, and ties that share bins with others.
UNRESOLVED = ("two clusters", "two clusters, far", "half tied")


def normal(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=ROWS)


def cauchy() -> np.ndarray:
    return np.random.default_rng(0).standard_cauchy(ROWS)


def with_outlier(scores: np.ndarray, outlier: float) -> np.ndarray:
    return np.append(scores, outlier)


SCORES = {
    "normal": normal,
    "far from zero": lambda: normal() + 1e6,
    "very far from zero": lambda: normal() + 1e9,
    "small and far": lambda: 1e-3 * normal() + 600,
    "tiny": lambda: 1e-9 * normal(),
    "huge": lambda: 1e9 * normal(),
    "cauchy": cauchy,
    "cauchy cubed, far": lambda: cauchy() ** 3 + 1e6,
    "cauchy cubed, tiny": lambda: 1e-9 * cauchy() ** 3,
    "one outlier": lambda: with_outlier(normal(), 1e20),
    "an outlier, far": lambda: with_outlier(normal() + 1e6, -1e30),
    "float32, far": lambda: (normal() * 1000 + 1e5).astype(np.float32),
    "half padded": lambda: np.append(normal(), np.full(ROWS, -1e9)),
    "two clusters": lambda: normal() + 50 * (np.arange(ROWS) % 10 == 0),
    "two clusters, far": lambda: normal() + 1000 * (np.arange(ROWS) % 10 == 0),
    "a fifth tied": lambda: np.append(normal(), np.full(ROWS // 4, -1.2345)),
    "half tied": lambda: np.append(normal(), normal(2).round(1)),
}


def labels_of(scores: np.ndarray, seed: int = 1) -> np.ndarray:
    """Labels whose rate rises with the rank of the score."""
    ranks = np.searchsorted(np.sort(scores), scores) / len(scores)
    return (np.random.default_rng(seed).random(len(scores)) < 0.02 + 0.9 * ranks**3).astype(float)


def exact_and_pooled(kind: str) -> tuple[np.ndarray, cr.Summary, cr.Summary]:
    scores = SCORES[kind]()
    labels = labels_of(scores)
    exact = cr.Summary.of(scores, labels, distinct=MOST_DISTINCT)
    pooled = cr.Summary.of(scores, labels)
    assert exact.exact
    assert not pooled.exact
    return scores, exact, pooled


@pytest.mark.filterwarnings("ignore::calibrank.errors.FlatMapWarning")  # saturated in a fixed scale
@pytest.mark.parametrize("kind", SCORES)
def test_pooled_fits_equal_exact_ones_or_warn(kind: str) -> None:
    scores, exact, pooled = exact_and_pooled(kind)
    for name, calibrator in CALIBRATORS.items():
        try:
            expected = calibrator.fit_summary(exact).predict(scores)
        except cr.FitError:
            continue  # a curve in the score cannot follow an outlier of 1e20
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("ignore", FlatMapWarning)
            warnings.simplefilter("always", PooledScoresWarning)
            fitted = calibrator.fit_summary(pooled)
        error = float(np.abs(fitted.predict(scores) - expected).mean())
        recorded = fitted.record.pooling_error
        assert recorded is not None, name
        assert error <= recorded + 1e-12, name
        # Never silent, and no alarm without a cause.
        assert bool(caught) == (recorded > POOLING_TOLERANCE), name
        is_resolved = kind not in UNRESOLVED and name not in STEPS
        assert not is_resolved or recorded <= POOLING_TOLERANCE, name


@pytest.mark.parametrize("rows", [20_000, 60_000])
def test_tables_are_pooled_like_arrays_for_step_methods(rows: int) -> None:
    """Batch by batch, up to the same number of distinct scores."""
    builder = cr.SummaryBuilder(MOST_DISTINCT)
    scores = normal()
    labels = labels_of(scores)
    for start in range(0, ROWS, rows):
        builder.update(scores[start : start + rows], labels[start : start + rows])
    assert builder.summary().exact
    expected = cr.Isotonic().fit(scores, labels)
    assert cr.Isotonic().fit_summary(builder.summary()).curve.values == expected.curve.values


def test_selected_step_methods_are_fitted_on_distinct_scores() -> None:
    scores = normal()
    labels = labels_of(scores)
    fitted = cr.Auto(candidates=(cr.Isotonic(),)).fit(scores, labels)
    assert fitted.record.exact
    assert fitted.curve.values == cr.Isotonic().fit(scores, labels).curve.values


def test_step_methods_pool_nothing_in_arrays_of_moderate_size() -> None:
    scores = normal()
    labels = labels_of(scores)
    for name in STEPS:
        fitted = CALIBRATORS[name].fit(scores, labels)
        assert fitted.record.exact
        assert fitted.record.pooling_error is None
    assert not cr.Platt().fit(scores, labels).record.exact


def test_the_spread_of_a_bin_is_the_standard_deviation_of_its_scores() -> None:
    scores = normal() + 1e6
    summary = cr.Summary.of(scores, labels_of(scores))
    assert summary.grid is not None
    keys = summary.grid.keys(scores)
    found = [scores[keys == key].std() for key in summary.keys[::500]]
    np.testing.assert_allclose(spreads(summary)[::500], found, atol=1e-9)


def test_scores_that_no_grid_resolves_raise_a_warning() -> None:
    # Continuous clusters, each far narrower than the distances between them.
    clusters = np.random.default_rng(0).integers(0, 40, ROWS)
    scores = 1e6 * clusters**2 + normal()
    labels = (normal() > 0).astype(float)
    with pytest.warns(PooledScoresWarning, match="may be off by up to"):
        cr.Spline().fit(scores, labels)


def test_later_batches_choose_the_grid_if_they_need_another() -> None:
    """A stream that starts with a few scores elsewhere is resolved all the same."""
    builder = cr.SummaryBuilder()
    parts = [normal(0), *[normal(seed) + 1e6 for seed in range(1, 30)]]
    for scores in parts:
        builder.update(scores, labels_of(scores))
    summary = builder.summary()
    assert summary.grid is not None
    assert summary.grid.origin == 1e6
    is_far = summary.scores > 1e5
    assert is_far.sum() > 10_000
    np.testing.assert_allclose(summary.total.sum(), 30 * ROWS)


def test_summaries_of_different_placements_merge() -> None:
    near = cr.Summary.of(normal(), labels_of(normal()))
    far = cr.Summary.of(normal(1) + 1e6, labels_of(normal(1)))
    assert near.grid is not None
    assert far.grid is not None
    assert near.grid.placement == AROUND_ZERO != far.grid.placement
    both = near + far
    assert both.rows == 2 * ROWS
    np.testing.assert_allclose(both.total.sum(), 2 * ROWS)
    np.testing.assert_allclose(both.positive.sum(), near.positive.sum() + far.positive.sum())
    mean = (both.total * both.scores).sum() / both.total.sum()
    np.testing.assert_allclose(mean, 5e5, rtol=1e-4)


def test_saved_summaries_keep_their_placement(tmp_path) -> None:
    scores = normal() + 1e6
    summary = cr.Summary.of(scores, labels_of(scores))
    summary.save(tmp_path / "far.npz")
    loaded = cr.Summary.load(tmp_path / "far.npz")
    assert loaded.grid == summary.grid
    probabilities = np.linspace(0.1, 0.9, len(summary))
    assert pooling_error(probabilities, loaded) == pooling_error(probabilities, summary)


def test_few_distinct_scores_are_never_pooled() -> None:
    scores = normal().round(2) + 1e9
    assert pooling_error(np.zeros(1), cr.Summary.of(scores, labels_of(scores))) == 0


def test_the_ends_of_outer_bins_are_those_of_the_scores() -> None:
    """Rounding hides the variance of narrow bins; the range bounds it in the outermost ones."""
    scores = 1e6 + np.linspace(0, 1, 80_001)
    summary = cr.Summary.of(scores, labels_of(scores))
    assert summary.grid is not None
    keys = summary.grid.keys(scores)
    found = np.array([scores[keys == key].std() for key in summary.keys[[0, -1]]])
    np.testing.assert_allclose(spreads(summary)[[0, -1]], found, atol=2e-10)


def test_a_grid_without_bits_to_spare_is_merged_as_far_as_it_goes() -> None:
    summary = cr.Summary.of(normal(), labels_of(normal()))
    half = coarser(summary, 1)
    assert half.bits == summary.bits - 1
    assert len(summary) / 2 <= len(half) < 0.6 * len(summary)
    np.testing.assert_allclose(half.total.sum(), ROWS)
    assert coarser(summary, 99).bits == 0
    exact = cr.Summary.of([0.0, 1.0], [0, 1])
    assert coarser(exact, 1) is exact


@pytest.mark.parametrize("name", ["normal", "tiny", "cauchy", "far from zero", "one outlier"])
def test_two_points_keep_the_sums_of_each_bin_and_the_order(name: str) -> None:
    scores = SCORES[name]()
    summary = Summary.of(scores, ips(labels_of(scores), np.full(len(scores), 0.5)))
    points = two_points(summary)
    assert len(points) % 2 == 0
    assert len(points) <= min(2 * len(summary), 2 * 8192)
    assert (np.diff(points.scores) >= 0).all()
    assert points.low <= points.scores[0]
    assert points.scores[-1] <= points.high
    for before, after in zip(summary.masses, points.masses, strict=True):
        # Bins of one row, or near the ends, have less room for the spread than it takes.
        np.testing.assert_allclose(after.sum(), before.sum(), rtol=1e-6)


def test_two_points_of_distinct_scores_are_these() -> None:
    summary = Summary.of([0.0, 1.0, 2.0], [0, 1, 1])
    assert two_points(summary) is summary


@pytest.mark.parametrize("method", [cr.Platt(), cr.Gaussian(), cr.Gamma(), cr.Beta()], ids=repr)
@pytest.mark.parametrize("draw", ["normal", "lognormal", "standard_t"])
def test_pooled_parametric_fits_equal_exact_ones(method: cr.Calibrator, draw: str) -> None:
    rng = np.random.default_rng(5)
    make = getattr(rng, draw)
    scores = make(3, size=200_000) if draw == "standard_t" else make(size=200_000)
    labels = rng.random(len(scores)) < expit(scores.clip(-4, 4) - 2)
    exact = method.fit_fold(Summary.of(scores, labels, distinct=MOST_DISTINCT))
    pooled = method.fit_fold(Summary.of(scores, labels))
    at = np.quantile(scores, np.linspace(0, 1, 501))
    np.testing.assert_allclose(pooled.predict(at), exact.predict(at), rtol=0, atol=1e-7)
    # The outermost bins of the deviation from the family have few rows, and other mean scores.
    inner = at[10:-10]
    for end in zip(pooled.sampling_interval(inner), exact.sampling_interval(inner), strict=True):
        np.testing.assert_allclose(*end, rtol=0, atol=1e-3)
