"""Evidence: labels, propensities and weights reduced to a positive and a total mass per row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from calibrank._internal.arguments import label, real, shown
from calibrank._internal.rules import COLUMN_RULES
from calibrank._internal.validation import (
    Floats,
    Numbers,
    column,
    on_gpu,
    require,
    require_role,
    wrong_length,
)
from calibrank.errors import DataError


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """The weighted label mass of each row: how much of it is positive, and how much there is.

    Every loss and metric is linear in the pair, so `positive` may exceed `total`, as it does for
    an inverse-propensity positive. `kind` names the constructor and is stored in saved maps.

    >>> Evidence([1.0, 0.0], [1.0, 1.0])
    Evidence(2 rows, positive=1, total=2, kind='given')
    """

    positive: Floats
    total: Floats
    kind: str
    unit_weights: bool
    """True if every total is known to be 1, so that sums over rows are counts."""

    def __init__(self, positive: Numbers, total: Numbers, kind: str = "given") -> None:
        positive = column("positive", positive)
        total = column("total", total, len(positive))
        is_mass = COLUMN_RULES["weight"]
        remedy = "Drop the row or correct its weight."
        require(is_mass.holds, "positive", is_mass.statement, positive, remedy)
        require(is_mass.holds, "total", is_mass.statement, total, remedy)
        total_of_positives = np.where(positive > 0, total, np.inf)
        require(
            lambda values: values > 0,
            "total",
            "be above 0 where positive is",
            total_of_positives,
            remedy,
        )
        kind = label("kind", kind, "It names where the evidence comes from.")
        self._set(positive, total, kind, unit_weights=False)

    @classmethod
    def trusted(
        cls, positive: Floats, total: Floats, kind: str, *, unit_weights: bool = False
    ) -> Self:
        """Skip the checks: for code that has already made sure of them.

        The flag enables faster sums; unset, it only means that nothing is known.
        """
        evidence = object.__new__(cls)
        evidence._set(positive, total, kind, unit_weights=unit_weights)
        return evidence

    def _set(self, positive: Floats, total: Floats, kind: str, *, unit_weights: bool) -> None:
        object.__setattr__(self, "positive", positive)
        object.__setattr__(self, "total", total)
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "unit_weights", unit_weights)

    def __len__(self) -> int:
        return len(self.positive)

    def __repr__(self) -> str:
        masses = f"positive={self.positive.sum():.6g}, total={self.total.sum():.6g}"
        return f"Evidence({len(self):,} rows, {masses}, kind={self.kind!r})"

    def rows(self, selected: slice | npt.NDArray[Any]) -> Evidence:
        """The evidence of some rows, selected by slice, mask or number."""
        positive = self.positive[selected]
        # Of totals that are all 1, the first ones are as good and need no copy.
        is_any = self.unit_weights and len(positive) <= len(self.total)
        total = self.total[: len(positive)] if is_any else self.total[selected]
        return Evidence.trusted(positive, total, self.kind, unit_weights=self.unit_weights)


Labels: TypeAlias = Numbers | Evidence
"""What every `fit` and metric accepts: 0/1 labels, or evidence made from them."""


def naive(labels: Numbers, *, weights: Numbers | None = None) -> Evidence:
    """Use labels as they are: an unobserved pair counts as a negative (Eq. 13).

    >>> naive([1, 0, 0])
    Evidence(3 rows, positive=1, total=3, kind='naive')
    """
    return _evidence(_checked("label", "labels", labels), None, weights, "naive")


def ips(labels: Numbers, propensity: Numbers, *, weights: Numbers | None = None) -> Evidence:
    """Inverse-propensity evidence: divide the positive mass by the propensity (Eq. 16).

    The loss is unbiased when a positive is observed with probability `propensity`.

    >>> ips([1, 0, 0], [0.5, 0.5, 0.1])
    Evidence(3 rows, positive=2, total=3, kind='ips')
    """
    return _weighted_labels(ips, _checked("label", "labels", labels), propensity, weights)


def positive_ips(
    labels: Numbers, propensity: Numbers, *, weights: Numbers | None = None
) -> Evidence:
    """Weight positives by 1/propensity and leave negatives at weight 1.

    This is what the paper's released code computes, not what its equation says.

    >>> positive_ips([1, 0, 0], [0.5, 0.5, 0.1])
    Evidence(3 rows, positive=2, total=4, kind='positive_ips')
    """
    return _weighted_labels(positive_ips, _checked("label", "labels", labels), propensity, weights)


def impressions(
    labels: Numbers, propensity: Numbers | None = None, *, weights: Numbers | None = None
) -> Evidence:
    """Logged impressions with their non-clicks: each row stands for 1/propensity rows like it.

    `propensity` is the probability with which the logging policy showed the pair, up to a constant
    factor; without it, all pairs were equally likely. Rates are self-normalised (the sum of Y/w
    over the sum of 1/w), so the base rate is identified.

    >>> impressions([1, 0, 0], [0.5, 0.5, 0.25])
    Evidence(3 rows, positive=2, total=8, kind='impressions')
    """
    binary = _checked("label", "labels", labels)
    if propensity is None:
        return _evidence(_as_float64(binary), None, weights, "impressions")
    return _weighted_labels(impressions, binary, propensity, weights)


def doubly_robust(
    labels: Numbers, propensity: Numbers, outcome: Numbers, *, weights: Numbers | None = None
) -> Evidence:
    """All pairs, shown or not: an outcome model's probability, corrected where a pair was shown.

    `labels` are 0 or 1, and NaN where a pair was not shown; `outcome` are the probabilities of a
    model fitted on other rows. The positive mass is m + (Y - m) / w where shown and m elsewhere,
    which is unbiased if the propensities or the outcome model are right. It is below 0 where a
    shown pair is not liked: sums of many rows are not. In a log of positives the model cancels, and
    it is `ips`.

    >>> doubly_robust([1, 0, np.nan], [0.5, 0.5, 0.1], [0.4, 0.2, 0.3])
    Evidence(3 rows, positive=1.7, total=3, kind='doubly_robust')
    """
    given = column("labels", labels)
    is_shown = ~np.isnan(given)
    binary = np.where(is_shown, given, 0.0)
    require_role("label", "labels", binary)
    w = _checked("propensity", "propensity", propensity, len(binary))
    model = _checked("probability", "outcome", outcome, len(binary))
    positive = model + np.where(is_shown, (binary - model) / w, 0.0)
    if positive.sum() <= 0:
        rule, found = "have a positive mass above 0", f"{positive.sum():.6g}"
        remedy = "The outcome model is far too high for these propensities: use impressions."
        raise DataError("doubly robust evidence", rule, found, remedy)
    return _evidence(positive, None, weights, "doubly_robust")


EvidenceFunction: TypeAlias = Callable[..., Evidence]
"""One of `naive`, `ips`, `positive_ips` and `impressions`; compare it with `is`."""


def make_evidence(
    function: EvidenceFunction, labels: Numbers, propensity: Numbers | None, weights: Numbers | None
) -> Evidence:
    """Call an evidence function with the arguments it takes: `naive` has no propensity."""
    if function is naive:
        return naive(labels, weights=weights)
    return function(labels, propensity, weights=weights)


def soft_evidence(
    function: EvidenceFunction, labels: Numbers, propensity: Numbers | None, weights: Numbers | None
) -> Evidence:
    """Evidence of labels in [0, 1]: a mixture of that of a positive and that of a negative.

    >>> soft_evidence(impressions, [0.25, 0.5], [0.5, 1.0], None)
    Evidence(2 rows, positive=1, total=3, kind='impressions')
    """
    shares = _checked("soft label", "labels", labels)
    if function is naive or (function is impressions and propensity is None):
        made = _evidence(shares, None, weights, function.__name__)
    else:
        made = _weighted_labels(function, shares, propensity, weights)
    return Evidence.trusted(made.positive, made.total, made.kind)


def checked_evidence(
    function: EvidenceFunction,
    labels: npt.NDArray[Any],
    propensity: Floats | None,
    weights: Floats | None,
    *,
    is_binary: bool = True,
) -> Evidence:
    """Evidence of labels that a reader has checked, as well as the other columns.

    `is_binary` is False where labels may lie between 0 and 1.

    >>> checked_evidence(ips, np.array([1, 0]), np.array([0.5, 0.5]), None)
    Evidence(2 rows, positive=2, total=2, kind='ips')
    """
    kind = function.__name__
    if function is naive or propensity is None:
        made = _times_weights(labels, None, weights, kind)
    else:
        masses = _masses(function, labels.astype(np.float64), propensity)
        made = _times_weights(*masses, weights, kind)
    # Naive labels of weight 1 are counted, which those between 0 and 1 cannot be.
    return made if is_binary else Evidence.trusted(made.positive, made.total, kind)


def evidence_function(given: EvidenceFunction | None, propensity: object) -> EvidenceFunction:
    """The given function; by default `ips` if there are propensities, and `naive` without."""
    if given is None:
        return naive if propensity is None else ips
    if not callable(given) or isinstance(given, type):
        raise DataError(
            "evidence", "be a function: naive, ips, positive_ips or impressions", shown(given)
        )
    if propensity is None and given not in (naive, impressions):
        rule, remedy = "have propensities", "Name their column, or use naive labels."
        raise DataError(f"{given.__name__} evidence", rule, "none", remedy)
    return given


def undersampling_weights(labels: Numbers, kept: float) -> Floats:
    """Weights for a table in which only a random fraction `kept` of the negatives was kept.

    >>> ips([1, 0, 0], [0.5, 1, 1], weights=undersampling_weights([1, 0, 0], kept=0.1))
    Evidence(3 rows, positive=2, total=21, kind='ips')
    """
    kept = real("kept", kept, "[1e-12, 1]", "It is the fraction of negatives that was kept.")
    return np.where(_checked("label", "labels", labels) == 1, 1.0, 1 / kept)


def weighted(labels: Labels, sample_weight: Numbers | None) -> Labels:
    """Labels of rows that stand for several; evidence has weights of its own."""
    if sample_weight is None:
        return labels
    if isinstance(labels, Evidence):
        raise DataError(
            "sample_weight",
            "go with labels",
            "evidence",
            "Give weights to the evidence: ips(labels, propensity, weights=...).",
        )
    return naive(labels, weights=sample_weight)


def as_evidence(labels: Labels, rows: int) -> Evidence:
    """Convert labels to evidence (labels are used as they are), one value per row."""
    evidence = labels if isinstance(labels, Evidence) else naive(labels)
    if len(evidence) != rows:
        raise wrong_length("labels", len(evidence), rows)
    return evidence


def nonzero_evidence(labels: Labels, rows: int) -> Evidence:
    """Convert labels to evidence as `as_evidence` does, and require a nonzero total."""
    evidence = as_evidence(labels, rows)
    if not evidence.total.any():
        raise DataError("evidence", "have a total weight above 0", "0")
    return evidence


is_usable = COLUMN_RULES["propensity"].holds


def _checked(role: str, name: str, values: Numbers, rows: int | None = None) -> Floats:
    """A column that obeys the rule of its role."""
    array = column(name, values, rows)
    require_role(role, name, array)
    return array


def _weighted_labels(
    function: EvidenceFunction, labels: Floats, propensity: Numbers | None, weights: Numbers | None
) -> Evidence:
    """Evidence of checked labels with propensities that are checked here."""
    given: Numbers = [] if propensity is None else propensity
    w = _checked("propensity", "propensity", given, len(labels))
    return _evidence(*_masses(function, labels, w), weights, function.__name__)


def _masses(function: EvidenceFunction, labels: Floats, w: Floats) -> tuple[Floats, Floats | None]:
    """The positive and the total mass of each row; None for a total of 1. Linear in the labels."""
    if function is impressions:
        inverse = 1 / w
        return labels * inverse, inverse
    positive = labels / w
    return positive, positive + 1 - labels if function is positive_ips else None


def _evidence(
    positive: Floats, total: Floats | None, weights: Numbers | None, kind: str
) -> Evidence:
    """Check the weights and multiply the masses by them."""
    weight = None
    if weights is not None:
        weight = _checked("weight", "weights", weights, len(positive))
    return _times_weights(positive, total, weight, kind)


def _times_weights(
    positive: Floats, total: Floats | None, weight: Floats | None, kind: str
) -> Evidence:
    """Multiply the masses of each row by its weight; a missing total is 1 in every row."""
    if weight is None:
        if total is None:
            ones = np.broadcast_to(np.float64(1), len(positive))  # takes no memory
            return Evidence.trusted(positive, ones, kind, unit_weights=True)
        return Evidence.trusted(positive, total, kind)
    weighted_total = _as_float64(weight) if total is None else total * weight
    return Evidence.trusted(positive * weight, weighted_total, kind)


def _as_float64(values: Floats) -> Floats:
    """A float64 copy, so that sums are not rounded to float32; a GPU tensor stays as it is."""
    return values if on_gpu(values) else values.astype(np.float64)
