"""`calibrank inspect`, `export`, `apply` and `score`: what is saved, and what is made with it."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from calibrank._internal.atomic import write_atomic
from calibrank._internal.segment_keys import Key
from calibrank.cli import console, options
from calibrank.cli.failures import UsageError
from calibrank.cli.parse import Given
from calibrank.cli.rendering import print_base_rate, print_probabilities, print_terms
from calibrank.errors import DataError
from calibrank.export import to_json, to_onnx, to_painless, to_sql, to_torch, to_vespa
from calibrank.maps import CalibrationMap, Interval, LevelTerm, load
from calibrank.maps.score_shift import ScoreComparison
from calibrank.scorers import SavedModel
from calibrank.tabular.read import Table
from calibrank.tabular.rules import Rules
from calibrank.tabular.write import Probabilities, Scores, add_column

Cutoffs = Mapping[Key, Interval[float]]
"""By level, the deepest first; the last is that of any other level, or of all rows."""

# What the score is called where --score does not say it; the others have no name for it.
_SCORES = {"sql": "score", "vespa": "firstPhase", "painless": "_score"}
_BINARY = ("onnx", "torch")


def inspect(given: Given) -> None:
    """Describe a saved map, or find the score of a probability."""
    fitted = load(given.map)
    if given.score_at is not None:
        _show_cutoffs(fitted, given.score_at)
        return
    console.answer(fitted.to_dict())
    print_base_rate(fitted.record)
    console.state(f"[bold]{console.shown(fitted.method)}[/] calibration map")
    rows = [[name, fact] for name, fact in _facts(fitted).items() if fact]
    console.print_table(("", ""), rows, box=None, show_header=False, pad_edge=False)
    print_probabilities(fitted)
    print_terms(fitted)


def _facts(fitted: CalibrationMap) -> dict[str, object]:
    """What the record says, by name; empty where it says nothing."""
    record = fitted.record
    anchored = record.anchoring is not None
    rate = f"{record.positive / record.total:.2%}{' before anchoring' * anchored}"
    limit = "active: the curve is held from falling, so that the order of scores is kept"
    parameters = {}
    for name, value in fitted.parameters.items():
        error = fitted.standard_errors[name]
        parameters[f"parameter {name}"] = f"{value:.6g} (standard error {error:.2g})"
    return {
        "fitted on": f"{record.rows:,} rows, {record.evidence} evidence",
        "population": record.population and record.population.description,
        "scores of": record.model_name,
        "date": record.date,
        "positive mass": f"{record.positive:,.6g} of {record.total:,.6g} ({rate})",
        "method": record.selection and record.selection.description,
        "scores": "every distinct score kept" if record.exact else "pooled into fine bins",
        "function": fitted.description,
        **parameters,
        "mean loss": "" if record.loss is None else f"{record.loss:.6f}",
        "constraint": limit * bool(record.at_bound),
    }


def _show_cutoffs(fitted: CalibrationMap, probability: float) -> None:
    """Print raw scores at which a map, or each of its levels, reaches a probability.

    With settings of engines that filter by score.
    """
    cutoffs = _cutoffs(fitted, probability)
    settings = _settings(fitted, cutoffs)
    found = []
    rows = []
    for level, (low, high) in cutoffs.items():
        named = dict(zip(fitted.columns, level, strict=False))
        found.append({"level": named, "score": low, "up_to": high})
        text = f"{low!r}" if low == high else f"{low!r} to {high!r}, where the map is flat"
        rows.append([" > ".join(level) or "(any)", text])
    console.answer({"probability": probability, "cutoffs": found, "settings": settings})
    headings = (" > ".join(fitted.columns) or "rows", f"score at {probability:g}")
    console.print_table(headings, rows)
    for engine, text in settings.items():
        console.state(f"[bold]{engine}:[/] {console.shown(text)}")


def _cutoffs(fitted: CalibrationMap, probability: float) -> Cutoffs:
    """The raw scores of a map without terms or with one level."""
    if not fitted.terms:
        low, high = fitted.score_at(probability)
        return {(): Interval(float(low), float(high))}
    term = fitted.terms[0]
    if len(fitted.terms) > 1 or not isinstance(term, LevelTerm):
        raise UsageError(
            "--score-at",
            "be asked of a map without terms or with one level",
            f"one with {', '.join(fitted.columns)}",
            "In Python, use map.score_at(probability, columns).",
        )
    found = {}
    for key in [*sorted(term.keys, key=lambda each: (-len(each), each)), ()]:
        row = {**term.example(0), **dict(zip(term.columns, key, strict=False))}
        try:
            ends = fitted.score_at(probability, {name: [value] for name, value in row.items()})
        except DataError as error:
            raise error.within(f"level {' > '.join(key) or '(any)'}") from None
        found[key] = Interval(float(ends.low[0]), float(ends.high[0]))
    return found


def _settings(fitted: CalibrationMap, cutoffs: Cutoffs) -> dict[str, str]:
    """What to write into each engine; filters start at the lower end.

    In SQL it is NULL, so that no row passes, where a level is missing.
    """
    lows = {level: max(found.low, -1e30) for level, found in cutoffs.items()}
    if len(lows) == 1:
        # Vespa drops what is equal to the limit.
        below = float(np.nextafter(lows[()], -np.inf))
        return {
            "Elasticsearch": f'"min_score": {lows[()]!r}',
            "Vespa": f"rank-score-drop-limit: {below!r}",
            "SQL": f"score >= {lows[()]!r}",
        }
    names = [_quoted(name, '"') for name in fitted.columns]
    cases = []
    for level, low in lows.items():
        parts = zip(names, level, strict=False)
        conditions = [f"{name} = {_quoted(value, chr(39))}" for name, value in parts]
        conditions += [f"{name} IS NOT NULL" for name in names[len(level) :]]
        cases.append(f"WHEN {' AND '.join(conditions)} THEN {low!r}")
    return {"SQL": f"score >= CASE {' '.join(cases)} END"}


def _quoted(text: str, quote: str) -> str:
    return quote + text.replace(quote, 2 * quote) + quote


def export(given: Given) -> None:
    """Convert a map to SQL, ONNX, a torch program, a search engine's script or JSON."""
    target = f"--to {given.to}"
    if given.to == "sql" and given.dialect is None:
        names = ", ".join(options.DIALECTS)
        raise UsageError(target, "have a dialect", "none", f"Name one of: {names}")
    if given.to in _BINARY and given.out is None:
        raise UsageError(target, "have a file to write", "none", "Name one with -o.")
    if given.to != "sql":
        given.refuse(f"with {target}", "dialect")
    if given.to not in _SCORES:
        given.refuse(f"with {target}", "score")
    content = _content(load(given.map), given)
    if given.out is None:
        print(content, end="")  # noqa: T201  (rich would wrap long lines)
        return
    console.require_output(given.out, given.map)
    write_atomic(given.out, content)
    console.say_saved(given.out, "Wrote")


def _content(fitted: CalibrationMap, given: Given) -> Any:
    """Exporters take arguments of their own, so they are called one by one."""
    score = given.score or _SCORES.get(given.to, "")
    if given.to == "sql":
        return to_sql(fitted, given.dialect, score) + "\n"
    if given.to == "vespa":
        return to_vespa(fitted, score) + "\n"
    if given.to == "painless":
        return to_painless(fitted, score) + "\n"
    if given.to == "onnx":
        return to_onnx(fitted).SerializeToString()
    return to_json(fitted) if given.to == "json" else _torch_program(fitted)


def _torch_program(fitted: CalibrationMap) -> bytes:
    """The module in the format of `torch.export.load`, for any number of scores."""
    module = to_torch(fitted)
    import torch  # noqa: PLC0415  (slow to load; `to_torch` has checked that it is installed)

    # A level is a number of `map.level_index`.
    roles = ["score", *[term.role for term in fitted.terms]]
    types = [torch.int64 if role == "level" else torch.float32 for role in roles]
    # Two rows: torch treats a dimension of size 1 as constant. One tensor each: it takes two
    # inputs that are the same object for one.
    inputs = [torch.zeros(2, dtype=kind) for kind in types]
    shapes = tuple({0: torch.export.Dim.DYNAMIC} for _ in inputs)
    program = torch.export.export(module, tuple(inputs), dynamic_shapes=shapes)
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    return buffer.getvalue()


def apply(given: Given) -> None:
    """Add a column of probabilities to a table, file by file."""
    fitted = load(given.map)
    table = Table.find(given.table)
    rules = console.rules_for(given)
    comparison = ScoreComparison(fitted.record)
    score = table.resolve("score", given.score)
    _write(Probabilities(fitted, score, rules, comparison), table, rules, given, given.map)
    comparison.warn()


def score(given: Given) -> None:
    """Add a column of a trained model's scores to a table of users and items."""
    trained = SavedModel.load(given.model)
    table = Table.find(given.table)
    rules = console.rules_for(given)
    users = table.resolve("user", given.user)
    _write(Scores(trained, users, table.resolve("item", given.item), rules), table, rules, given)


def _write(
    filler: Probabilities | Scores, table: Table, rules: Rules, given: Given, *inputs: Path
) -> None:
    """Write the table with the new column, one batch at a time, and print what was written."""
    console.require_output(given.out, *inputs, *table.files, is_folder=None)
    with console.reading(table, "Writing", rules) as progress:
        rows, up_to_date = add_column(filler, table, given.out, given.to, progress)
    files = len(table.files)
    about = {"out": str(given.out), "rows": rows, "files": files}
    console.answer({**about, "already_done": up_to_date, "skipped": rules.skipped})
    if up_to_date == files:
        console.say_saved(given.out, "Already up to date:")
        return
    kept = f"; {up_to_date} of {files} files were already up to date" if up_to_date else ""
    name = console.shown(given.to)
    text = f"{console.shown(given.out)}: {rows:,} rows with the new column '{name}'{kept}"
    console.show(f"[bold]Wrote[/] {text}")
