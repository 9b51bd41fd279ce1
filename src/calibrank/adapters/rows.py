"""What models that score rows in hand share: rankers of features, encoders of texts."""

from collections.abc import Callable
from typing import Any

import numpy as np

from calibrank._validation import Floats, Ids, floats
from calibrank.adapters.lists import Recommendations
from calibrank.adapters.outputs import Outputs, plain
from calibrank.errors import DataError
from calibrank.maps import CalibrationMap


def ranked(
    fitted: CalibrationMap, users: Ids, items: Ids, scores: Floats, k: int
) -> Recommendations:
    """Scored rows as lists, best first, at most `k` a user; those without a score are left out and counted."""
    heard = np.flatnonzero(~np.isnan(scores))
    order = heard[np.lexsort((heard, -scores[heard], users[heard]))]
    starts = (
        np.r_[True, users[order][1:] != users[order][:-1]]
        if len(order)
        else np.zeros(0, dtype=bool)
    )
    places = np.arange(len(order))
    ranks = places - np.maximum.accumulate(np.where(starts, places, 0)) + 1
    probabilities = fitted.predict(scores[order])
    unheard = len(scores) - len(heard)
    everything = Recommendations(
        users[order], items[order], scores[order], probabilities, ranks, unheard
    )
    return everything.take(ranks <= k)


def predictor(model: Any) -> Callable[[Any], Any]:
    """The function from rows to numbers that a model is."""
    if hasattr(model, "predict_proba"):
        raise DataError(
            f"model must predict scores, got a classifier ({type(model).__name__}), whose predictions are classes. "
            "Hand in a function and say what it gives: lambda rows: model.predict_proba(rows)[:, 1], Probability()."
        )
    if not hasattr(model, "predict") and not callable(model):
        raise DataError(f"model must have predict or be a function, got {type(model).__name__}.")
    return model.predict if hasattr(model, "predict") else model


def scores_of(outputs: Outputs, values: Any) -> Floats:
    """A model's answer as one score a row."""
    array = floats("scores", plain(values))
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise DataError(
            f"scores must be one a row, got shape {array.shape}. Choose the label that means relevant."
        )
    return outputs.scores(array)
