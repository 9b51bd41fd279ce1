"""The rows a report is computed from: scores, evidence, users, items and clusters."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from calibrank._internal.segment_keys import Encoded, columns_by_name, encode
from calibrank._internal.validation import Floats, IdsLike, Numbers, ids, is_missing, score_column
from calibrank.errors import DataError
from calibrank.evidence import Evidence, Labels, as_evidence
from calibrank.maps import CalibrationMap
from calibrank.metrics.clustered_bootstrap import CLUSTERS, Codes
from calibrank.tables import hash_partitions

MOST_CATEGORIES = 12
"""A numeric segment column with more distinct values is binned; others are shown value by value."""

MISSING = "(missing)"


@dataclass(frozen=True, slots=True, eq=False)
class Categorical:
    """A column of categories: one code per row, one name per code."""

    codes: Codes
    names: Sequence[str]

    @classmethod
    def of(cls, what: str, values: IdsLike, rows: int) -> Categorical:
        """Encode a column of ids; `what` names it in errors."""
        distinct, codes = np.unique(ids(what, values, rows), return_inverse=True)
        return cls(codes.astype(np.intp), [str(name) for name in distinct.tolist()])

    def counts(self) -> Codes:
        """Count the rows of each category."""
        return np.bincount(self.codes, minlength=len(self.names))


@dataclass(frozen=True, slots=True, eq=False)
class ReportRows:
    """Validated rows of one table, in memory; `rows_in_table` is larger if they are a sample."""

    scores: Floats
    evidence: Evidence
    users: Categorical | None
    items: Categorical | None
    segments: Mapping[str, Categorical | Floats]
    """Columns by which calibration is shown."""
    columns: Mapping[str, Any]
    """The columns of the map's terms, as `predict` takes them."""
    rows_in_table: int
    estimated_propensity: bool = False
    """Whether propensities were estimated from the popularity of items."""
    clusters: Codes = field(init=False)
    """The cluster of users that each row is resampled with."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "clusters", self.partition(CLUSTERS))

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def base_rate_identified(self) -> bool:
        """Whether observed rates do not depend on the scale of the propensities.

        Inverse-propensity weights of positives scale every observed rate, so a biased log does
        not identify the base rate. Impressions are self-normalized: the scale cancels.
        """
        return self.evidence.kind in {"naive", "impressions"}

    def predict(self, fitted: CalibrationMap) -> Floats:
        """Probabilities of all rows, with the columns that the map needs."""
        return fitted.predict(self.scores, self.columns)

    def partition(self, most: int) -> Codes:
        """Assign rows to at most `most` nonempty partitions, by a hash of the user if possible."""
        if self.users is not None:
            hashed = hash_partitions(self.users.names, most)
            nonempty, compact = np.unique(hashed, return_inverse=True)
            if len(nonempty) > 1:
                return compact.astype(np.intp)[self.users.codes]
        # Without at least two partitions of users, rows are treated as independent.
        return np.arange(len(self), dtype=np.intp) % min(most, len(self))


def rows_from_arrays(
    scores: Numbers,
    labels: Labels,
    *,
    users: IdsLike | None = None,
    items: IdsLike | None = None,
    columns: Any = None,
    levels: Collection[str] = (),
) -> ReportRows:
    """Validate arrays as rows of a report; labels may be evidence already.

    Columns among `levels` are read as a map reads them, whatever their type.

    >>> len(rows_from_arrays([0.1, 0.9, 0.4], [0, 1, 0], users=["ann", "bob", "ann"]))
    3
    """
    scores = score_column(scores)[0].astype(np.float64)
    rows = len(scores)
    evidence = as_evidence(labels, rows)
    given = {} if columns is None else columns_by_name("columns", columns)
    segments = {}
    for name, values in given.items():
        if name in levels:
            given[name] = encode(name, values)
        segments[name] = segment_column(name, given[name], rows)
    return ReportRows(
        scores=scores,
        evidence=evidence,
        users=None if users is None else Categorical.of("users", users, rows),
        items=None if items is None else Categorical.of("items", items, rows),
        segments=segments,
        columns=given,
        rows_in_table=rows,
    )


def segment_column(name: str, values: Any, rows: int) -> Categorical | Floats:
    """Prepare a segment column: numbers if it has many numeric values, else categories."""
    if isinstance(values, Encoded):
        values = np.array(values.values, dtype=object)[values.codes]
    values = np.asarray(values)
    if values.shape != (rows,):
        raise DataError(name, "have one value per row", f"shape {values.shape} for {rows} rows")
    if values.dtype.kind in "iuf" and len(np.unique(values)) > MOST_CATEGORIES:
        return values.astype(np.float64)
    names = [_category_name(value) for value in values.tolist()]
    texts = np.array(names, dtype=np.str_)
    distinct, codes = np.unique(texts, return_inverse=True)
    return Categorical(codes.astype(np.intp), distinct.tolist())


def _category_name(value: Any) -> str:
    """As levels are written: a boolean is true or false, and a whole number has no decimals."""
    if is_missing(value):
        return MISSING
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).lower() if isinstance(value, bool) else str(value)
