"""`calibrank evaluate`."""

import math
from pathlib import Path
from typing import Any

from rich.table import Table as RichTable

from calibrank.cli import console, options
from calibrank.cli.declared import choose_label, choose_weight, find_user, require_columns
from calibrank.cli.rendering import reliability_diagram
from calibrank.evidence import naive
from calibrank.maps import load
from calibrank.metrics import LogLossGain
from calibrank.registry import parse_metric
from calibrank.tabular.columns import Columns
from calibrank.tabular.evaluate import MOST_ROWS_IN_MEMORY, Evaluation
from calibrank.tabular.evaluate import evaluate as evaluate_table
from calibrank.tabular.read import Table

# p-values below this are said to contradict calibration.
_SIGNIFICANT = 0.05

# Whether a segment is off, and in which way; --json has all metrics with their intervals.
_SEGMENT_METRICS = ("LogLoss", "LogLossGain", "ECE", "CalibrationInTheLarge", "CalibrationSlope")


def evaluate(
    table: str,
    map_file: Path | None,
    probability: str | None,
    score: str | None,
    label: str | None,
    user: str | None,
    weight: str | None,
    segment: list[str] | None,
    metric: list[str] | None,
    on_bad_rows: options.OnBadRows,
    json: bool,
) -> None:
    """Evaluate probabilities against labels: all metrics, with intervals over users."""
    console.require_map_or_probability(map_file, score, probability)
    source = Table.find(table)
    metrics = [parse_metric(text) for text in metric or []]
    segments = require_columns(source, segment or [], "segment")
    named = [name for each in metrics for name in each.columns]
    fields = require_columns(source, named, "field")
    rules = console.rules_for(on_bad_rows)
    fitted = None if map_file is None else load(map_file)
    # Scores may be any finite number, probabilities must lie in [0, 1].
    role = "probability" if fitted is None else "score"
    evaluated = source.resolve(role, probability if fitted is None else score)
    user_column = find_user(source, user)
    declared = choose_label(source, label)
    columns = Columns(
        evaluated,
        declared.column,
        naive,
        label_rule=declared.rule,
        weight=choose_weight(source, weight),
        user=user_column,
        score_is=role,
        others=tuple(dict.fromkeys([*segments, *fields])),
    )
    with console.progress_bar(source, "Evaluating") as progress:
        result = evaluate_table(source, columns, fitted, rules, progress, metrics, segments)
    console.report_skipped(rules)
    if json:
        digest = None if fitted is None else fitted.digest
        about = {"map": digest, "rows": result.rows, "users": user_column, "skipped": rules.skipped}
        console.print_json({**about, **_as_json(result), "segments": _segments_as_json(result)})
        return
    _print_evaluation(result, user_column)


def _as_json(result: Evaluation) -> dict[str, Any]:
    metrics = {}
    for name, estimate in result.estimates.items():
        metrics[name] = dict(estimate._asdict())
    curve = {}
    for name, column in result.curve._asdict().items():
        curve[name] = column.tolist()
    return {
        "not_computed": list(result.left_out),
        "metrics": metrics,
        "calibration_test": result.calibration_test._asdict(),
        "reliability": curve,
    }


def _segments_as_json(result: Evaluation) -> dict[str, Any]:
    segments = {}
    for column, by_value in result.segments.items():
        segments[column] = {
            value: {"rows": segment.rows, **_as_json(segment)}
            for value, segment in by_value.items()
        }
    return segments


def _print_evaluation(result: Evaluation, user: str | None) -> None:
    console.show(_metric_table(result, user))
    console.show(_test_line(result))
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


def _test_line(result: Evaluation) -> str:
    p_value = result.calibration_test.p_value
    contradicts = "contradict calibration" if p_value < _SIGNIFICANT else "agree with calibration"
    return f"Test of calibration: p = {p_value:.3g}, the labels {contradicts} at the 5% level."


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
