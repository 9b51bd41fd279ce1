"""Read the rows of a table with the columns of terms into memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from calibrank._internal.segment_keys import Encoded
from calibrank._internal.validation import Floats
from calibrank.errors import DataError
from calibrank.evidence import Evidence
from calibrank.tabular.batch import IdNumbers
from calibrank.tabular.columns import Columns
from calibrank.tabular.files import Progress, schema_to_save
from calibrank.tabular.propensity import TableExposure, evidence_of, exposure_of
from calibrank.tabular.read import Table
from calibrank.tabular.rows import Rows, rows_of
from calibrank.tabular.rules import Rules
from calibrank.tabular.segment_codes import join_segments
from calibrank.terms.rows import MOST_ROWS


@dataclass(frozen=True, slots=True, eq=False)
class FeatureRows:
    """All rows of a table: scores, evidence, features by name, and users where there are any."""

    scores: Floats
    evidence: Evidence
    features: dict[str, Floats | Encoded]
    users: npt.NDArray[np.intp] | None


def is_level_column(table: Table, name: str) -> bool:
    """Whether a column holds text or booleans by its type; of CSV, by that of a Parquet copy."""
    kind = schema_to_save(table.files[0]).field(name).type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return not (pa.types.is_integer(kind) or pa.types.is_floating(kind))


def read_features(
    table: Table,
    columns: Columns,
    rules: Rules,
    exposure: TableExposure | None = None,
    progress: Progress | None = None,
) -> FeatureRows:
    """Read all valid rows; `columns.features` are numbers and `columns.segments` categories."""
    batches: list[Rows] = []
    for rows in rows_of(table, columns, rules, progress):
        batches.append(rows)
        if sum(map(len, batches)) > MOST_ROWS:
            raise DataError(
                table.name,
                f"have at most {MOST_ROWS:,} rows for a fit with features, which holds them in "
                "memory",
                "more",
                "Use levels alone, or a random sample of the rows.",
            )
    if not batches:
        raise DataError(table.name, "hold at least one valid row", "none", "Check it.")
    exposure = exposure or exposure_of(columns, batches, table.name)
    if exposure is not None:
        batches = [exposure.fill(rows) for rows in batches]
    features: dict[str, Floats | Encoded] = {}
    for place, name in enumerate(columns.features):
        parts = [rows.features[place] for rows in batches]
        features[name] = np.concatenate(parts).astype(np.float64)
    for place, name in enumerate(columns.segments):
        features[name] = join_segments([rows.segments[place] for rows in batches])
    users = None
    if columns.user is not None:
        numbers = IdNumbers()
        users = np.concatenate([numbers.of(rows.users) for rows in batches])
    joined = Rows.joined(batches)
    evidence = evidence_of(columns, joined)
    return FeatureRows(joined.scores.astype(np.float64), evidence, features, users)
