"""Position bias: the probability that a user examines an item, by the rank it was shown at.

In the position-based model a click needs an examined item that is liked: P(click) is the
examination of the rank times the preference for the item. Where the same item was shown at several
ranks, its preference cancels. This is intervention harvesting (Agarwal et al., WSDM 2019), here
with all ranks of an item at once: given the clicks of an item, the share of each rank is
proportional to its impressions times its examination, whatever the preference.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from calibrank._internal.arguments import real
from calibrank._internal.validation import (
    Floats,
    IdsLike,
    Numbers,
    column,
    ids,
    require,
    require_role,
)
from calibrank.errors import DataError

_MAX_STEPS = 10_000
# Of the largest relative change of an examination probability in a step.
_TOLERANCE = 1e-10

# Nobody looks that far down a list; a larger number is a mistake, and would fill the memory.
_LARGEST_RANK = 1_000_000

# Rows of an item are compared within this many parts of the scores. The estimate has no bias from
# many small parts. With 10, what remains of the ranker's choice makes probabilities 1.7% too high.
_SCORE_BINS = 30

Ranks = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Position:
    """Examination by rank: P(examined) relative to the best rank, for ranks from 1.

    A click on an examined item is a label of a shown pair, so use the propensity with
    `ips(clicks, propensity)`, or multiply it with that of being shown. It is at least `clip`.

    >>> Position([1.0, 0.6, 0.4]).predict([1, 3, 2])
    array([1. , 0.4, 0.6])
    """

    examination: Floats
    clip: float

    def __init__(self, examination: Numbers, clip: float = 0.01) -> None:
        table = column("examination", examination)
        require_role("propensity", "examination", table)
        if not len(table):
            raise DataError("examination", "hold a probability per rank", "none")
        real("clip", clip, "(0, 1]")
        object.__setattr__(self, "examination", table)
        object.__setattr__(self, "clip", clip)

    def predict(self, ranks: Numbers) -> Floats:
        """P(examined) of each rank, at least `clip`."""
        rows = _whole_ranks(ranks)
        if rows.size and rows.max() > len(self.examination):
            raise DataError(
                "ranks",
                f"be at most {len(self.examination)}, whose examination is known",
                rows.max(),
                "Estimate on a log with such ranks, or extend the table.",
            )
        return np.maximum(self.examination[rows - 1], self.clip)


def estimate_position(
    items: IdsLike, ranks: Numbers, clicks: Numbers, scores: Numbers | None = None
) -> Position:
    """Estimate examination from a log in which the same item was shown at several ranks.

    `items` identifies what a preference belongs to: an item, or a query and document. The estimate
    is right if the rank of an item varies for reasons that have nothing to do with whether it is
    liked, such as other items, ties or another model. A personalised ranker shows an item first to
    those who like it: pass its `scores`, so that only rows of an item with similar scores (a
    thirtieth of all) are compared.

    >>> items, ranks = ["a", "a", "a", "b", "b", "b"] * 20, [1, 2, 2, 1, 1, 2] * 20
    >>> clicks = [1, 1, 0, 1, 1, 0] * 10 + [1, 0, 0, 1, 0, 1] * 10
    >>> estimate_position(items, ranks, clicks).examination.round(2)
    array([1. , 0.4])
    """
    log = _RankedLog.of(items, ranks, clicks)
    if scores is not None:
        log = log.within(column("scores", scores, len(log.items)))
    log.require_connected()
    examination = log.estimate()
    return Position(examination / examination.max())


@dataclass(frozen=True, slots=True, eq=False)
class _RankedLog:
    """Rows of an item at a rank, with codes from 0."""

    items: Ranks
    ranks: Ranks
    clicks: Floats

    @classmethod
    def of(cls, items: IdsLike, ranks: Numbers, clicks: Numbers) -> _RankedLog:
        names = ids("items", items)
        rows = len(names)
        if not rows:
            raise DataError("items", "hold at least one row", "none")
        places = _whole_ranks(column("ranks", ranks, rows))
        labels = column("clicks", clicks, rows).astype(np.float64)
        require_role("label", "clicks", labels)
        _, item_codes = np.unique(names, return_inverse=True)
        return cls(item_codes, places - 1, labels)

    def within(self, scores: Floats) -> _RankedLog:
        """The log with an item of its own for each part of the scores."""
        edges = np.quantile(scores, np.arange(1, _SCORE_BINS) / _SCORE_BINS)
        bins = np.searchsorted(edges, scores, side="right")
        _, items = np.unique(self.items * _SCORE_BINS + bins, return_inverse=True)
        return replace(self, items=items)

    @property
    def n_ranks(self) -> int:
        return int(self.ranks.max()) + 1

    def require_connected(self) -> None:
        """Raise unless clicked items link every rank to the first."""
        from scipy.sparse import coo_array  # noqa: PLC0415  (slow to load)
        from scipy.sparse.csgraph import connected_components  # noqa: PLC0415  (slow to load)

        clicked = np.bincount(self.items, self.clicks) > 0
        linking = clicked[self.items]
        # A graph of ranks and items, joined where an item was shown.
        edges = (self.ranks[linking], self.n_ranks + self.items[linking])
        size = self.n_ranks + len(clicked)
        graph = coo_array((np.ones(len(edges[0])), edges), shape=(size, size))
        part = connected_components(graph, directed=False)[1][: self.n_ranks]
        reached = part == part[0]
        has_clicks = np.bincount(self.ranks, self.clicks, self.n_ranks) > 0
        unknown = np.flatnonzero(~(reached & has_clicks)) + 1
        if len(unknown):
            raise DataError(
                "every rank",
                "have a click and be linked to rank 1 by clicked items that were shown at both "
                "(with similar scores, where these are given)",
                f"none for rank {unknown[0]}",
                "Leave out such ranks, or give a table: Position([1.0, 0.6, ...]).",
            )

    def estimate(self) -> Floats:
        """Examination relative to the first rank.

        Maximizes the conditional likelihood of the clicks' ranks given the clicks of each item. Its
        equations have mean zero at the truth under the position-based model, without a bias from
        the many preferences. Each step is that of Hunter's MM algorithm (2004).
        """
        clicks_of_rank = np.bincount(self.ranks, self.clicks, self.n_ranks)
        clicks_of_item = np.bincount(self.items, self.clicks)
        examination = np.ones(self.n_ranks)
        for _ in range(_MAX_STEPS):
            exposure = np.bincount(self.items, examination[self.ranks])
            # The smallest number, because examination may underflow.
            preference = clicks_of_item / np.maximum(exposure, 1e-300)
            expected = np.bincount(self.ranks, preference[self.items], self.n_ranks)
            following = clicks_of_rank / np.maximum(expected, 1e-300)
            following = following / max(following[0], 1e-300)
            change = np.abs(following - examination).max()
            examination = following
            if change <= _TOLERANCE * examination.max():
                break
        return examination


def _whole_ranks(ranks: Numbers) -> Ranks:
    array = column("ranks", ranks)

    def is_rank(values: npt.NDArray[np.floating]) -> npt.NDArray[np.bool_]:
        return (values >= 1) & (values <= _LARGEST_RANK) & (values == np.floor(values))

    statement = f"be whole numbers from 1 to {_LARGEST_RANK:,}"
    require(is_rank, "ranks", statement, array, "Count ranks from 1.")
    return array.astype(np.intp)
