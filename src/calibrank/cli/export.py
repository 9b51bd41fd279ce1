"""`calibrank export`."""

import io
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from calibrank._atomic import write_atomic
from calibrank.cli.console import UsageError, console, require_output
from calibrank.export import to_json, to_onnx, to_sql, to_torch
from calibrank.maps import load


class To(StrEnum):
    """What a map can become."""

    sql = "sql"
    onnx = "onnx"
    torch = "torch"
    json = "json"


class DialectName(StrEnum):
    """The engines that SQL is written for."""

    spark = "spark"
    duckdb = "duckdb"
    postgresql = "postgresql"
    sqlite = "sqlite"
    bigquery = "bigquery"


class DtypeName(StrEnum):
    """What a graph computes in."""

    float32 = "float32"
    float64 = "float64"


def export(
    map_file: Annotated[Path, typer.Argument(metavar="MAP", help="A saved map.")],
    to: Annotated[To, typer.Option(help="What to write.")],
    dialect: Annotated[DialectName | None, typer.Option(help="The engine, for sql.")] = None,
    score: Annotated[str, typer.Option(help="The score column, for sql.")] = "score",
    dtype: Annotated[
        DtypeName, typer.Option(help="What onnx and torch compute in.")
    ] = DtypeName.float32,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File; sql and json are printed without.")
    ] = None,
) -> None:
    """Turn a map into one SQL expression, an ONNX model, a torch program (.pt2), or JSON with test vectors.

    Example: calibrank export map.json --to sql --dialect duckdb --score prediction
    """
    if to is To.sql and dialect is None:
        raise UsageError(
            f"--to sql must have a dialect, got none. Name one of: {', '.join(DialectName)}"
        )
    if to in (To.onnx, To.torch) and out is None:
        raise UsageError(f"--to {to} must have a file to write, got none. Name one with -o.")
    fitted = load(map_file)
    content: str | bytes
    if dialect is not None and to is To.sql:
        content = to_sql(fitted, dialect.value, score) + "\n"
    elif to is To.json:
        content = to_json(fitted)
    else:
        content = (
            to_onnx(fitted, dtype).SerializeToString()
            if to is To.onnx
            else _program(to_torch(fitted, dtype), dtype)
        )
    if out is None:
        print(content, end="")  # noqa: T201  (for machines, not for rich)
        return
    require_output(out, map_file)
    write_atomic(out, content)
    console.print(f"[bold]Wrote[/] {out}", highlight=False)


def _program(module: Any, dtype: str) -> bytes:
    """The module as `torch.export.load` reads it, for any number of scores."""
    import torch  # noqa: PLC0415  (slow to load; `to_torch` has found it)

    example = torch.zeros(2, dtype=getattr(torch, dtype))
    program = torch.export.export(
        module, (example,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},)
    )
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    return buffer.getvalue()
