"""Models with terms in Spark: the map of one machine, from sums or from a sample of rows."""

from typing import Any

import numpy as np
import pytest

import calibrank as cr
from tests.maps.samples import gaussian_map, level_term, map_of
from tests.spark_session import session

pytest.importorskip("pyspark")
pa = pytest.importorskip("pyarrow")

ROWS = 120_000
COUNTRIES = np.array(["NL", "DE", 'it\'s "BE"', "${x}"], dtype=object)


@pytest.fixture(scope="module")
def columns() -> dict[str, Any]:
    """Continuous scores; countries and cities that differ; a country that some rows lack."""
    rng = np.random.default_rng(0)
    country = rng.integers(0, 4, ROWS)
    city = rng.integers(0, 5, ROWS)
    price = rng.normal(size=ROWS)
    scores = np.sinh(rng.normal(size=ROWS))
    z = scores - 4 + 0.5 * country + rng.normal(0, 0.5, (4, 5))[country, city] + price
    propensity = rng.uniform(0.2, 1, ROWS)
    liked = rng.random(ROWS) < 1 / (1 + np.exp(-z))
    return {
        "score": scores,
        "label": (liked & (rng.random(ROWS) < propensity)).astype(np.int64),
        "w": propensity,
        "v": rng.integers(0, 3, ROWS).astype(float),
        "country": COUNTRIES[country],
        "city": city.astype(float),  # as whole numbers with gaps are
        "price": price,
        "gaps": np.where(country == 3, None, COUNTRIES[country]),
        "query": rng.integers(0, 100, ROWS),
    }


@pytest.fixture(scope="module")
def frame(columns: dict[str, Any]) -> Any:
    arrays = {name: pa.array(values) for name, values in columns.items()}
    return session().createDataFrame(pa.table(arrays)).repartition(3).cache()


CASES = {
    "labels": ({}, lambda rows: rows["label"]),
    "propensities": (
        {"propensity": "w", "weight": "v"},
        lambda rows: cr.ips(rows["label"], rows["w"], weights=rows["v"]),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_level_alone_is_fitted_on_all_rows(
    columns: dict[str, Any], frame: Any, case: str
) -> None:
    from calibrank import spark

    options, evidence = CASES[case]
    by_city = cr.Platt() + cr.Level("country", "city")
    (found,) = spark.fit(by_city, frame, **options).terms
    (expected,) = by_city.fit(columns["score"], evidence(columns), columns).terms
    assert found.keys == expected.keys
    assert ("NL", "3") in found.keys
    assert len(found.keys) == 4 + 4 * 5
    assert found.rows == expected.rows
    np.testing.assert_allclose(found.intercepts, expected.intercepts, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found.slopes, expected.slopes, rtol=1e-6)
    np.testing.assert_allclose(found.errors, expected.errors, rtol=1e-6)


@pytest.mark.parametrize("is_sorted", [False, True])
def test_levels_have_bins_at_quantiles_of_the_first_rows_if_these_will_do(
    columns: dict[str, Any], frame: Any, monkeypatch: pytest.MonkeyPatch, *, is_sorted: bool
) -> None:
    """Of a sorted table the first rows would not do, and it is read once more."""
    from calibrank import spark

    monkeypatch.setattr("calibrank.spark.aggregate._FIRST_ROWS", 70_000)
    given = frame.coalesce(1).sortWithinPartitions("score") if is_sorted else frame
    model = cr.Platt() + cr.Level("country", "city")
    expected = model.fit(columns["score"], columns["label"], columns)
    found = spark.fit(model, given)
    assert found.terms[0].rows == expected.terms[0].rows
    log_odds = [each.log_odds(columns["score"], columns) for each in (found, expected)]
    error = np.abs(log_odds[0] - log_odds[1]).mean()
    assert error < 1e-9 if is_sorted else 0 < error < 0.003


@pytest.mark.parametrize(
    ("first", "is_rounded"), [(-30, False), (2**56 - 50, True), (-(2**63), False)]
)
def test_levels_of_whole_numbers_of_any_size_are_fitted_in_spark(
    columns: dict[str, Any], first: int, is_rounded: bool
) -> None:
    """Numbers of up to 57 bits share an integer with a bin of the score; others are texts."""
    from calibrank import spark

    scores = columns["score"].clip(-2, 2).round() if is_rounded else columns["score"]
    every = {"score": scores, "label": columns["label"], "query": columns["query"] + first}
    rows = {name: values[:20_000] for name, values in every.items()}
    model = cr.Platt() + cr.Level("query")
    (found,) = spark.fit(model, session().createDataFrame(pa.table(rows))).terms
    (expected,) = model.fit(rows["score"], rows["label"], rows).terms
    assert found.keys == expected.keys
    assert (str(first),) in found.keys
    np.testing.assert_allclose(found.intercepts, expected.intercepts, rtol=1e-6, atol=1e-9)


def test_levels_that_are_not_among_the_first_rows_are_found_by_spark(
    columns: dict[str, Any], frame: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from calibrank import spark

    model = cr.Platt() + cr.Level("country", "city")
    expected = model.fit(columns["score"], columns["label"], columns).terms[0]
    for first, sample in ((5, 1.0), (5, 1e-9)):
        monkeypatch.setattr("calibrank.spark.sums._FIRST_LEVELS", first)
        monkeypatch.setattr("calibrank.spark.sums._LEVEL_SAMPLE", sample)
        (found,) = spark.fit(model, frame).terms
        assert found.keys == expected.keys
        np.testing.assert_allclose(found.intercepts, expected.intercepts, rtol=1e-6, atol=1e-9)


def test_levels_with_equal_hashes_are_told_apart_in_spark(
    columns: dict[str, Any], frame: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql import functions

    from calibrank import spark

    model = cr.Platt() + cr.Level("country", "city") + cr.Smooth("price")
    fitted = model.fit(columns["score"], columns["label"], columns)
    constant = functions.lit(7).cast("bigint")
    monkeypatch.setattr(functions, "xxhash64", lambda *_: constant)
    rows = spark.transform(fitted, frame.limit(300)).collect()
    by = {name: [row[name] for row in rows] for name in ("country", "city", "price")}
    wanted = fitted.predict([row["score"] for row in rows], by)
    np.testing.assert_allclose([row["probability"] for row in rows], wanted, rtol=1e-9)
    # A fit cannot tell them apart, and says so.
    with pytest.raises(cr.DataError, match="levels must have different hashes, got"):
        spark.fit(cr.Platt() + cr.Level("country"), frame)


@pytest.mark.parametrize("case", CASES)
def test_joint_terms_are_fitted_on_a_sample(columns: dict[str, Any], frame: Any, case: str) -> None:
    from calibrank import spark

    options, evidence = CASES[case]
    model = cr.Platt() + cr.Level("country") + cr.Smooth("price")
    fitted = spark.fit(model, frame, **options)
    expected = model.fit(columns["score"], evidence(columns), columns)
    rows = {name: values[:500] for name, values in columns.items()}
    found = fitted.predict(rows["score"], rows)
    np.testing.assert_allclose(found, expected.predict(rows["score"], rows), rtol=1e-6)
    # Zero weights count as rows in neither.
    assert fitted.record.rows == expected.record.rows
    assert fitted.record.recipe == repr(model)
    sampled = spark.fit(model, frame, **options, sample_rows=20_000, seed=3)
    assert 0.9 < sampled.record.rows / (20_000 * expected.record.rows / ROWS) < 1.1
    assert np.abs(sampled.predict(rows["score"], rows) - found).mean() < 0.05


@pytest.mark.parametrize(
    ("model", "most"),
    [
        (cr.Gaussian() + cr.Level("country"), 4),
        (cr.Gaussian() + cr.Level("country", "city") + cr.Smooth("price"), 2),
    ],
    ids=["level", "joint"],
)
@pytest.mark.parametrize("options", [{}, {"propensity": "w", "weight": "v"}])
def test_a_fit_reads_the_frame_a_few_times_and_a_map_once(
    frame: Any, monkeypatch: pytest.MonkeyPatch, model: cr.Model, most: int, options: dict[str, str]
) -> None:
    """Each action reads the frame once at most: two of a level's fit read the first rows only."""
    from calibrank import spark

    actions = []

    def counted(name: str) -> None:
        action = getattr(type(frame), name)

        def count(self: Any, *given: Any) -> Any:
            actions.append(name)
            return action(self, *given)

        monkeypatch.setattr(type(frame), name, count)

    for name in ("toArrow", "collect", "count"):
        counted(name)
    fitted = spark.fit(model, frame, **options)
    assert 0 < len(actions) <= most
    actions.clear()
    applied = spark.transform(fitted, frame)
    assert not actions
    assert applied.where("probability is null").count() == 0
    assert actions == ["count"]


def test_auto_is_fitted_on_a_sample(columns: dict[str, Any], frame: Any) -> None:
    from calibrank import spark

    model = cr.Auto((cr.Platt(), cr.Gaussian()), folds=2)
    fitted = spark.fit(model, frame, sample_rows=5_000)
    assert fitted.record.selection is not None
    assert 4_500 < fitted.record.rows < 5_500
    assert fitted.predict(2.0) == pytest.approx(
        model.fit(columns["score"], columns["label"]).predict(2.0), abs=0.1
    )


def test_spark_refuses_groups_before_it_reads_rows(frame: Any) -> None:
    from calibrank import spark

    # A division by 0 fails as soon as a row is read.
    unreadable = frame.withColumn("score", frame["score"] / 0)
    with pytest.raises(cr.DataError, match="Group must not go with Spark: the levels of groups"):
        spark.fit(cr.Platt() + cr.Group("query"), unreadable)
    with pytest.raises(cr.DataError, match="model must be"):
        spark.fit("Platt()", frame)  # type: ignore[arg-type]  # what is tested


def test_results_are_collected_without_arrow_too(
    columns: dict[str, Any], frame: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from calibrank import spark

    def no_arrow(_: Any) -> None:
        raise ImportError("pyarrow")

    model = cr.Platt() + cr.Level("country")
    with monkeypatch.context() as patched:
        patched.setattr(type(frame), "toArrow", no_arrow)
        fitted = spark.fit(model, frame)
    expected = model.fit(columns["score"], columns["label"], columns)
    rows = spark.transform(fitted, frame.limit(50)).collect()
    by = {"country": [row["country"] for row in rows]}
    wanted = expected.predict([row["score"] for row in rows], by)
    np.testing.assert_allclose([row["probability"] for row in rows], wanted, rtol=1e-6)


def test_columns_of_terms_must_exist_and_have_the_right_type(frame: Any) -> None:
    from calibrank import spark

    with pytest.raises(cr.DataError, match="frame must have the column 'day' of the map"):
        spark.fit(cr.Platt() + cr.Level("day"), frame)
    dates = frame.withColumn("day", frame["city"].cast("int").cast("string").cast("date"))
    for call in (
        lambda: spark.fit(cr.Platt() + cr.Level("day"), dates),
        lambda: spark.transform(map_of(gaussian_map().curve, level_term("day")), dates),
    ):
        with pytest.raises(cr.DataError, match="whole numbers or booleans, got type date"):
            call()
    with pytest.raises(cr.DataError, match="'gaps' must not be missing"):
        spark.fit(cr.Platt() + cr.Level("gaps"), frame)
    with pytest.raises(cr.DataError, match="'gaps' must not be missing"):
        spark.fit(cr.Platt() + cr.Level("gaps") + cr.Smooth("price"), frame)
    # A fraction is no level.
    with pytest.raises(cr.DataError, match="'w' must not be missing"):
        spark.fit(cr.Platt() + cr.Level("w"), frame)


def test_rows_that_change_between_passes_raise(frame: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql import functions

    from calibrank import spark

    summary = spark.summarize(frame.limit(100))
    monkeypatch.setattr("calibrank.spark.aggregate._in_two_passes", lambda *_: summary)
    rounded = frame.withColumn("score", functions.round("score", 1))
    with pytest.raises(cr.DataError, match="must hold the same rows each time"):
        spark.fit(cr.Platt() + cr.Level("country"), rounded)
