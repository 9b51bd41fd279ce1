"""`calibrank score`."""

from pathlib import Path
from typing import Annotated

import typer

from calibrank.cli.console import (
    print_json,
    progress_bar,
    report_skipped,
    report_written,
    require_other_file,
    rules_for,
)
from calibrank.cli.options import (
    OUTPUT_HELP,
    BadRowsOption,
    ItemOption,
    JsonOption,
    OnBadRows,
    TableArgument,
    UserOption,
)
from calibrank.cli.recorded import report_lost_roles
from calibrank.scorers import SavedModel
from calibrank.tabular.read import Table
from calibrank.tabular.write import Scores, add_column


def score(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A folder that `calibrank train` wrote.")
    ],
    table: TableArgument,
    out: Annotated[Path, typer.Option("--out", "-o", help=OUTPUT_HELP)],
    user: UserOption = None,
    item: ItemOption = None,
    to: Annotated[str, typer.Option(help="Name of the new column.")] = "score",
    on_bad_rows: BadRowsOption = OnBadRows.error,
    json: JsonOption = False,
) -> None:
    """Add a column of a trained model's scores to a table of users and items.

    Example: calibrank score model pairs.parquet -o scores.parquet
    """
    trained = SavedModel.load(model)
    source = Table.find(table)
    require_other_file(out, *source.files)
    rules = rules_for(on_bad_rows)
    filler = Scores(trained, source.resolve("user", user), source.resolve("item", item), rules)
    with progress_bar(source, "Scoring") as progress:
        rows, up_to_date = add_column(filler, source, out, to, progress)
    report_skipped(rules)
    report_lost_roles(source, out)
    files = len(source.files)
    if json:
        about = {"out": str(out), "rows": rows, "files": files}
        print_json({**about, "already_done": up_to_date, "skipped": rules.skipped})
        return
    report_written(out, rows, to, up_to_date, files)
