"""What is kept of one day: summaries of its scores and labels, and sums per cluster of users."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from calibrank._internal.arguments import date_of, instance, real
from calibrank._internal.logit import expit, logit
from calibrank._internal.npz import Arrays, read_arrays, write_arrays
from calibrank._internal.validation import (
    Floats,
    IdsLike,
    Numbers,
    add_up,
    column,
    ids,
    require_role,
)
from calibrank.errors import DataError
from calibrank.evidence import naive
from calibrank.maps import CalibrationMap
from calibrank.maps.calibration_map import require_map
from calibrank.metrics.calibration_test import row_variances
from calibrank.monitor.segment_evidence import (
    BINS,
    LevelRows,
    SegmentEvidence,
    evidence_by_level,
    evidence_from_arrays,
    evidence_to_arrays,
    level_alone,
    merged,
    merged_evidence,
    with_prefix,
)
from calibrank.summary import Summary
from calibrank.tables import hash_partitions, row_partitions

CLUSTERS = 128
"""The number of clusters that users are hashed into, the same one on every day and host.

The variance of a sum over so many clusters is estimated with a standard error of 12%.
"""

# A few hundred kilobytes, or 2 kB for each of 20,000 segments, and their names.
_LARGEST_FILE = 2**26

# Log odds of probabilities of 0 and 1, which step maps can have.
_LARGEST_LOG_ODDS = 15.0

_VERSION = 2
_PARTS = ("labelled", "unlabelled")

LEVEL, SLOPE, PREDICTED, TOTAL = range(4)
"""Columns of `Day.sums`."""

SHIFTS = (-0.75, 0.75)
"""Changes of the level of which a day keeps what an exact likelihood ratio needs.

Where positives are rare, half as many or twice as many are a change of the log odds by 0.7 to 0.8.
"""


def digest_of_map(fitted: CalibrationMap) -> str:
    """The digest that `fitted.save` writes, by which days know the map that was deployed."""
    require_map(fitted)
    return fitted.digest


class PooledRows(NamedTuple):
    """Rows as a day pools them: by scores that alone determine the probability."""

    scores: Floats
    probabilities: Floats
    log_odds: Floats


def pool_rows(fitted: CalibrationMap, scores: Floats, columns: Any = None) -> PooledRows:
    """Scores as they are, or the log odds of rows if the map has terms."""
    require_map(fitted)
    require_role("score", "scores", scores)
    exact = scores.astype(np.float64)
    sampled = _as_sampled(fitted)
    probabilities = np.asarray(sampled.predict(exact, columns))
    if fitted.terms:
        log_odds = _bounded(logit(probabilities))
        return PooledRows(log_odds, probabilities, log_odds)
    return PooledRows(scores, probabilities, _bounded(np.asarray(sampled.log_odds(exact))))


def probabilities_of(fitted: CalibrationMap, scores: Floats) -> Floats:
    """The probabilities of the scores of a day's summaries."""
    probabilities: Floats = expit(scores) if fitted.terms else _as_sampled(fitted).predict(scores)
    return probabilities


def probabilities_by_level(fitted: CalibrationMap, rows: LevelRows) -> Floats:
    """The probabilities of a day's rows by level."""
    if level_alone(fitted) is None:
        return np.asarray(expit(rows.scores))
    return np.asarray(_as_sampled(fitted).predict(rows.scores, rows.columns))


def _as_sampled(fitted: CalibrationMap) -> CalibrationMap:
    """The map of a table in which negatives are sampled as in the table of the fit.

    Random labels, which an anchored map is compared with, are not sampled.
    """
    record = fitted.record
    if record.negatives_kept is None or record.base_rate_source == "random labels":
        return fitted
    return fitted.moved(-float(np.log(record.negatives_kept)))


def _bounded(log_odds: Floats) -> Floats:
    result: Floats = np.clip(log_odds, -_LARGEST_LOG_ODDS, _LARGEST_LOG_ODDS)
    return result


@dataclass(frozen=True, slots=True, eq=False)
class Day:
    """One day of a deployed map: additive sums of a few hundred kilobytes (2 kB more per segment).

    `+` merges parts of a day or several days, a factor weights them (exponential decay).

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
    variances: Floats
    """Model variances of residuals times 1, log odds and squared log odds, summed over rows."""
    cumulants: Floats
    """For each of `SHIFTS`, the log of the expectation of exp(shift * residual), over rows."""
    by_segment: tuple[SegmentEvidence, ...] = ()
    """The labels by level, for each level of the map."""

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
    ) -> Day:
        """Sum up rows of one day that have labels, or of one day that have none yet.

        With `users`, labels of one user may depend on each other, also between days. `columns` has
        the columns of the map's terms, by name (a mapping or a dataframe); rows are then pooled by
        their log odds instead of their scores. Negatives are sampled as in the table of the fit,
        if the map's record says that they were.
        """
        array = column("scores", scores)
        clusters = _clusters(users, len(array))
        return cls.of_clusters(fitted, array, labels, weights, clusters, date, columns)

    @classmethod
    def of_clusters(
        cls,
        fitted: CalibrationMap,
        scores: Floats,
        labels: Numbers | None,
        weights: Numbers | None,
        clusters: npt.NDArray[np.intp],
        date: str,
        columns: Any,
    ) -> Day:
        """As `of`, with the cluster of users of each row."""
        date_of("date", date)
        pooled = pool_rows(fitted, scores, columns)
        probabilities = pooled.probabilities
        log_odds = pooled.log_odds
        rows = len(log_odds)
        given = np.zeros(rows) if labels is None else labels
        evidence = naive(given, weights=weights)
        summary = Summary.of(pooled.scores, evidence).coarsened(BINS)
        residuals = evidence.positive - evidence.total * probabilities
        variance = row_variances(probabilities, evidence)
        cumulants = _cumulants(probabilities, evidence.total)
        by_segment: tuple[SegmentEvidence, ...] = ()
        if labels is not None:
            exact = scores.astype(np.float64)
            by_segment = evidence_by_level(fitted, exact, log_odds, evidence, columns)
        else:
            residuals = np.zeros(rows)
            variance = np.zeros(rows)
            cumulants = np.zeros(len(SHIFTS))
        terms = (residuals, residuals * log_odds, evidence.total * probabilities, evidence.total)
        return cls(
            date=date,
            map_digest=digest_of_map(fitted),
            labelled=None if labels is None else summary,
            unlabelled=summary if labels is None else None,
            sums=np.column_stack([add_up(clusters, term, CLUSTERS) for term in terms]),
            variances=np.array([variance @ log_odds**power for power in range(3)]),
            cumulants=cumulants,
            by_segment=by_segment,
        )

    def __add__(self, other: Day) -> Day:
        instance("a day to add", other, Day, "Make one with Day.of(...).")
        if self.map_digest != other.map_digest:
            raise DataError(
                "days to merge",
                "be of one map",
                f"{self.map_digest[:15]}..",
                f"and {other.map_digest[:15]}... .",
            )
        return replace(
            self,
            date=max(self.date, other.date),
            labelled=merged(self.labelled, other.labelled),
            unlabelled=merged(self.unlabelled, other.unlabelled),
            sums=self.sums + other.sums,
            variances=self.variances + other.variances,
            cumulants=self.cumulants + other.cumulants,
            by_segment=merged_evidence(self.by_segment, other.by_segment),
        )

    def __radd__(self, other: object) -> Day:
        # The built-in `sum` starts from the number 0.
        return self if other == 0 else NotImplemented

    def __mul__(self, factor: float) -> Day:
        factor = real("a factor of a day", factor, "[1e-100, 1e100]", "E.g. 0.9 * day.")
        return replace(
            self,
            labelled=None if self.labelled is None else factor * self.labelled,
            unlabelled=None if self.unlabelled is None else factor * self.unlabelled,
            sums=factor * self.sums,
            variances=factor**2 * self.variances,
            # To second order, as half the squared shift times a variance.
            cumulants=factor**2 * self.cumulants,
            by_segment=tuple([factor * each for each in self.by_segment]),
        )

    __rmul__ = __mul__

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
        found = merged(self.labelled, self.unlabelled)
        if found is None:
            raise DataError("a day", "hold at least one row", "none")
        return found

    def save(self, path: Path) -> None:
        """Write the day to a file, atomically."""
        arrays: dict[str, Any] = {
            "version": np.int64(_VERSION),
            "date": np.array(self.date),
            "map_digest": np.array(self.map_digest),
            "sums": self.sums,
            "variances": self.variances,
            "cumulants": self.cumulants,
        }
        for part in _PARTS:
            summary = getattr(self, part)
            if summary is not None:
                packed = summary.to_arrays()
                arrays |= {f"{part}_{name}": values for name, values in packed.items()}
        write_arrays(path, arrays | evidence_to_arrays(self.by_segment))

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
        shapes = {"sums": (CLUSTERS, 4), "variances": (3,), "cumulants": (len(SHIFTS),)}
        for name, shape in shapes.items():
            values = arrays[name]
            if values.shape != shape or not np.isfinite(values.astype(float)).all():
                raise ValueError(f"{name} are not {shape} finite numbers")
        date = str(arrays["date"])
        date_of("date", date)
        return cls(
            date=date,
            map_digest=str(arrays["map_digest"]),
            labelled=_part(arrays, "labelled"),
            unlabelled=_part(arrays, "unlabelled"),
            sums=arrays["sums"],
            variances=arrays["variances"],
            cumulants=arrays["cumulants"],
            by_segment=evidence_from_arrays(arrays),
        )


def _part(arrays: Arrays, part: str) -> Summary | None:
    own = with_prefix(arrays, f"{part}_")
    return Summary.of_arrays(own) if own else None


def _cumulants(probabilities: Floats, weights: Floats) -> Floats:
    """The sum of log(1 - p + p e^(shift * weight)) - shift * weight * p for each shift."""
    with np.errstate(divide="ignore"):
        log_positive = np.log(probabilities)
        log_negative = np.log1p(-probabilities)
    sums = []
    for shift in SHIFTS:
        tilted = np.logaddexp(log_negative, log_positive + shift * weights)
        sums.append(np.sum(tilted - shift * weights * probabilities))
    return np.array(sums)


def _clusters(users: IdsLike | None, rows: int) -> npt.NDArray[np.intp]:
    if users is None:
        return row_partitions(0, rows, CLUSTERS)
    names, codes = np.unique(ids("users", users, rows), return_inverse=True)
    return hash_partitions(names.tolist(), CLUSTERS)[codes]
