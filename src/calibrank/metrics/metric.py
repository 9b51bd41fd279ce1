"""The interface that every metric implements, and the additive metrics that can be summed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import Field, dataclass, fields, is_dataclass, replace
from enum import Enum
from inspect import cleandoc
from typing import Any, ClassVar

import numpy as np

from calibrank._internal.arguments import whole
from calibrank._internal.validation import (
    Floats,
    Ids,
    IdsLike,
    Indices,
    Mask,
    Numbers,
    add_up,
    ids,
    probability_column,
)
from calibrank.errors import DataError
from calibrank.evidence import Evidence, Labels, nonzero_evidence
from calibrank.metrics.lists import Ranking, rank_by_user


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


class Metric(ABC):
    """A metric with fixed settings, called with probabilities and with labels or evidence.

    A metric is a value: `str(metric)` is its text on the command line and in JSON, and
    `calibrank.registry.parse_metric` turns that text back into an equal metric. `metric @ n`
    is the metric over each user's n most probable rows only (Sato, RecSys 2024).

    Every concrete subclass sets `better` and has a docstring, whose first two paragraphs are its
    explanation.

    >>> from calibrank.metrics import ECE, Brier
    >>> Brier()([0.5, 0.5], [0, 1])
    0.25
    >>> Brier().better.value
    'lower is better'
    >>> print(ECE(), ECE(bins=20) @ 5)
    ECE ECE(bins=20)@5
    >>> round((ECE() @ 1)([0.9, 0.1, 0.8, 0.2], [1, 1, 1, 0], users=[1, 1, 2, 2]), 4)
    0.15
    """

    better: ClassVar[Better]
    """Which values are better."""
    maximum: ClassVar[float] = float("inf")
    """The highest value that the metric can take; intervals are cut there."""
    minimum: ClassVar[float] = 0.0
    """The lowest value of unweighted labels; intervals of values above it are cut there."""
    needs_users: ClassVar[bool] = False
    """Whether the metric looks at each user's list, so that `users` must be given."""
    needs_labels: ClassVar[str] = "a positive"
    """What the labels must hold where the metric is undefined, i.e. `evaluate` returns NaN."""
    noise_adds: ClassVar[bool] = False
    """Whether chance raises the value, as it does in a mean of absolute gaps: see `errors`."""
    is_ratio: ClassVar[bool] = False
    """Whether half as much is as far away as twice as much, so that intervals are of logarithms."""
    weight_is_repetition: ClassVar[bool] = True
    """Whether a row of weight k counts as k rows; not where the number of rows matters."""

    def __call__(
        self,
        probabilities: Numbers,
        labels: Labels,
        users: IdsLike | None = None,
        columns: Any = None,
    ) -> float:
        """Compute the metric.

        `users` is needed only by metrics of each user's list, `columns` (a dict or a dataframe)
        only by metrics of a field.
        """
        probabilities = self.check(probabilities)
        evidence = nonzero_evidence(labels, len(probabilities))
        user_ids = None if users is None else ids("users", users, len(probabilities))
        bound = self.bind(columns, len(probabilities))
        return bound.require_defined(bound.evaluate(probabilities, evidence, user_ids))

    def __matmul__(self, n: int) -> Metric:
        return Top(self, n)

    def __str__(self) -> str:
        return self.name

    def check(self, probabilities: Numbers) -> Floats:
        """Validate the predictions: probabilities, or any scores where only their order counts."""
        return probability_column(probabilities)

    @property
    def name(self) -> str:
        """The metric as text: its class and the settings that are not the default."""
        settings: tuple[Field[Any], ...] = fields(self) if is_dataclass(self) else ()
        given: list[str] = []
        for setting in settings:
            value = getattr(self, setting.name)
            if setting.init and value != setting.default:
                written = str(value) if isinstance(value, Metric) else repr(value)
                given.append(f"{setting.name}={written}")
        return type(self).__name__ + (f"({', '.join(given)})" if given else "")

    @property
    def explanation(self) -> str:
        """What the metric measures: the first two paragraphs of its docstring."""
        paragraphs = cleandoc(type(self).__doc__ or "").split("\n\n")
        return " ".join(" ".join(paragraphs[:2]).split())

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns that must be given."""
        return ()

    @property
    def list_length(self) -> int | None:
        """How many rows of each user's list count; None where all do, or lists do not matter."""
        return None

    def bind(self, columns: Any, rows: int) -> Metric:
        """Return the metric with the columns that it needs, one value per row."""
        return self

    def take(self, rows: Indices | Mask) -> Metric:
        """Return a bound metric for some of its rows."""
        return self

    def require_defined(self, value: float) -> float:
        """Return the value, or raise an error where it is NaN."""
        if np.isnan(value):
            raise DataError(
                "labels", f"hold {self.needs_labels}", f"none: {self.name} is undefined"
            )
        return value

    def errors(self, residuals: Floats, probabilities: Floats, weights: Floats) -> Floats:
        """Compute the value of each resample from its residuals, resamples x bins.

        Residuals are observed minus predicted mass, divided by the mass of the resample; each bin
        has a mean probability and a share of the mass, 1 x bins. Only metrics to which noise adds
        have this.
        """
        raise NotImplementedError

    @abstractmethod
    def evaluate(self, probabilities: Floats, evidence: Evidence, users: Ids | None) -> float:
        """Compute the metric from validated columns; NaN where it is undefined."""


class Additive(Metric):
    """A metric that is a function of sums over bins of per-row terms.

    Sums of two tables can be added and sums of a user can be counted twice, so such a metric
    works batch by batch, on a cluster, and in a bootstrap without looking at the rows again.
    """

    has_fixed_bins: ClassVar[bool] = True
    """Whether a row's bin depends on that row alone, so that sums of batches can be added."""

    @abstractmethod
    def terms(self, probabilities: Floats, evidence: Evidence) -> Floats:
        """Compute what each row adds, as an array of terms x rows."""

    def compute(self, sums: Floats) -> float:
        """Compute the metric from the summed terms, an array of terms x bins.

        By default it is the sum of the first term over that of the second.
        """
        above, below = sums.sum(axis=1)
        return float(above / below) if below > 0 else float("inf")

    def resampled(self, sums: Floats) -> Floats:
        """Compute the metric of each resample from its summed terms, resamples x terms x bins."""
        return np.array([self.compute(one) for one in sums])

    def compute_clusters(self, sums: Floats) -> float:
        """Compute the metric from sums per cluster of users, clusters x terms x bins."""
        return self.compute(sums.sum(axis=0))

    @property
    def n_bins(self) -> int:
        """The number of bins."""
        return 1

    def bin_indices(self, probabilities: Floats, evidence: Evidence) -> Indices:
        """Assign each row to a bin; by default all rows share one."""
        return np.zeros(len(probabilities), dtype=np.intp)

    def evaluate(self, probabilities: Floats, evidence: Evidence, users: Ids | None) -> float:
        bins = self.bin_indices(probabilities, evidence)
        terms = self.terms(probabilities, evidence)
        return self.compute(np.array([add_up(bins, term) for term in terms]))


def calibration_masses(probabilities: Floats, evidence: Evidence) -> Floats:
    """Return each row's positive, total and predicted mass, an array of 3 x rows."""
    predicted = evidence.total * probabilities.astype(np.float64)
    return np.array([evidence.positive, evidence.total, predicted])


def mean_probabilities(total: Floats, predicted: Floats) -> Floats:
    """Return the mean probability of each bin, 0.5 where it is empty."""
    means = np.divide(predicted, total, out=np.full_like(total, 0.5), where=total > 0)
    # Rounding can move the mean of probabilities outside [0, 1].
    return np.clip(means, 0, 1)


@dataclass(frozen=True, slots=True)
class Top(Metric):
    """What `metric @ n` is: the metric over each user's n most probable rows only."""

    needs_users: ClassVar[bool] = True
    metric: Metric
    n: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", whole("n", self.n, 1))

    def __repr__(self) -> str:
        return f"{self.metric!r} @ {self.n}"

    @property
    def name(self) -> str:
        return f"{self.metric.name}@{self.n}"

    @property
    def list_length(self) -> int | None:
        return self.n

    @property
    def better(self) -> Better:  # type: ignore[override]  # a property, to follow `metric`
        return self.metric.better

    @property
    def explanation(self) -> str:
        limit = f"Only each user's {self.n} best items count: what is really shown."
        return f"{self.metric.explanation} {limit}"

    @property
    def columns(self) -> tuple[str, ...]:
        return self.metric.columns

    def bind(self, columns: Any, rows: int) -> Metric:
        return replace(self, metric=self.metric.bind(columns, rows))

    def take(self, rows: Indices | Mask) -> Metric:
        return replace(self, metric=self.metric.take(rows))

    def evaluate(self, probabilities: Floats, evidence: Evidence, users: Ids | None) -> float:
        users = require_users(self, users)
        rows, shown = self.select(probabilities, evidence, users)
        return self.metric.take(rows).evaluate(probabilities[rows], shown, users[rows])

    def select(
        self, probabilities: Floats, evidence: Evidence, users: Ids, ranking: Ranking | None = None
    ) -> tuple[Indices, Evidence]:
        """Return the rows in the top n and their evidence; rows tied for the last rank share it."""
        ranking = ranking or rank_by_user(probabilities, users, self.n, evidence.total > 0)
        fraction = ranking.fraction_in_top(self.n)
        inside = fraction > 0
        rows = ranking.order[inside]
        fraction = fraction[inside]
        positive = evidence.positive[rows] * fraction
        total = evidence.total[rows] * fraction
        return rows, Evidence.trusted(positive, total, evidence.kind)


def require_users(metric: Metric, users: Ids | None) -> Ids:
    """Return the users, or raise an error that names the metric that needs them."""
    if users is None:
        raise DataError(
            "users",
            f"be given for {metric.name}, which looks at each user's list",
            remedy="Pass users=...",
        )
    return users
