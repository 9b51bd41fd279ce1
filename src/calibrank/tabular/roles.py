"""The roles of columns, recorded in the Parquet files that calibrank writes.

A column of weights that a reader forgets to name changes every probability. Files that calibrank
writes therefore say what their columns are for, and commands use that unless an option names
another column.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

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
