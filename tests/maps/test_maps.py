"""Maps: scalars, representation, saving, the record, and sentences about the base rate."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import calibrank as cr
from calibrank.errors import AssumedRateWarning
from calibrank.maps import (
    Alternative,
    Anchoring,
    FitRecord,
    LogisticCurve,
    Population,
    Sensitivity,
    StepCurve,
)
from calibrank.maps.format import parse
from calibrank.monitor import Day, refit
from tests import plain_map
from tests.maps.samples import RECORD, gaussian_map, map_of, min_max_map, spline_map, step_map

ROOT = Path(__file__).parents[2]
MAPS = [gaussian_map(), step_map(7), min_max_map(), spline_map()]
every_map = pytest.mark.parametrize("fitted", MAPS, ids=lambda fitted: fitted.curve.kind)

SENSITIVITY = Sensitivity(
    low_rate=0.07,
    high_rate=0.2,
    alternatives=(Alternative("power 0.25", 0.07, None), Alternative("power 1", 0.2, 0.5)),
    scores=(-1.0, 2.0),
    low=(-3.0, -2.0),
    high=(-1.0, 1.0),
)


@every_map
@pytest.mark.parametrize("score", [0.3, np.float64(0.3), np.array(0.3), 1, np.int64(1)], ids=repr)
def test_a_single_score_gives_a_float(fitted: cr.CalibrationMap, score: float) -> None:
    array = np.array([float(score)])
    assert type(fitted.predict(score)) is float
    assert fitted.predict(score) == fitted.predict(array)[0]
    assert type(fitted.log_odds(score)) is float
    assert fitted.log_odds(score) == fitted.log_odds(array)[0]
    interval = fitted.sampling_interval(score)
    assert [type(end) for end in interval] == [float, float]
    assert interval == (
        fitted.sampling_interval(array).low[0],
        fitted.sampling_interval(array).high[0],
    )


@every_map
def test_the_band_of_a_single_score_has_float_ends(fitted: cr.CalibrationMap) -> None:
    with_band = replace(fitted, record=replace(RECORD, sensitivity=SENSITIVITY))
    band = with_band.band(0.3)
    assert [type(end) for end in band] == [float, float]
    assert band == (with_band.band([0.3]).low[0], with_band.band([0.3]).high[0])
    assert band.low <= with_band.predict(0.3) <= band.high


@every_map
def test_arrays_keep_their_shape_and_dtype(fitted: cr.CalibrationMap) -> None:
    for shape in [(0,), (1,), (2, 3), (1, 1)]:
        for dtype in (np.float32, np.float64):
            scores = np.linspace(-1, 1, int(np.prod(shape)), dtype=dtype).reshape(shape)
            assert fitted.predict(scores).shape == shape
            assert fitted.predict(scores).dtype == dtype
            assert fitted.sampling_interval(scores).low.shape == shape
            assert fitted.sampling_interval(scores).high.dtype == dtype
            assert fitted.log_odds(scores).dtype == np.float64


def test_an_invalid_single_score_is_an_error() -> None:
    for score in (float("nan"), 1e31):
        with pytest.raises(cr.DataError, match="scores must be finite and within"):
            min_max_map().predict(score)


def test_a_level_in_the_place_of_columns_is_refused() -> None:
    for fitted in MAPS:
        with pytest.raises(cr.DataError, match=r"columns must be a mapping .* got float"):
            fitted.interval([0.0, 1.0], 0.9)


def test_a_band_needs_alternative_propensity_models() -> None:
    message = (
        "a sensitivity band must come from alternative propensity models, "
        "got a MinMax map that was fitted with one"
    )
    with pytest.raises(cr.DataError, match=message):
        min_max_map().band(0.3)


def test_repr_is_one_readable_line() -> None:
    rng = np.random.default_rng(0)
    scores = np.round(np.concatenate([[-2.1, 5.3], rng.uniform(-2, 5, 12_343)]), 3)
    labels = (rng.random(len(scores)) < 0.02 + 0.01 * (scores + 2.1)).astype(float)
    labels[:2] = [0, 1]
    fitted = cr.Gaussian().fit(scores, cr.ips(labels, np.ones(len(labels))))
    assert repr(fitted) == (
        "CalibrationMap(Gaussian, 12,345 rows, ips evidence, scores -2.1 to 5.3, "
        "base rate: assumed)"
    )
    moved = cr.to_base_rate(fitted, 0.11, scores)
    assert repr(moved).endswith("base rate: known rate)")
    anchored = cr.anchor(fitted, scores[:300], labels[:300])
    assert repr(anchored).endswith("base rate: random labels)")


def test_repr_names_the_method_of_every_map() -> None:
    assert repr(min_max_map()) == (
        "CalibrationMap(MinMax, 2 rows, naive evidence, scores 0 to 1, base rate: assumed)"
    )
    constant = map_of(StepCurve((), (0.5,), (4.0,)))
    assert repr(constant) == "CalibrationMap(Sample, 4 rows, naive evidence, base rate: assumed)"


@every_map
def test_a_saved_map_is_loaded_as_it_was(fitted: cr.CalibrationMap, tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    fitted.save(path)
    assert cr.load(path) == fitted


def test_saved_maps_use_the_names_of_the_attributes(tmp_path: Path) -> None:
    anchoring = Anchoring(300, 250.0, 0.9, 0.5, 0.25)
    record = replace(
        RECORD,
        base_rate_source="random labels",
        anchoring=anchoring,
        sensitivity=SENSITIVITY,
        at_bound=("coefficient 2",),
    )
    fitted = replace(step_map(2), record=record)
    fitted.save(tmp_path / "map.json")
    saved = json.loads((tmp_path / "map.json").read_text(encoding="utf-8"))
    assert list(saved["curve"]) == ["kind", "edges", "values", "effective_rows"]
    assert saved["terms"] == []
    assert saved["record"]["at_bound"] == ["coefficient 2"]
    assert saved["record"]["base_rate_source"] == "random labels"
    assert saved["record"]["anchoring"]["effective_labels"] == 250.0
    assert saved["record"]["sensitivity"]["alternatives"][1] == {
        "name": "power 1",
        "rate": 0.2,
        "top_rate": 0.5,
    }
    assert cr.load(tmp_path / "map.json") == fitted


def test_every_key_of_the_record_is_documented() -> None:
    page = (ROOT / "docs" / "json-format.md").read_text(encoding="utf-8")
    for kind in (FitRecord, Anchoring, Sensitivity, Alternative):
        for key in kind.__slots__:
            assert f"`{key}`" in page


def test_the_documented_vectors_agree_with_both_readers() -> None:
    documents = json.loads((ROOT / "docs" / "json-vectors.json").read_text(encoding="utf-8"))
    formulas = set()
    for document in documents:
        scores = np.array([vector["score"] for vector in document["vectors"]])
        expected = [vector["probability"] for vector in document["vectors"]]
        assert len(expected) > 40
        loaded = parse("vectors", json.dumps(document["map"]))
        rows = [each.get("columns", {}) for each in document["vectors"]]
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        predicted = loaded.predict(scores, columns)
        np.testing.assert_allclose(predicted, expected, rtol=1e-9, atol=1e-12)
        evaluate = plain_map.reader(document["map"])
        evaluated = [evaluate(*each) for each in zip(scores.tolist(), rows, strict=True)]
        np.testing.assert_allclose(evaluated, expected, rtol=1e-9, atol=1e-12)
        curve = document["map"]["curve"]
        formulas.add(curve["basis"]["name"] if "basis" in curve else curve["kind"])
        formulas |= {term["kind"] for term in document["map"]["terms"]}
    assert formulas == {
        "linear",
        "quadratic",
        "log",
        "log-quadratic",
        "softplus",
        "step",
        "rescale",
        "piecewise",
        "level",
        "smooth",
        "position",
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"values": (0.5,)}, "must have 2 values each, got 1 and 2"),
        ({"values": (0.5, 1.5)}, r"values must lie in \[0, 1\], got 0.5 to 1.5"),
        ({"effective_rows": (1.0, -1.0)}, r"effective_rows must not be negative, got -1\.0"),
    ],
)
def test_impossible_steps_are_errors(changes: dict[str, tuple[float, ...]], message: str) -> None:
    with pytest.raises(cr.DataError, match=message):
        replace(step_map(2).curve, **changes)


def test_edges_must_be_strictly_increasing() -> None:
    with pytest.raises(cr.DataError, match="edges must be strictly increasing"):
        replace(step_map(3).curve, edges=(1.0, 1.0))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"low": (1.0,)}, r"one lower and one upper end per score, .* got lengths \[1, 2\]"),
        ({"low_rate": 0.3}, r"base rates must be increasing within \[0, 1\], got 0\.3 to 0\.2"),
    ],
)
def test_impossible_bands_are_errors(changes: dict[str, object], message: str) -> None:
    with pytest.raises(cr.DataError, match=message):
        replace(SENSITIVITY, **changes)


def test_the_base_rate_is_described_by_its_source() -> None:
    anchoring = Anchoring(300, 250.0, 0.9, 0.5, 0.25)
    ips = replace(RECORD, evidence="ips")
    anchored = replace(ips, base_rate_source="random labels", anchoring=anchoring)
    known = replace(ips, base_rate_source="known rate", base_rate=0.11)
    impressions = replace(RECORD, evidence="impressions")
    assert anchored.base_rate_description == (
        "Anchored on 300 randomly shown pairs (effective number 250): the base rate comes from "
        "these random labels."
    )
    assert "Moved to a base rate of 11.00% that is known" in known.base_rate_description
    assert "The base rate is that of the impressions" in impressions.base_rate_description
    assert "treated as unbiased" in RECORD.base_rate_description
    assert "The log does not identify the base rate" in ips.base_rate_description
    # One number of decimals in a sentence.
    rates = {"rate": 0.174, "rate_range": (0.136, 0.22), "start_rate": 0.0396}
    with_rates = replace(anchored, anchoring=replace(anchoring, **rates))
    said = "17.4% of all pairs are liked (95% interval 13.6 to 22.0%); the log said 4.0%. Anchored"
    assert with_rates.base_rate_description.startswith(said)
    rare = replace(anchoring, rate=0.012, rate_range=(0.0035, 0.021), start_rate=0.5)
    assert "1.20% of all pairs are liked (95% interval 0.35 to 2.10%); the log said 50.00%" in (
        replace(anchored, anchoring=rare).base_rate_description
    )
    sources = [anchored, known, impressions, RECORD, ips]
    assert [record.is_base_rate_known for record in sources] == [True, True, True, True, False]


def test_help_shows_short_type_names() -> None:
    code = "import calibrank; help(calibrank.CalibrationMap.predict)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (
        "predict(self, scores: 'Numbers', columns: 'Any' = None) -> 'Floats | float'" in done.stdout
    )


def test_importing_calibrank_loads_no_engine() -> None:
    code = (
        "import sys, calibrank, calibrank.export\n"
        "print([name for name in ('narwhals', 'onnx', 'pyspark', 'torch') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_scores_beyond_the_range_do_not_change_those_within_it() -> None:
    fitted = gaussian_map()
    assert isinstance(fitted.curve, LogisticCurve)
    low, high = fitted.curve.low, fitted.curve.high
    inside = np.linspace(low, high, 1_001)
    with_one_beyond = np.concatenate([inside, [high + 1]])
    np.testing.assert_array_equal(fitted.predict(inside), fitted.predict(with_one_beyond)[:-1])


def test_an_interval_around_an_assumed_level_warns() -> None:
    assumed = replace(gaussian_map(), record=replace(RECORD, evidence="ips"))
    with pytest.warns(AssumedRateWarning, match="the truth may lie far outside"):
        warned = assumed.interval(1.0)
    assert warned == assumed.sampling_interval(1.0)
    # Labels and impressions as they are: their level is known, that of all pairs may be another.
    for evidence, whose in [("naive", "the labels"), ("impressions", "the impressions")]:
        of_these = replace(assumed, record=replace(assumed.record, evidence=evidence))
        with pytest.warns(AssumedRateWarning, match=f"is that of {whose}: unless pairs"):
            assert of_these.interval(1.0) == warned
        judged = replace(of_these.record, population=Population("judged documents", None, 9))
        assert replace(of_these, record=judged).interval(1.0) == warned
    known = replace(assumed, record=replace(assumed.record, base_rate_source="random labels"))
    assert known.interval(1.0) == warned


def test_the_average_map_has_no_recipe_and_is_not_refitted() -> None:
    rows = {"country": ["NL", "DE", "DE"] * 20}
    scores, labels = np.linspace(-2, 2, 60), np.array([0] * 25 + [1, 0] * 5 + [1] * 25)
    fitted = (cr.Platt() + cr.Level("country")).fit(scores, labels, rows)
    average = fitted.without_terms()
    assert (average.method, average.record.recipe) == ("Platt + country without terms", None)
    assert average.without_terms() is average
    day = Day.of(average, scores, labels, date="2026-01-05")
    with pytest.raises(cr.DataError, match="must say how it was fitted, got the method"):
        refit(average, day)
