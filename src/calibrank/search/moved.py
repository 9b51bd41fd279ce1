"""Whether another query set, or another model, is what a map was fitted on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from calibrank._internal.validation import add_up
from calibrank.maps import CalibrationMap, FitRecord
from calibrank.maps.score_shift import ScoreComparison
from calibrank.search.judged import Judged, effective_rows
from calibrank.search.runs import Run

# Two samples of one distribution are further apart than this, over the root of their effective
# size, in 1 of 1,000 cases (Smirnov, 1948); smaller distances than the second never matter.
_CRITICAL = 1.95
_SMALLEST_DISTANCE = 0.1
# Standard errors that a judged rate may be off: 1 check in 100 is further by chance.
_STANDARD_ERRORS = 2.58


def scores_moved(record: FitRecord, run: Run) -> str | None:
    """What to say if the scores of a run differ by more than those of other queries would.

    Scores of one query are alike, so that queries count more than documents.
    """
    known = record.population
    if known is None or known.run_scores is None or known.effective_rows is None:
        return None
    comparison = ScoreComparison(replace(record, score_quantiles=known.run_scores))
    comparison.add(run.scores)
    sizes = effective_rows(run), known.effective_rows
    noise = _CRITICAL / np.sqrt(sizes[0] * sizes[1] / (sizes[0] + sizes[1]))
    if comparison.distance <= max(noise, _SMALLEST_DISTANCE):
        return None
    return (
        "the scores moved beyond what queries of the map's run differ by: the fraction of "
        f"documents below some score changed by {comparison.distance:.0%}, and by chance by up to "
        f"{min(noise, 1):.0%}. Either the model or the queries are others. Anchor the map on a few "
        "judgements of this run."
    )


def rate_moved(fitted: CalibrationMap, judged: Judged) -> str | None:
    """What to say if more or fewer documents are relevant than the map predicts, beyond chance.

    Chance is that of queries, and the map's own standard error.
    """
    total = judged.evidence.total
    probabilities = fitted.predict(judged.scores)
    predicted = float(probabilities @ total / total.sum())
    observed = float(judged.evidence.positive.sum() / total.sum())
    gaps = judged.evidence.positive - total * probabilities
    residuals = gaps - total * (observed - predicted)
    by_query = add_up(np.unique(judged.queries, return_inverse=True)[1], residuals)
    count = len(by_query)
    variance = float((by_query**2).sum()) / total.sum() ** 2 * count / max(count - 1, 1)
    interval = fitted.sampling_interval(judged.scores)
    own = float((interval.high - interval.low) @ total / total.sum()) / 3.92
    error = float(np.sqrt(variance + own**2))
    if count < 2 or abs(observed - predicted) <= _STANDARD_ERRORS * error:
        return None
    return (
        f"{observed:.1%} of the judged documents are relevant and the map predicts "
        f"{predicted:.1%}, {abs(observed - predicted) / error:.1f} standard errors by query apart. "
        "The level moved: anchor the map on these judgements (calibrank anchor)."
    )
