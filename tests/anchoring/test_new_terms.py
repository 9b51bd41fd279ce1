"""Terms that the labels of an anchor add: few labels change little, and many find the truth."""

import numpy as np
import pytest
from scipy.special import expit

import calibrank as cr
from calibrank.anchoring import count_columns
from calibrank.tables import Interactions

BIASED = cr.Gaussian().fit(
    np.linspace(-3, 3, 400), (np.random.default_rng(9).random(400) < 0.5).astype(float)
)
TERMS = [cr.Smooth("x"), cr.Level("country")]


def world(rows: int, seed: int, effect: float) -> tuple[np.ndarray, np.ndarray, dict, np.ndarray]:
    rng = np.random.default_rng(seed)
    scores, x = rng.normal(size=(2, rows))
    country = rng.choice(["NL", "DE", "BE"], rows)
    truth = expit(scores - 1 + effect * x + effect * (country == "NL"))
    labels = (rng.random(rows) < truth).astype(float)
    return scores, labels, {"x": x, "country": country}, truth


def excess(truth: np.ndarray, p: np.ndarray) -> float:
    """Expected log loss beyond that of the truth."""
    cross = -(truth * np.log(p) + (1 - truth) * np.log1p(-p)).mean()
    return float(cross + (truth * np.log(truth) + (1 - truth) * np.log1p(-truth)).mean())


def test_many_labels_find_the_truth() -> None:
    scores, labels, columns, _ = world(6_000, 0, 1.0)
    fitted = cr.anchor(BIASED, scores, labels, columns, terms=TERMS)
    assert fitted.columns == ("x", "country")
    assert fitted.record.base_rate_source == "random labels"
    assert fitted.record.recipe == "Gaussian() + Smooth('x') + Level('country')"
    asked, _, other, truth = world(5_000, 1, 1.0)
    assert excess(truth, fitted.predict(asked, other)) < 0.003
    assert excess(truth, fitted.without_terms().predict(asked)) > 0.05


def test_columns_without_an_effect_do_no_harm_with_few_labels() -> None:
    differences = []
    asked, _, other, truth = world(4_000, 99, 0.0)
    for seed in range(8):
        scores, labels, columns, _ = world(150, seed, 0.0)
        one = cr.anchor(BIASED, scores, labels)
        with_terms = cr.anchor(BIASED, scores, labels, columns, terms=TERMS)
        p = with_terms.predict(asked, other)
        differences.append(excess(truth, p) - excess(truth, one.predict(asked)))
    assert np.mean(differences) < 0.004


def test_propensities_of_exploration_weigh_the_labels() -> None:
    """Where x matters, pairs were shown six times as often: weights undo it."""
    rng = np.random.default_rng(3)
    scores, x = rng.normal(size=(2, 12_000))
    matters = rng.random(12_000) < 0.5
    labels = (rng.random(12_000) < expit(scores - 1 + 1.5 * x * matters)).astype(float)
    propensity = np.where(matters, 0.6, 0.1)
    shown = rng.random(12_000) < propensity

    def slope(rows: np.ndarray, **options: object) -> float:
        columns = {"x": x[rows]}
        terms = [cr.Smooth("x")]
        fitted = cr.anchor(BIASED, scores[rows], labels[rows], columns, terms=terms, **options)
        (term,) = fitted.terms
        return float(np.subtract(*np.interp([1, -1], term.knots, term.values)))

    weighted = slope(shown, propensity=propensity[shown])
    everyone = slope(scores < np.inf)
    assert weighted == pytest.approx(everyone, abs=0.25)
    assert slope(shown) > everyone + 0.5


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_labels_of_one_kind_are_fitted(label: float) -> None:
    """30 labels of rare positives often hold none."""
    scores, labels, columns, _ = world(30, 0, 1.0)
    fitted = cr.anchor(BIASED, scores, np.full_like(labels, label), columns, terms=TERMS)
    p = fitted.predict(scores, columns)
    assert (np.abs(p - label) < 0.5).all()


def levels(rows: int, spread: float, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores, true probabilities and levels, whose log odds differ by `spread`."""
    rng = np.random.default_rng(seed)
    level = rng.integers(0, 12, rows)
    shifts = spread * np.random.default_rng(99).normal(size=12)
    scores = rng.normal(size=rows)
    return scores, expit(scores - 2 + shifts[level]), level


@pytest.fixture(scope="module")
def biased() -> cr.CalibrationMap:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=4_000)
    return cr.Gaussian().fit(scores, rng.random(4_000) < expit(1.5 * scores))


def losses(biased: cr.CalibrationMap, labels: int, spread: float) -> np.ndarray:
    """Excess log loss of the single anchored map and of the one by level, for several samples."""
    test_scores, truth, test_level = levels(20_000, spread, 7)
    found = []
    for seed in range(3):
        scores, chances, level = levels(labels, spread, 100 + seed)
        drawn = np.random.default_rng(seed).random(labels) < chances
        single = cr.anchor(biased, scores, drawn)
        by_level = cr.anchor(biased, scores, drawn, {"s": level}, terms=[cr.Level("s")])
        p = np.array(
            [single.predict(test_scores), by_level.predict(test_scores, {"s": test_level})]
        )
        found.append(-(truth * np.log(p) + (1 - truth) * np.log1p(-p)).mean(axis=1))
    return np.array(found)


def test_with_levels_that_differ_it_is_better_the_more_labels_there_are(
    biased: cr.CalibrationMap,
) -> None:
    few = losses(biased, 300, 1.0)
    many = losses(biased, 3_000, 1.0)
    assert (many[:, 1] < many[:, 0] - 0.02).all()
    assert few[:, 1].mean() < few[:, 0].mean()


def test_with_levels_that_do_not_differ_it_costs_next_to_nothing(biased: cr.CalibrationMap) -> None:
    differences = np.diff(losses(biased, 300, 0.0)).ravel()
    assert differences.mean() < 0.002


def test_it_starts_from_the_anchored_map_and_keeps_its_record(biased: cr.CalibrationMap) -> None:
    scores, chances, level = levels(500, 1.0, 3)
    labels = np.random.default_rng(0).random(500) < chances
    fitted = cr.anchor(biased, scores, labels, {"s": level}, terms=[cr.Level("s")])
    assert fitted.record.base_rate_source == "random labels"
    # With the slope that scores have within levels.
    found = fitted.without_terms().log_odds(scores)
    before = cr.anchor(biased, scores, labels).log_odds(scores)
    slope, intercept = np.polyfit(before, found, 1)
    np.testing.assert_allclose(found, intercept + slope * before)
    assert 1 < slope < 1.3
    again = cr.anchor(fitted, scores, labels, {"s": level})
    assert again.columns == ("s",)


def test_labels_of_an_uneven_policy_are_weighted(biased: cr.CalibrationMap) -> None:
    """Positives of level 0 were shown four times as often as its negatives."""
    rng = np.random.default_rng(1)
    scores = rng.normal(size=20_000)
    level = rng.integers(0, 2, 20_000)
    labels = rng.random(20_000) < expit(scores - 1)
    propensity = np.where((level == 0) & ~labels, 0.25, 1.0)
    shown = rng.random(20_000) < propensity
    fitted = cr.anchor(
        biased,
        scores[shown],
        labels[shown],
        {"s": level[shown]},
        propensity=propensity[shown],
        terms=[cr.Level("s")],
    )
    probabilities = fitted.predict([0.0, 0.0], {"s": [0, 1]})
    np.testing.assert_allclose(probabilities, expit(-1), atol=0.03)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"terms": [cr.Group("q")]}, "Group must not go with anchor"),
        ({"terms": ["x"]}, "a term must be of type TermSpec"),
        ({"terms": [cr.Level("s"), cr.Smooth("s")]}, "terms must be of different columns"),
        ({"terms": [cr.Level("s")], "columns": None}, "column"),
        ({"terms": [cr.Level("t")]}, "must have the column 't', got 's'"),
    ],
)
def test_errors_say_what_must_be_true(
    biased: cr.CalibrationMap, options: dict[str, object], message: str
) -> None:
    with pytest.raises(cr.DataError, match=message):
        cr.anchor(biased, [0.0, 1.0], [0, 1], **{"columns": {"s": ["a", "b"]}, **options})


def counted(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray, dict, np.ndarray]:
    """Pairs whose preference rises with the popularity of the item in a log."""
    rng = np.random.default_rng(seed)
    log = Interactions(
        users=rng.integers(0, 30, 3_000), items=(300 * rng.random(3_000) ** 2).astype(int)
    )
    users, items = rng.integers(0, 30, rows), rng.integers(0, 300, rows)
    columns = count_columns(log, users, items)
    scores = rng.normal(size=rows)
    truth = expit(scores - 3 + columns["item_popularity"])
    return scores, (rng.random(rows) < truth).astype(float), columns, truth


def test_popularity_and_activity_are_terms_by_default() -> None:
    scores, labels, columns, _ = counted(300, 0)
    fitted = cr.anchor(BIASED, scores, labels, columns)
    assert fitted.columns == ("item_popularity", "user_activity")
    named = cr.anchor(BIASED, scores, labels, columns, terms=list(map(cr.Smooth, columns)))
    assert fitted == named
    alone = cr.anchor(BIASED, scores, labels, columns, terms=())
    assert alone.columns == ()
    asked, _, other, truth = counted(5_000, 1)
    assert excess(truth, fitted.predict(asked, other)) < excess(truth, alone.predict(asked)) - 0.01
    # Users differ in nothing, so their activity hardly changes a probability.
    assert np.abs(fitted.terms[1].values).max() < 0.2
    again = cr.anchor(fitted, scores, labels, columns)
    assert again.columns == fitted.columns


def test_ids_that_are_not_in_the_log_have_no_positives() -> None:
    log = Interactions(users=["a", "a", "b"], items=[1, 2, 2], labels=[1, 1, 0])
    found = count_columns(log, users=["a", "b", "c"], items=[2, 3, 1])
    assert np.expm1(found["item_popularity"]) == pytest.approx([1, 0, 1])
    assert np.expm1(found["user_activity"]) == pytest.approx([2, 0, 0])
    with pytest.raises(cr.CalibrankError, match="items must be ids as in the log"):
        count_columns(log, users=["a"], items=["2"])


def test_the_rate_is_that_of_the_map_with_the_terms_that_labels_add() -> None:
    """Terms are fitted with the curve: the mean over pairs stays, and so does the rate."""
    rng = np.random.default_rng(2)
    popularity = rng.normal(size=20_000)
    scores = 0.5 * popularity + rng.normal(size=20_000)
    truth = expit(0.5 * scores + 1.2 * popularity - 1.8)
    biased = cr.Gaussian().fit(scores, (rng.random(20_000) < expit(scores - 3)).astype(float))
    shown = slice(0, 2_000)
    labels = (rng.random(2_000) < truth[shown]).astype(float)
    given = {"item_popularity": popularity[shown]}
    anchored = cr.anchor(biased, scores[shown], labels, given, population=scores)
    found = anchored.record.anchoring
    assert found is not None
    assert found.rate_range is not None
    assert found.rate_range[0] < truth.mean() < found.rate_range[1]
    assert found.rate == pytest.approx(anchored.predict(scores[shown], given).mean(), abs=0.01)
