"""Estimate propensities from the popularity of items, for tables without a propensity column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from calibrank._internal.validation import Floats
from calibrank.anchoring import PropensityModel
from calibrank.errors import DataError
from calibrank.propensity import Popularity
from calibrank.tabular.batch import indices_of, names_of, to_arrow
from calibrank.tabular.columns import Columns
from calibrank.tabular.ids import unify_ids

Codes: TypeAlias = npt.NDArray[np.integer[Any]]

POPULARITY = Popularity()
"""How commands turn the popularity of items into propensities."""

# Integer ids in a range of at most this size index an array of counts directly. Encoding them
# would import pyarrow.compute, which is slow to load.
_LARGEST_RANGE = 10_000_000


def item_exposure(counts: npt.NDArray[Any]) -> Floats:
    """Return the exposure of each item from the total weight of its positives."""
    if not counts.any():
        raise DataError(
            "labels", "hold a positive with nonzero weight to estimate popularity", got="none"
        )
    return POPULARITY.exposure(counts)


def propensity_model_for(columns: Columns) -> tuple[PropensityModel, str]:
    """Return the model behind the propensities, and what it assumes about exposure.

    Only logged propensities have a known scale. Others, and popularity, are relative.
    """
    if columns.propensity is not None:
        return PropensityModel(power=1, clip=0), columns.assumption
    return PropensityModel(POPULARITY.power, POPULARITY.clip), "item popularity"


def encode_ids(columns: Sequence[pa.Array]) -> list[Codes]:
    """Replace ids by integers from 0, the same id by the same integer in all columns."""
    if all(pa.types.is_integer(ids.type) for ids in columns):
        numbers = [names_of(ids) for ids in columns]
        low = min(int(ids.min()) for ids in numbers)
        high = max(int(ids.max()) for ids in numbers)
        rows = sum(len(ids) for ids in numbers)
        if high - low < min(_LARGEST_RANGE, 100 * rows):
            return [ids - low for ids in numbers]
    encoded = pa.chunked_array(unify_ids(columns)).dictionary_encode()
    # Chunks of one encoded column share its dictionary.
    return [indices_of(chunk) for chunk in encoded.chunks]


def widen_ids(ids: pa.Array) -> pa.Array:
    """Convert ids to a type that all files of a table can share.

    Files may store the same ids as int32 and int64. A large string column has 64-bit offsets, so
    concatenating many of them cannot overflow.
    """
    if pa.types.is_integer(ids.type):
        numbers = names_of(ids)
        is_unsigned = numbers.dtype == np.uint64
        if is_unsigned and len(numbers) and int(numbers.max()) >= 2**63:
            return ids.cast(pa.large_string())
        return to_arrow(numbers.astype(np.int64))
    if pa.types.is_string(ids.type):
        return ids.cast(pa.large_string())
    return ids
