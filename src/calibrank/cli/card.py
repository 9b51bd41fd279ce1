"""`calibrank card`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from calibrank._internal.arguments import regular_file
from calibrank._internal.atomic import write_atomic
from calibrank._internal.json import Fields, read_document
from calibrank.cli.console import UsageError, console, require_output, shown
from calibrank.cli.options import MAP_HELP
from calibrank.maps import load
from calibrank.maps.review import make_card

MetricsOption = Annotated[
    Path | None,
    typer.Option(help="Metrics to show: what `evaluate` or `rerank` printed with --json."),
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out", "-o", help="Output file, .md or .html; Markdown is printed if it is omitted."
    ),
]


def card(
    map_file: Annotated[Path, typer.Argument(metavar="MAP", help=MAP_HELP)],
    metrics: MetricsOption = None,
    out: OutOption = None,
) -> None:
    """Write a card of a map for its reviewers: data, base rate, method, metrics, limits, digests.

    Example: calibrank card map.json --metrics evaluation.json -o card.html
    """
    if out is not None and out.suffix not in {".md", ".html"}:
        raise UsageError(f"--out must end in .md or .html, got {str(out)!r}.")
    made = make_card(load(map_file), None if metrics is None else _read(metrics))
    if out is None:
        # Not through the console, which would wrap lines of tables.
        typer.echo(made.to_markdown(), nl=False)
        return
    inputs = [map_file] if metrics is None else [map_file, metrics]
    require_output(out, *inputs)
    write_atomic(out, made.to_html() if out.suffix == ".html" else made.to_markdown())
    console.print(f"[bold]Card:[/] {shown(out)}")


def _read(path: Path) -> dict[str, Any]:
    remedy = "Write it with calibrank evaluate --json > evaluation.json."
    regular_file(path, "the file of --metrics", remedy)
    return dict(Fields.parse(str(path), read_document(path, remedy), remedy).values)
