"""Terms of a map on the command line: from options to specifications, and from a map to text."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from rich.table import Table as RichTable

from calibrank._internal.logit import expit, logit
from calibrank.cli import console
from calibrank.cli.declared import require_columns
from calibrank.maps import CalibrationMap, LevelTerm, PositionTerm, SmoothTerm, Term
from calibrank.model import Model
from calibrank.tabular.aggregate import Aggregate
from calibrank.tabular.columns import Columns
from calibrank.tabular.features import is_level_column, read_features
from calibrank.tabular.read import Table
from calibrank.tabular.rules import Rules
from calibrank.terms import Level, Smooth, TermSpec

# Values of a term that are printed; --json and the saved map have all.
_MOST_PRINTED = 12
_MOST_KNOTS = 8


def choose_terms(
    table: Table, segments: list[str] | None, features: list[str] | None
) -> list[TermSpec]:
    """The terms that options name, of columns that the table has."""
    terms: list[TermSpec] = []
    for text in segments or []:
        nested = [text] if text in table.columns() else [part.strip() for part in text.split(">")]
        terms.append(Level(*require_columns(table, nested, "segment")))
    names = require_columns(table, features or [], "feature")
    return terms + [Level(each) if is_level_column(table, each) else Smooth(each) for each in names]


def with_term_columns(columns: Columns, terms: list[TermSpec]) -> Columns:
    """The columns and those of terms: levels are read as text, functions as numbers."""
    levels = [name for term in terms if isinstance(term, Level) for name in term.columns]
    numbers = {
        name: "feature" for term in terms if isinstance(term, Smooth) for name in term.columns
    }
    return replace(columns, segments=tuple(dict.fromkeys(levels)), features=numbers)


def fit_terms(
    model: Model,
    fitted: CalibrationMap,
    table: Table,
    columns: Columns,
    aggregated: Aggregate,
    rules: Rules,
) -> CalibrationMap:
    """Add the terms of a model to the map of the score."""
    if aggregated.segments is not None:
        return model.fit_sums(fitted, aggregated.segments)
    with console.progress_bar(table, "Reading columns") as progress:
        # Rows that are skipped were counted in the first pass.
        counted = Rules(skip=rules.skip)
        rows = read_features(table, columns, counted, aggregated.exposure, progress)
    return model.fit_rows(fitted, rows.scores, rows.evidence, rows.features)


def print_terms(fitted: CalibrationMap) -> None:
    """Print what each term makes of the probability of an average row."""
    tables = [term for term in fitted.terms if not isinstance(term, PositionTerm)]
    if tables:
        record = fitted.record
        rate = min(max(record.positive / record.total, 1e-6), 1 - 1e-6)
        if record.anchoring is not None and record.anchoring.rate is not None:
            rate = record.anchoring.rate
        lowest, highest = fitted.without_terms().log_odds(fitted.span)
        middle = float(np.clip(logit(rate), lowest, highest))
        table = RichTable("column", "value", f"where others have {expit(middle):.1%}", "rows")
        for term in tables:
            _add_rows(table, term, middle)
        console.show(table)
    for term in fitted.terms:
        if isinstance(term, PositionTerm):
            text = f"a curve of its own for the first {term.n} positions, by {term.column}."
            console.state(f"[bold]Top of the list:[/] {console.shown(text)}")


def _add_rows(table: RichTable, term: Term, middle: float) -> None:
    found = sorted(_values(term, middle), key=lambda each: -abs(each[1] - middle))
    shown_values = (
        found[:_MOST_PRINTED] if isinstance(term, LevelTerm) else list(_values(term, middle))
    )
    for place, (value, log_odds, rows) in enumerate(shown_values):
        name = " > ".join(term.columns) if not place else ""
        table.add_row(console.shown(name), console.shown(value), f"{expit(log_odds):.1%}", rows)
    if len(found) > len(shown_values):
        table.add_row("", f"and {len(found) - len(shown_values):,} more", "", "")


def _values(term: Term, middle: float) -> Iterator[tuple[str, float, str]]:
    """Values of a term, and the log odds of a row there that would have `middle` otherwise."""
    if isinstance(term, LevelTerm):
        parts = zip(term.keys, term.intercepts, term.slopes, term.rows, strict=True)
        for key, intercept, slope, rows in parts:
            yield " > ".join(key), intercept + slope * middle, f"{rows:,}"
    if isinstance(term, SmoothTerm):
        # An anchored function has the knots of the start and of the labels: a few are enough.
        places = np.unique(np.linspace(0, len(term.knots) - 1, _MOST_KNOTS).round().astype(int))
        for place in places.tolist():
            yield f"{term.knots[place]:.4g}", middle + term.values[place], ""
