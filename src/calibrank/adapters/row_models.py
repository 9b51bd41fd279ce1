"""Models that score rows in hand: rankers of features, and encoders of texts."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from calibrank.adapters.lists import Recommendations
from calibrank.adapters.outputs import Margin, Outputs, plain
from calibrank.adapters.tabulating import tabulate
from calibrank.arrays import Floats, Ids, IdsLike, Numbers, floats, ids
from calibrank.errors import DataError
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
        self.predict, self.outputs = _predictor(model), outputs

    def score(self, features: Any) -> Floats:
        """A score a row, on the scale to calibrate."""
        return _scores(self.outputs, self.predict(features))

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
        self, fitted: CalibrationMap, features: Any, queries: IdsLike, items: IdsLike | None = None, k: int = 10
    ) -> Recommendations:
        """Each query's `k` best rows with their probabilities; items not named are called by their row."""
        scores = self.score(features)
        return ranked(fitted, ids("queries", queries, len(scores)), _named(items, len(scores)), scores, k)


class CrossEncoder:
    """A model with `predict([(query, passage), ...])`, as sentence-transformers' cross-encoders have.

    `outputs` must be said: with one label, most apply a sigmoid (`Probability()`) unless loaded with the identity as
    their activation (`Margin()`), and the numbers do not tell.
    """

    def __init__(self, model: Any, outputs: Outputs) -> None:
        self.predict, self.outputs = _predictor(model), outputs

    def score(self, pairs: Sequence[tuple[str, str]]) -> Floats:
        """A score a (query, passage) pair, on the scale to calibrate."""
        return _scores(self.outputs, self.predict(list(pairs)))

    def score_table(self, pairs: Sequence[tuple[str, str]], labels: Numbers) -> ScoreTable:
        """Judged pairs with this model's scores: what to calibrate on."""
        queries, passages = zip(*pairs, strict=True)
        return tabulate(queries, passages, self.score(pairs), labels)

    def recommend(
        self, fitted: CalibrationMap, query: str, passages: Sequence[str], k: int | None = None
    ) -> Recommendations:
        """The passages, best first, with the probability that each answers the query."""
        queries = np.full(len(passages), query)
        scores = self.score([(query, passage) for passage in passages])
        return ranked(fitted, queries, ids("passages", passages), scores, k or len(passages))


def ranked(fitted: CalibrationMap, users: Ids, items: Ids, scores: Floats, k: int) -> Recommendations:
    """Scored rows as lists, best first, at most `k` a user; those without a score are left out and counted."""
    heard = np.flatnonzero(~np.isnan(scores))
    order = heard[np.lexsort((heard, -scores[heard], users[heard]))]
    starts = np.r_[True, users[order][1:] != users[order][:-1]] if len(order) else np.zeros(0, dtype=bool)
    places = np.arange(len(order))
    ranks = places - np.maximum.accumulate(np.where(starts, places, 0)) + 1
    probabilities = fitted.predict(scores[order])
    unheard = len(scores) - len(heard)
    everything = Recommendations(users[order], items[order], scores[order], probabilities, ranks, unheard)
    return everything.take(ranks <= k)


def _predictor(model: Any) -> Callable[[Any], Any]:
    if hasattr(model, "predict_proba"):
        raise DataError(
            f"model must predict scores, got a classifier ({type(model).__name__}), whose predictions are classes. "
            "Hand in a function and say what it gives: lambda rows: model.predict_proba(rows)[:, 1], Probability()."
        )
    if not hasattr(model, "predict") and not callable(model):
        raise DataError(f"model must have predict or be a function, got {type(model).__name__}.")
    return model.predict if hasattr(model, "predict") else model


def _scores(outputs: Outputs, values: Any) -> Floats:
    array = floats("scores", plain(values))
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise DataError(f"scores must be one a row, got shape {array.shape}. Choose the label that means relevant.")
    return outputs.scores(array)


def _named(items: IdsLike | None, rows: int) -> Ids:
    return np.arange(rows) if items is None else ids("items", items, rows)
