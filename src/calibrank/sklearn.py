"""scikit-learn at the edge: a classifier that calibrates a score, for pipelines, clones and searches."""

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


class CalibratedRanker(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn ships no types
    """Preference probabilities from a scorer, or from a score column.

    Without `estimator`, X is one column of scores. With one (anything with `decision_function`, `predict_proba` or
    `predict`), its scores on held-out folds are calibrated, and it is fitted again on everything. Weights and
    propensities go to the calibrator, not to the estimator.

    Parameters
    ----------
    calibrator : how to calibrate; `Gaussian()` by default.
    estimator : what gives the scores; by default X itself.
    cv : folds for held-out scores.

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

    def fit(self, X: Any, y: Any, sample_weight: Any = None, propensity: Any = None) -> Self:  # noqa: N803
        """Fit on scores or features X and two classes y; the second class in sorted order is the liked one.

        `propensity` is P(observed) of each row: with it the inverse-propensity risk is minimised.
        """
        X, y = validate_data(self, X, y, dtype="numeric", y_numeric=False)  # noqa: N806
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        self._require_two_classes()
        self.map_ = (self.calibrator or Gaussian()).fit(
            self._held_out_scores(X, y, labels), _evidence(labels, propensity, sample_weight)
        )
        return self

    def decision_function(self, X: Any) -> Array:  # noqa: N803
        """Log odds of the liked class."""
        scores = self._scores(X)
        return self.map_.log_odds(scores)

    def predict_proba(self, X: Any) -> Array:  # noqa: N803
        """Probabilities of both classes, one column each."""
        scores = self._scores(X)
        liked = self.map_.predict(scores)
        return np.column_stack([1 - liked, liked])

    def predict(self, X: Any) -> Array:  # noqa: N803
        """The likelier class."""
        chosen = (self.decision_function(X) > 0).astype(int)
        labels: Array = self.classes_[chosen]
        return labels

    def _held_out_scores(self, X: Array, y: Array, labels: Array) -> Array:  # noqa: N803
        if self.estimator is None:
            return _only_column(X)
        method = _score_method(self.estimator)
        self.estimator_ = clone(self.estimator).fit(X, y)
        folds = int(min(self.cv, np.bincount(labels).min()))
        if folds < 2:
            return _one_score(getattr(self.estimator_, method)(X))
        return _one_score(cross_val_predict(clone(self.estimator), X, y, cv=folds, method=method))

    def _scores(self, X: Any) -> Array:  # noqa: N803
        check_is_fitted(self, "map_")
        X = validate_data(self, X, dtype="numeric", reset=False)  # noqa: N806
        if self.estimator is None:
            return _only_column(X)
        return _one_score(getattr(self.estimator_, _score_method(self.estimator))(X))

    def _require_two_classes(self) -> None:
        if len(self.classes_) == 1:
            raise ValueError("Classifier can't train when only one class is present.")
        if len(self.classes_) > 2:
            raise ValueError(
                f"Only binary classification is supported. The type of the target is multiclass: {self.classes_}."
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


def _evidence(labels: Array, propensity: Any, weights: Any) -> Evidence:
    if weights is not None:
        weights = np.asarray(weights, dtype=np.float64)
        weights = np.full(len(labels), weights) if weights.ndim == 0 else weights
    return (
        naive(labels, weights=weights)
        if propensity is None
        else ips(labels, propensity, weights=weights)
    )


def _score_method(estimator: Any) -> str:
    methods = ("decision_function", "predict_proba", "predict")
    return next(method for method in methods if hasattr(estimator, method))


def _one_score(output: Array) -> Array:
    """A score a row; of probabilities, the log odds of the second class."""
    return output if output.ndim == 1 else logit(np.clip(output[:, 1], 1e-12, 1 - 1e-12))


def _only_column(X: Array) -> Array:  # noqa: N803
    if X.shape[1] != 1:
        raise ValueError(
            f"X must be one column of scores, got {X.shape[1]} columns. Pass estimator=... to score features first."
        )
    column: Array = X[:, 0]
    return column
