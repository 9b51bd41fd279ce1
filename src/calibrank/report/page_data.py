"""All numbers and texts of a report, as plain data for the page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from calibrank._internal.validation import Floats
from calibrank.errors import FitError
from calibrank.maps import CalibrationMap
from calibrank.metrics import Better, Metric
from calibrank.metrics.misfit import Misfit, misfit
from calibrank.metrics.panel import PANEL
from calibrank.report.headline import describe_source, limitations, sentences, verdict
from calibrank.report.lists import sample_users, threshold_table
from calibrank.report.methods import (
    HISTOGRAM_BINS,
    LOG_ODDS_LIMIT,
    Evaluator,
    describe_estimates,
    evaluate_methods,
)
from calibrank.report.rows import ReportRows
from calibrank.report.score_curves import map_curves, parameters, score_histograms, sensitivity_band
from calibrank.report.segments import segment_tables, segment_test
from calibrank.summary import Summary

BASELINE = "MinMax"
"""What the scores are before calibration: rescaled to [0, 1]."""


def page_data(
    rows: ReportRows, given: CalibrationMap | None, provenance: dict[str, Any]
) -> dict[str, Any]:
    """Compute everything that the page shows."""
    evaluator = Evaluator.of(rows)
    results = list(evaluate_methods(rows, given))
    main = results[0]
    # Other methods may fail and are listed with the reason; without the main one there is no page.
    if main.probabilities is None or main.fitted is None:
        raise FitError(main.error)
    methods = [evaluator.describe(result) for result in results]
    # Lists and thresholds are about the map itself, so they use the fit on all rows.
    probabilities = rows.predict(main.fitted)
    thresholds = None
    if rows.users is not None:
        thresholds = threshold_table(probabilities, rows.evidence, rows.users.codes)
    average = main.fitted.without_terms()
    global_probabilities = average.predict(rows.scores) if main.fitted.terms else None
    curves = map_curves(rows, results)
    tables = segment_tables(rows, main.probabilities, evaluator.clusters, global_probabilities)
    shape = _misfit(rows, main.fitted, probabilities)
    return {
        "provenance": provenance,
        "headline": {
            "sentences": sentences(rows, main.probabilities, evaluator.clusters),
            "verdict": verdict(methods[0], shape, identified=rows.base_rate_identified),
            "base_rate_source": describe_source(main.fitted),
            "limitations": limitations(rows, main.fitted, given=given is not None),
            "procedure": _procedure(rows, given),
        },
        "misfit": {**shape._asdict(), "matters": shape.matters},
        "main_method": main.name,
        "baseline_method": BASELINE,
        "methods": methods,
        "ranking": describe_estimates(evaluator.ranking(evaluator.order(main))),
        "metrics": describe_metrics(PANEL),
        "histogram": {"bins": HISTOGRAM_BINS, "log_odds_limit": LOG_ODDS_LIMIT},
        "scores": score_histograms(rows, probabilities, evaluator.clusters),
        "map_curves": curves,
        "parameters": parameters(main.fitted),
        "sensitivity": sensitivity_band(average, curves["scores"]),
        "thresholds": thresholds,
        "user_sample": sample_users(rows, probabilities),
        "segments": tables,
        "segment_test": segment_test(tables, rows, main.fitted),
    }


def _misfit(rows: ReportRows, fitted: CalibrationMap, probabilities: Floats) -> Misfit:
    """The distance from isotonic regression on the score, or on the probability with terms."""
    if fitted.terms:
        summary = Summary.of(probabilities, rows.evidence)
        # The mean of a bin can leave [0, 1] by rounding.
        return misfit(np.clip(summary.scores, 0, 1), summary)
    summary = Summary.of(rows.scores, rows.evidence)
    return misfit(fitted.predict(summary.scores), summary)


def describe_metrics(metrics: Iterable[Metric]) -> dict[str, dict[str, Any]]:
    """Return each metric's explanation and direction by name, as the metric itself states them.

    >>> from calibrank.metrics import Recall
    >>> describe_metrics([Recall(5)])["Recall@5"]["explanation"][-17:]
    'Higher is better.'
    """
    described = {}
    for metric in metrics:
        direction = metric.better.value.capitalize()
        described[metric.name] = {
            "explanation": f"{metric.explanation} {direction}.",
            "higher_is_better": metric.better is Better.HIGHER,
        }
    return described


def _procedure(rows: ReportRows, given: CalibrationMap | None) -> str:
    folds = int(rows.folds.max()) + 1
    unit = "users" if rows.users is not None else "rows"
    if given is not None:
        return (
            "The map was given and is evaluated on this table as it is. The other methods are "
            f"fitted here, each evaluated on {unit} it was not fitted on ({folds} folds)."
        )
    return (
        "No map was given, so a Gaussian map was fitted on this table. The verdict and all curves "
        f"are cross-validated: each of {folds} folds of {unit} is evaluated by a fit on the "
        "others. The lists and the threshold use the fit on all rows."
    )
