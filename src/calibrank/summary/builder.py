"""Build a summary batch by batch, in memory that does not grow with the rows."""

from collections.abc import Iterable
from typing import Self

from calibrank._validation import Floats, Numbers, on_gpu
from calibrank.errors import DataError
from calibrank.evidence import Evidence, Labels
from calibrank.summary.bins import Table, counts_once
from calibrank.summary.grid import CAPACITY, DOUBLE, Grid
from calibrank.summary.summary import Summary, _distinct_at_most, _heard


class SummaryBuilder:
    """Adds up batches of rows into one summary, in memory that does not grow with them.

    >>> builder = SummaryBuilder()
    >>> for scores, labels in ([0.1, 0.5], [0, 1]), ([0.5, 0.9], [0, 1]):
    ...     builder.update(scores, labels)
    >>> builder.summary()
    Summary(4 rows in 3 bins over [0.1, 0.9], positive=2, total=4, kind='naive')
    """

    def __init__(self) -> None:
        self._few: Summary | None = None
        self._many: _Bins | None = None

    def update(self, scores: Numbers, labels: Labels) -> None:
        """Add a batch; batches of 100,000 rows or more are handled at full speed. One without weight adds nothing."""
        if (
            isinstance(labels, Evidence)
            and len(labels)
            and not (counts_once(labels.total) or labels.total.any())
        ):
            return
        if self._many is not None:
            self._many.add(*_heard(scores, labels))
            return
        if self._few is None and not on_gpu(scores):
            heard = _heard(scores, labels)
            if not _distinct_at_most(heard[0], CAPACITY):
                self._many = _Bins(heard[2], heard[3], heard[1].kind)
                self._many.add(*heard)
                return
        batch = Summary.of(scores, labels)
        merged = batch if self._few is None else self._few + batch
        if merged.exact:
            self._few = merged
        else:
            self._many = _Bins.of(merged)

    @property
    def empty(self) -> bool:
        """Whether nothing with any weight has come yet."""
        return self._few is None and self._many is None

    def merge(self, other: "Summary | SummaryBuilder") -> None:
        """Add what another builder, day or machine has summed up."""
        if isinstance(other, SummaryBuilder):
            if other.empty:
                return
            theirs = other._many  # noqa: SLF001  (one of us)
            if self._many is not None and theirs is not None and self._many.takes(theirs):
                return
            other = other.summary()
        merged = other if self.empty else self.summary() + other
        self._few, self._many = (merged, None) if merged.exact else (None, _Bins.of(merged))

    def correct(self, parts: Iterable[tuple[Floats, Evidence, Evidence]]) -> None:
        """Replace the evidence of rows once it is known better: scores, the new evidence, and as what they counted."""
        if self._many is not None:
            self._many.table.change(parts)
            return
        for scores, evidence, counted in parts:
            self._few = self.summary() + Summary.of(scores, evidence).less(
                Summary.of(scores, counted)
            )

    def summary(self) -> Summary:
        """All batches so far."""
        if self._many is not None:
            return self._many.summary()
        if self._few is None:
            raise DataError("a summary must hold at least one row, got no batch.")
        return self._few


class _Bins:
    """A table of bins that grows with the range of scores it has seen."""

    def __init__(self, low: float, high: float, kind: str, bits: int = DOUBLE.mantissa) -> None:
        self.low, self.high, self.rows, self.kind = low, high, 0, kind
        self.reach = Grid.spanning(low, high).around(low, high)  # with room for what may come
        self.table = Table.spanning(*self.reach, bits=bits)

    @classmethod
    def of(cls, summary: Summary) -> Self:
        """Bins that hold what a summary holds."""
        bins = cls(summary.low, summary.high, summary.kind, summary.bits)
        bins.rows = summary.rows
        summary.pour(bins.table)
        return bins

    def add(self, scores: Floats, evidence: Evidence, low: float, high: float) -> None:
        if low < self.reach[0] or high > self.reach[1]:
            before = self.summary()
            wider = _Bins(min(low, self.low), max(high, self.high), self.kind, before.bits)
            before.pour(wider.table)
            self.reach, self.table = wider.reach, wider.table
        self.low, self.high = min(low, self.low), max(high, self.high)
        self.rows += len(scores)
        self.kind = self.kind if self.kind == evidence.kind else "mixed"
        self.table.pool(scores, evidence)

    def takes(self, other: "_Bins") -> bool:
        """Add other bins to these if they are the same ones: if so, True."""
        same = self.reach == other.reach and self.table.grid == other.table.grid
        if same:
            self.table.merge(other.table)
            self.low, self.high = min(self.low, other.low), max(self.high, other.high)
            self.rows += other.rows
            self.kind = self.kind if self.kind == other.kind else "mixed"
        return same

    def summary(self) -> Summary:
        return Summary.of_table(self.table, self.low, self.high, self.rows, self.kind)
