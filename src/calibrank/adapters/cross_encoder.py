"""Cross-encoders: pairs of a query and a passage."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from calibrank._validation import Floats, Numbers, ids
from calibrank.adapters.lists import Recommendations
from calibrank.adapters.outputs import Outputs
from calibrank.adapters.rows import predictor, ranked, scores_of
from calibrank.adapters.score_tables import tabulate
from calibrank.maps import CalibrationMap
from calibrank.tables import ScoreTable


class CrossEncoder:
    """A model with `predict([(query, passage), ...])`, as sentence-transformers' cross-encoders have.

    `outputs` must be said: with one label, most apply a sigmoid (`Probability()`) unless loaded with the identity as
    their activation (`Margin()`), and the numbers do not tell.

    >>> from calibrank.adapters import Probability
    >>> encoder = CrossEncoder(lambda pairs: [0.5 if one in other else 0.01 for one, other in pairs], Probability())
    >>> encoder.score([("tea", "green tea"), ("tea", "ale")]).round(2)
    array([ 0. , -4.6])
    """

    def __init__(self, model: Any, outputs: Outputs) -> None:
        self.predict, self.outputs = predictor(model), outputs

    def score(self, pairs: Sequence[tuple[str, str]]) -> Floats:
        """A score a (query, passage) pair, on the scale to calibrate."""
        return scores_of(self.outputs, self.predict(list(pairs)))

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
