"""`calibrank inspect`."""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from calibrank.cli.console import (
    JsonOption,
    console,
    describe_base_rate,
    describe_sensitivity,
    print_json,
)
from calibrank.maps import CalibrationMap, load


def inspect(
    map_file: Annotated[Path, typer.Argument(metavar="MAP", help="A saved map.")],
    json: JsonOption = False,
) -> None:
    """Say in words what is in a map, and draw it.

    Example: calibrank inspect map.json
    """
    fitted = load(map_file)
    if json:
        print_json(fitted.to_dict())
        return
    record = fitted.record
    console.print(
        f"[bold]{fitted.method}[/], fitted on {record.rows:,} rows by {record.evidence} evidence: "
        f"positive mass {record.positive:,.6g} of {record.total:,.6g} ({record.positive / record.total:.2%})."
    )
    console.print(
        "Every distinct score was kept."
        if record.exact
        else "Scores were pooled into fine bins first."
    )
    console.print(fitted.description)
    if fitted.parameters:
        terms = [
            f"{name} = {value:.6g} +- {fitted.standard_errors[name]:.2g}"
            for name, value in fitted.parameters.items()
        ]
        console.print(f"Parameters: {', '.join(terms)}.")
    if record.residual is not None:
        console.print(
            f"Mean loss {record.loss:.6f}, optimal to {record.residual:.0e} after {record.iterations} steps."
        )
    if record.at_bound:
        console.print(
            "[yellow]Held up by the constraint that a higher score never gets a lower probability.[/]"
        )
    console.print(_curve(fitted))
    console.print(describe_base_rate(record))
    doubt = describe_sensitivity(record)
    if doubt is not None:
        console.print(doubt, highlight=False)


def _curve(fitted: CalibrationMap, lines: int = 15, width: int = 35) -> str:
    scores = np.linspace(*fitted.span, lines)
    low, high = fitted.interval(scores)
    rows = ["[bold]   score  probability  (95 % interval)[/]"]
    for score, middle, below, above in zip(scores, fitted.predict(scores), low, high, strict=True):
        bar = "█" * round(middle * width)
        rows.append(f"{score:8.3g}  {middle:11.4f}  {below:.4f} to {above:.4f}  {bar}")
    return "\n".join(rows)
