"""`calibrank inspect`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table as RichTable

from calibrank.cli.console import console, print_json, shown
from calibrank.cli.options import MAP_HELP, JsonOption
from calibrank.cli.rendering import base_rate_lines, map_curve, sensitivity_lines
from calibrank.maps import CalibrationMap, describe_population, describe_selection, load


def inspect(
    map_file: Annotated[Path, typer.Argument(metavar="MAP", help=MAP_HELP)],
    json: JsonOption = False,
) -> None:
    """Describe a saved map and plot it in the terminal.

    Example: calibrank inspect map.json
    """
    fitted = load(map_file)
    if json:
        print_json(fitted.to_dict())
        return
    console.print(f"[bold]{shown(fitted.method)}[/] calibration map")
    console.print(_facts(fitted), highlight=False)
    console.print(map_curve(fitted))
    console.print(base_rate_lines(fitted.record))
    if fitted.record.sensitivity is not None:
        console.print(sensitivity_lines(fitted.record.sensitivity), highlight=False)


def _facts(fitted: CalibrationMap) -> RichTable:
    record = fitted.record
    rate = record.positive / record.total
    table = RichTable(box=None, show_header=False, pad_edge=False)
    table.add_row("fitted on", f"{record.rows:,} rows, {shown(record.evidence)} evidence")
    if record.population is not None:
        table.add_row("population", shown(describe_population(record.population)))
    if record.model_name is not None:
        table.add_row("scores of", shown(record.model_name))
    if record.date is not None:
        table.add_row("date", shown(record.date))
    when = "" if record.anchoring is None else " before anchoring"
    mass = f"{record.positive:,.6g} of {record.total:,.6g} ({rate:.2%}{when})"
    table.add_row("positive mass", mass)
    if record.selection is not None:
        table.add_row("method", shown(describe_selection(record.selection)))
    pooling = "every distinct score kept" if record.exact else "pooled into fine bins"
    table.add_row("scores", pooling)
    table.add_row("function", shown(fitted.description))
    for name, value in fitted.parameters.items():
        error = fitted.standard_errors[name]
        table.add_row(f"parameter {name}", f"{value:.6g} (standard error {error:.2g})")
    # Other maps than parametric ones are not solved for and have no residual.
    if record.anchoring is not None and record.loss is not None:
        table.add_row("mean loss", f"{record.loss:.6f} on the random labels")
    elif record.residual is not None:
        solved = f"optimality residual {record.residual:.0e}, {record.iterations} iterations"
        table.add_row("mean loss", f"{record.loss:.6f} ({solved})")
    if record.at_bound:
        limit = "the curve is held from falling, so that higher scores keep higher probabilities"
        table.add_row("constraint", f"[yellow]active: {limit}[/]")
    return table
