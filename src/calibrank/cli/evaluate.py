"""`calibrank evaluate`."""

import math
from dataclasses import replace
from typing import Any

from rich.table import Table as RichTable

from calibrank.cli import console
from calibrank.cli.declared import choose_evaluated, choose_weight, find_user, require_columns
from calibrank.cli.parse import Given
from calibrank.cli.rendering import reliability_diagram
from calibrank.metrics import LogLossGain
from calibrank.registry import parse_metric
from calibrank.tabular.evaluate import MOST_ROWS_IN_MEMORY, Evaluation
from calibrank.tabular.evaluate import evaluate as evaluate_table
from calibrank.tabular.read import Table

# p-values below this are said to contradict calibration.
_SIGNIFICANT = 0.05

# Whether a segment is off, and in which way; --json has all metrics with their intervals.
_SEGMENT_METRICS = ("LogLoss", "LogLossGain", "ECE", "CalibrationInTheLarge", "CalibrationSlope")


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
    estimates = {name: each._asdict() for name, each in result.estimates.items()}
    curve = result.curve._asdict()
    return {
        "rows": result.rows,
        "not_computed": list(result.left_out),
        "metrics": estimates,
        "calibration_test": result.calibration_test._asdict(),
        "reliability": {name: column.tolist() for name, column in curve.items()},
    }


def _print_evaluation(result: Evaluation, user: str | None) -> None:
    console.show(_metric_table(result, user))
    p_value = result.calibration_test.p_value
    contradicts = "contradict calibration" if p_value < _SIGNIFICANT else "agree with calibration"
    test = f"p = {p_value:.3g}, the labels {contradicts} at the 5% level"
    console.show(f"Test of calibration: {test}.")
    gain = result.estimates[LogLossGain().name].value
    if gain < 0:
        console.show(
            "[yellow]Worse than a constant:[/] predicting the base rate for every row would have "
            f"a log loss lower by {-gain:.4f}."
        )
    console.show(reliability_diagram(result.curve))
    if result.left_out:
        names = ", ".join(result.left_out)
        console.show(f"[dim]Not computed ({_why_not_computed(result, user)}): {names}[/]")
    for column, by_value in result.segments.items():
        console.show(_segment_table(column, by_value))


def _segment_table(column: str, by_value: dict[str, Evaluation]) -> RichTable:
    """The headline metrics of each segment, the largest first."""
    name = console.shown(column)
    table = console.table(name, "rows", *_SEGMENT_METRICS, title=f"By {name}")
    for value, segment in sorted(by_value.items(), key=lambda item: -item[1].rows):
        cells = [f"{segment.estimates[name].value:.4f}" for name in _SEGMENT_METRICS]
        table.add_row(console.shown(value), f"{segment.rows:,}", *cells)
    return table


def _why_not_computed(result: Evaluation, user: str | None) -> str:
    if user is None:
        return "no user column"
    if result.rows > MOST_ROWS_IN_MEMORY:
        return f"more than {MOST_ROWS_IN_MEMORY:,} rows"
    return "no positive label"


def _metric_table(result: Evaluation, user: str | None) -> RichTable:
    unit = f"users ({console.shown(user)})" if user else "rows, treated as independent"
    title = f"{result.rows:,} rows; 95% bootstrap intervals over {unit}"
    table = console.table("metric", "value", "95% interval", title=title)
    table.add_column("")
    for name, estimate in result.estimates.items():
        interval = f"{estimate.low:.4f} to {estimate.high:.4f}"
        if math.isnan(estimate.low):
            interval = ""  # nothing to resample, as with a single user
        table.add_row(name, f"{estimate.value:.4f}", interval, result.better[name])
    return table
