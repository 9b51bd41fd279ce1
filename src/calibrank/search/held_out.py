"""Maps for new queries: what they are worth on queries that were held out, and thresholds.

The probabilities of a query come from a map that was fitted on other queries, and so does the
constant that it is compared with.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from calibrank._internal.arguments import listed, real, seeded, shown, whole
from calibrank._internal.validation import (
    Floats,
    Ids,
    Indices,
    Mask,
    Numbers,
    add_up,
    probability_column,
)
from calibrank.curves import Auto
from calibrank.errors import DataError, FitError, FlatMapWarning
from calibrank.evidence import Labels
from calibrank.maps import CalibrationMap
from calibrank.metrics import Estimate, LogLoss
from calibrank.metrics.clustered_bootstrap import RESAMPLES, draw_matrix
from calibrank.search.judged import Judged, require_judged, require_queries
from calibrank.tables import hash_partitions
from calibrank.terms import Group
from calibrank.terms.group import GroupFit

LOSS, CONSTANT_LOSS, GAIN = "LogLoss", "ConstantLogLoss", "LogLossGain"
"""Names of the losses: of the map, of a constant, and how much lower the first is."""

FOLDS = 5
"""Folds of queries, unless told otherwise."""
FEWEST_QUERIES = GroupFit(()).fewest_groups
"""Queries that a map needs."""
# For losses, up to this many. Each fold takes a fit, whose time grows with the queries, so that the
# product of the two is limited.
_MOST_LOSS_FOLDS = 25
_FOLDS_TIMES_QUERIES = 1250
_MOST_FOLDS = 1000
_MOST_QUERIES = 10**9

Aim: TypeAlias = Literal["precision", "recall"]

# A precision over fewer documents or queries than this says little, whatever its value: intervals
# resample queries.
_FEWEST_DOCUMENTS = 10
_FEWEST_QUERIES = 5
# Cuts that are compared where a wanted precision cannot be had: by rank, and at these quantiles of
# the probabilities.
_RANKS = (1, 2, 3, 5, 10)
_LEVELS = np.linspace(0, 1, 41)[1:-1]
# Fractions of queries to answer.
_SHARES = (0.1, 0.25, 0.5, 0.75, 1.0)


def held_out_probabilities(
    judged: Judged, folds: int = FOLDS, progress: Callable[[int], None] | None = None
) -> Floats:
    """The probability of each judged document under a map fitted without its query's fold.

    `progress` is called with the number of queries of each fold that is done.
    """
    require_judged(judged)
    fold_of_row = query_folds(judged.queries, folds)
    require_queries(judged, _fewest_queries(folds))
    _require_both_classes(judged, fold_of_row)
    probabilities = np.empty(len(judged))
    for fold in range(int(fold_of_row.max()) + 1):
        held_out = np.flatnonzero(fold_of_row == fold)
        others = np.flatnonzero(fold_of_row != fold)
        with warnings.catch_warnings():
            # A flat map of one fold is no news: the losses show it.
            warnings.simplefilter("ignore", FlatMapWarning)
            fitted = fit_for_new_queries(
                judged.scores[others], judged.evidence.rows(others), judged.queries[others]
            )
        probabilities[held_out] = fitted.predict(judged.scores[held_out])
        if progress is not None:
            progress(len(np.unique(judged.queries[held_out])))
    return probabilities


def fit_for_new_queries(scores: Numbers, labels: Labels, queries: Ids) -> CalibrationMap:
    """A map for queries never seen, whose levels differ."""
    return (Auto() + Group("query")).fit(scores, labels, {"query": queries})


def _require_both_classes(judged: Judged, fold_of_row: Indices) -> None:
    """Check that relevant and other documents remain, whichever fold is held out."""
    positive = add_up(fold_of_row, judged.evidence.positive)
    others = add_up(fold_of_row, judged.evidence.total) - positive
    for name, masses in (("relevant", positive), ("other", others)):
        found = np.flatnonzero(masses > 0)
        if len(found) == 1:
            queries = np.unique(judged.queries[fold_of_row == found[0]])
            raise FitError(
                f"{name} documents",
                "remain when some queries are held out",
                f"all of them in {listed(queries)}",
                "Judge documents of more queries.",
            )


def loss_folds(n_queries: int) -> int:
    """The folds to compare losses by: 25 for up to 50 queries, 5 from 250 on.

    With 50 queries in five folds, a loss depends on which queries are held out together, by more
    than many maps gain. More folds steady it, and their maps are nearly the map of all queries. Not
    so for what pools the probabilities of all folds, as ECEs and thresholds do: without a query
    with many relevant documents the level of a map is lower, the more so the smaller the fold, and
    pooled probabilities of nearly flat maps are then ordered against the labels.

    >>> [loss_folds(queries) for queries in (20, 50, 100, 1000)]
    [25, 25, 12, 5]
    """
    whole("n_queries", n_queries, 1, _MOST_QUERIES)
    return min(max(_FOLDS_TIMES_QUERIES // n_queries, FOLDS), _MOST_LOSS_FOLDS)


def _fewest_queries(folds: int) -> int:
    """Queries of which enough remain for a map when the largest fold is held out."""
    queries = FEWEST_QUERIES + 1
    while queries - -(-queries // folds) < FEWEST_QUERIES:
        queries += 1
    return queries


def held_out_constant(judged: Judged, folds: int = FOLDS) -> Floats:
    """The rate of relevant documents without each query's fold: what a map must be better than."""
    require_judged(judged)
    require_queries(judged, 2)
    fold_of_row = query_folds(judged.queries, folds)
    positive = add_up(fold_of_row, judged.evidence.positive)
    total = add_up(fold_of_row, judged.evidence.total)
    rates = (positive.sum() - positive) / (total.sum() - total)
    return rates[fold_of_row]


def query_folds(queries: Ids, folds: int = FOLDS) -> Indices:
    """The fold of each row: whole queries, in turn in the order of a hash of their ids.

    There are no more folds than queries.
    """
    names, inverse = np.unique(queries, return_inverse=True)
    folds = min(whole("folds", folds, 2, _MOST_FOLDS), len(names))
    order = np.argsort(hash_partitions(names.tolist(), 2**32), kind="stable")
    fold = np.empty(len(names), dtype=np.intp)
    fold[order] = np.arange(len(names)) % folds
    return fold[inverse]


def held_out_losses(
    judged: Judged, probabilities: Numbers, folds: int = FOLDS
) -> dict[str, Estimate]:
    """The log losses of held-out probabilities and of the constant, and how much they differ.

    The constant is held out in `folds` too, so name those of the probabilities. Intervals are by
    query: queries are resampled, not documents, and the maps are taken as given. With 20 to 30
    queries the interval of the gain held that of the map of all queries in 49 of 60 synthetic
    pools (`benchmarks/search_intervals.py`). Most misses are below the truth: in 60 pools whose
    scores say nothing, no interval lay above 0.

    >>> from calibrank import impressions
    >>> rng = np.random.default_rng(0)
    >>> queries, truth = np.repeat(np.arange(50), 20), rng.random(1000)
    >>> labels = (rng.random(1000) < truth).astype(float)
    >>> judged = Judged(queries, queries, truth, labels, impressions(labels), "all")
    >>> held_out_losses(judged, truth)["LogLossGain"].low > 0.1
    True
    """
    require_judged(judged)
    probabilities = probability_column(probabilities, len(judged))
    query = np.unique(judged.queries, return_inverse=True)[1]
    mass = add_up(query, judged.evidence.total)
    draws = draw_matrix(len(mass), RESAMPLES, seeded(0))
    loss = LogLoss().terms(probabilities, judged.evidence)[0]
    constant = LogLoss().terms(held_out_constant(judged, folds), judged.evidence)[0]
    sums = {LOSS: loss, CONSTANT_LOSS: constant, GAIN: constant - loss}
    return {name: ratio(add_up(query, each), mass, draws) for name, each in sums.items()}


def ratio(above: Floats, below: Floats, draws: Floats) -> Estimate:
    """A ratio of sums over queries, with its 95% percentile interval over resampled queries."""
    if below.sum() == 0:
        return _UNKNOWN
    denominators = draws @ below
    drawn = denominators > 0
    ratios = (draws @ above)[drawn] / denominators[drawn]
    low, high = np.quantile(ratios, [0.025, 0.975]).tolist()
    return Estimate(float(above.sum() / below.sum()), low, high)


_UNKNOWN = Estimate(float("nan"), float("nan"), float("nan"))


@dataclass(frozen=True, slots=True)
class Cut:
    """A threshold on the probability, and what it does on queries that were held out."""

    aim: Aim
    wanted: float
    threshold: float | None
    """The lowest probability to return; None where no threshold reaches the aim."""
    top_k: int | None = None
    """How many documents of each query are considered, the first ones; None for all."""
    precision: Estimate = _UNKNOWN
    recall: Estimate = _UNKNOWN
    answered: Estimate = _UNKNOWN
    """The fraction of queries for which some document is returned. A first document that is not
    judged is as probable as the most probable judged one, or more."""
    kept: int = 0
    """The number of judged documents that are returned."""


class Reachable(NamedTuple):
    """The precision that can be had: by the rank alone, by the probability alone, by both."""

    by_rank: Cut
    by_probability: Cut
    by_both: Cut
    curve: tuple[Cut, ...]
    """The most precise cut for each of some fractions of queries to answer, the fewest first."""


def fit_judged(judged: Judged) -> CalibrationMap:
    """Fit a map for new queries on judged documents; its record says which documents it is for."""
    require_judged(judged)
    require_queries(judged, FEWEST_QUERIES)
    fitted = fit_for_new_queries(judged.scores, judged.evidence, judged.queries)
    record = replace(fitted.record, population=judged.recorded_population)
    return replace(fitted, record=record)


def choose_cut(judged: Judged, probabilities: Floats, aim: Aim, wanted: float) -> Cut:
    """The threshold that reaches a precision with most recall, or a recall with most precision.

    Intervals are by query: queries are resampled, not documents. The threshold is chosen on the
    queries that it is evaluated on, so on new ones precision is below the wanted one about as often
    as above it; the lower end of its interval is what to count on.

    >>> rng = np.random.default_rng(0)
    >>> queries = np.repeat(np.arange(100), 20)
    >>> truth = rng.random(2000)
    >>> labels = (rng.random(2000) < truth).astype(float)
    >>> from calibrank import impressions
    >>> judged = Judged(queries, queries, truth, labels, impressions(labels), "all")
    >>> cut = choose_cut(judged, truth, "precision", 0.8)
    >>> 0.5 < cut.threshold < 0.7
    True
    """
    if not isinstance(aim, str) or aim not in ("precision", "recall"):
        raise DataError("aim", "be precision or recall", shown(aim))
    real(f"the wanted {aim}", wanted, "(0, 1]")
    require_judged(judged)
    probabilities = probability_column(probabilities, len(judged))
    threshold = _threshold(judged, probabilities, aim, wanted)
    reached = probabilities >= (np.inf if threshold is None else threshold)
    return _cut(judged, reached, reached, Cut(aim, wanted, threshold))


def reachable_cuts(judged: Judged, probabilities: Floats, wanted: float) -> Reachable:
    """The precision that can be had where no threshold reaches the wanted one.

    Cuts are by the rank in the query (the first 1, 2, 3, 5 or 10 documents), by the probability,
    and by both. Each is the one whose precision is highest at the lower end of its interval, and
    was chosen among many on these queries: on new ones expect the lower end.

    >>> rng = np.random.default_rng(0)
    >>> queries, truth = np.repeat(np.arange(100), 20), 0.6 * rng.random(2000)
    >>> labels = (rng.random(2000) < truth).astype(float)
    >>> from calibrank import impressions
    >>> judged = Judged(queries, np.arange(2000), truth, labels, impressions(labels), "all")
    >>> found = reachable_cuts(judged, truth, 0.9)
    >>> found.by_rank.top_k, 0.5 < found.by_both.precision.value < 0.7
    (1, True)
    """
    real("the wanted precision", wanted, "(0, 1]")
    require_judged(judged)
    probabilities = probability_column(probabilities, len(judged))
    levels = np.unique(np.quantile(probabilities, _LEVELS, method="higher")).tolist()
    ranks = judged.ranks
    cuts = []
    lower_ends = {}
    for top_k in (*_RANKS, None):
        first = ranks <= (np.inf if top_k is None else top_k)
        for threshold in (0.0, *levels):
            reached = probabilities >= threshold
            kept = first & reached
            queries = len(np.unique(judged.queries[kept]))
            if kept.sum() >= _FEWEST_DOCUMENTS and queries >= _FEWEST_QUERIES:
                cut = _cut(judged, kept, reached, Cut("precision", wanted, threshold, top_k))
                cuts.append(cut)
                lower_ends[cut] = _lower_end(cut.precision.value, queries)
    if not cuts:
        rule = f"have {_FEWEST_DOCUMENTS} judged documents in {_FEWEST_QUERIES} queries"
        raise FitError("the run", rule, f"{len(judged)} in {judged.n_queries}", "Judge more.")

    curve = []
    for share in _SHARES:
        enough = [cut for cut in cuts if cut.answered.value >= share]
        if enough:
            curve.append(max(enough, key=lambda cut: cut.precision.value))
    return Reachable(
        max([cut for cut in cuts if cut.threshold == 0], key=lower_ends.__getitem__),
        max([cut for cut in cuts if cut.top_k is None], key=lower_ends.__getitem__),
        max(cuts, key=lower_ends.__getitem__),
        tuple(dict.fromkeys(curve)),
    )


def _lower_end(rate: float, queries: int) -> float:
    """Wilson's, as if each query were one trial: resampling sees no variance in a rate of 1."""
    trials = 1.96**2 / queries
    half_width = np.sqrt(trials * (rate * (1 - rate) + trials / 4))
    return float((rate + trials / 2 - half_width) / (1 + trials))


def _cut(judged: Judged, kept: Mask, reached: Mask, cut: Cut) -> Cut:
    """What a cut does on the judged documents, with intervals by query."""
    draws = draw_matrix(judged.n_queries, RESAMPLES, seeded(0))
    names, query = np.unique(judged.queries, return_inverse=True)
    total = add_up(query, judged.evidence.total * kept, len(names))
    found = add_up(query, judged.evidence.positive * kept, len(names))
    relevant = add_up(query, judged.evidence.positive, len(names))
    answered = np.isin(np.arange(len(names)), query[reached]).astype(np.float64)
    return replace(
        cut,
        precision=ratio(found, total, draws),
        recall=ratio(found, relevant, draws),
        answered=ratio(answered, np.ones(len(names)), draws),
        kept=int(kept.sum()),
    )


def _threshold(judged: Judged, probabilities: Floats, aim: Aim, wanted: float) -> float | None:
    order = np.argsort(-probabilities, kind="stable")
    ordered = probabilities[order]
    kept = np.cumsum(judged.evidence.total[order])
    relevant = np.cumsum(judged.evidence.positive[order])
    # A threshold keeps all documents of its own probability: only the last of equals counts.
    last = np.append(ordered[1:] != ordered[:-1], True)
    if aim == "precision":
        # The lowest threshold has most recall.
        enough = np.arange(len(kept)) + 1 >= _FEWEST_DOCUMENTS
        firsts = np.unique(judged.queries[order], return_index=True)[1]
        queries = np.cumsum(np.isin(np.arange(len(kept)), firsts))
        enough &= queries >= min(_FEWEST_QUERIES, judged.n_queries)
        candidates = np.flatnonzero(last & enough & (relevant / kept >= wanted))
        return float(ordered[candidates[-1]]) if len(candidates) else None
    # A relative tolerance: all of the relevant mass is 1 up to rounding.
    candidates = np.flatnonzero(last & (relevant / relevant[-1] >= wanted * (1 - 1e-12)))
    return float(ordered[candidates[0]]) if len(candidates) else None
