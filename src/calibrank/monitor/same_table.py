"""Which days are of the same table: sums that depend on the order of rows only by rounding."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from calibrank._internal.validation import Floats
from calibrank.monitor.day import LEVEL, PREDICTED, SLOPE, TOTAL, Day

# Sums of the same rows in another order differ by rounding, about 1e-12 of the sum of the sizes.
_TOLERANCE = 1e-9

# Tables with fewer different scores may have equal sums by chance, such as 30 positives in 100
# rows of one score on two days. With 10 scores and 20 rows there are about 10^7 different tables.
_FEWEST_SCORES = 10


class Fingerprint(NamedTuple):
    """What tells the rows of a day from other rows, whatever their order."""

    map_digest: str
    date: str
    rows: int
    labels: int
    is_distinctive: bool
    """Whether other rows hardly have the same sums by chance."""
    score_sums: Floats
    score_scales: Floats
    """The sizes that rounding errors of the sums are relative to."""
    label_sums: Floats
    label_scale: float

    @classmethod
    def of(cls, day: Day) -> Fingerprint:
        """The fingerprint of a day."""
        summary = day.scores
        level, slope, predicted, mass = day.sums.sum(axis=0)[[LEVEL, SLOPE, PREDICTED, TOTAL]]
        squared = summary.masses.total_squared.sum()
        largest = max(abs(summary.low), abs(summary.high))
        weighted = summary.total @ summary.scores
        size = summary.total @ np.abs(summary.scores)
        return cls(
            map_digest=day.map_digest,
            date=day.date,
            rows=day.rows,
            labels=day.labels,
            is_distinctive=len(summary) >= _FEWEST_SCORES,
            score_sums=np.array([mass, squared, predicted, weighted, summary.low, summary.high]),
            score_scales=np.array([mass, squared, mass, size, largest, largest]),
            label_sums=np.array([level, slope]),
            label_scale=float(mass),
        )

    def has_rows_of(self, other: Fingerprint) -> bool:
        """Whether map, scores and weights are the same."""
        if (self.map_digest, self.rows) != (other.map_digest, other.rows):
            return False
        gaps = np.abs(self.score_sums - other.score_sums)
        return bool((gaps <= _TOLERANCE * self.score_scales).all())

    def has_labels_of(self, other: Fingerprint) -> bool:
        """Whether the labels are the same, if the rows are."""
        gaps = np.abs(self.label_sums - other.label_sums)
        agree = (gaps <= _TOLERANCE * self.label_scale).all()
        return self.labels == other.labels and bool(agree)

    def is_version_of(self, other: Fingerprint) -> bool:
        """Whether both are of the same rows on the same date, with the same or other labels."""
        both = self.is_distinctive and self.date == other.date
        return both and self.has_rows_of(other)

    def repeats(self, other: Fingerprint) -> bool:
        """Whether rows would count twice if both were added."""
        if not self.has_rows_of(other):
            return False
        if self.has_labels_of(other):
            return self.is_distinctive or self.date == other.date
        return self.is_version_of(other)
