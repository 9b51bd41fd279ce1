"""The page as text, reports of tables on disk, and the command."""

import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import calibrank as cr
from calibrank.data.score_world import make_world
from calibrank.report import Report, read_table, report
from calibrank.report.html_report import embed, plain
from calibrank.report.read_table import read_report_rows
from calibrank.report.rows import rows_from_arrays
from calibrank.report.sections import page_data
from calibrank.tabular.columns import Columns
from calibrank.tabular.read import Table
from calibrank.tabular.rules import Rules
from tests.cli.running import run_here
from tests.report.examples import HOSTILE, data_of


@pytest.fixture(scope="module")
def hostile_report() -> Report:
    rng = np.random.default_rng(0)
    size = 800
    scores = rng.normal(size=size)
    labels = (rng.random(size) < 1 / (1 + np.exp(1 - scores))).astype(int)
    names = np.array(HOSTILE)
    users = names[rng.integers(0, len(HOSTILE), size)]
    items = names[rng.integers(0, len(HOSTILE), size)]
    fitted = cr.Platt().fit(scores, labels)
    return report(
        fitted,
        scores,
        labels,
        users=users,
        items=items,
        columns={HOSTILE[0]: items},
        name=HOSTILE[0],
    )


# ----- the page as text -----
def test_hostile_names_stay_data(hostile_report: Report) -> None:
    text = embed({"names": HOSTILE})
    assert json.loads(text)["names"] == list(HOSTILE)
    assert not set("<>&\u2028\u2029") & set(text)
    assert hostile_report.page.count("<script") == 2
    assert "onerror=alert(2)>" not in hostile_report.page
    data = data_of(hostile_report.page)
    table = next(one for one in data["segments"] if one["title"] == HOSTILE[0])
    assert {segment["name"] for segment in table["segments"]} == set(HOSTILE)
    assert data["provenance"]["source"] == HOSTILE[0]


def test_half_a_surrogate_pair_does_not_fail_the_report() -> None:
    assert embed("half a pair: \ud83d").encode()


def test_the_page_may_run_only_its_own_script_and_request_nothing(hostile_report: Report) -> None:
    page = hostile_report.page
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy
    assert "default-src &#x27;none&#x27;" in policy[1]
    assert "unsafe" not in policy[1]
    addresses = set(re.findall(r"https?://[^\s\"'<]+", page))
    assert addresses == {"http://www.w3.org/2000/svg"}
    assert "innerHTML" not in page


def test_a_report_is_an_isolated_frame_in_a_notebook(hostile_report: Report) -> None:
    shown = hostile_report._repr_html_()
    assert shown.startswith("<iframe")
    assert shown.count("<") == 2  # the page itself is text inside an attribute


def test_save_leaves_no_temporary_file(hostile_report: Report, tmp_path: Path) -> None:
    hostile_report.save(tmp_path / "r.html")
    assert (tmp_path / "r.html").read_text(encoding="utf-8") == hostile_report.page
    assert [path.name for path in tmp_path.iterdir()] == ["r.html"]


def test_values_that_json_does_not_have_become_null() -> None:
    values = [float("nan"), float("inf"), np.float32(0.5), np.arange(2)]
    assert plain(values) == [None, None, 0.5, [0, 1]]


# ----- tables on disk and the command -----
@pytest.fixture
def table(tmp_path: Path) -> Path:
    world = make_world(6_000, seed=2)
    columns = {
        "user_id": world.users,
        "item_id": world.items,
        "score": world.scores,
        "w": world.propensity,
        "label": world.labels.astype("int8"),
        "age": [None if row % 7 == 0 else float(row % 50) for row in range(len(world))],
    }
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table(columns), path)
    return path


@pytest.fixture
def map_file(table: Path, tmp_path: Path) -> Path:
    columns = pq.read_table(table, columns=["score", "label"])
    fitted = cr.Platt().fit(columns["score"].to_numpy(), columns["label"].to_numpy())
    fitted.save(tmp_path / "map.json")
    return tmp_path / "map.json"


def test_a_table_on_disk_gives_the_same_rows_as_its_arrays(table: Path) -> None:
    columns = Columns(
        "score", "label", cr.ips, propensity="w", item="item_id", user="user_id", others=("age",)
    )
    read = read_report_rows(Table.find(str(table)), columns, Rules(skip=False))
    arrays = pq.read_table(table).to_pydict()
    expected = rows_from_arrays(
        np.array(arrays["score"]),
        cr.ips(np.array(arrays["label"]), np.array(arrays["w"])),
        users=np.array(arrays["user_id"]),
    )
    np.testing.assert_array_equal(read.evidence.positive, expected.evidence.positive)
    read_names = np.array(read.users.names)[read.users.codes]
    expected_names = np.array(expected.users.names)[expected.users.codes]
    np.testing.assert_array_equal(read_names, expected_names)
    np.testing.assert_array_equal(read.clusters, expected.clusters)
    missing_ages = sum(value is None for value in arrays["age"])
    assert np.isnan(read.segments["age"]).sum() == missing_ages


def test_users_of_a_table_that_fits_in_memory_are_not_hashed_to_sample_them(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(read_table, "buckets_of")
    columns = Columns("score", "label", cr.naive, user="user_id")
    assert len(read_report_rows(Table.find(str(table)), columns, Rules(skip=False))) == 6000


def test_a_table_too_long_for_memory_is_sampled_by_user(table: Path) -> None:
    columns = Columns("score", "label", cr.naive, user="user_id")
    source = Table.find(str(table))
    everything = read_report_rows(source, columns, Rules(skip=False))
    sample = read_report_rows(source, columns, Rules(skip=False), most_rows=2000)
    assert len(sample) <= 2000
    assert sample.rows_in_table == len(everything) == 6000
    row_counts = dict(zip(everything.users.names, everything.users.counts(), strict=True))
    for name, count in zip(sample.users.names, sample.users.counts(), strict=True):
        assert count == row_counts[name]
    fitted = cr.Platt().fit(sample.scores, sample.evidence)
    limitations = page_data(sample, fitted)["headline"]["limitations"]
    assert any("6,000 rows" in text for text in limitations)


def test_the_command_writes_a_page_with_its_provenance(
    table: Path, map_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out" / "report.html"
    options = ["--map", str(map_file), "--propensity", "w", "--segment", "age", "-o", str(out)]
    arguments = ["report", str(table), *options]
    code, printed, error = run_here(*arguments)
    assert code == 0, error
    error = (
        r"The probabilities are off by [\d.]+ points on average \(95% interval [\d.]+ to [\d.]+\)"
    )
    assert re.match(error, " ".join(printed.split()))
    data = data_of(out.read_text(encoding="utf-8"))
    assert data["provenance"]["command"] == f"calibrank {' '.join(arguments)}"
    assert data["provenance"]["fingerprint"].startswith("sha256:")
    assert data["provenance"]["rows"] == 6000
    assert "age" in [one["title"] for one in data["segments"]]


def test_the_command_prints_the_numbers_of_the_page_as_json(
    table: Path, map_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "report.html"
    code, text, error = run_here("report", table, "--map", map_file, "-o", out, "--json")
    assert code == 0, error
    printed = json.loads(text)
    assert printed.pop("out") == str(out)
    assert printed.pop("headline_text").startswith("The probabilities are off by")
    assert printed == data_of(out.read_text(encoding="utf-8"))


def test_the_command_names_a_missing_segment_column(
    table: Path, map_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "report.html"
    code, _, error = run_here("report", table, "--map", map_file, "--segment", "colour", "-o", out)
    assert code == 3
    assert "must have the segment column 'colour'" in error
