"""Spark ALS: pairs are scored on the cluster, nested recommendations flattened there or here."""

from __future__ import annotations

from typing import Any

import numpy as np

from calibrank._internal.validation import Floats, Ids
from calibrank.adapters.history import History
from calibrank.adapters.lists import PaddedLists
from calibrank.adapters.outputs import Margin, Outputs
from calibrank.adapters.pair_model import PairModel
from calibrank.tables import Interactions

_MARGIN = Margin()
# A column of row numbers: Spark returns rows in any order.
_ROW = "calibrank_row"


class SparkALS(PairModel):
    """A fitted `ALSModel`, for validation tables and user lists that fit on the driver.

    Spark recommends items that users have had already: pass the training log as `history` to
    leave them out. Users and items unknown to ALS have no score, whether its cold start strategy
    is "nan" or "drop".
    """

    history: History

    def __init__(
        self, model: Any, history: Interactions | None = None, outputs: Outputs = _MARGIN
    ) -> None:
        self.model = model
        self.outputs = outputs
        self.history = History.of(history)

    def _score(self, users: Ids, items: Ids) -> Floats:
        columns = {
            _ROW: np.arange(len(users)),
            self.model.getUserCol(): users,
            self.model.getItemCol(): items,
        }
        scored = self.model.transform(_to_spark(self.model, columns))
        found = scored.select(_ROW, self.model.getPredictionCol()).toArrow()
        scores = np.full(len(users), np.nan, dtype=np.float32)
        scores[found[0].to_numpy()] = found[1].to_numpy()
        return scores

    def _lists(self, users: Ids, k: int) -> PaddedLists:
        frame = _to_spark(self.model, {self.model.getUserCol(): np.unique(users)})
        # The history is removed afterwards, so ask for that many more.
        length = k + self.history.longest(users)
        found = dict(self.model.recommendForUserSubset(frame, length).collect())
        ragged = []
        for user in users:
            entries = found.get(user.item(), [])
            ragged.append(([item for item, _ in entries], [score for _, score in entries]))
        return PaddedLists.of(ragged)


def flatten(
    nested: Any, *, lists: str = "recommendations", score: str = "score", rank: str = "rank"
) -> Any:
    """Spark's nested recommendations as a Spark table with one row per recommendation.

    The columns are user, item, score and rank (from 1). Nothing is collected, and `score` is a
    column to calibrate. For rows that were collected, use `from_nested`.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415  (a Spark table brings it)

    item, rating = nested.schema[lists].dataType.elementType.names
    others = [name for name in nested.columns if name != lists]
    slots = nested.select(*others, f.posexplode(lists).alias(rank, "slot"))
    return slots.select(
        *others,
        f.col("slot")[item].alias(item),
        f.col("slot")[rating].alias(score),
        (f.col(rank) + 1).alias(rank),
    )


def _to_spark(model: Any, columns: dict[str, Ids]) -> Any:
    """Columns as a table in the model's Spark session."""
    import pyarrow as pa  # noqa: PLC0415  (Spark needs it anyway)

    return model.userFactors.sparkSession.createDataFrame(pa.table(columns))
