"""What a map is worth on queries that were held out: losses, the gain over a constant, the ECE.

The probabilities of a query come from a map that was fitted on other queries, and so does the
constant that it is compared with.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import numpy as np

from calibrank._internal.arguments import instance, listed, seeded, whole
from calibrank._internal.logit import expit, logit
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
from calibrank.errors import FitError, FlatMapWarning
from calibrank.evidence import Evidence, Labels
from calibrank.maps import CalibrationMap
from calibrank.metrics import ECE, DebiasedECE, Estimate, LogLoss, bootstrap
from calibrank.metrics.clustered_bootstrap import RESAMPLES, draw_matrix
from calibrank.search.judged import Judged
from calibrank.tables import hash_partitions
from calibrank.terms import Group
from calibrank.terms._mixed_model import fit_mixed_model, integrated
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
_CHANCE_DRAWS = 400
# Probabilities closer to 0 or 1 have no finite log odds to draw labels from.
_SMALLEST = 1e-9
_MOST_FOLDS = 1000
_MOST_DRAWS = 10**6
_MOST_QUERIES = 10**9


def held_out_probabilities(
    judged: Judged, folds: int = FOLDS, progress: Callable[[int], None] | None = None
) -> Floats:
    """The probability of each judged document under a map fitted without its query's fold.

    `progress` is called with the number of queries of each fold that is done.
    """
    require_judged(judged)
    fold_of_row = query_folds(judged.queries, folds)
    _require_queries(judged, _fewest_queries(folds))
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


def require_judged(judged: object) -> None:
    """Check that an argument is what `judged_rows` returns."""
    instance("judged", judged, Judged, "Make it with judged_rows(...).")


def _require_queries(judged: Judged, fewest: int) -> None:
    if judged.n_queries < fewest:
        raise FitError(
            "the run",
            f"have {fewest} or more queries with judged documents to hold some out",
            judged.n_queries,
            "Judge documents of more queries.",
        )


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
    _require_queries(judged, 2)
    fold_of_row = query_folds(judged.queries, folds)
    positive = add_up(fold_of_row, judged.evidence.positive)
    total = add_up(fold_of_row, judged.evidence.total)
    rates = (positive.sum() - positive) / (total.sum() - total)
    by_row: Floats = rates[fold_of_row]
    return by_row


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


def held_out_errors(judged: Judged, probabilities: Numbers) -> dict[str, Estimate]:
    """The ECE, and the ECE without the part that chance adds.

    The interval of the debiased one is by query. A plain ECE is above 0 for calibrated
    probabilities too, so its resamples lie above it and an interval of them says nothing: in its
    place are the ends between which 95% of the ECEs would lie if these probabilities were right.
    """
    require_judged(judged)
    probabilities = probability_column(probabilities, len(judged))
    ece = ECE()(probabilities, judged.evidence)
    low, high = np.quantile(chance_eces(judged, probabilities), [0.025, 0.975]).tolist()
    debiased = bootstrap(DebiasedECE(), probabilities, judged.evidence, judged.queries)
    return {ECE().name: Estimate(ece, low, high), DebiasedECE().name: debiased}


def chance_eces(
    judged: Judged,
    probabilities: Numbers,
    draws: int = _CHANCE_DRAWS,
    seed: int | np.random.Generator = 0,
) -> Floats:
    """ECEs of labels drawn from the probabilities, with levels per query as variable as the data's.

    This is what a map that is right would show on so many queries and documents.
    """
    require_judged(judged)
    probabilities = probability_column(probabilities, len(judged))
    draws = whole("draws", draws, 1, _MOST_DRAWS)
    evidence = judged.evidence
    eces = []
    for drawn in drawn_labels(judged, probabilities, draws, seeded(seed)):
        labels = Evidence.trusted(evidence.total * drawn, evidence.total, evidence.kind)
        eces.append(ECE()(probabilities, labels))
    return np.array(eces)


def drawn_labels(
    judged: Judged, probabilities: Floats, draws: int, rng: np.random.Generator
) -> Iterator[Mask]:
    """Labels as they would be if the probabilities were right, query by query."""
    evidence = judged.evidence
    names, query = np.unique(judged.queries, return_inverse=True)
    log_odds = logit(np.clip(probabilities, _SMALLEST, 1 - _SMALLEST))
    model = fit_mixed_model(log_odds, evidence.positive, evidence.total, query)
    typical = typical_log_odds(probabilities, model.spread)
    for _ in range(draws):
        level = rng.normal(0, model.spread, len(names))[query]
        yield rng.random(len(query)) < expit(typical + level)


def typical_log_odds(probabilities: Floats, spread: float) -> Floats:
    """The log odds of a typical query that give these probabilities with levels integrated out.

    >>> typical = typical_log_odds(np.array([0.2, 0.5, 0.9]), 1.5)
    >>> integrated(typical, 1.5).round(3)
    array([0.2, 0.5, 0.9])
    """
    # Levels flatten a curve by the factor 1 / sqrt(1 + spread^2 / 2.9) or so, 20 log odds to 200.
    grid = np.linspace(-200, 200, 8001)
    found: Floats = np.interp(probabilities, integrated(grid, spread), grid)
    return found


def ratio(above: Floats, below: Floats, draws: Floats) -> Estimate:
    """A ratio of sums over queries, with its 95% percentile interval over resampled queries."""
    if below.sum() == 0:
        return Estimate(float("nan"), float("nan"), float("nan"))
    denominators = draws @ below
    drawn = denominators > 0
    ratios = (draws @ above)[drawn] / denominators[drawn]
    low, high = np.quantile(ratios, [0.025, 0.975]).tolist()
    return Estimate(float(above.sum() / below.sum()), low, high)
