"""Compare the segments and categories of new rows with those that a map knows."""

from __future__ import annotations

import warnings

import numpy as np

from calibrank._internal.arguments import listed
from calibrank._internal.segment_keys import Encoded
from calibrank.errors import ScoreShiftWarning
from calibrank.maps.calibration_map import CalibrationMap
from calibrank.maps.grouped import GroupedMap

LARGEST_UNKNOWN = 0.5
"""A larger fraction of rows with values that a map does not know is reported."""
_MOST_EXAMPLES = 3


class KnownValues:
    """Counts rows whose segment or category is not one of the fit; add columns, then `warn`.

    Of nested segments the first column counts: where it is known, so is a segment.
    """

    def __init__(self, fitted: CalibrationMap) -> None:
        self._known: dict[str, set[str]] = {}
        if isinstance(fitted, GroupedMap):
            self._known[fitted.columns[0]] = {key[0] for key in fitted.keys}
        for name, values in fitted.categories.items():
            self._known[name] = set(values)
        self._rows = dict.fromkeys(self._known, 0)
        self._unknown: dict[str, dict[str, int]] = {name: {} for name in self._known}

    def add(self, name: str, column: Encoded) -> None:
        """Count the values of one more batch."""
        if name not in self._known:
            return
        counts = np.bincount(column.codes, minlength=len(column.values)).tolist()
        for value, count in zip(column.values, counts, strict=True):
            # Missing values have the map of the whole on purpose.
            if value is not None:
                self._rows[name] += count
                if count and value not in self._known[name]:
                    self._unknown[name][value] = self._unknown[name].get(value, 0) + count

    def warn(self, stacklevel: int = 2) -> None:
        """Warn of columns most of whose values the map does not know."""
        for name, unknown in self._unknown.items():
            rows = sum(unknown.values())
            if rows > LARGEST_UNKNOWN * self._rows[name]:
                found = sorted(unknown, key=lambda value: -unknown[value])[:_MOST_EXAMPLES]
                message = (
                    f"{rows:,} of {self._rows[name]:,} rows have a {name} that the map does not "
                    f"know, such as {listed(found)}: they get the map of all rows. Write the "
                    f"values as in the fit, such as {listed(sorted(self._known[name])[:1])}."
                )
                warnings.warn(message, ScoreShiftWarning, stacklevel=stacklevel)
