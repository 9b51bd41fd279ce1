"""`calibrank fit`: a curve, by the method that is named or chosen, plus terms."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from calibrank._internal.segment_keys import Encoded
from calibrank.anchoring import with_sampling_range
from calibrank.cli import console
from calibrank.cli.declared import (
    choose_columns,
    choose_terms,
    say_choice,
    with_terms,
    without_users,
)
from calibrank.cli.parse import Given, as_typed
from calibrank.cli.rendering import print_base_rate, print_probabilities, print_terms
from calibrank.composition import refusal
from calibrank.curves import Auto, Calibrator
from calibrank.curves.auto import with_selection
from calibrank.diagnosis import attach_sensitivity
from calibrank.errors import FitError
from calibrank.evidence import naive
from calibrank.maps import CalibrationMap
from calibrank.metrics import ConstantLogLoss, LogLoss
from calibrank.metrics.panel import HEADLINE
from calibrank.metrics.pooled import misfit
from calibrank.model import Model
from calibrank.propensity import estimate_position
from calibrank.registry import CALIBRATORS, SELECTORS, find
from calibrank.summary import Summary
from calibrank.summary.grid import CAPACITY
from calibrank.tabular.aggregate import Aggregate, aggregate, read_features
from calibrank.tabular.columns import Columns
from calibrank.tabular.read import Table
from calibrank.tabular.rules import Rules

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
    require_loss(fitted.record.loss or 0.0)
    if given.log == "policy":
        fitted = with_sampling_range(fitted, aggregated.summary)
    fitted = attach_sensitivity(fitted, calibrator, aggregated, columns)
    saved = fitted
    model = Model(calibrator, tuple(terms))
    if aggregated.segments is not None:
        saved = model.fit_sums(fitted, aggregated.segments)
    elif terms:
        again = Rules(skip=rules.skip)
        with console.reading(table, "Reading columns") as progress:
            rows = read_features(table, columns, again, aggregated.exposure, progress)
        # The same rows and those with an invalid value in the columns of terms.
        rules.skipped.update(again.skipped)
        saved = model.fit_rows(fitted, rows.scores, rows.evidence, rows.features)
    saved.save(given.out)
    console.report_skipped(rules)
    about = {"out": str(given.out), **saved.to_dict(), "skipped": rules.skipped}
    console.answer({**about, **_quality(saved, aggregated.summary)})
    _print(fitted, saved, aggregated.summary)
    console.say_saved(given.out)


class Method:
    """A method by name: `auto` needs folds to choose by."""

    def __init__(self, name: str) -> None:
        selects = name in map(as_typed, SELECTORS)
        members: Mapping[str, Calibrator] = SELECTORS if selects else CALIBRATORS
        self._named = find("method", members, name)
        self.selector = self._named if isinstance(self._named, Auto) else None
        # How many folds to aggregate, and how many distinct scores get a bin of their own.
        self.folds = 1 if self.selector is None else self.selector.folds
        self.distinct_scores = CAPACITY if self.selector else self._named.distinct_scores

    def fit(self, aggregated: Aggregate) -> tuple[Calibrator, CalibrationMap]:
        """The method that was named or chosen, and its fit."""
        if self.selector is None:
            return self._named, self._named.fit_summary(aggregated.summary)
        calibrator, selection, reason = self.selector.choose(aggregated.folds)
        fitted = with_selection(calibrator.fit_summary(aggregated.summary), selection)
        if reason is not None:
            console.say(reason)
        return calibrator, fitted


def require_loss(loss: float) -> None:
    """Refuse a negative log loss, which labels above 1 have where weights are wrong."""
    if loss < 0:
        raise FitError(
            "the log loss",
            "be 0 or more",
            f"{loss:.4f}: positives weigh more than the rows they are among, so "
            "that rows and weights do not stand for all pairs",
            "Add or weight negatives (--negatives-kept), or raise small propensities.",
        )


def _with_examination(table: Table, columns: Columns, rules: Rules) -> Columns:
    """The columns with examination by rank, which turns the column of ranks into propensities."""
    # Ranks are read as a feature: there is no examination yet to turn them into propensities.
    rank, item = str(columns.propensity), str(columns.item)
    read = replace(columns, propensity=None, item=None, evidence=naive)
    read = replace(read, features={rank: "rank"}, segments=(item,))
    rows = read_features(table, read, Rules(skip=rules.skip))
    items = rows.features[item]
    codes = items.codes if isinstance(items, Encoded) else items
    ranks: Any = rows.features[rank]
    labels = rows.evidence.positive
    position = estimate_position(codes, ranks, labels, rows.scores)
    found = enumerate(position.examination[:_PRINTED].tolist(), start=1)
    console.say(
        "Examination by rank, estimated from items at several ranks with similar scores: "
        f"{', '.join([f'{rank}: {value:.3g}' for rank, value in found])}"
    )
    # Items only served the estimate: propensities do not come from their popularity.
    return replace(columns, examination=position, item=None)


def _quality(fitted: CalibrationMap, summary: Summary) -> dict[str, Any]:
    """Misfit and metrics on the rows of the fit."""
    if fitted.terms:
        # The summary has scores alone; the loss was computed with the columns.
        loss = fitted.record.loss
        return {"misfit": None, "metrics": {} if loss is None else {LogLoss().name: loss}}
    probabilities = fitted.predict(summary.scores)
    metrics = {metric.name: metric(probabilities, summary.evidence) for metric in HEADLINE}
    return {"misfit": misfit(probabilities, summary), "metrics": metrics}


def _print(fitted: CalibrationMap, saved: CalibrationMap, summary: Summary) -> None:
    """Print the caveat first, then the map, the losses on its rows, and a misfit."""
    print_base_rate(saved.record)
    rate = summary.positive.sum() / summary.total.sum()
    weighted = "" if summary.kind == "naive" else " after weighting"
    console.state(
        f"[bold]{console.shown(saved.method)}[/] fitted on {summary.rows:,} rows with "
        f"{summary.kind} evidence: scores {summary.low:.4g} to {summary.high:.4g}, mean label "
        f"{rate:.2%}{weighted}."
    )
    if summary.kind == "impressions":
        console.state(f"Effective number of impressions: {summary.effective_rows:,.0f}.")
    if saved.record.selection is not None:
        console.state(f"[bold]Method:[/] {saved.record.selection.description}.")
    print_probabilities(saved)
    print_terms(saved)
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
