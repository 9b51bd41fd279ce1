"""Score tables from a model's scores, with warnings about missing and clipped scores."""

from __future__ import annotations

import warnings

import numpy as np

from calibrank._internal.validation import Floats, IdsLike, Numbers, column, ids
from calibrank.adapters.outputs import is_score
from calibrank.errors import ClippedScoresWarning, DataError, DroppedRowsWarning
from calibrank.tables import ScoreTable

# A continuous score repeats its extremes in a row or two, not in more than 5% of the rows.
_TIED_FRACTION = 0.05
# Below this count, ties at an extreme are common by chance in small tables.
_FEWEST_TIED = 20


def make_score_table(
    users: IdsLike,
    items: IdsLike,
    scores: Floats,
    labels: Numbers,
    propensity: Numbers | None = None,
    weights: Numbers | None = None,
    *,
    stacklevel: int = 3,
) -> ScoreTable:
    """A score table of the rows that have a score.

    Warns about dropped rows and about clipped scores. `stacklevel` is that of `warnings.warn`.
    """
    rows = len(scores)
    scored = is_score(scores)
    if not scored.any():
        raise DataError(
            "scores",
            "hold at least one number",
            got=f"none in {rows:,} rows",
            remedy="Check that the ids are the model's.",
        )
    n_missing = rows - np.count_nonzero(scored)
    if n_missing:
        warnings.warn(
            f"{n_missing:,} of {rows:,} rows are left out: the model has no score for them "
            "(unknown ids, masked history). The fit describes the remaining rows only.",
            DroppedRowsWarning,
            stacklevel=stacklevel,
        )
    _warn_if_clipped(scores[scored], stacklevel + 1)
    return ScoreTable(
        ids("users", users, rows)[scored],
        ids("items", items, rows)[scored],
        scores[scored],
        column("labels", labels, rows)[scored],
        None if propensity is None else column("propensity", propensity, rows)[scored],
        None if weights is None else column("weights", weights, rows)[scored],
    )


def _warn_if_clipped(scores: Floats, stacklevel: int) -> None:
    """Warn if more than one row in twenty has exactly the lowest or exactly the highest score."""
    for name, extreme in (("lowest", scores.min()), ("highest", scores.max())):
        count = int(np.count_nonzero(scores == extreme))
        is_constant = count == len(scores)
        is_frequent = count >= _FEWEST_TIED and count > _TIED_FRACTION * len(scores)
        if is_frequent and not is_constant:
            warnings.warn(
                f"{count:,} of {len(scores):,} rows have the {name} score, {extreme:.6g}. If the "
                "model clips (as with ratings), ask it for unclipped scores: differences beyond "
                "the limit are lost. Isotonic() fits such ties best.",
                ClippedScoresWarning,
                stacklevel=stacklevel,
            )
