"""Laws of summaries and of the grid under them."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import calibrank as cr
from calibrank import _native
from calibrank.summary.bins import Masses, Table
from calibrank.summary.grid import CAPACITY, Grid

scores = st.floats(-1e30, 1e30, allow_subnormal=True)


def rows(count: int, seed: int, kind: str) -> np.ndarray:
    rng = np.random.default_rng(seed)
    shapes = {
        "normal": rng.normal(0, 1, count),
        "float32": rng.normal(0, 1, count).astype(np.float32),
        "narrow": 100 + rng.random(count),
        "heavy": rng.standard_cauchy(count),
        "lognormal": np.exp(rng.normal(0, 4, count)),
        "few": rng.integers(1, 6, count).astype(float),
    }
    return shapes[kind]


@given(low=scores, high=scores, inner=st.lists(st.floats(0, 1), min_size=2, max_size=20))
def test_grid_keeps_order_and_fits(low: float, high: float, inner: list[float]) -> None:
    low, high = min(low, high), max(low, high)
    grid = Grid.spanning(low, high)
    inside = np.sort(np.clip([low, high, *(low + t * (high - low) for t in inner)], low, high))
    keys = grid.keys(inside)
    assert (np.diff(keys) >= 0).all()
    assert keys[-1] - keys[0] < CAPACITY


@given(ends=st.lists(scores | st.floats(-1e-9, 2), min_size=4, max_size=4).map(sorted))
def test_a_wider_range_never_has_a_finer_grid(ends: list[float]) -> None:
    lowest, low, high, highest = ends
    assert Grid.spanning(lowest, highest).bits <= Grid.spanning(low, high).bits


def test_one_value_more_changes_no_bin_of_the_others() -> None:
    some = np.random.default_rng(0).random(300_000)
    some[10], some[-1] = -1e-12, 1.05
    whole, halves = cr.Summary.of(some, np.zeros(len(some))), (some[:150_000], some[150_000:])
    merged = cr.Summary.of(halves[0], np.zeros(150_000)) + cr.Summary.of(
        halves[1], np.zeros(150_000)
    )
    assert merged.grid == whole.grid
    np.testing.assert_array_equal(merged.keys, whole.keys)


@given(values=st.lists(scores, min_size=1, max_size=30), wider=st.floats(1, 1e6))
def test_grids_nest(values: list[float], wider: float) -> None:
    """A bin of a fine grid lies in one bin of a coarser one: its inner edge says which."""
    array = np.array(values)
    fine = Grid.spanning(array.min(), array.max())
    far = min(np.abs(array).max() * wider, 1e30)
    coarse = Grid.spanning(min(array.min(), -far), max(array.max(), far))
    np.testing.assert_array_equal(
        coarse.keys(fine.inner_edges(fine.keys(array))), coarse.keys(array)
    )
    np.testing.assert_array_equal(fine.keys(fine.inner_edges(fine.keys(array))), fine.keys(array))


@pytest.mark.parametrize("kind", ["normal", "float32", "narrow", "heavy", "lognormal", "few"])
@pytest.mark.parametrize("shards", [2, 5])
def test_any_split_and_order_gives_the_same_summary(kind: str, shards: int) -> None:
    array = rows(150_000, 1, kind)
    rng = np.random.default_rng(2)
    labels = (rng.random(len(array)) < 0.2).astype(float)
    propensity, weights = rng.uniform(0.1, 1, len(array)), rng.exponential(1, len(array))
    whole = cr.Summary.of(array, cr.ips(labels, propensity, weights=weights))
    homes = rng.integers(0, shards, len(array))
    parts = [
        cr.Summary.of(
            array[homes == k],
            cr.ips(labels[homes == k], propensity[homes == k], weights=weights[homes == k]),
        )
        for k in rng.permutation(shards)
    ]
    merged = parts[0]
    for part in parts[1:]:
        merged = merged + part
    same(merged, whole)


@pytest.mark.parametrize("kind", ["normal", "narrow", "heavy", "lognormal"])
def test_pooling_barely_moves_a_fit(kind: str) -> None:
    array = np.unique(rows(300_000, 3, kind))
    assert not cr.Summary.of(array, np.zeros(len(array))).exact
    middle, spread = np.median(array), np.subtract(*np.quantile(array, [0.75, 0.25]))
    truth = 1 / (1 + np.exp(-(np.arcsinh((array - middle) / spread) - 1)))
    labels = (np.random.default_rng(4).random(len(array)) < truth).astype(float)
    summary = cr.Summary.of(array, labels)
    exact = cr.Summary(
        array,
        _rowwise(array, labels),
        len(array),
        array[0],
        array[-1],
        "naive",
        None,
        np.empty(0, dtype=np.int64),
    )
    for method in (cr.Gaussian(), cr.Platt()):
        pooled, rowwise = method.fit_summary(summary), method.fit_summary(exact)
        for name, value in rowwise.parameters.items():
            assert abs(pooled.parameters[name] - value) < 1e-4 * rowwise.standard_errors[name]
        assert np.abs(pooled.predict(array) - rowwise.predict(array)).max() < 1e-7


def _rowwise(array: np.ndarray, labels: np.ndarray) -> Masses:
    ones = np.ones_like(array)
    return Masses(labels, ones, labels * array, array, labels, labels, ones)


def test_few_distinct_scores_stay_exact() -> None:
    array = rows(400_000, 5, "few")
    summary = cr.Summary.of(array, (array > 3).astype(float))
    assert summary.exact
    np.testing.assert_array_equal(summary.scores, [1, 2, 3, 4, 5])


@pytest.mark.parametrize("kind", ["normal", "float32", "narrow", "heavy", "lognormal", "few"])
def test_a_stream_of_batches_is_one_table(kind: str) -> None:
    array = rows(200_000, 6, kind)
    rng = np.random.default_rng(7)
    labels, weights = (rng.random(len(array)) < 0.2).astype(float), rng.exponential(1, len(array))
    builder = cr.SummaryBuilder()
    for start in range(0, len(array), 37_000):
        batch = slice(start, start + 37_000)
        builder.update(array[batch], cr.naive(labels[batch], weights=weights[batch]))
    same(builder.summary(), cr.Summary.of(array, cr.naive(labels, weights=weights)))


in_c = pytest.mark.skipif(not _native.READY, reason="calibrank was installed without a C compiler")


@in_c
@given(
    some=st.lists(
        scores | st.floats(-3, 3) | st.floats(-1e-300, 1e-300) | st.floats(-1e-36, 1e-36),
        min_size=1,
        max_size=30,
    ),
    number=st.sampled_from([np.float32, np.float64]),
    label=st.sampled_from([np.int8, np.bool_, np.int64, np.float32, np.float64]),
    weighted=st.booleans(),
    step=st.sampled_from([1, 2, -1]),
)
def test_any_row_falls_where_numpy_puts_it(some, number, label, weighted, step) -> None:
    array = np.array(some, dtype=number)[::step]
    labels = (np.arange(len(array)) % 3 == 0).astype(label)
    total = (
        np.linspace(0.5, 2, len(array)).astype(number)
        if weighted
        else np.broadcast_to(np.float64(1), len(array))
    )
    evidence = cr.Evidence.trusted(labels, total, "given")
    tables = [Table.spanning(float(array.min()), float(array.max())) for _ in range(2)]
    tables[0].pool_blocks(array, evidence)
    tables[1].pool(array, evidence)
    for mine, theirs in zip(tables[0].masses().columns, tables[1].masses().columns, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12, atol=1e-300)


@in_c
def test_nothing_is_written_beyond_a_table() -> None:
    table = Table.spanning(0.0, 1.0)
    with pytest.raises(AssertionError, match="outside the table"):
        table.pool(np.array([0.5, 2.0]), cr.naive([1, 0]))
    assert not table.every.any()


@in_c
def test_a_library_that_is_not_of_its_source_is_not_used(monkeypatch, tmp_path) -> None:
    assert _native.load_library() is not None
    for name, other in (
        ("SOURCE", tmp_path / "_native.c"),
        ("LIBRARY", Path(__file__)),
        ("LIBRARY", tmp_path / "none"),
    ):
        (tmp_path / "_native.c").write_text("newer")
        with monkeypatch.context() as patch:
            patch.setattr(_native, name, other)
            assert _native.load_library() is None


@pytest.mark.parametrize("kind", ["normal", "float32", "few"])
def test_builders_merge_with_builders_and_with_checkpoints(kind: str) -> None:
    array = rows(300_000, 3, kind)
    if kind != "few":  # the first two span the same octaves: their bins are added one by one
        array[[0, 1, 100_000, 100_001]] = [5, -5, 5, -5]
    labels = (np.random.default_rng(4).random(len(array)) < 0.2).astype(float)
    parts = [slice(0, 100_000), slice(100_000, 200_000), slice(200_000, None)]
    builders = [cr.SummaryBuilder() for _ in parts]
    for builder, part in zip(builders, parts, strict=True):
        builder.update(array[part], labels[part])
    builders[0].merge(builders[1])
    builders[0].merge(cr.SummaryBuilder())
    builders[0].merge(builders[2].summary())
    same(builders[0].summary(), cr.Summary.of(array, labels))


@in_c
@pytest.mark.parametrize("kind", ["normal", "float32", "narrow", "heavy", "lognormal"])
@pytest.mark.parametrize("weighted", [False, True])
def test_compiled_pooling_is_numpys(kind: str, weighted: bool) -> None:
    array = rows(100_000, 8, kind)
    rng = np.random.default_rng(9)
    labels, propensity = (
        (rng.random(len(array)) < 0.2).astype(float),
        rng.uniform(0.1, 1, len(array)),
    )
    evidence = cr.ips(
        labels, propensity, weights=rng.exponential(1, len(array)) if weighted else None
    )
    tables = [Table.spanning(float(array.min()), float(array.max())) for _ in range(2)]
    for pool in (tables[0].pool_blocks, tables[1].pool):
        pool(array, evidence)
        pool(array[:1000], evidence.rows(slice(0, 1000)))
    for mine, theirs in zip(tables[0].masses().columns, tables[1].masses().columns, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12, atol=1e-12 * np.abs(theirs).max())


@pytest.mark.parametrize("kind", ["normal", "few"])
def test_checkpoints_come_back_and_merge(kind: str, tmp_path: Path) -> None:
    array = rows(100_000, 10, kind)
    labels = (np.random.default_rng(0).random(len(array)) < 0.2).astype(float)
    first, second = (
        cr.Summary.of(array[part], labels[part]) for part in (slice(0, 60_000), slice(60_000, None))
    )
    first.save(tmp_path / "first.npz")
    same(cr.Summary.load(tmp_path / "first.npz") + second, cr.Summary.of(array, labels))
    damaged = (tmp_path / "first.npz").read_bytes()[:-200]
    (tmp_path / "damaged.npz").write_bytes(damaged)
    with pytest.raises(cr.DataError, match="must be a summary that calibrank saved"):
        cr.Summary.load(tmp_path / "damaged.npz")


def same(mine: cr.Summary, theirs: cr.Summary) -> None:
    assert (mine.rows, mine.low, mine.high, mine.grid) == (
        theirs.rows,
        theirs.low,
        theirs.high,
        theirs.grid,
    )
    np.testing.assert_allclose(mine.scores, theirs.scores, rtol=1e-12, atol=1e-300)
    for one, other in zip(mine.masses.columns, theirs.masses.columns, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


@in_c
def test_a_float32_table_of_millions_is_right_to_float32() -> None:
    scores = np.random.default_rng(0).normal(0, 2, 3_100_000).astype(np.float32)
    scores[:2] = [-40, 40]  # beyond the fitted range
    small = slice(0, 20_000)
    for method in (cr.Gaussian(), cr.Platt()):
        fitted = method.fit(
            np.arange(-5.0, 5.0, 0.01), (np.arange(1000) % 10 < np.arange(1000) / 100).astype(float)
        )
        assert (
            np.abs(fitted.predict(scores)[small] / fitted.predict(scores[small]) - 1).max() < 3e-6
        )
    wide = cr.Platt().fit(
        np.r_[-1e5, scores[:5_000]], np.r_[0, (np.arange(5_000) % 3 == 0)]
    )  # one wild score
    assert (
        np.abs(wide.predict(scores)[small] / wide.predict(scores[small].astype(float)) - 1).max()
        < 3e-6
    )
    scores[7] = np.nan
    with pytest.raises(cr.DataError, match="got nan at row 7"):
        fitted.predict(scores)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("pool", [Table.pool, Table.pool_blocks])
def test_zeros_of_both_signs_stay_at_their_end(sign, pool):
    """-0.0 and 0.0 have bins of their own: a table that ends at zero must hold both."""
    rng = np.random.default_rng(0)
    scores = (sign * rng.random(200_000)).astype(np.float32)
    scores[::3], scores[1::6] = 0.0, -0.0
    labels = cr.naive(np.ones(len(scores)))
    for first in (0.0, -0.0):
        scores[0] = first
        table = Table.spanning(float(scores.min()), float(scores.max()))
        pool(table, scores, labels)
        zeros = (
            np.abs(
                cr.Summary.of_table(
                    table, float(scores.min()), float(scores.max()), 1, "naive"
                ).scores
            )
            == 0
        )
        assert (
            table.masses().total[np.flatnonzero(table.every[:, 0])][zeros].sum()
            == (scores == 0).sum()
        )


def test_a_coarser_summary_stays_as_coarse_when_merged() -> None:
    some = rows(100_000, 0, "normal")
    table = Table.spanning(some.min(), some.max(), CAPACITY // 2)  # as a GPU makes it
    table.pool(some, cr.naive(np.zeros(len(some))))
    coarse = cr.Summary.of_table(table, some.min(), some.max(), len(some), "naive")
    merged = coarse + cr.Summary.of(some, np.zeros(len(some)))
    assert merged.bits == coarse.bits < cr.Summary.of(some, np.zeros(len(some))).bits
    np.testing.assert_array_equal(merged.keys, coarse.keys)
    np.testing.assert_array_equal(merged.total, 2 * coarse.total)
