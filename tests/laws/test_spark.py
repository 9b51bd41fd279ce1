"""On Spark every calibrator and metric gives the same answer as on one machine, to 1e-9."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import calibrank as cr
from calibrank.curves import Calibrator
from calibrank.errors import FlatMapWarning
from calibrank.metrics import Metric
from tests.members import CALIBRATORS, METRICS, name, probe, sample_scores
from tests.spark_session import session

pytest.importorskip("pyspark")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

KINDS = ("normal", "float32", "narrow", "heavy", "lognormal", "few", "edges", "tight", "tiny")


def make_scores(kind: str, count: int) -> np.ndarray:
    """Draw scores, for some kinds at the edges of bins or near the limits of floats."""
    rng = np.random.default_rng(5)
    if kind == "edges":  # powers of two and edges of bins, and their neighbours on both sides
        powers = np.ldexp(rng.choice([-1.0, 1.0], count), rng.integers(-40, 5, count))
        mantissas = 1 + rng.integers(0, 2**12, count) / 2**12
        edges = np.ldexp(mantissas, rng.integers(-34, 5, count))
        chosen = np.where(rng.random(count) < 0.05, powers, edges)
        return np.nextafter(chosen, chosen * rng.choice([0.5, 1.0, 2.0], count))
    if kind == "tight":  # on both sides of 1, so close that a grid needs over 40 bits
        return 1 + (rng.integers(-(2**19), 2**19, count)) * 2.0**-53
    if kind == "tiny":
        return rng.normal(size=count) * 1e-300
    return sample_scores(count, 1, kind)


class Example:
    """The same rows as arrays and as a Spark frame."""

    def __init__(self, folder: Path, kind: str, count: int) -> None:
        rng = np.random.default_rng(0)
        self.scores = make_scores(kind, count)
        ranks = np.argsort(np.argsort(self.scores)) / count
        self.labels = (rng.random(count) < 0.1 + 0.5 * ranks).astype(float)
        self.propensity = rng.uniform(0.3, 1, count)
        self.weights = rng.exponential(1, count)
        self.weights[::7] = 0
        self.folder = folder / kind
        self.folder.mkdir()
        table = pa.table(
            {"score": self.scores, "label": self.labels, "w": self.propensity, "v": self.weights}
        )
        # Files of very different sizes, one of them without rows.
        for file, (start, size) in enumerate([(0, 10), (10, 0), (10, count)]):
            pq.write_table(table.slice(start, size), self.folder / f"{file}.parquet")

    @property
    def frame(self) -> Any:
        return session().read.parquet(str(self.folder))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Example:
    session()
    return Example(tmp_path_factory.mktemp("small"), "normal", 3_000)


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Example]:
    session()
    folder = tmp_path_factory.mktemp("examples")
    return {kind: Example(folder, kind, 90_000) for kind in KINDS}


def assert_same_summary(found: cr.Summary, expected: cr.Summary) -> None:
    assert found.rows == expected.rows
    assert (found.low, found.high) == (expected.low, expected.high)
    assert found.grid == expected.grid
    assert found.kind == expected.kind
    np.testing.assert_array_equal(found.keys, expected.keys)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-10)
    for mine, theirs in zip(found.masses, expected.masses, strict=True):
        tolerance = 1e-12 * np.abs(theirs).max()
        np.testing.assert_allclose(mine, theirs, rtol=1e-10, atol=tolerance)


@pytest.mark.parametrize("kind", KINDS)
def test_summary_equals_that_of_one_machine(examples: dict[str, Example], kind: str) -> None:
    from calibrank import spark

    rows = examples[kind]
    evidence = cr.ips(rows.labels, rows.propensity, weights=rows.weights)
    found = spark.summarize(rows.frame, propensity="w", weight="v")
    assert_same_summary(found, cr.Summary.of(rows.scores, evidence))
    assert found.exact == (kind == "few")


@pytest.mark.parametrize("propensity", [None, "w"])
def test_summary_without_weights_equals_that_of_one_machine(
    examples: dict[str, Example], propensity: str | None
) -> None:
    from calibrank import spark

    rows = examples["normal"]
    evidence = cr.naive(rows.labels)
    if propensity is not None:
        evidence = cr.ips(rows.labels, rows.propensity)
    found = spark.summarize(rows.frame, propensity=propensity)
    assert_same_summary(found, cr.Summary.of(rows.scores, evidence))


@pytest.mark.parametrize("member", CALIBRATORS, ids=name)
def test_every_calibrator_fits_and_predicts_the_same(small: Example, member: Calibrator) -> None:
    from calibrank import spark

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FlatMapWarning)
        found = spark.fit(member, small.frame, propensity="w")
        expected = member.fit(small.scores, cr.ips(small.labels, small.propensity))
    scores = probe(small.scores)
    probabilities = expected.predict(scores)
    np.testing.assert_allclose(found.predict(scores), probabilities, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(
        found.log_odds(scores), expected.log_odds(scores), rtol=1e-8, atol=1e-9
    )
    frame = session().createDataFrame(pa.table({"row": np.arange(len(scores)), "score": scores}))
    applied = spark.transform(expected, frame).orderBy("row").toArrow()
    assert applied.column_names == ["row", "score", "probability"]
    np.testing.assert_allclose(
        applied["probability"].to_numpy(), probabilities, rtol=1e-9, atol=1e-12
    )


LISTS = ("GAUC", "NDCG@3", "Recall@2", "ECE@2")
WITHOUT_USERS = [metric for metric in METRICS if metric.name not in LISTS]


@pytest.mark.parametrize("weight", [None, "v"])
def test_every_metric_equals_that_of_one_machine(small: Example, weight: str | None) -> None:
    from calibrank import spark

    fitted = cr.Platt().fit(small.scores, small.labels)
    probabilities = fitted.predict(small.scores)
    probabilities[:3] = [0, 1, 7 / 15]  # both ends, and an edge of ECE's bins
    columns = {"p": probabilities, "label": small.labels, "w": small.propensity, "v": small.weights}
    frame = session().createDataFrame(pa.table(columns))
    found = spark.evaluate(frame, WITHOUT_USERS, probability="p", propensity="w", weight=weight)
    weights = None if weight is None else small.weights
    evidence = cr.ips(small.labels, small.propensity, weights=weights)
    expected = {metric.name: metric(probabilities, evidence) for metric in WITHOUT_USERS}
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_metrics_over_lists_of_users_raise(small: Example) -> None:
    from calibrank import spark

    lists: list[Metric] = [metric for metric in METRICS if metric.name in LISTS]
    assert len(lists) == 4
    for metric in lists:
        with pytest.raises(cr.DataError, match="metrics must need no users on Spark, got"):
            spark.evaluate(small.frame, [metric], probability="w")
