"""XGBoost, LightGBM and CatBoost rankers: rows of features."""

from typing import Any

import numpy as np

from calibrank._validation import Floats, Ids, IdsLike, Numbers, ids
from calibrank.adapters.lists import Recommendations
from calibrank.adapters.outputs import Margin, Outputs
from calibrank.adapters.rows import predictor, ranked, scores_of
from calibrank.adapters.score_tables import tabulate
from calibrank.maps import CalibrationMap
from calibrank.tables import ScoreTable

_MARGIN = Margin()


class Ranker:
    """An XGBoost, LightGBM or CatBoost ranker, or any function from features to scores.

    Rankers predict margins. A model with a logistic objective predicts probabilities: say so by `Probability()`.
    `queries` says for each row which user or search it belongs to (from group sizes: `np.repeat(names, sizes)`).

    >>> table = Ranker(lambda features: features[:, 0]).score_table(np.eye(2), [1, 0], queries=["q", "q"])
    >>> table.scores
    array([1., 0.])
    """

    def __init__(self, model: Any, outputs: Outputs = _MARGIN) -> None:
        self.predict, self.outputs = predictor(model), outputs

    def score(self, features: Any) -> Floats:
        """A score a row, on the scale to calibrate."""
        return scores_of(self.outputs, self.predict(features))

    def score_table(
        self,
        features: Any,
        labels: Numbers,
        queries: IdsLike,
        items: IdsLike | None = None,
        propensity: Numbers | None = None,
    ) -> ScoreTable:
        """Rows of features with this model's scores: what to calibrate on."""
        scores = self.score(features)
        return tabulate(queries, _named(items, len(scores)), scores, labels, propensity)

    def recommend(
        self,
        fitted: CalibrationMap,
        features: Any,
        queries: IdsLike,
        items: IdsLike | None = None,
        k: int = 10,
    ) -> Recommendations:
        """Each query's `k` best rows with their probabilities; items not named are called by their row."""
        scores = self.score(features)
        return ranked(
            fitted, ids("queries", queries, len(scores)), _named(items, len(scores)), scores, k
        )


def _named(items: IdsLike | None, rows: int) -> Ids:
    return np.arange(rows) if items is None else ids("items", items, rows)
