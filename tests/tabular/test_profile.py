"""A profile counts what is in a table, valid or not."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import calibrank as cr
from calibrank.diagnosis import table_checks as profiling
from calibrank.diagnosis.table_checks import Profile, profile
from calibrank.tabular.columns import Columns
from calibrank.tabular.read import Table
from calibrank.tabular.rows import IdCounts

COLUMNS = Columns("score", "label", cr.naive, item="item", user="user")


def profile_of(folder: Path, *batches: dict[str, Any], columns: Columns = COLUMNS) -> Profile:
    for file, batch in enumerate(batches):
        pq.write_table(pa.table(batch), folder / f"{file}.parquet")
    return profile(Table.find(str(folder)), columns)


def test_invalid_scores_and_labels_are_counted_by_kind(tmp_path: Path) -> None:
    found = profile_of(
        tmp_path,
        {
            "score": [np.nan, np.inf, -np.inf, 1e31, 0.5, 0.5, 1.5],
            "label": [1.0, 1.0, 0.0, 3.0, 3.0, np.nan, 1.0],
        },
        {"score": [2.5, None], "label": [0.0, 0.0]},
        columns=Columns("score", "label", cr.naive),
    )
    assert found.rows == 9
    assert found.bad_scores == {"missing": 2, "infinite": 2, "beyond 1e30": 1}
    assert found.bad_labels == 2
    assert found.sample.tolist() == [1.5, 2.5]
    assert found.summary.scores.tolist() == [1.5, 2.5]
    assert found.summary.positive.tolist() == [1, 0]


def test_integer_scores_and_boolean_labels_are_profiled(tmp_path: Path) -> None:
    columns = {"score": pa.array([3, 1], pa.uint8()), "label": [True, False]}
    found = profile_of(tmp_path, columns, columns=Columns("score", "label", cr.naive))
    assert found.summary.scores.tolist() == [1, 3]
    assert found.summary.positive.tolist() == [0, 1]


def test_users_and_items_are_counted_over_all_files(tmp_path: Path) -> None:
    found = profile_of(
        tmp_path,
        {"score": [1.0, 2.0, 3.0], "label": [0, 1, 0], "user": [1, 1, 2], "item": ["a", "b", "a"]},
        {"score": [4.0, 5.0], "label": [0, 1], "user": [2, 2], "item": ["a", "c"]},
    )
    assert sorted(found.per_user.counts.tolist()) == [2, 3]
    assert found.per_user.of(pa.array([2])).tolist() == [3]
    assert found.per_item.of(pa.array(["a"])).tolist() == [3]


def test_falling_scores_are_counted_within_users(tmp_path: Path) -> None:
    rows = {
        "score": [3.0, 2.0, 2.0, 9.0, 5.0, 6.0],
        "label": [0, 1, 0, 1, 0, 1],
        "user": ["a", "a", "a", "b", "b", "b"],
        "item": [1, 2, 3, 1, 2, 3],
    }
    found = profile_of(tmp_path, rows)
    assert (found.neighbours, found.falling) == (4, 3)


def test_the_sample_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiling, "_SAMPLE_ROWS", 3)
    rows = {"score": [1.0, 2.0], "label": [0, 1]}
    found = profile_of(tmp_path, *[rows] * 4, columns=Columns("score", "label", cr.naive))
    assert found.sample.tolist() == [1.0, 2.0, 1.0]
    assert found.summary.rows == 8


@pytest.mark.parametrize("scores", [[], [np.nan], [1.0]])
def test_a_table_without_valid_rows_raises(tmp_path: Path, scores: list[float]) -> None:
    rows = {
        "score": pa.array(scores, pa.float64()),
        "label": pa.array([5] * len(scores), pa.int8()),
    }
    message = f"must hold at least one valid row, got none in {len(scores)}"
    with pytest.raises(cr.DataError, match=message):
        profile_of(tmp_path, rows, columns=Columns("score", "label", cr.naive))


def test_counts_of_batches_are_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibrank.tabular.rows._MERGE_IDS", 10)
    rng = np.random.default_rng(0)
    batches = [rng.integers(0, 30, 50) for _ in range(20)]
    tally = IdCounts()
    for batch in batches:
        tally.add(pa.array(batch))
    assert len(tally._ids) < 20
    distinct, counts = np.unique(np.concatenate(batches), return_counts=True)
    assert sorted(tally.counts.tolist()) == sorted(counts.tolist())
    assert tally.of(pa.array(distinct)).tolist() == counts.tolist()
    assert tally.of(pa.array(["7", "77"])).tolist() == [counts[distinct == 7][0], 0]


def test_missing_ids_and_ids_of_several_types_are_counted() -> None:
    tally = IdCounts()
    for ids in ([5, 5, None], ["5", "x", None]):
        tally.add(pa.array(ids))
    tally.add(pa.array([2**64 - 1], pa.uint64()))
    assert dict(zip(tally.ids.to_pylist(), tally.counts.tolist(), strict=True))["5"] == 3
    assert sorted(tally.counts.tolist()) == [1, 1, 2, 3]
