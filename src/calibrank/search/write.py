"""Write a run with probabilities for scores: as TREC files have it, or in a layout with columns."""

from __future__ import annotations

import gzip
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from calibrank._internal.arguments import instance, shown
from calibrank._internal.validation import Floats, Indices, Mask, probability_column
from calibrank.errors import DataError
from calibrank.search._text_file import is_compressed
from calibrank.search.runs import TABLE_ENDINGS, Run, ending_of

COLUMNS = ("query", "document", "rank", "score")
"""The columns of layouts that have some. `score` is the probability: readers of runs expect one."""


class _Layout(NamedTuple):
    """What separates the columns of a text file, which ids must therefore not hold."""

    separators: re.Pattern[str]
    rule: str


_TREC = _Layout(re.compile(r"\s"), "be words without spaces in a TREC file")
_TSV = _Layout(re.compile(r"[\t\r\n]"), "be text without tabs and line ends in a .tsv file")


class _Row(NamedTuple):
    query: str
    document: str
    rank: int
    probability: float


def to_trec(run: Run, probabilities: Floats, kept: Mask | None = None) -> str:
    """A run with probabilities for scores, as TREC files have it: best first, only what is kept.

    Probabilities have all their digits, because evaluators sort by them.
    """
    lines = []
    for query, document, rank, probability in _rows(run, probabilities, kept):
        lines.append(f"{query} Q0 {document} {rank} {probability!r} calibrank\n")
    _require_ids(run, _TREC)
    return "".join(lines)


def encode_run(out: Path, run: Run, probabilities: Floats, kept: Mask | None = None) -> bytes:
    """The content of a file of this name: its ending declares the layout, as for reading."""
    require_layout(out, run)
    content = _LAYOUTS.get(ending_of(out), _as_trec)(run, probabilities, kept)
    # Without the time, the same run gives the same file.
    return gzip.compress(content, mtime=0) if is_compressed(out) else content


def require_layout(out: Path, run: Run) -> None:
    """Check that a file of this name can hold the ids of a run, before anything is computed."""
    ending = ending_of(out)
    if is_compressed(out) and ending in TABLE_ENDINGS:
        raise DataError(
            out, "not end in .gz: tables are not read compressed", remedy="Leave the .gz out."
        )
    if ending == ".tsv":
        _require_ids(run, _TSV)
    elif ending not in _LAYOUTS:
        _require_ids(run, _TREC)


def _require_ids(run: Run, layout: _Layout) -> None:
    for names in (run.queries, run.documents):
        for name in map(str, names.tolist()):
            if not name or layout.separators.search(name):
                raise DataError(
                    "ids",
                    layout.rule,
                    shown(name),
                    ("Write another layout: name the output .json, .jsonl, .csv or .parquet."),
                )


def _rows(run: Run, probabilities: Floats, kept: Mask | None) -> Iterator[_Row]:
    """What is kept, query by query in the order of the file, the best documents first."""
    instance("run", run, Run, "Read one with read_run(name).")
    probabilities = probability_column(probabilities, len(run))
    kept = np.ones(len(run), dtype=bool) if kept is None else _mask(kept, len(run))
    ranks = run.ranks
    for row in _order(run, ranks):
        if kept[row]:
            query, document = str(run.queries[row]), str(run.documents[row])
            yield _Row(query, document, int(ranks[row]), float(probabilities[row]))


def _order(run: Run, ranks: Indices) -> list[int]:
    _, first, query = np.unique(run.queries, return_index=True, return_inverse=True)
    order: list[int] = np.lexsort((ranks, first[query])).tolist()
    return order


def _mask(kept: Any, rows: int) -> Mask:
    array = np.asarray(kept)
    if array.dtype != np.bool_ or array.shape != (rows,):
        raise DataError(
            "kept",
            f"have one boolean per row ({rows})",
            f"{array.dtype} of shape {array.shape}",
            "E.g. probabilities >= 0.5.",
        )
    return array


def _as_trec(run: Run, probabilities: Floats, kept: Mask | None) -> bytes:
    return to_trec(run, probabilities, kept).encode()


def _as_json(run: Run, probabilities: Floats, kept: Mask | None) -> bytes:
    # A query whose answer is nothing has no documents.
    content: dict[str, dict[str, float]] = {}
    for query in run.queries[np.sort(np.unique(run.queries, return_index=True)[1])].tolist():
        content[str(query)] = {}
    for row in _rows(run, probabilities, kept):
        content[row.query][row.document] = row.probability
    return (json.dumps(content, ensure_ascii=False) + "\n").encode()


def _as_json_lines(run: Run, probabilities: Floats, kept: Mask | None) -> bytes:
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in _rows(run, probabilities, kept)]
    return "".join([json.dumps(row, ensure_ascii=False) + "\n" for row in rows]).encode()


def _as_tsv(run: Run, probabilities: Floats, kept: Mask | None) -> bytes:
    rows = [COLUMNS, *_rows(run, probabilities, kept)]
    return "".join(["\t".join(map(str, row)) + "\n" for row in rows]).encode()


def _table(run: Run, probabilities: Floats, kept: Mask | None) -> Any:
    import pyarrow as pa  # noqa: PLC0415  (slow to load)

    types = (pa.string(), pa.string(), pa.int64(), pa.float64())
    schema = pa.schema(list(zip(COLUMNS, types, strict=True)))
    columns = list(zip(*_rows(run, probabilities, kept), strict=True)) or [()] * len(COLUMNS)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _as_csv(run: Run, probabilities: Floats, kept: Mask | None) -> bytes:
    from pyarrow import csv  # noqa: PLC0415  (slow to load)

    buffer = io.BytesIO()
    csv.write_csv(_table(run, probabilities, kept), buffer)
    return buffer.getvalue()


def _as_parquet(run: Run, probabilities: Floats, kept: Mask | None) -> bytes:
    from pyarrow import parquet  # noqa: PLC0415  (slow to load)

    buffer = io.BytesIO()
    parquet.write_table(_table(run, probabilities, kept), buffer)
    return buffer.getvalue()


_LAYOUTS = {
    ".json": _as_json,
    ".jsonl": _as_json_lines,
    ".tsv": _as_tsv,
    ".csv": _as_csv,
    ".parquet": _as_parquet,
    ".pq": _as_parquet,
}
