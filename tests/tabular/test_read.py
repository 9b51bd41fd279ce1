"""Finding the files of a table, choosing its columns, and reading its rows in batches."""

import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

import calibrank as cr
from calibrank.tabular import files
from calibrank.tabular.arrow import indices_of, names_of, take_ids, to_arrow
from calibrank.tabular.files import Batch
from calibrank.tabular.read import Table, prefetch


def write(path: Path, columns: dict[str, Any], **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(columns)
    if path.suffix == ".csv":
        pc.write_csv(table, path)
    else:
        pq.write_table(table, path, **options)


def find(path: Path) -> Table:
    return Table.find(str(path))


def numbers(batches: Iterable[Batch], name: str) -> list[Any]:
    return np.concatenate([batch.numbers(name) for batch in batches]).tolist()


def batch_of(column: pa.Array) -> Batch:
    return Batch(Path("t.parquet"), 0, pa.RecordBatch.from_arrays([column], names=["x"]))


# Finding files


def test_a_folder_is_searched_recursively_and_hidden_files_are_ignored(tmp_path: Path) -> None:
    for name in ("b.csv", "a/c.parquet", "_SUCCESS", "_temporary/d.parquet", ".a.parquet", "e.txt"):
        write(tmp_path / name, {"score": [1.0]})
    with pytest.warns(cr.CalibrankWarning, match=r"3 files are not read, such as \.a\.parquet"):
        assert find(tmp_path).files == (tmp_path / "a/c.parquet", tmp_path / "b.csv")


def test_a_glob_is_sorted_and_its_common_folder_is_the_root(tmp_path: Path) -> None:
    for name in ("day=2/x.parquet", "day=10/x.parquet", "day=10/y.csv"):
        write(tmp_path / name, {"score": [1.0]})
    found = Table.find(str(tmp_path / "*" / "*.parquet"))
    assert found.files == (tmp_path / "day=10/x.parquet", tmp_path / "day=2/x.parquet")
    assert found.root == tmp_path
    assert find(tmp_path / "day=10" / "x.parquet").root == tmp_path / "day=10"
    assert find(tmp_path).root == tmp_path


def test_a_file_name_with_brackets_is_not_a_pattern(tmp_path: Path) -> None:
    write(tmp_path / "log [1].csv", {"score": [1.0]})
    assert find(tmp_path / "log [1].csv").files == (tmp_path / "log [1].csv",)


@pytest.mark.parametrize("name", ["nowhere.parquet", "*.parquet", ""])
def test_a_table_without_files_raises(tmp_path: Path, name: str) -> None:
    with pytest.raises(cr.DataError, match=r"must be a table \(Parquet or CSV file, folder or"):
        find(tmp_path / name)


@pytest.mark.parametrize("name", ["s3://bucket/t.parquet", "gs://bucket/*.parquet"])
def test_a_table_in_remote_storage_is_refused_with_a_remedy(name: str) -> None:
    message = r"must be on a local disk, got a (s3|gs):// address\. Copy or mount it first"
    with pytest.raises(cr.DataError, match=message):
        Table.find(name)


def test_size_is_the_sum_over_all_files(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", {"score": [1.0]})
    write(tmp_path / "b.parquet", {"score": [1.0]})
    assert find(tmp_path).size == sum(file.stat().st_size for file in tmp_path.iterdir())


# Choosing columns


def test_columns_are_resolved_by_name_or_by_alias(tmp_path: Path) -> None:
    write(tmp_path / "t.parquet", {"prediction": [1.0], "rating": [2.0], "user_id": [3]})
    table = find(tmp_path)
    assert table.columns() == ["prediction", "rating", "user_id"]
    assert table.resolve("score", None) == "prediction"
    assert table.resolve("score", "rating") == "rating"
    assert table.has("user") == "user_id"
    assert table.has("item") is None


def test_a_column_that_is_missing_raises_with_the_option_that_names_it(tmp_path: Path) -> None:
    write(tmp_path / "t.parquet", {"x": [1.0], "y": [2]})
    message = r"must have an item column \(item or .*\), got 'x', 'y'\. Name it with item\."
    with pytest.raises(cr.DataError, match=message):
        find(tmp_path).resolve("item", None)
    with pytest.raises(cr.DataError, match=r"must have a score column \(z\), got 'x', 'y'"):
        find(tmp_path).resolve("score", "z")


@pytest.mark.parametrize("separator", ["\t", "|", ";"])
def test_a_csv_may_have_another_separator(tmp_path: Path, separator: str) -> None:
    (tmp_path / "t.csv").write_text(f"score{separator}label\n1{separator}0\n")
    assert find(tmp_path).columns() == ["score", "label"]


# Reading rows


@pytest.mark.parametrize("suffix", [".parquet", ".pq", ".csv"])
def test_rows_are_read_in_order_with_their_row_numbers(tmp_path: Path, suffix: str) -> None:
    write(tmp_path / f"a{suffix}", {"score": np.arange(10.0), "other": ["x"] * 10})
    write(tmp_path / f"b{suffix}", {"score": np.arange(10.0, 15.0), "other": ["x"] * 5})
    batches = list(find(tmp_path).batches(["score"]))
    assert numbers(batches, "score") == list(range(15))
    assert [(batch.file.stem, batch.first, batch.before) for batch in batches] == [
        ("a", 0, 0),
        ("b", 0, 10),
    ]
    assert batches[0].rows.schema.names == ["score"]


@pytest.mark.parametrize("largest", [4_000_000, 2])
def test_row_groups_are_read_whole_or_streamed_if_they_are_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, largest: int
) -> None:
    monkeypatch.setattr(files, "_LARGEST_ROW_GROUP", largest)
    monkeypatch.setattr(files, "_BATCH_ROWS", 4)
    write(tmp_path / "t.parquet", {"score": np.arange(11.0)}, row_group_size=6)
    batches = list(find(tmp_path).batches(["score"]))
    assert numbers(batches, "score") == list(range(11))
    assert [batch.first for batch in batches] == [0, 4, 6, 10] if largest > 2 else [0, 4, 8]
    sizes = [batch.rows.num_rows for batch in batches]
    assert [batch.before for batch in batches] == np.cumsum([0, *sizes[:-1]]).tolist()


def test_tasks_can_be_run_in_any_order(tmp_path: Path) -> None:
    write(tmp_path / "t.parquet", {"score": np.arange(9.0)}, row_group_size=3)
    tasks = list(find(tmp_path).read_tasks(["score"]))
    assert len(tasks) == 3
    assert numbers(tasks[2](), "score") == [6, 7, 8]
    assert numbers(tasks[0](), "score") == [0, 1, 2]


def test_other_threads_list_the_tasks_and_run_them_in_order() -> None:
    """Listing the tasks of a CSV file parses it."""
    threads = []

    def tasks() -> Iterator[Callable[[], list[int]]]:
        for number in range(4):
            threads.append(threading.get_ident())
            yield partial(list, [number])
        raise ValueError("the table ends here")

    found = []
    with pytest.raises(ValueError, match="ends here"):
        found.extend(prefetch(tasks()))
    assert len(threads) == 4
    assert threading.get_ident() not in threads
    found = list(islice(prefetch(tasks()), 4))
    assert found == [0, 1, 2, 3]


def test_files_and_row_groups_without_rows_give_no_batch(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {"score": pa.array([], pa.float64())})
    write(tmp_path / "b.csv", {"score": pa.array([], pa.float64())})
    assert list(find(tmp_path).batches(["score"])) == []


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_progress_adds_up_to_the_size_of_the_table(tmp_path: Path, suffix: str) -> None:
    write(tmp_path / f"a{suffix}", {"score": np.arange(999.0), "label": np.arange(999)})
    write(tmp_path / f"b{suffix}", {"score": np.arange(7.0), "label": np.arange(7)})
    calls: list[int] = []
    table = find(tmp_path)
    list(table.batches(["score"], calls.append))
    assert sum(calls) == table.size


def test_progress_through_one_long_csv_file_is_told_by_blocks(tmp_path: Path) -> None:
    text = "score,text\n" + f"1,{'x' * 2_000}\n" * 9_000
    (tmp_path / "a.csv").write_text(text)
    calls: list[int] = []
    list(find(tmp_path / "a.csv").batches(["score"], calls.append))
    assert calls[0] == 2**24
    assert sum(calls) == len(text)


def test_columns_of_a_hive_path_are_read_and_keep_leading_zeros(tmp_path: Path) -> None:
    for folder in ("country=NL/day=7", "country=PT/day=12"):
        write(tmp_path / folder / "part.parquet", {"score": [1.0, 2.0]})
    write(tmp_path / "country=PT/day=08/part.parquet", {"score": [3.0]})
    table = find(tmp_path)
    assert table.columns() == ["score", "country", "day"]
    batches = list(table.batches(["country", "score", "day"]))
    assert [batch.rows.schema.names for batch in batches] == [["country", "score", "day"]] * 3
    found = [(batch.rows["country"][0].as_py(), batch.rows["day"][0].as_py()) for batch in batches]
    assert found == [("NL", 7), ("PT", "08"), ("PT", 12)]


def test_a_stored_column_takes_precedence_over_the_path(tmp_path: Path) -> None:
    write(tmp_path / "day=7" / "part.parquet", {"day": [1, 2]})
    table = find(tmp_path)
    assert table.columns() == ["day"]
    assert numbers(table.batches(["day"]), "day") == [1, 2]


def test_a_file_without_a_column_that_others_have_raises(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {"score": [1.0], "label": [0]})
    write(tmp_path / "b.parquet", {"score": [1.0]})
    message = r"b\.parquet must have the column 'label', got 'score'\."
    with pytest.raises(cr.DataError, match=message):
        list(find(tmp_path).batches(["score", "label"]))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("t.csv.bz2", r"got \.bz2\. Save it as Parquet"),
        ("t.jsonl", r"got \.jsonl\. Save it as Parquet"),
        ("t.txt", r"must end in \.parquet, \.pq, \.csv, \.tsv, \.csv\.gz, \.tsv\.gz, got \.txt\."),
        ("t", r"must end in \.parquet, \.pq, \.csv, .*, got no ending\."),
        ("t.parquet", "must be readable as parquet"),
    ],
)
def test_files_of_another_format_raise(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / name).write_bytes(b"not a table")
    with pytest.raises(cr.DataError, match=message):
        find(tmp_path / name).columns()


@pytest.mark.parametrize("method", ["batches", "read_tasks"])
def test_rows_before_a_damaged_file_are_read_first(tmp_path: Path, method: str) -> None:
    write(tmp_path / "a.parquet", {"score": [1.0]})
    (tmp_path / "b.parquet").write_bytes(b"not a table")
    read = getattr(find(tmp_path), method)(["score"])
    first = next(read) if method == "batches" else next(read)()[0]
    assert first.numbers("score").tolist() == [1.0]
    with pytest.raises(cr.DataError, match=r"b\.parquet must be readable as parquet"):
        next(read) if method == "batches" else next(read)()


# Converting columns


@pytest.mark.parametrize(
    ("column", "expected", "dtype"),
    [
        (pa.array([1.5, None]), [1.5, np.nan], np.float64),
        (pa.array([1.5, 2.5], pa.float32()), [1.5, 2.5], np.float32),
        (pa.array(np.array([1.5], np.float16)), [1.5], np.float64),
        (pa.array([1, 0], pa.int8()), [1, 0], np.int8),
        (pa.array([1, None], pa.int8()), [1, np.nan], np.float64),
        (pa.array([2**64 - 1], pa.uint64()), [2**64 - 1], np.uint64),
        (pa.array([True, False]), [1, 0], np.int8),
        (pa.array([True, None]), [1, np.nan], np.float64),
        (pa.array([0, 1, 2, 3]).slice(1, 2), [1, 2], np.int64),
    ],
)
def test_numeric_columns_keep_their_values(column: Any, expected: list[Any], dtype: Any) -> None:
    found = batch_of(column).numbers("x")
    np.testing.assert_array_equal(found, np.array(expected, dtype=dtype))
    assert found.dtype == dtype


def test_a_text_column_is_not_numeric() -> None:
    message = r"t\.parquet, column x must hold numbers, got string\."
    with pytest.raises(cr.DataError, match=message):
        batch_of(pa.array(["1"])).numbers("x")


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([3, 1, 3]), [3, 1, 3]),
        (pa.array([2**64 - 1, 0], pa.uint64()), [str(2**64 - 1), "0"]),
        (pa.array(["b", "a", "b"]), ["b", "a", "b"]),
        (pa.array(["b", "a", "b"]).dictionary_encode(), ["b", "a", "b"]),
        (pa.array(["x", "b", "a"], pa.large_string()).slice(1), ["b", "a"]),
    ],
)
def test_ids_become_integers_or_strings(column: Any, expected: list[Any]) -> None:
    ids = batch_of(column).ids("x")
    assert names_of(ids).tolist() == expected
    chosen = np.array([len(expected) - 1, 0])
    assert names_of(take_ids(ids, chosen)).tolist() == [expected[-1], expected[0]]


def test_ids_with_nulls_can_be_selected() -> None:
    ids = take_ids(pa.array([1, None, 3]), np.array([1, 2]))
    assert ids.to_pylist() == [None, 3]


def test_indices_of_a_sliced_dictionary_start_at_the_slice() -> None:
    encoded = pa.array(["a", "b", "c", "b"]).dictionary_encode().slice(1)
    assert indices_of(encoded).tolist() == [1, 2, 1]


def test_arrays_become_arrow_arrays_even_if_they_are_strided() -> None:
    assert to_arrow(np.arange(6)[::2]).to_pylist() == [0, 2, 4]
    assert to_arrow(np.array([1.5], np.float32)).type == pa.float32()
