"""`calibrank inspect`."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from rich.table import Table as RichTable

from calibrank._internal.segment_keys import Key
from calibrank.cli import console
from calibrank.cli.failures import UsageError
from calibrank.cli.parse import Given
from calibrank.cli.rendering import map_curve, print_base_rate, print_terms
from calibrank.errors import DataError
from calibrank.maps import (
    CalibrationMap,
    Interval,
    LevelTerm,
    describe_population,
    describe_selection,
    load,
)

Cutoffs = Mapping[Key, Interval[float]]
"""By level, the deepest first; the last is that of any other level, or of all rows."""


def inspect(given: Given) -> None:
    """Describe a saved map, or find the score of a probability."""
    fitted = load(given.map_file)
    if given.score_at is not None:
        _show_cutoffs(fitted, given.score_at, given.where)
        return
    console.answer(fitted.to_dict())
    print_base_rate(fitted.record)
    console.state(f"[bold]{console.shown(fitted.method)}[/] calibration map")
    console.show(_facts(fitted))
    console.show(map_curve(fitted))
    print_terms(fitted)


def _facts(fitted: CalibrationMap) -> RichTable:
    record = fitted.record
    rate = record.positive / record.total
    table = RichTable(box=None, show_header=False, pad_edge=False)
    table.add_row("fitted on", f"{record.rows:,} rows, {console.shown(record.evidence)} evidence")
    if record.population is not None:
        table.add_row("population", console.shown(describe_population(record.population)))
    if record.model_name is not None:
        table.add_row("scores of", console.shown(record.model_name))
    if record.date is not None:
        table.add_row("date", console.shown(record.date))
    when = "" if record.anchoring is None else " before anchoring"
    mass = f"{record.positive:,.6g} of {record.total:,.6g} ({rate:.2%}{when})"
    table.add_row("positive mass", mass)
    if record.selection is not None:
        table.add_row("method", console.shown(describe_selection(record.selection)))
    pooling = "every distinct score kept" if record.exact else "pooled into fine bins"
    table.add_row("scores", pooling)
    table.add_row("function", console.shown(fitted.description))
    for name, value in fitted.parameters.items():
        error = fitted.standard_errors[name]
        table.add_row(f"parameter {name}", f"{value:.6g} (standard error {error:.2g})")
    # Other maps than parametric ones are not solved for and have no residual.
    if record.anchoring is not None and record.loss is not None:
        table.add_row("mean loss", f"{record.loss:.6f} on the random labels")
    elif record.residual is not None:
        solved = f"optimality residual {record.residual:.0e}, {record.iterations} iterations"
        table.add_row("mean loss", f"{record.loss:.6f} ({solved})")
    if record.at_bound:
        limit = "the curve is held from falling, so that higher scores keep higher probabilities"
        table.add_row("constraint", f"[yellow]active: {limit}[/]")
    return table


def _show_cutoffs(fitted: CalibrationMap, probability: float, where: list[str]) -> None:
    """Print raw scores at which a map, or each of its levels, reaches a probability.

    With settings of engines that filter by score.
    """
    only = fitted.terms[0] if len(fitted.terms) == 1 and not where else None
    if isinstance(only, LevelTerm):
        cutoffs = _by_level(fitted, only, probability)
    else:
        cutoffs = {(): _cutoff(fitted, probability, _row(fitted, where))}
    settings = _settings(fitted, cutoffs)
    rows = []
    table = RichTable(" > ".join(fitted.columns) or "rows", f"score at {probability:g}")
    for level, found in cutoffs.items():
        named = dict(zip(fitted.columns, level, strict=False))
        rows.append({"level": named, "score": found.low, "up_to": found.high})
        table.add_row(console.shown(" > ".join(level) or "(any)"), _words(found))
    console.answer({"probability": probability, "cutoffs": rows, "settings": settings})
    console.show(table)
    for engine, text in settings.items():
        console.state(f"[bold]{engine}:[/] {console.shown(text)}")


def _row(fitted: CalibrationMap, where: list[str]) -> dict[str, str | float]:
    """The values of --where, for all columns that the map needs."""
    values: dict[str, str | float] = {}
    for text in where:
        name, sign, value = text.partition("=")
        if not sign or name not in fitted.columns:
            known = ", ".join(fitted.columns) or "none"
            raise UsageError("--where", f"be COLUMN=VALUE with a column of {known}", repr(text))
        try:
            values[name] = float(value) if name in fitted.number_columns else value
        except ValueError:
            raise UsageError("--where", f"be a number for {name}", repr(value)) from None
    missing = [name for name in fitted.columns if name not in values]
    if missing:
        raise UsageError(
            "--where",
            f"name {', '.join(missing)}, which this map needs",
            remedy=f"Add --where {missing[0]}=VALUE.",
        )
    return values


def _cutoff(fitted: CalibrationMap, probability: float, row: Mapping[str, Any]) -> Interval[float]:
    found = fitted.score_at(probability, {name: [value] for name, value in row.items()} or None)
    low, high = [float(np.ravel(end)[0]) for end in found]
    return Interval(low, high)


def _by_level(fitted: CalibrationMap, term: LevelTerm, probability: float) -> Cutoffs:
    found = {}
    for key in [*sorted(term.keys, key=lambda each: (-len(each), each)), ()]:
        row = {**term.example(0), **dict(zip(term.columns, key, strict=False))}
        try:
            found[key] = _cutoff(fitted, probability, row)
        except DataError as error:
            raise error.within(f"level {' > '.join(key) or '(any)'}") from None
    return found


def _words(scores: Interval[float]) -> str:
    low, high = scores
    return f"{low!r}" if low == high else f"{low!r} to {high!r}, where the map is flat"


def _settings(fitted: CalibrationMap, cutoffs: Cutoffs) -> dict[str, str]:
    """What to write into each engine; filters start at the lower end."""
    lows = {level: max(found.low, -1e30) for level, found in cutoffs.items()}
    settings = {}
    if len(lows) == 1:
        # Vespa drops what is equal to the limit.
        below = float(np.nextafter(lows[()], -np.inf))
        settings["Elasticsearch"] = f'"min_score": {lows[()]!r}'
        settings["Vespa"] = f"rank-score-drop-limit: {below!r}"
    return {**settings, "SQL": f"score >= {_sql(fitted, lows)}"}


def _sql(fitted: CalibrationMap, lows: Mapping[Key, float]) -> str:
    """The cutoff in standard SQL; NULL, so that no row passes, where a level is missing."""
    if len(lows) == 1:
        return repr(lows[()])
    names = [_quoted(name, '"') for name in fitted.columns]
    cases = []
    for level, low in lows.items():
        parts = zip(names, level, strict=False)
        conditions = [f"{name} = {_quoted(value, chr(39))}" for name, value in parts]
        conditions += [f"{name} IS NOT NULL" for name in names[len(level) :]]
        cases.append(f"WHEN {' AND '.join(conditions)} THEN {low!r}")
    return f"CASE {' '.join(cases)} END"


def _quoted(text: str, quote: str) -> str:
    return quote + text.replace(quote, 2 * quote) + quote
