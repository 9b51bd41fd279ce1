"""`calibrank apply`."""

from pathlib import Path
from typing import Annotated

import typer

from calibrank.cli.console import (
    BadRowsOption,
    JsonOption,
    OnBadRows,
    ScoreOption,
    TableArgument,
    console,
    print_json,
    reading,
    say_skipped,
)
from calibrank.maps import load
from calibrank.tabular.read import Table
from calibrank.tabular.rules import Rules
from calibrank.tabular.write import Probabilities, add_column


def apply(
    map_file: Annotated[Path, typer.Argument(metavar="MAP", help="A saved map.")],
    table: TableArgument,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="File for a file; folder for a folder or glob.")
    ],
    score: ScoreOption = None,
    to: Annotated[str, typer.Option(help="Name of the new column.")] = "probability",
    on_bad_rows: BadRowsOption = OnBadRows.error,
    json: JsonOption = False,
) -> None:
    """Add a probability column to a table, file by file; each appears whole, and a rerun does only what is missing.

    Example: calibrank apply map.json scores.parquet -o calibrated.parquet
    """
    fitted, source = load(map_file), Table.find(table)
    rules = Rules(skip=on_bad_rows is OnBadRows.skip)
    with reading(source, "Applying") as progress:
        filler = Probabilities(fitted, source.resolve("score", score), rules)
        rows, done = add_column(filler, source, out, to, progress)
    say_skipped(rules)
    if json:
        print_json(
            {
                "out": str(out),
                "rows": rows,
                "files": len(source.files),
                "already_done": done,
                "skipped": rules.skipped,
            }
        )
        return
    again = f" ({done} of {len(source.files)} files were done already)" if done else ""
    said = (
        f"[bold]Nothing to do:[/] {out}"
        if done == len(source.files)
        else f"[bold]Wrote[/] {out}: {rows:,} rows"
    )
    console.print(said + again)
