"""Which columns of a table are used, in which role, and how its labels become evidence.

A column of weights that a reader forgets to name changes every probability. Parquet files that
calibrank writes therefore record the roles of their columns, and commands use these unless an
option names another column.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from calibrank.errors import DataError
from calibrank.evidence import EvidenceFunction, impressions, naive
from calibrank.maps import CalibrationMap
from calibrank.propensity import Position
from calibrank.tabular.labels import LabelRule

ROLES_KEY = b"calibrank"
"""The key of the record in the metadata of a Parquet schema."""

RELATIVE_PROPENSITY = "relative_propensity"
"""Role and name of the column of propensities that calibrank estimates: right up to a factor."""

EXPOSURE = "exposure"
"""Role and name of the column of P(shown), right up to a factor, in a log of impressions."""

LOG_KINDS = ("positives", "impressions")
"""What rows with label 0 are: unobserved pairs, or pairs that were shown and not liked."""

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Roles:
    """Column names by role, and the command that recorded them.

    >>> roles = Roles({"weight": "w"}, "calibrank train")
    >>> roles.added("calibrank score", score="s").column("score")
    's'
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    written_by: str = "calibrank"
    log: str | None = None
    """What the rows are: one of `LOG_KINDS`, if it was recorded."""

    def column(self, role: str) -> str | None:
        """The column that has a role, if one was recorded."""
        return self.columns.get(role)

    def added(self, written_by: str, **columns: str) -> Roles:
        """These roles and others, as another command records them."""
        return replace(self, columns={**self.columns, **columns}, written_by=written_by)

    def metadata(self) -> dict[bytes, bytes]:
        """The record as metadata of a schema."""
        record: dict[str, Any] = {
            "roles": dict(self.columns),
            "written_by": self.written_by,
            "version": _VERSION,
        }
        if self.log is not None:
            record["log"] = self.log
        return {ROLES_KEY: json.dumps(record).encode()}


def roles_of(schema: pa.Schema) -> Roles:
    """The recorded roles of the columns that a schema still has; none without a record."""
    record = _parsed((schema.metadata or {}).get(ROLES_KEY, b"{}"))
    if record.get("version") != _VERSION:
        return Roles()
    recorded = record.get("roles")
    if not isinstance(recorded, dict):
        return Roles()
    # Another program may have dropped or renamed a column and kept the metadata.
    columns = {role: name for role, name in recorded.items() if name in schema.names}
    log = record.get("log")
    known_log = log if log in LOG_KINDS else None
    return Roles(columns, str(record.get("written_by", "calibrank")), known_log)


def _parsed(text: bytes) -> dict[str, Any]:
    """The record, or nothing if the key holds something else."""
    try:
        record = json.loads(text)
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


@dataclass(frozen=True, slots=True)
class Columns:
    """Column names by role, and the function that turns labels into evidence."""

    score: str
    label: str
    """The label column, or the first column of `label_rule`."""
    evidence: EvidenceFunction
    propensity: str | None = None
    assumption: str = "relative propensities"
    """What is assumed about the propensity column; see `calibrank.maps.sensitivity`."""
    item: str | None = None
    weight: str | None = None
    user: str | None = None
    label_rule: LabelRule | None = None
    """How labels are made, unless the label column holds 0 and 1."""
    examination: Position | None = None
    """Examination by rank, if the propensity column holds ranks."""
    exposure: tuple[str, ...] = ()
    """Columns of ids (of `ids`) whose numbers of impressions determine a pair's exposure."""
    negatives_kept: float = 1.0
    """The fraction of the rows without a positive label that was kept in the table."""
    score_is: str = "score"
    """The rule for the score column: "score", or "probability" where these are evaluated."""
    others: tuple[str, ...] = ()
    """Columns of any type that are read but not checked."""
    segments: tuple[str, ...] = ()
    """Columns of text or ids whose values are levels of the map."""
    features: Mapping[str, str] = field(default_factory=dict)
    """Numeric columns that change the map, with the role whose rule they keep."""

    def __post_init__(self) -> None:
        taken: dict[str, str] = {}
        roles = ("score", "label", "propensity", "weight", "item", "user")
        for role in roles:
            name = getattr(self, role)
            if name is not None and name in taken:
                raise DataError(
                    f"{taken[name]} and {role}", "be different columns", f"{name!r} for both"
                )
            if name is not None:
                taken[name] = role
        used = {self.score: "score", self.label: "label"}
        if self.label_rule is not None:
            used |= dict.fromkeys([*self.label_rule.columns.values(), *self.label_texts], "label")
        for name in (*self.segments, *self.features):
            if name in used:
                rule, found = "be known before the label", f"{name!r}, the {used[name]} column"
                raise DataError("segments and features", rule, found, "Name other columns.")

    def used_by(self, fitted: CalibrationMap) -> Columns:
        """These columns and those that a map uses."""
        return replace(self, segments=fitted.level_columns, features=fitted.number_columns)

    @property
    def checked(self) -> dict[str, str]:
        """Numeric columns by role; each role has a rule."""
        columns = {self.score_is: self.score}
        columns |= {"label": self.label} if self.label_rule is None else self.label_rule.columns
        if self.propensity is not None:
            role = "propensity" if self.examination is None else "rank"
            columns[role] = self.propensity
        if self.weight is not None:
            columns["weight"] = self.weight
        return columns

    @property
    def label_texts(self) -> tuple[str, ...]:
        """Columns of text that labels are made from."""
        return () if self.label_rule is None else self.label_rule.texts

    @property
    def has_binary_labels(self) -> bool:
        """Whether every label is 0 or 1."""
        return self.label_rule is None or self.label_rule.is_binary

    @property
    def ids(self) -> list[str]:
        """Columns of ids."""
        return [name for name in (self.item, self.user) if name is not None]

    @property
    def read(self) -> list[str]:
        """All columns to read, each once."""
        names = [*self.checked.values(), *self.label_texts, *self.ids, *self.others]
        names += [*self.segments, *self.features]
        return list(dict.fromkeys(names))

    @property
    def needs_popularity(self) -> bool:
        """Whether propensities must be estimated from the popularity of items."""
        return self.evidence not in (naive, impressions) and self.propensity is None

    @property
    def needs_exposure(self) -> bool:
        """Whether propensities of being shown must be estimated by counting impressions."""
        return self.evidence is impressions and self.propensity is None and bool(self.exposure)
