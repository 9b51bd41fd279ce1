"""`calibrank fit`."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table as Grid

from calibrank.base_rate import anchor as calibrate_anchor
from calibrank.base_rate import to_base_rate, with_sensitivity
from calibrank.calibrators import Calibrator
from calibrank.cli.console import (
    HEADLINE,
    BadRowsOption,
    ItemOption,
    JsonOption,
    LabelOption,
    Loss,
    Method,
    OnBadRows,
    PropensityOption,
    ScoreOption,
    TableArgument,
    UsageError,
    WeightOption,
    choose_columns,
    console,
    describe_base_rate,
    describe_sensitivity,
    log,
    picture,
    print_json,
    reading,
    require_one_source,
    require_output,
    require_share,
    say_skipped,
)
from calibrank.errors import DataError
from calibrank.evidence import ips, naive
from calibrank.maps import CalibrationMap, LogisticMap
from calibrank.metrics import reliability
from calibrank.registry import CALIBRATORS, find
from calibrank.summary import Summary
from calibrank.tabular.aggregate import (
    Aggregate,
    Columns,
    Rows,
    aggregate,
    propensity_model_for,
    rows_of,
)
from calibrank.tabular.read import Table
from calibrank.tabular.rules import Rules


def fit(
    table: TableArgument,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to save the map (JSON).")] = Path(
        "map.json"
    ),
    score: ScoreOption = None,
    label: LabelOption = None,
    propensity: PropensityOption = None,
    item: ItemOption = None,
    weight: WeightOption = None,
    method: Annotated[Method, typer.Option(help="Which calibrator.")] = Method.gaussian,
    loss: Annotated[Loss, typer.Option(help="How labels become evidence.")] = Loss.ips,
    anchor: Annotated[
        str | None,
        typer.Option(
            help="Table of randomly shown pairs, in the same columns, to learn the level from."
        ),
    ] = None,
    base_rate: Annotated[
        float | None,
        typer.Option(help="The share of all pairs that is liked, if known, over TABLE's scores."),
    ] = None,
    negatives_kept: Annotated[
        float,
        typer.Option(
            help="The share of the rows without a positive that TABLE holds, if they were sampled."
        ),
    ] = 1.0,
    on_bad_rows: BadRowsOption = OnBadRows.error,
    json: JsonOption = False,
) -> None:
    """Fit a calibration map on a table of scores and labels, of any size.

    Example: calibrank fit scores.parquet --item item_id --method gaussian -o map.json
    """
    if anchor is not None and base_rate is not None:
        raise UsageError(
            "--anchor and --base-rate must not both be given: labels tell the base rate too."
        )
    if loss is Loss.positive_ips and (anchor is not None or base_rate is not None):
        raise UsageError(
            "--anchor and --base-rate must go with --loss ips, impressions or naive, got positive-ips, which counts a "
            "positive for more than one pair: the table's scores would not be the population's."
        )
    if base_rate is not None and not 0 < base_rate < 1:
        raise UsageError(f"--base-rate must lie between 0 and 1, got {base_rate}.")
    require_share("--negatives-kept", negatives_kept)
    require_one_source(propensity, item)
    require_output(out, table, anchor)
    out.parent.mkdir(parents=True, exist_ok=True)
    source, rules = Table.find(table), Rules(skip=on_bad_rows is OnBadRows.skip)
    columns = choose_columns(
        source, score, label, loss, propensity, item, weight, negatives_kept=negatives_kept
    )
    with reading(source, "Reading") as progress:
        summed = aggregate(source, columns, rules, progress)
    summary = summed.summary
    calibrator = find("method", CALIBRATORS, method.value)
    fitted = calibrator.fit_summary(summary)
    if anchor is not None:
        fitted = _anchored(fitted, anchor, columns, rules, summary)
    else:
        moved = fitted if base_rate is None else to_base_rate(fitted, base_rate, summary)
        fitted = _with_doubt(moved, calibrator, summed, columns)
    fitted.save(out)
    say_skipped(rules)
    probabilities = fitted.predict(summary.scores)
    values = {metric.name: metric(probabilities, summary.evidence) for metric in HEADLINE}
    if json:
        print_json(
            {"out": str(out), **fitted.to_dict(), "metrics": values, "skipped": rules.skipped}
        )
        return
    console.print(_heading(fitted, summary))
    if isinstance(fitted, LogisticMap):
        console.print(_parameters(fitted))
    if fitted.record.base_rate_source == "assumed":
        console.print("  ".join(f"{name} [bold]{value:.4f}[/]" for name, value in values.items()))
        console.print(picture(reliability(probabilities, summary.evidence)))
        console.print(
            "[dim]Judged on the rows it was fitted on, by the same evidence. See calibrank evaluate.[/]"
        )
    else:  # by the log's own level the map looks wrong, as it should
        now = float(summary.total @ probabilities / summary.total.sum())
        console.print(
            f"Mean probability over the table, now that the level is known: [bold]{now:.2%}[/]."
        )
    console.print(describe_base_rate(fitted.record))
    doubt = describe_sensitivity(fitted.record)
    if doubt is not None:
        console.print(doubt, highlight=False)
    console.print(f"[bold]Saved:[/] {out}")


def _with_doubt(
    fitted: CalibrationMap, method: Calibrator, summed: Aggregate, columns: Columns
) -> CalibrationMap:
    """With what the log leaves open, where its positives were weighed by propensities."""
    if summed.positives is None:
        return fitted
    setting, known = propensity_model_for(columns)
    return with_sensitivity(
        fitted,
        method,
        summed.summary,
        summed.positives,
        setting,
        columns.evidence,
        scale_known=known,
    )


def _anchored(
    fitted: CalibrationMap, name: str, columns: Columns, rules: Rules, summary: Summary
) -> CalibrationMap:
    """Anchor on a table of randomly shown pairs; a propensity column in it is the exploration policy's."""
    table = Table.find(name)
    policy = "propensity" if "propensity" in table.columns() else None
    shown = Columns(
        columns.score, columns.label, naive if policy is None else ips, propensity=policy
    )
    found = list(rows_of(table, shown, rules, None))
    if not found:
        raise DataError(f"{name} must hold at least one good row to anchor on, got none.")
    rows = Rows.joined(found)
    if not rows.labels.any():
        log.print(
            f"none of the {len(rows.labels):,} randomly shown pairs of {name} was liked: is the label right?"
        )
    # Scores stand for the population as often as they occur in the table that was fitted on.
    count = np.cumsum(summary.total) / summary.total.sum()
    population = summary.scores[
        np.searchsorted(count, (np.arange(20_000) + 0.5) / 20_000).clip(max=len(count) - 1)
    ]
    return calibrate_anchor(fitted, rows.scores, rows.labels, rows.propensity, population)


def _heading(fitted: CalibrationMap, summary: Summary) -> str:
    rate = summary.positive.sum() / summary.total.sum()
    return (
        f"[bold]{fitted.method}[/] fitted on {summary.rows:,} rows by {summary.kind} evidence: "
        f"scores {summary.low:.4g} to {summary.high:.4g}, mean preference {rate:.2%}."
    )


def _parameters(fitted: LogisticMap) -> Grid:
    grid = Grid("parameter", "value", "standard error")
    errors: dict[str, Any] = fitted.standard_errors
    for name, value in fitted.parameters.items():
        grid.add_row(name, f"{value:.6g}", f"{errors[name]:.2g}")
    return grid
