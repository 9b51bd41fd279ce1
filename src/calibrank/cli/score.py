"""`calibrank score`."""

from calibrank.cli import console
from calibrank.cli.declared import report_lost_roles
from calibrank.cli.parse import Given
from calibrank.scorers import SavedModel
from calibrank.tabular.read import Table
from calibrank.tabular.write import Scores, add_column


def score(given: Given) -> None:
    """Add a column of a trained model's scores to a table of users and items."""
    trained = SavedModel.load(given.model)
    table = Table.find(given.table)
    console.require_other_file(given.out, *table.files)
    rules = console.rules_for(given)
    users = table.resolve("user", given.user)
    filler = Scores(trained, users, table.resolve("item", given.item), rules)
    with console.reading(table, "Scoring", rules) as progress:
        written = add_column(filler, table, given.out, given.to, progress)
    report_lost_roles(table, given.out)
    console.report_written(given, table, rules, *written)
