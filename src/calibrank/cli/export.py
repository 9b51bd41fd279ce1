"""`calibrank export`."""

import io
import json
from pathlib import Path
from typing import Any

from calibrank._internal.atomic import write_atomic
from calibrank.cli import console, options
from calibrank.cli.failures import UsageError
from calibrank.export import to_json, to_lucene, to_onnx, to_painless, to_sql, to_torch, to_vespa
from calibrank.maps import CalibrationMap, load


def export(
    map_file: Path,
    to: str,
    dialect: str | None,
    score: str | None,
    dtype: str | None,
    out: Path | None,
) -> None:
    """Convert a map to SQL, ONNX, a torch program, a search engine's script or JSON."""
    if to == "sql" and dialect is None:
        names = ", ".join(options.DIALECTS)
        raise UsageError("--to sql", "have a dialect", "none", f"Name one of: {names}")
    if to in {"onnx", "torch"} and out is None:
        raise UsageError(f"--to {to}", "have a file to write", "none", "Name one with -o.")
    if to != "sql":
        console.require_unused(f"with --to {to}", {"--dialect": dialect})
    if to not in {"sql", "vespa", "painless"}:
        console.require_unused(f"with --to {to}", {"--score": score})
    if to not in {"onnx", "torch"}:
        console.require_unused(f"with --to {to}", {"--dtype": dtype})
    fitted = load(map_file)
    content = _content(fitted, to, str(dialect), score, dtype or "float32")
    if out is None:
        print(content, end="")  # noqa: T201  (rich would wrap long lines)
        return
    console.require_output(out, map_file)
    write_atomic(out, content)
    console.show(f"[bold]Wrote[/] {console.shown(out)}")


def _content(fitted: CalibrationMap, to: str, dialect: str, score: str | None, dtype: str) -> Any:
    """Exporters take arguments of their own, so they are called one by one."""
    if to == "sql":
        return to_sql(fitted, dialect, score or "score") + "\n"
    if to == "vespa":
        return to_vespa(fitted, score or "firstPhase") + "\n"
    if to == "painless":
        return to_painless(fitted, score or "_score") + "\n"
    if to == "lucene":
        return json.dumps(to_lucene(fitted)._asdict()) + "\n"
    return to_json(fitted) if to == "json" else _graph(fitted, to, dtype)


def _graph(fitted: CalibrationMap, to: str, dtype: str) -> Any:
    if to == "onnx":
        return to_onnx(fitted, dtype).SerializeToString()
    return _torch_program(fitted, to_torch(fitted, dtype), dtype)


def _torch_program(fitted: CalibrationMap, module: Any, dtype: str) -> bytes:
    """The module in the format of `torch.export.load`, for any number of scores."""
    import torch  # noqa: PLC0415  (slow to load; `to_torch` has checked that it is installed)

    score_type = getattr(torch, dtype)
    # A level is a number of `map.level_index`.
    roles = [term.role for term in fitted.terms]
    types = [score_type, *[torch.int64 if role == "level" else score_type for role in roles]]
    # Two rows: torch treats a dimension of size 1 as constant. One tensor each: it takes two
    # inputs that are the same object for one.
    inputs = [torch.zeros(2, dtype=kind) for kind in types]
    shapes = tuple({0: torch.export.Dim.DYNAMIC} for _ in inputs)
    program = torch.export.export(module, tuple(inputs), dynamic_shapes=shapes)
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    return buffer.getvalue()
