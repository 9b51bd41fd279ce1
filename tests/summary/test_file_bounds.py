"""Saved summaries at the edge of each rule: what rounding explains is read, and no more."""

from collections.abc import Callable

import numpy as np
import pytest

import calibrank as cr
from calibrank._internal.npz import Arrays
from calibrank.summary.bins import Table
from calibrank.summary.grid import CAPACITY, MOST_DISTINCT, Grid, Placement

# Rows of the array of masses.
POSITIVE, TOTAL, POSITIVE_MOMENT, MOMENT, SECOND, POSITIVE_SQUARED, CROSS, TOTAL_SQUARED = range(8)
Edit = Callable[[Arrays], None]


def exact() -> Arrays:
    """Three distinct scores of one row each."""
    return cr.Summary.of([0.0, 1.0, 2.0], [0, 1, 1]).to_arrays()


def pooled(grid: Grid, scores: list[float]) -> Arrays:
    """Rows in the bins of a grid."""
    array = np.array(scores)
    low, high = array.min(), array.max()
    table = Table.of_offsets(grid, low - grid.origin, high - grid.origin)
    table.pool(array, cr.naive(np.arange(len(array)) % 2))
    return cr.Summary.of_table(table, low, high, len(array), "naive").to_arrays()


GRID = Grid(3, 4)
FAR = Grid(3, 4, Placement(100.0, 20))


def plus(place: tuple[int, int], change: float) -> Edit:
    def edit(arrays: Arrays) -> None:
        arrays["masses"][place] += change

    return edit


def put(name: str, value: object) -> Edit:
    def edit(arrays: Arrays) -> None:
        arrays[name] = np.asarray(value)

    return edit


def scale_scores(factor: float) -> Edit:
    """The summary of other units: moments and second moments with their scores."""

    def edit(arrays: Arrays) -> None:
        for name in ("scores", "low", "high"):
            arrays[name] = arrays[name] * factor
        arrays["masses"][[POSITIVE_MOMENT, MOMENT]] *= factor
        arrays["masses"][SECOND] *= factor**2

    return edit


def test_an_unchanged_summary_is_read_as_it_was() -> None:
    for arrays in (exact(), pooled(GRID, [-4.0, 0.1, 0.11, 5.0]), pooled(FAR, [99.0, 101.5])):
        again = cr.Summary.of_arrays(arrays).to_arrays()
        assert set(again) == set(arrays)
        for name, values in arrays.items():
            np.testing.assert_array_equal(again[name], values)


# The scores are 0, 1 and 2 with a total of 1 each; rounding is 1e-9 of a total, times the largest
# score, 2, for a moment and its square for a second moment.
@pytest.mark.parametrize(
    "edit",
    [
        plus((POSITIVE, 0), -0.9e-9),
        plus((POSITIVE_MOMENT, 1), 1.0),
        plus((POSITIVE_MOMENT, 1), -3.0),
        plus((POSITIVE_MOMENT, 0), 1.9e-9),
        plus((MOMENT, 1), 1.5e-9),
        plus((MOMENT, 1), -1.5e-9),
        plus((SECOND, 0), 3.5e-9),
        plus((SECOND, 1), -3.5e-9),
        plus((POSITIVE_SQUARED, 0), -0.9e-9),
        plus((CROSS, 0), -0.9e-9),
        plus((TOTAL_SQUARED, 0), -1.0),
        put("rows", 3),
        put("rows", 10**12),
        put("kind", "x" * 200),
        put("kind", "é"),
        scale_scores(5e29),
        scale_scores(1e-300),
    ],
)
def test_the_edge_of_a_rule_is_read(edit: Edit) -> None:
    arrays = exact()
    edit(arrays)
    cr.Summary.of_arrays(arrays)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (plus((POSITIVE, 0), -1.1e-9), "positive is negative"),
        (plus((POSITIVE_MOMENT, 1), 1.00001), "positive_moment is too large"),
        (plus((POSITIVE_MOMENT, 1), -3.00001), "positive_moment is too large"),
        (plus((POSITIVE_MOMENT, 0), 2.1e-9), "positive_moment is too large"),
        (plus((MOMENT, 1), 2.5e-9), "moment does not match"),
        (plus((MOMENT, 1), -2.5e-9), "moment does not match"),
        (plus((SECOND, 0), 4.5e-9), "second_moment does not match"),
        (plus((SECOND, 1), -4.5e-9), "second_moment is too small"),
        (plus((SECOND, 2), 1e-7), "second_moment is too large"),
        (plus((SECOND, 1), 3.1), "second_moment is too large"),
        (plus((POSITIVE_SQUARED, 0), -1.1e-9), "positive_squared is negative"),
        (plus((CROSS, 0), -1.1e-9), "cross is negative"),
        (plus((TOTAL_SQUARED, 0), -1.1), "total_squared is negative"),
        (plus((TOTAL_SQUARED, 0), np.nan), "total_squared is not finite"),
        (plus((CROSS, 2), np.inf), "cross is not finite"),
        (put("rows", 2), "2 rows are in 3 bins"),
        (put("kind", "x" * 201), "kind is not a name"),
        (put("kind", ""), "kind is not a name"),
        (put("kind", ["naive"]), "kind is not a text"),
        (put("kind", b"naive"), "kind is not a text"),
        (put("high", 3.0), "low and high do not match"),
        (put("low", -1.0), "low and high do not match"),
        (put("high", 1.5), r"scores lie outside \[low, high\]"),
        (put("high", np.inf), "low and high are not scores"),
        (put("low", -2e30), "low and high are not scores"),
        (put("scores", [1.0, 1.0, 2.0]), "moment does not match"),
        (put("keys", np.array([1, 2, 3])), "there are keys without a grid"),
        (put("keys", np.zeros((0, 1), dtype=np.int64)), "keys has 2 dimensions, not 1"),
        (put("masses", np.zeros((8, 2))), r"masses have the shape \(8, 2\)"),
        (put("masses", np.zeros((7, 3))), r"masses have the shape \(7, 3\)"),
        (put("scores", np.zeros(MOST_DISTINCT + 1)), "it has 1,048,577 bins"),
        (put("version", 3), "its version is 3, upgrade calibrank"),
        (put("version", 1), "its version is 1, and 2 is needed"),
        (put("version", [2]), "version has 1 dimensions, not 0"),
        (put("low", np.float32(0)), "low is of type float32"),
        (scale_scores(5.1e29), "scores are not finite and within"),
    ],
)
def test_beyond_the_edge_is_refused(edit: Edit, message: str) -> None:
    arrays = exact()
    edit(arrays)
    with pytest.raises(ValueError, match=message):
        cr.Summary.of_arrays(arrays)


# Scores 0, 1.5 and 3 of weight 3: 3e-9 for a mass, 9e-9 for a moment or a square of masses, and
# 2.7e-8 for a second moment.
@pytest.mark.parametrize(
    ("row", "read", "refused"),
    [
        (MOMENT, 8e-9, 1e-8),
        (MOMENT, -8e-9, -1e-8),
        (SECOND, 2.6e-8, 2.9e-8),
        (SECOND, -2.6e-8, -2.9e-8),
        (CROSS, -8e-9, -1e-8),
        (POSITIVE_SQUARED, -8e-9, -1e-8),
        (POSITIVE, -2.9e-9, -3.1e-9),
        (POSITIVE_MOMENT, 8.9e-9, 9.1e-9),
    ],
)
def test_rounding_is_relative_to_masses_and_scores(row: int, read: float, refused: float) -> None:
    heavy = cr.Summary.of([0.0, 1.5, 3.0], cr.naive([0, 0, 1], weights=[3, 3, 3]))
    place = 1 if row in (MOMENT, SECOND) else 0
    arrays = heavy.to_arrays()
    arrays["masses"][row, place] += read
    cr.Summary.of_arrays(arrays)
    arrays = heavy.to_arrays()
    arrays["masses"][row, place] += refused
    with pytest.raises(ValueError, match=r"negative|match|too"):
        cr.Summary.of_arrays(arrays)


@pytest.mark.parametrize("scores", [[99.0, 101.5], [90.0, 99.0], [101.0, 104.0]])
def test_moments_are_of_offsets_from_the_origin(scores: list[float]) -> None:
    arrays = pooled(Grid(4, 4, Placement(100.0, 20)), [*scores, scores[1] - 1e-3])
    cr.Summary.of_arrays(arrays)
    # No moment is larger than a mass at the origin would be, for sums that were moved there.
    arrays["masses"][POSITIVE_MOMENT, -1] = 101.0 * arrays["masses"][POSITIVE, -1]
    with pytest.raises(ValueError, match="positive_moment is too large"):
        cr.Summary.of_arrays(arrays)
    arrays["masses"][POSITIVE_MOMENT, -1] = 99.0 * arrays["masses"][POSITIVE, -1]
    cr.Summary.of_arrays(arrays)


def test_distinct_scores_are_in_order() -> None:
    arrays = exact()
    for name in ("scores", "masses"):
        arrays[name] = arrays[name][..., [0, 0, 2]]
    with pytest.raises(ValueError, match="scores are not in increasing order"):
        cr.Summary.of_arrays(arrays)


@pytest.mark.parametrize("top", [-1075.0, 1024.0])
@pytest.mark.parametrize("bits", [0.0, 52.0])
@pytest.mark.parametrize("octaves", [0.0, 2046.0])
def test_grids_at_their_bounds_are_known(top: float, bits: float, octaves: float) -> None:
    """They do not fit the scores, which is checked after the grid itself."""
    arrays = exact()
    arrays["grid"] = np.array([top, bits, 0.0, octaves])
    with pytest.raises(ValueError, match="there is not one key per bin"):
        cr.Summary.of_arrays(arrays)


@pytest.mark.parametrize("origin", [-1e30, 1e30])
def test_origins_as_far_as_scores_are_known(origin: float) -> None:
    """The moments are not those of offsets from there, which is checked after the grid itself."""
    arrays = exact()
    arrays["grid"] = np.array([3.0, 4.0, origin, 31.0])
    with pytest.raises(ValueError, match="moment does not match the scores"):
        cr.Summary.of_arrays(arrays)


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ([-1076.0, 4, 0, 31], r"grid ends at 2\*\*-1076"),
        ([1025.0, 4, 0, 31], r"grid ends at 2\*\*1025"),
        ([3.0, -1, 0, 31], "grid keeps -1 bits"),
        ([3.0, 53, 0, 31], "grid keeps 53 bits"),
        ([3.0, 4, 0, -1], "grid has -1 octaves"),
        ([3.0, 4, 0, 2047], "grid has 2047 octaves"),
        ([3.0, 4, 1.1e30, 31], "the origin of the grid is 1.1e"),
        ([3.0, 4, -1.1e30, 31], "the origin of the grid is -1.1e"),
        ([3.5, 4, 0, 31], "the grid's top is 3.5, not a whole number"),
        ([3.0, 4, 0, 31.5], "the grid's octaves is 31.5, not a whole number"),
        ([3.0, 4, np.inf, 31], "grid is not finite"),
        ([3.0, 4, 0, 31, 5], "grid has 5 numbers, not 4"),
    ],
)
def test_other_grids_are_refused(grid: list[float], message: str) -> None:
    arrays = exact()
    arrays["grid"] = np.array(grid)
    with pytest.raises(ValueError, match=message):
        cr.Summary.of_arrays(arrays)


def test_the_second_moment_of_a_bin_may_be_that_of_different_scores() -> None:
    arrays = pooled(GRID, [1.0, 1.01, 1.02, -3.0])
    assert len(arrays["scores"]) == 2
    cr.Summary.of_arrays(arrays)
    arrays["masses"][SECOND, 1] -= 1e-3
    with pytest.raises(ValueError, match="second_moment is too small"):
        cr.Summary.of_arrays(arrays)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (put("keys", np.arange(3)), "there is not one key per bin"),
        (lambda arrays: arrays["keys"].__setitem__(1, arrays["keys"][0]), "increasing order"),
        (lambda arrays: arrays["keys"].__isub__(1), r"keys lie outside \[low, high\]"),
        (lambda arrays: arrays["keys"].__iadd__(1), r"keys lie outside \[low, high\]"),
        (lambda arrays: arrays["keys"].__setitem__(1, arrays["keys"][1] + 1), "outside their bins"),
        (lambda arrays: arrays["keys"].__setitem__(1, arrays["keys"][1] - 1), "outside their bins"),
        (lambda arrays: arrays["keys"].__setitem__(2, arrays["keys"][2] + 1), "outside their bins"),
        (lambda arrays: arrays["keys"].__setitem__(2, arrays["keys"][2] - 1), "outside their bins"),
        (lambda arrays: arrays["grid"].__setitem__(0, 2), "scores reach beyond the grid, to 5"),
        (lambda arrays: arrays["grid"].__setitem__(1, 12), "the grid has"),
    ],
)
@pytest.mark.parametrize("origin", [0.0, 100.0])
def test_bins_are_those_of_their_scores(edit: Edit, message: str, origin: float) -> None:
    grid = Grid(3, 4, Placement(origin, 31))
    arrays = pooled(grid, [origin - 4.0, origin - 0.1, origin + 0.3, origin + 5.0])
    edit(arrays)
    with pytest.raises(ValueError, match=message):
        cr.Summary.of_arrays(arrays)


def test_means_at_the_ends_of_bins_may_be_rounded() -> None:
    """Inner and outer ends of a positive and of a negative bin, off by less than rounding."""
    for score in (4.0, -4.0):
        for error in (0.0, -1e-10, 1e-10):
            arrays = pooled(GRID, [score, 6.0, -6.0])
            place = int(np.flatnonzero(arrays["scores"] == score)[0])
            arrays["scores"][place] += error
            cr.Summary.of_arrays(arrays)
            arrays["scores"][place] = score - np.sign(score) * 1e-5
            with pytest.raises(ValueError, match="moment does not match"):
                cr.Summary.of_arrays(arrays)
            arrays["masses"][MOMENT, place] = arrays["scores"][place]
            arrays["masses"][SECOND, place] = arrays["scores"][place] ** 2
            with pytest.raises(ValueError, match="scores lie outside their bins"):
                cr.Summary.of_arrays(arrays)


def test_no_more_bins_than_the_capacity() -> None:
    # 33 intervals of 2**11 bins on one side: one interval too many, even if few bins are used.
    grid = Grid(3, 11)
    arrays = pooled(grid, [1.0, 7.9])
    cr.Summary.of_arrays(arrays)
    arrays = pooled(grid, [-7.9, 7.9])
    with pytest.raises(ValueError, match=r"the grid has [0-9,]+ bins"):
        cr.Summary.of_arrays(arrays)
    assert CAPACITY == 2**16


@pytest.mark.parametrize(("last", "is_read"), [(2**15 - 1, True), (2**15, False)])
def test_a_grid_of_as_many_bins_as_the_capacity_is_read(last: int, is_read: bool) -> None:
    grid = Grid(3, 11)
    ends = grid.inner_edges(np.array([-(2**15), last]))
    arrays = pooled(grid, ends.tolist())
    if is_read:
        assert cr.Summary.of_arrays(arrays).rows == 2
    else:
        with pytest.raises(ValueError, match="the grid has 65,537 bins"):
            cr.Summary.of_arrays(arrays)
