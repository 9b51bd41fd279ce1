"""Where the bins of sums by segment lie, and when they move, by hand."""

from statistics import NormalDist

import numpy as np
import pytest
from scipy.special import logit

import calibrank as cr
from calibrank._internal.segment_keys import Encoded, encode
from calibrank.evidence import Evidence, naive
from calibrank.summary.by_segment import SegmentSums, _binned, _level, _spread_within, bin_edges

NORMAL = NormalDist()


def added(*batches: np.ndarray, edges: np.ndarray | None = None) -> SegmentSums:
    sums = SegmentSums(edges)
    for scores in batches:
        segments = [encode("g", np.arange(len(scores)) % 2)]
        sums.add(scores, naive(np.arange(len(scores)) % 3 == 0), segments)
    return sums


@pytest.mark.parametrize("z", [-1.0, 0.0, 0.5])
def test_edges_are_as_dense_as_those_of_a_wider_normal_distribution(z: float) -> None:
    assert _level(NORMAL.cdf(z)) == pytest.approx(NORMAL.cdf(np.sqrt(3) * z))


def test_edges_are_scores_at_these_levels_of_the_mass() -> None:
    summary = cr.Summary.of(np.arange(100.0), np.zeros(100))
    # Levels of 12.1%, 50% and 87.9%.
    assert bin_edges(summary, 4).tolist() == [12, 49, 87]
    heavy = cr.Summary.of([0.0, 1.0, 2.0], naive([0, 0, 0], weights=[1, 1, 98]))
    assert bin_edges(heavy, 4).tolist() == [2]
    assert len(bin_edges(cr.Summary.of(np.arange(1e4), np.zeros(10_000)))) == 63


def test_masses_are_summed_by_bin() -> None:
    found = _binned(np.array([1.5, 3.0]), np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 4.0]))
    assert found.shape == (2, 64)
    assert found[:, :3].tolist() == [[1, 2, 4], [1, 4, 12]]
    assert not found[:, 3:].any()


def test_the_spread_within_bins_is_that_of_logit_ranks() -> None:
    scores = np.array([0.0, 1.0, 1.0, 2.0, 5.0])
    masses = np.array([1.0, 2.0, 1.0, 3.0, 3.0])
    mass = np.array([1.0, 3.0, 3.0, 3.0])
    x = logit(np.array([0.05, 0.25, 0.55, 0.85]))
    middle = [(x[0] + 3 * x[1]) / 4] * 2 + [(x[2] + x[3]) / 2] * 2
    expected = (mass * (x - middle) ** 2).sum() / (mass * x**2).sum()
    assert _spread_within(np.array([2.0]), scores, masses) == pytest.approx(expected)
    assert _spread_within(np.array([1.0, 2.0, 3.0]), scores, masses) == pytest.approx(0)
    assert _spread_within(np.array([2.0]), np.ones(3), np.ones(3)) == 0.0


def test_edges_stay_while_batches_are_alike_and_move_with_others() -> None:
    first = np.linspace(0, 1, 500)
    alike = added(first, first[::-1] + 1e-3)
    np.testing.assert_array_equal(alike.edges, added(first).edges)
    moved = added(first, first + 1)
    assert moved.edges[-1] > 1.9
    # What was summed before moves with its mean score, and nothing is lost.
    assert moved.by_bin[1].sum() == 1000
    assert moved.by_bin[2].sum() == pytest.approx(first.sum() + (first + 1).sum())
    given = added(first, first + 1, edges=np.array([0.5]))
    assert given.edges.tolist() == [0.5]


def test_edges_stay_where_no_others_would_be_better() -> None:
    first = np.linspace(0, 1, 500)
    same = added(first, np.full(20_000, 0.5))
    np.testing.assert_array_equal(same.edges, added(first).edges)


def test_rows_without_weight_place_no_bins() -> None:
    sums = SegmentSums()
    assert not len(sums.edges)
    scores = np.arange(10.0)
    nothing = Evidence.trusted(np.zeros(10), np.zeros(10), "naive")
    sums.place_bins(scores, nothing)
    assert not len(sums.edges)
    sums.place_bins(scores, naive(np.zeros(10)))
    assert len(sums.edges)
    assert sums.edges.tolist() == bin_edges(cr.Summary.of(scores, np.zeros(10))).tolist()
    other = SegmentSums()
    other.edges = np.array([3.0])
    assert other.edges.tolist() == [3.0]


@pytest.mark.parametrize("squared", [False, True])
def test_cells_of_another_engine_are_summed_by_key(squared: bool) -> None:
    keys = [("a",), (), ("b",), ("a",)]
    places, bins = np.array([0, 1, 2, 3, 3]), np.array([0, 1, 1, 0, 2])
    masses = [np.array([1.0, 9.0, 2.0, 3.0, 4.0]), np.arange(5.0) + 5, np.arange(5.0) - 1]
    squares = [np.arange(5.0), np.arange(5.0) * 2, np.arange(5.0) + 1] if squared else None
    edges = np.array([0.5, 1.5])
    sums = SegmentSums.of_cells(edges, keys, places, bins, masses, squares)
    assert sums.keys == [("a",), ("b",)]
    assert sums.edges is edges
    assert sums.by_bin[0].tolist() == [[4, 0, 4], [0, 2, 0]]
    assert sums.by_bin[1].tolist() == [[5 + 8, 0, 9], [0, 7, 0]]
    assert sums.by_bin[2].tolist() == [[-1 + 2, 0, 3], [0, 1, 0]]
    assert sums.cells.is_weighted is squared
    expected = [[7, 2], [14, 4], [10, 3]] if squared else [[8, 2], [22, 7], [22, 7]]
    assert sums.by_segment.tolist() == expected


def test_a_growing_list_of_values_is_numbered_once() -> None:
    sums = SegmentSums(np.array([0.5]))
    values: list[str | None] = ["a", None]
    for codes in ([0, 1], [0, 2], [2, 3]):
        sums.add(np.zeros(2), naive([0, 1]), [Encoded(np.array(codes), values)])
        values += [f"new {len(values)}"]
    assert sums.keys == [("a",), ("new 2",), ("new 3",)]
    assert sums.by_bin[1][:, 0].tolist() == [2, 2, 1]
    # Another list has numbers of its own.
    sums.add(np.zeros(1), naive([1]), [Encoded(np.array([0]), ["new 3"])])
    assert sums.by_bin[1][:, 0].tolist() == [2, 2, 2]
