"""Maps and reliability curves as text for the terminal."""

from collections.abc import Iterator

import numpy as np
from rich.table import Table as RichTable

from calibrank import maps
from calibrank._internal.logit import expit, logit
from calibrank.cli import console
from calibrank.maps import (
    CalibrationMap,
    FitRecord,
    LevelTerm,
    PositionTerm,
    Sensitivity,
    SmoothTerm,
    Term,
)
from calibrank.metrics import ReliabilityCurve

_BAR_WIDTH = 40
# Values of a term that are printed; --json and the saved map have all.
_MOST_PRINTED = 12
_MOST_KNOTS = 8
_SENSITIVITY_LEGEND = (
    "power, clip: how exposure becomes a propensity; negatives: how many unobserved pairs count."
)
# Quantiles of the scores whose probabilities are printed.
_SHOWN_LEVELS = {"lowest": 0.0, "10%": 0.1, "median": 0.5, "90%": 0.9, "99%": 0.99, "highest": 1.0}


def bar(value: float, highest: float = 1.0, width: int = _BAR_WIDTH) -> str:
    """A horizontal bar; `highest` fills the width."""
    return "█" * round(value / highest * width)


def base_rate_lines(record: FitRecord) -> str:
    """What probabilities mean, where their level comes from, and what follows from it."""
    subject = "a pair is liked" if record.population is None else "a document is relevant"
    meaning = f"Probabilities that {subject}."
    if not maps.is_base_rate_known(record):
        meaning = f"[yellow]Probabilities that {subject}, at a level that is not known.[/]"
    explanation = console.shown(maps.describe_base_rate(record))
    return f"[bold]{meaning}[/] Base-rate source: {record.base_rate_source}. {explanation}"


def print_base_rate(record: FitRecord) -> None:
    """Print what probabilities mean, and the range of base rates where it is not known."""
    console.state(base_rate_lines(record))
    if record.sensitivity is not None:
        console.show(sensitivity_lines(record.sensitivity))


def sensitivity_lines(sensitivity: Sensitivity) -> str:
    """The range of base rates with its assumption, and the result under each alternative."""
    lines = []
    base_rates = maps.describe_range(sensitivity)
    if base_rates:
        lines.append(console.shown(base_rates))
    lines.append("Mean probability under alternative assumptions about the log:")
    lines.append(f"  [bold]{'assumption':20} {'all pairs':>10} {'top 10% of scores':>18}[/]")
    for alternative in sensitivity.alternatives:
        top_rate = alternative.top_rate
        top = "no finite fit" if top_rate is None else f"{top_rate:.2%}"
        lines.append(f"  {console.shown(alternative.name):20} {alternative.rate:10.2%} {top:>18}")
    lines.append(f"[dim]{_SENSITIVITY_LEGEND}[/]")
    return "\n".join(lines)


def probability_table(fitted: CalibrationMap) -> RichTable:
    """The probabilities of a few quantiles of the scores, with their 95% intervals."""
    curve = fitted.without_terms()
    sketch = fitted.record.score_quantiles or fitted.span
    scores = np.quantile(np.array(sketch), list(_SHOWN_LEVELS.values()))
    probabilities = curve.predict(scores)
    interval = curve.sampling_interval(scores)
    table = RichTable("scores", "score", "probability", "95% interval", box=None, pad_edge=False)
    rows = zip(_SHOWN_LEVELS, scores, probabilities, interval.low, interval.high, strict=True)
    for name, score, probability, low, high in rows:
        table.add_row(name, f"{score:.4g}", f"{probability:.2%}", f"{low:.2%} to {high:.2%}")
    return table


def reliability_diagram(curve: ReliabilityCurve, width: int = _BAR_WIDTH) -> str:
    """A reliability diagram as text: a bar for the observed rate, a mark at the predicted one."""
    lines = [f"[bold]predicted  observed  {'':{width + 1}}  rows[/]"]
    mass = curve.total.sum()
    for predicted, observed, total in zip(*curve, strict=True):
        # Weighted rates may lie outside [0, 1]; the bar cannot.
        filled = round(min(max(observed, 0), 1) * width)
        cells = ["█" if cell < filled else "·" for cell in range(width + 1)]
        cells[round(predicted * width)] = "[bold yellow]┃[/]"
        cells_text = "".join(cells)
        lines.append(f"{predicted:9.4f}  {observed:8.4f}  {cells_text}  {total / mass:6.2%}")
    legend = "█ observed rate, ┃ predicted probability: calibrated if they coincide."
    lines.append(f"[dim]{legend}[/]")
    return "\n".join(lines)


def map_curve(fitted: CalibrationMap, points: int = 15, width: int = 35) -> str:
    """The probabilities of a map's curve over its score range, with their 95% intervals."""
    low, high = fitted.span
    scores = np.linspace(low, high, points)
    curve = fitted.without_terms()
    probabilities = curve.predict(scores)
    interval = curve.sampling_interval(scores)
    lines = ["[bold]   score  probability     95% interval[/]"]
    for score, probability, below, above in zip(scores, probabilities, *interval, strict=True):
        bounds = f"{below:.4f} to {above:.4f}"
        lines.append(
            f"{score:8.3g}  {probability:11.4f}  {bounds}  {bar(probability, width=width)}"
        )
    return "\n".join(lines)


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
