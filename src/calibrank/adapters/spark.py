"""Spark ALS: pairs scored by the cluster, nested recommendations laid flat there or here."""

from typing import Any

import numpy as np

from calibrank._validation import Floats, Ids
from calibrank.adapters.history import History
from calibrank.adapters.lists import Lists
from calibrank.adapters.outputs import Margin, Outputs
from calibrank.adapters.pair_model import PairModel
from calibrank.tables import Interactions

_MARGIN = Margin()
_ROW = "calibrank_row"


class SparkALS(PairModel):
    """A fitted `ALSModel`, for validation tables and user lists that fit on the driver.

    Spark recommends what users have had already: hand in the training log as `history` to leave that out. Users and
    items that ALS never saw have no score, whether its cold start strategy is "nan" or "drop".
    """

    def __init__(
        self, model: Any, history: Interactions | None = None, outputs: Outputs = _MARGIN
    ) -> None:
        self.model, self.outputs, self.history = model, outputs, History.of(history)

    def _score(self, users: Ids, items: Ids) -> Floats:
        names = (_ROW, self.model.getUserCol(), self.model.getItemCol())
        asked = _frame(
            self.model, dict(zip(names, (np.arange(len(users)), users, items), strict=True))
        )
        scores = np.full(len(users), np.nan, dtype=np.float32)
        told = self.model.transform(asked).select(_ROW, self.model.getPredictionCol()).toArrow()
        scores[told[0].to_numpy()] = told[1].to_numpy()
        return scores

    def _lists(self, users: Ids, k: int) -> Lists:
        asked = _frame(self.model, {self.model.getUserCol(): np.unique(users)})
        wide = k + self.history.longest(users)
        told = dict(self.model.recommendForUserSubset(asked, wide).collect())
        none: list[Any] = []
        lists = [told.get(user.item(), none) for user in users]
        return Lists.of(
            [([item for item, _ in found], [score for _, score in found]) for found in lists]
        )

    def _hidden(self, users: Ids, lists: Lists) -> Any:
        return self.history.hidden(users, lists.items)


def flatten(
    nested: Any, *, lists: str = "recommendations", score: str = "score", rank: str = "rank"
) -> Any:
    """Spark's nested recommendations as a Spark table with a row a recommendation: user, item, score, rank from 1.

    Nothing is collected, and `score` is a column to calibrate. Rows that were collected go to `from_nested`.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415  (whoever has a Spark table has it)

    item, rating = nested.schema[lists].dataType.elementType.names
    others = [name for name in nested.columns if name != lists]
    slots = nested.select(*others, f.posexplode(lists).alias(rank, "slot"))
    return slots.select(
        *others,
        f.col("slot")[item].alias(item),
        f.col("slot")[rating].alias(score),
        (f.col(rank) + 1).alias(rank),
    )


def _frame(model: Any, columns: dict[str, Ids]) -> Any:
    """Columns as a Spark table of the session that the model lives in."""
    import pyarrow as pa  # noqa: PLC0415  (Spark brings it where it is needed)

    return model.userFactors.sparkSession.createDataFrame(pa.table(columns))
