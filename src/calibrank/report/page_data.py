"""All numbers and texts of a report, as plain data for the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from calibrank.errors import FitError
from calibrank.maps import CalibrationMap
from calibrank.metrics import Better, Metric
from calibrank.metrics.misfit import misfit
from calibrank.metrics.panel import PANEL
from calibrank.report.headline import describe_source, limitations, sentences
from calibrank.report.methods import (
    HISTOGRAM_BINS,
    LOG_ODDS_LIMIT,
    Evaluator,
    describe_estimates,
    evaluate_methods,
)
from calibrank.report.rows import ReportRows
from calibrank.report.score_curves import (
    map_curves,
    parameters,
    score_histograms,
    sensitivity_band,
)
from calibrank.report.segments import segment_tables, segment_test
from calibrank.report.thresholds import guaranteed_precision, threshold_table
from calibrank.report.user_sample import sample_users
from calibrank.report.verdict import verdict
from calibrank.summary import Summary

BASELINE = "MinMax"
"""What the scores are before calibration: rescaled to [0, 1]."""


def page_data(
    rows: ReportRows,
    given: CalibrationMap | None,
    provenance: dict[str, Any],
    fit_options: Sequence[str] = (),
) -> dict[str, Any]:
    """Compute everything that the page shows."""
    evaluator = Evaluator.of(rows)
    results = list(evaluate_methods(rows, given))
    main = results[0]
    # Other methods may fail and are listed with the reason; without the main one there is no page.
    if main.probabilities is None or main.fitted is None:
        raise FitError(main.error)
    methods = [evaluator.describe(result) for result in results]
    baseline = next(method for method in methods if method["name"] == BASELINE)
    # Lists and thresholds are about the map itself, so they use the fit on all rows.
    probabilities = rows.predict(main.fitted)
    thresholds = None
    if rows.users is not None:
        users = rows.users.codes
        thresholds = threshold_table(probabilities, rows.evidence, users)
        # A map that was fitted here knows these labels, and a biased log guarantees nothing.
        if given is not None and rows.base_rate_identified:
            thresholds["guaranteed"] = guaranteed_precision(
                probabilities, rows.evidence, users, rows.clusters
            )
    # What a map by segment or with features would predict without these columns.
    global_probabilities = None
    if main.fitted.segment_columns or main.fitted.feature_columns:
        global_probabilities = main.fitted.predict(rows.scores)
    curves = map_curves(rows, results)
    summary = Summary.of(rows.scores, rows.evidence)
    tables = segment_tables(rows, main.probabilities, evaluator.clusters, global_probabilities)
    shape = misfit(main.fitted.predict(summary.scores), summary)
    return {
        "provenance": provenance,
        "headline": {
            "sentences": sentences(rows, main.probabilities, evaluator.clusters),
            "verdict": verdict(methods[0], baseline, shape, identified=rows.base_rate_identified),
            "base_rate_source": describe_source(main.fitted),
            "limitations": limitations(rows, main.fitted, given=given is not None),
            "procedure": _procedure(rows, given),
        },
        "misfit": {**shape._asdict(), "matters": shape.matters},
        "main_method": main.name,
        "baseline_method": BASELINE,
        "methods": methods,
        "ranking": describe_estimates(evaluator.ranking()),
        "metrics": describe_metrics(PANEL),
        "histogram": {"bins": HISTOGRAM_BINS, "log_odds_limit": LOG_ODDS_LIMIT},
        "scores": score_histograms(rows, main.fitted, evaluator.clusters),
        "map_curves": curves,
        "parameters": parameters(main.fitted),
        "sensitivity": sensitivity_band(main.fitted, curves["scores"]),
        "thresholds": thresholds,
        "user_sample": sample_users(rows, probabilities),
        "segments": tables,
        "segment_test": segment_test(
            tables, rows, str(provenance.get("source", "TABLE")), fit_options
        ),
    }


def describe_metrics(metrics: Iterable[Metric]) -> dict[str, dict[str, Any]]:
    """Return each metric's explanation and direction by name, as the metric itself states them.

    >>> from calibrank.metrics import Recall
    >>> describe_metrics([Recall(5)])["Recall@5"]["explanation"]
    "The fraction of each user's liked items that are among the k best. Higher is better."
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
