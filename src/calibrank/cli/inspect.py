"""`calibrank inspect`."""

from pathlib import Path
from typing import Any

from rich.table import Table as RichTable

from calibrank._internal.arguments import regular_file
from calibrank._internal.atomic import write_atomic
from calibrank._internal.json import Fields, read_document
from calibrank.cli import console
from calibrank.cli.cutoffs import show_cutoffs
from calibrank.cli.failures import UsageError
from calibrank.cli.rendering import base_rate_lines, map_curve, sensitivity_lines
from calibrank.cli.terms import print_terms
from calibrank.maps import CalibrationMap, describe_population, describe_selection, load
from calibrank.maps.review import make_card


def inspect(
    map_file: Path,
    score_at: float | None,
    where: list[str] | None,
    card: Path | None,
    metrics: Path | None,
    json: bool,
) -> None:
    """Describe a saved map, find the score of a probability, or write a card."""
    if card is None:
        console.require_unused("without --card", {"--metrics": metrics})
    elif card.suffix not in {".md", ".html"}:
        raise UsageError("--card", "end in .md or .html", f"{str(card)!r}")
    if score_at is None:
        console.require_unused("without --score-at", {"--where": where})
    fitted = load(map_file)
    if score_at is not None:
        console.require_unused("with --score-at", {"--card": card})
        show_cutoffs(fitted, score_at, where or [], as_json=json)
        return
    if card is not None:
        console.require_output(card, map_file, metrics)
        made = make_card(fitted, None if metrics is None else _read(metrics))
        write_atomic(card, made.to_html() if card.suffix == ".html" else made.to_markdown())
    if json:
        console.print_json(fitted.to_dict())
        return
    if card is not None:
        console.state(f"[bold]Card:[/] {console.shown(card)}")
        return
    console.state(base_rate_lines(fitted.record))
    if fitted.record.sensitivity is not None:
        console.show(sensitivity_lines(fitted.record.sensitivity))
    console.state(f"[bold]{console.shown(fitted.method)}[/] calibration map")
    console.show(_facts(fitted))
    console.show(map_curve(fitted))
    print_terms(fitted)


def _read(path: Path) -> dict[str, Any]:
    remedy = "Write it with calibrank evaluate --json > evaluation.json."
    regular_file(path, "the file of --metrics", remedy)
    return dict(Fields.parse(str(path), read_document(path, remedy), remedy).values)


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
