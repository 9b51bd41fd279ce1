"""`calibrank export`."""

import io
import json
from typing import Any

from calibrank._internal.atomic import write_atomic
from calibrank.cli import console, options
from calibrank.cli.failures import UsageError
from calibrank.cli.parse import Given
from calibrank.export import to_json, to_lucene, to_onnx, to_painless, to_sql, to_torch, to_vespa
from calibrank.maps import CalibrationMap, load

# What can be converted with an option.
_USED_BY = {"dialect": ("sql",), "score": ("sql", "vespa", "painless"), "dtype": ("onnx", "torch")}


def export(given: Given) -> None:
    """Convert a map to SQL, ONNX, a torch program, a search engine's script or JSON."""
    if given.to == "sql" and given.dialect is None:
        names = ", ".join(options.DIALECTS)
        raise UsageError("--to sql", "have a dialect", "none", f"Name one of: {names}")
    if given.to in _USED_BY["dtype"] and given.out is None:
        raise UsageError(f"--to {given.to}", "have a file to write", "none", "Name one with -o.")
    unused = [option for option, targets in _USED_BY.items() if given.to not in targets]
    given.refuse(f"with --to {given.to}", *unused)
    content = _content(load(given.map_file), given)
    if given.out is None:
        print(content, end="")  # noqa: T201  (rich would wrap long lines)
        return
    console.require_output(given.out, given.map_file)
    write_atomic(given.out, content)
    console.say_saved(given.out, "Wrote")


def _content(fitted: CalibrationMap, given: Given) -> Any:
    """Exporters take arguments of their own, so they are called one by one."""
    to, dtype = given.to, given.dtype or "float32"
    if to == "sql":
        return to_sql(fitted, given.dialect, given.score or "score") + "\n"
    if to == "vespa":
        return to_vespa(fitted, given.score or "firstPhase") + "\n"
    if to == "painless":
        return to_painless(fitted, given.score or "_score") + "\n"
    if to == "lucene":
        return json.dumps(to_lucene(fitted)._asdict()) + "\n"
    if to == "onnx":
        return to_onnx(fitted, dtype).SerializeToString()
    return to_json(fitted) if to == "json" else _torch_program(fitted, dtype)


def _torch_program(fitted: CalibrationMap, dtype: str) -> bytes:
    """The module in the format of `torch.export.load`, for any number of scores."""
    module = to_torch(fitted, dtype)
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
