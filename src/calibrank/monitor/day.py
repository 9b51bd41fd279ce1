"""What is kept of one day: summaries of its scores and labels, and sums per cluster of users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from calibrank._internal.arguments import date_of, instance
from calibrank._internal.logit import expit, logit
from calibrank._internal.npz import Arrays, read_arrays, write_arrays
from calibrank._internal.segment_keys import encode_columns
from calibrank._internal.validation import (
    Floats,
    IdsLike,
    Indices,
    Numbers,
    add_up,
    column,
    ids,
    require_role,
)
from calibrank.errors import DataError
from calibrank.evidence import Evidence, naive
from calibrank.maps import CalibrationMap, LevelTerm
from calibrank.maps.calibration_map import require_map
from calibrank.summary import Summary
from calibrank.summary.by_segment import SegmentSums
from calibrank.tables import hash_partitions, row_partitions

CLUSTERS = 128
"""The number of clusters that users are hashed into, the same one on every day and host.

The variance of a sum over so many clusters is estimated with a standard error of 12%.
"""

BINS = 4096
"""The most bins of a summary of a day: 4,096 bins of nine numbers are 300 kB."""

MOST_SEGMENTS = 20_000
"""With more segments, of at most 2 kB each, a day would no longer be small, and keeps none."""

# A few hundred kilobytes, or 2 kB for each of 20,000 segments, and their names.
_LARGEST_FILE = 2**26

# Beyond this, probabilities are 0 or 1 up to rounding.
_LARGEST_LOG_ODDS = 15.0

_VERSION = 4

LEVEL, SLOPE, PREDICTED, TOTAL = range(4)
"""Columns of `Day.sums`."""


def probabilities_of(fitted: CalibrationMap, scores: Floats, columns: Any = None) -> Floats:
    """The probabilities of scores that a day keeps; without the columns of terms, of log odds."""
    if fitted.terms and columns is None:
        return np.asarray(expit(scores))
    return np.asarray(_as_sampled(fitted).predict(scores, columns))


def labels_of_fit(fitted: CalibrationMap) -> float:
    """The number of labels that a map was fitted or anchored on."""
    anchoring = fitted.record.anchoring
    return fitted.record.rows if anchoring is None else anchoring.effective_labels


def bounded_log_odds(fitted: CalibrationMap, probabilities: Floats) -> Floats:
    """Log odds of a map, of which those of 0 and 1 are finite.

    A step has a probability of 0 if its labels have no positives. With n labels, these are the log
    odds of half a positive: -log(2 n + 1). Others would say that the map is too extreme.
    """
    bounded = np.clip(logit(probabilities), -_LARGEST_LOG_ODDS, _LARGEST_LOG_ODDS)
    quantiles = fitted.record.score_quantiles
    for bound, sign in ((0.0, -1), (1.0, 1)):
        is_bound = probabilities == bound
        if is_bound.any() and quantiles is not None:
            curve = _as_sampled(fitted).without_terms()
            share = np.mean(np.asarray(curve.predict(np.array(quantiles))) == bound)
            labels = max(float(share) * labels_of_fit(fitted), 1.0)
            bounded[is_bound] = sign * min(np.log(2 * labels + 1), _LARGEST_LOG_ODDS)
    return bounded


def _as_sampled(fitted: CalibrationMap) -> CalibrationMap:
    """The map of a table in which negatives are sampled as in the table of the fit.

    Random labels, which an anchored map is compared with, are not sampled.
    """
    record = fitted.record
    if record.negatives_kept is None or record.base_rate_source == "random labels":
        return fitted
    return fitted.moved(-float(np.log(record.negatives_kept)))


@dataclass(frozen=True, slots=True, eq=False)
class Day:
    """One day of a deployed map: additive sums of a few hundred kilobytes (2 kB more per segment).

    `+` merges parts of a day or several days.

    >>> from calibrank import Platt
    >>> fitted = Platt().fit([-1.0, 0.0, 1.0, 2.0], [0, 1, 0, 1])
    >>> monday = Day.of(fitted, [0.5, 1.5], [0, 1], date="2026-01-05")
    >>> monday + Day.of(fitted, [0.1, 0.2, 0.3], date="2026-01-06")
    Day(2026-01-06, 5 scores, 2 labels)
    """

    date: str
    map_digest: str
    labelled: Summary | None
    """Scores and labels of the rows that have a label; log odds if the map has terms."""
    unlabelled: Summary | None
    """Scores of the other rows."""
    sums: Floats
    """Clusters x (residuals, residuals times log odds, predicted mass, total mass).

    Residuals are `weight * (label - probability)` of labelled rows; masses are of all rows.
    """
    by_score: Summary | None = None
    """Scores and labels, if the map has terms."""
    by_segment: tuple[SegmentSums, ...] = ()
    """The labels by level, for each level of the map.

    Where a level is the only term, rows are pooled by their score and by all columns of the level,
    and otherwise by their log odds and by the first column.
    """

    @classmethod
    def of(
        cls,
        fitted: CalibrationMap,
        scores: Numbers,
        labels: Numbers | None = None,
        *,
        date: str,
        users: IdsLike | None = None,
        weights: Numbers | None = None,
        columns: Any = None,
        clusters: Indices | None = None,
    ) -> Day:
        """Sum up rows of one day that have labels, or of one day that have none yet.

        With `users`, labels of one user may depend on each other, also between days. `columns` has
        the columns of the map's terms, by name (a mapping or a dataframe); rows are then pooled by
        their log odds instead of their scores. Negatives are sampled as in the table of the fit,
        if the map's record says that they were. `clusters` has the cluster of users of each row,
        below 128, where that is known in place of users.
        """
        scores = column("scores", scores)
        date_of("date", date)
        require_map(fitted)
        require_role("score", "scores", scores)
        if clusters is None:
            clusters = _clusters(users, len(scores))
        exact = scores.astype(np.float64)
        probabilities = np.asarray(_as_sampled(fitted).predict(exact, columns))
        log_odds = bounded_log_odds(fitted, probabilities)
        evidence = naive(np.zeros(len(exact)) if labels is None else labels, weights=weights)
        summary = Summary.of(log_odds if fitted.terms else scores, evidence).coarsened(BINS)
        predicted = evidence.total * probabilities
        residuals = np.zeros(len(exact)) if labels is None else evidence.positive - predicted
        terms = (residuals, residuals * log_odds, predicted, evidence.total)
        sums = np.column_stack([add_up(clusters, term, CLUSTERS) for term in terms])
        if labels is None:
            return cls(date, fitted.digest, None, summary, sums)
        by_score = Summary.of(exact, evidence).coarsened(BINS) if fitted.terms else None
        by_segment = _by_level(fitted, exact, log_odds, evidence, columns)
        return cls(date, fitted.digest, summary, None, sums, by_score, by_segment)

    def __add__(self, other: Day) -> Day:
        instance("a day to add", other, Day, "Make one with Day.of(...).")
        if self.map_digest != other.map_digest:
            rule, remedy = "be of one map", f"and {other.map_digest[:15]}... ."
            raise DataError("days to merge", rule, f"{self.map_digest[:15]}..", remedy)
        # A day without labels has none by level.
        by_segment = self.by_segment or other.by_segment
        if self.by_segment and other.by_segment:
            pairs = zip(self.by_segment, other.by_segment, strict=True)
            by_segment = tuple([_limited(one + two) for one, two in pairs])
        return replace(
            self,
            date=max(self.date, other.date),
            labelled=_merged(self.labelled, other.labelled),
            unlabelled=_merged(self.unlabelled, other.unlabelled),
            sums=self.sums + other.sums,
            by_score=_merged(self.by_score, other.by_score),
            by_segment=by_segment,
        )

    def __repr__(self) -> str:
        return f"Day({self.date}, {self.rows:,} scores, {self.labels:,} labels)"

    @property
    def labels(self) -> int:
        """The number of labelled rows."""
        return 0 if self.labelled is None else self.labelled.rows

    @property
    def rows(self) -> int:
        """The number of scores."""
        return self.labels + (0 if self.unlabelled is None else self.unlabelled.rows)

    @property
    def scores(self) -> Summary:
        """The scores of all rows, labelled or not."""
        found = _merged(self.labelled, self.unlabelled)
        if found is None:
            raise DataError("a day", "hold at least one row", "none")
        return found

    def save(self, path: Path) -> None:
        """Write the day to a file, atomically."""
        arrays: Arrays = {
            "version": np.array(_VERSION),
            "date": np.array(self.date),
            "map_digest": np.array(self.map_digest),
            "sums": self.sums,
        }
        parts = {f"{name}_": getattr(self, name) for name in _PARTS}
        parts |= {_prefix(place): sums for place, sums in enumerate(self.by_segment)}
        for prefix, part in parts.items():
            packed = {} if part is None else part.to_arrays()
            arrays |= {prefix + name: values for name, values in packed.items()}
        write_arrays(path, arrays)

    @classmethod
    def load(cls, path: Path) -> Day:
        """Read a day that `save` wrote; every array is checked."""
        try:
            return cls._of_arrays(read_arrays(path, _LARGEST_FILE))
        except (ValueError, KeyError) as error:
            raise DataError(
                path,
                "be a day that calibrank saved",
                f"another or a damaged file: {error}",
                "Delete it or copy it again.",
            ) from None

    @classmethod
    def _of_arrays(cls, arrays: Arrays) -> Day:
        if int(arrays["version"]) != _VERSION:
            raise ValueError(f"its version is {arrays['version']}, and {_VERSION} is needed")
        sums = arrays["sums"]
        if sums.shape != (CLUSTERS, 4) or not np.isfinite(sums.astype(float)).all():
            raise ValueError(f"sums are not {CLUSTERS} x 4 finite numbers")
        date = date_of("date", str(arrays["date"]))
        summaries = {}
        for name in _PARTS:
            packed = _with_prefix(arrays, f"{name}_")
            summaries[name] = Summary.of_arrays(packed) if packed else None
        by_segment: list[SegmentSums] = []
        while packed := _with_prefix(arrays, _prefix(len(by_segment))):
            by_segment.append(SegmentSums.of_arrays(packed))
        digest = str(arrays["map_digest"])
        return cls(date, digest, sums=sums, by_segment=tuple(by_segment), **summaries)


_PARTS = ("labelled", "unlabelled", "by_score")


def _prefix(place: int) -> str:
    """Of the names of arrays by level."""
    return f"by_segment{place or ''}_"


def _with_prefix(arrays: Arrays, prefix: str) -> Arrays:
    """The arrays whose names have a prefix, without it."""
    found = {name: values for name, values in arrays.items() if name.startswith(prefix)}
    return {name.removeprefix(prefix): values for name, values in found.items()}


def _merged(first: Summary | None, second: Summary | None) -> Summary | None:
    """The sum of two summaries, in as many bins as a day has at most."""
    if first is None or second is None:
        return first or second
    return (first + second).coarsened(BINS)


def _clusters(users: IdsLike | None, rows: int) -> npt.NDArray[np.intp]:
    if users is None:
        return row_partitions(0, rows, CLUSTERS)
    names, codes = np.unique(ids("users", users, rows), return_inverse=True)
    return hash_partitions(names.tolist(), CLUSTERS)[codes]


def proportional(mass: Floats, count: int) -> Indices:
    """Places of rows, each as often as its mass says (systematic sampling)."""
    cumulative = np.cumsum(mass)
    levels = (np.arange(count) + 0.5) / count * cumulative[-1]
    return np.searchsorted(cumulative, levels).clip(max=len(mass) - 1)


class LevelRows(NamedTuple):
    """Sums by level as rows of a table: one per level and bin."""

    scores: Floats
    """The mean score of each; log odds where the map has other terms than the level."""
    evidence: Evidence
    columns: dict[str, npt.NDArray[Any]]
    levels: Indices
    """The place of each row's level among the keys of the sums."""

    @classmethod
    def of(cls, sums: SegmentSums) -> LevelRows:
        """The rows of sums by level, which are much fewer than those of the table."""
        cells = sums.cells.occupied()
        levels = np.repeat(np.arange(len(sums.keys)), np.diff(cells.starts))
        columns = {}
        for depth, name in enumerate(sums.names):
            values = [key[depth] if depth < len(key) else None for key in sums.keys]
            columns[name] = np.array(values, dtype=object)[levels]
        evidence = Evidence.trusted(cells.positive, cells.total, sums.kind or "naive")
        return cls(cells.scores, evidence, columns, levels)


def level_alone(fitted: CalibrationMap) -> LevelTerm | None:
    """The level that is the only term of a map, if it has one."""
    only = fitted.terms[0] if len(fitted.terms) == 1 else None
    return only if isinstance(only, LevelTerm) else None


def _by_level(
    fitted: CalibrationMap, scores: Floats, log_odds: Floats, evidence: Evidence, columns: Any
) -> tuple[SegmentSums, ...]:
    """The evidence of rows by each level of the map."""
    alone = level_alone(fitted)
    pooled = log_odds if alone is None else scores
    found = []
    for term in fitted.terms:
        if isinstance(term, LevelTerm):
            names: Sequence[str] = term.columns[:1] if alone is None else term.columns
            sums = SegmentSums(names=names)
            sums.add(pooled, evidence, encode_columns(names, columns, len(scores)))
            found.append(_limited(sums))
    return tuple(found)


def _limited(sums: SegmentSums) -> SegmentSums:
    """The sums without rows, if there are too many levels."""
    if len(sums.keys) <= MOST_SEGMENTS:
        return sums
    return SegmentSums(names=sums.names, kind=sums.kind)
