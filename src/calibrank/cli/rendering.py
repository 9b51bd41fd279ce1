"""Maps and reliability curves as text for the terminal."""

import numpy as np

from calibrank import maps
from calibrank.cli.console import shown
from calibrank.maps import CalibrationMap, FitRecord, Sensitivity
from calibrank.metrics import ReliabilityCurve

_BAR_WIDTH = 40
_SENSITIVITY_LEGEND = (
    "power, clip: how exposure becomes a propensity; negatives: how many unobserved pairs count."
)


def bar(value: float, highest: float = 1.0, width: int = _BAR_WIDTH) -> str:
    """A horizontal bar; `highest` fills the width."""
    return "█" * round(value / highest * width)


def base_rate_lines(record: FitRecord) -> str:
    """Where a map's base rate comes from, and what follows from it; yellow if it is unknown."""
    explanation = shown(maps.describe_base_rate(record))
    if not maps.is_base_rate_known(record):
        explanation = f"[yellow]{explanation}[/]"
    return f"[bold]Base-rate source:[/] {record.base_rate_source}. {explanation}"


def sensitivity_lines(sensitivity: Sensitivity) -> str:
    """The range of base rates with its assumption, and the result under each alternative."""
    lines = []
    base_rates = maps.describe_range(sensitivity)
    if base_rates:
        lines.append(shown(base_rates))
    lines.append("Mean probability under alternative assumptions about the log:")
    lines.append(f"  [bold]{'assumption':20} {'all pairs':>10} {'top 10% of scores':>18}[/]")
    for alternative in sensitivity.alternatives:
        top_rate = alternative.top_rate
        top = "no finite fit" if top_rate is None else f"{top_rate:.2%}"
        lines.append(f"  {shown(alternative.name):20} {alternative.rate:10.2%} {top:>18}")
    lines.append(f"[dim]{_SENSITIVITY_LEGEND}[/]")
    return "\n".join(lines)


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
    """A map's probabilities over its score range, with their 95% intervals."""
    low, high = fitted.span
    scores = np.linspace(low, high, points)
    probabilities = fitted.predict(scores)
    interval = fitted.interval(scores)
    lines = ["[bold]   score  probability     95% interval[/]"]
    for score, probability, below, above in zip(scores, probabilities, *interval, strict=True):
        bounds = f"{below:.4f} to {above:.4f}"
        lines.append(
            f"{score:8.3g}  {probability:11.4f}  {bounds}  {bar(probability, width=width)}"
        )
    return "\n".join(lines)
