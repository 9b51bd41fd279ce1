"""What `calibrank fit` prints about a map: text, or one JSON object."""

from pathlib import Path

from rich.table import Table as RichTable

from calibrank.anchoring import compare_with_constant
from calibrank.anchoring.constant_check import ConstantCheck, is_slope_assumed
from calibrank.cli.console import console, print_json, shown
from calibrank.cli.features import print_features
from calibrank.cli.rendering import base_rate_lines, reliability_diagram, sensitivity_lines
from calibrank.cli.segments import print_segments
from calibrank.maps import CalibrationMap, FitRecord, LogisticMap, describe_selection
from calibrank.metrics import LogLoss, reliability
from calibrank.metrics.misfit import misfit
from calibrank.metrics.panel import HEADLINE
from calibrank.summary import Summary
from calibrank.tabular.rules import Rules


def print_result(
    fitted: CalibrationMap,
    saved: CalibrationMap,
    summary: Summary,
    out: Path,
    rules: Rules,
    top_rate: float | None,
    *,
    json: bool,
) -> None:
    """Print the map as `fit` saved it: `fitted`, or by segment in `saved`."""
    if json:
        check = None if top_rate is not None else _constant_check(fitted, summary)
        _print_json(saved, summary, out, rules, check)
    else:
        _print_fit(fitted, summary)
        print_segments(saved)
        print_features(saved)
        _print_gain(fitted, saved)
        console.print(f"[bold]Saved:[/] {shown(out)}")


def _constant_check(fitted: CalibrationMap, summary: Summary) -> ConstantCheck | None:
    """The comparison with a constant, for a map whose rate is known and whose slope is not."""
    is_moved = fitted.record.base_rate_source == "known rate"
    if not (is_moved and is_slope_assumed(fitted.record)):
        return None
    return compare_with_constant(fitted, summary)


def _print_json(
    fitted: CalibrationMap,
    summary: Summary,
    out: Path,
    rules: Rules,
    check: ConstantCheck | None,
) -> None:
    # A map moved to another base rate differs from the log on purpose.
    shape = None
    if is_rate_of_log(fitted.record):
        shape = misfit(fitted.predict(summary.scores), summary)._asdict()
    about = {"out": str(out), **fitted.to_dict(), "misfit": shape}
    if check is not None:
        warning = check.message if check.is_worse else None
        about["constant_check"] = {**check._asdict(), "warning": warning}
    print_json({**about, "metrics": _metrics(fitted, summary), "skipped": rules.skipped})


def is_rate_of_log(record: FitRecord) -> bool:
    """Whether a map has the log's own base rate, so that the two can be compared."""
    return record.base_rate_source == "assumed" and record.base_rate is None


def _print_gain(fitted: CalibrationMap, saved: CalibrationMap) -> None:
    """Print the log loss of the saved map beside that of the map of all rows, shown above."""
    with_columns, without = saved.record.loss, fitted.record.loss
    if saved is fitted or not is_rate_of_log(saved.record) or with_columns is None:
        return
    columns = ", ".join((*saved.segment_columns, *saved.feature_columns))
    console.print(
        f"Log loss of the saved map, by {shown(columns)}: [bold]{with_columns:.4f}[/], of one map "
        f"for all rows {without:.4f} (on the rows of the fit).",
        highlight=False,
    )


def _metrics(fitted: CalibrationMap, summary: Summary) -> dict[str, float]:
    if fitted.segment_columns or fitted.feature_columns:
        # The summary has scores alone; the loss was computed with the columns.
        return {} if fitted.record.loss is None else {LogLoss().name: fitted.record.loss}
    probabilities = fitted.predict(summary.scores)
    return {metric.name: metric(probabilities, summary.evidence) for metric in HEADLINE}


def _print_fit(fitted: CalibrationMap, summary: Summary) -> None:
    rate = summary.positive.sum() / summary.total.sum()
    console.print(
        f"[bold]{fitted.method}[/] fitted on {summary.rows:,} rows with {summary.kind} evidence: "
        f"scores {summary.low:.4g} to {summary.high:.4g}, mean label {rate:.2%} after weighting."
    )
    if summary.kind == "impressions":
        console.print(f"Effective number of impressions: {summary.effective_rows:,.0f}.")
    if fitted.record.selection is not None:
        console.print(f"[bold]Method:[/] {describe_selection(fitted.record.selection)}.")
    if isinstance(fitted, LogisticMap):
        console.print(fitted.description)
        console.print(_parameter_table(fitted))
    if is_rate_of_log(fitted.record):
        _print_in_sample_metrics(fitted, summary)
    else:
        # Compared with the log's own base rate the map would look wrong, as it should.
        mean = float(summary.total @ fitted.predict(summary.scores) / summary.total.sum())
        console.print(f"Mean probability of the rows, weighted as in the fit: [bold]{mean:.2%}[/].")
    console.print(base_rate_lines(fitted.record))
    if fitted.record.sensitivity is not None:
        console.print(sensitivity_lines(fitted.record.sensitivity), highlight=False)


def _print_in_sample_metrics(fitted: CalibrationMap, summary: Summary) -> None:
    metrics = _metrics(fitted, summary)
    console.print("  ".join(f"{name} [bold]{value:.4f}[/]" for name, value in metrics.items()))
    curve = reliability(fitted.predict(summary.scores), summary.evidence)
    console.print(reliability_diagram(curve))
    shape = misfit(fitted.predict(summary.scores), summary)
    if shape.matters:
        console.print(f"[yellow]Misfit:[/] {shape.message}", highlight=False)
    console.print(
        "[dim]Computed on the rows and weights of the fit. "
        "Use calibrank evaluate on a separate table.[/]"
    )


def _parameter_table(fitted: LogisticMap) -> RichTable:
    table = RichTable("parameter", "value", "standard error")
    for name, value in fitted.parameters.items():
        table.add_row(name, f"{value:.6g}", f"{fitted.standard_errors[name]:.2g}")
    return table
