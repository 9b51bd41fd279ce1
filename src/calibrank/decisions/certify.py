"""Find the cut of lists that keeps promises about new users or queries.

A probability says what to expect; a promise needs a margin for the sampling error of the labels it
is checked on. `control` tests for each cut that a promise would be broken there, and keeps those
where this is rejected (learn then test, Angelopoulos et al., 2021). Users are the sampling units:
the rows of a user may depend on each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from calibrank._internal.arguments import instance, label, real, whole
from calibrank._internal.validation import IdsLike, Integers, Numbers, ids, probability_column
from calibrank.decisions.bounds import accept_on_average, log_capital, users_needed
from calibrank.decisions.cuts import CUTS, Cut, Lists
from calibrank.decisions.guarantee import CutPoint, Guarantee, best_of
from calibrank.decisions.predicted import Predicted
from calibrank.decisions.promises import PooledPrecision, Promise
from calibrank.errors import DataError
from calibrank.evidence import Evidence, Labels, nonzero_evidence

ANSWER_FROM = (0.0, 0.2, 0.4, 0.6, 0.8)
"""The best probabilities from which on users get an answer, if `abstain` is set."""

_LONGEST = 10**9
Kind = TypeVar("Kind")


def control(
    probabilities: Numbers | Predicted,
    labels: Labels,
    users: IdsLike,
    promises: Promise | Sequence[Promise],
    *,
    cut: Cut | Sequence[Cut] = CUTS[0],
    confidence: float | None = 0.95,
    longest: int | None = None,
    abstain: bool = False,
    units: str = "users",
) -> Guarantee:
    """Find where to end lists so that promises about new users are kept.

    The promises hold together, with the given confidence, for any distribution and any number of
    users, if the users were drawn at random, if their labels are unbiased for all of their
    candidates, and if the map was not fitted or anchored on these labels. The map need not be
    calibrated. `users` may be queries: `units` says what they are called.

    Without a confidence, one `Recall` is promised on average over samples of labelled users, which
    needs fewer of them. `longest` limits all lists. `Rank`, `Gap` and `longest` need all candidates
    of a list as rows: the best of a sample are not the best of all. Of several cuts the best is
    chosen. With `abstain`, users whose best probability is low get no answer if the promises cannot
    be kept for all; they then hold for the others.

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
        given.require_fresh(labels)
        given = given.probabilities()
    values = probability_column(given).astype(np.float64)
    promised = _several("promises", promises, Promise, "Recall(0.8)")
    cuts = _several("cut", cut, Cut, "Rank()")
    evidence = _unbiased(nonzero_evidence(labels, len(values)), promised)
    codes = np.unique(ids("users", users, len(values)), return_inverse=True)[1]
    if confidence is None:
        _require_one_recall(promised, cuts, abstain=abstain)
    else:
        confidence = real("confidence", confidence, "(0, 1)", "Use e.g. 0.95.")
    most = None if longest is None else whole("longest", longest, 1, _LONGEST)
    lists = Lists.of(values, evidence, _shuffled(codes), most)
    levels = ANSWER_FROM if abstain else ANSWER_FROM[:1]
    # Every promise, kind of cut and level has its share of the error probability.
    share = None
    if confidence is not None:
        share = (1 - confidence) / (len(promised) * len(cuts) * len(levels))
    points = []
    for answer_from in levels:
        for each in cuts:
            points += _test(lists, each, promised, answer_from, share)
    best = best_of(points, shortest=any(promise.grows for promise in promised))
    users_given = len(lists.best)
    return Guarantee(promised, confidence, users_given, label("units", units), best, tuple(points))


def _test(
    lists: Lists, cut: Cut, promises: tuple[Promise, ...], answer_from: float, error: float | None
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
        if error is None:
            kept.append(accept_on_average(excess).tolist())
        else:
            capital = log_capital(excess, promise.allowed, error)
            kept.append(promise.accept(capital, error).tolist())
        expected.append(ratios.kept_share())
        level = None if error is None else error / promise.starts
        needed.append(users_needed(excess, promise.allowed, level))
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


def _require_one_recall(
    promises: tuple[Promise, ...], cuts: tuple[Cut, ...], *, abstain: bool
) -> None:
    if len(promises) == len(cuts) == 1 and promises[0].grows and not abstain:
        return
    raise DataError(
        "confidence",
        "be given, except for one promise of Recall at one kind of cut without abstain",
        "None",
        "Use e.g. confidence=0.95.",
    )


def _unbiased(evidence: Evidence, promises: tuple[Promise, ...]) -> Evidence:
    """Evidence of the labels of all candidates, or of impressions with known propensities."""
    if np.any(evidence.positive > evidence.total):
        raise DataError(
            "labels",
            "be unbiased for a guarantee",
            (f"{evidence.kind} evidence, whose positive mass exceeds the total mass of a row"),
            "Use labels of randomly shown pairs, or impressions.",
        )
    largest = float(evidence.total.max())
    if evidence.total.min() == largest:
        return Evidence(evidence.positive / largest, np.ones(len(evidence)))
    for promise in promises:
        if not isinstance(promise, PooledPrecision):
            raise DataError(
                "labels",
                f"have equal weights for {type(promise).__name__}",
                f"weights of {evidence.total.min():.3g} to {largest:.3g}",
                (
                    "Promise PooledPrecision(0.8, smallest_propensity=...) with the "
                    "smallest propensity that the log's design allows."
                ),
            )
        if largest * promise.smallest_propensity > 1 + 1e-9:
            raise DataError(
                "smallest_propensity",
                f"be at most {1 / largest:.3g}, the smallest of these labels",
                f"{promise.smallest_propensity:.3g}",
                "Give the smallest that the log's design allows.",
            )
    return evidence


def _shuffled(codes: Integers) -> Integers:
    """Users in an order that has nothing to do with their names, which may follow time."""
    return np.random.default_rng(0).permutation(int(codes.max()) + 1)[codes]
