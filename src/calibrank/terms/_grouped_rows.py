"""Rows with scores, evidence and groups: sums and losses by group."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from calibrank._internal.logit import logit
from calibrank._internal.validation import (
    Floats,
    IdsLike,
    Indices,
    Mask,
    Numbers,
    add_up,
    ids,
    score_column,
)
from calibrank.evidence import Evidence, Labels, as_evidence
from calibrank.summary import Summary
from calibrank.terms._group_weights import capped_masses

SMALLEST = 1e-12
"""Probabilities closer to 0 or 1 are clipped, so that one row cannot make a loss infinite."""
# On synthetic pools most of the gain is there with three, and more would flatten the top of lists.
_SUPPORTING_GROUPS = 3
_MOST_LOG_ODDS = -float(logit(SMALLEST))


@dataclass(frozen=True, slots=True, eq=False)
class GroupedRows:
    """Scores and evidence of rows, and the group of each."""

    scores: Floats
    evidence: Evidence
    group: Indices
    names: tuple[object, ...]

    @classmethod
    def of(cls, scores: Numbers, labels: Labels, groups: IdsLike) -> GroupedRows:
        """Check what a user passed, and number the groups."""
        array = score_column(scores)[0].astype(np.float64)
        evidence = as_evidence(labels, len(array))
        names, group = np.unique(ids("groups", groups, len(array)), return_inverse=True)
        return cls(array, evidence, group, tuple(names.tolist()))

    @property
    def positive(self) -> Floats:
        """The positive mass of each row."""
        return self.evidence.positive

    @property
    def total(self) -> Floats:
        """The total mass of each row."""
        return self.evidence.total

    @property
    def n_groups(self) -> int:
        """The number of groups that occur."""
        return len(self.names)

    def summary(self) -> Summary:
        """All groups together, as other methods fit them."""
        return Summary.of(self.scores, self.evidence)

    def where(self, kept: Mask) -> GroupedRows:
        """Some of the rows, with groups numbered anew."""
        rows = np.flatnonzero(kept)
        present, group = np.unique(self.group[rows], return_inverse=True)
        names = tuple([self.names[index] for index in present.tolist()])
        return GroupedRows(self.scores[rows], self.evidence.rows(rows), group, names)

    def capped(self) -> GroupedRows:
        """The same rows, where groups with much mass have less, if that estimates rates better."""
        mass = self.by_group(self.total)
        capped = capped_masses(self.by_group(self.positive), mass)
        factor = (capped / np.maximum(mass, 1e-300))[self.group]
        # Groups of equal mass count as they are, up to rounding.
        if np.allclose(factor, 1, rtol=1e-9):
            return self
        evidence = Evidence(self.positive * factor, self.total * factor, self.evidence.kind)
        return replace(self, evidence=evidence)

    def supported_range(self) -> tuple[float, float]:
        """The scores that several groups reach or exceed, at both ends.

        Where one or two groups have scores of their own, their level cannot be told from a slope.
        """
        lowest = np.full(self.n_groups, np.inf)
        highest = np.full(self.n_groups, -np.inf)
        np.minimum.at(lowest, self.group, self.scores)
        np.maximum.at(highest, self.group, self.scores)
        place = min(_SUPPORTING_GROUPS, self.n_groups) - 1
        low = float(np.sort(lowest)[place])
        high = float(np.sort(highest)[::-1][place])
        return (low, high) if low < high else (float(lowest.min()), float(highest.max()))

    def by_group(self, values: Floats) -> Floats:
        """The sum of each group's values."""
        return add_up(self.group, values, self.n_groups)

    def losses(self, log_odds: Floats) -> Floats:
        """The log loss of each row; log odds are clipped so that no row makes it infinite."""
        log_odds = np.clip(log_odds, -_MOST_LOG_ODDS, _MOST_LOG_ODDS)
        losses: Floats = self.total * np.logaddexp(0, log_odds) - self.positive * log_odds
        return losses
