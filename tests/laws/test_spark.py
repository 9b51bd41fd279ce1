"""Spark is one more machine: every member fits, predicts and judges the same there, to 1e-9."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import calibrank as cr
from calibrank.calibrators import Calibrator
from calibrank.metrics import Metric
from tests.members import CALIBRATORS, METRICS, name, probe, sample_scores
from tests.spark_session import session

pytest.importorskip("pyspark")
pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")

KINDS = ("normal", "float32", "narrow", "heavy", "lognormal", "few", "edges", "tight", "tiny")


def adversarial(kind: str, count: int) -> np.ndarray:
    """Scores at the edges of bins, in one octave's last bits, or near the smallest float."""
    rng = np.random.default_rng(5)
    if kind == "edges":  # powers of two, and their neighbours on both sides
        powers = np.ldexp(rng.choice([-1.0, 1.0], count), rng.integers(-40, 5, count))
        mantissas = np.ldexp(1 + rng.integers(0, 2**12, count) / 2**12, rng.integers(-34, 5, count))
        chosen = np.where(rng.random(count) < 0.05, powers, mantissas)
        return np.nextafter(chosen, chosen * rng.choice([0.5, 1.0, 2.0], count))
    if kind == "tight":  # across a power of two, so near that a grid of over 40 bits is needed
        return 1 + (rng.integers(-(2**19), 2**19, count)) * 2.0**-53
    if kind == "tiny":
        return rng.normal(size=count) * 1e-300
    return sample_scores(count, 1, kind)


class Machine:
    """The same rows for Spark and for one machine."""

    def __init__(self, folder: Path, kind: str, count: int) -> None:
        rng = np.random.default_rng(0)
        self.scores = adversarial(kind, count)
        middle = np.argsort(np.argsort(self.scores)) / count
        self.labels = (rng.random(count) < 0.1 + 0.5 * middle).astype(float)
        self.propensity, self.weights = rng.uniform(0.3, 1, count), rng.exponential(1, count)
        self.weights[::7] = 0
        self.folder = folder / kind
        self.folder.mkdir()
        columns = {
            "score": self.scores,
            "label": self.labels,
            "w": self.propensity,
            "v": self.weights,
        }
        table = pa.table(columns)
        for part, (start, size) in enumerate(
            [(0, 10), (10, 0), (10, count)]
        ):  # skewed, and one without rows
            pq.write_table(table.slice(start, size), self.folder / f"{part}.parquet")

    @property
    def frame(self) -> Any:
        return session().read.parquet(str(self.folder))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    session()
    return Machine(tmp_path_factory.mktemp("small"), "normal", 3_000)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Machine]:
    session()
    folder = tmp_path_factory.mktemp("many")
    return {kind: Machine(folder, kind, 90_000) for kind in KINDS}


def same(mine: cr.Summary, theirs: cr.Summary) -> None:
    assert (mine.rows, mine.low, mine.high, mine.grid) == (
        theirs.rows,
        theirs.low,
        theirs.high,
        theirs.grid,
    )
    assert mine.kind == theirs.kind
    np.testing.assert_array_equal(mine.keys, theirs.keys)
    np.testing.assert_allclose(mine.scores, theirs.scores, rtol=1e-10)
    for one, other in zip(mine.masses.columns, theirs.masses.columns, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12 * np.abs(other).max())


@pytest.mark.parametrize("kind", KINDS)
def test_the_summary_is_that_of_one_machine(many: dict[str, Machine], kind: str) -> None:
    from calibrank import spark

    rows = many[kind]
    evidence = cr.ips(rows.labels, rows.propensity, weights=rows.weights)
    mine = spark.summarize(rows.frame, propensity="w", weight="v")
    theirs = cr.Summary.of(rows.scores, evidence)
    same(mine, theirs)
    assert mine.exact == (kind == "few")


@pytest.mark.parametrize("propensity", [None, "w"])
def test_plain_and_unbiased_evidence_without_weights(
    many: dict[str, Machine], propensity: str | None
) -> None:
    from calibrank import spark

    rows = many["normal"]
    evidence = cr.naive(rows.labels) if propensity is None else cr.ips(rows.labels, rows.propensity)
    same(spark.summarize(rows.frame, propensity=propensity), cr.Summary.of(rows.scores, evidence))


@pytest.mark.parametrize("member", CALIBRATORS, ids=name)
def test_every_calibrator_fits_and_predicts_the_same(small: Machine, member: Calibrator) -> None:
    from calibrank import spark

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cr.FlatMapWarning)
        mine = spark.fit(member, small.frame, propensity="w")
        theirs = member.fit(small.scores, cr.ips(small.labels, small.propensity))
    asked = probe(small.scores)
    np.testing.assert_allclose(mine.predict(asked), theirs.predict(asked), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(mine.log_odds(asked), theirs.log_odds(asked), rtol=1e-8, atol=1e-9)
    given = session().createDataFrame(pa.table({"row": np.arange(len(asked)), "score": asked}))
    found = spark.transform(theirs, given).orderBy("row").toArrow()
    assert found.column_names == ["row", "score", "probability"]
    np.testing.assert_allclose(
        found["probability"].to_numpy(), theirs.predict(asked), rtol=1e-9, atol=1e-12
    )


USERLESS = [
    metric for metric in METRICS if metric.name not in ("NDCG@3", "Recall@2", "ECE of top 2")
]


@pytest.mark.parametrize("weighted", [False, True])
def test_every_metric_is_that_of_one_machine(small: Machine, weighted: bool) -> None:
    from calibrank import spark

    fitted = cr.Platt().fit(small.scores, small.labels)
    p = fitted.predict(small.scores)
    p[:3] = [0, 1, 7 / 15]
    weights = small.weights if weighted else None
    columns = {"p": p, "label": small.labels, "w": small.propensity, "v": small.weights}
    frame = session().createDataFrame(pa.table(columns))
    found = spark.evaluate(
        frame, USERLESS, probability="p", propensity="w", weight="v" if weighted else None
    )
    evidence = cr.ips(small.labels, small.propensity, weights=weights)
    expected = {metric.name: metric(p, evidence) for metric in USERLESS}
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_metrics_over_lists_are_refused(small: Machine) -> None:
    from calibrank import spark

    lists: list[Metric] = [metric for metric in METRICS if metric not in USERLESS]
    assert len(lists) == 3
    for metric in lists:
        with pytest.raises(cr.DataError, match="metrics must need no users on Spark, got"):
            spark.evaluate(small.frame, [metric], probability="w")
