"""The scikit-learn adapter: scikit-learn's own checks, pipelines and clones."""

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
from calibrank.data.score_world import make_world
from calibrank.sklearn import CalibratedRanker


@pytest.mark.filterwarnings(
    "ignore::UserWarning"
)  # scikit-learn reports skipped checks and tiny folds as warnings
def test_scikit_learns_own_checks() -> None:
    check_estimator(
        CalibratedRanker(cr.Isotonic(), LogisticRegression()),
        expected_failed_checks={
            "check_sample_weight_equivalence_on_dense_data": "the wrapped scorer is fitted without weights, by folds",
            "check_classifiers_one_label_sample_weights": "zero weights may leave a fold of the scorer one class",
        },
    )


def test_one_column_of_scores_is_the_plain_calibrator() -> None:
    world = make_world(2_000)
    ranker = CalibratedRanker(cr.Gaussian()).fit(
        world.scores[:, None], world.labels, propensity=world.propensity
    )
    plain = cr.Gaussian().fit(world.scores, cr.ips(world.labels, world.propensity))
    np.testing.assert_array_equal(
        ranker.predict_proba(world.scores[:, None])[:, 1], plain.predict(world.scores)
    )


def test_works_in_a_pipeline_and_clones() -> None:
    world = make_world(2_000)
    pipeline = make_pipeline(StandardScaler(), CalibratedRanker(cr.Platt()))
    again = clone(pipeline).fit(world.scores[:, None], world.preferences)
    assert again[-1].calibrator == cr.Platt()
    assert again.predict_proba(world.scores[:, None]).shape == (2_000, 2)
    held_out = cross_val_predict(
        pipeline, world.scores[:, None], world.preferences, method="predict_proba"
    )[:, 1]
    assert cr.ECE()(held_out, world.preferences) < 0.05


def test_a_regressor_can_give_the_scores() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(600, 3))
    liked = np.where(features.sum(axis=1) + rng.normal(size=600) > 1, "yes", "no")
    encoded = make_pipeline(StandardScaler(), _RidgeOnLabels())
    ranker = CalibratedRanker(cr.Gaussian(), encoded).fit(features, liked)
    assert cr.ECE()(ranker.predict_proba(features)[:, 1], (liked == "yes").astype(float)) < 0.06


class _RidgeOnLabels(Ridge):
    def fit(self, X, y, sample_weight=None):  # noqa: N803
        return super().fit(X, (y == "yes").astype(float), sample_weight)


def test_several_columns_without_an_estimator_is_an_error() -> None:
    with pytest.raises(ValueError, match="X must be one column of scores, got 2 columns"):
        CalibratedRanker().fit(np.ones((4, 2)), [0, 1, 0, 1])


def test_a_classifier_without_decision_function_gives_log_odds() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(400, 3))
    liked = np.where(features.sum(axis=1) + rng.normal(size=400) > 1, "yes", "no")
    forest = RandomForestClassifier(20, max_depth=4, random_state=0)
    ranker = CalibratedRanker(cr.Platt(), forest, cv=3).fit(features, liked)
    assert len(np.unique(ranker.predict_proba(features)[:, 1])) > 50
    with pytest.raises(cr.DataError, match="weights must have one value per row"):
        ranker.fit(features, liked, sample_weight=[1.0, 2.0])
