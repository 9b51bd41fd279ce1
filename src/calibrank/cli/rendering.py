"""Maps and reliability curves as text for the terminal."""

import numpy as np
from rich.table import Table as RichTable

from calibrank import maps
from calibrank.cli import console
from calibrank.maps import CalibrationMap, FitRecord, Sensitivity
from calibrank.metrics import ReliabilityCurve

_BAR_WIDTH = 40
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
