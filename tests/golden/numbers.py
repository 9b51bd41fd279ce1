"""Numbers of what has no single map or metric: fits by group, summaries, tests and intervals.

They are computed on `table.csv`, or on made-up scores, and frozen in `numbers.json`; see `rows.py`.
"""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import calibrank as cr
from calibrank.errors import FlatMapWarning
from calibrank.evidence import naive
from calibrank.metrics import NDCG, DebiasedECE, multicalibration_test
from calibrank.metrics.cluster_rates import Clusters
from calibrank.metrics.panel import PanelSums
from calibrank.metrics.pooled import misfit
from calibrank.summary.grid import look, place
from calibrank.summary.pooling import pooling_error, spreads
from calibrank.tables import hash_partitions
from calibrank.terms.group import GroupFit
from tests.golden.rows import FOLDER, read_table
from tests.metrics.sums import cluster_sums

NUMBERS = FOLDER / "numbers.json"
Numbers = dict[str, Any]
TABLE = read_table()
# So few distinct scores that they are their own bins, however they are binned by segment.
SCORES = np.round(2 * TABLE["score"]) / 2
LABELS = TABLE["label"]
USERS = TABLE["user"].astype(int)
COUNTRY = np.array(["NL", "DE", "BE"])[USERS % 3]
CITY = np.char.add(COUNTRY, (USERS % 7).astype(str))
IPS = cr.ips(LABELS, TABLE["propensity"], weights=TABLE["weight"])
PROBABILITIES = np.clip(1 / (1 + np.exp(0.5 - 1.2 * TABLE["score"])), 0, 1)


def _segments(by: tuple[str, ...], evidence: Any, *, slopes: bool = True) -> Numbers:
    columns = {"country": COUNTRY, "city": CITY}
    model = cr.Platt() + cr.Level(*by, slopes=slopes)
    fitted = model.fit(SCORES, evidence, columns)
    (term,) = fitted.terms
    return {
        "keys": ["/".join(key) for key in term.keys],
        "intercepts": term.intercepts,
        "slopes": term.slopes,
        "errors": term.errors,
        "rows": term.rows,
        "spreads": term.spreads,
        "loss": fitted.record.loss,
    }


def _reversed_segment() -> Numbers:
    """In one segment the labels fall with the score: its slope is at its bound."""
    falling = np.where(COUNTRY == "NL", -4 * SCORES, 4 * SCORES)
    labels = np.random.default_rng(0).random(len(SCORES)) < 1 / (1 + np.exp(-falling))
    model = cr.Platt() + cr.Level("country")
    fitted = model.fit(SCORES, labels, {"country": COUNTRY})
    (term,) = fitted.terms
    return {"intercepts": term.intercepts, "slopes": term.slopes, "loss": fitted.record.loss}


def _change(fitted: cr.CalibrationMap, scores: np.ndarray, evidence: Any) -> Numbers:
    """How the terms changed the line of Platt: its intercept and its slope."""
    alone = cr.Platt().fit(scores, evidence).curve
    slope = fitted.curve.coefficients[0] / alone.coefficients[0]
    return {"intercept": fitted.curve.intercept - slope * alone.intercept, "slope": slope}


def _covariates(columns: tuple[str, ...], evidence: Any, *, smooth: bool = True) -> Numbers:
    features = {"weight": TABLE["weight"], "propensity": TABLE["propensity"], "user": TABLE["user"]}
    model = cr.Model(cr.Platt(), ())
    for name in columns:
        model += cr.Smooth(name, knots=5 if smooth else 2)
    fitted = model.fit(SCORES, evidence, features)
    return {
        **_change(fitted, SCORES, evidence),
        "knots": [term.knots for term in fitted.terms],
        "values": [term.values for term in fitted.terms],
        "loss": fitted.record.loss,
    }


def _categories() -> Numbers:
    features = {"country": COUNTRY, "city": CITY, "propensity": TABLE["propensity"]}
    smooth = cr.Smooth("propensity", knots=4)
    model = cr.Platt() + cr.Level("country") + smooth + cr.Level("city")
    fitted = model.fit(SCORES, IPS, features)
    country, propensity, city = fitted.terms
    values = [country.intercepts, propensity.values, city.intercepts]
    return {**_change(fitted, SCORES, IPS), "values": values}


def _useless_score() -> Numbers:
    """The feature explains the labels and the score points the wrong way: a small slope is left."""
    feature = TABLE["score"]
    scores = feature + np.cos(np.arange(len(feature)))
    labels = np.random.default_rng(1).random(len(feature)) < 1 / (
        1 + np.exp(-3 * feature + 2 * scores)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FlatMapWarning)
        model = cr.Platt() + cr.Smooth("x", knots=2)
        fitted = model.fit(scores, labels, {"x": feature})
        change = _change(fitted, scores, labels)
    return {**change, "values": [term.values for term in fitted.terms]}


def _splines() -> Numbers:
    """More scores than knots or pools, steps, falling labels, certainty and heavy weights."""
    rng = np.random.default_rng(5)
    scores = rng.normal(size=4_000)
    draws = rng.random(4_000)
    rates = {
        "smooth": 1 / (1 + np.exp(1 - 2 * np.tanh(scores))),
        "step": np.where(scores > 0.5, 0.9, 0.05),
        "falling": 1 / (1 + np.exp(scores)),
        "certain": (scores > 1).astype(float),
        "hump": np.exp(-(scores**2)),
    }
    numbers: Numbers = {}
    for name, rate in rates.items():
        labels = (draws < rate).astype(float)
        evidence = naive(labels, weights=rng.uniform(0.2, 3, 4_000) if name == "step" else None)
        for knots in (6, 20):
            try:
                fitted = cr.Spline(knots).fit(scores, evidence)
            except cr.FitError as error:
                numbers[f"{name} {knots}"] = str(error).split(",")[0]
                continue
            numbers[f"{name} {knots}"] = {
                "knots": fitted.curve.knots,
                "values": fitted.curve.values,
                "end_slopes": fitted.curve.end_slopes,
                "value_errors": fitted.curve.value_errors,
                "slope_errors": fitted.curve.slope_errors,
                "loss": fitted.record.loss,
            }
    return numbers


def _random_intercept(evidence: Any) -> Numbers:
    with patch("calibrank.terms.group._FACTORS", (0.5, 1.0)):
        fitted = GroupFit((cr.Platt(), cr.Beta()), folds=2).fit(SCORES, evidence, USERS)
    curve = fitted.curve
    selection = fitted.record.selection
    assert selection is not None
    return {
        "chosen": selection.chosen,
        "losses": [each.loss for each in selection.candidates],
        "standard_errors": [each.standard_error for each in selection.candidates],
        "knots": curve.knots[::9],
        "values": curve.values[::9],
        "value_errors": curve.value_errors[::9],
        "end_slopes": curve.end_slopes,
        "slope_errors": curve.slope_errors,
        "loss": fitted.record.loss,
    }


def _auto() -> Numbers:
    auto = cr.Auto((cr.Platt(), cr.Gaussian(), cr.Isotonic()))
    distinct, inverse = np.unique(USERS, return_inverse=True)
    fold = hash_partitions(distinct.tolist(), auto.folds)[inverse]
    rows = [np.flatnonzero(fold == number) for number in range(auto.folds)]
    folds = [cr.Summary.of(SCORES[each], IPS.rows(each)) for each in rows]
    # The table is too small for `fit` to choose on it.
    _, selection = auto._choose(folds)
    return {
        "chosen": selection.chosen,
        "losses": [each.loss for each in selection.candidates],
        "standard_errors": [each.standard_error for each in selection.candidates],
    }


def _scores(rows: int, seed: int) -> tuple[np.ndarray, cr.Evidence]:
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=rows)
    labels = rng.random(rows) < 1 / (1 + np.exp(1 - scores))
    return scores, cr.ips(labels, rng.uniform(0.1, 1, rows), weights=rng.uniform(0, 2, rows))


def fingerprint(summary: cr.Summary) -> Numbers:
    """Every array of a summary as one number, in which each entry has another weight."""
    weights = 2 + np.cos(np.arange(len(summary)))
    columns = [float(np.abs(column) @ weights) for column in summary.masses]
    grid = summary.grid
    return {
        "bins": len(summary),
        "rows": summary.rows,
        "ends": [summary.low, summary.high],
        "scores": float(np.abs(summary.scores) @ weights),
        "masses": columns,
        "positive_scores": float(np.abs(summary.positive_scores) @ weights),
        "keys": float(np.abs(summary.keys) @ weights[: len(summary.keys)]),
        "grid": None if grid is None else [grid.top, grid.bits, *grid.placement],
        "spreads": float(spreads(summary) @ weights),
        "effective_rows": summary.effective_rows,
        "kind": summary.kind,
    }


def _pooled(factor: float = 1.0, origin: float = 0.0, outlier: float | None = None) -> Numbers:
    scores, evidence = _scores(70_000, 0)
    scores = factor * scores + origin
    if outlier is not None:
        scores[0] = outlier
    summary = cr.Summary.of(scores, evidence)
    probabilities = 1 / (1 + np.exp(-np.clip(summary.scores, -5, 5)))
    numbers = fingerprint(summary)
    numbers["pooling_error"] = pooling_error(probabilities, summary)
    numbers["residuals"] = float(summary.squared_residuals(probabilities).sum())
    return numbers


def _merged() -> Numbers:
    first = cr.Summary.of(*_scores(70_000, 0))
    scores, evidence = _scores(70_000, 1)
    second = cr.Summary.of(3 * scores + 1, evidence)
    few = cr.Summary.of(*_scores(2_000, 2))
    return {
        "sum": fingerprint(first + second),
        "with distinct scores": fingerprint(few + first),
        "coarsened": fingerprint(first.coarsened(1024)),
        "distinct scores coarsened": fingerprint(few.coarsened(1024)),
    }


def _built() -> Numbers:
    builder = cr.SummaryBuilder()
    for seed, (factor, origin) in enumerate([(1, 0), (1, 0.5), (20, 3), (1e-3, 1e5)]):
        scores, evidence = _scores(70_000, seed)
        builder.update(factor * scores + origin, evidence)
    return fingerprint(builder.summary())


def _placements() -> Numbers:
    rng = np.random.default_rng(3)
    normal = rng.normal(size=3_000)
    worlds = {
        "normal": normal,
        "far": normal + 1e7,
        "outlier": np.append(normal, 1e15),
        "cauchy": rng.standard_cauchy(3_000) ** 5,
        "two clusters": np.concatenate([1e-6 * normal - 1e3, 1e-6 * normal + 1e3]),
        "three clusters": np.concatenate([normal - 1e9, normal, normal + 1e9]),
    }
    return {
        name: list(place(float(scores.min()), float(scores.max()), look(scores), capacity=4096))
        for name, scores in worlds.items()
    }


def _tests() -> Numbers:
    p = PROBABILITIES
    segments = {"country": COUNTRY, "city": CITY}
    numbers: Numbers = {
        "labels": list(cr.calibration_test(p, LABELS)),
        "users": list(cr.calibration_test(p, LABELS, users=USERS)),
        "weights": list(cr.calibration_test(p, naive(LABELS, weights=TABLE["weight"]))),
        "ips": list(cr.calibration_test(p, IPS, users=USERS)),
        "few values": list(cr.calibration_test(np.round(p, 1), LABELS)),
    }
    for name, users in {"rows": None, "clusters": USERS}.items():
        found = multicalibration_test(p, IPS, segments, users=users)
        numbers[f"segments of {name}"] = {
            "error": found.error,
            "p_value": found.p_value,
            "segments": [list(segment) for segment in found.segments],
        }
    return numbers


def _intervals() -> Numbers:
    numbers: Numbers = {}
    metrics = (cr.LogLoss(), cr.ECE(), DebiasedECE(), cr.SmoothECE(), NDCG(3))
    for metric in (*metrics, cr.ECE() @ 2):
        estimate = cr.bootstrap(metric, PROBABILITIES, IPS, USERS, resamples=70, level=0.8, seed=3)
        numbers[metric.name] = list(estimate)
    return numbers


def _panel() -> Numbers:
    sums = PanelSums(40)
    sums.add(PROBABILITIES[:100], IPS.rows(slice(0, 100)), USERS[:100])
    sums.add(PROBABILITIES[100:], IPS.rows(slice(100, None)), USERS[100:])
    return {"calibration_test": list(sums.calibration_test())}


def _ratios() -> Numbers:
    clusters = Clusters.of(USERS % 30)
    bins = np.minimum((PROBABILITIES * 6).astype(int), 5)
    # Two bins of one class, and one of few clusters.
    labels = np.where(bins == 0, 0.0, np.where(bins == 4, 1.0, LABELS))
    masses = [clusters.sums(bins, column, 7) for column in (labels, np.ones(240), PROBABILITIES)]
    rows = np.bincount(bins, minlength=7).astype(float)
    numbers: Numbers = {}
    for name, offset in {"rates": None, "gaps": masses[2]}.items():
        found = clusters.ratios(masses[0], masses[1], rows, offset)
        numbers[name] = [np.nan_to_num(each, nan=-9.0).tolist() for each in found]
    return numbers


def _misfit() -> Numbers:
    summary = cr.Summary.of(SCORES, IPS)
    probabilities = 1 / (1 + np.exp(0.5 - summary.scores**2))
    return misfit(probabilities, summary)._asdict()


def _cluster_sums() -> Numbers:
    sums = cluster_sums(cr.ECE(5), PROBABILITIES, naive(LABELS), USERS % 4, 4)
    return {"sums": sums.round(12).tolist()}


MEMBERS: dict[str, Callable[[], Numbers]] = {
    "segments": lambda: _segments(("country",), LABELS),
    "segments, weighted": lambda: _segments(("country",), IPS),
    "segments without slopes": lambda: _segments(("city",), LABELS, slopes=False),
    "nested segments": lambda: _segments(("country", "city"), IPS),
    "a segment in which labels fall": _reversed_segment,
    "covariates": lambda: _covariates(("propensity", "user"), LABELS),
    "covariates, weighted": lambda: _covariates(("propensity", "weight"), IPS),
    "straight covariates": lambda: _covariates(("propensity", "user"), IPS, smooth=False),
    "categories": _categories,
    "covariates of a useless score": _useless_score,
    "splines": _splines,
    "random intercept": lambda: _random_intercept(LABELS),
    "random intercept, weighted": lambda: _random_intercept(IPS),
    "auto": _auto,
    "pooled": _pooled,
    "pooled far from zero": lambda: _pooled(0.01, 1e6),
    "pooled beside an outlier": lambda: _pooled(outlier=1e12),
    "pooled tiny scores": lambda: _pooled(1e-290),
    "merged": _merged,
    "built": _built,
    "placements": _placements,
    "tests": _tests,
    "intervals": _intervals,
    "panel": _panel,
    "ratios": _ratios,
    "misfit": _misfit,
    "cluster sums": _cluster_sums,
}


def compute_numbers(name: str) -> Any:
    """The numbers of a member, as JSON reads them back."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FlatMapWarning)
        return json.loads(json.dumps(MEMBERS[name](), default=_plain))


def _plain(value: Any) -> Any:
    """What JSON cannot write: NumPy's arrays and numbers."""
    return value.tolist()


def read_numbers() -> dict[str, Any]:
    return json.loads(NUMBERS.read_text(encoding="utf-8"))


def write_numbers() -> int:
    lines = [f"{json.dumps(name)}: {json.dumps(compute_numbers(name))}" for name in MEMBERS]
    Path(NUMBERS).write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    return len(lines)
