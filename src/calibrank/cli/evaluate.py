"""`calibrank evaluate`, `compare`, `control` and `report`: how good probabilities are."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from rich import box
from rich.text import Text

from calibrank.cli import console
from calibrank.cli.declared import (
    choose_columns,
    choose_evaluated,
    choose_weight,
    find_user,
    require_columns,
)
from calibrank.cli.fit import require_loss
from calibrank.cli.parse import Given, as_typed
from calibrank.cli.rendering import reliability_diagram
from calibrank.curves import Calibrator, fit_without_each
from calibrank.decisions import Predicted
from calibrank.decisions import control as find_cut
from calibrank.errors import DataError, FitError
from calibrank.evidence import Evidence, impressions, naive
from calibrank.maps import load
from calibrank.metrics import ConstantLogLoss, LogLossGain
from calibrank.metrics.panel import HEADLINE
from calibrank.registry import CALIBRATORS, parse_cut, parse_metric, parse_promise
from calibrank.report.headline import ANCHOR_ROWS, OWN_ROWS
from calibrank.report.html_report import fingerprint_files, report_on_rows
from calibrank.report.read_table import read_report_rows
from calibrank.summary import Summary
from calibrank.tabular.aggregate import aggregate
from calibrank.tabular.evaluate import MOST_ROWS_IN_MEMORY, Evaluation
from calibrank.tabular.evaluate import evaluate as evaluate_table
from calibrank.tabular.read import Table

_AT_RANDOM = ": right if the pairs were shown at random."

# p-values below this are said to contradict calibration.
_SIGNIFICANT = 0.05
_FOLDS = 5
_CONSTANT = ConstantLogLoss().name
_GAIN = LogLossGain().name

# Whether a segment is off, and in which way; --json has all metrics with their intervals.
_SEGMENT_METRICS = ("LogLoss", "LogLossGain", "ECE", "CalibrationInTheLarge", "CalibrationSlope")

# Short headings: the table of methods must fit a terminal of 80 columns.
_HEADINGS = {
    _GAIN: "gain",
    "CalibrationInTheLarge": "pred/obs",
    "CalibrationSlope": "slope",
    "CalibrationIntercept": "intercept",
}

Result = dict[str, float | str]
"""Metrics by name, or the reason under "error"."""


def evaluate(given: Given) -> None:
    """Evaluate probabilities against labels: all metrics, with intervals over users."""
    table = Table.find(given.table)
    metrics = [parse_metric(text) for text in given.metric]
    segments = require_columns(table, given.segment, "segment")
    named = [name for each in metrics for name in each.columns]
    fields = require_columns(table, named, "field")
    rules = console.rules_for(given)
    fitted, columns = choose_evaluated(table, given)
    columns = replace(
        columns,
        weight=choose_weight(table, given.weight),
        user=find_user(table, given.user),
        others=tuple(dict.fromkeys([*segments, *fields])),
    )
    with console.reading(table, "Evaluating", rules) as progress:
        result = evaluate_table(table, columns, fitted, rules, progress, metrics, segments)
    by_segment = {
        column: {value: _as_json(each) for value, each in by_value.items()}
        for column, by_value in result.segments.items()
    }
    about = {"map": fitted and fitted.digest, "users": columns.user, "skipped": rules.skipped}
    console.answer({**about, **_as_json(result), "segments": by_segment})
    _print_evaluation(result, columns.user)


def _as_json(result: Evaluation) -> dict[str, Any]:
    curve = result.curve._asdict()
    return {
        "rows": result.rows,
        "not_computed": result.left_out,
        "metrics": result.estimates,
        "calibration_test": result.calibration_test,
        "reliability": {name: column.tolist() for name, column in curve.items()},
    }


def _print_evaluation(result: Evaluation, user: str | None) -> None:
    curve = result.curve
    predicted, observed = np.average([curve.predicted, curve.observed], axis=1, weights=curve.total)
    rates = f"{100 * predicted:.3g}% predicted on average, {100 * observed:.3g}% observed."
    console.show(f"[bold]{rates}[/] Labels are used as they are{_AT_RANDOM}")
    if result.is_of_fit:
        console.show(f"[yellow]{OWN_ROWS}[/]")
    if result.is_of_anchor:
        console.show(f"[yellow]{ANCHOR_ROWS}[/]")
    rows = []
    for name, each in result.estimates.items():
        # Without an interval there was nothing to resample, as with a single user.
        interval = "" if math.isnan(each.low) else f"{each.low:.4f} to {each.high:.4f}"
        rows.append([name, f"{each.value:.4f}", interval, result.better[name]])
    unit = f"users ({user})" if user else "rows, treated as independent"
    title = f"{result.rows:,} rows; 95% bootstrap intervals over {unit}"
    console.print_table(("metric", "value", "95% interval", ""), rows, title, numbers=True)
    p_value = result.calibration_test.p_value
    contradicts = "contradict calibration" if p_value < _SIGNIFICANT else "agree with calibration"
    test = f"p = {p_value:.3g}, the labels {contradicts} at the 5% level"
    console.show(f"Test of calibration: {test}.")
    gain = result.estimates[_GAIN].value
    if gain < 0:
        console.show(
            "[yellow]Worse than a constant:[/] predicting the base rate for every row would have "
            f"a log loss lower by {-gain:.4f}."
        )
    console.show(reliability_diagram(result.curve))
    if result.left_out:
        many = f"more than {MOST_ROWS_IN_MEMORY:,} rows"
        reason = many if result.rows > MOST_ROWS_IN_MEMORY else "no positive label"
        reason = reason if user else "no user column"
        console.show(f"[dim]Not computed ({reason}): {', '.join(result.left_out)}[/]")
    for column, by_value in result.segments.items():
        rows = []
        for value, segment in sorted(by_value.items(), key=lambda item: -item[1].rows):
            cells = [f"{segment.estimates[name].value:.4f}" for name in _SEGMENT_METRICS]
            rows.append([value, f"{segment.rows:,}", *cells])
        headings = (column, "rows", *[_HEADINGS.get(name, name) for name in _SEGMENT_METRICS])
        console.print_table(headings, rows, f"By {column}", numbers=True)


def compare(given: Given) -> None:
    """Compare all calibration methods by cross-validation over users."""
    table = Table.find(given.table)
    rules = console.rules_for(given)
    # Folds by user: rows of one user are alike, and must not be on both sides.
    user = given.user or table.has("user")
    columns = choose_columns(table, given, given.item, user)
    kind = columns.evidence.__name__
    with console.reading(table, "Reading", rules) as progress:
        summaries = list(aggregate(table, columns, rules, progress, _FOLDS).folds)
    if len(summaries) < _FOLDS:
        rule = f"have enough users for {_FOLDS} folds"
        raise DataError(table.name, rule, "an empty fold", "Add rows of more users.")
    results = {}
    for name, calibrator in CALIBRATORS.items():
        results[as_typed(name)] = _cross_validate(calibrator, summaries)
    about = {"evidence": kind, "folds": _FOLDS, "user": user}
    console.answer({**about, "methods": results, "skipped": rules.skipped})
    unit = f"user ({user})" if user else "row (there is no user column)"
    _print_comparison(results, f"{_FOLDS}-fold cross-validation by {unit}, {kind} evidence")
    if kind != "naive":
        console.show(
            "[dim]Methods are evaluated with the weighted labels that they are fitted to. "
            "This compares the shapes of their curves; it does not test the base rate.[/]"
        )


def _cross_validate(calibrator: Calibrator, summaries: list[Summary]) -> Result:
    """Metrics over all held-out folds together, or the reason why there are none."""
    try:
        maps = fit_without_each(calibrator, summaries)
    except (FitError, DataError) as error:
        return {"error": str(error)}
    # Metrics of all folds at once: a mean over folds would weight small folds too much.
    predicted = []
    for fitted, held_out in zip(maps, summaries, strict=True):
        predicted.append(fitted.predict(held_out.scores))
    probabilities = np.concatenate(predicted)
    positive = np.concatenate([summary.positive for summary in summaries])
    total = np.concatenate([summary.total for summary in summaries])
    evidence = Evidence.trusted(positive, total, summaries[0].kind)
    values: Result = {metric.name: metric(probabilities, evidence) for metric in HEADLINE}
    # Of such labels the log loss has no lower bound, so that its minimum means nothing.
    require_loss(float(values["LogLoss"]))
    return values


def _print_comparison(results: dict[str, Result], title: str) -> None:
    """The methods, the lowest loss first, and what a constant achieves."""
    fitted = {name: values for name, values in results.items() if "error" not in values}
    # The constant is the same for every method: it has a line of its own.
    names = [metric.name for metric in HEADLINE if metric.name != _CONSTANT]
    rows: list[list[object]] = []
    for name in sorted(fitted, key=lambda name: fitted[name]["LogLoss"]):
        cells = [name, *[f"{fitted[name][metric]:.4f}" for metric in names]]
        cells[0] += "" if rows else " (best)"
        rows.append([Text(cell, "" if rows else "bold green") for cell in cells])
    settings: dict[str, Any] = {"box": box.SIMPLE_HEAD, "padding": (0, 1, 0, 0), "show_edge": False}
    headings = ["method", *[_HEADINGS.get(name, name) for name in names]]
    console.print_table(headings, rows, title, numbers=True, **settings)
    for name, values in results.items():
        if "error" in values:
            console.show(f"[dim]{name} cannot be fitted: {console.shown(values['error'])}[/]")
    if fitted:
        constant = float(next(iter(fitted.values()))[_CONSTANT])
        worse = [name for name, values in fitted.items() if float(values[_GAIN]) < 0]
        line = (
            f"Log loss of the best constant (the base rate): [bold]{constant:.4f}[/]; gain: how "
            "much lower a method's is. Slope and intercept are ideally 1 and 0."
        )
        note = f" [yellow]Worse than this constant:[/] {', '.join(worse)}." if worse else ""
        console.show(f"{line}{note}")


def control(given: Given) -> None:
    """Find where lists must end to keep promises about new users, or queries."""
    promises = [parse_promise(text) for text in given.promise or ["Precision(0.8)"]]
    cuts = [parse_cut(text) for text in given.cut or ["Threshold"]]
    table = Table.find(given.table)
    rules = console.rules_for(given)
    fitted, columns = choose_evaluated(table, given)
    columns = replace(columns, user=table.resolve("user", given.user))
    if given.propensity is not None:
        columns = replace(columns, evidence=impressions, propensity=given.propensity)
    with console.reading(table, "Reading", rules) as progress:
        rows = read_report_rows(table, columns, rules, progress, fitted=fitted)
    if rows.users is None:
        raise AssertionError("the user column was resolved and not read")
    found = find_cut(
        rows.scores if fitted is None else Predicted(fitted, rows.scores, rows.columns),
        rows.evidence,
        rows.users.codes,
        promises,
        cut=cuts,
        confidence=given.confidence,
        longest=given.longest,
        abstain=given.abstain,
    )
    console.answer(found.content())
    console.show(console.shown(found))
    notes = (
        "The promise is about new users like these, shown pairs by the same rule. A change of "
        "users, items or model breaks it, and so do labels that users chose to give."
    )
    if given.longest is not None or (found.best and found.threshold is None):
        notes += (
            " The best are those of a user's rows in this table: if lists are made of more "
            "candidates than are labelled here, use --cut Threshold without --longest."
        )
    if found.best is not None:
        console.show(notes, style="dim")


def report(given: Given) -> None:
    """Write an interactive HTML page on how well probabilities are calibrated."""
    table = Table.find(given.table)
    console.require_output(given.out, given.map, *table.files)
    rules = console.rules_for(given)
    # Users and items also label the page, so columns with a usual name are read in any case.
    item, user = given.item or table.has("item"), given.user or table.has("user")
    # Without --log, they do nothing else.
    declared = given if given.log else Given(**{**vars(given), "item": None, "user": None})
    columns = choose_columns(table, declared, item, user, needs_weights=False)
    columns = replace(columns, others=require_columns(table, given.segment, "segment"))
    fitted = load(given.map)
    with console.reading(table, "Reading", rules) as progress:
        rows = read_report_rows(table, columns, rules, progress, fitted=fitted)
    with console.log.status("Evaluating the map ..."):
        source = {"source": given.table, "fingerprint": fingerprint_files(table.files)}
        made = report_on_rows(rows, fitted, {**source, "command": console.command_line()})
    made.save(given.out)
    console.answer({"out": str(given.out), "headline_text": made.headline, **made.data})
    for caveat in made.data["headline"]["limitations"]:
        if caveat in (OWN_ROWS, ANCHOR_ROWS):
            console.show(f"[yellow]{caveat}[/]")
    console.show(console.shown(made.headline))
    console.say_saved(given.out, "Report:")
    if columns.evidence is naive:
        console.say(
            f"Labels were used as they are{_AT_RANDOM} To weight labels of a biased log, use --log "
            "interactions."
        )
