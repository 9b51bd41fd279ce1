"""Models that score rows: rankers of features (XGBoost, LightGBM, ...) and encoders of texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrank._internal.arguments import instance, shown
from calibrank._internal.segment_keys import column_of
from calibrank._internal.validation import Floats, Ids, IdsLike, Numbers, floats, ids
from calibrank.adapters.lists import Recommendations, with_ranks
from calibrank.adapters.outputs import (
    DECLARED,
    MARGIN,
    Margin,
    Outputs,
    Probability,
    make_score_table,
    to_numpy,
)
from calibrank.errors import DataError
from calibrank.maps import CalibrationMap
from calibrank.maps.term import require_rows
from calibrank.tables import ScoreTable


def ranked(
    fitted: CalibrationMap, users: Ids, items: Ids, scores: Floats, k: int, columns: Any = None
) -> Recommendations:
    """Scored rows as lists, best first, at most `k` per user; rows without a score are left out."""
    scored = np.flatnonzero(~np.isnan(scores))
    # By user, then by score; ties keep the order of the rows.
    order = scored[np.lexsort((scored, -scores[scored], users[scored]))]
    ranks = _ranks(users[order])

    def of_rows(name: str) -> npt.NDArray[Any]:
        values = np.asarray(column_of("columns", name, columns))
        require_rows(name, len(values), len(scores))
        return values[order]

    lists = Recommendations(
        users[order],
        items[order],
        scores[order],
        fitted.predict(scores[order], with_ranks(fitted, columns, ranks, of_rows)),
        ranks,
        left_out=len(scores) - len(scored),
    )
    return lists.take(ranks <= k)


def prediction_function(model: Any) -> Callable[[Any], Any]:
    """The function from rows to scores: the model's `predict`, or the model itself."""
    if hasattr(model, "predict_proba"):
        raise DataError(
            "model",
            "predict scores",
            f"a classifier ({type(model).__name__}), whose predictions are classes",
            (
                "Pass a function and declare its output: lambda rows: "
                "model.predict_proba(rows)[:, 1], Probability()."
            ),
        )
    if isinstance(model, type) or not (hasattr(model, "predict") or callable(model)):
        raise DataError(
            "model", "have predict or be a function", shown(model), "Pass a trained model."
        )
    return model.predict if hasattr(model, "predict") else model


def scores_of(outputs: Outputs, values: Any) -> Floats:
    """A model's output as one score per row."""
    array = floats("scores", to_numpy(values))
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise DataError(
            "scores",
            "be one number per row",
            f"shape {array.shape}",
            "Choose the column of the relevant class.",
        )
    return outputs.scores(array)


def _ranks(users: Ids) -> npt.NDArray[np.intp]:
    """The place of each row within its run of equal users, from 1."""
    places = np.arange(len(users))
    is_start = np.ones(len(users), dtype=bool)
    is_start[1:] = users[1:] != users[:-1]
    run_starts = np.maximum.accumulate(np.where(is_start, places, 0))
    return places - run_starts + 1


class Ranker:
    """An XGBoost, LightGBM or CatBoost ranker, or any function from features to scores.

    Rankers predict margins. For a model with a logistic objective, which predicts probabilities,
    pass `Probability()`. `queries` is the user or search of each row; from group sizes it is
    `np.repeat(names, sizes)`.

    >>> ranker = Ranker(lambda features: features[:, 0])
    >>> ranker.score_table(np.eye(2), labels=[1, 0], queries=["q", "q"]).scores
    array([1., 0.])
    """

    def __init__(self, model: Any, outputs: Outputs = MARGIN) -> None:
        self.predict = prediction_function(model)
        self.outputs = outputs

    def score(self, features: Any) -> Floats:
        """One score per row, on the scale to calibrate."""
        return scores_of(self.outputs, self.predict(features))

    def score_table(
        self,
        features: Any,
        labels: Numbers,
        queries: IdsLike,
        items: IdsLike | None = None,
        propensity: Numbers | None = None,
    ) -> ScoreTable:
        """Feature rows with this model's scores, to fit a calibrator on."""
        scores = self.score(features)
        item_ids = _item_ids(items, len(scores))
        return make_score_table(queries, item_ids, scores, labels, propensity)

    def recommend(
        self,
        fitted: CalibrationMap,
        features: Any,
        queries: IdsLike,
        items: IdsLike | None = None,
        k: int = 10,
        columns: Any = None,
    ) -> Recommendations:
        """The `k` best rows of each query with their probabilities.

        Without `items`, an item's id is its row number. `columns` has the columns of the map's
        terms, one value per row of the features; a rank is not given.
        """
        scores = self.score(features)
        query_ids = ids("queries", queries, len(scores))
        return ranked(fitted, query_ids, _item_ids(items, len(scores)), scores, k, columns)


def _item_ids(items: IdsLike | None, rows: int) -> Ids:
    return np.arange(rows) if items is None else ids("items", items, rows)


# What a model that names its activation returns.
_ACTIVATIONS = {"Sigmoid": Probability, "Identity": Margin}


class CrossEncoder:
    """A model with `predict([(query, passage), ...])`, such as those of sentence-transformers.

    `outputs` must be given. With one label, most cross-encoders apply a sigmoid (`Probability()`)
    unless they were loaded with the identity as activation (`Margin()`); the values do not show
    which. A model that names its `activation_fn` must agree with the declaration.

    >>> from calibrank.adapters import Probability
    >>> def predict(pairs):
    ...     return [0.5 if query in passage else 0.01 for query, passage in pairs]
    >>> encoder = CrossEncoder(predict, Probability())
    >>> encoder.score([("tea", "green tea"), ("tea", "ale")]).round(2)
    array([ 0. , -4.6])
    """

    def __init__(self, model: Any, outputs: Outputs) -> None:
        self.predict = prediction_function(model)
        self.outputs: Outputs = instance("outputs", outputs, Outputs, DECLARED)
        _require_agreement(model, outputs)

    def score(self, pairs: Sequence[tuple[str, str]]) -> Floats:
        """One score per (query, passage) pair, on the scale to calibrate."""
        return scores_of(self.outputs, self.predict(list(pairs)))

    def score_table(self, pairs: Sequence[tuple[str, str]], labels: Numbers) -> ScoreTable:
        """Labelled pairs with this model's scores, to fit a calibrator on."""
        queries = [query for query, _ in pairs]
        passages = [passage for _, passage in pairs]
        return make_score_table(queries, passages, self.score(pairs), labels)

    def recommend(
        self,
        fitted: CalibrationMap,
        query: str,
        passages: Sequence[str],
        k: int | None = None,
        columns: Any = None,
    ) -> Recommendations:
        """The passages, best first, each with the probability that it is relevant to the query.

        `columns` has the columns of the map's terms, one value per passage; a rank is not given.
        """
        queries = np.full(len(passages), query)
        items = ids("passages", passages)
        scores = self.score([(query, passage) for passage in passages])
        return ranked(fitted, queries, items, scores, k or len(passages), columns)


def _require_agreement(model: Any, outputs: Outputs) -> None:
    """Refuse a declaration that contradicts the activation which the model itself names."""
    activation = type(getattr(model, "activation_fn", None)).__name__
    expected = _ACTIVATIONS.get(activation)
    if expected is not None and not isinstance(outputs, expected):
        raise DataError(
            "outputs",
            f"be {expected.__name__}() for a model whose activation_fn is {activation}",
            f"{type(outputs).__name__}()",
            "A map for the one is wrong for the other: declare what predict returns.",
        )
