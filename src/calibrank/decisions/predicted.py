"""A map and the rows that it is applied to, and labels that it has not seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from calibrank._internal.json import digest_of_rows
from calibrank._internal.validation import Numbers
from calibrank.errors import DataError
from calibrank.evidence import Evidence, Labels
from calibrank.maps import CalibrationMap


@dataclass(frozen=True, slots=True, eq=False)
class Predicted:
    """Scores with the map that makes them probabilities; `columns` are those that the map needs."""

    fitted: CalibrationMap
    scores: Numbers
    columns: Any = None

    def probabilities(self) -> Numbers:
        """The probabilities of the rows."""
        return self.fitted.predict(self.scores, self.columns)

    def require_fresh(self, labels: Labels) -> None:
        """Refuse labels that the map was anchored on."""
        anchoring = self.fitted.record.anchoring
        digest = None if anchoring is None else anchoring.digest
        require_fresh_labels(digest, self.scores, labels)


def require_fresh_labels(anchored_on: str | None, scores: Numbers, labels: Labels) -> None:
    """Refuse labels that the map was anchored on; `anchored_on` is the digest in its record.

    >>> require_fresh_labels(None, [0.3, 0.7], [0, 1])
    """
    if anchored_on is None:
        return
    positive = labels.positive if isinstance(labels, Evidence) else labels
    if digest_of_rows(scores, positive) == anchored_on:
        raise DataError(
            "labels",
            "be of pairs that the map was not anchored on",
            ("the same ones: a promise that is checked on them is broken more often than stated"),
            "Use labels of other users, or keep half of the users for each step.",
        )
