"""`calibrank fit`."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table as Grid

from calibrank.cli.console import (
    HEADLINE,
    METHODS,
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
    WeightOption,
    choose_columns,
    console,
    picture,
    print_json,
    reading,
    say_skipped,
)
from calibrank.files.reading import Rules, Table
from calibrank.files.summing import summarize
from calibrank.maps import CalibrationMap, LogisticMap
from calibrank.metrics import reliability
from calibrank.summary import Summary


def fit(
    table: TableArgument,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to save the map (JSON).")] = Path("map.json"),
    score: ScoreOption = None,
    label: LabelOption = None,
    propensity: PropensityOption = None,
    item: ItemOption = None,
    weight: WeightOption = None,
    method: Annotated[Method, typer.Option(help="Which calibrator.")] = Method.gaussian,
    loss: Annotated[Loss, typer.Option(help="How labels become evidence.")] = Loss.ips,
    on_bad_rows: BadRowsOption = OnBadRows.error,
    json: JsonOption = False,
) -> None:
    """Fit a calibration map on a table of scores and labels, of any size.

    Example: calibrank fit scores.parquet --item item_id --method gaussian -o map.json
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    source, rules = Table.find(table), Rules(skip=on_bad_rows is OnBadRows.skip)
    columns = choose_columns(source, score, label, loss, propensity, item, weight)
    with reading(source, "Reading") as progress:
        (summary,) = summarize(source, columns, rules, progress)
    fitted = METHODS[method.value].fit_summary(summary)
    fitted.save(out)
    say_skipped(rules)
    probabilities = fitted.predict(summary.scores)
    values = {metric.name: metric(probabilities, summary.evidence) for metric in HEADLINE}
    if json:
        print_json({"out": str(out), **fitted.to_dict(), "metrics": values, "skipped": rules.skipped})
        return
    console.print(_heading(fitted, summary))
    if isinstance(fitted, LogisticMap):
        console.print(_parameters(fitted))
    console.print("  ".join(f"{name} [bold]{value:.4f}[/]" for name, value in values.items()))
    console.print(picture(reliability(probabilities, summary.evidence)))
    console.print("[dim]Judged on the rows it was fitted on, by the same evidence. See calibrank evaluate.[/]")
    console.print(f"[bold]Saved:[/] {out}")


def _heading(fitted: CalibrationMap, summary: Summary) -> str:
    rate = summary.positive.sum() / summary.total.sum()
    return (
        f"[bold]{fitted.method}[/] fitted on {summary.rows:,} rows by {summary.kind} evidence: "
        f"scores {summary.low:.4g} to {summary.high:.4g}, mean preference {rate:.2%}."
    )


def _parameters(fitted: LogisticMap) -> Grid:
    grid = Grid("parameter", "value", "standard error")
    errors: dict[str, Any] = fitted.errors
    for name, value in fitted.parameters.items():
        grid.add_row(name, f"{value:.6g}", f"{errors[name]:.2g}")
    return grid
