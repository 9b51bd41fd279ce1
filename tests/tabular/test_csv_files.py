"""CSV files: cells are text until they are used as numbers, and no row is lost in silence."""

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import calibrank as cr
from calibrank.tabular.read import Table
from calibrank.tabular.rules import Rules
from calibrank.tabular.write import Probabilities, add_column

ROWS = "".join(f"{row % 7},{row / 100},{row % 2}\n" for row in range(100))


def read(path: Path, name: str = "score") -> np.ndarray:
    batches = Table.find(str(path)).batches([name])
    return np.concatenate([batch.numbers(name) for batch in batches])


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('item,score,label\n"1,0.5,1\n' + ROWS + '3",0.1,0\n', "quote in line 2 is not closed"),
        ('item,score,label\n"a\nb",0.5,1\n', "quote in line 2 is not closed"),
        ('score,label\n0.5,1\n0.1,"0\n', "must close its quotes"),
        ("item,score,label\n1,0.5\n", "readable as csv"),
        ("item,score,score\n1,0.5,1\n", "different names, got 'score' more than once"),
        ("item,score\n1,0.5\n2,abc\n", "column score, row 1 must be a number, got 'abc'"),
        ("item,score\n1,1_000\n", "must be a number, got '1_000'"),
        ("", "readable as csv, got Empty CSV file"),
        ("item,score\na\0b,0.5\n", "must be text, got a NUL byte"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(cr.DataError, match=message):
        read(write(tmp_path / "t.csv", text))


@pytest.mark.parametrize("encoding", ["latin1", "utf-16"])
def test_other_encodings_are_refused(tmp_path: Path, encoding: str) -> None:
    file = write(tmp_path / "t.csv", "us\xe9r,score\n1,0.5\n", encoding)
    with pytest.raises(cr.DataError, match=r"UTF-8 text|readable as csv"):
        read(file)


def test_a_file_that_may_be_cut_is_reported(tmp_path: Path) -> None:
    file = write(tmp_path / "t.csv", "score,label\n0.25,1\n0.12")
    with pytest.raises(cr.DataError, match="readable as csv"):
        read(file)
    file = write(tmp_path / "u.csv", "label,score\n1,0.25\n1,0.12")
    with pytest.warns(cr.CalibrankWarning, match="its last row may be cut off"):
        assert read(file).tolist() == [0.25, 0.12]


@pytest.mark.parametrize(
    "change",
    [
        str,
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text + "\n\n",
        lambda text: "\ufeff" + text,
        lambda text: text.replace("0.5,", '"0.5",'),
        lambda text: text.replace("0.5,", " 0.5 ,"),
    ],
)
def test_valid_variants_are_read(tmp_path: Path, change: Callable[[str], str]) -> None:
    file = write(tmp_path / "t.csv", change("score,label\n0.5,1\nNA,0\n"))
    np.testing.assert_array_equal(read(file), [0.5, np.nan])


def test_words_are_labels_and_decimals_may_come_late(tmp_path: Path) -> None:
    file = write(tmp_path / "t.csv", "label,score\ntrue,1\nFalse,0.5\n")
    assert read(file, "label").tolist() == [1, 0]
    assert read(file).tolist() == [1, 0.5]


CELLS = (
    "id,when,long,name,note,score\n"
    '007,2024-01-02,12345678901234567890,"a, ""b""",,0.25\n'
    '08,2024-01-03,1.50,caf\xe9,"",0.5\n'
)


def test_untouched_cells_are_copied_as_text(tmp_path: Path) -> None:
    file = write(tmp_path / "t.csv", CELLS)
    column = Probabilities(cr.Platt().fit([1, 2, 3, 4], [0, 1, 0, 1]), "score", Rules(skip=False))
    add_column(column, Table.find(str(file)), tmp_path / "out.csv", "p")
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert [line.rpartition(",")[0] for line in lines] == CELLS.splitlines()
    with pytest.raises(cr.DataError, match=r"out\.parquet must be csv as the table, got parquet"):
        add_column(column, Table.find(str(file)), tmp_path / "out.parquet", "p")


@pytest.mark.parametrize(
    ("name", "message"),
    [("part.csv.zip", "which would not be read"), ("part.jsonl", "which would not be read")],
)
def test_parts_in_other_formats_are_refused(tmp_path: Path, name: str, message: str) -> None:
    write(tmp_path / "a.csv", "score\n0.5\n")
    write(tmp_path / name, "")
    with pytest.raises(cr.DataError, match=message):
        Table.find(str(tmp_path))


def test_endings_in_capitals_are_read_and_lost_links_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.CSV", "score\n0.5\n")
    assert read(tmp_path).tolist() == [0.5]
    (tmp_path / "b.csv").symlink_to("nowhere.csv")
    with pytest.raises(cr.DataError, match="links to folders or to missing files"):
        Table.find(str(tmp_path))


def test_an_output_inside_the_table_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "score\n0.5\n")
    column = Probabilities(cr.Platt().fit([1, 2, 3, 4], [0, 1, 0, 1]), "score", Rules(skip=False))
    with pytest.raises(cr.DataError, match="must lie outside"):
        add_column(column, Table.find(str(tmp_path)), tmp_path / "out", "p")


@pytest.mark.parametrize(
    ("name", "delimiter"),
    [("t.tsv", "\t"), ("t.csv", ";"), ("t.csv.gz", ","), ("t.tsv.gz", "\t"), ("t.csv.gz", ";")],
)
def test_tables_of_other_delimiters_and_packed_ones_are_read_and_copied(
    tmp_path: Path, name: str, delimiter: str
) -> None:
    lines = ["score,name,label", '0.50,"a ""b""",1', "1e0,007,0", '2.0,"",1', ""]
    text = "\n".join(lines).replace(",", delimiter)
    opened = gzip.open if name.endswith(".gz") else open
    with opened(tmp_path / name, "wt", encoding="utf-8") as file:
        file.write(text)
    table = Table.find(str(tmp_path / name))
    assert read(tmp_path / name).tolist() == [0.5, 1.0, 2.0]
    fitted = cr.Platt().fit([1, 2, 3, 4], [0, 1, 0, 1])
    column = Probabilities(fitted, "score", Rules(skip=False))
    rows, _ = add_column(column, table, tmp_path / f"out-{name}", "p")
    assert rows == 3
    with opened(tmp_path / f"out-{name}", "rt", encoding="utf-8") as file:
        found = file.read().split("\n")
    assert [line.rpartition(delimiter)[0] for line in found[:-1]] == text.split("\n")[:-1]
    values = [float(line.rpartition(delimiter)[2]) for line in found[1:-1]]
    assert values == fitted.predict([0.5, 1.0, 2.0]).tolist()


def test_decimal_commas_and_packed_files_that_are_cut_off_are_errors(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "score;label\n0,5;1\n")
    with pytest.raises(cr.DataError, match=r"row 0 must be a number, got '0,5'"):
        read(tmp_path / "a.csv")
    packed = gzip.compress(b"score,label\n" + b"0.5,1\n" * 1000)
    (tmp_path / "b.csv.gz").write_bytes(packed[:-20])
    with pytest.raises(cr.DataError, match=r"b\.csv\.gz must be readable as csv"):
        read(tmp_path / "b.csv.gz")
