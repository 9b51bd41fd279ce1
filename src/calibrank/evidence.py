"""Evidence: all that is left of labels, propensities and weights once they reach the mathematics."""

from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from calibrank._validation import Floats, Numbers, column, is_binary, is_mass, on_gpu, require
from calibrank.errors import DataError


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """How much each row argues for preference, and how much it was heard at all.

    Every loss and metric is linear in the pair, so `positive` may exceed `total`: an
    inverse-propensity positive does. `kind` names where it came from and travels into saved maps.

    >>> Evidence([1.0, 0.0], [1.0, 1.0])
    Evidence(2 rows, positive=1, total=2, kind='given')
    """

    positive: Floats
    total: Floats
    kind: str = "given"

    def __init__(self, positive: Numbers, total: Numbers, kind: str = "given") -> None:
        positive = column("positive", positive)
        total = column("total", total, len(positive))
        remedy = "Evidence is a mass: drop the row or mend its weight."
        require(is_mass, "positive", "be finite and not negative", positive, remedy)
        require(is_mass, "total", "be finite and not negative", total, remedy)
        heard = np.where(positive > 0, total, 1)
        require(_is_above_0, "total", "be above 0 where positive is", heard, remedy)
        object.__setattr__(self, "positive", positive)
        object.__setattr__(self, "total", total)
        object.__setattr__(self, "kind", kind)

    def __len__(self) -> int:
        return len(self.positive)

    def __repr__(self) -> str:
        masses = f"positive={self.positive.sum():.6g}, total={self.total.sum():.6g}"
        return f"Evidence({len(self):,} rows, {masses}, kind={self.kind!r})"

    def rows(self, chosen: slice | npt.NDArray[Any]) -> "Evidence":
        """The evidence of some rows."""
        return Evidence.trusted(self.positive[chosen], self.total[chosen], self.kind)

    @classmethod
    def trusted(cls, positive: Floats, total: Floats, kind: str) -> Self:
        """Skip the checks: for code that has made sure of them already."""
        evidence = object.__new__(cls)
        object.__setattr__(evidence, "positive", positive)
        object.__setattr__(evidence, "total", total)
        object.__setattr__(evidence, "kind", kind)
        return evidence


Labels: TypeAlias = Numbers | Evidence
"""What every `fit` and metric takes: 0/1 labels, or evidence made from them."""


def naive(labels: Numbers, *, weights: Numbers | None = None) -> Evidence:
    """Take labels at their word: an unobserved pair counts as disliked (Eq. 13).

    >>> naive([1, 0, 0])
    Evidence(3 rows, positive=1, total=3, kind='naive')
    """
    positive = _labels(labels)
    return _weighted(positive, _ones(len(positive)), weights, "naive")


def ips(labels: Numbers, propensity: Numbers, *, weights: Numbers | None = None) -> Evidence:
    """Inverse-propensity evidence: unbiased when a positive is seen with probability `propensity` (Eq. 16).

    >>> ips([1, 0, 0], [0.5, 0.5, 0.1])
    Evidence(3 rows, positive=2, total=3, kind='ips')
    """
    positive = _labels(labels)
    return _weighted(
        positive / _propensity(propensity, len(positive)), _ones(len(positive)), weights, "ips"
    )


def positive_ips(
    labels: Numbers, propensity: Numbers, *, weights: Numbers | None = None
) -> Evidence:
    """Reweight positives only and leave negatives at one: what the paper's released code does, not its equation.

    >>> positive_ips([1, 0, 0], [0.5, 0.5, 0.1])
    Evidence(3 rows, positive=2, total=4, kind='positive_ips')
    """
    binary = _labels(labels)
    positive = binary / _propensity(propensity, len(binary))
    return _weighted(positive, positive + 1 - binary, weights, "positive_ips")


def impressions(
    labels: Numbers, propensity: Numbers | None = None, *, weights: Numbers | None = None
) -> Evidence:
    """Logged impressions with their non-clicks: each row stands for 1/propensity like it, liked or not.

    `propensity` is the logging policy's chance of showing the pair, up to any factor; without it all were shown alike.
    Rates are self-normalised (the sum of Y/w over the sum of 1/w), so here the base rate is identified.

    >>> impressions([1, 0, 0], [0.5, 0.5, 0.25])
    Evidence(3 rows, positive=2, total=8, kind='impressions')
    """
    binary = _labels(labels)
    inverse = _ones(len(binary)) if propensity is None else 1 / _propensity(propensity, len(binary))
    return _weighted(binary * inverse, inverse, weights, "impressions")


def undersampling_weights(labels: Numbers, kept: float) -> Floats:
    """Weights for a table in which only a share of the rows without a positive was kept, at random.

    >>> ips([1, 0, 0], [0.5, 1, 1], weights=undersampling_weights([1, 0, 0], kept=0.1))
    Evidence(3 rows, positive=2, total=21, kind='ips')
    """
    if not 0 < kept <= 1:
        raise DataError(
            f"kept must lie in (0, 1], got {kept}. It is the share of negatives that was kept."
        )
    return np.where(_labels(labels) == 1, 1.0, 1 / kept)


def as_evidence(labels: Labels, rows: int) -> Evidence:
    """Labels or evidence as evidence, one a row."""
    evidence = labels if isinstance(labels, Evidence) else naive(labels)
    if len(evidence) != rows:
        raise DataError(
            f"labels must have one value a row, got {len(evidence)} values for {rows} rows."
        )
    return evidence


def nonzero_evidence(labels: Labels, rows: int) -> Evidence:
    """As `as_evidence`, and it must weigh something."""
    evidence = as_evidence(labels, rows)
    if not evidence.total.any():
        raise DataError("evidence must weigh something, got a total of 0.")
    return evidence


def _is_above_0(values: Floats) -> npt.NDArray[np.bool_]:
    return values > 0


def is_usable(propensity: Floats) -> npt.NDArray[np.bool_]:
    """Within (0, 1]."""
    return (propensity > 0) & (propensity <= 1)


def _ones(rows: int) -> Floats:
    return np.broadcast_to(
        np.float64(1), rows
    )  # no memory, and recognisable as "every row counts once"


def _labels(labels: Numbers) -> Floats:
    array = column("labels", labels)
    remedy = "Turn ratings into likes first, e.g. labels = ratings > 3."
    require(is_binary, "labels", "be 0 or 1", array, remedy)
    return array


def _propensity(propensity: Numbers, rows: int) -> Floats:
    array = column("propensity", propensity, rows)
    remedy = "Clip in the estimator that made it, e.g. Popularity(clip=0.1)."
    require(is_usable, "propensity", "lie in (0, 1]", array, remedy)
    return array


def _weighted(positive: Floats, total: Floats, weights: Numbers | None, kind: str) -> Evidence:
    if weights is None:
        return Evidence.trusted(positive, total, kind)
    array = column("weights", weights, len(positive))
    require(is_mass, "weights", "be finite and not negative", array, "Drop the row to ignore it.")
    # Ones are numpy's, and would not meet a GPU's tensor.
    return Evidence.trusted(
        positive * array, array if on_gpu(array) and not on_gpu(total) else total * array, kind
    )
