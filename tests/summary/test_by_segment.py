"""Sums by segment: one pass in any order of rows, merging, saving, and the fits they lead to."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import calibrank as cr
from calibrank._internal import native
from calibrank._internal.npz import read_arrays, write_arrays
from calibrank._internal.segment_keys import encode
from calibrank.evidence import Evidence, naive
from calibrank.summary import _cells
from calibrank.summary.by_segment import SegmentSums, bin_edges
from calibrank.terms._modes import SegmentProblem
from calibrank.terms._shrinkage import common_slope, shrunk_changes
from calibrank.terms.level import fit_levels

ROWS = 60_000


@pytest.fixture(scope="module")
def world() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores with heavy tails, labels and 40 segments of unequal size, slope and intercept."""
    rng = np.random.default_rng(0)
    shares = 1 / np.arange(1, 41)
    segment = rng.choice(40, ROWS, p=shares / shares.sum())
    taste = rng.normal(size=ROWS)
    slope = np.exp(rng.normal(0, 0.2, 40))[segment]
    z = 1.2 * slope * taste - 2 + rng.normal(0, 0.7, 40)[segment]
    labels = (rng.random(ROWS) < 1 / (1 + np.exp(-z))).astype(float)
    return np.sinh(2 * taste), labels, segment


def added(world: tuple[np.ndarray, ...], *parts: np.ndarray, edges: object = None) -> SegmentSums:
    """The sums of some rows, one batch after the other."""
    scores, labels, segment = world
    sums = SegmentSums(edges)
    for rows in parts:
        sums.add(scores[rows], naive(labels[rows]), [encode("g", segment[rows])])
    return sums


def batches(order: np.ndarray) -> list[np.ndarray]:
    return np.array_split(order, 12)


ORDERS = {
    "as they come": lambda world: np.arange(len(world[0])),
    "sorted by score": lambda world: np.argsort(world[0]),
    "sorted by segment": lambda world: np.argsort(world[2], kind="stable"),
}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("order", ORDERS)
def test_one_pass_leads_to_the_fit_on_all_rows(
    world: tuple[np.ndarray, ...], order: str, workers: int
) -> None:
    """Against the same model without bins: each row a cell, at its own log odds."""
    scores, labels, segment = world
    parts = batches(ORDERS[order](world))
    sums = added(world, *parts[::workers])
    if workers == 2:
        sums.merge(added(world, *parts[1::2]))
    fitted = cr.Spline(knots=8).fit(scores, labels)
    grouped = fit_levels(fitted, sums, cr.Level("g"))

    rows = np.argsort(segment, kind="stable")
    z = fitted.log_odds(scores[rows])
    center = z.mean()
    starts = np.append(0, np.cumsum(np.bincount(segment)))
    problem = SegmentProblem(labels[rows], np.ones(ROWS), z, z - center, starts, np.ones(40))
    # The slope of the curve becomes that within levels.
    slope = common_slope(problem, 0.0, with_slopes=True)
    problem = replace(problem, offset=z + slope * (z - center), x=(1 + slope) * (z - center))
    exact = shrunk_changes(problem, with_slopes=True, with_mean=True)
    at = np.quantile(scores, [0.05, 0.5, 0.95])
    z = fitted.log_odds(at)
    z += slope * (z - center)
    differences = []
    for number in range(40):
        change = exact.intercepts[number] + exact.slopes[number] * (z - center)
        found = grouped.log_odds(at, {"g": [str(number)] * 3})
        differences.append(np.abs(found - (z + change)))
    # Standard errors are 0.02 to 0.16, at the middle score.
    assert np.mean(differences) < 0.01
    assert np.max(differences) < 0.05
    assert (np.array(differences)[:, 1] < 0.25 * exact.errors).all()
    (term,) = grouped.terms
    errors = dict(zip(term.keys, term.errors, strict=True))
    expected = [errors[(str(number),)] for number in range(40)]
    np.testing.assert_allclose(expected, exact.errors, rtol=0.02)


def test_with_the_same_edges_any_partition_gives_the_same_sums(
    world: tuple[np.ndarray, ...],
) -> None:
    edges = bin_edges(cr.Summary.of(*world[:2]))
    whole = added(world, np.arange(ROWS), edges=edges)
    first = added(world, np.arange(7), edges=edges)
    rest = added(world, np.arange(7, ROWS), edges=edges)
    parts = first + rest
    order = [parts.keys.index(key) for key in whole.keys]
    np.testing.assert_allclose(parts.by_bin[:, order], whole.by_bin)
    np.testing.assert_allclose(parts.by_segment[:, order], whole.by_segment)
    # The sum is new: what it was made of stays.
    assert first.by_segment[2].sum() == 7
    np.testing.assert_array_equal((SegmentSums() + whole).by_bin, whole.by_bin)


@pytest.mark.parametrize("edges", [True, False], ids=["given edges", "edges of the rows"])
def test_totals_survive_every_change_of_edges(world: tuple[np.ndarray, ...], edges: bool) -> None:
    scores, labels, segment = world
    parts = batches(np.argsort(scores))
    first = np.array([0.0]) if edges else None
    sums = added(world, *parts[::2], edges=first) + added(world, *parts[1::2])
    order = [sums.keys.index((str(number),)) for number in range(40)]
    by_segment = sums.by_bin.sum(axis=2)[:, order]
    np.testing.assert_allclose(by_segment[0], np.bincount(segment, labels))
    np.testing.assert_allclose(by_segment[1], np.bincount(segment))
    np.testing.assert_allclose(by_segment[2], np.bincount(segment, scores), rtol=1e-9)
    np.testing.assert_array_equal(sums.by_segment[2, order], np.bincount(segment))


def weighted(labels: np.ndarray) -> Evidence:
    weights = np.random.default_rng(1).uniform(0.5, 2, len(labels))
    return naive(labels, weights=weights)


EVIDENCE = {
    "labels": naive,
    "small integers": lambda labels: naive(labels.astype(np.int8)),
    "weights": weighted,
    "propensities": lambda labels: cr.ips(labels, np.linspace(0.1, 1, len(labels))),
}


@pytest.mark.skipif(not native.READY, reason="calibrank was installed without a C compiler")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", EVIDENCE)
def test_the_c_loop_and_numpy_give_the_same_sums(
    world: tuple[np.ndarray, ...], kind: str, dtype: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores, labels, segment = world
    names = np.where(segment == 3, None, segment.astype(str).astype(object))
    column = encode("g", names)
    edges = bin_edges(cr.Summary.of(scores, labels))

    def sums() -> SegmentSums:
        result = SegmentSums(edges)
        # Rows without weights first: their squares follow from the cells.
        result.add(scores.astype(dtype), naive(labels), [column])
        result.add(scores.astype(dtype), EVIDENCE[kind](labels), [column])
        return result

    compiled = sums()
    cells = compiled.cells.occupied()
    monkeypatch.setattr(native, "READY", False)
    plain = sums()
    assert plain.keys == compiled.keys
    assert ("3",) not in plain.keys
    np.testing.assert_allclose(compiled.by_bin, plain.by_bin, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(compiled.by_segment, plain.by_segment, rtol=1e-9)
    for mine, expected in zip(cells, plain.cells.occupied(), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-9, atol=1e-9)


BIN_EDGES = {
    "evenly spread": np.linspace(-3, 3, 63),
    "most of them close together": np.sinh(np.linspace(-40, 40, 63)),
    "far from zero": 1e6 + np.arange(20.0),
    "neighbouring numbers": np.array([1.0, np.nextafter(1, 2)]),
    "tiny": np.array([-1e-300, 0.0, 1e-300]),
    "one": np.array([0.25]),
    "none": np.empty(0),
}


@pytest.mark.skipif(not native.READY, reason="calibrank was installed without a C compiler")
@pytest.mark.parametrize("edges", BIN_EDGES.values(), ids=BIN_EDGES)
def test_the_c_loop_finds_the_bin_of_every_score(edges: np.ndarray) -> None:
    """Scores at and around each edge, far outside of all, and in between."""
    around = [edges, np.nextafter(edges, -np.inf), np.nextafter(edges, np.inf)]
    between = np.random.default_rng(0).uniform(edges.min(initial=0), edges.max(initial=1), 3000)
    scores = np.concatenate([*around, between, [-1e30, 1e30, 0.0]])
    sums = SegmentSums(edges)
    sums.add(scores, naive(np.zeros(len(scores))), [encode("g", np.zeros(len(scores), int))])
    expected = np.bincount(np.searchsorted(edges, scores, side="right"), minlength=len(edges) + 1)
    np.testing.assert_array_equal(sums.by_bin[1][0], expected)


def test_saved_sums_are_read_back_and_can_be_added(
    world: tuple[np.ndarray, ...], tmp_path: Path
) -> None:
    scores, labels, segment = world
    sums = SegmentSums()
    columns = [encode("g", [f"é{number % 3}" for number in segment]), encode("h", segment)]
    sums.add(scores, weighted(labels), columns)
    sums.save(tmp_path / "monday.npz")
    loaded = SegmentSums.load(tmp_path / "monday.npz")
    assert loaded.keys == sums.keys
    np.testing.assert_array_equal(loaded.by_bin, sums.by_bin)
    np.testing.assert_array_equal(loaded.by_segment, sums.by_segment)
    np.testing.assert_allclose((loaded + sums).by_bin[1], 2 * sums.by_bin[1])


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("edges", lambda edges: edges[::-1], "increasing order"),
        ("edges", lambda edges: np.append(edges, 1e9), "64 edges"),
        ("places", lambda places: places + 64, "out of range"),
        ("by_bin", lambda masses: -masses, "negative"),
        ("by_segment", lambda squares: squares[1:], "shape"),
        ("by_segment", lambda squares: squares * np.nan, "not finite"),
        ("version", lambda version: version + 1, "its version is 4"),
    ],
)
def test_files_that_no_sums_could_have_are_refused(
    world: tuple[np.ndarray, ...], tmp_path: Path, name: str, change: object, message: str
) -> None:
    file = tmp_path / "sums.npz"
    added(world, np.arange(ROWS)).save(file)
    arrays = read_arrays(file, 2**30)
    write_arrays(file, {**arrays, name: change(arrays[name])})
    with pytest.raises(cr.DataError, match=message):
        SegmentSums.load(file)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(cr.DataError, match="no such file"):
        SegmentSums.load(tmp_path / "none.npz")


def test_weighted_sums_are_added_to_sums_of_rows_and_the_other_way_around() -> None:
    scores, names = np.array([0.2, 0.7, 0.4]), ["NL", "DE", "NL"]
    labels, weights = np.array([1.0, 0.0, 1.0]), np.array([3.0, 0.5, 2.0])
    edges = np.array([0.5])
    rows, weighted, together = SegmentSums(edges), SegmentSums(edges), SegmentSums(edges)
    heavy = Evidence.trusted(weights * labels, weights, "naive")
    for sums in (rows, together):
        sums.add(scores, naive(labels), [encode("g", names)])
    for sums in (weighted, together):
        sums.add(scores, heavy, [encode("g", names)])
    for found in (rows + weighted, weighted + rows):
        np.testing.assert_array_equal(found.by_bin[1], together.by_bin[1])
        np.testing.assert_array_equal(found.by_segment, together.by_segment)


@pytest.mark.skipif(not native.READY, reason="calibrank was installed without a C compiler")
@pytest.mark.parametrize("weighted", [False, True])
def test_threads_find_the_same_cells_with_rows(
    monkeypatch: pytest.MonkeyPatch, weighted: bool
) -> None:
    scores = np.arange(40.0)
    segment = np.arange(40) * 7 % 11
    weights = np.arange(1.0, 41.0) if weighted else None
    sums = SegmentSums(np.array([9.5, 19.5, 29.5]))
    sums.add(scores, naive(np.arange(40) % 3 == 0, weights=weights), [encode("g", segment)])
    alone = sums.cells.occupied()
    assert alone.starts[-1] == len(np.unique(10 * segment + np.arange(40) // 10))
    assert alone.total.sum() == (40 if weights is None else weights.sum())
    monkeypatch.setenv("CALIBRANK_THREADS", "3")
    monkeypatch.setattr(_cells, "_SEGMENTS_PER_THREAD", 10)
    for one, several in zip(alone, sums.cells.occupied(), strict=True):
        np.testing.assert_array_equal(one, several)


def test_missing_values_have_the_number_that_stands_for_none() -> None:
    sums = SegmentSums()
    codes, numbers = sums._numbered([encode("g", ["a", None, "b", "a"])])
    assert numbers[codes].tolist() == [0, -1, 1, 0]


@pytest.mark.parametrize("dtype", [np.float16, np.int64])
def test_scores_of_other_types_are_summed_as_doubles(dtype: type) -> None:
    sums = SegmentSums(np.array([1.5]))
    sums.add(np.arange(4).astype(dtype), naive([0, 1, 0, 1]), [encode("g", ["a", "b", "a", "b"])])
    assert sums.by_bin[:, 0].tolist() == [[0, 0], [1, 1], [0, 2]]
    assert sums.by_bin[:, 1].tolist() == [[1, 1], [1, 1], [1, 3]]


def test_the_builtin_sum_adds_sums(world: tuple[np.ndarray, ...]) -> None:
    edges = np.array([0.0, 1.0])
    first, second = np.arange(0, 500), np.arange(500, 900)
    parts = [added(world, rows, edges=edges) for rows in (first, second)]
    total = sum(parts)
    assert isinstance(total, SegmentSums)
    np.testing.assert_allclose(
        total.by_bin.sum((0, 1)), added(world, first, second, edges=edges).by_bin.sum((0, 1))
    )
    alone = sum(parts[:1])
    alone.merge(parts[1])
    assert parts[0].by_bin.sum() < alone.by_bin.sum()
    with pytest.raises(TypeError):
        1 + parts[0]
