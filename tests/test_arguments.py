"""Arguments of the wrong type or range: each is refused by name, with our error."""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import calibrank as cr
from calibrank import data, export, metrics, propensity
from calibrank._internal.arguments import path_of, real, seeded, shown, text, whole
from calibrank.anchoring import PropensityModel, undo_undersampling
from calibrank.metrics import NDCG, Miscalibration
from calibrank.tables import Index, Interactions

RNG = np.random.default_rng(0)
SCORES = RNG.normal(size=60)
LABELS = (RNG.random(60) < 1 / (1 + np.exp(-2 * SCORES))).astype(float)
USERS = np.repeat(np.arange(12), 5)
PROBABILITIES = np.linspace(0.1, 0.9, 60)
FITTED = cr.Platt().fit(SCORES, LABELS)
SUMMARY = cr.Summary.of(SCORES, LABELS)
LOG = Interactions(USERS, np.tile(np.arange(5), 12), LABELS)

NOT_COUNTS = ["x", "5", None, 1.5, float("nan"), -1, 10**30, 2**62, [1], True, 1j, np.array([1, 2])]
NOT_NUMBERS = ["x", "0.5", None, float("nan"), float("inf"), [0.5], True, 1j, 10**400, b"1", len]
NOT_SEEDS = ["x", None, -1, 1.5, float("nan"), [1], True, np.random.RandomState(0)]
NOT_OBJECTS = ["x", None, 3, [1], {}, cr.Platt, len, SCORES]
NOT_PATHS = [None, 3.5, "", "a\0b", ["a"], "x" * 5000, b"x"]

COUNTS: dict[str, Callable[[Any], object]] = {
    "bins": cr.ECE,
    "bins ": cr.Histogram,
    "bins  ": metrics.EqualMass,
    "bins   ": lambda value: cr.BBQ((10, value)),
    # None is the whole list.
    "k": lambda value: NDCG(0 if value is None else value),
    "knots": cr.Spline,
    "folds": lambda value: cr.Auto(folds=value),
    "resamples": lambda value: cr.bootstrap(
        cr.Brier(), PROBABILITIES, LABELS, USERS, resamples=value
    ),
    "pairs": data.make_world,
    "n_users": data.simulate,
    "at_least": lambda value: data.RandomSplit(at_least=value),
    "each": lambda value: data.with_negatives(LOG, data.Positives.of(LOG), value),
}
NUMBERS: dict[str, Callable[[Any], object]] = {
    "clip": cr.LogLoss,
    "clip ": lambda value: propensity.Popularity(clip=value),
    "power": lambda value: propensity.Popularity(power=value),
    "power ": lambda value: PropensityModel(power=value),
    "margin": cr.Gamma,
    "kept": lambda value: cr.undersampling_weights(LABELS, value),
    "kept ": lambda value: undo_undersampling(FITTED, value),
    "rate": lambda value: cr.to_base_rate(FITTED, value, SCORES),
    "level": lambda value: FITTED.interval(SCORES, level=value),
    "level ": lambda value: cr.bootstrap(cr.Brier(), PROBABILITIES, LABELS, USERS, level=value),
    "fraction": data.RandomSplit,
    "ridge": lambda value: propensity.Logistic([[1.0]], [[1.0]], ridge=value),
}
SEEDS: dict[str, Callable[[Any], object]] = {
    "bootstrap": lambda seed: cr.bootstrap(cr.Brier(), PROBABILITIES, LABELS, USERS, seed=seed),
    "Random": propensity.Random,
    "make_world": lambda seed: data.make_world(100, seed=seed),
    "simulate": lambda seed: data.simulate(seed=seed),
    "split": lambda seed: data.RandomSplit(seed=seed).divide(LOG),
}
OBJECTS: dict[str, Callable[[Any], object]] = {
    "fitted": lambda value: undo_undersampling(value, 0.5),
    "fitted ": lambda value: cr.anchor(value, SCORES, LABELS),
    "fitted  ": lambda value: cr.to_base_rate(value, 0.1, SCORES),
    "fitted   ": lambda value: cr.plan_labels(value, SCORES),
    "fitted    ": lambda value: export.to_sql(value, "duckdb"),
    "fitted     ": export.to_json,
    "metric": lambda value: cr.bootstrap(value, PROBABILITIES, LABELS, USERS),
    "score": Miscalibration,
    "binning": lambda value: cr.reliability(PROBABILITIES, LABELS, value),
    "candidates": lambda value: cr.Auto((value,)),
    "calibrator": lambda value: cr.fit_with_sensitivity(value, SCORES, LABELS, PROBABILITIES),
    "summary": lambda value: cr.Platt().fit_summary(value),
    "other": lambda value: cr.SummaryBuilder().merge(value),
    "other ": lambda value: SUMMARY + value,
    "other  ": lambda value: sum([SUMMARY, value]),
    "scores": lambda value: data.make_world(100, value),
    "interactions": lambda value: data.RandomSplit().divide(value),
}
PATHS: dict[str, Callable[[Any], object]] = {
    "load": cr.load,
    "save": FITTED.save,
    "Summary.load": cr.Summary.load,
    "Summary.save": SUMMARY.save,
}


def _refusal(call: Callable[[Any], object], value: object) -> str:
    with pytest.raises(cr.DataError) as refused:
        call(value)
    return str(refused.value)


@pytest.mark.parametrize(
    ("values", "calls"),
    [(NOT_COUNTS, COUNTS), (NOT_NUMBERS, NUMBERS), (NOT_OBJECTS, OBJECTS)],
    ids=["counts", "numbers", "objects"],
)
def test_an_argument_is_refused_by_name(
    values: list[object], calls: dict[str, Callable[[Any], object]]
) -> None:
    for name, call in calls.items():
        for value in values:
            message = _refusal(call, value)
            assert f"{name.strip()} " in message, (name, value, message)
            assert " must " in message
            assert ", got " in message
            assert len(message) < 300


def test_seeds_are_integers_or_generators() -> None:
    for name, call in SEEDS.items():
        for seed in NOT_SEEDS:
            assert "seed must be a whole number" in _refusal(call, seed), name
        call(np.int64(3))
    assert seeded(7).random() == np.random.default_rng(7).random()
    assert seeded(7, 2).random() == np.random.default_rng([7, 2]).random()
    generator = np.random.default_rng(0)
    assert seeded(generator, 5) is generator


def test_paths_are_strings_or_paths() -> None:
    for name, call in PATHS.items():
        for path in NOT_PATHS:
            assert _refusal(call, path).startswith("path must be"), name
    assert path_of("path", Path("x")) == Path("x")


def test_numbers_of_numpy_and_arrays_without_dimensions_are_accepted() -> None:
    for value in (5, np.int8(5), np.uint64(5), np.array(5)):
        assert type(whole("k", value)) is int
        assert NDCG(value).k == 5
    for number in (0.5, np.float32(0.5), np.float64(0.5), np.array(0.5), Fraction(1, 2)):
        assert real("clip", number, "[0, 1]") == 0.5
    assert real("rate", 1, "(0, 1]") == 1.0
    assert repr(cr.ECE(np.int64(10))) == repr(cr.ECE(10))


def test_rules_are_worded_by_the_interval() -> None:
    for interval, rule in {
        "(0, 1]": r"lie in \(0, 1\]",
        "(-inf, inf)": "be a finite number, got",
        "(0, inf)": "be a finite number, above 0",
        "[0, inf)": "be a finite number, 0 or more",
    }.items():
        with pytest.raises(cr.DataError, match=f"x must {rule}"):
            real("x", float("nan"), interval)
    with pytest.raises(cr.DataError, match=r"k must be a whole number, 1 to 5, got 9\. Why\."):
        whole("k", 9, 1, 5, "Why.")
    with pytest.raises(cr.DataError, match="score must be a string, got 3"):
        text("score", 3)


def test_values_are_shown_in_one_short_line() -> None:
    assert shown("\x1b[31m") == r"'\x1b[31m'"
    assert len(shown("x" * 10_000)) < 100
    assert shown(SCORES) == "ndarray"
    assert shown(cr.Platt) == "the class Platt"
    assert shown(10**10_000) == "a huge integer"


def test_a_class_instead_of_an_object_has_a_remedy() -> None:
    with pytest.raises(cr.DataError, match=r"got the class ECE\. Create one: ECE\(\.\.\.\)"):
        cr.bootstrap(cr.ECE, PROBABILITIES, LABELS, USERS)


def test_infinite_labels_are_refused() -> None:
    labels = LABELS.copy()
    labels[3] = np.inf
    for call in (cr.naive, cr.Isotonic().fit, cr.Histogram().fit, cr.BBQ().fit, cr.Brier()):
        arguments = (labels,) if call is cr.naive else (PROBABILITIES, labels)
        with pytest.raises(cr.DataError, match="labels must be 0 or 1, got inf at row 3"):
            call(*arguments)  # type: ignore[operator]  # calls of different signatures


def test_undersampling_is_undone_once() -> None:
    once = undo_undersampling(FITTED, 0.1)
    assert once.record.negatives_kept == 0.1
    with pytest.raises(cr.DataError, match=r"got one that undid kept=0\.1\."):
        undo_undersampling(once, 0.1)


BIG = 2**63


def test_ids_beyond_64_bits_are_not_merged() -> None:
    assert Interactions([BIG, BIG + 1], [1, 2]).n_users == 2
    assert Index.of([BIG, BIG + 1], [5]).rows("users", [BIG + 1, 5]).tolist() == [2, 0]
    signed = Index.of([2**53, 2**53 + 1])
    assert signed.rows("users", np.array([2**53 + 1], dtype=np.uint64)).tolist() == [1]
    for users, message in [
        ([-1, BIG], "must be integers of 64 bits or strings"),
        ([1, 2**70], "must be integers of 64 bits or strings"),
        (np.array([2.0**60, 1.0]), r"must be whole and below 2\^53 if they are decimals"),
        (np.array([0.5, 1.0]), r"must be whole and below 2\^53 if they are decimals, got 0.5"),
        ([0.5, 1], r"must be whole and below"),
        ([1, "a", None], "must be ids"),
        ([(1, 2), (3, 4)], "must have one dimension"),
        ([{}, {}], r"must be ids \(integers or strings\), got dict"),
        (np.array([1j, 2]), "must be ids"),
        (np.array(["NaT", "2020-01-01"], dtype="M8[D]"), "must be ids"),
        ("ab", "must be one id per row"),
        ([[1], [1, 2]], "must be one id per row"),
    ]:
        with pytest.raises(cr.DataError, match=f"users {message}"):
            Interactions(users, [1, 2])
    with pytest.raises(cr.DataError, match="ids must be integers of one type"):
        Index.of([BIG], [-1])
    with pytest.raises(cr.DataError, match="ids must be ids of one kind"):
        Index.of(["a"], [1])


def test_times_are_finite_and_known_where_they_are_used() -> None:
    with pytest.raises(cr.DataError, match="times must be finite or NaN, got inf at row 1"):
        Interactions([1, 2], [1, 2], times=[0.0, np.inf])
    unknown = Interactions([1, 2], [1, 2], times=[0.0, np.nan])
    with pytest.raises(cr.DataError, match="times must be known to split by them"):
        data.TimeSplit().divide(unknown)


@pytest.mark.parametrize("bins", [b"ab", "ab", 5, (), {2, 3}])
def test_numbers_of_bins_are_a_tuple(bins: object) -> None:
    with pytest.raises(cr.DataError, match="bins must be a tuple of numbers of bins, got"):
        cr.BBQ(bins)
    assert cr.BBQ([2, np.int64(3)]).bins == (2, 3)
