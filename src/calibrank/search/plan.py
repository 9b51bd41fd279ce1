"""Plan how many queries to judge, by simulation."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from calibrank._internal.arguments import seeded, whole, whole_numbers
from calibrank._internal.logit import expit
from calibrank._internal.validation import Floats, Indices, Mask
from calibrank.curves import Platt
from calibrank.errors import DataError, FitError, FlatMapWarning
from calibrank.search.held_out import FEWEST_QUERIES, fit_for_new_queries, require_judged
from calibrank.search.judged import Judged
from calibrank.terms._mixed_model import MixedModel, fit_mixed_model, integrated

SIZES = (20, 50, 100, 200, 500)
# Each draw fits a map to each number of queries: about 5 seconds.
_DRAWS = 8
_MOST_DRAWS = 10_000
_MOST_QUERIES = 10**6


class ExpectedQueryError(NamedTuple):
    """The expected error of a map that is fitted on a number of judged queries."""

    queries: int
    error: float
    """Mean absolute difference of predicted and true probabilities: an ECE without bins."""
    standard_error: float
    """Of the simulation alone: over its draws; NaN for a single one."""


def plan_queries(
    judged: Judged,
    sizes: Sequence[int] = SIZES,
    draws: int = _DRAWS,
    seed: int | np.random.Generator = 0,
) -> list[ExpectedQueryError]:
    """Estimate how the error of a map decreases with the number of judged queries.

    A model with a random intercept per query is fitted to the judged documents and taken as true.
    Queries are drawn from it, with the scores of the judged ones and levels of their own, a map is
    fitted on them as `fit_judged` does, and compared with the true probabilities of new queries.
    Documents per query stay as many as they are. On 60 synthetic pools of 20 to 30 queries the
    planned error at that number was half to twice the true one in four of five.

    >>> from calibrank import impressions
    >>> rng = np.random.default_rng(0)
    >>> queries = np.repeat(np.arange(50), 10)
    >>> scores = rng.normal(size=500)
    >>> labels = (rng.random(500) < expit(scores + rng.normal(size=50)[queries])).astype(float)
    >>> judged = Judged(queries, queries, scores, labels, impressions(labels), "all")
    >>> few, many = plan_queries(judged, sizes=(20, 200), draws=2)
    >>> few.error > many.error
    True
    """
    draws = whole("draws", draws, 1, _MOST_DRAWS)
    sizes = whole_numbers("sizes", sizes, FEWEST_QUERIES, _MOST_QUERIES, "E.g. (50, 200).")
    require_judged(judged)
    rng = seeded(seed)
    query = np.unique(judged.queries, return_inverse=True)[1]
    curve = Platt().fit(judged.scores, judged.evidence).log_odds(judged.scores)
    evidence = judged.evidence
    model = fit_mixed_model(curve, evidence.positive, evidence.total, query)
    fixed = model.intercept + model.slope * curve
    truth = integrated(fixed, model.spread)
    rows_of = np.split(np.argsort(query, kind="stable"), np.cumsum(np.bincount(query))[:-1])
    errors: dict[int, list[float]] = {size: [] for size in sizes}
    for _ in range(draws):
        # The first queries of the largest draw: sizes differ by their number alone.
        drawn = _draw(rows_of, model, max(sizes), fixed, rng)
        for size, found in errors.items():
            error = _error(judged.scores, truth, drawn.first(size))
            if error is not None:
                found.append(error)
    plan = [_expected(size, found) for size, found in errors.items() if found]
    if not plan:
        raise DataError(
            "sizes", "allow a fit", got="too few queries with both classes", remedy="Use more."
        )
    return plan


def _expected(size: int, errors: list[float]) -> ExpectedQueryError:
    spread = float(np.std(errors, ddof=1)) if len(errors) > 1 else float("nan")
    return ExpectedQueryError(size, float(np.mean(errors)), spread / len(errors) ** 0.5)


class _Drawn(NamedTuple):
    rows: Indices
    query: Indices
    labels: Mask

    def first(self, queries: int) -> _Drawn:
        """The rows of the first queries."""
        kept = self.query < queries
        return _Drawn(self.rows[kept], self.query[kept], self.labels[kept])


def _draw(
    rows_of: list[Indices], model: MixedModel, size: int, fixed: Floats, rng: np.random.Generator
) -> _Drawn:
    """Rows of `size` drawn queries, with labels; one that is drawn twice is two queries."""
    parts = [rows_of[index] for index in rng.integers(len(rows_of), size=size).tolist()]
    query = np.repeat(np.arange(size), [len(part) for part in parts])
    rows = np.concatenate(parts)
    level = rng.normal(0, model.spread, size)[query]
    return _Drawn(rows, query, rng.random(len(rows)) < expit(fixed[rows] + level))


def _error(scores: Floats, truth: Floats, drawn: _Drawn) -> float | None:
    """The error of a map fitted on drawn queries; None where these have no fit."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FlatMapWarning)
            fitted = fit_for_new_queries(scores[drawn.rows], drawn.labels, drawn.query)
    except (FitError, DataError):
        return None
    return float(np.abs(fitted.predict(scores) - truth).mean())
