"""Maps by segment: one global map whose log odds change by segment (Segments once fitted)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from operator import attrgetter
from statistics import NormalDist
from typing import Any, ClassVar, NamedTuple, Self, overload

import numpy as np

from calibrank._internal.arguments import real
from calibrank._internal.json import Fields
from calibrank._internal.logit import expit, logit
from calibrank._internal.segment_keys import Key, encode_columns, find_nodes, number_nodes
from calibrank._internal.validation import Floats, Indices, Numbers, floats
from calibrank.errors import DataError
from calibrank.maps._based import BasedMap, read_base
from calibrank.maps._blocks import Ends, Interval
from calibrank.maps.calibration_map import CalibrationMap
from calibrank.maps.record import FitRecord
from calibrank.maps.targets.target import Target

# Log odds of an interval's end stay finite, whatever the global map says there.
_LARGEST_LOG_ODDS = 700.0


class _SegmentFields(NamedTuple):
    key: Key
    intercept: float
    slope: float
    error: float
    """Standard error of the segment's log odds, relative to the global map."""
    rows: int


class Segment(_SegmentFields):
    """One segment: its log odds are `intercept + slope * z`, where z are those of the global map.

    `key` holds the values of the first one or more segment columns.
    """

    # A map may have a million segments, and a tuple is made in a tenth of a dataclass's time.
    __slots__ = ()

    def __new__(cls, key: Key, intercept: float, slope: float, error: float, rows: int) -> Self:
        if not key:
            raise DataError("the key of a segment must have one or more values, got none.")
        if not slope > 0:
            raise DataError(f"the slope of a segment must be positive, got {slope}.")
        if not error >= 0:
            raise DataError(f"the error of a segment must not be negative, got {error}.")
        return super().__new__(cls, key, intercept, slope, error, rows)

    @classmethod
    def trusted(cls, keys: Sequence[Key], *columns: Sequence[float]) -> list[Self]:
        """Many segments, one column per field, without the checks: for code that made sure."""
        return list(map(tuple.__new__, repeat(cls), zip(keys, *columns, strict=True)))


@dataclass(frozen=True, slots=True, repr=False)
class GroupedMap(BasedMap):
    """A global map, and a change of its log odds per segment; increasing within each segment.

    With several columns, such as country and city, a segment is a country, or a city in a country.
    A row belongs to the most specific segment that is known: an unknown city counts as its country,
    and a row of an unknown country gets the global map.

    Without `segments`, the methods of a map (`predict`, `interval`, plots) are those of the global
    map. `transform`, the command line and exports use the segment columns.
    """

    kind: ClassVar[str] = "grouped"

    method: str
    base: CalibrationMap
    columns: tuple[str, ...]
    segments: tuple[Segment, ...]
    spreads: tuple[float, ...]
    """Standard deviation of the log odds between the segments of each level, as estimated."""
    record: FitRecord

    def __post_init__(self) -> None:
        self._require_columns()
        keys = set(self.keys)
        if len(keys) < len(self.segments):
            raise DataError("segments must have different keys.")
        # There may be a million of one value each, which need no further look.
        has_children = any(depth > 1 for depth in set(map(len, keys)))
        for key in [key for key in keys if len(key) > 1] if has_children else ():
            if len(key) > len(self.columns):
                raise DataError(
                    f"the key of a segment must have at most {len(self.columns)} values, got {key}."
                )
            if key[:-1] not in keys:
                raise DataError(f"segment {key} must have its parent {key[:-1]} among segments.")
        self._share_record()

    def _require_columns(self) -> None:
        if self.base.segment_columns:
            raise DataError("the base of a map by segment must not be by segment itself.")
        names = self.columns
        if not names or len(set(names)) < len(names) or not all(names):
            raise DataError(f"columns must be one or more different names, got {names}.")
        if len(self.spreads) != len(names) or not all(spread >= 0 for spread in self.spreads):
            raise DataError(
                f"spreads must be one number of 0 or more per column, got {self.spreads}."
            )

    @overload
    def predict(self, scores: float, segments: Any = None) -> float: ...

    @overload
    def predict(self, scores: Numbers, segments: Any = None) -> Floats: ...

    def predict(self, scores: Numbers, segments: Any = None) -> Floats | float:
        """Probabilities, in the shape and float type of the scores.

        `segments` maps each segment column to one value per score (a dict or a dataframe). Without
        it, the result is that of the global map.
        """
        if segments is None:
            return self.base.predict(scores)
        remedy = ", which takes the number of the segment"
        result: Floats | float = self._predict_with(scores, segments, "segments", remedy)
        return result

    @overload
    def log_odds(self, scores: float, segments: Any = None) -> float: ...

    @overload
    def log_odds(self, scores: Numbers, segments: Any = None) -> Floats: ...

    def log_odds(self, scores: Numbers, segments: Any = None) -> Floats | float:
        """Log odds in float64; `segments` as in `predict`."""
        if segments is None:
            return self.base.log_odds(scores)
        log_odds = self._log_odds_with(floats("scores", scores), segments)
        return float(log_odds) if log_odds.ndim == 0 else log_odds

    @overload
    def interval(
        self, scores: float, level: float = 0.95, segments: Any = None
    ) -> Interval[float]: ...

    @overload
    def interval(
        self, scores: Numbers, level: float = 0.95, segments: Any = None
    ) -> Interval[Floats]: ...

    def interval(
        self, scores: Numbers, level: float = 0.95, segments: Any = None
    ) -> Interval[Floats] | Interval[float]:
        """Confidence interval of the probability, for the sampling error of the fit alone.

        With `segments`, it includes the error of the segment. An unknown segment may differ from
        the global map as much as known ones do, and its interval says so.
        """
        if segments is None:
            return self.base.interval(scores, level)
        level = real("level", level, "(0, 1)", "Use e.g. 0.95.")
        array = floats("scores", scores)
        low, high = self._segment_ends(array, self._nodes(array, segments), level)
        if array.ndim == 0:
            return Interval(float(low), float(high))
        return Interval(low.astype(array.dtype), high.astype(array.dtype))

    def scalar(self) -> Callable[[float], float]:
        """A function of one float, of the global map, as `predict` is without segments."""
        return self.base.scalar()

    def segment_index(self, segments: Any) -> Indices:
        """The number of each row's segment, as the graphs of `to_onnx` and `to_torch` take it.

        It counts `segments` from 1 on; 0 is the global map, for rows of no known segment.

        >>> from calibrank import Gaussian, Segments
        >>> scores, labels = [0.0, 1.0, 2.0, 3.0] * 3, [0, 1, 0, 1] * 3
        >>> country = ["DE", "NL"] * 6
        >>> fitted = Segments("country").fit(scores, labels, {"country": country})
        >>> fitted.segment_index({"country": ["NL", "DE", "BE"]})
        array([2, 1, 0])
        """
        return find_nodes(self._numbers, encode_columns(self.columns, segments))

    @property
    def segment_columns(self) -> tuple[str, ...]:
        return self.columns

    @property
    def keys(self) -> tuple[Key, ...]:
        """The key of each segment."""
        return tuple(map(attrgetter("key"), self.segments))

    @property
    def intercepts(self) -> tuple[float, ...]:
        """Intercepts by segment number; the first is that of the global map, 0."""
        return (0.0, *[segment.intercept for segment in self.segments])

    @property
    def slopes(self) -> tuple[float, ...]:
        """Slopes by segment number; the first is that of the global map, 1."""
        return (1.0, *[segment.slope for segment in self.segments])

    @property
    def parameters(self) -> dict[str, float]:
        return self.base.parameters

    @property
    def standard_errors(self) -> dict[str, float]:
        return self.base.standard_errors

    @property
    def description(self) -> str:
        by = " > ".join(self.columns)
        spreads = ", ".join(f"{spread:.2g}" for spread in self.spreads)
        return (
            f"{self.base.description} Changed in {len(self.segments):,} segments by {by}: "
            f"log odds differ by a standard deviation of {spreads} between segments."
        )

    @property
    def largest_term(self) -> float:
        largest = max(map(abs, self.intercepts))
        return max(largest, max(self.slopes) * self.base.largest_term)

    def float32_problem(self) -> str | None:
        return self.base.float32_problem()

    def log_odds_on(self, target: Target, score: Any) -> Any:
        """The log odds of the global map as an expression of the target."""
        return self.base.log_odds_on(target, score)

    def _changed_on(self, target: Target, score: Any, columns: Any) -> Any:
        log_odds = self.base.log_odds_on(target, score)
        if any(slope != 1 for slope in self.slopes):
            log_odds = log_odds * target.by_segment(columns, self.keys, self.slopes)
        return log_odds + target.by_segment(columns, self.keys, self.intercepts)

    def _log_odds_with(self, scores: Floats, columns: Any) -> Floats:
        return self._segment_log_odds(scores, self._nodes(scores, columns))

    def _nodes(self, scores: Floats, segments: Any) -> Indices:
        return find_nodes(self._numbers, encode_columns(self.columns, segments, scores.size))

    # There may be a million segments, and few rows: these are made once.
    @cached_property
    def _numbers(self) -> dict[Key, int]:
        return number_nodes(self.keys)

    @cached_property
    def _changes(self) -> tuple[Floats, Floats]:
        """Intercepts and slopes by segment number."""
        return np.array(self.intercepts), np.array(self.slopes)

    def _segment_log_odds(self, scores: Floats, nodes: Indices) -> Floats:
        global_log_odds = self._base_log_odds(scores)
        nodes = nodes.reshape(scores.shape)
        intercepts, slopes = self._changes
        log_odds: Floats = intercepts[nodes] + slopes[nodes] * global_log_odds
        return log_odds

    def _segment_ends(self, scores: Floats, nodes: Indices, level: float) -> Ends:
        quantile = -NormalDist().inv_cdf((1 - level) / 2)
        nodes = nodes.reshape(scores.shape)
        margin = quantile * self._errors()[nodes]
        slopes = self._changes[1][nodes]
        middle = self._segment_log_odds(scores, nodes)
        center = self._base_log_odds(scores)
        low, high = self.base.interval(scores.astype(np.float64), level)
        # The errors of the global map and of the segment are nearly independent.
        below = slopes * (center - _bounded(logit(low)))
        above = slopes * (_bounded(logit(high)) - center)
        return expit(middle - np.hypot(below, margin)), expit(middle + np.hypot(above, margin))

    def _errors(self) -> Floats:
        """Standard errors by segment number, with the spread of the levels a segment lacks."""
        squares = np.array(self.spreads) ** 2
        errors = [float(np.sqrt(squares.sum()))]
        for segment in self.segments:
            unknown = squares[len(segment.key) :].sum()
            errors.append(float(np.sqrt(segment.error**2 + unknown)))
        return np.array(errors)

    def _content(self) -> dict[str, Any]:
        segments = []
        for segment in self.segments:
            about = {"key": list(segment.key), "intercept": segment.intercept}
            about |= {"slope": segment.slope, "error": segment.error, "rows": segment.rows}
            segments.append(about)
        return {
            "base": self._base_content(),
            "columns": list(self.columns),
            "segments": segments,
            "spreads": list(self.spreads),
        }

    @classmethod
    def read(cls, method: str, fields: Fields, record: FitRecord) -> Self:
        fields.only("base", "columns", "segments", "spreads")
        return cls(
            method=method,
            base=read_base(fields, record),
            columns=tuple(fields.texts("columns")),
            segments=tuple(_read_segment(child) for child in fields.children("segments")),
            spreads=tuple(fields.numbers("spreads")),
            record=record,
        )


def _read_segment(fields: Fields) -> Segment:
    fields.only("key", "intercept", "slope", "error", "rows")
    return Segment(
        key=tuple(fields.texts("key")),
        intercept=fields.number("intercept"),
        slope=fields.number("slope"),
        error=fields.number("error"),
        rows=fields.count("rows"),
    )


def _bounded(log_odds: Floats) -> Floats:
    return np.clip(log_odds, -_LARGEST_LOG_ODDS, _LARGEST_LOG_ODDS)
