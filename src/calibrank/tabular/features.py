"""Read the rows of a table with the columns of terms into memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from calibrank._internal.segment_keys import Encoded
from calibrank._internal.validation import Floats
from calibrank.errors import DataError
from calibrank.evidence import Evidence, make_evidence
from calibrank.tabular._fold import first_evidence
from calibrank.tabular.batch import indices_of
from calibrank.tabular.columns import Columns
from calibrank.tabular.exposure import TableExposure
from calibrank.tabular.files import Progress, schema_to_save
from calibrank.tabular.popularity import POPULARITY, encode_ids, item_exposure, widen_ids
from calibrank.tabular.read import Table
from calibrank.tabular.rows import Rows, rows_of
from calibrank.tabular.rules import Rules
from calibrank.tabular.segment_codes import as_segments
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
                got="more",
                remedy="Use levels alone, or a random sample of the rows.",
            )
        if exposure is not None:
            rows = replace(rows, propensity=exposure.propensity(rows))
        batches.append(rows)
    if not batches:
        raise DataError(table.name, "hold at least one valid row", got="none", remedy="Check it.")
    features: dict[str, Floats | Encoded] = {}
    for place, name in enumerate(columns.features):
        parts = [rows.features[place] for rows in batches]
        features[name] = np.concatenate(parts).astype(np.float64)
    for place, name in enumerate(columns.segments):
        features[name] = _joined([as_segments(rows.segments[place]) for rows in batches])
    return FeatureRows(
        np.concatenate([rows.scores for rows in batches]).astype(np.float64),
        _evidence(columns, batches),
        features,
        _users(batches),
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
    codes = encode_ids([widen_ids(cast("pa.Array", rows.items)) for rows in batches])
    counts = np.zeros(max(int(code.max()) for code in codes) + 1)
    for code, rows in zip(codes, batches, strict=True):
        weights = rows.labels * (1.0 if rows.weights is None else rows.weights)
        np.add.at(counts, code, weights)
    by_item = item_exposure(counts)
    parts = []
    for code, rows in zip(codes, batches, strict=True):
        # Only the propensities of positives count; items without any have none.
        exposure = np.where(rows.labels != 0, by_item[code], 1.0)
        propensity = POPULARITY.propensity(exposure)
        parts.append(make_evidence(columns.evidence, rows.labels, propensity, rows.weights))
    return parts


def _joined(parts: Sequence[Encoded]) -> Encoded:
    numbers: dict[str | None, int] = {}
    codes = []
    for part in parts:
        # Only values of rows: a missing one has a code whether it occurs or not.
        used, inverse = np.unique(part.codes, return_inverse=True)
        values = [part.values[code] for code in used.tolist()]
        places = [numbers.setdefault(value, len(numbers)) for value in values]
        codes.append(np.array(places, dtype=np.intp)[inverse])
    return Encoded(np.concatenate(codes), list(numbers))


def _users(batches: Sequence[Rows]) -> npt.NDArray[np.intp] | None:
    if batches[0].users is None:
        return None
    parts = []
    for rows in batches:
        encoded = cast("pa.Array", rows.users).dictionary_encode()
        # As text: files may store the same ids as numbers and as text.
        names: list[str | None] = [str(name) for name in encoded.dictionary.to_pylist()]
        parts.append(Encoded(indices_of(encoded).astype(np.intp), names))
    return _joined(parts).codes.astype(np.intp)
