"""Tables of bins: every way to pool rows gives the same sums."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import calibrank as cr
from calibrank._internal import native
from calibrank.summary.bins import Table, pool_bins
from tests.members import sample_scores

needs_library = pytest.mark.skipif(
    not native.READY, reason="calibrank was installed without a C compiler"
)
pools = pytest.mark.parametrize("pool", [Table.pool, Table.pool_with_numpy])

Pool = Callable[[Table, np.ndarray, cr.Evidence], None]


def table_of(scores: np.ndarray) -> Table:
    return Table.spanning(float(scores.min()), float(scores.max()))


def assert_same_sums(actual: Table, expected: Table, atol: float = 1e-300) -> None:
    pairs = zip(actual.masses(), expected.masses(), strict=True)
    for mine, theirs in pairs:
        tolerance = max(atol * np.abs(theirs).max(), 1e-300)
        np.testing.assert_allclose(mine, theirs, rtol=1e-12, atol=tolerance)


@needs_library
@given(
    values=st.lists(
        st.floats(-1e30, 1e30, allow_subnormal=True)
        | st.floats(-3, 3)
        | st.floats(-1e-300, 1e-300)
        | st.floats(-1e-36, 1e-36),
        min_size=1,
        max_size=30,
    ),
    score_type=st.sampled_from([np.float32, np.float64]),
    label_type=st.sampled_from([np.int8, np.bool_, np.int64, np.float32, np.float64]),
    weighted=st.booleans(),
    step=st.sampled_from([1, 2, -1]),
)
def test_compiled_and_numpy_sums_agree_for_any_type_and_stride(
    values, score_type, label_type, weighted, step
) -> None:
    scores = np.array(values, dtype=score_type)[::step]
    labels = (np.arange(len(scores)) % 3 == 0).astype(label_type)
    if weighted:
        total = np.linspace(0.5, 2, len(scores)).astype(score_type)
    else:
        total = np.ones(len(scores))
    evidence = cr.Evidence.trusted(labels, total, "given", unit_weights=not weighted)
    compiled, plain = table_of(scores), table_of(scores)
    compiled.pool(scores, evidence)
    plain.pool_with_numpy(scores, evidence)
    assert_same_sums(compiled, plain)


@needs_library
@pytest.mark.parametrize("kind", ["normal", "float32", "narrow", "heavy", "lognormal"])
@pytest.mark.parametrize("weighted", [False, True])
def test_compiled_and_numpy_sums_agree_over_several_batches(kind: str, weighted: bool) -> None:
    scores = sample_scores(100_000, 8, kind)
    rng = np.random.default_rng(9)
    labels = (rng.random(len(scores)) < 0.2).astype(float)
    propensity = rng.uniform(0.1, 1, len(scores))
    weights = rng.exponential(1, len(scores)) if weighted else None
    evidence = cr.ips(labels, propensity, weights=weights)
    compiled, plain = table_of(scores), table_of(scores)
    for rows in (slice(None), slice(0, 1000)):
        compiled.pool(scores[rows], evidence.rows(rows))
        plain.pool_with_numpy(scores[rows], evidence.rows(rows))
    assert_same_sums(compiled, plain, atol=1e-12)


@needs_library
def test_threads_give_the_sums_of_one_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = sample_scores(50_000, 1, "normal")
    rng = np.random.default_rng(2)
    labels = rng.random(len(scores)) < 0.2
    monkeypatch.setenv("CALIBRANK_THREADS", "3")
    for weights in (None, rng.exponential(1, len(scores))):
        evidence = cr.naive(labels, weights=weights)
        alone, threaded = table_of(scores), table_of(scores)
        alone.pool(scores, evidence)
        with monkeypatch.context() as patch:
            patch.setattr("calibrank.summary.bins._THREADS_FROM", 0)
            threaded.pool(scores, evidence)
        assert_same_sums(threaded, alone, atol=1e-12)


@pools
def test_unit_weights_give_the_sums_of_explicit_ones(pool: Pool) -> None:
    scores = sample_scores(10_000, 3, "normal")
    labels = (np.arange(10_000) % 5 == 0).astype(float)
    flagged, explicit = table_of(scores), table_of(scores)
    pool(flagged, scores, cr.naive(labels))
    pool(explicit, scores, cr.Evidence(labels, np.ones(10_000)))
    assert_same_sums(flagged, explicit, atol=1e-12)


@pools
def test_pooling_relies_on_the_flag_alone(pool: Pool) -> None:
    """A wrong flag must give wrong sums: otherwise the rows are read although they need not be."""
    scores = np.array([0.25, 0.5, 0.75])
    evidence = cr.Evidence.trusted(np.full(3, 2.0), np.full(3, 3.0), "given", unit_weights=True)
    table = table_of(scores)
    pool(table, scores, evidence)
    masses = table.masses()
    assert masses.total.sum() == 3
    assert masses.positive.sum() == 6


@pools
def test_memory_layout_says_nothing_about_weights(pool: Pool) -> None:
    """A constant column that is broadcast is summed like any other column."""
    scores = np.array([0.25, 0.5, 0.75])
    half = np.broadcast_to(np.float64(0.5), 3)
    table = table_of(scores)
    pool(table, scores, cr.Evidence.trusted(half, half, "given"))
    assert table.masses().total.sum() == 1.5
    assert table.masses().total_squared.sum() == 0.75


@needs_library
def test_a_score_outside_the_table_writes_nothing() -> None:
    table = Table.spanning(0.0, 1.0)
    with pytest.raises(ValueError, match="inside the table"):
        table.pool(np.array([0.5, 2.0]), cr.naive([1, 0]))
    assert not table.totals.any()
    assert not table.positives.any()


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("first", [0.0, -0.0])
@pools
def test_a_table_that_ends_at_zero_holds_both_zeros(pool: Pool, sign: float, first: float) -> None:
    """-0.0 and 0.0 have bins of their own."""
    scores = (sign * np.random.default_rng(0).random(200_000)).astype(np.float32)
    scores[::3], scores[1::6] = 0.0, -0.0
    scores[0] = first
    table = table_of(scores)
    pool(table, scores, cr.naive(np.ones(len(scores))))
    summary = cr.Summary.of_table(table, float(scores.min()), float(scores.max()), 1, "naive")
    assert summary.total[summary.scores == 0].sum() == (scores == 0).sum()


def test_float32_weights_are_summed_in_float64() -> None:
    weights = np.full(3, 0.1, dtype=np.float32)
    evidence = cr.Evidence.trusted(weights, weights, "given")
    masses = pool_bins(np.zeros(3, dtype=np.float32), evidence, np.zeros(3, dtype=np.intp), 1)
    expected = 3 * np.float64(np.float32(0.1)) ** 2
    assert masses.total_squared[0] == pytest.approx(expected, rel=1e-15)
    assert masses.cross[0] == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize("weights", [None, 0.5])
def test_summaries_are_the_same_without_compiled_code(
    monkeypatch: pytest.MonkeyPatch, weights: float | None
) -> None:
    scores = sample_scores(70_000, 3, "normal")
    labels = (np.arange(70_000) % 7 == 0).astype(float)
    evidence = cr.naive(labels, weights=None if weights is None else weights + labels)
    compiled = cr.Summary.of(scores, evidence)
    monkeypatch.setattr("calibrank._internal.native.READY", False)
    plain = cr.Summary.of(scores, evidence)
    assert not plain.exact
    np.testing.assert_array_equal(plain.keys, compiled.keys)
    for mine, theirs in zip(plain.masses, compiled.masses, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-12)
