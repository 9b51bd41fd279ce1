"""A scikit-learn classifier that calibrates scores, for pipelines, clones and searches."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt

from calibrank._logit import logit
from calibrank.calibrators import Calibrator, Gaussian
from calibrank.errors import MissingExtraError
from calibrank.evidence import Evidence, ips, naive
from calibrank.maps import CalibrationMap

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, clone
    from sklearn.model_selection import cross_val_predict
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise MissingExtraError("scikit-learn", "sklearn") from error

Array = npt.NDArray[Any]

# In order of preference: a margin keeps more information than a probability or a class.
_SCORE_METHODS = ("decision_function", "predict_proba", "predict")
# Probabilities of exactly 0 or 1 (as forests predict them) have no finite log odds.
_SMALLEST_PROBABILITY = 1e-12


class CalibratedRanker(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # no types
    """Preference probabilities from a scoring estimator, or from a column of scores.

    Without `estimator`, X is one column of scores. With one (anything that has `fit` and
    `decision_function`, `predict_proba` or `predict`), its out-of-fold scores are calibrated, and
    it is then fitted again on all rows. Weights and propensities are used by the calibrator only.

    Parameters
    ----------
    calibrator : the calibration method; `Gaussian()` by default.
    estimator : the model that scores X; by default X itself is the score.
    cv : the number of folds for out-of-fold scores.

    Examples
    --------
    >>> ranker = CalibratedRanker().fit([[0.2], [1.0], [2.1], [3.5], [2.8]], [0, 1, 0, 1, 0])
    >>> ranker.predict_proba([[1.5]]).shape
    (1, 2)
    """

    classes_: Array
    map_: CalibrationMap

    def __init__(
        self, calibrator: Calibrator | None = None, estimator: Any = None, cv: int = 5
    ) -> None:
        self.calibrator = calibrator
        self.estimator = estimator
        self.cv = cv

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        propensity: Any = None,
    ) -> Self:
        """Fit on scores or features X and two classes y, the second of which is the positive one.

        `propensity` is P(observed) of each row; with it the inverse-propensity risk is minimized.
        """
        X, y = validate_data(self, X, y, dtype="numeric", y_numeric=False)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        self._require_two_classes()
        scores = self._out_of_fold_scores(X, y, labels)
        calibrator = self.calibrator or Gaussian()
        self.map_ = calibrator.fit(scores, _evidence(labels, propensity, sample_weight))
        return self

    def decision_function(self, X: Any) -> Array:
        """Log odds of the positive class."""
        scores = self._scores(X)
        return self.map_.log_odds(scores)

    def predict_proba(self, X: Any) -> Array:
        """Probabilities of both classes, one column each."""
        scores = self._scores(X)
        positive = self.map_.predict(scores)
        return np.column_stack([1 - positive, positive])

    def predict(self, X: Any) -> Array:
        """The more probable class."""
        is_positive = self.decision_function(X) > 0
        labels: Array = self.classes_[is_positive.astype(int)]
        return labels

    def _out_of_fold_scores(self, X: Array, y: Array, labels: Array) -> Array:
        if self.estimator is None:
            return _only_column(X)
        method = _score_method(self.estimator)
        self.estimator_ = clone(self.estimator).fit(X, y)
        # Every fold needs both classes.
        folds = int(min(self.cv, np.bincount(labels).min()))
        if folds < 2:
            return _one_score(getattr(self.estimator_, method)(X))
        return _one_score(cross_val_predict(clone(self.estimator), X, y, cv=folds, method=method))

    def _scores(self, X: Any) -> Array:
        check_is_fitted(self, "map_")
        X = validate_data(self, X, dtype="numeric", reset=False)
        if self.estimator is None:
            return _only_column(X)
        method = _score_method(self.estimator)
        return _one_score(getattr(self.estimator_, method)(X))

    def _require_two_classes(self) -> None:
        # scikit-learn's own checks look for these sentences.
        if len(self.classes_) == 1:
            raise ValueError("Classifier can't train when only one class is present.")
        if len(self.classes_) > 2:
            raise ValueError(
                "Only binary classification is supported. "
                f"The type of the target is multiclass: {self.classes_}."
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


def _evidence(labels: Array, propensity: Any, weights: Any) -> Evidence:
    if weights is not None:
        weights = np.asarray(weights, dtype=np.float64)
        # scikit-learn allows one weight for all rows.
        weights = np.full(len(labels), weights) if weights.ndim == 0 else weights
    if propensity is None:
        return naive(labels, weights=weights)
    return ips(labels, propensity, weights=weights)


def _score_method(estimator: Any) -> str:
    """The name of the method that scores rows."""
    for method in _SCORE_METHODS:
        if hasattr(estimator, "fit") and hasattr(estimator, method):
            return method
    raise TypeError(
        "estimator must have fit and one of decision_function, predict_proba or predict, "
        f"got {type(estimator).__name__}. Pass a classifier or a regressor."
    )


def _one_score(output: Array) -> Array:
    """One score per row; from probabilities, the log odds of the second class."""
    if output.ndim == 1:
        return output
    positive = output[:, 1]
    return logit(np.clip(positive, _SMALLEST_PROBABILITY, 1 - _SMALLEST_PROBABILITY))


def _only_column(X: Array) -> Array:
    if X.shape[1] != 1:
        raise ValueError(
            f"X must be one column of scores, got {X.shape[1]} columns. "
            "Pass estimator=... to score features first."
        )
    column: Array = X[:, 0]
    return column
