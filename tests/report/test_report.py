"""The numbers of a report against plain loops and the library's own metrics, and its HTML text."""

import html
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import calibrank as cr
from calibrank.calibrators import fit_without_each
from calibrank.data.score_world import make_world
from calibrank.maps import Alternative, Sensitivity, describe_base_rate
from calibrank.metrics import Clusters
from calibrank.metrics.panel import DISCRIMINATION, MISCALIBRATION, PANEL, RANKING
from calibrank.registry import CALIBRATORS
from calibrank.report import Report, report
from calibrank.report.page_data import describe_metrics, page_data
from calibrank.report.read_table import read_report_rows
from calibrank.report.render import embed, plain
from calibrank.report.rows import ReportRows, rows_from_arrays
from calibrank.report.segments import segment_tables
from calibrank.report.thresholds import GRID, threshold_table
from calibrank.report.user_sample import MOST_CHARACTERS, sample_users
from calibrank.tabular.aggregate import Columns
from calibrank.tabular.read import Table
from calibrank.tabular.rules import Rules

HOSTILE = (
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "{{7*7}}",
    "{{style}}",
    "\u202eevil\u2028line\u2029",
    "שלום 👩‍🚀",
    "<!--<script>",
    "&lt;b&gt; ' \\ ]]>",
)
"""Names that would break a page which treats them as markup, code or a template."""


@pytest.fixture(scope="module")
def rows() -> ReportRows:
    world = make_world(12_000, seed=4)
    devices = np.array(["phone", "web", "TV"])[np.arange(12_000) % 3]
    return rows_from_arrays(
        world.scores,
        world.preferences,
        users=world.users,
        items=world.items,
        segments={"device": devices},
    )


@pytest.fixture(scope="module")
def data(rows: ReportRows) -> dict[str, Any]:
    return page_data(rows, None, {})


@pytest.fixture(scope="module")
def probabilities(rows: ReportRows) -> np.ndarray:
    return cr.Gaussian().fit(rows.scores, rows.evidence).predict(rows.scores)


@pytest.fixture(scope="module")
def hostile_report() -> Report:
    rng = np.random.default_rng(0)
    size = 800
    scores = rng.normal(size=size)
    labels = (rng.random(size) < 1 / (1 + np.exp(1 - scores))).astype(int)
    names = np.array(HOSTILE)
    users = names[rng.integers(0, len(HOSTILE), size)]
    items = names[rng.integers(0, len(HOSTILE), size)]
    return report(
        None,
        scores,
        labels,
        users=users,
        items=items,
        segments={HOSTILE[0]: items},
        name=HOSTILE[0],
    )


def data_of(page: str) -> dict[str, Any]:
    """The JSON data embedded in a page."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found[1])


# ----- thresholds -----
@pytest.mark.parametrize("index", [0, 3, 25, 40, 70, len(GRID) - 1])
@pytest.mark.parametrize("length", ["1", "5", "all"])
def test_threshold_sums_are_exact_for_the_whole_table(
    rows: ReportRows, probabilities: np.ndarray, index: int, length: str
) -> None:
    found = threshold_table(probabilities, rows.evidence, rows.users.codes)
    limit = None if length == "all" else int(length)
    list_lengths = []
    expected = 0.0
    positive = 0.0
    for user in range(len(rows.users.names)):
        own = np.flatnonzero(rows.users.codes == user)
        best = own[np.argsort(-probabilities[own], kind="stable")][:limit]
        shown = best[probabilities[best] >= GRID[index]]
        list_lengths.append(len(shown))
        expected += probabilities[shown].sum()
        positive += rows.labels[shown].sum()
    sums = found["lengths"][length]
    assert sums["items"][index] == sum(list_lengths)
    assert sums["expected_positives"][index] == pytest.approx(expected)
    assert sums["positive"][index] == positive
    for least in (1, 2, 4):
        if limit is None or least <= limit:
            users = sum(size >= least for size in list_lengths)
            assert found["users_with_at_least"][least - 1][index] == users


# ----- methods and metrics -----
def test_methods_are_cross_validated_by_user(rows: ReportRows, data: dict[str, Any]) -> None:
    for user in range(len(rows.users.names)):
        assert len(np.unique(rows.folds[rows.users.codes == user])) == 1
    summaries = rows.fold_summaries()
    maps = fit_without_each(cr.Gaussian(), summaries)
    held_out = [
        fitted.predict(summary.scores) for fitted, summary in zip(maps, summaries, strict=True)
    ]
    positive = np.concatenate([summary.positive for summary in summaries])
    total = np.concatenate([summary.total for summary in summaries])
    log_loss = cr.LogLoss()(np.concatenate(held_out), cr.Evidence(positive, total))
    assert data["main_method"] == "Gaussian"
    assert data["methods"][0]["metrics"]["LogLoss"]["value"] == pytest.approx(log_loss, rel=1e-9)
    assert {method["name"] for method in data["methods"]} == set(CALIBRATORS)


def test_ranking_metrics_are_the_bootstrap_over_users(
    rows: ReportRows, data: dict[str, Any]
) -> None:
    for metric in RANKING:
        found = data["ranking"][metric.name]
        expected = cr.bootstrap(metric, rows.scores, rows.labels, rows.users.codes)
        assert (found["value"], found["low"], found["high"]) == pytest.approx(expected)


def test_every_metric_of_every_method_has_an_interval(data: dict[str, Any]) -> None:
    for method in data["methods"]:
        for estimate in method["metrics"].values():
            assert estimate["low"] <= estimate["value"] <= estimate["high"]


@pytest.mark.parametrize("metric", [MISCALIBRATION, DISCRIMINATION], ids=repr)
def test_intervals_of_the_decomposition_are_close_to_the_exact_bootstrap(
    rows: ReportRows, data: dict[str, Any], metric: cr.Metric
) -> None:
    maps = fit_without_each(cr.Gaussian(), rows.fold_summaries())
    expected = cr.bootstrap(
        metric, rows.held_out(maps), rows.evidence, rows.users.codes, resamples=200
    )
    found = data["methods"][0]["metrics"][metric.name]
    width = expected.high - expected.low
    assert found["high"] > found["low"]
    for name, value in expected._asdict().items():
        assert found[name] == pytest.approx(value, abs=0.25 * width)


def test_the_page_gets_each_metrics_own_explanation_and_direction(data: dict[str, Any]) -> None:
    assert list(data["metrics"]) == [metric.name for metric in PANEL]
    for metric in PANEL:
        described = data["metrics"][metric.name]
        assert metric.explanation in described["explanation"]
        assert metric.better.value in described["explanation"].lower()
    assert describe_metrics([cr.NDCG(3)])["NDCG@3"]["higher_is_better"]
    for method in data["methods"]:
        for metric in PANEL:
            if metric.name in method["metrics"]:
                estimate = method["metrics"][metric.name]
                assert estimate["loss"] == metric.better.loss(estimate["value"])


def test_curves_contain_every_row_once_and_their_interval_contains_them(
    rows: ReportRows, data: dict[str, Any]
) -> None:
    for method in data["methods"]:
        for curve in method["curves"].values():
            assert curve["rows"].sum() == len(rows)
            assert (curve["low"] <= curve["observed"]).all()
            assert (curve["observed"] <= curve["high"]).all()
        for histogram in method["histogram"].values():
            assert histogram.sum() == len(rows)
    base_rate = rows.evidence.positive.sum() / len(rows)
    curve = data["methods"][0]["curves"]["mass"]
    mean_rate = (curve["observed"] * curve["mass"]).sum() / curve["mass"].sum()
    assert mean_rate == pytest.approx(base_rate)


# ----- headline -----
def test_the_headline_contains_the_truth_and_states_it_in_words(data: dict[str, Any]) -> None:
    first = data["headline"]["sentences"][0]
    assert first["probability"] == 0.3
    assert re.fullmatch(r"Of 100 items given 30%, \d+ to \d+ are liked", first["text"])
    assert first["low"] < 30 < first["high"]
    assert data["headline"]["verdict"]["tone"] == "good"


def test_texts_write_percentages_without_a_space(data: dict[str, Any]) -> None:
    assert "%" in json.dumps(data["headline"])
    assert " %" not in json.dumps(data["headline"])


def test_a_map_with_a_wrong_base_rate_is_called_too_high(rows: ReportRows) -> None:
    fitted = cr.Gaussian().fit(rows.scores, rows.evidence)
    wrong = cr.to_base_rate(fitted, 0.4, rows.scores)
    headline = page_data(rows, wrong, {})["headline"]
    assert headline["verdict"]["tone"] == "bad"
    assert "too high" in headline["verdict"]["title"]
    assert headline["sentences"][0]["high"] < 30
    assert headline["base_rate_source"]["title"] == "A known rate"
    assert headline["base_rate_source"]["text"] == describe_base_rate(wrong.record)
    assert headline["base_rate_source"]["identified"]


def test_propensity_weighted_labels_do_not_identify_the_base_rate() -> None:
    world = make_world(8_000, seed=1)
    weighted = rows_from_arrays(
        world.scores, world.labels, users=world.users, propensity=world.propensity
    )
    headline = page_data(weighted, None, {})["headline"]
    assert not headline["base_rate_source"]["identified"]
    assert headline["base_rate_source"]["title"].startswith("Assumed")
    assert any("does not identify the base rate" in text for text in headline["limitations"])
    assert headline["verdict"]["tone"] != "good"


def test_a_map_evaluated_on_its_training_rows_is_reported(rows: ReportRows) -> None:
    fitted = cr.Platt().fit(rows.scores, rows.evidence)
    limitations = page_data(rows, fitted, {})["headline"]["limitations"]
    assert any("its own training data" in text for text in limitations)


def test_the_sensitivity_band_of_a_map_is_on_the_page(rows: ReportRows) -> None:
    fitted = cr.Gaussian().fit(rows.scores, rows.evidence)
    scores = (-1.0, 2.0)
    log_odds = [float(fitted.log_odds(score)) for score in scores]
    choices = (Alternative("power 0.25", 0.07, None), Alternative("power 1", 0.2, 0.5))
    low = tuple(value - 1 for value in log_odds)
    high = tuple(value + 1 for value in log_odds)
    sensitivity = Sensitivity(0.07, 0.2, choices, scores, low, high)
    record = replace(fitted.record, evidence="ips", sensitivity=sensitivity)
    found = page_data(rows, replace(fitted, record=record), {})
    band = found["sensitivity"]
    assert [band["low_rate"], band["high_rate"]] == [0.07, 0.2]
    assert band["alternatives"] == [["power 0.25", 0.07, None], ["power 1", 0.2, 0.5]]
    assert (band["low"] < band["high"]).all()
    assert "7% to 20%" in found["headline"]["base_rate_source"]["text"]
    assert not found["headline"]["base_rate_source"]["identified"]


def test_without_users_the_report_says_what_to_add(rows: ReportRows) -> None:
    without_users = rows_from_arrays(rows.scores, rows.labels)
    fitted = cr.Platt().fit(rows.scores, rows.labels)
    data = page_data(without_users, fitted, {})
    assert data["thresholds"] is None
    assert data["user_sample"] is None
    assert data["ranking"] == {}
    assert any("--user" in text for text in data["headline"]["limitations"])


# ----- segments and the sample of users -----
def test_the_worst_segment_comes_first(rows: ReportRows, probabilities: np.ndarray) -> None:
    devices = rows.segments["device"]
    is_web = np.array(devices.names)[devices.codes] == "web"
    wrong = np.where(is_web, probabilities * 0.1, probabilities)
    tables = segment_tables(rows, wrong, Clusters.of(rows.clusters))
    assert tables[0]["title"] == "device"
    first = tables[0]["segments"][0]
    observed = rows.labels[is_web].mean()
    assert first["name"] == "web"
    assert first["observed"] == pytest.approx(observed)
    assert first["gap"] == pytest.approx(observed - wrong[is_web].mean())
    assert first["excess_gap"] > 0
    titles = {table["title"] for table in tables}
    assert titles == {"device", "Popularity of the item", "Activity of the user"}
    for table in tables:
        assert sum(segment["rows"] for segment in table["segments"]) == len(rows)


def test_long_names_reduce_the_sample_of_users() -> None:
    size = 40_000
    scores = np.random.default_rng(1).normal(size=size)
    items = np.array([f"{'x' * 400} {item}" for item in range(size)])
    long_names = rows_from_arrays(
        scores, np.arange(size) % 2, users=np.arange(size) // 20, items=items
    )
    sample = sample_users(long_names, np.linspace(0, 1, size))
    assert sample is not None
    assert len(json.dumps(sample)) <= MOST_CHARACTERS
    assert 100 < len(sample["users"]) < 1000
    assert sample["users_in_table"] == 2000


# ----- the page as text -----
def test_hostile_names_stay_data(hostile_report: Report) -> None:
    text = embed({"names": HOSTILE})
    assert json.loads(text)["names"] == list(HOSTILE)
    assert not set("<>&\u2028\u2029") & set(text)
    assert hostile_report.page.count("<script") == 2
    assert "onerror=alert(2)>" not in hostile_report.page
    data = data_of(hostile_report.page)
    assert {user["name"] for user in data["user_sample"]["users"]} == set(HOSTILE)
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


@pytest.mark.parametrize("method", [cr.Gaussian(), cr.Isotonic(), cr.MinMax()], ids=repr)
def test_a_map_describes_itself_in_a_notebook(rows: ReportRows, method: Any) -> None:
    fitted = method.fit(rows.scores, rows.evidence)
    shown = fitted._repr_html_()
    assert f"<b>{method.name}</b>" in shown
    assert fitted.description in shown
    assert html.escape(describe_base_rate(fitted.record)) in shown
    assert shown.count("<svg") == shown.count("<polyline") == 1
    for name, value in fitted.parameters.items():
        error = fitted.standard_errors[name]
        assert f"<td>{name}</td><td>{value:.6g}</td><td>&plusmn; {error:.2g}</td>" in shown


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


def test_a_table_on_disk_gives_the_same_rows_as_its_arrays(table: Path) -> None:
    columns = Columns(
        "score", "label", cr.ips, propensity="w", item="item_id", user="user_id", others=("age",)
    )
    read = read_report_rows(Table.find(str(table)), columns, Rules(skip=False))
    arrays = pq.read_table(table).to_pydict()
    expected = rows_from_arrays(
        np.array(arrays["score"]),
        np.array(arrays["label"]),
        users=np.array(arrays["user_id"]),
        propensity=np.array(arrays["w"]),
    )
    np.testing.assert_array_equal(read.evidence.positive, expected.evidence.positive)
    read_names = np.array(read.users.names)[read.users.codes]
    expected_names = np.array(expected.users.names)[expected.users.codes]
    np.testing.assert_array_equal(read_names, expected_names)
    np.testing.assert_array_equal(read.folds, expected.folds)
    missing_ages = sum(value is None for value in arrays["age"])
    assert np.isnan(read.segments["age"]).sum() == missing_ages


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
    limitations = page_data(sample, None, {})["headline"]["limitations"]
    assert any("6,000 rows" in text for text in limitations)


def run_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-m", "calibrank", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command_writes_a_page_with_its_provenance(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "out" / "report.html"
    arguments = ["report", str(table), "--propensity", "w", "--segment", "age", "-o", str(out)]
    result = run_command(*arguments)
    assert result.returncode == 0, result.stderr
    assert re.match(r"Of 1[0,]+ items given \d+%, [\d,]+ to [\d,]+ are liked", result.stdout)
    data = data_of(out.read_text(encoding="utf-8"))
    assert data["provenance"]["command"] == f"calibrank {' '.join(arguments)}"
    assert data["provenance"]["fingerprint"].startswith("sha256:")
    assert data["provenance"]["rows"] == 6000
    assert "age" in [one["title"] for one in data["segments"]]


def test_the_command_names_a_missing_segment_column(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    result = run_command("report", str(table), "--segment", "colour", "-o", str(out))
    assert result.returncode == 3
    assert "must have the segment column 'colour'" in result.stderr


# ----- results of a reproduction -----
def write_result_rows(folder: Path) -> None:
    """Write rows as `calibrank reproduce` does: two seeds, and other negatives for one method."""
    rows = []
    for seed in range(2):
        for method, loss in (("MinMax", "none"), ("Gaussian", "naive"), ("Gaussian", "ips")):
            for metric, value in (("ECE", 0.1), ("LogLoss", 0.5), ("failed", 1.0)):
                rows.append((method, loss, 21, seed, metric, value + 0.01 * seed))
        rows.append(("Gaussian", "ips", 100, seed, "ECE", 0.9))
        rows.append(("", "", 0, seed, "NDCG@5", 0.6))
    names = ("method", "loss", "negatives", "seed", "metric", "value")
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    constant = {
        "dataset": "coat",
        "spec": "trained",
        "split": "random",
        "model": "BPR",
        "provenance": "calibrank 0.1.0, x",
    }
    for name, value in constant.items():
        columns[name] = [value] * len(rows)
    columns["propensity"] = ["popularity" if method else "" for method in columns["method"]]
    folder.mkdir(parents=True)
    pq.write_table(pa.table(columns), folder / "rows.parquet")


def test_results_are_means_with_intervals_and_published_numbers(tmp_path: Path) -> None:
    from calibrank.experiment.overview import overview, read_rows
    from calibrank.experiment.statistics import Spread

    write_result_rows(tmp_path / "results" / "coat")
    requested = []

    def find(*key: str) -> float | None:
        requested.append(key)
        return 0.0393 if key == ("ECE", "Gaussian", "ips", "coat", "BPR") else None

    found = overview(read_rows(tmp_path / "results"), find)
    cells = {}
    for cell in found["protocols"]["coat, trained, random split"]["cells"]:
        cells[tuple(cell[:4])] = cell[4:]
    spread = Spread.of(np.array([0.1, 0.11]))  # without the 0.9 of 100 negatives
    assert cells["ECE", "Gaussian", "ips", "BPR"] == [spread.mean, spread.half, 2, 0.0393]
    assert cells["LogLoss", "MinMax", "none", "BPR"][3] is None
    assert ("NLL", "MinMax", "none", "coat", "BPR") in requested
    assert cells["NDCG@5", "", "", "BPR"][0] == pytest.approx(0.6)
    assert found["failed"] == 6
    with pytest.raises(cr.DataError, match="must hold rows"):
        read_rows(tmp_path)


def test_the_page_of_results_gets_the_loss_of_each_mean(tmp_path: Path) -> None:
    from calibrank.experiment.overview import overview, read_rows
    from calibrank.report.html_report import results_report

    write_result_rows(tmp_path / "results")
    found = overview(read_rows(tmp_path / "results"), lambda *_: None)
    data = data_of(results_report(found, "results", "", "calibrank report").page)
    cells = data["protocols"]["coat, trained, random split"]["cells"]
    losses = {(cell["metric"], cell["method"], cell["evidence"]): cell["loss"] for cell in cells}
    assert losses["ECE", "Gaussian", "ips"] == pytest.approx(0.105)
    assert losses["NDCG@5", "", ""] == pytest.approx(-0.6)
