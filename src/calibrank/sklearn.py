"""A scikit-learn classifier that calibrates scores, for pipelines, clones and searches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from calibrank._internal.arguments import instance, listed, shown
from calibrank._internal.logit import logit
from calibrank._internal.validation import as_frame, floats
from calibrank.curves import Calibrator, Gaussian
from calibrank.errors import DataError, MissingExtraError
from calibrank.evidence import Evidence, ips, naive
from calibrank.maps import CalibrationMap
from calibrank.model import Model

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, clone
    from sklearn.model_selection import GroupKFold, StratifiedKFold, check_cv, cross_val_predict
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data
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

    With `groups`, the user or query of each row, the rows of a group are in one fold. The scores of
    a ranker whose `fit` needs groups itself, such as `LGBMRanker`, are computed first.

    Where the calibrator has terms, such as `Gaussian() + Level("country")`, X is a dataframe. Their
    columns are taken out of it by name, so the estimator does not see them. The groups of a `Group`
    are those that `fit` gets.

    A model that is fitted already is wrapped in `sklearn.frozen.FrozenEstimator`. It is not fitted
    again, so X and y must be rows that it was not trained on.

    Parameters
    ----------
    calibrator : the calibration method or a model with terms; `Gaussian()` by default.
    estimator : the model that scores X; by default X itself is the score.
    cv : the folds for out-of-fold scores: a number (of stratified folds; with `groups`, of folds by
        group), a splitter of scikit-learn such as `KFold(5, shuffle=True)` or `GroupKFold(5)`, or
        pairs of row numbers. Every row must be held out exactly once.

    Examples
    --------
    >>> ranker = CalibratedRanker().fit([[0.2], [1.0], [2.1], [3.5], [2.8]], [0, 1, 0, 1, 0])
    >>> ranker.predict_proba([[1.5]]).shape
    (1, 2)
    """

    classes_: Array
    map_: CalibrationMap

    def __init__(
        self, calibrator: Calibrator | Model | None = None, estimator: Any = None, cv: Any = 5
    ) -> None:
        self.calibrator = calibrator
        self.estimator = estimator
        self.cv = cv

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, propensity: Any = None, groups: Any = None
    ) -> Self:
        """Fit on scores or features X and two classes y, the second of which is the positive one.

        `propensity` is P(observed) of each row; with it the inverse-propensity risk is minimized.
        `groups` is the user or query of each row, in any order.
        """
        given = Gaussian() if self.calibrator is None else self.calibrator
        calibrator: Calibrator | Model = instance(
            "calibrator", given, (Calibrator, Model), "E.g. Gaussian()."
        )
        group = calibrator.group if isinstance(calibrator, Model) else None
        names = calibrator.columns if isinstance(calibrator, Model) and group is None else ()
        X, columns = _split(X, names)
        if group is not None:
            if groups is None:
                remedy = "Pass fit(X, y, groups=...)."
                raise DataError("groups", f"be given for {group}", "none", remedy)
            columns = {group.column: groups}
        X, y = validate_data(self, X, y, dtype="numeric", y_numeric=False)
        check_classification_targets(y)
        check_consistent_length(y, groups)
        folds = check_cv(self.cv)
        self.classes_, labels = np.unique(y, return_inverse=True)
        # scikit-learn's own checks look for these sentences.
        if len(self.classes_) == 1:
            raise ValueError("Classifier can't train when only one class is present.")
        if len(self.classes_) > 2:
            raise ValueError(
                "Only binary classification is supported. "
                f"The type of the target is multiclass: {self.classes_}."
            )
        scores = self._out_of_fold_scores(X, y, labels, groups, folds)
        evidence = _evidence(labels, propensity, sample_weight)
        self.map_ = calibrator.fit(scores, evidence, columns)
        return self

    def decision_function(self, X: Any) -> Array:
        """Log odds of the positive class."""
        scores, columns = self._scores(X)
        return self.map_.log_odds(scores, columns)

    def predict_proba(self, X: Any) -> Array:
        """Probabilities of both classes, one column each."""
        scores, columns = self._scores(X)
        positive = self.map_.predict(scores, columns)
        return np.column_stack([1 - positive, positive])

    def predict(self, X: Any) -> Array:
        """The more probable class."""
        is_positive = self.decision_function(X) > 0
        return self.classes_[is_positive.astype(int)]

    def _out_of_fold_scores(
        self, X: Array, y: Array, labels: Array, groups: Any, folds: Any
    ) -> Array:
        if self.estimator is None:
            return _only_column(X)
        method = _score_method(self.estimator)
        self.estimator_ = clone(self.estimator).fit(X, y)
        fitted_scores = _one_score(getattr(self.estimator_, method)(X))
        if isinstance(self.cv, int | np.integer):
            # Every fold needs both classes.
            sizes = [self.cv, np.bincount(labels).min()]
            sizes += [] if groups is None else [len(np.unique(groups))]
            if min(sizes) < 2:
                return fitted_scores
            kind = StratifiedKFold if groups is None else GroupKFold
            folds = kind(int(min(sizes)))
        return _one_score(
            cross_val_predict(self.estimator, X, y, groups=groups, cv=folds, method=method)
        )

    def _scores(self, X: Any) -> tuple[Array, dict[str, Array] | None]:
        """Scores, and the columns of the map's terms."""
        check_is_fitted(self, "map_")
        X, columns = _split(X, self.map_.columns)
        X = validate_data(self, X, dtype="numeric", reset=False)
        if self.estimator is None:
            return _only_column(X), columns
        method = _score_method(self.estimator)
        return _one_score(getattr(self.estimator_, method)(X)), columns

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


def _split(X: Any, names: Sequence[str]) -> tuple[Any, dict[str, Array] | None]:
    """A dataframe without the columns of terms, and those by name."""
    if not names:
        return X, None
    frame = as_frame(X)
    is_table = hasattr(frame, "get_column")  # a lazy one has none
    if not is_table or not {*names} <= {*frame.columns}:
        found = listed(frame.columns) if is_table else type(X).__name__
        raise DataError("X", f"be a dataframe with {listed(names)}, which the terms need", found)
    columns = {name: frame[name].to_numpy() for name in names}
    return frame.drop(list(names)).to_native(), columns


def _evidence(labels: Array, propensity: Any, weights: Any) -> Evidence:
    if weights is not None:
        weights = floats("sample_weight", weights)
        # scikit-learn allows one weight for all rows.
        weights = np.full(len(labels), weights) if weights.ndim == 0 else weights
    if propensity is None:
        return naive(labels, weights=weights)
    return ips(labels, propensity, weights=weights)


def _score_method(estimator: Any) -> str:
    """The name of the method that scores rows."""
    is_class = isinstance(estimator, type)
    found = [method for method in _SCORE_METHODS if hasattr(estimator, method)]
    if is_class or not found or not hasattr(estimator, "fit"):
        raise DataError(
            "estimator",
            "have fit and one of decision_function, predict_proba or predict",
            shown(estimator) if is_class else type(estimator).__name__,
            "Pass a classifier or a regressor.",
        )
    return found[0]


def _one_score(output: Array) -> Array:
    """One score per row; from probabilities, the log odds of the second class."""
    if output.ndim == 1:
        return output
    if output.ndim != 2 or output.shape[1] != 2:
        raise ValueError(
            f"the estimator must give one score per row, got output of shape {output.shape}."
        )
    positive = output[:, 1]
    return logit(np.clip(positive, _SMALLEST_PROBABILITY, 1 - _SMALLEST_PROBABILITY))


def _only_column(X: Array) -> Array:
    if X.shape[1] != 1:
        raise ValueError(
            f"X must be one column of scores, got {X.shape[1]} columns. "
            "Pass estimator=... to score features first."
        )
    return X[:, 0]
