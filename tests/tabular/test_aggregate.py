"""Summaries of tables on disk equal those of the same rows as arrays."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import calibrank as cr
from calibrank._internal.rules import COLUMN_RULES
from calibrank.evidence import make_evidence
from calibrank.tables import row_partitions
from calibrank.tabular.aggregate import aggregate
from calibrank.tabular.columns import Columns
from calibrank.tabular.read import Table
from calibrank.tabular.rows import Rows, buckets_of, rows_of
from calibrank.tabular.rules import Rules

ROWS = 3_000


@pytest.fixture(scope="module")
def log() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {
        "score": rng.normal(size=ROWS),
        "label": (rng.random(ROWS) < 0.25).astype(np.int8),
        "propensity": rng.uniform(0.2, 1, ROWS),
        "weight": rng.integers(0, 4, ROWS).astype(np.uint8),
        "user": rng.integers(0, 200, ROWS),
        "item": rng.integers(0, 30, ROWS),
    }


@pytest.fixture
def table(tmp_path: Path, log: dict[str, np.ndarray]) -> Table:
    return save(tmp_path, log)


def save(folder: Path, columns: dict[str, Any], files: int = 3, rows_per_group: int = 400) -> Table:
    folder.mkdir(exist_ok=True)
    whole = pa.table(columns)
    size = -(-whole.num_rows // files)
    for file in range(files):
        part = whole.slice(file * size, size)
        pq.write_table(part, folder / f"{file}.parquet", row_group_size=rows_per_group)
    return Table.find(str(folder))


def strict() -> Rules:
    return Rules(skip=False)


def popularity(log: dict[str, Any], weights: Any = None) -> np.ndarray:
    mass = log["label"] if weights is None else log["label"] * weights
    counts = np.bincount(log["item"], mass.astype(float))
    return np.maximum((counts / counts.max()) ** 0.5, 0.1)[log["item"]]


def assert_same(found: cr.Summary, expected: cr.Summary) -> None:
    assert (found.rows, found.kind) == (expected.rows, expected.kind)
    assert (found.low, found.high) == (expected.low, expected.high)
    np.testing.assert_array_equal(found.scores, expected.scores)
    for mine, theirs in zip(found.masses, expected.masses, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12, atol=1e-12)


# One summary


@pytest.mark.parametrize("weight", [None, "weight"])
@pytest.mark.parametrize("evidence", [cr.naive, cr.ips, cr.positive_ips, cr.impressions])
def test_every_evidence_function_gives_the_summary_of_the_arrays(
    table: Table, log: dict[str, np.ndarray], evidence: Any, weight: str | None
) -> None:
    columns = Columns("score", "label", evidence, propensity="propensity", weight=weight)
    weights = None if weight is None else log["weight"].astype(float)
    expected = make_evidence(evidence, log["label"], log["propensity"], weights)
    found = aggregate(table, columns, strict())
    assert_same(found.summary, cr.Summary.of(log["score"], expected))


@pytest.mark.parametrize("weight", [None, "weight"])
@pytest.mark.parametrize("evidence", [cr.ips, cr.positive_ips])
def test_propensities_are_estimated_from_popularity(
    table: Table, log: dict[str, np.ndarray], evidence: Any, weight: str | None
) -> None:
    columns = Columns("score", "label", evidence, item="item", weight=weight)
    weights = None if weight is None else log["weight"].astype(float)
    expected = evidence(log["label"], popularity(log, weights), weights=weights)
    found = aggregate(table, columns, strict())
    assert_same(found.summary, cr.Summary.of(log["score"], expected))


def test_pooled_summaries_of_many_scores_equal_those_of_the_arrays(tmp_path: Path) -> None:
    """More scores than a summary keeps apart, so that positives are corrected within bins."""
    rng = np.random.default_rng(2)
    rows = 150_000
    many = {
        "score": rng.normal(size=rows),
        "label": (rng.random(rows) < 0.2).astype(np.int8),
        "item": rng.integers(0, 50, rows),
    }
    columns = Columns("score", "label", cr.ips, item="item")
    found = aggregate(save(tmp_path, many, rows_per_group=10_000), columns, strict()).summary
    expected = cr.Summary.of(many["score"], cr.ips(many["label"], popularity(many)))
    np.testing.assert_array_equal(found.keys, expected.keys)
    np.testing.assert_allclose(found.total, expected.total, rtol=1e-12)
    np.testing.assert_allclose(found.positive, expected.positive, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("columns", [{"propensity": "propensity"}, {"item": "item"}])
def test_the_number_of_workers_does_not_change_the_summary(
    table: Table, monkeypatch: pytest.MonkeyPatch, columns: dict[str, str]
) -> None:
    chosen = Columns("score", "label", cr.ips, weight="weight", **columns)
    found = []
    for workers in ("1", "2", "5"):
        monkeypatch.setenv("CALIBRANK_THREADS", workers)
        found.append(aggregate(table, chosen, strict()))
    for other in found[1:]:
        assert_same(other.summary, found[0].summary)
        assert other.positives.weights.sum() == found[0].positives.weights.sum()


def test_undersampled_negatives_are_weighted_up(table: Table, log: dict[str, np.ndarray]) -> None:
    columns = Columns("score", "label", cr.naive, weight="weight", negatives_kept=0.1)
    weights = log["weight"] * np.where(log["label"] == 1, 1.0, 10.0)
    expected = cr.Summary.of(log["score"], cr.naive(log["label"], weights=weights))
    assert_same(aggregate(table, columns, strict()).summary, expected)


def test_integer_scores_are_summarized_as_floats(tmp_path: Path) -> None:
    table = save(tmp_path, {"score": [1, 2, 3, 3], "label": [0, 1, 0, 1]})
    columns = Columns("score", "label", cr.naive)
    assert_same(
        aggregate(table, columns, strict()).summary, cr.Summary.of([1, 2, 3, 3], [0, 1, 0, 1])
    )


def test_skipped_rows_are_not_summarized(tmp_path: Path) -> None:
    table = save(tmp_path, {"score": [1.0, np.nan, 3.0, 4.0], "label": [0, 1, 2, 1]})
    rules = Rules(skip=True)
    found = aggregate(table, Columns("score", "label", cr.naive), rules)
    assert_same(found.summary, cr.Summary.of([1.0, 4.0], [0, 1]))
    assert rules.skipped == {"score": 1, "label": 1}


def test_the_first_invalid_row_of_the_table_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALIBRANK_THREADS", "3")
    scores = np.arange(900.0)
    scores[[250, 880]] = np.nan
    table = save(tmp_path, {"score": scores, "label": np.arange(900) % 2}, rows_per_group=50)
    with pytest.raises(cr.DataError, match=r"0\.parquet, row 250: score must be finite"):
        aggregate(table, Columns("score", "label", cr.naive), strict())


@pytest.mark.parametrize("kind", [np.int32, np.uint64, str, "dictionary", "mixed"])
def test_items_of_any_type_have_the_same_popularity(
    tmp_path: Path, log: dict[str, np.ndarray], kind: Any
) -> None:
    text = pa.array(log["item"].astype(str))
    numbers = pa.array(log["item"])
    if kind == "dictionary":
        first = second = text.dictionary_encode()
    elif kind == "mixed":
        first, second = numbers, text
    else:
        first = second = pa.array(log["item"].astype(kind))
    half = ROWS // 2
    for file, ids in enumerate((first.slice(0, half), second.slice(half))):
        rows = slice(file * half, file * half + half)
        part = {"score": log["score"][rows], "label": log["label"][rows], "item": ids}
        pq.write_table(pa.table(part), tmp_path / f"{file}.parquet")
    table = Table.find(str(tmp_path))
    found = aggregate(table, Columns("score", "label", cr.ips, item="item"), strict()).summary
    expected = cr.ips(log["label"], popularity(log))
    assert_same(found, cr.Summary.of(log["score"], expected))


def test_item_ids_beyond_int64_and_far_apart_are_distinguished(tmp_path: Path) -> None:
    items = np.array([2**64 - 1, 2**64 - 2, 0, 10**15, 2**64 - 1, 0], dtype=np.uint64)
    columns = {"score": np.arange(6.0), "label": [1, 1, 0, 1, 1, 0], "item": items}
    table = save(tmp_path, columns, files=1)
    found = aggregate(table, Columns("score", "label", cr.ips, item="item"), strict())
    np.testing.assert_allclose(found.summary.positive, [1, 2**0.5, 0, 2**0.5, 1, 0])


def test_an_item_is_the_same_as_a_large_integer_and_as_text(tmp_path: Path) -> None:
    large = pa.array([2**64 - 1, 5], pa.uint64())
    for file, items in enumerate((large, pa.array([str(2**64 - 1), "5"]))):
        columns = {"score": [0.0, 1.0], "label": [1, file], "item": items}
        pq.write_table(pa.table(columns), tmp_path / f"{file}.parquet")
    pq.write_table(pa.table({**columns, "label": [0, 0]}), tmp_path / "negatives.parquet")
    table = Table.find(str(tmp_path))
    found = aggregate(table, Columns("score", "label", cr.ips, item="item"), strict())
    np.testing.assert_allclose(found.summary.positive, [2, 2**0.5])


# Kept positives


def test_positives_are_kept_with_their_exposure_and_weight(
    table: Table, log: dict[str, np.ndarray]
) -> None:
    columns = Columns("score", "label", cr.ips, item="item", weight="weight")
    found = aggregate(table, columns, strict()).positives
    counts = np.bincount(log["item"], log["label"] * log["weight"].astype(float))
    used = (log["label"] == 1) & (log["weight"] > 0)
    order = np.argsort(found.scores)
    expected = np.argsort(log["score"][used])
    exposure = (counts / counts.max())[log["item"]][used][expected]
    np.testing.assert_allclose(found.exposure[order], exposure)
    np.testing.assert_array_equal(found.weights[order], log["weight"][used][expected])


@pytest.mark.parametrize("evidence", [cr.naive, cr.impressions])
def test_evidence_that_identifies_the_base_rate_keeps_no_positives(
    table: Table, evidence: Any
) -> None:
    columns = Columns("score", "label", evidence, propensity="propensity")
    assert aggregate(table, columns, strict()).positives is None


@pytest.mark.parametrize("columns", [{"propensity": "propensity"}, {"item": "item"}])
def test_a_sample_of_the_positives_stands_for_all(
    table: Table,
    log: dict[str, np.ndarray],
    monkeypatch: pytest.MonkeyPatch,
    columns: dict[str, str],
) -> None:
    monkeypatch.setattr("calibrank.tabular.aggregate._MOST_POSITIVES", 100)
    found = aggregate(table, Columns("score", "label", cr.ips, **columns), strict()).positives
    positives = log["label"].sum()
    assert len(found.scores) <= 100 < positives
    assert found.weights.sum() == pytest.approx(positives, rel=0.1)
    assert set(found.scores) <= set(log["score"][log["label"] == 1])


@pytest.mark.parametrize("columns", [{"propensity": "propensity"}, {"item": "item"}])
def test_weights_of_small_integer_types_do_not_overflow(
    tmp_path: Path,
    log: dict[str, np.ndarray],
    monkeypatch: pytest.MonkeyPatch,
    columns: dict[str, str],
) -> None:
    monkeypatch.setattr("calibrank.tabular.aggregate._MOST_POSITIVES", 100)
    table = save(tmp_path, {**log, "weight": np.full(ROWS, 200, np.uint8)})
    chosen = Columns("score", "label", cr.ips, weight="weight", **columns)
    found = aggregate(table, chosen, strict()).positives
    assert found.weights.sum() == pytest.approx(200 * log["label"].sum(), rel=0.1)


# Folds


def test_folds_keep_users_together_and_add_up_to_the_whole(
    table: Table, log: dict[str, np.ndarray]
) -> None:
    columns = Columns("score", "label", cr.ips, propensity="propensity", user="user")
    folds = aggregate(table, columns, strict(), folds=4).folds
    assert len(folds) == 4
    fold_of_user: dict[int, int] = {}
    for score, user in zip(log["score"], log["user"].tolist(), strict=True):
        [fold] = [number for number, fold in enumerate(folds) if score in fold.scores]
        assert fold_of_user.setdefault(user, fold) == fold
    whole = aggregate(table, columns, strict()).summary
    assert_same(folds[0] + folds[1] + folds[2] + folds[3], whole)


def test_folds_do_not_depend_on_files_or_row_groups(
    tmp_path: Path, log: dict[str, np.ndarray]
) -> None:
    columns = Columns("score", "label", cr.ips, item="item", user="user")
    one = save(tmp_path / "one", log, files=1)
    many = save(tmp_path / "many", log, files=7, rows_per_group=13)
    found = aggregate(one, columns, strict(), folds=3).folds
    others = aggregate(many, columns, strict(), folds=3).folds
    for mine, theirs in zip(found, others, strict=True):
        assert_same(mine, theirs)


def test_propensities_of_all_folds_come_from_the_whole_table(
    table: Table, log: dict[str, np.ndarray]
) -> None:
    columns = Columns("score", "label", cr.ips, item="item", user="user")
    folds = aggregate(table, columns, strict(), folds=2).folds
    expected = cr.Summary.of(log["score"], cr.ips(log["label"], popularity(log)))
    assert_same(folds[0] + folds[1], expected)


def test_without_users_row_numbers_are_hashed(table: Table, log: dict[str, np.ndarray]) -> None:
    folds = aggregate(table, Columns("score", "label", cr.naive), strict(), folds=3).folds
    fold_of_row = row_partitions(0, len(log["score"]), 3)
    for fold, summary in enumerate(folds):
        rows = fold_of_row == fold
        assert_same(summary, cr.Summary.of(log["score"][rows], log["label"][rows]))


@pytest.mark.parametrize("propensity", ["propensity", None])
def test_folds_leave_the_whole_table_and_its_positives_as_they_are(
    table: Table, propensity: str | None
) -> None:
    item = None if propensity else "item"
    columns = Columns("score", "label", cr.ips, propensity=propensity, item=item, user="user")
    one = aggregate(table, columns, strict())
    several = aggregate(table, columns, strict(), folds=3)
    assert one.folds == ()
    assert len(several.folds) == 3
    assert_same(several.summary, one.summary)
    expected = aggregate(table, columns, strict(), folds=3).folds
    for fold, summary in zip(several.folds, expected, strict=True):
        assert_same(fold, summary)
    assert one.positives is not None
    assert several.positives is not None
    for name in ("scores", "exposure", "weights"):
        found = np.sort(getattr(several.positives, name))
        assert found == pytest.approx(np.sort(getattr(one.positives, name)))


def test_a_bucket_depends_only_on_the_user() -> None:
    def rows(users: list[Any]) -> Rows:
        zeros = np.zeros(len(users))
        return Rows(zeros, zeros, None, None, None, pa.array(users))

    first = buckets_of(rows(["ann", "bob", "ann"]), 0, 100)
    second = buckets_of(rows(["bob", "ann"]), 999, 100)
    assert first[0] == first[2] == second[1]
    assert first[1] == second[0]
    assert buckets_of(rows([7]), 0, 100) == buckets_of(rows(["7"]), 0, 100)


# Tables that cannot be summarized


def test_a_table_without_valid_rows_raises(tmp_path: Path) -> None:
    table = save(tmp_path, {"score": [np.nan, np.inf], "label": [0, 1]})
    with pytest.raises(cr.DataError, match="must hold at least one valid row, got none"):
        aggregate(table, Columns("score", "label", cr.naive), Rules(skip=True))


def test_only_positives_raise_unless_labels_are_unbiased(tmp_path: Path) -> None:
    table = save(tmp_path, {"score": [1.0, 2.0], "label": [1, 1], "item": [1, 2]})
    with pytest.raises(cr.FitError, match="both classes, got only positives in 2 rows"):
        aggregate(table, Columns("score", "label", cr.ips, item="item"), strict())
    assert aggregate(table, Columns("score", "label", cr.naive), strict()).summary.rows == 2


@pytest.mark.parametrize("weights", [[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
def test_no_positive_with_weight_raises(tmp_path: Path, weights: list[float]) -> None:
    columns = {"score": [1.0, 2.0, 3.0], "label": [0, 1, 0], "item": [1, 2, 1], "weight": weights}
    chosen = Columns("score", "label", cr.ips, item="item", weight="weight")
    message = "labels must hold a positive with nonzero weight to estimate popularity, got none."
    with pytest.raises(cr.DataError, match=message):
        aggregate(save(tmp_path, columns), chosen, strict())


# Rows


def test_rows_are_yielded_with_all_columns(tmp_path: Path) -> None:
    columns = {
        "score": [0.5, np.nan, 1.5],
        "label": [True, True, False],
        "w": [0.5, 0.5, 1.0],
        "item": pa.array(["a", "b", "c"]).dictionary_encode(),
        "user": [1, 2, 3],
        "note": ["x", None, None],
    }
    chosen = Columns(
        "score", "label", cr.ips, propensity="w", item="item", user="user", others=("note",)
    )
    table = save(tmp_path, columns, files=1)
    [rows] = rows_of(table, chosen, Rules(skip=True), None)
    assert len(rows) == 2
    assert rows.scores.tolist() == [0.5, 1.5]
    assert rows.labels.tolist() == [1, 0]
    assert rows.propensity.tolist() == [0.5, 1.0]
    assert rows.weights is None
    assert rows.items.to_pylist() == ["a", "c"]
    assert rows.users.to_pylist() == [1, 3]
    assert [column.to_pylist() for column in rows.others] == [["x", None]]
    joined = Rows.joined([rows, rows.take(np.array([1]))])
    assert joined.scores.tolist() == [0.5, 1.5, 1.5]
    assert joined.propensity.tolist() == [0.5, 1.0, 1.0]


def test_columns_are_read_once_each() -> None:
    columns = Columns("s", "y", cr.ips, propensity="w", item="i", user="u", others=("u", "x"))
    assert columns.read == ["s", "y", "w", "i", "u", "x"]
    assert columns.checked == {"score": "s", "label": "y", "propensity": "w"}
    assert not columns.needs_popularity
    assert Columns("s", "y", cr.ips, item="i").needs_popularity
    assert not Columns("s", "y", cr.naive, item="i").needs_popularity


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("propensity", 5e-324, r"propensity must be at least 1e-30, got 5e-324"),
        ("propensity", 1e-31, r"propensity must be at least 1e-30, got 1e-31"),
        ("weight", 1e-200, r"weight must be 0 or at least 1e-30, got 1e-200"),
    ],
)
def test_masses_too_small_to_sum_are_refused(
    tmp_path: Path, log: dict[str, np.ndarray], column: str, value: float, message: str
) -> None:
    """Also beside zeros, where the range of the values proves nothing."""
    weights = np.ones(ROWS)
    weights[0] = 0
    content = {**log, "weight": weights}
    content[column] = content[column].copy()
    content[column][1] = value
    columns = Columns("score", "label", cr.ips, propensity="propensity", weight="weight")
    with pytest.raises(cr.DataError, match=message):
        aggregate(save(tmp_path, content), columns, strict())


def test_weights_that_are_all_zero_are_named(tmp_path: Path, log: dict[str, np.ndarray]) -> None:
    table = save(tmp_path, {**log, "weight": np.zeros(ROWS)})
    columns = Columns("score", "label", cr.ips, propensity="propensity", weight="weight")
    with pytest.raises(cr.DataError, match="weight must not be 0 in every row"):
        aggregate(table, columns, strict())


def test_labels_are_checked_once(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the reader; evidence is made without a second check."""
    counted: list[str] = []
    original = type(COLUMN_RULES["label"]).holds

    def holds(rule: object, values: object) -> object:
        if rule is COLUMN_RULES["label"]:
            counted.append("label")
        return original(rule, values)

    monkeypatch.setattr(type(COLUMN_RULES["label"]), "holds", holds)
    for columns in ({"propensity": "propensity"}, {"item": "item"}):
        counted.clear()
        chosen = Columns("score", "label", cr.ips, **columns)
        batches = list(table.batches(chosen.read))
        aggregate(table, chosen, strict())
        assert 0 < len(counted) <= len(batches)
