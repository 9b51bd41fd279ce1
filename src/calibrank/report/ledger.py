"""The rows that a report is about: scores, evidence, who and what, and how rows hang together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrank._validation import Floats, IdsLike, Numbers, column, ids, score_column
from calibrank.errors import DataError
from calibrank.evidence import Evidence, ips, naive
from calibrank.summary import Summary
from calibrank.tables import hash_partitions

Codes = npt.NDArray[np.intp]

FOLDS = 5
GROUPS = 2048
"""Users fall into this many groups at most, which are what is resampled."""


@dataclass(frozen=True, slots=True, eq=False)
class Coded:
    """A column of names: a number a row, a name a number."""

    codes: Codes
    names: Sequence[str]

    @classmethod
    def of(cls, what: str, values: IdsLike, rows: int) -> "Coded":
        """Count the distinct values of a column of ids."""
        distinct, codes = np.unique(ids(what, values, rows), return_inverse=True)
        return cls(codes.astype(np.intp), [str(name) for name in distinct.tolist()])

    def counts(self) -> npt.NDArray[np.intp]:
        """How many rows each name has."""
        return np.bincount(self.codes, minlength=len(self.names))


@dataclass(frozen=True, slots=True, eq=False)
class Ledger:
    """Checked rows of one table, all in memory; `rows_in_table` tells more where only a share of it is here."""

    scores: Floats
    labels: Floats
    evidence: Evidence
    users: Coded | None
    items: Coded | None
    segments: Mapping[str, Coded | Floats]
    rows_in_table: int
    guessed: bool = False
    """Whether propensities were guessed from the popularity of items."""
    folds: Codes = field(init=False)
    groups: Codes = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "folds", _shares(self.users, len(self.scores), FOLDS))
        object.__setattr__(self, "groups", _shares(self.users, len(self.scores), GROUPS))

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def sampled(self) -> bool:
        """Whether the table holds rows that are not here."""
        return self.rows_in_table > len(self)

    @property
    def weighted(self) -> bool:
        """Whether propensities of unseen pairs set the level of what is observed: it is not identified then."""
        return self.evidence.kind not in ("naive", "impressions")

    def parts(self) -> list[Summary]:
        """A summary of each fold."""
        folds = range(int(self.folds.max()) + 1)
        masks = [self.folds == fold for fold in folds]
        return [Summary.of(self.scores[mask], self.evidence.rows(mask)) for mask in masks]

    def held_out(self, maps: Sequence[Any]) -> Floats:
        """Each row's probability by the map of its fold."""
        result = np.empty(len(self))
        for fold, fitted in enumerate(maps):
            mask = self.folds == fold
            result[mask] = fitted.predict(self.scores[mask])
        return result


def make_ledger(
    scores: Numbers,
    labels: Numbers | Evidence,
    *,
    users: IdsLike | None = None,
    items: IdsLike | None = None,
    propensity: Numbers | None = None,
    segments: Mapping[str, IdsLike] | None = None,
) -> Ledger:
    """A ledger of arrays; labels may be evidence already.

    >>> len(make_ledger([0.1, 0.9, 0.4], [0, 1, 0], users=["ann", "bob", "ann"]))
    3
    """
    scores = score_column(scores)[0].astype(np.float64)
    rows = len(scores)
    if isinstance(labels, Evidence):
        if propensity is not None:
            raise DataError("propensity must not be given beside evidence, which holds it already.")
        if len(labels) != rows:
            raise DataError(
                f"labels must have one value a row, got {len(labels)} values for {rows} rows."
            )
        evidence = labels
        plain: Floats = (labels.positive > 0).astype(np.float64)
    else:
        plain = column("labels", labels, rows)
        evidence = naive(plain) if propensity is None else ips(plain, propensity)
    whom = None if users is None else Coded.of("users", users, rows)
    what = None if items is None else Coded.of("items", items, rows)
    cuts = {
        name: segment_column(name, np.asarray(values), rows)
        for name, values in (segments or {}).items()
    }
    return Ledger(scores, plain, evidence, whom, what, cuts, rows)


def segment_column(name: str, values: npt.NDArray[Any], rows: int) -> Coded | Floats:
    """A column to cut rows by: numbers of many values stay numbers, all else are names."""
    if values.shape != (rows,):
        raise DataError(
            f"{name} must have one value a row, got shape {values.shape} for {rows} rows."
        )
    if values.dtype.kind in "iuf" and len(np.unique(values)) > 12:
        return values.astype(np.float64)
    texts = np.array([_text(value) for value in values.tolist()], dtype=object)
    distinct, codes = np.unique(texts.astype(np.str_), return_inverse=True)
    return Coded(codes.astype(np.intp), distinct.tolist())


def _text(value: Any) -> str:
    missing = value is None or (isinstance(value, float) and np.isnan(value))
    return "(missing)" if missing else str(value)


def _shares(users: Coded | None, rows: int, shares: int) -> Codes:
    """A share for each row, by its user; shares that nobody falls into do not count."""
    if users is not None:
        homes = hash_partitions(users.names, shares)
        if len(np.unique(homes)) > 1:
            return np.unique(homes, return_inverse=True)[1].astype(np.intp)[users.codes]
    return np.arange(rows, dtype=np.intp) % min(shares, rows)
