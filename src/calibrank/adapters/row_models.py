"""What adapters for models that score rows share: rankers of features, encoders of texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrank._internal.arguments import shown
from calibrank._internal.segment_keys import column_of
from calibrank._internal.validation import Floats, Ids, floats
from calibrank.adapters.lists import Recommendations, with_ranks
from calibrank.adapters.outputs import Outputs, to_numpy
from calibrank.errors import DataError
from calibrank.maps import CalibrationMap
from calibrank.maps.term import require_rows


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
            got=f"a classifier ({type(model).__name__}), whose predictions are classes",
            remedy=(
                "Pass a function and declare its output: lambda rows: "
                "model.predict_proba(rows)[:, 1], Probability()."
            ),
        )
    if isinstance(model, type) or not (hasattr(model, "predict") or callable(model)):
        raise DataError(
            "model",
            "have predict or be a function",
            got=shown(model),
            remedy="Pass a trained model.",
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
            got=f"shape {array.shape}",
            remedy="Choose the column of the relevant class.",
        )
    return outputs.scores(array)


def _ranks(users: Ids) -> npt.NDArray[np.intp]:
    """The place of each row within its run of equal users, from 1."""
    places = np.arange(len(users))
    is_start = np.ones(len(users), dtype=bool)
    is_start[1:] = users[1:] != users[:-1]
    run_starts = np.maximum.accumulate(np.where(is_start, places, 0))
    return places - run_starts + 1
