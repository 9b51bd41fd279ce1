"""Models that score rows: rankers of features (XGBoost, LightGBM, ...) and encoders of texts."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from calibrank._internal.arguments import instance, shown
from calibrank._internal.segment_keys import column_of
from calibrank._internal.validation import Floats, IdsLike, Numbers, floats, ids
from calibrank.adapters.lists import Recommendations, ranks_of, with_ranks
from calibrank.adapters.outputs import (
    DECLARED,
    MARGIN,
    Margin,
    Outputs,
    Probability,
    ids_or_numbers,
    make_score_table,
    to_numpy,
)
from calibrank.errors import DataError
from calibrank.maps import CalibrationMap
from calibrank.maps.checks import require_rows
from calibrank.tables import ScoreTable


class _RowModel:
    """A function from rows to scores: a model's `predict`, or the model itself."""

    def __init__(self, model: Any, outputs: Outputs = MARGIN) -> None:
        if hasattr(model, "predict_proba"):
            raise DataError(
                "model",
                "predict scores",
                f"a classifier ({type(model).__name__}), whose predictions are classes",
                "Pass a function and declare its output: lambda rows: "
                "model.predict_proba(rows)[:, 1], Probability().",
            )
        if isinstance(model, type) or not (hasattr(model, "predict") or callable(model)):
            raise DataError(
                "model", "have predict or be a function", shown(model), "Pass a trained model."
            )
        self.predict = model.predict if hasattr(model, "predict") else model
        self.outputs: Outputs = instance("outputs", outputs, Outputs, DECLARED)

    def score(self, rows: Any) -> Floats:
        """One score per row, on the scale to calibrate."""
        array = floats("scores", to_numpy(self.predict(rows)))
        if array.ndim == 2 and array.shape[1] == 1:
            array = array[:, 0]
        if array.ndim != 1:
            rule, remedy = "be one number per row", "Choose the column of the relevant class."
            raise DataError("scores", rule, f"shape {array.shape}", remedy)
        return self.outputs.scores(array)


class Ranker(_RowModel):
    """An XGBoost, LightGBM or CatBoost ranker, or any function from features to scores.

    Rankers predict margins. For a model with a logistic objective, which predicts probabilities,
    pass `Probability()`. `queries` is the user or search of each row; from group sizes it is
    `np.repeat(names, sizes)`.

    >>> ranker = Ranker(lambda features: features[:, 0])
    >>> ranker.score_table(np.eye(2), labels=[1, 0], queries=["q", "q"]).scores
    array([1., 0.])
    """

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
        item_ids = ids_or_numbers("items", items, len(scores))
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
        item_ids = ids_or_numbers("items", items, len(scores))
        scored = np.flatnonzero(~np.isnan(scores))
        # By query, then by score; ties keep the order of the rows.
        order = scored[np.lexsort((scored, -scores[scored], query_ids[scored]))]
        ranks = ranks_of(query_ids[order])

        def of_rows(name: str) -> npt.NDArray[Any]:
            values = np.asarray(column_of("columns", name, columns))
            require_rows(name, len(values), len(scores))
            return values[order]

        lists = Recommendations(
            query_ids[order],
            item_ids[order],
            scores[order],
            fitted.predict(scores[order], with_ranks(fitted, columns, ranks, of_rows)),
            ranks,
            left_out=len(scores) - len(scored),
        )
        return lists.take(ranks <= k)


# What a model that names its activation returns.
_ACTIVATIONS = {"Sigmoid": Probability, "Identity": Margin}


class CrossEncoder(_RowModel):
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
        super().__init__(model, outputs)
        activation = type(getattr(model, "activation_fn", None)).__name__
        expected = _ACTIVATIONS.get(activation, Outputs)
        if not isinstance(outputs, expected):
            raise DataError(
                "outputs",
                f"be {expected.__name__}() for a model whose activation_fn is {activation}",
                f"{type(outputs).__name__}()",
                "A map for the one is wrong for the other: declare what predict returns.",
            )
