"""`calibrank score`."""

from pathlib import Path
from typing import Annotated

import typer

from calibrank.cli.console import (
    BadRowsOption,
    JsonOption,
    OnBadRows,
    TableArgument,
    UserOption,
    console,
    print_json,
    reading,
    say_skipped,
)
from calibrank.scorers import SavedModel
from calibrank.tabular.read import Table
from calibrank.tabular.rules import Rules
from calibrank.tabular.write import Scores, add_column


def score(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A folder that `calibrank train` wrote.")
    ],
    table: TableArgument,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="File for a file; folder for a folder or glob.")
    ],
    user: UserOption = None,
    item: Annotated[
        str | None, typer.Option(help="Item column; item, item_id, itemID ... unless named.")
    ] = None,
    to: Annotated[str, typer.Option(help="Name of the new column.")] = "score",
    on_bad_rows: BadRowsOption = OnBadRows.error,
    json: JsonOption = False,
) -> None:
    """Add a trained model's score to a table of users and items.

    Example: calibrank score model pairs.parquet -o scores.parquet
    """
    trained, source = SavedModel.load(model), Table.find(table)
    rules = Rules(skip=on_bad_rows is OnBadRows.skip)
    filler = Scores(trained, source.resolve("user", user), source.resolve("item", item), rules)
    with reading(source, "Scoring") as progress:
        rows, done = add_column(filler, source, out, to, progress)
    say_skipped(rules)
    if json:
        print_json(
            {"out": str(out), "rows": rows, "files": len(source.files), "already_done": done}
        )
        return
    console.print(f"[bold]Wrote[/] {out}: {rows:,} rows")
