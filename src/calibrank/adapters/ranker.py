"""XGBoost, LightGBM and CatBoost rankers: models of feature rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from calibrank._internal.validation import Floats, Ids, IdsLike, Numbers, ids
from calibrank.adapters.lists import Recommendations
from calibrank.adapters.outputs import Margin, Outputs
from calibrank.adapters.row_models import prediction_function, ranked, scores_of
from calibrank.adapters.score_tables import make_score_table
from calibrank.maps import CalibrationMap
from calibrank.tables import ScoreTable

_MARGIN = Margin()


class Ranker:
    """An XGBoost, LightGBM or CatBoost ranker, or any function from features to scores.

    Rankers predict margins. For a model with a logistic objective, which predicts probabilities,
    pass `Probability()`. `queries` is the user or search of each row; from group sizes it is
    `np.repeat(names, sizes)`.

    >>> ranker = Ranker(lambda features: features[:, 0])
    >>> ranker.score_table(np.eye(2), labels=[1, 0], queries=["q", "q"]).scores
    array([1., 0.])
    """

    def __init__(self, model: Any, outputs: Outputs = _MARGIN) -> None:
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
