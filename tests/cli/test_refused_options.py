"""Options without an effect, absurd sizes and outputs that are inputs are refused at once."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import calibrank as cr
from tests.cli.conftest import Call


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a table `t.parquet`, a folder of two files and a map."""
    monkeypatch.chdir(tmp_path)
    table = pa.table(
        {
            "user": list(range(40)),
            "item": [row % 5 for row in range(40)],
            "score": [row / 40 for row in range(40)],
            "label": [row % 3 % 2 for row in range(40)],
            "p": [0.5] * 40,
        }
    )
    (tmp_path / "days").mkdir()
    for name in ("t.parquet", "days/a.parquet", "days/b.parquet"):
        pq.write_table(table, name)
    cr.Platt().fit([0.1, 0.4, 0.2, 0.9], [1, 0, 0, 1]).save("map.json")
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        "fit t.parquet --propensity p --item item",
        "compare t.parquet --propensity p --item item",
        "diagnose t.parquet --propensity p --item item",
        "evaluate t.parquet --map map.json --probability p",
        "evaluate t.parquet --probability p --score score",
        "export map.json --to onnx --dialect duckdb -o x.onnx",
        "export map.json --to onnx --score s -o x.onnx",
        "train t.parquet --data x -o m",
        "train coat --user u -o m",
        "reproduce aaai22 --data x",
        "fit t.parquet --propensity p --method platt --user item",
        "anchor map.json --base-rate 0.1 --group user",
        "anchor map.json --run r --qrels q --propensity p",
        "search fit run.trec q.txt --precision 0.5 --recall 0.5 -o o.json",
        "control t.parquet --map map.json --probability p",
        "control t.parquet --score score",
        "monitor days --map map.json --score score",
        "monitor days --map map.json --user item",
        "monitor days --map map.json --on-bad-rows skip",
    ],
)
def test_options_without_an_effect_are_refused(call: Call, here: Path, arguments: str) -> None:
    before = sorted(here.rglob("*"))
    code, _, error = call(*arguments.split())
    assert code == 2
    assert "must not" in error
    assert sorted(here.rglob("*")) == before


@pytest.mark.parametrize("arguments", ["monitor days --map map.json -o x --refit y/../x"])
def test_one_output_must_not_overwrite_another(call: Call, here: Path, arguments: str) -> None:
    code, _, error = call(*arguments.split())
    assert code == 2
    assert "must be different files" in error
    assert not (here / "x").exists()


@pytest.mark.parametrize("value", ["nan", "inf", "0", "-1", "1.1"])
@pytest.mark.parametrize("option", ["--precision", "--recall"])
def test_aims_of_a_threshold_are_fractions(call: Call, option: str, value: str) -> None:
    code, _, error = call("search", "fit", "r", "q", "-o", "o", option, value)
    assert code == 2
    assert f"{option} must lie in (0, 1], got" in error


@pytest.mark.parametrize(
    "arguments",
    [
        "train t.parquet -o m --dim 1000000000",
        "train t.parquet -o m --dim 0",
        "train t.parquet -o m --negatives 0",
        "train t.parquet -o m --negatives 1000000000000",
        "train t.parquet -o m --epochs 0",
        "train t.parquet -o m --seed -1",
        "demo --pairs 100000000000000",
        "demo --pairs 0",
        "demo --seed -1",
        "reproduce aaai22 --jobs 100000",
        "reproduce aaai22 --seeds 99999999999999999999",
        "reproduce aaai22 --device tpu",
    ],
)
def test_absurd_sizes_are_refused(call: Call, here: Path, arguments: str) -> None:
    code, _, error = call(*arguments.split())
    assert code == 2
    *_, option, value = arguments.split()
    assert error.startswith(f"calibrank: {option} must be ")
    assert f"got {value}" in error.replace("'", "")
    assert not (here / "m").exists()


def test_an_absurd_number_of_threads_is_refused(
    call: Call, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALIBRANK_THREADS", "99999999")
    code, _, error = call("fit", here / "t.parquet", "--log", "impressions")
    assert code == 3
    assert "CALIBRANK_THREADS must be a whole number from 1 to 1024" in error


@pytest.mark.parametrize(
    "arguments",
    [
        "fit days --log impressions -o days/a.parquet",
        "anchor map.json days -o days/b.parquet",
        "anchor map.json days -o map.json",
        "report days --map map.json -o days/a.parquet",
        "apply map.json days -o days",
        "apply map.json days -o days/out",
        "apply map.json t.parquet -o map.json",
        "apply map.json t.parquet -o link.parquet",
        "export map.json --to json -o map.json",
        "demo --out t.parquet",
        "train t.parquet -o t.parquet",
    ],
)
def test_an_output_that_is_an_input_is_refused(call: Call, here: Path, arguments: str) -> None:
    Path("link.parquet").symlink_to("t.parquet")
    before = {file: file.read_bytes() for file in here.rglob("*") if file.is_file()}
    code, _, error = call(*arguments.split())
    assert code == 3
    assert "must" in error
    assert {file: file.read_bytes() for file in here.rglob("*") if file.is_file()} == before


@pytest.mark.parametrize(
    "arguments",
    [
        "fit t.parquet --log impressions --score label",
        "evaluate t.parquet --map map.json --score score --label score",
        "train t.parquet --user item --item item -o m",
    ],
)
def test_one_column_has_one_role(call: Call, here: Path, arguments: str) -> None:
    code, _, error = call(*arguments.split())
    assert code == 3
    assert "must be different columns" in error
    assert not (here / "m").exists()


def test_a_report_on_one_row_is_refused(call: Call, here: Path) -> None:
    pq.write_table(pq.read_table("t.parquet").slice(0, 1), here / "one.parquet")
    code, _, error = call("report", "one.parquet", "--map", "map.json")
    assert code in (3, 4)
    assert "bug" not in error


def test_weights_whose_sums_overflow_are_refused(call: Call, here: Path) -> None:
    table = pq.read_table("t.parquet").drop_columns("p").append_column("p", [[1e308] * 40])
    pq.write_table(table, here / "heavy.parquet")
    code, _, error = call("evaluate", "heavy.parquet", "--map", "map.json", "--weight", "p")
    assert code == 3
    assert "p must be finite and not negative, got 1e+308" in error


def test_recorded_weights_are_not_corrected_twice(call: Call, here: Path) -> None:
    roles = b'{"roles": {"weight": "p"}, "written_by": "calibrank train", "version": 1}'
    table = pq.read_table("t.parquet").replace_schema_metadata({b"calibrank": roles})
    pq.write_table(table, here / "weighted.parquet")
    code, _, error = call(
        "fit", "weighted.parquet", "--log", "impressions", "--negatives-kept", "0.1"
    )
    assert code == 2
    assert "--negatives-kept must not be given with the recorded weights in 'p'" in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("fit t.parquet --segment label", "known before the label, got 'label', the label column"),
        ("fit t.parquet --feature label", "known before the label, got 'label', the label column"),
        ("fit t.parquet --feature score", "known before the label, got 'score', the score column"),
        ("fit t.parquet --label item>2 --segment item", "got 'item', the label column"),
        ("fit t.parquet --segment nested", "column nested must hold ids"),
        ("anchor map.json days --rank item", "item must be a rank"),
        ("fit utf16.csv", "utf16.csv must be UTF-8 text, got UTF-16. Convert it: iconv -f utf16"),
        ("fit latin.csv --segment user", "latin.csv must be UTF-8 text, got other bytes"),
        ("fit empty.csv", "empty.csv must be readable as csv, got Empty CSV file. Check"),
        ("fit days --score nope", "days must have a score column (nope), got"),
        ("fit nodata", "got a folder without .parquet, .pq, .csv, .tsv, .csv.gz, .tsv.gz"),
        ("fit no*.csv", "got no file with such a name. Check the path."),
        ("evaluate head.csv --map map.json", "head.csv must hold at least one valid row"),
        ("inspect days", "days must be a saved map, got a folder. Make one"),
    ],
)
def test_tables_that_cannot_be_used_are_named(
    call: Call, here: Path, arguments: str, message: str
) -> None:
    rows = pq.read_table("t.parquet")
    pq.write_table(rows.append_column("nested", pa.array([[1]] * 40)), "t.parquet")
    (here / "utf16.csv").write_text("score,label\n1,0\n2,1\n", encoding="utf-16")
    (here / "latin.csv").write_bytes(b"user,score,label\n\xe9,1,0\nb,2,1\n")
    (here / "empty.csv").write_text("")
    (here / "head.csv").write_text("user,score,label\n")
    (here / "nodata").mkdir()
    naive = ["--log", "impressions"] if arguments.startswith("fit") else []
    code, _, error = call(*arguments.split(), *naive)
    assert code == 3
    assert message in error
