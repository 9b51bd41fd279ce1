"""Tables of interactions and scores, and the index of ids."""

from typing import Any

import numpy as np
import pytest

import calibrank as cr
from calibrank.tables import Index, Interactions, ScoreTable, as_interactions, hash_partitions


def test_interactions_default_to_positive_labels_and_the_ids_seen() -> None:
    log = Interactions(["ann", "bob", "ann"], [7, 9, 9])
    assert log.labels.tolist() == [1, 1, 1]
    assert (len(log), log.n_users, log.n_items, log.times) == (3, 2, 2, None)


LOG = {"user": ["ann", "bob", "ann"], "item": [7, 9, 9], "label": [1, 0, 1], "other": [1, 2, 3]}


def frames() -> list[Any]:
    pl = pytest.importorskip("polars")
    pandas = pytest.importorskip("pandas")
    arrow = pytest.importorskip("pyarrow").table(LOG)
    return [pandas.DataFrame(LOG), pl.DataFrame(LOG), pl.LazyFrame(LOG), arrow]


def test_a_dataframe_is_a_log_by_its_columns() -> None:
    for frame in frames():
        log = as_interactions(frame)
        assert log.users.tolist() == LOG["user"]
        assert log.items.tolist() == LOG["item"]
        assert log.labels.tolist() == LOG["label"]
    log = Interactions([1], [1], n_users=5)
    assert as_interactions(log) is log


def test_a_frame_without_the_columns_of_a_log_is_refused() -> None:
    frame = pytest.importorskip("polars").DataFrame(LOG).rename({"label": "liked"})
    columns = "'user', 'item', 'liked', 'other'"
    message = f"must have columns user, item and label, got {columns}. Rename"
    for given in (frame, frame.lazy()):
        with pytest.raises(cr.DataError, match=message):
            as_interactions(given)
    with pytest.raises(
        cr.DataError,
        match=r"interactions must be calibrank\.Interactions or a dataframe .* got list",
    ):
        as_interactions([[1, 2]])  # type: ignore[arg-type]


def test_selected_interactions_keep_the_population() -> None:
    log = Interactions([1, 2, 3], [1, 1, 2], [1, 0, 1], n_users=10, n_items=20, times=[5, 6, 7])
    some = log.positives()
    assert some.users.tolist() == [1, 3]
    assert some.times is not None
    assert some.times.tolist() == [5, 7]
    assert (some.n_users, some.n_items) == (10, 20)


def test_a_population_smaller_than_the_log_is_refused() -> None:
    with pytest.raises(cr.DataError, match="n_users must be at least the 2 ids seen, got 1"):
        Interactions([1, 2], [1, 1], n_users=1)


def test_columns_of_different_length_are_refused() -> None:
    with pytest.raises(cr.DataError, match="items must have one value per row, got 1 values for 2"):
        Interactions([1, 2], [1])
    with pytest.raises(cr.DataError, match="times must have one value per row"):
        Interactions([1, 2], [1, 1], times=[3])
    with pytest.raises(cr.DataError, match="weights must have one value per row"):
        ScoreTable([1, 2], [1, 1], [0.1, 0.2], [0, 1], weights=[1])


def test_a_score_table_gives_evidence_by_its_columns() -> None:
    columns = {"users": [1, 2], "items": [1, 1], "scores": [0.1, 0.2], "labels": [0, 1]}
    assert ScoreTable(**columns).evidence().kind == "naive"
    table = ScoreTable(**columns, propensity=[1, 0.5], weights=[3, 2])
    assert table.evidence().kind == "ips"
    assert table.evidence().positive.tolist() == [0, 4]
    assert table.evidence().total.tolist() == [3, 2]


def test_columns_that_are_not_given_are_absent() -> None:
    table = ScoreTable([1, 2], [1, 1], [0.1, 0.2], [0, 1], weights=[3, 2])
    assert list(table.columns()) == ["user", "item", "score", "label", "weight"]


def test_tables_print_their_size() -> None:
    table = ScoreTable([1, 2], [1, 1], [0.1, 0.2], [0, 1])
    assert repr(table) == "ScoreTable(2 rows, 1 positive, scores over [0.1, 0.2])"
    empty = ScoreTable([], [], [], [])
    assert repr(empty) == "ScoreTable(0 rows, 0 positive, scores)"


def test_an_index_finds_known_ids_and_refuses_others() -> None:
    index = Index.of(["bob", "ann"], ["cy", "ann"])
    assert index.names.tolist() == ["ann", "bob", "cy"]
    assert index.rows("users", ["cy", "ann"]).tolist() == [2, 0]
    rows, known = index.find("users", ["zoe", "bob", "aaa"])
    assert known.tolist() == [False, True, False]
    assert rows[1] == 1
    expected = "users must be known from training, got 'zoe' at row 1. Drop such rows."
    with pytest.raises(cr.DataError, match=expected):
        index.rows("users", ["ann", "zoe"])


def test_an_index_refuses_ids_of_another_kind() -> None:
    expected = r"users must be ids as in the log \(int64\), got <U1\. Convert them\."
    with pytest.raises(cr.DataError, match=expected):
        Index.of([1, 2]).rows("users", ["1"])


def test_hash_partitions_depend_on_the_name_alone() -> None:
    names = [f"user {number}" for number in range(1_000)]
    partitions = hash_partitions(names, 5)
    np.testing.assert_array_equal(hash_partitions(names[::-1], 5), partitions[::-1])
    counts = np.bincount(partitions, minlength=5)
    assert len(counts) == 5
    assert counts.min() > 150
