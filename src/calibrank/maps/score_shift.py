"""Compare new scores and labels with those that a map was fitted or anchored on."""

from __future__ import annotations

import math
import warnings

import numpy as np

from calibrank._internal.json import digest_of_rows, sketch_of_rows
from calibrank._internal.validation import Floats
from calibrank.errors import ScoreShiftWarning
from calibrank.maps.record import FitRecord
from calibrank.tables import row_partitions

LARGEST_DISTANCE = 0.3
"""Kolmogorov-Smirnov distance above which scores do not look like those of the fit."""
LARGEST_OUTSIDE = 0.2
"""Fraction of scores outside the range of the fit above which they do not either."""

# The Kolmogorov-Smirnov distance of two samples of one distribution exceeds this number over the
# root of their effective size in 1 of 1,000 cases (Smirnov, 1948).
_CRITICAL = 1.95

# Scores compared per batch. Their distance from all of the batch is 0.016 in 1 of 1,000 cases,
# far below the limits, and counting more of them took a quarter of the time of `calibrank apply`.
_SAMPLE = 2**14


class ScoreComparison:
    """Counts of new scores between the quantiles of the fit; add batches, then `warn`.

    Of a long batch, a random sample is counted.

    >>> from calibrank import MinMax
    >>> scores = np.arange(1000.0)
    >>> record = MinMax().fit(scores, scores % 2).record
    >>> comparison = ScoreComparison(record)
    >>> comparison.add(scores + 500)
    >>> round(comparison.distance, 2), round(comparison.outside, 2)
    (0.5, 0.5)
    """

    def __init__(self, record: FitRecord) -> None:
        self.record = record
        quantiles = np.array(record.score_quantiles or ())
        self._values, first, counts = np.unique(quantiles, return_index=True, return_counts=True)
        levels = np.linspace(0, 1, max(len(quantiles), 2))
        # The distribution function of the fit lies below `_first` just before each value, and at
        # or above `_last` at it. With ties the two are far apart.
        self._first = levels[first]
        self._last = levels[first + counts - 1]
        self._below = np.zeros(len(self._values))
        self._up_to = np.zeros(len(self._values))
        self.rows = 0
        self.low, self.high = math.inf, -math.inf
        self._compared = 0

    def add(self, scores: Floats) -> None:
        """Count the scores of one more batch."""
        if not len(self._values) or not len(scores):
            return
        self.low = min(self.low, float(scores.min()))
        self.high = max(self.high, float(scores.max()))
        sample = scores
        if len(scores) > _SAMPLE:
            sample = scores[row_partitions(self.rows, _SAMPLE, len(scores))]
        ordered, rows_each = np.sort(sample), len(scores) / len(sample)
        self._up_to += rows_each * np.searchsorted(ordered, self._values, side="right")
        self._below += rows_each * np.searchsorted(ordered, self._values, side="left")
        self.rows += len(scores)
        self._compared += len(sample)

    @property
    def distance(self) -> float:
        """The Kolmogorov-Smirnov distance that the quantiles prove; the true one may be larger."""
        if not self.rows:
            return 0.0
        up_to = self._up_to / self.rows
        below = self._below / self.rows
        # Between two quantiles the distribution function of the fit is known only to lie between
        # their levels.
        highest = np.append(self._first[1:], 1.0)
        lowest = np.insert(self._last[:-1], 0, 0.0)
        gaps = [self._last - up_to, up_to - highest, below - self._first, lowest - below]
        return float(max(np.max(gaps), 0.0))

    @property
    def outside(self) -> float:
        """The fraction of scores below the lowest or above the highest score of the fit."""
        if not self.rows:
            return 0.0
        return float(self._below[0] + self.rows - self._up_to[-1]) / self.rows

    @property
    def is_shifted(self) -> bool:
        """Whether the scores do not look like those of the fit; few scores prove little."""
        if not self.rows:
            return False
        effective = self._compared * self.record.rows / (self._compared + self.record.rows)
        noise = _CRITICAL / math.sqrt(max(effective, 1e-9))
        limits = (max(LARGEST_DISTANCE, noise), max(LARGEST_OUTSIDE, noise))
        return self.distance > limits[0] or self.outside > limits[1]

    def warn(self, stacklevel: int = 2) -> None:
        """Warn if the scores do not look like those of the fit."""
        if self.is_shifted:
            warnings.warn(self.message, ScoreShiftWarning, stacklevel=stacklevel)

    @property
    def message(self) -> str:
        """What the warning says."""
        parts = [part for part in (self.record.model_name, self.record.date) if part]
        fit = f"the map's fit ({', '.join(parts)})" if parts else "the map's fit"
        low, high = self._values[0], self._values[-1]
        return (
            f"the scores do not look like those of {fit}: Kolmogorov-Smirnov distance "
            f"{self.distance:.2f}, {self.outside:.0%} of {self.rows:,} scores outside "
            f"[{low:.4g}, {high:.4g}]. If the model changed, fit a new map. If the rows are a "
            "selection, such as the top of each list, this is expected."
        )


class AnchorLabels:
    """Counts rows that are among those that a map was anchored on; add batches of rows."""

    # Labels are used again if more than this share of them is known; by chance, few are equal.
    _KNOWN = 0.5
    _FEWEST_KNOWN = 3

    def __init__(self, record: FitRecord) -> None:
        self._anchoring = record.anchoring
        self._found = 0
        self._known = 0
        self._rows = 0
        self._kept: list[tuple[Floats, Floats]] = []

    def add(self, scores: Floats, positive: Floats) -> None:
        """Compare scores with their labels, or positive masses."""
        self._rows += len(scores)
        # Of more rows, only a smaller share can be known.
        if self._anchoring is None or self._rows * self._KNOWN > self._anchoring.labels:
            return
        hashes = self._anchoring.row_hashes
        found = np.array(sketch_of_rows(scores, positive, within=hashes))
        self._found += len(found)
        self._known += int(np.count_nonzero(np.isin(found, hashes)))
        self._kept.append((np.asarray(scores, float), np.asarray(positive, float)))

    @property
    def are_used_again(self) -> bool:
        """Whether the rows are those of anchoring, or mostly a part of them."""
        anchoring = self._anchoring
        if anchoring is None or self._rows * self._KNOWN > anchoring.labels:
            return False
        if self._known >= self._FEWEST_KNOWN and self._known > self._KNOWN * self._found:
            return True
        # Scores with many ties have no hashes: then only all rows in the same order are known.
        if self._rows != anchoring.labels:
            return False
        columns = [np.concatenate(each) for each in zip(*self._kept, strict=True)]
        return digest_of_rows(*columns) == anchoring.digest
