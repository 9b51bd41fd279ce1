"""Building summaries batch by batch."""

import numpy as np
import pytest

import calibrank as cr
from tests.members import sample_scores


def test_a_builder_without_rows_has_no_summary() -> None:
    builder = cr.SummaryBuilder()
    assert builder.empty
    with pytest.raises(cr.DataError, match="a summary must hold at least one row, got no batch"):
        builder.summary()


def test_a_batch_whose_weights_are_all_zero_adds_nothing() -> None:
    builder = cr.SummaryBuilder()
    builder.update([0.5, 9.0], cr.naive([1, 0], weights=[0, 0]))
    assert builder.empty
    builder.update([0.5], [1])
    builder.update([9.0], cr.naive([1], weights=[0]))
    assert builder.summary().high == 0.5


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(cr.DataError, match="scores must hold at least one row"):
        cr.SummaryBuilder().update([], cr.naive([]))


def test_batches_are_checked_once_the_table_of_bins_exists() -> None:
    builder = cr.SummaryBuilder()
    scores = sample_scores(100_000, 0, "normal")
    builder.update(scores, np.zeros(len(scores)))
    with pytest.raises(cr.DataError, match="got nan at row 1"):
        builder.update([0.5, np.nan], [0, 1])


def test_a_wider_batch_makes_the_table_grow() -> None:
    scores = sample_scores(100_000, 0, "normal")
    builder = cr.SummaryBuilder()
    builder.update(scores, np.zeros(len(scores)))
    before = builder.summary()
    builder.update(1000 * scores, np.ones(len(scores)))
    after = builder.summary()
    assert after.grid != before.grid
    assert (after.low, after.high) == (1000 * scores.min(), 1000 * scores.max())
    assert (after.positive.sum(), after.total.sum(), after.rows) == (100_000, 200_000, 200_000)


def test_merging_evidence_of_two_kinds_gives_mixed() -> None:
    scores = sample_scores(100_000, 0, "normal")
    ones = np.ones(len(scores))
    first, second = cr.SummaryBuilder(), cr.SummaryBuilder()
    first.update(scores, cr.naive(ones))
    second.update(scores, cr.ips(ones, 0.5 * ones))
    first.merge(second)
    assert first.summary().kind == "mixed"
    assert first.summary().positive.sum() == pytest.approx(300_000)


def test_builders_of_bins_and_of_distinct_scores_are_merged() -> None:
    scores = sample_scores(100_000, 0, "normal")
    bins, few = cr.SummaryBuilder(), cr.SummaryBuilder()
    bins.update(scores, np.zeros(len(scores)))
    few.update([0.5, 9.0], [1, 0])
    bins.merge(few)
    bins.merge(cr.SummaryBuilder())
    merged = bins.summary()
    assert (merged.rows, merged.high, merged.positive.sum()) == (100_002, 9.0, 1)
    few.merge(bins)
    assert (few.summary().rows, few.summary().total.sum()) == (100_004, 100_004)
