"""What every metric can do: judge probabilities against labels or evidence, and say which way is better."""

from abc import ABC, abstractmethod
from enum import Enum
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from calibrank._validation import Floats, Ids, IdsLike, Numbers, add_up, ids, probability_column
from calibrank.errors import DataError
from calibrank.evidence import Evidence, Labels, nonzero_evidence


class Better(Enum):
    """Which way a metric improves."""

    LOWER = "lower is better"
    HIGHER = "higher is better"
    NEAR_ONE = "nearer 1 is better"

    def loss(self, value: float) -> float:
        """A number that is lower for the better value."""
        return {
            "LOWER": value,
            "HIGHER": -value,
            "NEAR_ONE": abs(float(np.log(max(value, 1e-300)))),
        }[self.name]


class Metric(ABC):
    """Frozen settings; called with probabilities, labels or evidence, and users where lists matter."""

    better: ClassVar[Better] = Better.LOWER
    highest: ClassVar[float] = float("inf")
    """No value is above it."""

    def __call__(
        self, probabilities: Numbers, labels: Labels, users: IdsLike | None = None
    ) -> float:
        """The metric's value on one table."""
        probabilities = self.check(probabilities)
        evidence = nonzero_evidence(labels, len(probabilities))
        known = None if users is None else ids("users", users, len(probabilities))
        return self.evaluate(probabilities, evidence, known)

    def check(self, probabilities: Numbers) -> Floats:
        """What is judged, as a column: probabilities, unless only their order counts."""
        return probability_column(probabilities)

    @property
    def name(self) -> str:
        """How the metric is called in tables."""
        return type(self).__name__

    @abstractmethod
    def evaluate(self, probabilities: Floats, evidence: Evidence, users: Ids | None) -> float:
        """The value on checked columns."""


class Additive(Metric):
    """A metric computed from sums of per-row terms over cells, so tables and resamples simply add up."""

    @abstractmethod
    def terms(self, probabilities: Floats, evidence: Evidence) -> Floats:
        """What each row adds: one line a term, one column a row."""

    @abstractmethod
    def compute(self, sums: Floats) -> float:
        """The value from the sums: one line a term, one column a cell."""

    @property
    def size(self) -> int:
        """How many cells there are."""
        return 1

    def cells(self, probabilities: Floats, evidence: Evidence) -> npt.NDArray[np.intp]:
        """The cell each row belongs to; one for all by default."""
        return np.zeros(len(probabilities), dtype=np.intp)

    def evaluate(self, probabilities: Floats, evidence: Evidence, users: Ids | None) -> float:
        cells = self.cells(probabilities, evidence)
        terms = self.terms(probabilities, evidence)
        return self.compute(np.array([add_up(cells, term) for term in terms]))


def require_users(metric: Metric, users: Ids | None) -> Ids:
    """The users, or an error that says who needs them."""
    if users is None:
        raise DataError(
            f"users must be given for {metric.name}, which looks at each user's list. Pass users=..."
        )
    return users
