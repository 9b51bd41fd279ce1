"""The scikit-learn estimator: scikit-learn's own checks, pipelines and clones."""

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import cross_val_predict
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
    with pytest.raises(TypeError, match=message):
        CalibratedRanker(estimator=estimator).fit(np.eye(4), [0, 1, 0, 1])
