"""The numbers of a report against plain loops and the library's own metrics, and its HTML text."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.special import expit

import calibrank as cr
from calibrank.anchoring import to_base_rate
from calibrank.data.score_world import make_world
from calibrank.maps import Population, Sensitivity
from calibrank.metrics import NDCG, Estimate
from calibrank.metrics.cluster_rates import Clusters
from calibrank.metrics.panel import DISCRIMINATION, MISCALIBRATION, PANEL, RANKING
from calibrank.metrics.pooled import Misfit
from calibrank.registry import parse_model
from calibrank.report import report
from calibrank.report.headline import describe_source, verdict
from calibrank.report.read_table import read_report_rows
from calibrank.report.rows import MISSING, ReportRows, rows_from_arrays
from calibrank.report.sections import (
    _quantile_groups,
    describe_metrics,
    page_data,
    segment_tables,
    segment_test,
)
from calibrank.tabular.columns import Columns
from calibrank.tabular.read import Table as Table_
from calibrank.tabular.rules import Rules
from calibrank.terms import Position


@pytest.fixture(scope="module")
def rows() -> ReportRows:
    world = make_world(12_000, seed=4)
    devices = np.array(["phone", "web", "TV"])[np.arange(12_000) % 3]
    return rows_from_arrays(
        world.scores,
        world.preferences,
        users=world.users,
        items=world.items,
        columns={"device": devices},
    )


@pytest.fixture(scope="module")
def data(rows: ReportRows) -> dict[str, Any]:
    return page_data(rows, cr.Gaussian().fit(rows.scores, rows.evidence))


@pytest.fixture(scope="module")
def probabilities(rows: ReportRows) -> np.ndarray:
    return cr.Gaussian().fit(rows.scores, rows.evidence).predict(rows.scores)


def test_ranking_metrics_are_the_bootstrap_over_users(
    rows: ReportRows, data: dict[str, Any]
) -> None:
    for metric in RANKING:
        found = data["estimates"][metric.name]
        expected = cr.bootstrap(metric, rows.scores, rows.evidence, rows.users.codes)
        assert (found["value"], found["low"], found["high"]) == pytest.approx(expected)


def test_every_metric_has_an_interval(data: dict[str, Any]) -> None:
    assert list(data["estimates"]) == [metric.name for metric in PANEL]
    for estimate in data["estimates"].values():
        assert estimate["low"] <= estimate["value"] <= estimate["high"]


@pytest.mark.parametrize("metric", [MISCALIBRATION, DISCRIMINATION], ids=repr)
def test_intervals_of_the_decomposition_are_close_to_the_exact_bootstrap(
    rows: ReportRows, data: dict[str, Any], probabilities: np.ndarray, metric: cr.Metric
) -> None:
    expected = cr.bootstrap(metric, probabilities, rows.evidence, rows.users.codes, resamples=200)
    found = data["estimates"][metric.name]
    width = expected.high - expected.low
    assert found["high"] > found["low"]
    for name, value in expected._asdict().items():
        assert found[name] == pytest.approx(value, abs=0.25 * width)


def test_the_page_gets_each_metrics_own_explanation_and_direction(data: dict[str, Any]) -> None:
    assert list(data["metrics"]) == [metric.name for metric in PANEL]
    for metric in PANEL:
        described = data["metrics"][metric.name]
        assert metric.explanation in described
        assert metric.better.value in described.lower()
    assert describe_metrics([NDCG(3)])["NDCG@3"].endswith("Higher is better.")


def test_curves_contain_every_row_once_and_their_interval_contains_them(
    rows: ReportRows, data: dict[str, Any]
) -> None:
    for curve in data["curves"].values():
        assert curve["rows"].sum() == len(rows)
        assert (curve["low"] <= curve["observed"]).all()
        assert (curve["observed"] <= curve["high"]).all()
    for axis in ("linear", "logit"):
        assert data["histogram"][axis].sum() == len(rows)
    base_rate = rows.evidence.positive.sum() / len(rows)
    curve = data["curves"]["mass"]
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
    headline = page_data(rows, wrong)["headline"]
    assert headline["verdict"]["tone"] == "bad"
    assert "too high" in headline["verdict"]["title"]
    assert headline["sentences"][0]["high"] < 30
    assert headline["base_rate_source"]["title"] == "A known rate"
    assert headline["base_rate_source"]["text"] == wrong.record.base_rate_description
    assert headline["base_rate_source"]["identified"]


def test_a_map_that_a_constant_beats_is_called_so(rows: ReportRows) -> None:
    fitted = cr.Gaussian().fit(rows.scores, rows.evidence)
    wrong = cr.to_base_rate(fitted, 0.8, rows.scores)
    found = page_data(rows, wrong)["headline"]["verdict"]
    assert found["tone"] == "bad"
    assert "They are worse than a constant: predicting the base rate" in found["title"]
    assert found["title"].endswith("too high on average.")


def metrics_of(**values: float) -> dict[str, Estimate]:
    """Metrics of a calibrated map with narrow intervals, but for the given ones."""
    names = {
        "LogLoss": 0.3,
        "ConstantLogLoss": 0.35,
        "LogLossGain": 0.05,
        "ECE": 0.01,
        "SmoothECE": 0.02,
        "Brier": 0.12,
        "Miscalibration": 0.004,
    }
    names |= {"CalibrationInTheLarge": 1, "CalibrationSlope": 1, "CalibrationIntercept": 0}
    return {
        name: Estimate(value, value - 0.01, value + 0.01)
        for name, value in (names | values).items()
    }


def curve_of(*bins: tuple[float, float, int]) -> dict[str, np.ndarray]:
    """A reliability curve of bins (predicted, observed, rows) with intervals of 2 points."""
    predicted, observed, rows = np.array(bins).T
    return {
        "predicted": predicted,
        "observed": observed,
        "low": observed - 0.01,
        "high": observed + 0.01,
        "rows": rows,
        "mass": rows,
    }


CALIBRATED = curve_of((0.1, 0.1, 5000), (0.3, 0.3, 5000))


@pytest.mark.parametrize(
    ("metrics", "p_value", "tone", "title"),
    [
        ({}, 0.5, "good", "well calibrated"),
        ({"SmoothECE": 0.004}, 1e-9, "good", "well calibrated"),
        ({"CalibrationInTheLarge": 0.974}, 1e-3, "fair", "too low on average"),
        ({"CalibrationInTheLarge": 1.3}, 1e-3, "bad", "too high on average"),
        ({"CalibrationSlope": 0.85}, 1e-3, "fair", "too extreme: the calibration slope"),
        ({"CalibrationSlope": 1.5}, 1e-3, "bad", "too close to each other"),
        ({"SmoothECE": 0.06}, 1e-3, "bad", "In 3% of the rows they are too high by 40 points"),
        ({"LogLossGain": -0.02}, 0.5, "bad", "They are worse than a constant"),
    ],
)
def test_the_verdict_looks_at_the_constant_then_the_test_then_what_is_off(
    metrics: dict[str, float], p_value: float, tone: str, title: str
) -> None:
    curves = {"mass": CALIBRATED, "width": curve_of((0.1, 0.1, 9700), (0.95, 0.55, 300))}
    shape = Misfit(0.001, 0.002, 1.0, 1.0)
    found = verdict(metrics_of(**metrics), curves, shape, p_value, identified=True)
    assert found["tone"] == tone
    assert title in found["title"]
    if "SmoothECE" not in metrics:
        assert found["error"] == (
            "The probabilities are off by 2 points on average (95% interval 1 to 3), which costs "
            "0.0040 of a Brier score of 0.1200."
        )
    assert len(found["facts"]) <= 4
    if "CalibrationInTheLarge" not in metrics:
        start = "20% predicted on average, 20% observed: ratio 1.000 (0.990 to 1.010). Calibration"
        assert found["facts"][1].startswith(start)
    assert "best constant, 0.3500" in found["facts"][0]


def test_the_verdict_says_how_far_the_shape_is_from_isotonic_regression() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=10_000)
    # A step at 1, which no Gaussian map can follow.
    labels = (rng.random(10_000) < np.where(scores > 1, 0.9, 0.1)).astype(int)
    for truth, expected in (
        (labels, True),
        ((rng.random(10_000) < expit(scores)).astype(int), False),
    ):
        data = page_data(rows_from_arrays(scores, truth), cr.Gaussian().fit(scores, truth))
        fact = data["headline"]["verdict"]["facts"][-1]
        isotonic = "Compared with isotonic regression the probabilities are off by" in fact
        assert isotonic == expected == data["misfit"]["matters"]
        assert fact.endswith(": more than chance explains.") == expected
        assert "(test: p = " in fact


def test_a_known_rate_is_no_range_of_rates(rows: ReportRows) -> None:
    fitted = cr.Gaussian().fit(rows.scores, rows.evidence)
    for high, expected in ((0.20901, ""), (0.25, "between 20.90% and 25.00%")):
        band = Sensitivity(0.209, high, (), (-1.0, 2.0), (-2.0, -1.0), (-1.0, 0.0))
        record = replace(fitted.record, sensitivity=band)
        text = describe_source(replace(fitted, record=record))["text"]
        assert ("the base rate lies" in text) == bool(expected)
        assert expected in text


def test_propensity_weighted_labels_do_not_identify_the_base_rate() -> None:
    world = make_world(8_000, seed=1)
    evidence = cr.ips(world.labels, world.propensity)
    weighted = rows_from_arrays(world.scores, evidence, users=world.users)
    headline = page_data(weighted, cr.Gaussian().fit(world.scores, evidence))["headline"]
    assert not headline["base_rate_source"]["identified"]
    assert headline["base_rate_source"]["title"].startswith("Assumed")
    assert any("does not identify the base rate" in text for text in headline["limitations"])
    assert headline["verdict"]["tone"] != "good"


def test_judged_documents_are_no_impressions(rows: ReportRows) -> None:
    fitted = cr.Gaussian().fit(rows.scores, rows.evidence)
    judged = Population("judged documents of this run", "grade >= 2", 50)
    record = replace(fitted.record, evidence="impressions", population=judged)
    assert describe_source(replace(fitted, record=record))["title"] == "Judged documents"


def test_a_map_evaluated_on_its_training_rows_is_reported(rows: ReportRows) -> None:
    fitted = cr.Platt().fit(rows.scores, rows.evidence)
    limitations = page_data(rows, fitted)["headline"]["limitations"]
    assert any("On its own rows it looks better" in text for text in limitations)


def test_without_users_the_report_says_what_to_add(rows: ReportRows) -> None:
    without_users = rows_from_arrays(rows.scores, rows.evidence)
    fitted = cr.Platt().fit(rows.scores, rows.evidence)
    data = page_data(without_users, fitted)
    assert "NDCG@5" not in data["estimates"]
    assert any("a column of users" in text for text in data["headline"]["limitations"])


# ----- segments -----
def test_the_worst_of_many_segments_is_within_chance_where_all_are_right() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=4_000)
    labels = (rng.random(4_000) < 1 / (1 + np.exp(-scores))).astype(int)
    chunk = np.array([f"chunk {number}" for number in rng.integers(0, 25, 4_000)])
    rows = rows_from_arrays(scores, labels, columns={"chunk": chunk})
    right = 1 / (1 + np.exp(-scores))
    tables = segment_tables(rows, right, Clusters.of(rows.clusters))
    found = segment_test(tables, rows, cr.Platt().fit(scores, labels))
    assert found is not None
    assert found["deviating"] == 0
    assert found["terms"] == ""
    # Without the adjustment, some intervals exclude the prediction.
    assert any(segment["excess_gap"] > 0 for segment in tables[0]["segments"])


class Table:
    """Rows whose level differs by country and whose log odds increase with age."""

    def __init__(self, seed: int, rows: int = 6_000) -> None:
        rng = np.random.default_rng(seed)
        self.scores = rng.normal(size=rows)
        self.country = rng.choice(["NL", "DE", "it's"], rows, p=[0.5, 0.3, 0.2])
        self.age = rng.uniform(-2, 2, rows)
        log_odds = self.scores + (self.country == "NL") + 0.7 * self.age
        self.labels = (rng.random(rows) < expit(log_odds)).astype(int)

    @property
    def columns(self) -> dict[str, np.ndarray]:
        return {"country": self.country, "age": self.age}


def test_wrong_segments_are_named_with_terms_that_make_them_right() -> None:
    train, test = Table(1), Table(2)
    plain = cr.Platt().fit(train.scores, train.labels)
    before = report(plain, test.scores, test.labels, test.columns).data
    assert before["segment_test"]["deviating"] >= 4
    named = before["segment_test"]["terms"]
    assert sorted(named.split(" + ")) == ["Level('country')", "Smooth('age')"]
    # Nothing on the page says to fit on the table of the test.
    assert "calibrank fit" not in json.dumps(before)
    model = parse_model(f"Platt() + {named}")
    fitted = model.fit(train.scores, train.labels, train.columns)
    after = report(fitted, test.scores, test.labels, test.columns).data
    assert after["segment_test"]["deviating"] == 0
    assert after["segment_test"]["terms"] == ""
    tables = {table["title"]: table["segments"] for table in after["segments"]}
    worst = next(each for each in tables["country"] if each["name"] == "NL")
    assert abs(worst["predicted"] - worst["observed"]) < 0.03
    with pytest.raises(cr.DataError, match="columns must have the column 'age', got 'country'"):
        report(fitted, test.scores, test.labels, {"country": test.country})


def test_a_map_with_terms_is_evaluated_with_its_columns() -> None:
    train, test = Table(1), Table(2)
    model = cr.Platt() + cr.Level("country") + cr.Smooth("age")
    fitted = model.fit(train.scores, train.labels, train.columns)
    users = np.arange(len(test.scores)) // 20
    rows = rows_from_arrays(test.scores, test.labels, users=users, columns=test.columns)
    found = page_data(rows, fitted)
    probabilities = fitted.predict(test.scores, test.columns)
    assert found["estimates"]["LogLoss"]["value"] == pytest.approx(
        cr.LogLoss()(probabilities, cr.naive(test.labels))
    )
    # Isotonic regression on the probability finds nothing; on the score it would.
    assert not found["misfit"]["matters"]
    # Lists are in the order of the probabilities.
    order = cr.metrics.NDCG(5)(probabilities, cr.naive(test.labels), users)
    assert found["estimates"]["NDCG@5"]["value"] == pytest.approx(order)
    curve = found["map_curve"]
    average = fitted.without_terms()
    np.testing.assert_array_equal(curve["value"], average.predict(curve["scores"]))
    assert len(curve["terms"]) == 2


LEVELS = {
    "booleans": np.array([True, False]),
    "decimals": np.array([1.0, 2.0]),
    "text": np.array(["(missing)", "other"], dtype=object),
    "numbers": np.array([10**6, 7]),
}


@pytest.mark.parametrize("kind", LEVELS)
@pytest.mark.parametrize("on_disk", [False, True])
def test_levels_of_any_type_are_those_of_predict(kind: str, on_disk: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    values = LEVELS[kind][rng.integers(0, 2, 3_000)]
    scores = rng.normal(size=3_000)
    labels = (rng.random(3_000) < expit(scores + (values == values[0]))).astype(int)
    fitted = (cr.Platt() + cr.Level("kind")).fit(scores, labels, {"kind": values})
    rows = rows_from_arrays(scores, labels, columns={"kind": values}, levels=["kind"])
    if on_disk:
        path = tmp_path / "t.parquet"
        pq.write_table(pa.table({"score": scores, "label": labels, "kind": values}), path)
        columns = Columns("score", "label", cr.naive)
        rows = read_report_rows(Table_.find(str(path)), columns, Rules(skip=False), fitted=fitted)
    np.testing.assert_array_equal(rows.predict(fitted), fitted.predict(scores, {"kind": values}))
    (table,) = [one for one in page_data(rows, fitted)["segments"] if one["title"] == "kind"]
    assert {one["name"] for one in table["segments"]} == {key[0] for key in fitted.terms[0].keys}


def test_an_anchored_map_has_the_rate_of_its_labels_and_not_of_the_log() -> None:
    train, test = Table(1), Table(2)
    rare = test.labels * (np.random.default_rng(0).random(len(test.labels)) < 0.2)
    fitted = cr.anchor(cr.Platt().fit(train.scores, train.labels), test.scores, rare)
    found = page_data(rows_from_arrays(test.scores, rare), fitted)
    assert found["parameters"]["rate"] == fitted.record.anchoring.rate
    assert found["parameters"]["rate"] == pytest.approx(rare.mean(), rel=0.2)
    moved = to_base_rate(fitted, 0.02, test.scores)
    assert page_data(rows_from_arrays(test.scores, rare), moved)["parameters"]["rate"] == 0.02


def test_the_worst_segment_comes_first(rows: ReportRows, probabilities: np.ndarray) -> None:
    devices = rows.segments["device"]
    is_web = np.array(devices.names)[devices.codes] == "web"
    wrong = np.where(is_web, probabilities * 0.1, probabilities)
    tables = segment_tables(rows, wrong, Clusters.of(rows.clusters))
    assert tables[0]["title"] == "device"
    first = tables[0]["segments"][0]
    observed = rows.evidence.positive[is_web].mean()
    assert first["name"] == "web"
    assert first["observed"] == pytest.approx(observed)
    assert first["gap"] == pytest.approx(observed - wrong[is_web].mean())
    assert first["excess_gap"] > 0
    titles = {table["title"] for table in tables}
    assert titles == {"device", "Popularity of the item", "Activity of the user"}
    for table in tables:
        assert sum(segment["rows"] for segment in table["segments"]) == len(rows)


def test_groups_of_infinite_and_huge_numbers_have_names() -> None:
    groups = _quantile_groups(np.array([-np.inf, -1.0, 2.5, 1e308, np.inf, np.nan]), "")
    assert groups.names == ["-inf", "-1", "2.5", "1e+308", "inf", MISSING]


@pytest.mark.parametrize("ranks", [np.tile([1, 2, 3, 4], 50), np.tile([1.0, 2.0, 3.0, 4.0], 50)])
def test_few_ranks_are_numbers_to_a_map_by_rank(ranks: Any) -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=200)
    labels = (rng.random(200) < expit(scores)).astype(float)
    columns = {"rank": ranks}
    start = cr.Platt().fit(scores, labels)
    fitted = cr.anchor(start, scores, labels, columns, terms=[Position("rank", n=2)])
    rows = rows_from_arrays(scores, labels, columns=columns)
    np.testing.assert_array_equal(rows.predict(fitted), fitted.predict(scores, columns))
    words = rows_from_arrays(scores, labels, columns={"rank": np.array(["a", "b"] * 100)})
    with pytest.raises(cr.DataError, match="column 'rank' must be real numbers"):
        words.predict(fitted)
