"""Sums by segment against a plain loop over the rows, whatever happened to the sums before."""

import numpy as np
import pytest

import calibrank as cr
from calibrank._internal import native
from calibrank._internal.segment_keys import encode
from calibrank.evidence import Evidence
from calibrank.summary import _cells
from calibrank.summary.by_segment import SegmentSums

EDGES = np.array([2.5, 5.5, 8.5])
Batch = tuple[np.ndarray, Evidence, np.ndarray]
KINDS = ("rows", "weights", "propensities", "negatives")


def batch(kind: str, seed: int) -> Batch:
    """Rows with whole scores, and segments of which later batches have other ones."""
    rng = np.random.default_rng(seed)
    rows = 60
    labels = (rng.random(rows) < 0.4).astype(float)
    evidence = {
        "rows": lambda: cr.naive(labels),
        "weights": lambda: cr.naive(labels, weights=rng.integers(1, 5, rows).astype(float)),
        "propensities": lambda: cr.ips(labels, 0.5 ** rng.integers(0, 3, rows)),
        "negatives": lambda: Evidence.trusted(
            np.zeros(rows), np.ones(rows), "ips", unit_weights=True
        ),
    }[kind]()
    segment = np.char.add("s", (rng.integers(0, 3, rows) + 2 * seed).astype(str)).astype(object)
    segment[rng.random(rows) < 0.1] = None
    return rng.integers(0, 11, rows).astype(float), evidence, segment


def looped(batches: list[Batch]) -> dict[str, np.ndarray]:
    """By segment: positive, total and moment of each bin, and three sums of squares at the end."""
    found: dict[str, np.ndarray] = {}
    for scores, evidence, segment in batches:
        for score, positive, total, key in zip(
            scores, evidence.positive, evidence.total, segment, strict=True
        ):
            if key is None:
                continue
            sums = found.setdefault(key, np.zeros((5, 3)))
            sums[np.searchsorted(EDGES, score, side="right")] += [positive, total, total * score]
            sums[4] += [positive**2, total**2, 1]
    return found


def check(sums: SegmentSums, batches: list[Batch]) -> None:
    expected = looped(batches)
    assert {key[0] for key in sums.keys} == set(expected)
    occupied = sums.cells.occupied()
    cells = []
    for place, (key,) in enumerate(sums.keys):
        by_bin = expected[key][:4]
        np.testing.assert_allclose(sums.by_segment[:, place], expected[key][4])
        filled = by_bin[by_bin[:, 1] > 0]
        cells += [[positive, total, moment / total] for positive, total, moment in filled]
        assert occupied.starts[place + 1] - occupied.starts[place] == len(filled)
    np.testing.assert_allclose(np.array(occupied[:3]).T, cells)


@pytest.fixture(params=["numpy", "C", "threads", "full counts"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ways to sum: in threads, and where counts would overflow in the third batch."""
    if request.param != "numpy" and not native.READY:
        pytest.skip("calibrank was installed without a C compiler")
    monkeypatch.setenv("CALIBRANK_THREADS", "3" if request.param == "threads" else "1")
    if request.param == "numpy":
        monkeypatch.setattr(native, "READY", False)
    if request.param == "threads":
        monkeypatch.setattr(_cells, "_ROWS_PER_CELL", 0)
    if request.param == "full counts":
        monkeypatch.setattr(_cells, "_MOST_COUNTED", 180)


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("looks", [False, True], ids=["at the end", "after each batch"])
@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("second", KINDS)
def test_batches_of_any_kind_add_up(first: str, second: str, looks: bool) -> None:
    sums = SegmentSums(EDGES)
    batches = []
    for seed, kind in enumerate([first, second, first, first]):
        batches.append(batch(kind, seed))
        scores, evidence, segment = batches[-1]
        sums.add(scores, evidence, [encode("g", segment)])
        if looks:
            check(sums, batches)
    check(sums, batches)
    expected = looped(batches)
    for place, (key,) in enumerate(sums.keys):
        np.testing.assert_allclose(sums.by_bin[:, place].T, expected[key][:4])


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("second", KINDS)
def test_sums_of_any_kind_are_merged(first: str, second: str) -> None:
    batches = [batch(first, 0), batch(second, 1)]
    parts = []
    for scores, evidence, segment in batches:
        parts.append(SegmentSums(EDGES, kind="mixed"))
        parts[-1].add(scores, evidence, [encode("g", segment)])
    check(parts[0] + parts[1], batches)
    check(parts[1] + parts[0] + parts[1], [*batches, batches[1]])
    check(parts[0], batches[:1])
    together = parts[0] + parts[1]
    rows = np.array([2, 0, 1])
    merged = together.merged(rows, np.array([0, 1, 0]))
    np.testing.assert_allclose(merged.by_bin[:, 0], together.by_bin[:, [2, 1]].sum(axis=1))
    np.testing.assert_allclose(merged.by_bin[:, 1], together.by_bin[:, 0])
    np.testing.assert_allclose(merged.by_segment[:, 0], together.by_segment[:, 1:3].sum(axis=1))


@pytest.mark.usefixtures("engine")
def test_cells_move_to_other_edges_with_their_mean_score() -> None:
    batches = [batch("weights", 0)]
    scores, evidence, segment = batches[0]
    sums = SegmentSums(EDGES)
    sums.add(scores, evidence, [encode("g", segment)])
    before = sums.by_bin.copy()
    squares = sums.by_segment.copy()
    moved = SegmentSums(np.array([4.0]))
    moved.merge(sums)
    for place in range(len(sums.keys)):
        means = before[2, place] / np.maximum(before[1, place], 1)
        for side, inside in enumerate([means < 4, means >= 4]):
            expected = before[:, place][:, inside].sum(axis=1)
            np.testing.assert_allclose(moved.by_bin[:, place, side], expected)
    np.testing.assert_allclose(moved.by_segment, squares)
