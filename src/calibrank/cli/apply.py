"""`calibrank apply`."""

from pathlib import Path

from calibrank.cli import console, options
from calibrank.maps import load
from calibrank.maps.score_shift import ScoreComparison
from calibrank.tabular.read import Table
from calibrank.tabular.write import Probabilities, add_column


def apply(
    map_file: Path,
    table: str,
    out: Path,
    score: str | None,
    to: str,
    on_bad_rows: options.OnBadRows,
    json: bool,
) -> None:
    """Add a column of probabilities to a table, file by file."""
    fitted = load(map_file)
    source = Table.find(table)
    console.require_other_file(out, map_file, *source.files)
    rules = console.rules_for(on_bad_rows)
    # One batch at a time: memory does not grow with the table.
    with console.progress_bar(source, "Applying") as progress:
        comparison = ScoreComparison(fitted.record)
        filler = Probabilities(fitted, source.resolve("score", score), rules, comparison)
        rows, up_to_date = add_column(filler, source, out, to, progress)
    console.report_skipped(rules)
    comparison.warn()
    files = len(source.files)
    console.report_written(out, rows, to, up_to_date, files, rules, json=json)
