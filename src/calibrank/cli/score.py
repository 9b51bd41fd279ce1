"""`calibrank score`."""

from pathlib import Path

from calibrank.cli import console, options
from calibrank.cli.declared import report_lost_roles
from calibrank.scorers import SavedModel
from calibrank.tabular.read import Table
from calibrank.tabular.write import Scores, add_column


def score(
    model: Path,
    table: str,
    out: Path,
    user: str | None,
    item: str | None,
    to: str,
    on_bad_rows: options.OnBadRows,
    json: bool,
) -> None:
    """Add a column of a trained model's scores to a table of users and items."""
    trained = SavedModel.load(model)
    source = Table.find(table)
    console.require_other_file(out, *source.files)
    rules = console.rules_for(on_bad_rows)
    filler = Scores(trained, source.resolve("user", user), source.resolve("item", item), rules)
    with console.progress_bar(source, "Scoring") as progress:
        rows, up_to_date = add_column(filler, source, out, to, progress)
    console.report_skipped(rules)
    report_lost_roles(source, out)
    files = len(source.files)
    console.report_written(out, rows, to, up_to_date, files, rules, json=json)
