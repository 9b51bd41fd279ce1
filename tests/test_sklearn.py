"""The scikit-learn estimator: scikit-learn's own checks, pipelines and clones."""

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    ShuffleSplit,
    StratifiedKFold,
    cross_val_predict,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import calibrank as cr
from calibrank.data import make_world
from calibrank.sklearn import CalibratedRanker


# scikit-learn reports skipped checks and small folds as warnings.
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_scikit_learns_own_checks_pass() -> None:
    expected_failures = {
        "check_sample_weight_equivalence_on_dense_data": "folds are fitted without weights",
        "check_classifiers_one_label_sample_weights": "zero weights may leave a fold one class",
    }
    ranker = CalibratedRanker(cr.Isotonic(), LogisticRegression())
    check_estimator(ranker, expected_failed_checks=expected_failures)


def test_with_one_column_of_scores_it_equals_the_calibrator() -> None:
    world = make_world(2_000)
    ranker = CalibratedRanker(cr.Gaussian()).fit(
        world.scores[:, None], world.labels, propensity=world.propensity
    )
    fitted = cr.Gaussian().fit(world.scores, cr.ips(world.labels, world.propensity))
    probabilities = ranker.predict_proba(world.scores[:, None])[:, 1]
    np.testing.assert_array_equal(probabilities, fitted.predict(world.scores))


def test_it_works_in_pipelines_and_can_be_cloned() -> None:
    world = make_world(2_000)
    pipeline = make_pipeline(StandardScaler(), CalibratedRanker(cr.Platt()))
    again = clone(pipeline).fit(world.scores[:, None], world.preferences)
    assert again[-1].calibrator == cr.Platt()
    assert again.predict_proba(world.scores[:, None]).shape == (2_000, 2)
    held_out = cross_val_predict(
        pipeline, world.scores[:, None], world.preferences, method="predict_proba"
    )[:, 1]
    assert cr.ECE()(held_out, world.preferences) < 0.05


def test_a_regressor_can_be_the_estimator() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(600, 3))
    liked = np.where(features.sum(axis=1) + rng.normal(size=600) > 1, "yes", "no")
    encoded = make_pipeline(StandardScaler(), _RidgeOnLabels())
    ranker = CalibratedRanker(cr.Gaussian(), encoded).fit(features, liked)
    assert cr.ECE()(ranker.predict_proba(features)[:, 1], (liked == "yes").astype(float)) < 0.06


class _RidgeOnLabels(Ridge):
    def fit(self, X, y, sample_weight=None):
        return super().fit(X, (y == "yes").astype(float), sample_weight)


def test_several_columns_without_an_estimator_are_an_error() -> None:
    with pytest.raises(ValueError, match="X must be one column of scores, got 2 columns"):
        CalibratedRanker().fit(np.ones((4, 2)), [0, 1, 0, 1])


def test_a_classifier_without_decision_function_is_scored_by_its_log_odds() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(400, 3))
    liked = np.where(features.sum(axis=1) + rng.normal(size=400) > 1, "yes", "no")
    forest = RandomForestClassifier(20, max_depth=4, random_state=0)
    ranker = CalibratedRanker(cr.Platt(), forest, cv=3).fit(features, liked)
    assert len(np.unique(ranker.predict_proba(features)[:, 1])) > 50
    with pytest.raises(cr.DataError, match="weights must have one value"):
        ranker.fit(features, liked, sample_weight=[1.0, 2.0])


class _Transformer:
    """Has `fit`, as every estimator of scikit-learn, and nothing that scores."""

    def fit(self, X, y):
        return self


@pytest.mark.parametrize("estimator", [_Transformer(), StandardScaler(), object()])
def test_an_estimator_that_cannot_score_is_an_error_that_says_what_is_missing(estimator) -> None:
    message = (
        "estimator must have fit and one of decision_function, predict_proba or predict, "
        f"got {type(estimator).__name__}"
    )
    with pytest.raises(cr.DataError, match=message):
        CalibratedRanker(estimator=estimator).fit(np.eye(4), [0, 1, 0, 1])


def rows_with_users(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, labels and users, whose rows are not in order."""
    rng = np.random.default_rng(seed)
    users = rng.integers(0, 60, size=1_200)
    features = rng.normal(size=(1_200, 3))
    chance = 1 / (1 + np.exp(1 - features.sum(axis=1)))
    return features, (rng.random(1_200) < chance).astype(int), users


@pytest.mark.parametrize(
    "cv", [4, KFold(4, shuffle=True, random_state=0), StratifiedKFold(4), GroupKFold(4)]
)
def test_out_of_fold_scores_are_those_of_scikit_learn(cv) -> None:
    features, labels, users = rows_with_users()
    model = LogisticRegression()
    groups = users if isinstance(cv, GroupKFold) else None
    scores = cross_val_predict(
        model, features, labels, cv=cv, method="decision_function", groups=groups
    )
    ranker = CalibratedRanker(cr.Platt(), model, cv=cv).fit(features, labels, groups=groups)
    assert ranker.map_.to_dict() == cr.Platt().fit(scores, labels).to_dict()
    folds = list(KFold(4).split(features))
    by_rows = CalibratedRanker(cr.Platt(), model, cv=iter(folds)).fit(features, labels)
    assert by_rows.map_ == CalibratedRanker(cr.Platt(), model, KFold(4)).fit(features, labels).map_


def test_folds_that_are_no_partition_are_refused() -> None:
    features, labels, _ = rows_with_users()
    model = LogisticRegression()
    with pytest.raises(ValueError, match="only works for partitions"):
        CalibratedRanker(cr.Platt(), model, ShuffleSplit(3)).fit(features, labels)
    with pytest.raises(ValueError, match="at least 2 classes"):
        CalibratedRanker(cr.Platt(), model, KFold(2)).fit(features[:8], [0] * 4 + [1] * 4)
    with pytest.raises(ValueError, match="Expected `cv` as an integer"):
        CalibratedRanker(cr.Platt(), cv="five").fit(features[:, :1], labels)


def test_with_groups_a_number_of_folds_keeps_groups_together() -> None:
    features, labels, users = rows_with_users()
    model = LogisticRegression()
    expected = CalibratedRanker(cr.Platt(), model, GroupKFold(3))
    found = CalibratedRanker(cr.Platt(), model, 3).fit(features, labels, groups=users)
    assert found.map_ == expected.fit(features, labels, groups=users).map_
    for estimator in (model, None):
        with pytest.raises(ValueError, match="inconsistent numbers of samples"):
            CalibratedRanker(cr.Platt(), estimator).fit(features[:, :1], labels, groups=users[1:])


def test_a_frozen_model_is_not_fitted_again() -> None:
    features, labels, _ = rows_with_users()
    model = LogisticRegression().fit(features[:600], labels[:600])
    before = model.coef_.copy()
    held_out = slice(600, None)
    ranker = CalibratedRanker(cr.Platt(), FrozenEstimator(model))
    ranker.fit(features[held_out], labels[held_out])
    np.testing.assert_array_equal(model.coef_, before)
    scores = model.decision_function(features[held_out])
    assert ranker.map_.to_dict() == cr.Platt().fit(scores, labels[held_out]).to_dict()


def test_a_model_with_several_outputs_is_refused() -> None:
    features, labels, _ = rows_with_users()
    model = FrozenEstimator(LogisticRegression().fit(features, np.arange(1_200) % 3))
    with pytest.raises(ValueError, match=r"must give one score per row, got output of shape \("):
        CalibratedRanker(cr.Platt(), model).fit(features, labels)


def test_terms_read_columns_of_a_dataframe() -> None:
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    rows = {"x": rng.normal(size=500), "country": rng.choice(["NL", "DE"], 500)}
    labels = rng.random(500) < 1 / (1 + np.exp(-rows["x"] - 2 * (rows["country"] == "NL")))
    frame = pandas.DataFrame(rows)
    model = cr.Platt() + cr.Level("country")
    alone = CalibratedRanker(model).fit(frame, labels)
    expected = model.fit(rows["x"], labels, rows)
    found = alone.predict_proba(frame)[:, 1]
    np.testing.assert_allclose(found, expected.predict(rows["x"], rows), rtol=1e-12)
    with_estimator = CalibratedRanker(model, LogisticRegression()).fit(frame, labels)
    # The estimator sees the other columns alone.
    assert with_estimator.feature_names_in_.tolist() == ["x"]
    assert with_estimator.map_.columns == ("country",)
    assert (with_estimator.predict(frame) == labels).mean() > 0.6
    with pytest.raises(cr.DataError, match="X must be a dataframe with 'country'"):
        CalibratedRanker(model).fit(rows["x"][:, None], labels)
    with pytest.raises(cr.DataError, match="which the terms need, got 'x'"):
        alone.predict_proba(frame[["x"]])


def test_groups_of_a_model_are_those_of_the_fit() -> None:
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(40), 20)
    scores = rng.normal(size=800)
    labels = rng.random(800) < 1 / (1 + np.exp(-scores - rng.normal(size=40)[groups]))
    model = cr.Platt() + cr.Group("query")
    ranker = CalibratedRanker(model).fit(scores[:, None], labels, groups=groups)
    expected = model.fit(scores, labels, {"query": groups})
    np.testing.assert_array_equal(
        ranker.predict_proba(scores[:, None])[:, 1], expected.predict(scores)
    )
    with pytest.raises(cr.DataError, match=r"groups must be given for Group\('query'\)"):
        CalibratedRanker(model).fit(scores[:, None], labels)
