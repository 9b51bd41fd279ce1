"""Anchoring in `calibrank fit`: the options, and the table of randomly shown pairs."""

from dataclasses import replace
from typing import Annotated

import numpy as np
import typer

from calibrank._internal.validation import Floats
from calibrank.anchoring import anchor as anchor_map
from calibrank.cli.console import UsageError, log, shown
from calibrank.diagnosis import score_quantiles
from calibrank.errors import DataError
from calibrank.evidence import ips, naive
from calibrank.maps import CalibrationMap
from calibrank.summary import Summary
from calibrank.tabular.aggregate import Columns, Rows, rows_of
from calibrank.tabular.read import Table
from calibrank.tabular.rules import Rules

# As many scores as `anchor` keeps of a population.
_POPULATION = 20_000

AnchorOption = Annotated[
    str | None,
    typer.Option(
        help="Table of randomly shown pairs, with the same score and label columns, to "
        "estimate the base rate from."
    ),
]
AnchorPropensityOption = Annotated[
    str | None,
    typer.Option(
        help="Column of the --anchor table: the exploration policy's probability of showing each "
        "pair, if it was not the same for all."
    ),
]


def anchored_on(
    fitted: CalibrationMap,
    table: Table,
    columns: Columns,
    rules: Rules,
    summary: Summary,
) -> CalibrationMap:
    """The map anchored on a table of randomly shown pairs."""
    rows, _ = random_pairs(table, columns, rules)
    if not rows.labels.any():
        count = len(rows.labels)
        message = f"{table.name}: all {count:,} labels are 0. Check that the label column is right."
        log.print(shown(message), soft_wrap=True)
    population = population_of(summary)
    return anchor_map(fitted, rows.scores, rows.labels, rows.propensity, population)


def population_of(summary: Summary) -> Floats:
    """Scores of the population: each as often as it occurs in the table of the fit."""
    return score_quantiles(summary, _POPULATION)


def anchor_columns(
    table: Table,
    columns: Columns,
    propensity: str | None,
) -> Columns:
    """The columns of the random pairs: score and label as in the fit, propensities if named."""
    # Uniform exploration needs no propensities, and a column of that name may be anything.
    weighting = "every pair weighted equally"
    if propensity is not None:
        propensity = table.resolve("propensity", propensity)
        weighting = f"propensity column {propensity!r}"
    text = f"Anchoring on score column {columns.score!r} and label column {columns.label!r} of "
    log.print(shown(f"{text}{table.name}, {weighting}"), highlight=False, soft_wrap=True)
    evidence = naive if propensity is None else ips
    rule = columns.label_rule
    if rule is not None and not rule.is_binary:
        raise UsageError(
            "--anchor must go with labels that are 0 or 1, got counts or probabilities. Anchor in "
            "Python, or declare what is liked with --positive."
        )
    return Columns(columns.score, columns.label, evidence, propensity, label_rule=rule)


def random_pairs(
    table: Table, columns: Columns, rules: Rules, features: tuple[str, ...] = ()
) -> tuple[Rows, list[Floats]]:
    """All rows of a table of random pairs, and further columns of numbers."""
    batches = list(rows_of(table, replace(columns, features=features), rules, None))
    if not batches:
        raise DataError(f"{table.name} must hold at least one valid row to anchor on, got none.")
    by_feature = zip(*[rows.features for rows in batches], strict=True)
    return Rows.joined(batches), [np.concatenate(parts) for parts in by_feature]
