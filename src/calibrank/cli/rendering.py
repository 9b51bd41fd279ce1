"""Maps and reliability curves as text for the terminal."""

import numpy as np

from calibrank._internal.logit import expit, logit
from calibrank.anchoring.known_rate import shift_for
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


def bar(value: float, highest: float) -> str:
    """A horizontal bar; `highest` fills the width."""
    return "█" * round(value / highest * _BAR_WIDTH)


def print_base_rate(record: FitRecord) -> None:
    """Print what probabilities mean, where their level comes from, and its range if not known."""
    subject = "a pair is liked" if record.population is None else "a document is relevant"
    meaning = f"Probabilities that {subject}."
    if record.level_of is not None:
        meaning = f"Probabilities that {subject}, at the level of {record.level_of} (untested)."
    if not record.is_base_rate_known:
        meaning = f"[yellow]Probabilities that {subject}, at a level that is not known.[/]"
    source = f"Base-rate source: {record.base_rate_source}."
    explanation = console.shown(record.base_rate_description)
    console.show(f"[bold]{meaning}[/]\n{source} {explanation}")
    # At a known rate there is a band, but no range of rates to tell of.
    if record.sensitivity is not None and record.sensitivity.alternatives:
        described = [console.shown(record.sensitivity.description)]
        console.show("\n".join([*filter(None, described), sensitivity_lines(record.sensitivity)]))


def sensitivity_lines(sensitivity: Sensitivity) -> str:
    """The result under each alternative assumption."""
    lines = ["Mean probability under alternative assumptions about the log:"]
    lines.append(f"  [bold]{'assumption':20} {'all pairs':>10} {'top 10% of scores':>18}[/]")
    for alternative in sensitivity.alternatives:
        top_rate = alternative.top_rate
        top = "no finite fit" if top_rate is None else f"{top_rate:.2%}"
        lines.append(f"  {console.shown(alternative.name):20} {alternative.rate:10.2%} {top:>18}")
    lines.append(f"[dim]{_SENSITIVITY_LEGEND}[/]")
    return "\n".join(lines)


def print_probabilities(fitted: CalibrationMap) -> None:
    """Print the probabilities of a few quantiles of the scores, with their 95% intervals.

    Where the level is not known, these would mislead: the band of the log is printed instead.
    """
    curve = fitted.without_terms()
    sketch = fitted.record.score_quantiles or fitted.curve.span
    scores = np.quantile(np.array(sketch), list(_SHOWN_LEVELS.values()))
    probabilities = curve.predict(scores)
    interval, heading = curve.sampling_interval(scores), fitted.record.interval_name
    if not fitted.record.is_base_rate_known and fitted.record.sensitivity is not None:
        interval, heading = curve.band(scores), "range: the level is not known"
    rows = []
    columns = zip(_SHOWN_LEVELS, scores, probabilities, interval.low, interval.high, strict=True)
    for name, score, probability, low, high in columns:
        rows.append([name, f"{score:.4g}", f"{probability:.2%}", f"{low:.2%} to {high:.2%}"])
    headings = ("scores", "score", "probability", heading)
    console.print_table(headings, rows, box=None, pad_edge=False)


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


def print_terms(fitted: CalibrationMap) -> None:
    """Print what each term makes of the probability of an average row."""
    record = fitted.record
    rate = min(max(record.positive / record.total, 1e-6), 1 - 1e-6)
    if record.anchoring is not None and record.anchoring.rate is not None:
        rate = record.anchoring.rate
    lowest, highest = fitted.without_terms().log_odds(fitted.curve.span)
    middle = float(np.clip(logit(rate), lowest, highest))
    rows: list[list[str]] = []
    for term in fitted.terms:
        name = " > ".join(term.columns)
        found = _values(term, middle)
        for value, log_odds, count in found[:_MOST_PRINTED]:
            rows.append([name, value, f"{expit(log_odds):.1%}", count])
            name = ""
        if len(found) > _MOST_PRINTED:
            rows.append(["", f"and {len(found) - _MOST_PRINTED:,} more", "", ""])
        if isinstance(term, PositionTerm):
            text = f"a curve of its own for the first {term.n} positions, by {term.column}."
            console.state(f"[bold]Top of the list:[/] {console.shown(text)}")
    if rows:
        headings = ("column", "value", f"instead of {expit(middle):.1%}", "rows")
        console.print_table(headings, rows)


def _values(term: Term, middle: float) -> list[tuple[str, float, str]]:
    """Values of a term, and the log odds of a row there whose score is that of an average one."""
    found = []
    if isinstance(term, LevelTerm):
        log_odds = np.array(term.intercepts) + np.array(term.slopes) * middle
        # Each top level counts by its rows, so that together they have the rate.
        is_top = np.array([len(key) == 1 for key in term.keys])
        rows = np.array(term.rows) * is_top
        if rows.any():
            log_odds += shift_for(log_odds, rows / rows.sum(), float(expit(middle)))
        for key, value, count in zip(term.keys, log_odds.tolist(), term.rows, strict=True):
            found.append((" > ".join(key), value, f"{count:,}"))
        found.sort(key=lambda each: -abs(each[1] - middle))
    if isinstance(term, SmoothTerm):
        # An anchored function has the knots of the start and of the labels: a few are enough.
        places = np.unique(np.linspace(0, len(term.knots) - 1, _MOST_KNOTS).round().astype(int))
        knots = [(term.knots[place], term.values[place]) for place in places.tolist()]
        found = [(f"{knot:.4g}", middle + value, "") for knot, value in knots]
    return found
