"""`calibrank apply`."""

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
    MAP_HELP,
    OUTPUT_HELP,
    BadRowsOption,
    JsonOption,
    OnBadRows,
    ScoreOption,
    TableArgument,
)
from calibrank.maps import load
from calibrank.maps.known_values import KnownValues
from calibrank.maps.score_shift import ScoreComparison
from calibrank.tabular.read import Table
from calibrank.tabular.write import Probabilities, add_column


def apply(
    map_file: Annotated[Path, typer.Argument(metavar="MAP", help=MAP_HELP)],
    table: TableArgument,
    out: Annotated[Path, typer.Option("--out", "-o", help=OUTPUT_HELP)],
    score: ScoreOption = None,
    to: Annotated[str, typer.Option(help="Name of the new column.")] = "probability",
    on_bad_rows: BadRowsOption = OnBadRows.error,
    json: JsonOption = False,
) -> None:
    """Add a probability column to a table, file by file.

    Each file is written atomically: it appears under its name only when it is complete. A rerun
    writes only the files that are missing or out of date. A warning says if the scores do not look
    like those that the map was fitted on, or if it does not know most of the segments.

    Example: calibrank apply map.json scores.parquet -o calibrated.parquet
    """
    fitted = load(map_file)
    source = Table.find(table)
    require_other_file(out, map_file, *source.files)
    rules = rules_for(on_bad_rows)
    # One batch at a time: memory does not grow with the table.
    with progress_bar(source, "Applying") as progress:
        comparison = ScoreComparison(fitted.record)
        known = KnownValues(fitted)
        filler = Probabilities(fitted, source.resolve("score", score), rules, comparison, known)
        rows, up_to_date = add_column(filler, source, out, to, progress)
    report_skipped(rules)
    comparison.warn()
    known.warn()
    files = len(source.files)
    if json:
        about = {"out": str(out), "rows": rows, "files": files}
        print_json({**about, "already_done": up_to_date, "skipped": rules.skipped})
        return
    report_written(out, rows, to, up_to_date, files)
