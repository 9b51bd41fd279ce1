"""Arguments of functions around the core: refused by name, with our error, before any work."""

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import LogisticRegression

import calibrank as cr
from calibrank import adapters, data, export, frames, plots, propensity, search
from calibrank._internal.json import digest_of
from calibrank.anchoring.activity import AssumedRate, to_assumed_rate
from calibrank.decisions import Threshold
from calibrank.experiment.results import read_rows
from calibrank.maps.format import load, parse
from calibrank.metrics import multicalibration_test
from calibrank.monitor import Day, Store, check, refit, window_of
from calibrank.sklearn import CalibratedRanker
from calibrank.tables import ScoreTable
from calibrank.tabular.labels import Counts, parse_rule

RNG = np.random.default_rng(0)
SCORES = RNG.normal(size=60)
LABELS = (RNG.random(60) < 1 / (1 + np.exp(-SCORES))).astype(float)
USERS = np.repeat(np.arange(12), 5)
FITTED = cr.Platt().fit(SCORES, LABELS)
MOVED = cr.to_base_rate(FITTED, 0.2, SCORES)
CURVE = cr.reliability(FITTED.predict(SCORES), LABELS)

DAY = Day.of(FITTED, SCORES, LABELS, date="2026-01-01")
RUN = search.Run(USERS, np.arange(60), SCORES)
GRADES: Any = dict(zip(zip(USERS.tolist(), range(60), strict=True), LABELS, strict=True))
JUDGED = search.judged_rows(RUN, GRADES, None)
RANKS = {"rank": np.tile(np.arange(1, 6), 12)}
TOP = cr.anchor(FITTED, SCORES, LABELS, RANKS, terms=[cr.Position("rank", n=2)])


def fit_age(age: Any) -> object:
    return (cr.Gaussian() + cr.Smooth("age")).fit(SCORES, LABELS, {"age": age})


def fit_country(country: Any) -> object:
    return (cr.Gaussian() + cr.Level("c")).fit(SCORES, LABELS, {"c": country})


NOT_OBJECTS = ["x", 3, [1], {}, cr.Platt, len, SCORES]
NOT_PATHS = [3.5, "", "a\0b", ["a"], "x" * 5000, b"x"]


def fit_ranker(**settings: Any) -> object:
    return CalibratedRanker(**settings).fit(SCORES[:, None], LABELS)


OBJECTS: dict[str, Callable[[Any], object]] = {
    "calibrator": lambda value: fit_ranker(calibrator=value),
    "estimator": lambda value: fit_ranker(estimator=value),
    "panels": lambda value: plots.reliability_grid(value, "title"),
    "curves": lambda value: plots.fitted_functions(SCORES, value, "title"),
    "assumed": lambda value: to_assumed_rate(FITTED, value, SCORES),
    "a term": lambda value: cr.Gaussian() + value,
    "a term ": lambda value: cr.anchor(FITTED, SCORES, LABELS, RANKS, terms=[value]),
    "slopes": lambda value: cr.Level("country", slopes=value),
    "column": lambda value: cr.Smooth(3 if isinstance(value, str) else value),
    "columns": lambda value: cr.Level(3 if isinstance(value, str) else value),
    "days": lambda value: check(FITTED, value),
    "days ": window_of,
    "day": lambda value: Store("days").add(value),
    "a day to add": lambda value: DAY + value,
    "fitted ": lambda value: refit(value, DAY),
    "window": lambda value: refit(FITTED, value),
    "segments": lambda value: multicalibration_test(FITTED.predict(SCORES), LABELS, value),
    "run": lambda value: search.judged_rows(value, {}, None),
    "run ": lambda value: search.encode_run(Path("o"), value, SCORES),
    "relevant": lambda value: search.judged_rows(RUN, {}, value),
    "judged": search.fit_judged,
    "judged ": lambda value: search.choose_cut(value, SCORES, "precision", 0.5),
    "judged  ": search.held_out_probabilities,
    "judged   ": search.held_out_constant,
    "judged    ": lambda value: search.held_out_losses(value, SCORES),
    "judged       ": lambda value: search.anchor_judged(FITTED, value),
    "probabilities ": lambda value: search.held_out_losses(JUDGED, value),
    "evidence": lambda value: search.Judged(USERS, USERS, SCORES, LABELS, value, "all"),
    "cutoff": lambda value: adapters.langchain_compressor(value, "score"),
    "cutoff ": adapters.haystack_component,
    "cutoff  ": adapters.llamaindex_postprocessor,
    "encoder": lambda value: adapters.langchain_compressor(
        adapters.Cutoff(FITTED), 3 if isinstance(value, str) else value
    ),
    "outputs": lambda value: adapters.CrossEncoder(len, value),
    "fitted  ": lambda value: Day.of(value, SCORES, date="2026-01-05"),
    "a range of base rates": lambda value: cr.to_base_rate(FITTED, 0.2, SCORES, rate_range=value),
    "score": lambda value: FITTED.scalar()("x" if isinstance(value, int) else value),
    "probabilities": lambda value: search.encode_run(Path("o"), RUN, value),
}


@pytest.mark.parametrize("value", NOT_OBJECTS, ids=repr)
@pytest.mark.parametrize("name", OBJECTS)
def test_an_object_of_another_type_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(cr.DataError, match=rf"{name.strip()} must "):
        OBJECTS[name](value)


PATHS: dict[str, Callable[[Any], object]] = {
    "folder": data.load_coat,
    "folder ": data.load_kuairec,
    "folder  ": data.load_kuairand,
    "folder   ": data.load_yahoo_r3,
    "train": data.load_table,
    "test": lambda value: data.load_table("t.csv", value),
}


@pytest.mark.parametrize("value", NOT_PATHS, ids=lambda value: repr(value)[:9])
@pytest.mark.parametrize("name", PATHS)
def test_what_is_no_path_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(cr.DataError, match=rf"^{name.strip()} must "):
        PATHS[name](value)


FRAME = pd.DataFrame({"score": SCORES, "label": LABELS})
REFUSED: dict[str, Callable[[], object]] = {
    "estimator must .*the class LogisticRegression": lambda: fit_ranker(
        estimator=LogisticRegression
    ),
    "sample_weight must be real numbers": lambda: CalibratedRanker().fit(
        SCORES[:, None], LABELS, ["a"] * 60
    ),
    "title must be of type str": lambda: plots.reliability_grid({"a": {"b": CURVE}}, 5),
    "shape must be of type tuple": lambda: export.to_onnx(FITTED, shape="rows"),
    "shape must be a whole number, 1": lambda: export.to_onnx(FITTED, shape=("rows", 0)),
    "score must be a string": lambda: frames.summarize(FRAME, score=None),
    "evidence must be a function": lambda: frames.summarize(FRAME, evidence="ips"),
    "propensity must lie in": lambda: ScoreTable(USERS, USERS, SCORES, LABELS, np.full(60, np.nan)),
    "weights must be finite and not negative": lambda: ScoreTable(
        USERS, USERS, SCORES, LABELS, weights=-np.ones(60)
    ),
    "column 'age' must be finite and within": lambda: fit_age(np.full(60, -3.4e38)),
    "column 'age' must be without masked": lambda: fit_age(np.ma.masked_less(SCORES, 0)),
    "column 'age' must be one array of numbers": lambda: fit_age([[1.0], [1.0, 2.0]]),
    "grades must be of type Mapping": lambda: search.judged_rows(RUN, [1], None),
    "queries must have one value per row": lambda: search.Run(USERS[:5], USERS, SCORES),
    "scores must be finite and within": lambda: search.Run(USERS, USERS, SCORES * np.inf),
    "probabilities must lie in": lambda: search.choose_cut(
        search.judged_rows(RUN, {(0, 0): 0.5}, None),
        np.array([2.0]),
        "recall",
        0.5,  # type: ignore[dict-item]
    ),
    "the table must be a string or a path": lambda: search.read_run(3.5),
    "store must be a string or a path": lambda: Store(b"x"),
    "kind must be at most 255 printable": lambda: cr.Evidence([1.0], [1.0], "\x1b[31m"),
    "bins must be a tuple": lambda: cr.BBQ(b"ab"),
    "seed must be a whole number": lambda: data.RandomSplit(seed=-1),
    "seed must be a whole number, 0": lambda: data.RandomSplit(seed=-1),
    "scores must be real numbers, got '0.5'": lambda: FITTED.predict(
        np.array(["0.5"], dtype=object)
    ),
    "labels must be real numbers, got '1'": lambda: cr.naive(pd.Series(["1", "0"], dtype=object)),
    "by_user must be of type bool": lambda: propensity.Exposure(by_user="no"),
    "ranks must be whole numbers from 1 to 1,000,000": lambda: propensity.Position([1.0]).predict(
        [1e300]
    ),
    "items must hold at least one row": lambda: propensity.estimate_position([], [], []),
    "rate must lie within its band": lambda: AssumedRate(0.5, 0.1, 0.3, ("Frank",)),
    "distinct must be a whole number": lambda: cr.Summary.of(SCORES, LABELS, distinct=0),
    "a rule for positives must be of type str": lambda: parse_rule(4),
    "columns must be one or more different column names": cr.Level,
    "terms must be of different columns": lambda: cr.Gaussian() + cr.Level("a") + cr.Smooth("a"),
    "columns must have c, which this map needs": lambda: fit_country(USERS).predict(SCORES),
    "values of Threshold must lie in": lambda: Threshold((2.0,)),
    "promises must hold at least one Promise": lambda: cr.control([0.5], [1], [1], []),
    "column must be a string": lambda: cr.Position(""),
    "n must be a whole number": lambda: cr.Position("rank", n=0),
    "column 'rank' must be a rank, counted from 1, of at most 1e9, got 0.0 at row 0": (
        lambda: TOP.predict([0.5, 0.5], {"rank": [0, 1]})
    ),
    "column 'rank' must be a rank, .*got 1e\\+20 at row 0": lambda: TOP.interval(
        [0.5], {"rank": [1e20]}
    ),
    "column 'age' must be finite and within .*got nan at row 1. Fill missing": lambda: fit_age(
        [1.0, np.nan, *SCORES[2:]]
    ),
    "folds must be a whole number, 2 to": lambda: search.held_out_constant(JUDGED, 0),
    "depth must be a whole number": lambda: RUN.first(-1),
    "sizes must be a list of whole numbers, got 50": lambda: search.plan_judgements(
        FITTED, RUN, 50
    ),
    "columns must have the column 'rank', got 'x'. Add it": lambda: Day.of(
        TOP, SCORES, LABELS, date="2026-01-01", columns={"x": SCORES}
    ),
    "sizes must hold at least one": lambda: search.plan_judgements(FITTED, RUN, ()),
    "kept must have one boolean": lambda: search.encode_run(
        Path("o"), RUN, LABELS, np.ones(3, dtype=bool)
    ),
    "items must have one row per user": lambda: adapters.from_lists(FITTED, [1], [[1]], 0.5),
    "score must be": lambda: FITTED.scalar()(Decimal("nan")),  # type: ignore[arg-type]
    "path must be text that can be encoded": lambda: load("\ud800"),
    "column 'c' must be without masked": lambda: fit_country(np.ma.masked_array(USERS, USERS == 3)),
    "column 'c' must hold text, whole numbers or booleans, got inf": lambda: fit_country(
        np.full(60, np.inf)
    ),
    "column 'c' must hold .*different lengths": lambda: fit_country([[1], [1, 2]]),
}


@pytest.mark.parametrize("message", REFUSED)
def test_a_wrong_value_is_refused_by_name(message: str) -> None:
    with pytest.raises(cr.DataError, match=message):
        REFUSED[message]()


def test_a_fraction_of_an_impression_is_a_share_of_it() -> None:
    labels, weights = Counts("c", "n").labels(
        {"c": np.array([0.5, 0.0, 0.0]), "n": np.array([0.5, 2.0, 0.0])}
    )
    assert labels.tolist() == [1.0, 0.0, 0.0]
    assert weights is not None
    assert weights.tolist() == [0.5, 2.0, 0.0]


def test_the_size_of_a_map_is_checked_before_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "map.json"
    # A file with a hole takes no space.
    with file.open("wb") as out:
        out.truncate(2**40)
    with pytest.raises(cr.DataError, match=r"at most 268,435,456 bytes, got 1,099,511,627,776"):
        load(file)


def test_a_map_whose_fit_had_no_mass_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "map.json"
    FITTED.save(file)
    document = json.loads(file.read_text())
    document["record"]["total"] = 0
    del document["digest"]
    with pytest.raises(cr.DataError, match=r"total must be above 0, got 0"):
        parse("map.json", json.dumps({**document, "digest": digest_of(document)}))


@pytest.mark.parametrize("content", [b"x", None])
def test_files_of_other_rows_are_refused(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "rows.parquet"
    if content is None:
        pq.write_table(pa.table({"metric": [1.0]}), file)
    else:
        file.write_bytes(content)
    with pytest.raises(cr.DataError, match=r"rows.parquet must (be a Parquet file|have the col)"):
        read_rows(file)
