"""One batch of rows to pool: checked, and without rows of weight zero."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from calibrank._internal.validation import Floats, Numbers, score_column, starts_of
from calibrank.errors import DataError
from calibrank.evidence import Evidence, Labels, as_evidence

# Scores compared at a time while the distinct ones are collected.
_BLOCK = 2**20


class Batch(NamedTuple):
    """Scores and evidence of rows with nonzero weight, and the range of these scores."""

    scores: Floats
    evidence: Evidence
    low: float
    high: float

    @classmethod
    def of(cls, scores: Numbers, labels: Labels) -> Batch:
        """Check scores and labels, and drop rows whose total is zero."""
        scores, low, high = score_column(scores)
        evidence = as_evidence(labels, len(scores))
        if evidence.unit_weights or evidence.total.all():
            return cls(scores, evidence, low, high)
        kept = evidence.total > 0
        if not kept.any():
            raise DataError("weights", "not all be zero", f"{len(scores):,} rows of weight zero")
        scores = scores[kept]
        return cls(scores, evidence.rows(kept), float(scores.min()), float(scores.max()))


def has_few_distinct(scores: Floats, limit: int) -> bool:
    """Whether at most `limit` scores are distinct.

    Continuous scores are recognised from the first rows, without sorting all of them.
    """
    if len(scores) <= limit:
        return True
    # An eighth more than the limit: some ties among continuous scores do no harm.
    first = np.sort(scores[: limit + limit // 8])
    seen = first[starts_of(first)]
    for start in range(0, len(scores), _BLOCK):
        if len(seen) > limit:
            return False
        seen = np.union1d(seen, scores[start : start + _BLOCK])
    return len(seen) <= limit
