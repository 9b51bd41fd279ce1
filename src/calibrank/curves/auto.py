"""Select a calibration method by cross-validation on pooled evidence."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import add
from typing import Any, NamedTuple

import numpy as np

from calibrank._internal.arguments import instance, whole
from calibrank._internal.logit import logit
from calibrank._internal.validation import Floats, IdsLike, Numbers, ids, score_column
from calibrank.curves.calibrator import Calibrator, Desiderata
from calibrank.curves.parametric import Beta, Gamma, Gaussian, Platt
from calibrank.curves.spline import Spline
from calibrank.curves.steps import Isotonic
from calibrank.errors import DataError, FitError, FlatMapWarning, SmallTableWarning
from calibrank.evidence import Evidence, Labels, as_evidence, weighted
from calibrank.maps import CalibrationMap, CandidateLoss, Curve, Selection
from calibrank.summary import Summary
from calibrank.tables import hash_partitions, row_partitions

# Each fold costs one fit per candidate; more folds than this change no choice.
_MOST_FOLDS = 1000

# Fewer positives or negatives per fold than this choose a method by chance.
_FEWEST_PER_FOLD = 10

# Of each fold, where methods are compared: the chosen one is fitted on all bins. About a third of
# them are within the range of most scores, which moves mean losses by less than 1e-5.
_MOST_BINS = 8192

# Log odds are clipped there, so that one row cannot make the mean infinite (as in `LogLoss`).
_MOST_LOG_ODDS = -float(logit(1e-12))

_REMEDY = "Use more rows, fewer folds, or a fixed method such as Platt()."

_CANDIDATES = (Platt(), Gaussian(), Beta(), Gamma(), Spline(), Isotonic())


class Choice(NamedTuple):
    """A method, and how it was chosen."""

    calibrator: Calibrator
    selection: Selection | None
    reason: str | None = None
    """Why there was nothing to choose by, if so: the first candidate was taken."""


@dataclass(frozen=True, slots=True)
class Auto(Calibrator):
    """The simplest of several methods whose cross-validated log loss is close to the lowest.

    `candidates` are ordered from simple to complex. The first one is chosen whose mean loss is
    within one standard error of the lowest, where the error is that of the difference, paired by
    fold (the one-standard-error rule, Breiman et al. 1984). The map is that of the chosen method,
    fitted on everything; `record.selection` has the loss of every candidate. A table with fewer
    than ten positives or negatives in a fold gets the first candidate, with a `SmallTableWarning`.

    >>> rng = np.random.default_rng(0)
    >>> scores = rng.normal(size=2000)
    >>> labels = rng.random(2000) < 1 / (1 + np.exp(1 - scores))
    >>> fitted = Auto().fit(scores, labels)
    >>> fitted.method
    'Platt'
    >>> fitted.record.selection.margins["Isotonic"] > 0
    True
    """

    meets = Desiderata(any_score=True, increasing=True, expressive=False)
    candidates: tuple[Calibrator, ...] = _CANDIDATES
    folds: int = 5

    def __post_init__(self) -> None:
        candidates = instance("candidates", self.candidates, tuple, "Use e.g. (Platt(), Gamma()).")
        names = [instance("candidates", each, Calibrator).name for each in candidates]
        if not names or len(set(names)) < len(names):
            raise DataError(
                "candidates", "be one or more different methods", ", ".join(names) or "()"
            )
        object.__setattr__(self, "folds", whole("folds", self.folds, 2, _MOST_FOLDS))

    def fit(
        self,
        scores: Numbers,
        labels: Labels,
        columns: Any = None,
        sample_weight: Numbers | None = None,
        *,
        users: IdsLike | None = None,
    ) -> CalibrationMap:
        """Choose a method and fit it on all rows.

        Rows of one user are alike, so with `users` all of them are in the same fold. Folds are
        hash partitions of users or of row numbers: the same rows give the same choice.
        """
        self.require_no_columns(columns)
        array = score_column(scores)[0]
        evidence = as_evidence(weighted(labels, sample_weight), len(array))
        if users is None:
            fold_of_row = row_partitions(0, len(array), self.folds)
        else:
            distinct, inverse = np.unique(ids("users", users, len(array)), return_inverse=True)
            fold_of_row = hash_partitions(distinct.tolist(), self.folds)[inverse]
        summaries = []
        for fold in range(self.folds):
            rows = np.flatnonzero(fold_of_row == fold)
            if len(rows):
                summaries.append(Summary.of(array[rows], evidence.rows(rows)))
        calibrator, selection, reason = self.choose(summaries)
        # Pooling the rows again is faster than merging the folds.
        summary = Summary.of(array, evidence, distinct=calibrator.distinct_scores)
        fitted = with_selection(calibrator.fit_summary(summary), selection)
        if reason is not None:
            warnings.warn(reason, SmallTableWarning, stacklevel=2)
        return fitted

    def fit_rows(self, scores: Floats, evidence: Evidence) -> tuple[CalibrationMap, Summary]:
        """Choose a method and fit it on checked rows, and return their summary too."""
        return self.fit(scores, evidence), Summary.of(scores, evidence)

    def choose(self, folds: Sequence[Summary]) -> Choice:
        """Choose a method by one summary per fold; the first one where there are too few rows."""
        problem = _too_few(folds)
        if problem is None:
            return Choice(*self._choose(folds))
        simplest = self.candidates[0]
        reason = f"Method: {simplest.name}, because none could be chosen: {problem}."
        return Choice(simplest, None, reason)

    def _choose(self, folds: Sequence[Summary]) -> tuple[Calibrator, Selection]:
        losses = {}
        merged = [fold.coarsened(_MOST_BINS) for fold in folds]
        others = sums_without_each(merged)
        for candidate in self.candidates:
            try:
                losses[candidate.name] = held_out_losses(candidate, merged, others)
            except (FitError, DataError):
                continue  # a method without a fit is no choice; its loss is recorded as None
        _require_losses(losses, self.candidates)
        best = min(losses.values(), key=lambda each: each.mean)
        compared = []
        close: list[Calibrator] = []
        for each in self.candidates:
            found = losses.get(each.name)
            numbers = (found.mean, found.error_of_difference(best)) if found else (None, None)
            compared.append(CandidateLoss(each.name, *numbers))
            if found and found.mean - best.mean <= found.error_of_difference(best):
                close.append(each)
        chosen = close[0]
        return chosen, Selection(chosen.name, len(folds), tuple(compared))

    def fit_summary(self, summary: Summary) -> CalibrationMap:
        """Raise a `DataError`: rows that were pooled cannot be divided into folds."""
        rule, remedy = "be fitted on folds", "Use fit on rows, or a fixed method such as Platt()."
        raise DataError("Auto", rule, "one summary, whose rows cannot be divided", remedy)

    def _fit(self, summary: Summary) -> tuple[Curve, dict[str, Any]]:
        raise NotImplementedError  # `fit_summary` refuses

    @property
    def candidates_by_group(self) -> tuple[Calibrator, ...]:
        return (Platt(), Gaussian(), Spline())


def with_selection(fitted: CalibrationMap, selection: Selection | None) -> CalibrationMap:
    """The map with the selection, if there was one, in its record."""
    return replace(fitted, record=replace(fitted.record, selection=selection))


def _too_few(folds: Sequence[Summary]) -> str | None:
    """Why methods cannot be compared on these folds; None if they can."""
    if len(folds) < 2:
        return "there must be 2 or more folds with rows"
    for summary in folds:
        squares = float(summary.masses.positive_squared.sum())
        # Kish's effective number: equal weights count each positive once.
        positives = float(summary.positive.sum()) ** 2 / squares if squares else 0.0
        fewest = min(positives, summary.rows - positives)
        if fewest < _FEWEST_PER_FOLD:
            return (
                f"each of the {len(folds)} folds must have {_FEWEST_PER_FOLD} or more positives "
                f"and negatives to compare methods on, got {fewest:.0f}"
            )
    return None


def _require_losses(losses: dict[str, HeldOutLosses], candidates: tuple[Calibrator, ...]) -> None:
    if not losses:
        names = ", ".join(candidate.name for candidate in candidates)
        found, remedy = f"none of {names}", "Run calibrank diagnose, or fit one of them to see why."
        raise FitError("at least one candidate", "have a fit in every fold", found, remedy)
    # With weighted labels above 1 the log loss has no lower bound, so its minimum means nothing.
    lowest = min(each.mean for each in losses.values())
    if lowest < 0:
        raise FitError(
            "the log loss",
            "be 0 or more to select by",
            f"{lowest:.4f}: the mean weighted label exceeds 1 for some scores",
            "Raise the propensity clip, or use a fixed method such as Platt().",
        )


def sums_without_each(folds: Sequence[Summary]) -> list[Summary]:
    """The evidence of all other folds, for each fold."""
    before = list(accumulate(folds[:-1], add))
    after = list(accumulate(folds[:0:-1], add))[::-1]
    # The sums of the folds before and after each are shared, so merging takes linear time.
    inner = [add(*sums) for sums in zip(before[:-1], after[1:], strict=True)]
    return [after[0], *inner, before[-1]]


def fit_without_each(calibrator: Calibrator, folds: list[Summary]) -> list[CalibrationMap]:
    """Fit one map per fold on the evidence of all other folds.

    >>> from calibrank import Platt
    >>> first = Summary.of([0.0, 1.0, 2.0, 3.0], [0, 1, 0, 1])
    >>> second = Summary.of([0.5, 1.5, 2.5, 3.5], [0, 0, 1, 0])
    >>> [fitted.record.rows for fitted in fit_without_each(Platt(), [first, second])]
    [4, 4]
    """
    if len(folds) < 2:
        raise FitError(
            "cross-validation", "have rows of at least 2 users or folds", len(folds), _REMEDY
        )
    with warnings.catch_warnings():
        # A flat map needs no warning here: its held-out log loss shows it.
        warnings.simplefilter("ignore", FlatMapWarning)
        return [calibrator.fit_fold(rest) for rest in sums_without_each(folds)]


@dataclass(frozen=True, slots=True, eq=False)
class HeldOutLosses:
    """The log loss of each fold under the map of the other folds."""

    sums: Floats
    totals: Floats

    @property
    def mean(self) -> float:
        """Mean over all folds together: a mean of means would weight small folds too much."""
        return float(self.sums.sum() / self.totals.sum())

    def error_of_difference(self, other: HeldOutLosses) -> float:
        """Standard error of the difference of two means over the same folds.

        Folds are paired: what makes a fold hard is common to both methods. The difference is a
        ratio of sums, so the residuals are those of the ratio estimator, (d_k - t_k D) / sum(t).
        """
        differences = self.sums - other.sums
        residuals = differences - self.totals * (self.mean - other.mean)
        count = len(self.sums)
        variance = (residuals**2).sum() * count / (count - 1)
        return float(np.sqrt(variance) / self.totals.sum())


def held_out_losses(
    calibrator: Calibrator, folds: list[Summary], others: Sequence[Summary] | None = None
) -> HeldOutLosses:
    """Cross-validate a calibrator by log loss.

    Who compares several calibrators passes `sums_without_each(folds)` as `others`.

    >>> from calibrank import Platt
    >>> first = Summary.of([0.0, 1.0, 2.0, 3.0], [0, 1, 0, 1])
    >>> second = Summary.of([0.5, 1.5, 2.5, 3.5], [0, 0, 1, 0])
    >>> round(held_out_losses(Platt(), [first, second]).mean, 4)
    0.8342
    """
    with warnings.catch_warnings():
        # A flat map needs no warning here: its held-out log loss shows it.
        warnings.simplefilter("ignore", FlatMapWarning)
        curves = calibrator.fit_curves(others or sums_without_each(folds))
    sums = []
    for curve, held_out in zip(curves, folds, strict=True):
        log_odds = curve.log_odds(held_out.scores)
        log_odds = np.clip(log_odds, -_MOST_LOG_ODDS, _MOST_LOG_ODDS)
        # -log(1 - p) = softplus(log odds), and -log p is smaller by the log odds.
        loss = held_out.total @ np.logaddexp(0, log_odds) - held_out.positive @ log_odds
        sums.append(float(loss))
    totals = [float(held_out.total.sum()) for held_out in folds]
    return HeldOutLosses(np.array(sums), np.array(totals))
