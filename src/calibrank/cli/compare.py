"""`calibrank compare`."""

from typing import Annotated

import numpy as np
import typer
from rich.table import Table as Grid

from calibrank.calibrators import Calibrator, fit_without_each
from calibrank.cli.console import (
    HEADLINE,
    BadRowsOption,
    ItemOption,
    JsonOption,
    LabelOption,
    Loss,
    OnBadRows,
    PropensityOption,
    ScoreOption,
    TableArgument,
    UserOption,
    WeightOption,
    choose_columns,
    console,
    print_json,
    reading,
    require_one_source,
    say_skipped,
)
from calibrank.errors import DataError, FitError
from calibrank.evidence import Evidence
from calibrank.registry import CALIBRATORS
from calibrank.summary import Summary
from calibrank.tabular.aggregate import summarize
from calibrank.tabular.read import Table
from calibrank.tabular.rules import Rules


def compare(
    table: TableArgument,
    score: ScoreOption = None,
    label: LabelOption = None,
    user: UserOption = None,
    propensity: PropensityOption = None,
    item: ItemOption = None,
    weight: WeightOption = None,
    loss: Annotated[
        Loss, typer.Option(help="How labels become evidence, in fitting and in judging.")
    ] = Loss.ips,
    folds: Annotated[
        int, typer.Option(min=2, help="Shares of users; each is judged by a fit on the others.")
    ] = 5,
    on_bad_rows: BadRowsOption = OnBadRows.error,
    json: JsonOption = False,
) -> None:
    """Compare all methods, cross-validated by user; the best by log loss is marked.

    With --item, propensities are guessed from the whole table, held-out users included.

    Example: calibrank compare scores.parquet --user user_id --item item_id
    """
    require_one_source(propensity, item)
    source, rules = Table.find(table), Rules(skip=on_bad_rows is OnBadRows.skip)
    who = user or source.has("user")
    columns = choose_columns(source, score, label, loss, propensity, item, weight, who)
    with reading(source, "Reading") as progress:
        parts = summarize(source, columns, rules, progress, folds=folds)
    say_skipped(rules)
    results = {name.lower(): _cross_validate(method, parts) for name, method in CALIBRATORS.items()}
    if json:
        print_json(
            {
                "loss": loss.value,
                "folds": folds,
                "user": who,
                "methods": results,
                "skipped": rules.skipped,
            }
        )
        return
    console.print(_grid(results, loss.value, who, folds))
    if any(float(values.get("LogLoss", 0)) < 0 for values in results.values()):
        words = "mean Y/w exceeds 1 somewhere, so nothing is marked best. See calibrank diagnose."
        console.print(f"[yellow]A loss below 0 is no loss:[/] {words}")
    if loss is not Loss.naive:
        console.print(
            "[dim]Judged by the same evidence: shapes are compared, the level is not tested.[/]"
        )


def _cross_validate(method: Calibrator, parts: list[Summary]) -> dict[str, float | str]:
    """Metrics over all held-out shares together, or why there are none."""
    try:
        fitted = fit_without_each(method, parts)
    except (FitError, DataError) as error:
        return {"error": str(error)}
    probabilities = [each.predict(part.scores) for each, part in zip(fitted, parts, strict=True)]
    positive, total = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("positive", "total")
    )
    evidence = Evidence.trusted(positive, total, parts[0].kind)
    return {metric.name: metric(np.concatenate(probabilities), evidence) for metric in HEADLINE}


def _grid(
    results: dict[str, dict[str, float | str]], loss: str, who: str | None, folds: int
) -> Grid:
    unit = (
        f"by user ({who})"
        if who
        else "by row (no user column: rows of one user may be on both sides)"
    )
    grid = Grid(title=f"{folds}-fold cross-validated {unit}, {loss} evidence", title_justify="left")
    for heading in ("method", *(metric.name for metric in HEADLINE)):
        grid.add_column(heading, justify="left" if heading == "method" else "right")
    fitted = {name: values for name, values in results.items() if "error" not in values}
    order = sorted(fitted, key=lambda name: fitted[name]["LogLoss"])
    sound = all(float(values["LogLoss"]) >= 0 for values in fitted.values())
    for name in order:
        cells = [f"{values:.4f}" for values in fitted[name].values()]
        best = sound and name == order[0]
        grid.add_row(
            name + (" (best)" if best else ""), *cells, style="bold green" if best else None
        )
    for name in results:
        if name not in fitted:
            grid.add_row(name, str(results[name]["error"]).split(",")[0], style="dim")
    return grid
