"""A scikit-learn classifier that calibrates scores, for pipelines, clones and searches."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Self

import narwhals as nw
import numpy as np
import numpy.typing as npt

from calibrank._internal.arguments import instance, listed, shown
from calibrank._internal.logit import logit
from calibrank._internal.validation import floats
from calibrank.curves import Calibrator, Gaussian
from calibrank.errors import DataError, MissingExtraError
from calibrank.evidence import Evidence, ips, naive
from calibrank.maps import CalibrationMap
from calibrank.model import Model
from calibrank.terms import Group

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, clone
    from sklearn.model_selection import GroupKFold, StratifiedKFold, check_cv
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

    A ranker such as `LGBMRanker` or `XGBRanker` is told which rows belong together: pass `groups`,
    the user or query of each row, to `fit`. The rows of a group are then in one fold.

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
        calibrator = self._checked_calibrator()
        group = calibrator.group if isinstance(calibrator, Model) else None
        names = calibrator.columns if isinstance(calibrator, Model) and group is None else ()
        X, columns = _split(X, names)
        if group is not None:
            columns = {group.column: _given_groups(groups, group)}
        X, y = validate_data(self, X, y, dtype="numeric", y_numeric=False)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        self._require_two_classes()
        scores = self._out_of_fold_scores(X, y, labels, _group_codes(groups, len(labels)))
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
        labels: Array = self.classes_[is_positive.astype(int)]
        return labels

    def _checked_calibrator(self) -> Calibrator | Model:
        """The calibrator; scikit-learn checks settings when it fits, not when it is created."""
        _require_folds(self.cv)
        if self.calibrator is None:
            return Gaussian()
        return instance("calibrator", self.calibrator, (Calibrator, Model), "E.g. Gaussian().")

    def _out_of_fold_scores(self, X: Array, y: Array, labels: Array, groups: Array | None) -> Array:
        if self.estimator is None:
            return _only_column(X)
        method = _score_method(self.estimator)
        # Rankers take relevance grades, and classifiers their classes.
        targets = y if _group_argument(self.estimator) is None else labels
        self.estimator_ = _fit_estimator(self.estimator, X, targets, groups)
        folds = self._folds(X, y, labels, groups)
        if not folds:
            return _one_score(getattr(self.estimator_, method)(X))
        scores = np.empty(len(labels))
        for train, held_out in folds:
            group = None if groups is None else groups[train]
            fitted = _fit_estimator(self.estimator, X[train], targets[train], group)
            scores[held_out] = _one_score(getattr(fitted, method)(X[held_out]))
        return scores

    def _folds(
        self, X: Array, y: Array, labels: Array, groups: Array | None
    ) -> list[tuple[Array, Array]]:
        """Row numbers to fit on and to hold out; none if there are too few rows for two folds."""
        splitter = self.cv
        if isinstance(splitter, int | np.integer):
            # Every fold needs both classes.
            most = np.bincount(labels).min()
            if groups is not None:
                most = min(most, len(np.unique(groups)))
            number = int(min(splitter, most))
            if number < 2:
                return []
            splitter = StratifiedKFold(number) if groups is None else GroupKFold(number)
        # Pairs of row numbers may come from a generator, which can be used only once.
        folds = list(check_cv(splitter, y, classifier=True).split(X, y, groups))
        _require_partition(folds, labels)
        return folds

    def _scores(self, X: Any) -> tuple[Array, dict[str, Array] | None]:
        """Scores, and the columns of the map's terms."""
        check_is_fitted(self, "map_")
        X, columns = _split(X, self.map_.columns)
        X = validate_data(self, X, dtype="numeric", reset=False)
        if self.estimator is None:
            return _only_column(X), columns
        method = _score_method(self.estimator)
        return _one_score(getattr(self.estimator_, method)(X)), columns

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


def _split(X: Any, names: Sequence[str]) -> tuple[Any, dict[str, Array] | None]:
    """A dataframe without the columns of terms, and those by name."""
    if not names:
        return X, None
    try:
        frame = nw.from_native(X, eager_only=True)
    except TypeError:
        raise DataError(
            "X", f"be a dataframe with {listed(names)}, which the terms need", type(X).__name__
        ) from None
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise DataError(
            "X", f"have the column {missing[0]!r}, which a term needs", listed(frame.columns)
        )
    columns = {name: frame[name].to_numpy() for name in names}
    return frame.drop(list(names)).to_native(), columns


def _given_groups(groups: Any, term: Group) -> Any:
    if groups is None:
        raise DataError("groups", f"be given for {term}", "none", "Pass fit(X, y, groups=...).")
    return groups


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
    for method in _SCORE_METHODS:
        if hasattr(estimator, "fit") and hasattr(estimator, method) and not is_class:
            return method
    found = shown(estimator) if is_class else type(estimator).__name__
    raise DataError(
        "estimator",
        "have fit and one of decision_function, predict_proba or predict",
        found,
        "Pass a classifier or a regressor.",
    )


def _require_folds(cv: Any) -> None:
    """Check the folds, also where no estimator needs them."""
    if isinstance(cv, int | np.integer) and not isinstance(cv, bool):
        if cv >= 2:
            return
        raise DataError(
            "cv",
            "be at least 2 folds",
            shown(cv),
            "If the estimator is fitted already, pass FrozenEstimator(estimator).",
        )
    is_splitter = hasattr(cv, "split") and not isinstance(cv, str | bytes | type)
    is_pairs = hasattr(cv, "__iter__") and not isinstance(cv, str | bytes | dict | np.ndarray)
    if not is_splitter and not is_pairs:
        raise DataError(
            "cv",
            "be a number of folds, a splitter of scikit-learn or pairs of row numbers",
            shown(cv),
            "Use e.g. 5.",
        )


# How rankers name the argument of `fit` that says which rows belong together: one id per row
# (XGBRanker, CatBoostRanker), or the sizes of consecutive groups (LGBMRanker).
_GROUP_ARGUMENTS = ("qid", "group_id", "group")


def _group_argument(estimator: Any) -> str | None:
    """The name of the argument of `fit` for groups; None for estimators without one."""
    accepted = inspect.signature(estimator.fit).parameters
    return next((name for name in _GROUP_ARGUMENTS if name in accepted), None)


def _group_codes(groups: Any, rows: int) -> Array | None:
    if groups is None:
        return None
    values = np.asarray(groups)
    if values.shape != (rows,):
        raise ValueError(
            f"groups must have one value per row, got shape {values.shape} for {rows} rows. From "
            "sizes of groups it is np.repeat(np.arange(len(sizes)), sizes)."
        )
    codes: Array = np.unique(values, return_inverse=True)[1]
    return codes


def _fit_estimator(estimator: Any, X: Array, y: Array, groups: Array | None) -> Any:
    """A fitted copy; a ranker gets the rows of each group together, and the groups."""
    argument = _group_argument(estimator)
    if argument is None:
        return clone(estimator).fit(X, y)
    if groups is None:
        raise ValueError(
            f"groups must be given for {type(estimator).__name__}, got none. Pass the user or "
            "query of each row: fit(X, y, groups=users)."
        )
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    if argument == "group":
        ordered = np.unique(ordered, return_counts=True)[1]
    return clone(estimator).fit(X[order], y[order], **{argument: ordered})


def _require_partition(folds: list[tuple[Array, Array]], labels: Array) -> None:
    """Raise unless every row is held out once, and every fit sees both classes."""
    held_out = np.concatenate([np.arange(len(labels))[test] for _, test in folds])
    if not np.array_equal(np.sort(held_out), np.arange(len(labels))):
        raise ValueError(
            f"cv must hold out every row exactly once, got {len(held_out)} held-out rows for "
            f"{len(labels)} rows. Use KFold, StratifiedKFold or GroupKFold."
        )
    for train, _ in folds:
        if len(np.unique(labels[train])) < 2:
            raise ValueError(
                "cv must leave both classes in every fold's training rows, got only one. Use "
                "StratifiedKFold, or shuffle."
            )


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
    column: Array = X[:, 0]
    return column
