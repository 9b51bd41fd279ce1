"""`calibrank fit`."""

from dataclasses import replace
from typing import Any

import numpy as np

from calibrank.anchoring import with_sampling_range
from calibrank.cli import console
from calibrank.cli.declared import (
    choose_columns,
    choose_terms,
    say_choice,
    with_terms,
    without_users,
)
from calibrank.cli.parse import Given
from calibrank.cli.rendering import print_base_rate, print_terms, probability_table
from calibrank.cli.selection import Method
from calibrank.composition import refusal
from calibrank.diagnosis import attach_sensitivity
from calibrank.errors import DataError, FitError
from calibrank.evidence import naive
from calibrank.maps import CalibrationMap, describe_selection
from calibrank.metrics import ConstantLogLoss, LogLoss
from calibrank.metrics.misfit import misfit
from calibrank.metrics.panel import HEADLINE
from calibrank.model import Model
from calibrank.propensity import Position, estimate_position
from calibrank.summary import Summary
from calibrank.tabular.aggregate import Aggregate, aggregate
from calibrank.tabular.batch import names_of
from calibrank.tabular.columns import Columns
from calibrank.tabular.features import read_features
from calibrank.tabular.ids import unify_ids
from calibrank.tabular.read import Table
from calibrank.tabular.rows import Rows, rows_of
from calibrank.tabular.rules import Rules

# A standard error from so many resamples is itself right to about 10%.
_RESAMPLES = 50
# Ranks whose examination is printed.
_PRINTED = 5


def fit(given: Given) -> None:
    """Fit a calibration map to a table of scores and labels of any size."""
    # All options are checked before the table is read, which may take minutes.
    table = Table.find(given.table)
    console.require_output(given.out, *table.files)
    rules = console.rules_for(given)
    columns = choose_columns(table, given, given.item, given.user)
    say_choice(table, "score", given.score, columns.score)
    if columns.label_rule is None:
        say_choice(table, "label", given.label, columns.label)
    method = Method(given.method)
    if not (method.selector or columns.exposure or given.position):
        given.refuse(f"with --method {given.method}", "user")
    terms = choose_terms(table, given)
    if terms and given.method == "minmax":
        raise refusal("MinMax", "terms, another base rate")
    if given.position is not None:
        columns = _with_examination(table, columns, rules)
    columns = columns if method.selector else without_users(columns)
    columns = with_terms(columns, terms)
    # Sums by level are taken in the first pass; other terms need the rows.
    alone = len(terms) == 1 and bool(columns.segments)
    first = columns if alone else replace(columns, segments=(), features={})
    with console.reading(table, "Reading") as progress:
        aggregated = aggregate(table, first, rules, progress, method.folds, method.distinct_scores)
    if columns.needs_exposure:
        console.say(f"Using {aggregated.exposure}")
    calibrator, fitted = method.fit(aggregated)
    _require_loss(fitted)
    if given.log_kind == "policy":
        fitted = with_sampling_range(fitted, aggregated.summary)
    fitted = attach_sensitivity(fitted, calibrator, aggregated, columns)
    saved = fitted
    if terms:
        model = Model(calibrator, tuple(terms))
        saved = _add_terms(model, fitted, aggregated, table, columns, rules)
    saved.save(given.out)
    console.report_skipped(rules)
    about = {"out": str(given.out), **saved.to_dict(), "skipped": rules.skipped}
    console.answer({**about, **_quality(saved, aggregated.summary)})
    _print(fitted, saved, aggregated.summary)
    console.say_saved(given.out)


def _require_loss(fitted: CalibrationMap) -> None:
    if (fitted.record.loss or 0.0) < 0:
        raise FitError(
            "the log loss",
            "be 0 or more",
            f"{fitted.record.loss:.4f}: positives weigh more than the rows they are among, so "
            "that rows and weights do not stand for all pairs",
            "Add or weight negatives (--negatives-kept), or raise small propensities.",
        )


def _add_terms(
    model: Model,
    fitted: CalibrationMap,
    aggregated: Aggregate,
    table: Table,
    columns: Columns,
    rules: Rules,
) -> CalibrationMap:
    """Add the terms of a model to the map of the score."""
    if aggregated.segments is not None:
        return model.fit_sums(fitted, aggregated.segments)
    again = Rules(skip=rules.skip)
    with console.reading(table, "Reading columns") as progress:
        rows = read_features(table, columns, again, aggregated.exposure, progress)
    # The same rows and those with an invalid value in the columns of terms.
    rules.skipped.update(again.skipped)
    return model.fit_rows(fitted, rows.scores, rows.evidence, rows.features)


def _with_examination(table: Table, columns: Columns, rules: Rules) -> Columns:
    """The columns with examination by rank, which turns the column of ranks into propensities."""
    # Ranks are read as a feature: there is no examination yet to turn them into propensities.
    ranks = {str(columns.propensity): "rank"}
    ranked = replace(columns, features=ranks, propensity=None, evidence=naive)
    batches = list(rows_of(table, ranked, Rules(skip=rules.skip), None))
    if not batches:
        raise DataError(table.name, "hold at least one valid row", "none", "Check it.")
    joined = Rows.joined(batches)
    clusters = None if columns.user is None else _names([rows.users for rows in batches])
    items = _names([rows.items for rows in batches])
    places = np.concatenate([rows.features[0] for rows in batches])
    position = estimate_position(
        items, places, joined.labels, clusters, _RESAMPLES, scores=joined.scores
    )
    console.say(
        "Examination by rank, estimated from items at several ranks with similar scores: "
        f"{_describe(position)}"
    )
    # Items only served the estimate: propensities do not come from their popularity.
    return replace(columns, examination=position, item=None)


def _names(chunks: list[object]) -> np.ndarray:
    return np.concatenate([names_of(chunk) for chunk in unify_ids(chunks)])


def _describe(position: Position) -> str:
    parts = []
    for rank, value in enumerate(position.examination[:_PRINTED], start=1):
        error = ""
        if position.standard_errors is not None and rank > 1:
            error = f" ± {position.standard_errors[rank - 1]:.2g}"
        parts.append(f"{rank}: {value:.3g}{error}")
    more = "" if len(position.examination) <= _PRINTED else f", ... to {len(position.examination)}"
    return f"{', '.join(parts)}{more}"


def _quality(fitted: CalibrationMap, summary: Summary) -> dict[str, Any]:
    """Misfit and metrics on the rows of the fit."""
    if fitted.terms:
        # The summary has scores alone; the loss was computed with the columns.
        loss = fitted.record.loss
        return {"misfit": None, "metrics": {} if loss is None else {LogLoss().name: loss}}
    probabilities = fitted.predict(summary.scores)
    metrics = {metric.name: metric(probabilities, summary.evidence) for metric in HEADLINE}
    return {"misfit": misfit(probabilities, summary)._asdict(), "metrics": metrics}


def _print(fitted: CalibrationMap, saved: CalibrationMap, summary: Summary) -> None:
    """Print the caveat first, then the map, and what the log leaves open."""
    print_base_rate(saved.record)
    rate = summary.positive.sum() / summary.total.sum()
    console.state(
        f"[bold]{console.shown(saved.method)}[/] fitted on {summary.rows:,} rows with "
        f"{summary.kind} evidence: scores {summary.low:.4g} to {summary.high:.4g}, mean label "
        f"{rate:.2%} after weighting."
    )
    if summary.kind == "impressions":
        console.state(f"Effective number of impressions: {summary.effective_rows:,.0f}.")
    if saved.record.selection is not None:
        console.state(f"[bold]Method:[/] {describe_selection(saved.record.selection)}.")
    console.show(probability_table(saved))
    print_terms(saved)
    _print_losses(fitted, saved, summary)


def _print_losses(fitted: CalibrationMap, saved: CalibrationMap, summary: Summary) -> None:
    """Print the losses on the rows of the fit, beside that of a constant, and a misfit."""
    probabilities = fitted.predict(summary.scores)
    losses = {"of a constant": ConstantLogLoss()(probabilities, summary.evidence)}
    losses["of the scores alone"] = LogLoss()(probabilities, summary.evidence)
    if saved.terms and saved.record.loss is not None:
        losses[f"with {', '.join(saved.columns)}"] = saved.record.loss
    parts = [f"{value:.4f} {console.shown(name)}" for name, value in losses.items()]
    console.state(
        f"Log loss on the rows of the fit: {', '.join(parts)}. For other rows, use calibrank "
        "evaluate."
    )
    shape = misfit(probabilities, summary)
    if shape.matters:
        console.state(f"[yellow]Misfit:[/] {shape.message}")
