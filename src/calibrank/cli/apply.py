"""`calibrank apply`."""

from calibrank.cli import console
from calibrank.cli.parse import Given
from calibrank.maps import load
from calibrank.maps.score_shift import ScoreComparison
from calibrank.tabular.read import Table
from calibrank.tabular.write import Probabilities, add_column


def apply(given: Given) -> None:
    """Add a column of probabilities to a table, file by file."""
    fitted = load(given.map_file)
    table = Table.find(given.table)
    console.require_other_file(given.out, given.map_file, *table.files)
    rules = console.rules_for(given)
    comparison = ScoreComparison(fitted.record)
    filler = Probabilities(fitted, table.resolve("score", given.score), rules, comparison)
    # One batch at a time: memory does not grow with the table.
    with console.reading(table, "Applying", rules) as progress:
        written = add_column(filler, table, given.out, given.to, progress)
    comparison.warn()
    console.report_written(given, table, rules, *written)
