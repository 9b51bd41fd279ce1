"""The calibrator interface: a frozen configuration in, a fitted map out."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from calibrank._internal.arguments import instance
from calibrank._internal.validation import Floats, Numbers
from calibrank.errors import DataError, FitError, FlatMapWarning, PooledScoresWarning
from calibrank.evidence import Evidence, Labels, weighted
from calibrank.maps import CalibrationMap, Curve, LogisticCurve
from calibrank.maps.training import record_of, require_both_classes, require_spread
from calibrank.model import Model
from calibrank.summary import Summary
from calibrank.summary.grid import CAPACITY
from calibrank.summary.pooling import auc, coarser, pooling_error, without_ends
from calibrank.terms import TermSpec

POOLING_TOLERANCE = 2e-4
"""Mean error of probabilities through pooling from which a fit warns."""


# Standard errors, of which `auc` gives a bound, below 1/2 from which scores are called reversed.
_CLEARLY = 2.0

# Where 98% of the distinct scores span less of the range, the others may be outliers. They decide
# on a map if without them probabilities move by this share of the variance of the labels.
INNER_RANGE = 0.02
_OUTLIERS_MOVE = 0.1


class Desiderata(NamedTuple):
    """The three properties that the paper asks of a calibration function (its Table 2)."""

    any_score: bool
    """Accepts every real score, not only scores in [0, 1]."""
    increasing: bool
    """A higher score never gets a lower probability."""
    expressive: bool
    """Fits score distributions of different shapes per class, and never ties two scores."""


class Calibrator(ABC):
    """A frozen configuration that fits calibration maps; it holds no fitted state itself."""

    meets: ClassVar[Desiderata]
    learns: ClassVar[bool] = True
    """Whether the labels are used; baselines only rescale the scores."""
    distinct_scores: ClassVar[int] = CAPACITY
    """Distinct scores up to which `fit` pools nothing but ties."""
    refit_margin: ClassVar[float | None] = None
    """If fits depend on where bins end: the error of pooling as a multiple of what coarser bins do.

    None for curves that depend on the scores inside a bin only through the slope of the curve.
    """

    def fit(
        self,
        scores: Numbers,
        labels: Labels,
        columns: Any = None,
        sample_weight: Numbers | None = None,
    ) -> CalibrationMap:
        """Fit on scores and 0/1 labels, or evidence such as `ips(labels, propensity)`.

        `columns` is for models with terms, such as `Gaussian() + Level("country")`. `sample_weight`
        says how many rows each row stands for; evidence takes `weights` instead.
        """
        self.require_no_columns(columns)
        labels = weighted(labels, sample_weight)
        return self.fit_summary(Summary.of(scores, labels, distinct=self.distinct_scores))

    def fit_rows(self, scores: Floats, evidence: Evidence) -> tuple[CalibrationMap, Summary]:
        """Fit on checked rows, and return their summary too."""
        summary = Summary.of(scores, evidence, distinct=self.distinct_scores)
        return self.fit_summary(summary), summary

    def require_no_columns(self, columns: Any) -> None:
        """Raise a `DataError` if columns are given, which only terms use."""
        if columns is not None:
            rule = "go with terms"
            remedy = f'Add some, e.g. {self.name}() + Level("country"); weights are sample_weight=.'
            raise DataError("columns", rule, f"{self.name} without any", remedy)

    def __add__(self, term: TermSpec) -> Model:
        """A model of this curve and a term."""
        return Model(self, ()) + term

    @property
    def candidates_by_group(self) -> tuple[Calibrator, ...]:
        """The curves that are averaged where the level differs by group."""
        return (self,)

    def fit_summary(self, summary: Summary) -> CalibrationMap:
        """Fit on pooled evidence; the result equals a fit on the rows that were pooled."""
        fitted = self.fit_fold(summary)
        self._warn_if_reversed(fitted, summary)
        self._warn_of_outliers(fitted, summary)
        return fitted if summary.exact else self._with_pooling_error(fitted, summary)

    def fit_fold(self, summary: Summary) -> CalibrationMap:
        """Fit as `fit_summary` does, but record no error of pooling: for cross-validation."""
        instance("summary", summary, Summary, "Make one with Summary.of(scores, labels).")
        self._require(summary)
        curve, solved = self._fit(summary)
        record = replace(record_of(summary), method=self.name, recipe=repr(self), **solved)
        return CalibrationMap(curve, record)

    def fit_curves(self, summaries: Sequence[Summary]) -> list[Curve]:
        """Fit similar summaries for their log odds alone: nothing is known of the errors."""
        for summary in summaries:
            self._require(summary)
        return self._fit_curves(summaries)

    def _fit_curves(self, summaries: Sequence[Summary]) -> list[Curve]:
        """A method that starts from its last solution, or leaves errors out, overrides this."""
        return [self._fit(summary)[0] for summary in summaries]

    def _require(self, summary: Summary) -> None:
        if self.learns:
            require_both_classes(summary)
            require_spread(summary)

    @property
    def name(self) -> str:
        """The name of the method in tables and saved maps."""
        return type(self).__name__

    @abstractmethod
    def _fit(self, summary: Summary) -> tuple[Curve, dict[str, Any]]:
        """Fit on a summary that has passed the checks of `fit_summary`.

        Returns the curve, and fields of the record that say how well it was solved.
        """

    def _warn_if_reversed(self, fitted: CalibrationMap, summary: Summary) -> None:
        """Warn where higher scores have fewer positives; logistic curves have warned already."""
        if not self.learns or isinstance(fitted.curve, LogisticCurve):
            return
        area, error = auc(summary)
        if area < 0.5 - _CLEARLY * error:
            warnings.warn(
                f"the fitted {self.name} map hardly rises: AUC {area:.3f}. Higher scores do not go "
                "with more positives here: if lower is better (distances, ranks), negate them.",
                FlatMapWarning,
                stacklevel=4,
            )

    def _warn_of_outliers(self, fitted: CalibrationMap, summary: Summary) -> None:
        """Warn where a few scores are so far from all others that they decide on the map."""
        few = len(summary) // 100
        range_of_most = summary.scores[-few - 1] - summary.scores[few]
        if range_of_most >= INNER_RANGE * (summary.high - summary.low):
            return
        inner = without_ends(summary, few)
        if not self._is_moved(fitted, inner):
            return
        other = "" if self.name in ("Spline", "Isotonic") else ", or use Spline"
        message = (
            f"98% of the distinct scores lie from {inner.low:.4g} to {inner.high:.4g}, and the "
            f"others, from {summary.low:.4g} to {summary.high:.4g}, decide on the {self.name} map. "
            f"Drop outlying scores (padding is no score){other}."
        )
        warnings.warn(message, FlatMapWarning, stacklevel=4)

    def _is_moved(self, fitted: CalibrationMap, inner: Summary) -> bool:
        """Whether a fit on these scores alone is clearly different."""
        try:
            with warnings.catch_warnings(action="ignore", category=FlatMapWarning):
                alone = self.fit_fold(inner)
        except (DataError, FitError):
            return False
        p = alone.predict(inner.scores)
        change = np.abs(fitted.predict(inner.scores) - p)
        # Of few rows, any two fits differ by chance.
        low, high = alone.sampling_interval(inner.scores)
        mean, moved, chance = np.average([p, change, (high - low) / 2], axis=1, weights=inner.total)
        return bool(moved > max(_OUTLIERS_MOVE * mean * (1 - mean), chance))

    def _with_pooling_error(self, fitted: CalibrationMap, summary: Summary) -> CalibrationMap:
        """Record how far pooling may have moved the probabilities; warn above the tolerance."""
        probabilities = fitted.predict(summary.scores)
        error = pooling_error(probabilities, summary)
        if self.refit_margin is not None:
            change = self.refit_margin * self._refit_change(probabilities, summary)
            error = min(max(error, change), 1.0)
        if error > POOLING_TOLERANCE:
            many = self.distinct_scores
            other = "use Spline" if many > CAPACITY else "calibrate ranks instead of scores"
            message = (
                f"scores are pooled so coarsely that probabilities of {self.name} may be off by up "
                f"to {error:.1g} on average. Fit on at most {many:,} distinct scores, which "
                f"{self.name} does not pool, or {other}."
            )
            warnings.warn(message, PooledScoresWarning, stacklevel=4)
        return replace(fitted, record=replace(fitted.record, pooling_error=error))

    def _refit_change(self, probabilities: Floats, summary: Summary) -> float:
        """How far bins two and four times as wide move the probabilities, on average.

        If neither can be fitted, nothing is known but that no probability moves by more than 1.
        """
        changes = []
        for bits in (1, 2):
            try:
                refitted = self.fit_fold(coarser(summary, bits))
            except FitError:
                continue
            change = np.abs(refitted.predict(summary.scores) - probabilities)
            changes.append(float(change @ summary.total / summary.total.sum()))
        return max(changes, default=1.0)
