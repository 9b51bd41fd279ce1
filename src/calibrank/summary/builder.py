"""Build a summary batch by batch, in memory that does not grow with the number of rows."""

from __future__ import annotations

import numpy as np

from calibrank._internal.arguments import instance, whole
from calibrank._internal.validation import Floats, Numbers, on_gpu
from calibrank.errors import DataError
from calibrank.evidence import Evidence, Labels
from calibrank.summary import grid as grids
from calibrank.summary.bins import Batch, Table, has_few_distinct
from calibrank.summary.grid import CAPACITY, DOUBLE, MOST_DISTINCT, Grid, Placement
from calibrank.summary.summary import Summary

# A table that cannot be placed well looks again when its rows have grown by this factor.
_LOOK_AGAIN = 1.5


class SummaryBuilder:
    """Adds up batches of rows into one summary, in constant memory.

    Up to `distinct` scores get a bin each.

    >>> builder = SummaryBuilder()
    >>> for scores, labels in ([0.1, 0.5], [0, 1]), ([0.5, 0.9], [0, 1]):
    ...     builder.update(scores, labels)
    >>> builder.summary()
    Summary(4 rows in 3 bins over [0.1, 0.9], positive=2, total=4, kind='naive')
    """

    # At most one of the two is set: a summary of distinct scores as long as there are few, and a
    # table of bins, which takes batches faster, from then on.

    def __init__(self, distinct: int = CAPACITY) -> None:
        self._distinct = whole("distinct", distinct, 1, MOST_DISTINCT)
        self._exact: Summary | None = None
        self._bins: _GrowingTable | None = None

    def update(self, scores: Numbers, labels: Labels) -> None:
        """Add a batch; a batch whose weights are all zero adds nothing.

        Batches of 100,000 rows or more are processed at full speed.
        """
        if _is_weightless(labels):
            return
        if self._bins is not None:
            self._bins.add(Batch.of(scores, labels))
            return
        if self._exact is None and not on_gpu(scores):
            batch = Batch.of(scores, labels)
            if not has_few_distinct(batch.scores, self._distinct):
                placement = grids.place(batch.low, batch.high, grids.look(batch.scores))
                self._bins = _GrowingTable(batch.low, batch.high, batch.evidence.kind, placement)
                self._bins.add(batch)
                return
        self._merge(Summary.of(scores, labels, distinct=self._distinct))

    @property
    def empty(self) -> bool:
        """Whether no row with nonzero weight has been added."""
        return self._exact is None and self._bins is None

    def merge(self, other: Summary | SummaryBuilder) -> None:
        """Add the rows of another summary or builder, for example of another day or machine."""
        if isinstance(other, SummaryBuilder):
            if other.empty:
                return
            other = other.summary()
        instance("other", other, Summary, "Make one with Summary.of(scores, labels).")
        self._merge(other)

    def summary(self) -> Summary:
        """The summary of all batches so far."""
        if self._bins is not None:
            return self._bins.summary()
        if self._exact is None:
            raise DataError("a summary", "hold at least one row", "no batch")
        return self._exact

    def _merge(self, other: Summary) -> None:
        summary = other if self.empty else self.summary().merged(other, self._distinct)
        if summary.exact:
            self._exact, self._bins = summary, None
        else:
            self._exact, self._bins = None, _GrowingTable.of(summary)


def _is_weightless(labels: Labels) -> bool:
    """Whether labels are evidence of at least one row, and all its weights are zero."""
    if not isinstance(labels, Evidence) or not len(labels):
        return False
    return not labels.unit_weights and not labels.total.any()


class _GrowingTable:
    """A table of bins that grows with the range of the scores added to it."""

    def __init__(
        self,
        low: float,
        high: float,
        kind: str,
        placement: Placement = grids.AROUND_ZERO,
        bits: int = DOUBLE.mantissa,
    ) -> None:
        self.low = low
        self.high = high
        self.rows = 0
        self.kind = kind
        grid = Grid.spanning(low, high, CAPACITY, placement, bits)
        # Up to the ends of the octaves the grid stays the same: later batches mostly fit in.
        self.reach = grid.around(low - grid.origin, high - grid.origin)
        self.table = Table.of_offsets(grid, *self.reach)
        # Placing takes longer than adding a batch, so not every batch may ask for it.
        self.rows_of_next_look = 0.0

    @classmethod
    def of(cls, summary: Summary) -> _GrowingTable:
        """A table with the rows of a summary."""
        placement = grids.AROUND_ZERO if summary.grid is None else summary.grid.placement
        bins = cls(summary.low, summary.high, summary.kind, placement, summary.bits)
        bins.rows = summary.rows
        summary.add_to(bins.table)
        return bins

    def add(self, batch: Batch) -> None:
        self._adapt_to(batch)
        self.low = min(batch.low, self.low)
        self.high = max(batch.high, self.high)
        self.rows += len(batch.scores)
        if batch.evidence.kind != self.kind:
            self.kind = "mixed"
        self.table.pool(batch.scores, batch.evidence)

    def summary(self) -> Summary:
        return Summary.of_table(self.table, self.low, self.high, self.rows, self.kind)

    def _adapt_to(self, batch: Batch) -> None:
        """Move to another table if a batch lies outside of this one, or shares too few bins."""
        origin = self.table.grid.origin
        inside = batch.low - origin >= self.reach[0] and batch.high - origin <= self.reach[1]
        if inside and self.rows < self.rows_of_next_look:
            return
        sample = grids.look(batch.scores)
        if inside and grids.shared_bins(self.table.grid, sample) <= grids.RESOLVED:
            return
        self._move(min(batch.low, self.low), max(batch.high, self.high), sample)
        self.rows_of_next_look = _LOOK_AGAIN * self.rows

    def _move(self, low: float, high: float, sample: Floats) -> None:
        """Bring the rows so far to a grid over a new range that resolves them and a sample."""
        placement = self.table.grid.placement
        bits = self.table.grid.bits
        pooled = self.summary() if self.rows else None
        if pooled is not None:
            # Half of the look is at the past, half at the batch: the next ones may be like it.
            past = grids.look_at_bins(pooled.scores, pooled.total)[::2]
            sample = np.sort(np.concatenate([past, sample[::2]]))
        chosen = grids.place(low, high, sample, placement)
        if chosen != placement:
            bits = DOUBLE.mantissa
        wider = _GrowingTable(low, high, self.kind, chosen, bits)
        if pooled is not None:
            pooled.add_to(wider.table)
        self.reach = wider.reach
        self.table = wider.table
