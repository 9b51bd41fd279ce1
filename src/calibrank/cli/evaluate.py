"""`calibrank evaluate`."""

import math
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table as Grid

from calibrank.cli.console import (
    BadRowsOption,
    JsonOption,
    LabelOption,
    OnBadRows,
    ScoreOption,
    TableArgument,
    UserOption,
    WeightOption,
    console,
    picture,
    print_json,
    reading,
    say_skipped,
)
from calibrank.evidence import naive
from calibrank.maps import load
from calibrank.tabular.aggregate import Columns
from calibrank.tabular.evaluate import MOST_ROWS_IN_MEMORY, Evaluation
from calibrank.tabular.evaluate import evaluate as evaluate_table
from calibrank.tabular.read import Table
from calibrank.tabular.rules import Rules


def evaluate(
    table: TableArgument,
    map_file: Annotated[
        Path | None, typer.Option("--map", help="Map to apply to the score column first.")
    ] = None,
    probability: Annotated[
        str | None, typer.Option(help="Without a map: the column to judge.")
    ] = None,
    score: ScoreOption = None,
    label: LabelOption = None,
    user: UserOption = None,
    weight: WeightOption = None,
    on_bad_rows: BadRowsOption = OnBadRows.error,
    json: JsonOption = False,
) -> None:
    """Evaluate probabilities against labels: all metrics, with intervals over resampled users.

    Labels are taken at their word, so judge on randomly shown pairs where you can.

    Example: calibrank evaluate test.parquet --map map.json --user user_id
    """
    source, rules = Table.find(table), Rules(skip=on_bad_rows is OnBadRows.skip)
    fitted = None if map_file is None else load(map_file)
    judged = (
        source.resolve("probability", probability)
        if fitted is None
        else source.resolve("score", score)
    )
    who = source.resolve("user", user) if user else source.has("user")
    heavy = source.resolve("weight", weight) if weight else None
    rule = "probability" if fitted is None else "score"
    columns = Columns(
        judged, source.resolve("label", label), naive, weight=heavy, user=who, score_is=rule
    )
    with reading(source, "Judging") as progress:
        verdict = evaluate_table(source, columns, fitted, rules, progress)
    say_skipped(rules)
    if json:
        estimates = {name: dict(estimate._asdict()) for name, estimate in verdict.estimates.items()}
        curve = {name: column.tolist() for name, column in verdict.curve._asdict().items()}
        about = {
            "rows": verdict.rows,
            "users": who,
            "left_out": list(verdict.left_out),
            "skipped": rules.skipped,
        }
        print_json({**about, "metrics": estimates, "reliability": curve})
        return
    console.print(_grid(verdict, who))
    console.print(picture(verdict.curve))
    if verdict.left_out:
        crowded = (
            f"over {MOST_ROWS_IN_MEMORY:,} rows"
            if verdict.rows > MOST_ROWS_IN_MEMORY
            else "no positive label"
        )
        why = crowded if who else "no user column"
        console.print(f"[dim]Left out, {why}: {', '.join(verdict.left_out)}[/]")


def _grid(verdict: Evaluation, who: str | None) -> Grid:
    unit = f"users ({who})" if who else "rows, taken as independent"
    grid = Grid(title=f"{verdict.rows:,} rows; 95 % intervals over {unit}", title_justify="left")
    for heading in ("metric", "value", "95 % interval", ""):
        grid.add_column(heading, justify="left" if heading in ("metric", "") else "right")
    for name, estimate in verdict.estimates.items():
        interval = "" if math.isnan(estimate.low) else f"{estimate.low:.4f} to {estimate.high:.4f}"
        grid.add_row(name, f"{estimate.value:.4f}", interval, verdict.better[name])
    return grid
