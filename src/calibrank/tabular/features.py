"""Read the rows of a table with the columns of terms into memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from calibrank._internal.segment_keys import Encoded
from calibrank._internal.validation import Floats
from calibrank.errors import DataError
from calibrank.evidence import Evidence, make_evidence
from calibrank.tabular._fold import first_evidence
from calibrank.tabular.batch import IdNumbers
from calibrank.tabular.columns import Columns
from calibrank.tabular.files import Progress, schema_to_save
from calibrank.tabular.propensity import POPULARITY, TableExposure, estimate_exposure
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
    batches = []
    count = 0
    for rows in rows_of(table, columns, rules, progress):
        count += len(rows)
        if count > MOST_ROWS:
            raise DataError(
                table.name,
                (
                    f"have at most {MOST_ROWS:,} rows for a fit with features, which holds "
                    "them in memory"
                ),
                "more",
                "Use levels alone, or a random sample of the rows.",
            )
        if exposure is not None:
            rows = replace(rows, propensity=exposure.propensity(rows))
        batches.append(rows)
    if not batches:
        raise DataError(table.name, "hold at least one valid row", "none", "Check it.")
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
    return FeatureRows(
        np.concatenate([rows.scores for rows in batches]).astype(np.float64),
        _evidence(columns, batches),
        features,
        users,
    )


def _evidence(columns: Columns, batches: Sequence[Rows]) -> Evidence:
    if columns.needs_popularity:
        parts = _weighted_by_popularity(columns, batches)
    else:
        parts = [first_evidence(columns, rows) for rows in batches]
    positive = np.concatenate([part.positive for part in parts]).astype(np.float64)
    total = np.concatenate([part.total for part in parts]).astype(np.float64)
    return Evidence.trusted(positive, total, parts[0].kind)


def _weighted_by_popularity(columns: Columns, batches: Sequence[Rows]) -> list[Evidence]:
    """As `aggregate` weights positives: by the popularity of their items among positives."""
    parts = []
    for exposure, rows in zip(estimate_exposure(batches), batches, strict=True):
        propensity = POPULARITY.propensity(exposure)
        parts.append(make_evidence(columns.evidence, rows.labels, propensity, rows.weights))
    return parts
