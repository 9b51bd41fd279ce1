"""Score tables out of a model's scores: what has none is left out and said, what is piled up is said."""

import warnings

import numpy as np

from calibrank._validation import Floats, IdsLike, Numbers, column, ids
from calibrank.adapters.outputs import is_score
from calibrank.errors import ClippedScoresWarning, DataError, DroppedRowsWarning
from calibrank.tables import ScoreTable

_PILE = 0.05  # a continuous score repeats its extremes in a row or two, not in one of twenty
_FEWEST = 20


def tabulate(
    users: IdsLike,
    items: IdsLike,
    scores: Floats,
    labels: Numbers,
    propensity: Numbers | None = None,
    weights: Numbers | None = None,
) -> ScoreTable:
    """A score table of the rows that have a score, with a warning about the rest and about clipped scores."""
    rows = len(scores)
    heard = is_score(scores)
    if not heard.any():
        raise DataError(
            f"scores must hold an opinion, got none in {rows:,} rows. Check that the ids are the model's."
        )
    if not heard.all():
        unscored = rows - np.count_nonzero(heard)
        warnings.warn(
            f"{unscored:,} of {rows:,} rows are left out: the model has no score for them (unknown ids, masked "
            "history). The fit speaks for the rest only.",
            DroppedRowsWarning,
            stacklevel=3,
        )
    warn_of_piles(scores[heard])
    optional = [
        None if values is None else column(name, values, rows)[heard]
        for name, values in (("propensity", propensity), ("weights", weights))
    ]
    people, things = ids("users", users, rows)[heard], ids("items", items, rows)[heard]
    return ScoreTable(
        people, things, scores[heard], column("labels", labels, rows)[heard], *optional
    )


def warn_of_piles(scores: Floats) -> None:
    """Say so where one row in twenty has the very lowest or the very highest score."""
    for word, end in (("lowest", scores.min()), ("highest", scores.max())):
        count = int(np.count_nonzero(scores == end))
        if _FEWEST <= count < len(scores) and count > _PILE * len(scores):
            warnings.warn(
                f"{count:,} of {len(scores):,} rows have the {word} score, {end:.6g}: if the model clips (ratings, "
                "say), ask it for unclipped scores, for what lay beyond is lost. Isotonic() fits such piles best.",
                ClippedScoresWarning,
                stacklevel=4,
            )
