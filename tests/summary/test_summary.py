"""Summaries: their properties, their files, and what they refuse."""

import zipfile
from pathlib import Path

import numpy as np
import pytest

import calibrank as cr
from calibrank._internal.npz import read_arrays, write_arrays
from calibrank.summary.bins import Table
from calibrank.summary.grid import CAPACITY
from tests.members import sample_scores


def test_few_distinct_scores_stay_exact() -> None:
    scores = sample_scores(400_000, 5, "few")
    summary = cr.Summary.of(scores, (scores > 3).astype(float))
    assert summary.exact
    np.testing.assert_array_equal(summary.scores, [1, 2, 3, 4, 5])
    np.testing.assert_array_equal(summary.total, np.bincount(scores.astype(int))[1:])


def test_millions_of_rows_with_few_distinct_scores_stay_exact() -> None:
    scores = sample_scores(1_100_000, 5, "few")  # more than are sorted at a time
    summary = cr.Summary.of(scores, (scores > 3).astype(float))
    assert summary.exact
    np.testing.assert_array_equal(summary.total, np.bincount(scores.astype(int))[1:])


@pytest.mark.parametrize(("distinct", "exact"), [(CAPACITY, True), (CAPACITY + 1, False)])
def test_a_summary_is_exact_up_to_its_capacity(distinct: int, exact: bool) -> None:
    scores = np.arange(distinct, dtype=float)
    summary = cr.Summary.of(scores, np.zeros(distinct))
    assert summary.exact is exact
    assert len(summary) <= CAPACITY
    assert summary.rows == distinct


def test_exact_summaries_merge_to_bins_beyond_their_capacity() -> None:
    first = cr.Summary.of(np.arange(50_000.0), np.zeros(50_000))
    second = cr.Summary.of(np.arange(40_000.0, 90_000.0), np.ones(50_000))
    merged = first + second
    assert not merged.exact
    assert (merged.low, merged.high) == (0, 89_999)
    assert (merged.positive.sum(), merged.total.sum()) == (50_000, 100_000)


def test_zeros_of_both_signs_are_one_score() -> None:
    summary = cr.Summary.of([0.0, -0.0, 1.0], [1, 0, 1])
    np.testing.assert_array_equal(summary.scores, [0, 1])
    np.testing.assert_array_equal(summary.positive, [1, 1])


def test_rows_of_weight_zero_are_left_out() -> None:
    evidence = cr.naive([1, 0, 1], weights=[1, 2, 0])
    summary = cr.Summary.of([0.5, 0.7, 9.0], evidence)
    assert summary.rows == 2
    assert (summary.low, summary.high) == (0.5, 0.7)


def test_a_table_without_weight_is_refused() -> None:
    with pytest.raises(
        cr.DataError, match=r"weights must not all be zero, got 2 rows of weight zero\."
    ):
        cr.Summary.of([0.5, 0.7], cr.naive([1, 0], weights=[0, 0]))


def test_only_summaries_are_added() -> None:
    summary = cr.Summary.of([0.1, 0.5], [0, 1])
    for other in (0, cr.SummaryBuilder()):
        with pytest.raises(cr.DataError, match=r"must be of type Summary, got .* Make one of rows"):
            summary + other
    with pytest.raises(TypeError):
        0.5 + summary


def test_evidence_of_two_kinds_merges_to_mixed() -> None:
    merged = cr.Summary.of([0.5], [1]) + cr.Summary.of([0.7], cr.ips([1], [0.5]))
    assert merged.kind == "mixed"


@pytest.mark.parametrize("kind", ["normal", "few"])
def test_squared_residuals_are_those_of_the_rows(kind: str) -> None:
    scores = sample_scores(100_000, 2, kind)
    rng = np.random.default_rng(3)
    evidence = cr.ips(rng.random(len(scores)) < 0.3, rng.uniform(0.2, 1, len(scores)))
    summary = cr.Summary.of(scores, evidence)
    squares = summary.squared_residuals(np.full(len(summary), 0.25))
    expected = ((evidence.positive - 0.25 * evidence.total) ** 2).sum()
    assert squares.sum() == pytest.approx(expected, rel=1e-9)


def test_positive_scores_are_the_means_of_the_positive_mass() -> None:
    scores = sample_scores(200_000, 2, "normal")
    labels = (np.random.default_rng(3).random(len(scores)) < 0.3).astype(float)
    summary = cr.Summary.of(scores, labels)
    moment = (summary.positive_scores * summary.positive).sum()
    assert moment == pytest.approx((scores * labels).sum(), rel=1e-9)
    empty = summary.positive == 0
    assert empty.any()
    np.testing.assert_array_equal(summary.positive_scores[empty], summary.scores[empty])


def test_merging_with_a_coarser_summary_keeps_the_coarser_bins() -> None:
    scores = sample_scores(100_000, 0, "normal")
    labels = np.zeros(len(scores))
    table = Table.spanning(scores.min(), scores.max(), CAPACITY // 2)  # as on a GPU
    table.pool(scores, cr.naive(labels))
    coarse = cr.Summary.of_table(table, scores.min(), scores.max(), len(scores), "naive")
    fine = cr.Summary.of(scores, labels)
    merged = coarse + fine
    assert merged.bits == coarse.bits < fine.bits
    np.testing.assert_array_equal(merged.keys, coarse.keys)
    np.testing.assert_array_equal(merged.total, 2 * coarse.total)


@pytest.mark.parametrize("kind", ["normal", "few"])
def test_a_saved_summary_is_read_back_unchanged(kind: str, tmp_path: Path) -> None:
    scores = sample_scores(100_000, 10, kind)
    summary = cr.Summary.of(scores, (scores > 3).astype(float))
    summary.save(tmp_path / "summary.npz")
    loaded = cr.Summary.load(tmp_path / "summary.npz")
    for name in ("rows", "low", "high", "kind", "grid"):
        assert getattr(loaded, name) == getattr(summary, name)
    np.testing.assert_array_equal(loaded.scores, summary.scores)
    np.testing.assert_array_equal(loaded.keys, summary.keys)
    np.testing.assert_array_equal(loaded.masses, summary.masses)


def test_damaged_and_foreign_files_are_refused(tmp_path: Path) -> None:
    cr.Summary.of([0.1, 0.5], [0, 1]).save(tmp_path / "whole.npz")
    whole = (tmp_path / "whole.npz").read_bytes()
    (tmp_path / "truncated.npz").write_bytes(whole[:-200])
    (tmp_path / "text.npz").write_text("not an array")
    np.savez(tmp_path / "other.npz", scores=np.ones(3))
    np.save(tmp_path / "array.npy", np.ones(3))
    with zipfile.ZipFile(tmp_path / "empty.npz", "w"):
        pass
    for name in ("truncated.npz", "text.npz", "other.npz", "array.npy", "empty.npz"):
        with pytest.raises(cr.DataError, match="must be a summary that calibrank saved"):
            cr.Summary.load(tmp_path / name)
    with pytest.raises(cr.DataError, match="got no such file"):
        cr.Summary.load(tmp_path / "missing.npz")


def test_a_file_of_a_newer_version_asks_for_an_upgrade(tmp_path: Path) -> None:
    cr.Summary.of([0.1, 0.5], [0, 1]).save(tmp_path / "summary.npz")
    arrays = read_arrays(tmp_path / "summary.npz", largest=2**20)
    arrays["version"] = np.array(99)
    write_arrays(tmp_path / "newer.npz", arrays)
    with pytest.raises(cr.DataError, match="its version is 99, upgrade calibrank"):
        cr.Summary.load(tmp_path / "newer.npz")


def test_few_bins_span_no_range() -> None:
    summary = cr.Summary.of(np.linspace(1, 2, 600), np.zeros(600))
    assert len(summary.coarsened(512)) <= 512
    assert summary.coarsened(600) is summary
    with pytest.raises(cr.DataError, match="capacity must be a whole number, 512 or more, got 64"):
        summary.coarsened(64)
