"""Laws of summaries: splitting, merging and pooling rows do not change the result."""

import numpy as np
import pytest

import calibrank as cr
from calibrank.summary.bins import Masses
from tests.members import SCORE_KINDS, sample_scores

CONTINUOUS = tuple(kind for kind in SCORE_KINDS if kind != "few")


def sample_labels(rows: int, seed: int) -> np.ndarray:
    return (np.random.default_rng(seed).random(rows) < 0.2).astype(float)


def assert_same(actual: cr.Summary, expected: cr.Summary) -> None:
    assert actual.rows == expected.rows
    assert (actual.low, actual.high) == (expected.low, expected.high)
    assert actual.grid == expected.grid
    np.testing.assert_allclose(actual.scores, expected.scores, rtol=1e-12, atol=1e-300)
    for mine, theirs in zip(actual.masses, expected.masses, strict=True):
        tolerance = 1e-14 * np.abs(theirs).max()  # moments of both signs may cancel
        np.testing.assert_allclose(mine, theirs, rtol=1e-12, atol=tolerance)


@pytest.mark.parametrize("kind", SCORE_KINDS)
@pytest.mark.parametrize("shards", [2, 5])
def test_shards_merged_in_any_order_give_the_summary_of_the_table(kind: str, shards: int) -> None:
    scores = sample_scores(150_000, 1, kind)
    rng = np.random.default_rng(2)
    labels = (rng.random(len(scores)) < 0.2).astype(float)
    propensity = rng.uniform(0.1, 1, len(scores))
    weights = rng.exponential(1, len(scores))
    evidence = cr.ips(labels, propensity, weights=weights)
    shard_of_row = rng.integers(0, shards, len(scores))
    summaries = []
    for shard in rng.permutation(shards):
        rows = shard_of_row == shard
        summaries.append(cr.Summary.of(scores[rows], evidence.rows(rows)))
    merged = summaries[0]
    for summary in summaries[1:]:
        merged = merged + summary
    assert_same(merged, cr.Summary.of(scores, evidence))


def test_halves_with_different_ranges_merge_to_the_bins_of_the_table() -> None:
    scores = np.random.default_rng(0).uniform(-1, 1, 300_000)
    scores[10], scores[-1] = -1e-12, 1.05
    labels = np.zeros(150_000)
    first = cr.Summary.of(scores[:150_000], labels)
    second = cr.Summary.of(scores[150_000:], labels)
    whole = cr.Summary.of(scores, np.zeros(300_000))
    merged = first + second
    assert merged.grid == whole.grid
    np.testing.assert_array_equal(merged.keys, whole.keys)


@pytest.mark.parametrize("kind", SCORE_KINDS)
def test_a_stream_of_batches_gives_the_summary_of_the_table(kind: str) -> None:
    scores = sample_scores(200_000, 6, kind)
    rng = np.random.default_rng(7)
    labels = (rng.random(len(scores)) < 0.2).astype(float)
    evidence = cr.naive(labels, weights=rng.exponential(1, len(scores)))
    builder = cr.SummaryBuilder()
    for start in range(0, len(scores), 37_000):
        rows = slice(start, start + 37_000)
        builder.update(scores[rows], evidence.rows(rows))
    assert_same(builder.summary(), cr.Summary.of(scores, evidence))


@pytest.mark.parametrize("kind", ["normal", "float32", "few"])
def test_builders_merge_with_builders_and_with_summaries(kind: str) -> None:
    scores = sample_scores(300_000, 3, kind)
    if kind != "few":  # the first two batches get the same table, so that tables are merged too
        scores[[0, 1, 100_000, 100_001]] = [5, -5, 5, -5]
    labels = sample_labels(len(scores), 4)
    builders = []
    for start in (0, 100_000, 200_000):
        rows = slice(start, start + 100_000)
        builder = cr.SummaryBuilder()
        builder.update(scores[rows], labels[rows])
        builders.append(builder)
    merged = builders[0]
    merged.merge(builders[1])
    merged.merge(cr.SummaryBuilder())
    merged.merge(builders[2].summary())
    assert_same(merged.summary(), cr.Summary.of(scores, labels))


@pytest.mark.parametrize("kind", ["normal", "few"])
def test_a_saved_summary_merges_like_the_original(kind: str, tmp_path) -> None:
    scores = sample_scores(100_000, 10, kind)
    labels = sample_labels(len(scores), 0)
    cr.Summary.of(scores[:60_000], labels[:60_000]).save(tmp_path / "first.npz")
    second = cr.Summary.of(scores[60_000:], labels[60_000:])
    merged = cr.Summary.load(tmp_path / "first.npz") + second
    assert_same(merged, cr.Summary.of(scores, labels))


def sample_evidence(rows: int, seed: int) -> cr.Evidence:
    rng = np.random.default_rng(seed)
    weights = rng.exponential(1, rows)
    return cr.ips(rng.random(rows) < 0.2, rng.uniform(0.1, 1, rows), weights=weights)


@pytest.mark.parametrize("kind", SCORE_KINDS)
def test_the_built_in_sum_merges_all_parts(kind: str) -> None:
    scores = sample_scores(150_000, 1, kind)
    evidence = sample_evidence(len(scores), 2)
    parts = []
    for start in range(0, len(scores), 50_000):
        rows = slice(start, start + 50_000)
        parts.append(cr.Summary.of(scores[rows], evidence.rows(rows)))
    assert_same(sum(parts), cr.Summary.of(scores, evidence))


@pytest.mark.parametrize("kind", ["normal", "narrow", "heavy", "lognormal"])
def test_pooling_changes_a_fit_by_far_less_than_its_standard_error(kind: str) -> None:
    scores = np.unique(sample_scores(300_000, 3, kind))
    quartiles = np.quantile(scores, [0.25, 0.75])
    standardized = (scores - np.median(scores)) / (quartiles[1] - quartiles[0])
    true_probability = 1 / (1 + np.exp(1 - np.arcsinh(standardized)))
    labels = (np.random.default_rng(4).random(len(scores)) < true_probability).astype(float)
    pooled_summary = cr.Summary.of(scores, labels)
    assert not pooled_summary.exact
    for calibrator in (cr.Gaussian(), cr.Platt()):
        pooled = calibrator.fit_summary(pooled_summary)
        by_row = calibrator.fit_summary(summary_without_pooling(scores, labels))
        for name, value in by_row.parameters.items():
            assert abs(pooled.parameters[name] - value) < 1e-4 * by_row.standard_errors[name]
        assert np.abs(pooled.predict(scores) - by_row.predict(scores)).max() < 1e-7


def summary_without_pooling(scores: np.ndarray, labels: np.ndarray) -> cr.Summary:
    """One bin per row, for distinct sorted scores of any number."""
    ones = np.ones_like(scores)
    return cr.Summary(
        scores=scores,
        masses=Masses(
            positive=labels,
            total=ones,
            positive_moment=labels * scores,
            moment=scores,
            second_moment=scores**2,
            positive_squared=labels,
            cross=labels,
            total_squared=ones,
        ),
        rows=len(scores),
        low=scores[0],
        high=scores[-1],
        kind="naive",
        grid=None,
        keys=np.empty(0, dtype=np.int64),
    )


@pytest.mark.parametrize("kind", CONTINUOUS)
def test_sums_over_all_bins_are_the_sums_over_all_rows(kind: str) -> None:
    scores = sample_scores(150_000, 8, kind)
    rng = np.random.default_rng(9)
    labels = (rng.random(len(scores)) < 0.2).astype(float)
    evidence = cr.ips(
        labels, rng.uniform(0.1, 1, len(scores)), weights=rng.exponential(1, len(scores))
    )
    summary = cr.Summary.of(scores, evidence)
    masses = summary.masses
    positive, total = evidence.positive, evidence.total
    assert summary.grid is not None
    wide = summary.grid.offsets(scores).astype(np.float64)
    expected = {
        "positive": positive,
        "total": total,
        "positive_moment": positive * wide,
        "moment": total * wide,
        "second_moment": total * wide**2,
        "positive_squared": positive**2,
        "cross": positive * total,
        "total_squared": total**2,
    }
    for name, values in expected.items():
        tolerance = 1e-9 * np.abs(values).sum()
        assert getattr(masses, name).sum() == pytest.approx(values.sum(), abs=tolerance)
