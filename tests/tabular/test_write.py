"""Writing a table with a new column: atomically, and only what is missing or out of date."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

import calibrank as cr
from calibrank._internal.validation import Floats
from calibrank.scorers import InnerProduct, SavedModel
from calibrank.tables import Index
from calibrank.tabular.files import Batch
from calibrank.tabular.read import Table
from calibrank.tabular.rules import Rules
from calibrank.tabular.write import Probabilities, Scores, add_column

FITTED = cr.Platt().fit([0.0, 1.0, 2.0, 3.0], [0, 1, 0, 1])
OTHER = cr.Platt().fit([0.0, 1.0, 2.0, 3.0, 4.0], [0, 1, 0, 1, 1])


def probabilities(fitted: cr.CalibrationMap = FITTED, *, skip: bool = False) -> Probabilities:
    return Probabilities(fitted, "score", Rules(skip=skip))


def write(path: Path, columns: dict[str, Any], **options: Any) -> Table:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".csv":
        pc.write_csv(pa.table(columns), path)
    else:
        pq.write_table(pa.table(columns), path, **options)
    return Table.find(str(path))


@dataclass(frozen=True)
class Failing(Probabilities):
    """Fails at the second batch."""

    def values(self, batch: Batch) -> Floats:
        if batch.first:
            raise RuntimeError("out of power")
        return super().values(batch)


@pytest.mark.parametrize("suffix", [".parquet", ".pq", ".csv"])
def test_a_column_is_added_to_every_row(tmp_path: Path, suffix: str) -> None:
    scores = np.linspace(-3, 3, 1_000)
    table = write(tmp_path / f"in{suffix}", {"score": scores, "note": ["x"] * 1_000})
    out = tmp_path / f"out{suffix}"
    assert add_column(probabilities(), table, out, "p") == (1_000, 0)
    written = pc.read_csv(out) if suffix == ".csv" else pq.read_table(out)
    assert written.column_names == ["score", "note", "p"]
    np.testing.assert_allclose(written["p"].to_numpy(), FITTED.predict(scores), rtol=1e-12)


def test_row_groups_are_written_in_order(tmp_path: Path) -> None:
    scores = np.linspace(-3, 3, 100)
    table = write(tmp_path / "in.parquet", {"score": scores}, row_group_size=7)
    add_column(probabilities(), table, tmp_path / "out.parquet", "p")
    np.testing.assert_array_equal(
        pq.read_table(tmp_path / "out.parquet")["score"].to_numpy(), scores
    )


def test_float32_scores_get_float32_probabilities(tmp_path: Path) -> None:
    columns = {"score": np.array([0.5], np.float32)}
    table = write(tmp_path / "in.parquet", columns)
    add_column(probabilities(), table, tmp_path / "out.parquet", "p")
    assert pq.read_schema(tmp_path / "out.parquet").field("p").type == pa.float32()


def test_metadata_of_the_table_is_kept(tmp_path: Path) -> None:
    kept = pa.table({"score": [0.5]}).replace_schema_metadata({"owner": "ann"})
    pq.write_table(kept, tmp_path / "in.parquet")
    table = Table.find(str(tmp_path / "in.parquet"))
    add_column(probabilities(), table, tmp_path / "out.parquet", "p")
    assert pq.read_schema(tmp_path / "out.parquet").metadata[b"owner"] == b"ann"


def test_invalid_rows_raise_or_are_left_out(tmp_path: Path) -> None:
    table = write(tmp_path / "in.parquet", {"score": [0.5, np.nan, 1.5]})
    out = tmp_path / "out.parquet"
    with pytest.raises(cr.DataError, match="row 1: score must be finite"):
        add_column(probabilities(), table, out, "p")
    assert not out.exists()
    assert add_column(probabilities(skip=True), table, out, "p") == (2, 0)
    assert pq.read_table(out)["score"].to_pylist() == [0.5, 1.5]


def test_a_folder_is_written_as_a_folder_of_the_same_layout(tmp_path: Path) -> None:
    for name in ("day=1/a.parquet", "day=2/b.csv"):
        write(tmp_path / "in" / name, {"score": [0.5]})
    table = Table.find(str(tmp_path / "in"))
    add_column(probabilities(), table, tmp_path / "out", "p")
    assert pq.read_schema(tmp_path / "out/day=1/a.parquet").names == ["score", "p"]
    assert (tmp_path / "out/day=2/b.csv").read_text().splitlines()[0] == "score,p"


def test_one_file_can_be_written_into_a_folder(tmp_path: Path) -> None:
    table = write(tmp_path / "in.parquet", {"score": [0.5]})
    (tmp_path / "out").mkdir()
    add_column(probabilities(), table, tmp_path / "out", "p")
    assert (tmp_path / "out" / "in.parquet").is_file()


# Atomic writing


def test_a_failure_leaves_no_partial_file(tmp_path: Path) -> None:
    table = write(tmp_path / "in.parquet", {"score": np.arange(10.0)}, row_group_size=5)
    failing = Failing(FITTED, "score", Rules(skip=False))
    with pytest.raises(RuntimeError, match="out of power"):
        add_column(failing, table, tmp_path / "out.parquet", "p")
    assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]


def test_a_failure_leaves_the_old_file_as_it_was(tmp_path: Path) -> None:
    table = write(tmp_path / "in.parquet", {"score": np.arange(10.0)}, row_group_size=5)
    out = tmp_path / "out.parquet"
    add_column(probabilities(), table, out, "p")
    before = out.read_bytes()
    with pytest.raises(RuntimeError, match="out of power"):
        add_column(Failing(OTHER, "score", Rules(skip=False)), table, out, "p")
    assert out.read_bytes() == before


# Resuming


def test_a_rerun_writes_only_what_is_missing(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        write(tmp_path / "in" / f"{name}.parquet", {"score": [0.5, 1.5]})
    table = Table.find(str(tmp_path / "in"))
    out = tmp_path / "out"
    assert add_column(probabilities(), table, out, "p") == (6, 0)
    assert add_column(probabilities(), table, out, "p") == (0, 3)
    (out / "b.parquet").unlink()
    (out / "c.parquet").write_bytes(b"damaged")
    assert add_column(probabilities(), table, out, "p") == (4, 1)


def test_another_map_column_or_source_is_written_again(tmp_path: Path) -> None:
    path = tmp_path / "in.parquet"
    table = write(path, {"score": [0.5, 1.5], "other": [1.0, 2.0]})
    out = tmp_path / "out.parquet"

    def rows_written(column: Probabilities, to: str = "p") -> int:
        return add_column(column, table, out, to)[0]

    assert rows_written(probabilities()) == 2
    assert rows_written(probabilities(OTHER)) == 2
    assert rows_written(probabilities(OTHER)) == 0
    assert rows_written(probabilities(OTHER), "q") == 2
    assert rows_written(probabilities(OTHER, skip=True), "q") == 2
    assert rows_written(Probabilities(OTHER, "other", Rules(skip=True)), "q") == 2
    assert rows_written(Probabilities(OTHER, "other", Rules(skip=True)), "q") == 0
    os.utime(path, ns=(0, 0))
    assert rows_written(Probabilities(OTHER, "other", Rules(skip=True)), "q") == 2


def test_csv_files_are_always_written_again(tmp_path: Path) -> None:
    table = write(tmp_path / "in.csv", {"score": [0.5]})
    for _ in range(2):
        assert add_column(probabilities(), table, tmp_path / "out.csv", "p") == (1, 0)


def test_progress_counts_files_that_are_up_to_date(tmp_path: Path) -> None:
    table = write(tmp_path / "in.parquet", {"score": np.arange(50.0)})
    for _ in range(2):
        calls: list[int] = []
        add_column(probabilities(), table, tmp_path / "out.parquet", "p", calls.append)
        assert sum(calls) == table.size


# Wrong outputs


def test_the_table_itself_is_never_overwritten(tmp_path: Path) -> None:
    table = write(tmp_path / "in.parquet", {"score": [0.5]})
    for out in (tmp_path / "in.parquet", tmp_path):
        with pytest.raises(cr.DataError, match="must not be the table itself"):
            add_column(probabilities(), table, out, "p")


@pytest.mark.parametrize(
    ("out", "to", "message"),
    [
        ("out.txt", "p", r"out\.txt must end in \.parquet, \.pq, \.csv, .*, got \.txt\."),
        ("out.parquet", "x", "must not have a column x already. Name another with to."),
    ],
)
def test_outputs_that_cannot_be_written_raise(
    tmp_path: Path, out: str, to: str, message: str
) -> None:
    table = write(tmp_path / "in.parquet", {"score": [0.5], "x": [1]})
    with pytest.raises(cr.DataError, match=message):
        add_column(probabilities(), table, tmp_path / out, to)


def test_a_table_without_the_input_column_raises(tmp_path: Path) -> None:
    table = write(tmp_path / "in.parquet", {"x": [1.0], "y": [2.0]})
    with pytest.raises(cr.DataError, match="must have a column 'score', got 'x', 'y'"):
        add_column(probabilities(), table, tmp_path / "out.parquet", "p")


# Scores of a model


def test_scores_of_a_model_are_added_and_unknown_ids_are_invalid(tmp_path: Path) -> None:
    users = np.array([[1.0, 0.0], [0.0, 2.0]], np.float32)
    items = np.array([[1.0, 1.0], [3.0, 4.0]], np.float32)
    scorer = InnerProduct(users, items, {})
    model = SavedModel(scorer, Index.of(["ann", "bob"]), Index.of([7, 9]), {})
    pairs = {"user": ["bob", "ann", "eve", None], "item": [9, 7, 7, 7]}
    table = write(tmp_path / "in.parquet", pairs)
    rules = Rules(skip=True)
    out = tmp_path / "out.parquet"
    assert add_column(Scores(model, "user", "item", rules), table, out, "score") == (2, 0)
    assert pq.read_table(out)["score"].to_pylist() == [8.0, 1.0]
    assert pq.read_schema(out).field("score").type == pa.float32()
    assert rules.skipped == {"user": 2}
    strict = Scores(model, "user", "item", Rules(skip=False))
    with pytest.raises(cr.DataError, match="row 3: user must be an id"):
        add_column(strict, table, tmp_path / "other.parquet", "score")
