"""Which columns of a table are used, in which role, and how its labels become evidence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from calibrank._validation import Floats, Numbers
from calibrank.evidence import Evidence, naive

EvidenceFunction: TypeAlias = Callable[..., Evidence]
"""One of `naive`, `ips`, `positive_ips` and `impressions`; compare it with `is`."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Column names by role, and the function that turns labels into evidence."""

    score: str
    label: str
    evidence: EvidenceFunction
    propensity: str | None = None
    assumption: str = "relative propensities"
    """What is assumed about the propensity column; one of `calibrank.maps.record.ASSUMPTIONS`."""
    item: str | None = None
    weight: str | None = None
    user: str | None = None
    negatives_kept: float = 1.0
    """The fraction of the rows without a positive label that was kept in the table."""
    score_is: str = "score"
    """The rule for the score column: "score", or "probability" where these are evaluated."""
    others: tuple[str, ...] = ()
    """Columns of any type that are read but not checked."""

    @property
    def checked(self) -> dict[str, str]:
        """Numeric columns by role; each role has a rule."""
        columns = {self.score_is: self.score, "label": self.label}
        if self.propensity is not None:
            columns["propensity"] = self.propensity
        if self.weight is not None:
            columns["weight"] = self.weight
        return columns

    @property
    def ids(self) -> list[str]:
        """Columns of ids."""
        return [name for name in (self.item, self.user) if name is not None]

    @property
    def read(self) -> list[str]:
        """All columns to read, each once."""
        names = [*self.checked.values(), *self.ids, *self.others]
        return list(dict.fromkeys(names))

    @property
    def needs_popularity(self) -> bool:
        """Whether propensities must be estimated from the popularity of items."""
        return self.evidence is not naive and self.propensity is None


def make_evidence(
    function: EvidenceFunction,
    labels: Numbers,
    propensity: Floats | None,
    weights: Floats | None,
) -> Evidence:
    """Call an evidence function with the arguments it takes: `naive` has no propensity."""
    if function is naive:
        return naive(labels, weights=weights)
    return function(labels, propensity, weights=weights)
