"""Cross-encoders: models of (query, passage) pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from calibrank._internal.arguments import instance
from calibrank._internal.validation import Floats, Numbers, ids
from calibrank.adapters.lists import Recommendations
from calibrank.adapters.outputs import DECLARED, Margin, Outputs, Probability
from calibrank.adapters.row_models import prediction_function, ranked, scores_of
from calibrank.adapters.score_tables import make_score_table
from calibrank.errors import DataError
from calibrank.maps import CalibrationMap
from calibrank.tables import ScoreTable

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
            got=f"{type(outputs).__name__}()",
            remedy="A map for the one is wrong for the other: declare what predict returns.",
        )
