"""Read and write runs and judgements of search systems: TREC files, BEIR's layouts, and tables.

The ending of a file's name declares its layout: `.json` is `{query: {document: value}}` (BEIR and
ranx), `.parquet`, `.csv` and `.tsv` are tables with named columns, and everything else is TREC's,
with columns separated by blanks. Text files may be compressed (`.gz`).
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from calibrank._internal.arguments import instance, listed, shown, whole
from calibrank._internal.json import parse_json
from calibrank._internal.validation import (
    LARGEST_SCORE,
    Floats,
    Ids,
    Indices,
    Mask,
    column,
    ids,
    probability_column,
    require_scores,
)
from calibrank.adapters.lists import ranks_of
from calibrank.errors import DataError
from calibrank.search._text_file import is_compressed, text_of
from calibrank.tabular.read import Table

NAMES = {
    "query": ("query", "query_id", "query-id", "qid", "topic"),
    "document": ("document", "doc", "doc_id", "docid", "docno", "corpus_id", "corpus-id"),
    "score": ("score", "scores", "similarity", "prediction"),
    "grade": ("grade", "relevance", "rel", "label", "judgement", "judgment", "score"),
    "propensity": ("propensity",),
}
"""The usual names of columns by role; the first that a table has is used."""

MOST_DOCUMENTS = 10**9
"""Documents per query: no run has more."""

_RUN_FIELDS = 6
_QRELS_FIELDS = 4
_SHAPES = {_RUN_FIELDS: "query Q0 document rank score tag", _QRELS_FIELDS: "query 0 document grade"}
_PARQUET = (".parquet", ".pq")
_DELIMITERS = {".csv": ",", ".tsv": "\t"}

Grades = dict[tuple[str, str], float]


class _Cell(NamedTuple):
    """A value of a pair, and where it stands."""

    where: str
    query: Any
    document: Any
    value: Any


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """What a system returned: documents with scores, by query."""

    queries: Ids
    documents: Ids
    scores: Floats

    def __post_init__(self) -> None:
        check_rows(self)

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def pairs(self) -> list[tuple[Any, Any]]:
        """The query and document of each row."""
        return list(zip(self.queries.tolist(), self.documents.tolist(), strict=True))

    @property
    def ranks(self) -> Indices:
        """The rank of each document in its query, from 1, by score; ties in the order of the file.

        Ranks that a file states are not used: they are not always those of its scores.
        """
        # np.lexsort is stable, so equal scores keep the order of the file.
        order = np.lexsort((-self.scores, self.queries))
        ranks = np.empty(len(self), dtype=np.intp)
        ranks[order] = ranks_of(self.queries[order])
        return ranks

    def take(self, rows: Indices | Mask) -> Run:
        """Some of the rows, by mask or number."""
        return Run(self.queries[rows], self.documents[rows], self.scores[rows])

    def first(self, depth: int) -> Run:
        """The first `depth` documents of each query."""
        return self.take(self.ranks <= whole("depth", depth, 1, MOST_DOCUMENTS))


def check_rows(rows: Any) -> None:
    """Check the scores and ids of a run, or of its judged documents, and keep them as arrays."""
    scores = column("scores", rows.scores)
    require_scores(scores)
    object.__setattr__(rows, "scores", scores)
    for name in ("queries", "documents"):
        object.__setattr__(rows, name, ids(name, getattr(rows, name), len(scores)))


def read_run(name: str) -> Run:
    """Read the run of one system, from one file or from several (a quoted glob).

    A pair of query and document may occur once only.
    """
    scores: Grades = {}
    for pair, score in _values(name, "a run", "score", _RUN_FIELDS):
        if pair in scores:
            raise DataError(
                name,
                "hold each pair of query and document once",
                f"{pair[1]!r} twice for query {pair[0]!r}",
                "Keep the line with the highest score; runs of different systems are fitted one "
                "by one.",
            )
        scores[pair] = score
    queries = np.array([query for query, _ in scores])
    documents = np.array([document for _, document in scores])
    return Run(queries, documents, np.array(list(scores.values())))


def read_qrels(name: str, grade: str | None = None) -> Grades:
    """Read judgements: the grade of each judged pair of query and document.

    `grade` names the column of a table. A pair that was judged twice must have one grade.
    """
    grades: Grades = {}
    for pair, value in _values(name, "judgements", "grade", _QRELS_FIELDS, grade):
        earlier = grades.setdefault(pair, value)
        if earlier != value:
            raise DataError(
                name,
                "grade each pair once",
                f"{earlier:g} and {value:g} for query {pair[0]!r} and document {pair[1]!r}",
                "Combine the judges' grades first.",
            )
    return grades


def read_propensities(name: str) -> Grades | None:
    """The column `propensity` of a table of judgements, such as a plan; None if it has none."""
    if not has_named_columns(name):
        return None
    if not all("propensity" in _header(file) for file in Table.find(name).files):
        return None
    return dict(_values(name, "judgements", "propensity", _QRELS_FIELDS))


def has_named_columns(name: str) -> bool:
    """Whether a file's layout has column names, by its ending."""
    return ending_of(Path(name)) in (*_PARQUET, *_DELIMITERS)


def ending_of(file: Path) -> str:
    """The ending that declares the layout, without that of the compression."""
    return (file.with_suffix("") if is_compressed(file) else file).suffix.lower()


def _values(
    name: str, what: str, role: str, fields: int, given: str | None = None
) -> Iterator[tuple[tuple[str, str], float]]:
    """Each pair of query and document, and its value."""
    count = 0
    for file in Table.find(name, f"{what} (TREC, .json, .tsv, .csv or .parquet file)").files:
        for where, query, document, value in _cells(file, role, fields, given):
            if query in (None, "") or document in (None, ""):
                rule = "have a query and a document"
                raise DataError(f"{file}, {where}", rule, "none", "Leave such rows out.")
            count += 1
            if value not in (None, "") or role == "score":  # a row without a grade was not judged
                yield (str(query), str(document)), _number(f"{file}, {where}: the {role}", value)
    if not count:
        remedy = "Check how the file was written."
        raise DataError(name, f"hold at least one {role}", "none: it is empty", remedy)


def _cells(file: Path, role: str, fields: int, given: str | None) -> Iterator[_Cell]:
    ending = ending_of(file)
    if ending == ".json":
        return _from_json(file, role)
    if ending in _PARQUET:
        return _from_parquet(file, role, given)
    return _from_text(file, role, given) if ending in _DELIMITERS else _from_trec(file, fields)


def _from_trec(file: Path, fields: int) -> Iterator[_Cell]:
    """Yield `query Q0 document rank score tag`, or `query 0 document grade`."""
    for number, line in enumerate(text_of(file).split("\n"), start=1):
        parts = line.split()
        if not parts:
            continue
        if len(parts) != fields:
            rule = f"have {fields} columns ({_SHAPES[fields]})"
            raise DataError(f"{file}, line {number}", rule, len(parts), _remedy_for(parts))
        value = parts[4] if fields == _RUN_FIELDS else parts[3]
        yield _Cell(f"line {number}", parts[0], parts[2], value)


def _remedy_for(parts: list[str]) -> str:
    """What to do with a line that has as many columns as another layout."""
    if len(parts) == _RUN_FIELDS:
        return "This looks like a run: exchange it and the judgements."
    if len(parts) == _QRELS_FIELDS and parts[-1].lstrip("-").isdigit():
        return "These look like judgements: give them as such, and the run in their place."
    return "Other layouts have other endings: .json, .tsv, .csv, .parquet."


def _text_rows(file: Path) -> Iterator[list[str]]:
    """The rows of a .csv or .tsv file, with the header; ids stay as they are written."""
    text = io.StringIO(text_of(file), newline="")
    if ending_of(file) == ".csv":
        return csv.reader(text)
    # BEIR's files have quotes that are part of ids.
    return csv.reader(text, delimiter="\t", quoting=csv.QUOTE_NONE)


def _header(file: Path) -> Sequence[str]:
    """The columns of a table."""
    if ending_of(file) in _PARQUET:
        return Table.find(str(file)).columns()
    return next(_text_rows(file), [])


def _from_text(file: Path, role: str, given: str | None) -> Iterator[_Cell]:
    rows = _text_rows(file)
    header = next(rows, [])
    places = [header.index(name) for name in _chosen(file, header, role, given)]
    for number, row in enumerate(rows, start=2):
        if row and len(row) != len(header):
            rule = f"have {len(header)} columns as the header has"
            remedy = "Quote cells with a separator inside."
            raise DataError(f"{file}, line {number}", rule, len(row), remedy)
        if row:
            yield _Cell(f"line {number}", *[row[place] for place in places])


def _from_parquet(file: Path, role: str, given: str | None) -> Iterator[_Cell]:
    names = _chosen(file, _header(file), role, given)
    number = 0
    for batch in Table.find(str(file)).batches(names):
        for row in zip(*[batch.rows.column(name).to_pylist() for name in names], strict=True):
            number += 1
            yield _Cell(f"row {number}", *row)


def _from_json(file: Path, role: str) -> Iterator[_Cell]:
    layout = f"{{query: {{document: {role}}}}}"
    remedy = f"Save it as {layout}."
    text = text_of(file)
    content = parse_json(str(file), text, remedy, float) if text.strip() else {}
    if not isinstance(content, dict) or not all(isinstance(v, dict) for v in content.values()):
        raise DataError(file, f"be {layout}", "JSON of another layout", remedy)
    for query, documents in content.items():
        for document, value in documents.items():
            where = f"query {shown(query)}, document {shown(document)}"
            if isinstance(value, str | bool | None):  # of which `float` would accept some
                raise _not_a_number(f"{file}, {where}: the {role}", value)
            yield _Cell(where, query, document, value)


def _chosen(file: Path, header: Sequence[str], role: str, given: str | None) -> list[str]:
    """The columns of query, document and value, by their usual names."""
    chosen = []
    for each in ("query", "document", role) if header else ():
        wanted = (given,) if given is not None and each == role else NAMES[each]
        found = [name for name in wanted if name in header]
        if not found:
            rule = f"have a {each} column ({', '.join(wanted)})"
            raise DataError(file, rule, listed(header), "Rename it.")
        chosen.append(found[0])
    return chosen


def _number(subject: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if not abs(number) <= LARGEST_SCORE:
        raise _not_a_number(subject, value)
    return number


def _not_a_number(subject: str, value: object) -> DataError:
    remedy = "Correct it, or leave it out."
    return DataError(subject, "be a finite number within +-1e30", shown(value), remedy)


COLUMNS = ("query", "document", "rank", "score")
"""The columns of tables that are written. `score` is the probability: readers expect one."""

# What separates the columns of a text file, which ids must therefore not hold.
_TREC = (re.compile(r"\s"), "be words without spaces in a TREC file")
_TSV = (re.compile(r"[\t\r\n]"), "be text without tabs and line ends in a .tsv file")


def encode_run(out: Path, run: Run, probabilities: Floats, kept: Mask | None = None) -> bytes:
    """A run with probabilities for scores, the best first and only what is kept, as a file has it.

    The ending of its name declares the layout, as for reading. Probabilities have all their
    digits, because evaluators sort by them.
    """
    rows = _ranked(run, probabilities, kept)
    require_layout(out, run)
    ending = ending_of(out)
    if ending == ".json":
        content = _as_json(run, rows)
    elif ending in _PARQUET:
        content = _as_parquet(rows)
    elif ending in _DELIMITERS:
        text = io.StringIO()
        writer = csv.writer(text, delimiter=_DELIMITERS[ending], lineterminator="\n")
        writer.writerows([COLUMNS, *rows])
        content = text.getvalue().encode()
    else:
        lines = [f"{q} Q0 {document} {rank} {p!r} calibrank\n" for q, document, rank, p in rows]
        content = "".join(lines).encode()
    # Without the time, the same run gives the same file.
    return gzip.compress(content, mtime=0) if is_compressed(out) else content


def require_layout(out: Path, run: Run) -> None:
    """Check that a file of this name can hold the ids of a run, before anything is computed."""
    ending = ending_of(out)
    if is_compressed(out) and ending in _PARQUET:
        raise DataError(out, "not end in .gz: Parquet is packed already", remedy="Leave it out.")
    if ending == ".tsv":
        _require_ids(run, _TSV)
    elif ending not in (".json", ".csv", *_PARQUET):
        _require_ids(run, _TREC)


def _require_ids(run: Run, layout: tuple[re.Pattern[str], str]) -> None:
    separators, rule = layout
    for name in map(str, [*run.queries.tolist(), *run.documents.tolist()]):
        if not name or separators.search(name):
            remedy = "Write another layout: name the output .json, .csv or .parquet."
            raise DataError("ids", rule, shown(name), remedy)


def _ranked(
    run: Run, probabilities: Floats, kept: Mask | None
) -> list[tuple[str, str, int, float]]:
    """What is kept, query by query in the order of the file, the best documents first."""
    instance("run", run, Run, "Read one with read_run(name).")
    probabilities = probability_column(probabilities, len(run))
    kept = np.ones(len(run), dtype=bool) if kept is None else np.asarray(kept)
    if kept.dtype != np.bool_ or kept.shape != (len(run),):
        rule, remedy = f"have one boolean per row ({len(run)})", "E.g. probabilities >= 0.5."
        raise DataError("kept", rule, f"{kept.dtype} of shape {kept.shape}", remedy)
    ranks = run.ranks
    _, first, query = np.unique(run.queries, return_index=True, return_inverse=True)
    order = np.lexsort((ranks, first[query]))
    order = order[kept[order]]
    names = [map(str, each[order].tolist()) for each in (run.queries, run.documents)]
    return list(zip(*names, ranks[order].tolist(), probabilities[order].tolist(), strict=True))


def _as_json(run: Run, rows: Sequence[tuple[str, str, int, float]]) -> bytes:
    # A query whose answer is nothing has no documents.
    content: dict[str, dict[str, float]] = {str(query): {} for query in run.queries.tolist()}
    for query, document, _, probability in rows:
        content[query][document] = probability
    return (json.dumps(content, ensure_ascii=False) + "\n").encode()


def _as_parquet(rows: Sequence[tuple[str, str, int, float]]) -> bytes:
    import pyarrow as pa  # noqa: PLC0415  (slow to load)
    from pyarrow import parquet  # noqa: PLC0415  (slow to load)

    types = (pa.string(), pa.string(), pa.int64(), pa.float64())
    schema = pa.schema(list(zip(COLUMNS, types, strict=True)))
    columns = list(zip(*rows, strict=True)) or [()] * len(COLUMNS)
    buffer = io.BytesIO()
    parquet.write_table(pa.table(columns, schema=schema), buffer)
    return buffer.getvalue()
