"""Find the cut of lists that keeps promises about new users or queries.

A probability says what to expect; a promise needs a margin for the sampling error of the labels it
is checked on. `control` tests for each cut that a promise would be broken there, and keeps those
where this is rejected (learn then test, Angelopoulos et al., 2021). Users are the sampling units:
the rows of a user may depend on each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from calibrank._internal.arguments import instance, label, real, whole
from calibrank._internal.validation import IdsLike, Numbers, ids, probability_column
from calibrank.decisions.cuts import CUTS, Cut, Lists, Threshold
from calibrank.decisions.guarantee import CutPoint, Guarantee, best_of
from calibrank.decisions.promises import PooledPrecision, Promise, log_capital, users_needed
from calibrank.errors import DataError
from calibrank.evidence import Evidence, Labels, nonzero_evidence
from calibrank.maps import CalibrationMap
from calibrank.maps.score_shift import AnchorLabels

ANSWER_FROM = (0.0, 0.2, 0.4, 0.6, 0.8)
"""The best probabilities from which on users get an answer, if `abstain` is set."""

_LONGEST = 10**9
_ALL_CANDIDATES = "if these rows are all of their candidates"
_SMALLEST = "Give the smallest propensity that the log's design allows."
Kind = TypeVar("Kind")


@dataclass(frozen=True, slots=True, eq=False)
class Predicted:
    """Scores with the map that makes them probabilities; `columns` are those that the map needs."""

    fitted: CalibrationMap
    scores: Numbers
    columns: Any = None

    def require_fresh(self, evidence: Evidence) -> None:
        """Refuse labels that the map was fitted or anchored on, or a part of the latter."""
        record = self.fitted.record
        scores = np.asarray(self.scores, dtype=np.float64)
        ends = float(scores.min()), float(scores.max())
        is_known = record.looks_fitted_on(len(scores), *ends, float(evidence.positive.sum()))
        anchored_on = AnchorLabels(record)
        anchored_on.add(scores, evidence.positive)
        if is_known or anchored_on.are_used_again:
            raise DataError(
                "labels",
                "be of pairs that the map was not fitted or anchored on",
                "the same ones: a promise checked on them is broken more often than stated",
                "Use labels of other users, or keep half of the users for each step.",
            )


def control(
    probabilities: Numbers | Predicted,
    labels: Labels,
    users: IdsLike,
    promises: Promise | Sequence[Promise],
    *,
    cut: Cut | Sequence[Cut] = CUTS[0],
    confidence: float = 0.95,
    longest: int | None = None,
    abstain: bool = False,
    units: str = "users",
) -> Guarantee:
    """Find where to end lists so that promises about new users are kept.

    The promises hold together, with the given confidence, for any distribution and any number of
    users, if the users were drawn at random, if the rows are all of their candidates, and if the
    map was not fitted or anchored on these labels. The map need not be calibrated. `users` may be
    queries: `units` says what they are called.

    `longest` limits all lists. Of a random sample of pairs (`impressions` with propensities) only
    a pooled precision by threshold can be promised, where no list is longer than `longest`: users
    with long lists are more often in a sample, and its best rows are not the best of all. Of
    several cuts the best is chosen. With `abstain`, users whose best probability is low get no
    answer if the promises cannot be kept for all; they then hold for the others.

    >>> from calibrank.decisions import Precision, Recall
    >>> rng = np.random.default_rng(0)
    >>> probabilities, users = rng.random(20_000), np.repeat(np.arange(1_000), 20)
    >>> labels = rng.random(20_000) < probabilities
    >>> control(probabilities, labels, users, Precision(0.8)).threshold
    0.62
    >>> found = control(probabilities, labels, users, [Precision(0.7), Recall(0.7)])
    >>> found.threshold, round(found.best.length, 1)
    (0.54, 9.3)
    """
    given = probabilities
    if isinstance(given, Predicted):
        given = given.fitted.predict(given.scores, given.columns)
    values = probability_column(given).astype(np.float64)
    promised = _several("promises", promises, Promise, "Recall(0.8)")
    cuts = _several("cut", cut, Cut, "Rank()")
    evidence = nonzero_evidence(labels, len(values))
    if isinstance(probabilities, Predicted):
        probabilities.require_fresh(evidence)
    is_sample = evidence.kind == "impressions" and float(evidence.total.max()) > 1
    if is_sample:
        _require_sums(evidence, promised, cuts)
    evidence = _unbiased(evidence, promised)
    codes = np.unique(ids("users", users, len(values)), return_inverse=True)[1]
    confidence = real("confidence", confidence, "(0, 1)", "Use e.g. 0.95.")
    most = None if longest is None else whole("longest", longest, 1, _LONGEST)
    # Users in an order that has nothing to do with their names, which may follow time.
    shuffled = np.random.default_rng(0).permutation(int(codes.max()) + 1)[codes]
    lists = Lists.of(values, evidence, shuffled, most, is_sample=is_sample)
    levels = ANSWER_FROM if abstain else ANSWER_FROM[:1]
    # Every promise, kind of cut and level has its share of the error probability.
    share = (1 - confidence) / (len(promised) * len(cuts) * len(levels))
    points = []
    for answer_from in levels:
        for each in cuts:
            points += _test(lists, each, promised, answer_from, share)
    best = best_of(points, shortest=any(promise.grows for promise in promised))
    users_given = len(lists.best)
    rows_are = f"if no list has more than {most} rows" if is_sample else _ALL_CANDIDATES
    told = (label("units", units), rows_are)
    return Guarantee(promised, confidence, users_given, *told, best, tuple(points))


def _test(
    lists: Lists, cut: Cut, promises: tuple[Promise, ...], answer_from: float, error: float
) -> list[CutPoint]:
    """Test the promises at all values of a cut, for users whose best probability is high enough."""
    shown = lists.shown(cut)
    answered = lists.best >= answer_from
    kept = []
    expected = []
    needed = []
    for promise in promises:
        ratios = promise.ratios(shown).only(answered)
        excess = ratios.excess(promise.allowed)
        capital = log_capital(excess, promise.allowed, error)
        kept.append(promise.accept(capital, error).tolist())
        expected.append(ratios.kept_share())
        needed.append(users_needed(excess, promise.allowed, error / promise.starts))
    total = shown.total * answered[:, None]
    rows = zip(
        cut.values,
        total.mean(axis=0).tolist(),
        (total > 0).mean(axis=0).tolist(),
        zip(*expected, strict=True),
        zip(*kept, strict=True),
        np.max(needed, axis=0).tolist(),
        strict=True,
    )
    return [CutPoint(cut, answer_from, *row) for row in rows]


def _several(
    name: str, given: Kind | Sequence[Kind], kind: type[Any], example: str
) -> tuple[Kind, ...]:
    values = given if isinstance(given, Sequence) else (given,)
    if not values:
        raise DataError(name, f"hold at least one {kind.__name__}", "none")
    # There are metrics of the same names.
    remedy = f"Use one of calibrank.decisions, such as {example}."
    return tuple(instance(name, value, kind, remedy) for value in values)


def _require_sums(evidence: Evidence, promises: tuple[Promise, ...], cuts: tuple[Cut, ...]) -> None:
    """Refuse what sums over a sample of pairs cannot tell: ratios of single users, and ranks."""
    named = [type(each).__name__ for each in promises if not isinstance(each, PooledPrecision)]
    named += [type(each).__name__ for each in cuts if not isinstance(each, Threshold)]
    if named:
        found = f"a sample with propensities of {1 / float(evidence.total.max()):.3g} and more"
        remedy = f"Promise PooledPrecision(0.8, smallest_propensity=...). {_SMALLEST}"
        raise DataError("labels", f"be of all candidates for {named[0]}", found, remedy)


def _unbiased(evidence: Evidence, promises: tuple[Promise, ...]) -> Evidence:
    """Evidence of the labels of all candidates, or of impressions with known propensities."""
    if np.any(evidence.positive > evidence.total):
        found = f"{evidence.kind} evidence, whose positive mass exceeds the total mass of a row"
        remedy = "Use labels of randomly shown pairs, or impressions."
        raise DataError("labels", "be unbiased for a guarantee", found, remedy)
    largest = float(evidence.total.max())
    if evidence.total.min() == largest:
        return Evidence(evidence.positive / largest, np.ones(len(evidence)))
    for promise in promises:
        if not isinstance(promise, PooledPrecision):
            raise DataError(
                "labels",
                f"have equal weights for {type(promise).__name__}",
                f"weights of {evidence.total.min():.3g} to {largest:.3g}",
                f"Promise PooledPrecision(0.8, smallest_propensity=...). {_SMALLEST}",
            )
        if largest * promise.smallest_propensity > 1 + 1e-9:
            rule = f"be at most {1 / largest:.3g}, the smallest of these labels"
            found = f"{promise.smallest_propensity:.3g}"
            raise DataError("smallest_propensity", rule, found, _SMALLEST)
    return evidence
