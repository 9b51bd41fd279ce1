"""Select a calibration method by cross-validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from calibrank._internal.arguments import instance, shown, whole
from calibrank._internal.validation import Floats, IdsLike, Numbers, ids, score_column
from calibrank.curves.calibrator import Calibrator, Desiderata
from calibrank.curves.cross_validation import HeldOutLosses, held_out_losses, sums_without_each
from calibrank.curves.isotonic import Isotonic
from calibrank.curves.parametric import Beta, Gamma, Gaussian, Platt
from calibrank.curves.spline import Spline
from calibrank.errors import DataError, FitError
from calibrank.evidence import Evidence, Labels, as_evidence, weighted
from calibrank.maps import CalibrationMap, CandidateLoss, Curve, Selection
from calibrank.maps.training import require_both_classes
from calibrank.summary import Summary
from calibrank.summary.grid import CAPACITY
from calibrank.tables import hash_partitions, row_partitions

# Each fold costs one fit per candidate; more folds than this change no choice.
_MOST_FOLDS = 1000

# Of each fold, where methods are compared: the chosen one is fitted on all bins. About a third of
# them are within the range of most scores, which moves mean losses by less than 1e-5.
_MOST_BINS = 8192

_CANDIDATES = (Platt(), Gaussian(), Beta(), Gamma(), Spline(), Isotonic())


@dataclass(frozen=True, slots=True)
class Auto(Calibrator):
    """The simplest of several methods whose cross-validated log loss is close to the lowest.

    `candidates` are ordered from simple to complex. The first one is chosen whose mean loss is
    within one standard error of the lowest, where the error is that of the difference, paired by
    fold (the one-standard-error rule, Breiman et al. 1984). The map is that of the chosen method,
    fitted on everything; `record.selection` has the loss of every candidate.

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
        names = [candidate.name for candidate in _checked_candidates(self.candidates)]
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
            if not len(rows):
                raise _empty_fold(fold)
            summaries.append(Summary.of(array[rows], evidence.rows(rows)))
        calibrator, selection = self.choose(summaries)
        summary = reduce(add, summaries)
        if not summary.exact and calibrator.distinct_scores > CAPACITY:
            summary = Summary.of(array, evidence, distinct=calibrator.distinct_scores)
        return with_selection(calibrator.fit_summary(summary), selection)

    def fit_rows(self, scores: Floats, evidence: Evidence) -> tuple[CalibrationMap, Summary]:
        """Choose a method and fit it on checked rows, and return their summary too."""
        return self.fit(scores, evidence), Summary.of(scores, evidence)

    def fit_folds(self, folds: Sequence[Summary]) -> CalibrationMap:
        """Choose a method by one summary per fold, and fit it on their sum."""
        calibrator, selection = self.choose(folds)
        fitted = calibrator.fit_summary(reduce(add, folds))
        return with_selection(fitted, selection)

    def choose(self, folds: Sequence[Summary]) -> tuple[Calibrator, Selection]:
        """Choose a method by one summary per fold."""
        _require_folds(folds)
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
        compared = [_compared(each.name, losses.get(each.name), best) for each in self.candidates]
        chosen = next(each for each in compared if _is_close(each, best.mean))
        calibrator = self.candidates[compared.index(chosen)]
        return calibrator, Selection(chosen.name, len(folds), tuple(compared))

    def fit_summary(self, summary: Summary) -> CalibrationMap:
        """Raise a `DataError`: rows that were pooled cannot be divided into folds."""
        raise DataError(
            "Auto",
            "be fitted on folds",
            "one summary, whose rows cannot be divided",
            ("Use fit_folds with one summary per fold, or a fixed method such as Gaussian()."),
        )

    def _fit(self, summary: Summary) -> tuple[Curve, dict[str, Any]]:
        raise NotImplementedError  # `fit_summary` refuses

    @property
    def candidates_by_group(self) -> tuple[Calibrator, ...]:
        return (Platt(), Gaussian(), Spline())


def _checked_candidates(candidates: object) -> tuple[Calibrator, ...]:
    if not isinstance(candidates, tuple):
        raise DataError(
            "candidates",
            "be a tuple of calibrators",
            shown(candidates),
            "Use e.g. (Platt(), Isotonic()).",
        )
    return tuple([instance("candidates", each, Calibrator) for each in candidates])


def with_selection(fitted: CalibrationMap, selection: Selection) -> CalibrationMap:
    """The map with the selection in its record."""
    return replace(fitted, record=replace(fitted.record, selection=selection))


def _compared(name: str, losses: HeldOutLosses | None, best: HeldOutLosses) -> CandidateLoss:
    if losses is None:
        return CandidateLoss(name, None, None)
    return CandidateLoss(name, losses.mean, losses.standard_error_of_difference(best))


def _is_close(candidate: CandidateLoss, lowest: float) -> bool:
    if candidate.loss is None or candidate.standard_error is None:
        return False
    return candidate.loss - lowest <= candidate.standard_error


def _empty_fold(fold: int) -> FitError:
    return FitError(
        "each fold",
        "hold rows of both classes",
        f"none in fold {fold + 1}",
        "Use fewer folds, or a fixed method such as Gaussian().",
    )


def _require_folds(folds: Sequence[Summary]) -> None:
    if len(folds) < 2:
        raise FitError(
            "there",
            "be 2 or more folds with rows",
            len(folds),
            "Use more rows or users, or a fixed method such as Gaussian().",
        )
    for fold, summary in enumerate(folds):
        if not len(summary):
            raise _empty_fold(fold)
        try:
            require_both_classes(summary)
        except FitError:
            raise FitError(
                "each fold",
                "hold rows of both classes",
                f"one class in fold {fold + 1} of {len(folds)} ({summary.rows:,} rows)",
                "Use fewer folds, or a fixed method such as Gaussian().",
            ) from None


def _require_losses(losses: dict[str, HeldOutLosses], candidates: tuple[Calibrator, ...]) -> None:
    if not losses:
        names = ", ".join(candidate.name for candidate in candidates)
        raise FitError(
            "at least one candidate",
            "have a fit in every fold",
            f"none of {names}",
            "Run calibrank diagnose, or fit one of them to see why.",
        )
    # With weighted labels above 1 the log loss has no lower bound, so its minimum means nothing.
    lowest = min(each.mean for each in losses.values())
    if lowest < 0:
        raise FitError(
            "the log loss",
            "be 0 or more to select by",
            f"{lowest:.4f}: the mean weighted label exceeds 1 for some scores",
            "Raise the propensity clip, or use a fixed method such as Gaussian().",
        )
