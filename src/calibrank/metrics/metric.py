"""The interface that every metric implements, and the additive metrics that can be summed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from calibrank._internal.validation import (
    Floats,
    Ids,
    IdsLike,
    Numbers,
    add_up,
    ids,
    probability_column,
)
from calibrank.errors import DataError
from calibrank.evidence import Evidence, Labels, nonzero_evidence

BinIndices = npt.NDArray[np.intp]


class Better(Enum):
    """Which values of a metric are better."""

    LOWER = "lower is better"
    HIGHER = "higher is better"
    NEAR_ONE = "nearer 1 is better"
    NEAR_ZERO = "nearer 0 is better"
    REFERENCE = "to compare with"

    def loss(self, value: float) -> float:
        """Convert a value to a loss, so that the lower loss is always the better value.

        >>> Better.HIGHER.loss(0.75)
        -0.75
        """
        if self is Better.LOWER:
            return value
        if self is Better.HIGHER:
            return -value
        if self is Better.NEAR_ZERO:
            return abs(value)
        if self is Better.REFERENCE:
            # It depends on the labels alone, so no method is better than another.
            return 0.0
        # Ratios are compared on the log scale: 2 is as far from 1 as 0.5 is.
        return abs(float(np.log(max(value, 1e-300))))


def _has_abstract_methods(cls: type) -> bool:
    # ABCMeta fills `__abstractmethods__` only after `__init_subclass__` has run.
    members = [getattr(cls, name, None) for name in dir(cls)]
    return any(getattr(member, "__isabstractmethod__", False) for member in members)


class Metric(ABC):
    """A metric with fixed settings, called with probabilities and with labels or evidence.

    Every concrete subclass sets `better` and writes its own `explanation`; a class that lacks
    either raises a TypeError when it is defined.

    >>> from calibrank.metrics import Brier
    >>> Brier()([0.5, 0.5], [0, 1])
    0.25
    >>> Brier().better.value
    'lower is better'
    """

    better: ClassVar[Better]
    """Which values are better."""
    explanation: ClassVar[str]
    """What the metric measures, in one or two sentences that do not assume statistics."""
    maximum: ClassVar[float] = float("inf")
    """The highest value that the metric can take; intervals are cut there."""
    minimum: ClassVar[float] = 0.0
    """The lowest value of unweighted labels; intervals of values above it are cut there."""
    needs_users: ClassVar[bool] = False
    """Whether the metric looks at each user's list, so that `users` must be given."""
    weight_is_repetition: ClassVar[bool] = True
    """Whether a row of weight k counts as k rows; not where the number of rows matters."""
    is_debiased: ClassVar[bool] = False
    """Whether noise adds nothing to the value, so that replicates are centred on it."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if _has_abstract_methods(cls):
            return
        if not hasattr(cls, "better"):
            raise TypeError(f"{cls.__name__} must set better, e.g. better = Better.LOWER.")
        # An inherited explanation would describe another metric, so each class has its own.
        if "explanation" not in vars(cls):
            raise TypeError(f"{cls.__name__} must set its own explanation: a sentence or two.")

    def __call__(
        self, probabilities: Numbers, labels: Labels, users: IdsLike | None = None
    ) -> float:
        """Compute the metric; `users` is needed only by metrics of each user's list."""
        probabilities = self.check(probabilities)
        evidence = nonzero_evidence(labels, len(probabilities))
        user_ids = None if users is None else ids("users", users, len(probabilities))
        return self.evaluate(probabilities, evidence, user_ids)

    def check(self, probabilities: Numbers) -> Floats:
        """Validate the predictions: probabilities, or any scores where only their order counts."""
        return probability_column(probabilities)

    @property
    def name(self) -> str:
        """The name in tables and JSON."""
        return type(self).__name__

    @abstractmethod
    def evaluate(
        self,
        probabilities: Floats,
        evidence: Evidence,
        users: Ids | None,
    ) -> float:
        """Compute the metric from validated columns."""


class Additive(Metric):
    """A metric that is a function of sums over bins of per-row terms.

    Sums of two tables can be added and sums of a user can be counted twice, so such a metric
    works batch by batch, on a cluster, and in a bootstrap without looking at the rows again.
    """

    @abstractmethod
    def terms(self, probabilities: Floats, evidence: Evidence) -> Floats:
        """Compute what each row adds, as an array of terms x rows."""

    @abstractmethod
    def compute(self, sums: Floats) -> float:
        """Compute the metric from the summed terms, an array of terms x bins."""

    def compute_clusters(self, sums: Floats) -> float:
        """Compute the metric from sums per cluster of users, clusters x terms x bins."""
        return self.compute(sums.sum(axis=0))

    @property
    def n_bins(self) -> int:
        """The number of bins."""
        return 1

    def bin_indices(
        self,
        probabilities: Floats,
        evidence: Evidence,
    ) -> BinIndices:
        """Assign each row to a bin; by default all rows share one."""
        return np.zeros(len(probabilities), dtype=np.intp)

    def evaluate(
        self,
        probabilities: Floats,
        evidence: Evidence,
        users: Ids | None,
    ) -> float:
        bins = self.bin_indices(probabilities, evidence)
        terms = self.terms(probabilities, evidence)
        return self.compute(np.array([add_up(bins, term) for term in terms]))


def require_users(metric: Metric, users: Ids | None) -> Ids:
    """Return the users, or raise an error that names the metric that needs them."""
    if users is None:
        raise DataError(
            f"users must be given for {metric.name}, which looks at each user's list. "
            "Pass users=..."
        )
    return users
