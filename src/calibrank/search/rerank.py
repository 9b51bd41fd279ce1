"""Maps for new queries, and thresholds on their probabilities for a wanted precision or recall."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from calibrank._internal.arguments import real, seeded, shown
from calibrank._internal.validation import Floats, Ids, Indices, Mask, add_up, probability_column
from calibrank.errors import DataError, FitError
from calibrank.maps import CalibrationMap
from calibrank.metrics import Estimate
from calibrank.metrics.clustered_bootstrap import RESAMPLES, draw_matrix
from calibrank.search.held_out import FEWEST_QUERIES, fit_for_new_queries, ratio, require_judged
from calibrank.search.judged import Judged

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


@dataclass(frozen=True, slots=True)
class Cut:
    """A threshold on the probability, and what it does on queries that were held out."""

    aim: Aim
    wanted: float
    threshold: float | None
    """The lowest probability to return; None where no threshold reaches the aim."""
    precision: Estimate
    recall: Estimate
    answered: Estimate
    """The fraction of queries for which some document reaches the threshold."""
    kept: int
    """The number of judged documents that reach it."""
    top_k: int | None = None
    """How many documents of each query are considered, the first ones; None for all."""

    @property
    def lowest(self) -> float:
        """The lowest probability to return, infinite where nothing is returned."""
        return float("inf") if self.threshold is None else self.threshold


class Reachable(NamedTuple):
    """The precision that can be had: by the rank alone, by the probability alone, by both."""

    by_rank: Cut
    by_probability: Cut
    by_both: Cut
    curve: tuple[Cut, ...]
    """The most precise cut for each of some fractions of queries to answer, the fewest first."""


class _Sums(NamedTuple):
    """Masses per query of what a threshold keeps."""

    kept: Floats
    kept_relevant: Floats
    relevant: Floats
    answered: Floats


def fit_judged(judged: Judged) -> CalibrationMap:
    """Fit a map for new queries on judged documents; its record says which documents it is for."""
    require_judged(judged)
    if judged.n_queries < FEWEST_QUERIES:
        raise FitError(
            "the run",
            f"have {FEWEST_QUERIES} or more queries with judged documents",
            judged.n_queries,
            "Judge documents of more queries.",
        )
    fitted = fit_for_new_queries(judged.scores, judged.evidence, judged.queries)
    record = replace(fitted.record, population=judged.recorded_population)
    return replace(fitted, record=record)


def choose_cut(
    judged: Judged,
    probabilities: Floats,
    aim: Aim,
    wanted: float,
    *,
    seed: int | np.random.Generator = 0,
) -> Cut:
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
    kept = probabilities >= (np.inf if threshold is None else threshold)
    draws = draw_matrix(judged.n_queries, RESAMPLES, seeded(seed))
    return _cut(judged, kept, (aim, wanted), threshold, None, draws)


def _cut(
    judged: Judged,
    kept: Mask,
    goal: tuple[Aim, float],
    threshold: float | None,
    top_k: int | None,
    draws: Floats,
) -> Cut:
    sums = _sums(judged, kept)
    return Cut(
        *goal,
        threshold,
        precision=ratio(sums.kept_relevant, sums.kept, draws),
        recall=ratio(sums.kept_relevant, sums.relevant, draws),
        answered=ratio(sums.answered, np.ones(len(sums.kept)), draws),
        kept=int(kept.sum()),
        top_k=top_k,
    )


def reachable_cuts(
    judged: Judged, probabilities: Floats, wanted: float, *, seed: int | np.random.Generator = 0
) -> Reachable:
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
    draws = draw_matrix(judged.n_queries, RESAMPLES, seeded(seed))
    levels = np.unique(np.quantile(probabilities, _LEVELS, method="higher")).tolist()
    ranks = judged.ranks
    cuts = []
    for top_k in (*_RANKS, None):
        first = ranks <= (np.inf if top_k is None else top_k)
        for threshold in (0.0, *levels):
            kept = first & (probabilities >= threshold)
            answered = len(np.unique(judged.queries[kept]))
            if kept.sum() >= _FEWEST_DOCUMENTS and answered >= _FEWEST_QUERIES:
                cuts.append(_cut(judged, kept, ("precision", wanted), threshold, top_k, draws))
    if not cuts:
        raise FitError(
            "the run",
            f"have {_FEWEST_DOCUMENTS} judged documents in {_FEWEST_QUERIES} queries",
            f"{len(judged)} in {judged.n_queries}",
            "Judge more.",
        )

    def lower_end(cut: Cut) -> float:
        return _lower_end(cut, judged.n_queries)

    by_rank = [cut for cut in cuts if cut.threshold == 0]
    by_probability = [cut for cut in cuts if cut.top_k is None]
    curve = []
    for share in _SHARES:
        enough = [cut for cut in cuts if cut.answered.value >= share]
        if enough:
            curve.append(max(enough, key=lambda cut: cut.precision.value))
    return Reachable(
        max(by_rank, key=lower_end),
        max(by_probability, key=lower_end),
        max(cuts, key=lower_end),
        tuple(dict.fromkeys(curve)),
    )


def _lower_end(cut: Cut, queries: int) -> float:
    """Wilson's lower end of a precision, as if each answered query were one trial.

    Resampling sees no variance where all that is kept is relevant.
    """
    trials = 1.96**2 / (cut.answered.value * queries)
    rate = cut.precision.value
    half_width = np.sqrt(trials * (rate * (1 - rate) + trials / 4))
    return float((rate + trials / 2 - half_width) / (1 + trials))


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
        enough &= _distinct_so_far(judged.queries[order]) >= min(_FEWEST_QUERIES, judged.n_queries)
        candidates = np.flatnonzero(last & enough & (relevant / kept >= wanted))
        return float(ordered[candidates[-1]]) if len(candidates) else None
    # A relative tolerance: all of the relevant mass is 1 up to rounding.
    candidates = np.flatnonzero(last & (relevant / relevant[-1] >= wanted * (1 - 1e-12)))
    return float(ordered[candidates[0]]) if len(candidates) else None


def _distinct_so_far(queries: Ids) -> Indices:
    """How many queries there are up to each row."""
    is_first = np.zeros(len(queries), dtype=np.intp)
    is_first[np.unique(queries, return_index=True)[1]] = 1
    return np.cumsum(is_first)


def _sums(judged: Judged, kept: Mask) -> _Sums:
    names, query = np.unique(judged.queries, return_inverse=True)
    size = len(names)
    positive, total = judged.evidence.positive, judged.evidence.total
    return _Sums(
        kept=add_up(query, total * kept, size),
        kept_relevant=add_up(query, positive * kept, size),
        relevant=add_up(query, positive, size),
        answered=(add_up(query, kept.astype(np.float64), size) > 0).astype(np.float64),
    )
