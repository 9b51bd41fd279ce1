"""`calibrank fit`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table as RichTable

from calibrank.base_rate import anchor as anchor_map
from calibrank.base_rate import to_base_rate
from calibrank.cli.console import (
    UsageError,
    choose_columns,
    console,
    log,
    print_json,
    progress_bar,
    report_skipped,
    require_fraction,
    require_one_propensity_source,
    require_output,
    rules_for,
)
from calibrank.cli.options import (
    BadRowsOption,
    ItemForPopularityOption,
    JsonOption,
    LabelOption,
    LossOption,
    MethodOption,
    NegativesKeptOption,
    OnBadRows,
    PropensityOption,
    ScoreOption,
    TableArgument,
    WeightOption,
)
from calibrank.cli.rendering import base_rate_lines, reliability_diagram, sensitivity_lines
from calibrank.diagnosis import attach_sensitivity, score_quantiles
from calibrank.errors import DataError
from calibrank.evidence import ips, naive
from calibrank.maps import CalibrationMap, LogisticMap
from calibrank.metrics import reliability
from calibrank.metrics.misfit import misfit
from calibrank.metrics.panel import HEADLINE
from calibrank.registry import CALIBRATORS, find
from calibrank.summary import Summary
from calibrank.tabular.aggregate import Columns, Rows, aggregate, rows_of
from calibrank.tabular.read import Table
from calibrank.tabular.rules import Rules

# As many scores as `anchor` keeps of a population.
_POPULATION = 20_000

OutOption = Annotated[
    Path,
    typer.Option("--out", "-o", help="Where to save the map (JSON)."),
]
AnchorOption = Annotated[
    str | None,
    typer.Option(
        help="Table of randomly shown pairs, with the same score and label columns, to "
        "estimate the base rate from."
    ),
]
BaseRateOption = Annotated[
    float | None,
    typer.Option(help="The fraction of all pairs in TABLE that users like, if it is known."),
]


def fit(
    table: TableArgument,
    out: OutOption = Path("map.json"),
    score: ScoreOption = None,
    label: LabelOption = None,
    propensity: PropensityOption = None,
    item: ItemForPopularityOption = None,
    weight: WeightOption = None,
    method: MethodOption = "gaussian",
    loss: LossOption = "ips",
    anchor: AnchorOption = None,
    base_rate: BaseRateOption = None,
    negatives_kept: NegativesKeptOption = 1.0,
    on_bad_rows: BadRowsOption = OnBadRows.error,
    json: JsonOption = False,
) -> None:
    """Fit a calibration map to a table of scores and labels of any size.

    Example: calibrank fit scores.parquet --item item_id --method gaussian -o map.json
    """
    # All options are checked before the table is read, which may take minutes.
    _require_valid_base_rate(loss, anchor, base_rate)
    require_fraction("--negatives-kept", negatives_kept)
    require_one_propensity_source(propensity, item)
    require_output(out, table, anchor)
    out.parent.mkdir(parents=True, exist_ok=True)
    source = Table.find(table)
    rules = rules_for(on_bad_rows)
    columns = choose_columns(
        source, score, label, loss, propensity, item, weight, negatives_kept=negatives_kept
    )
    with progress_bar(source, "Reading") as progress:
        aggregated = aggregate(source, columns, rules, progress)
    calibrator = find("method", CALIBRATORS, method)
    fitted = calibrator.fit_summary(aggregated.summary)
    if anchor is not None:
        fitted = _anchored(fitted, anchor, columns, rules, aggregated.summary)
    else:
        # Random labels leave no band of base rates; a known rate still leaves one of slopes.
        if base_rate is not None:
            fitted = to_base_rate(fitted, base_rate, aggregated.summary)
        fitted = attach_sensitivity(fitted, calibrator, aggregated, columns)
    fitted.save(out)
    report_skipped(rules)
    if json:
        metrics = _metrics(fitted, aggregated.summary)
        # A map moved to another base rate differs from the log on purpose.
        shape = None
        if fitted.record.base_rate_source == "assumed":
            probabilities = fitted.predict(aggregated.summary.scores)
            shape = misfit(probabilities, aggregated.summary)._asdict()
        about = {"out": str(out), **fitted.to_dict(), "misfit": shape}
        print_json({**about, "metrics": metrics, "skipped": rules.skipped})
        return
    _print_fit(fitted, aggregated.summary)
    console.print(f"[bold]Saved:[/] {out}")


def _require_valid_base_rate(
    loss: str,
    anchor: str | None,
    base_rate: float | None,
) -> None:
    if anchor is None and base_rate is None:
        return
    if anchor is not None and base_rate is not None:
        raise UsageError(
            "--anchor and --base-rate must not both be given: the labels of randomly shown "
            "pairs already determine the base rate."
        )
    if loss == "positive-ips":
        raise UsageError(
            "--anchor and --base-rate must go with --loss ips, impressions or naive, got "
            "positive-ips, which counts a positive as more than one pair: the table's scores "
            "would not be those of the population."
        )
    if base_rate is not None and not 0 < base_rate < 1:
        raise UsageError(f"--base-rate must lie between 0 and 1, got {base_rate}.")


def _anchored(
    fitted: CalibrationMap,
    name: str,
    columns: Columns,
    rules: Rules,
    summary: Summary,
) -> CalibrationMap:
    """The map anchored on a table of randomly shown pairs.

    A propensity column in that table is taken to be the exploration policy's.
    """
    rows = _random_pairs(Table.find(name), columns, rules)
    if not rows.labels.any():
        count = len(rows.labels)
        log.print(f"{name}: all {count:,} labels are 0. Check that the label column is right.")
    # Each score stands for the population as often as it occurs in the table of the fit.
    population = score_quantiles(summary, _POPULATION)
    return anchor_map(fitted, rows.scores, rows.labels, rows.propensity, population)


def _random_pairs(table: Table, columns: Columns, rules: Rules) -> Rows:
    # Uniform exploration needs no propensities; any other policy must have logged them.
    propensity = "propensity" if "propensity" in table.columns() else None
    evidence = naive if propensity is None else ips
    wanted = Columns(columns.score, columns.label, evidence, propensity=propensity)
    batches = list(rows_of(table, wanted, rules, None))
    if not batches:
        raise DataError(f"{table.name} must hold at least one valid row to anchor on, got none.")
    return Rows.joined(batches)


def _metrics(fitted: CalibrationMap, summary: Summary) -> dict[str, float]:
    probabilities = fitted.predict(summary.scores)
    return {metric.name: metric(probabilities, summary.evidence) for metric in HEADLINE}


def _print_fit(fitted: CalibrationMap, summary: Summary) -> None:
    rate = summary.positive.sum() / summary.total.sum()
    console.print(
        f"[bold]{fitted.method}[/] fitted on {summary.rows:,} rows with {summary.kind} evidence: "
        f"scores {summary.low:.4g} to {summary.high:.4g}, mean label {rate:.2%} after weighting."
    )
    if isinstance(fitted, LogisticMap):
        console.print(fitted.description)
        console.print(_parameter_table(fitted))
    if fitted.record.base_rate_source == "assumed":
        _print_in_sample_metrics(fitted, summary)
    else:
        # Compared with the log's own base rate the map would look wrong, as it should.
        mean = float(summary.total @ fitted.predict(summary.scores) / summary.total.sum())
        console.print(f"Mean probability over the table, at this base rate: [bold]{mean:.2%}[/].")
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
