"""Read runs and judgements of search systems: TREC files, BEIR and MTEB layouts, and tables.

The ending of a file's name declares its layout: `.json` is `{query: {document: value}}` (BEIR and
ranx) or what MTEB writes to its prediction folder, `.parquet` and `.csv` are tables with named
columns, `.tsv` is BEIR's with a header, `.jsonl` has an object per line (as MTEB's datasets have
it), and everything else is TREC's, with columns separated by blanks. Text files may be compressed
(`.gz`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from calibrank._internal.arguments import listed, shown, whole
from calibrank._internal.json import parse_json
from calibrank._internal.validation import LARGEST_SCORE, Floats, Ids, column, ids, require_scores
from calibrank.errors import DataError
from calibrank.search._text_file import is_compressed, lines_of, text_of
from calibrank.tabular.read import Table

QUERY_NAMES = ("query", "query_id", "query-id", "qid", "topic")
DOCUMENT_NAMES = (
    "document",
    "doc",
    "doc_id",
    "docid",
    "docno",
    "corpus_id",
    "corpus-id",
    "passage",
)
SCORE_NAMES = ("score", "scores", "similarity", "prediction")
GRADE_NAMES = ("grade", "relevance", "rel", "label", "judgement", "judgment", "score")
"""The usual names of columns; the first that a table has is used."""

MOST_DOCUMENTS = 10**9
"""Documents per query: no run has more."""

_RUN_FIELDS = 6
_QRELS_FIELDS = 4
_SHAPES = {_RUN_FIELDS: "query Q0 document rank score tag", _QRELS_FIELDS: "query 0 document grade"}
TABLE_ENDINGS = (".parquet", ".pq", ".csv")

_PROPENSITY = "propensity"
# Marks a file of predictions that MTEB wrote.
_MTEB_KEY = "mteb_model_meta"


class _Entry(NamedTuple):
    query: str
    document: str
    value: float


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """What a system returned: documents with scores, by query."""

    queries: Ids
    documents: Ids
    scores: Floats

    def __post_init__(self) -> None:
        scores = column("scores", self.scores)
        require_scores(scores)
        object.__setattr__(self, "scores", scores)
        for name in ("queries", "documents"):
            object.__setattr__(self, name, ids(name, getattr(self, name), len(scores)))

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def ranks(self) -> np.ndarray[Any, np.dtype[np.intp]]:
        """The rank of each document in its query, from 1, by score; ties in the order of the file.

        Ranks that a file states are not used: they are not always those of its scores.
        """
        # np.lexsort is stable, so equal scores keep the order of the file.
        order = np.lexsort((-self.scores, self.queries))
        ordered = self.queries[order]
        starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
        sizes = np.diff(np.r_[starts, len(ordered)])
        ranks = np.empty(len(self), dtype=np.intp)
        ranks[order] = np.arange(len(self)) - np.repeat(starts, sizes) + 1
        return ranks

    def first(self, depth: int) -> Run:
        """The first `depth` documents of each query."""
        kept = self.ranks <= whole("depth", depth, 1, MOST_DOCUMENTS)
        return Run(self.queries[kept], self.documents[kept], self.scores[kept])


def read_run(name: str) -> Run:
    """Read the run of one system, from one file or from several (a quoted glob).

    A pair of query and document may occur once only.
    """
    entries: list[_Entry] = []
    for file in _files(name, "a run"):
        entries += _entries(file, "score", SCORE_NAMES, _RUN_FIELDS, value_field=4)
    _require_entries(name, "score", entries)
    seen: set[tuple[str, str]] = set()
    for entry in entries:
        _require_once(name, entry, seen)
    return _as_run(entries)


def read_qrels(name: str, grade: str | None = None) -> dict[tuple[str, str], float]:
    """Read judgements: the grade of each judged pair of query and document.

    `grade` names the column of a table. A pair that was judged twice must have one grade.
    """
    names = GRADE_NAMES if grade is None else (grade,)
    grades: dict[tuple[str, str], float] = {}
    entries: list[_Entry] = []
    for file in _files(name, "judgements"):
        entries += _entries(file, "grade", names, _QRELS_FIELDS, value_field=3)
    _require_entries(name, "grade", entries)
    for query, document, value in entries:
        earlier = grades.setdefault((query, document), value)
        if earlier != value:
            raise DataError(
                name,
                "grade each pair once",
                (f"{earlier:g} and {value:g} for query {query!r} and document {document!r}"),
                "Combine the judges' grades first.",
            )
    return grades


def read_propensities(name: str) -> dict[tuple[str, str], float] | None:
    """The column `propensity` of a table of judgements, such as a plan; None if it has none."""
    if ending_of(Path(name)) not in TABLE_ENDINGS or _PROPENSITY not in Table.find(name).columns():
        return None
    chances: dict[tuple[str, str], float] = {}
    for file in _files(name, "judgements"):
        for query, document, value in _from_table(file, _PROPENSITY, (_PROPENSITY,)):
            chances[query, document] = value
    return chances


def has_named_columns(name: str) -> bool:
    """Whether a file's layout has column names, by its ending."""
    return ending_of(Path(name)) in (*TABLE_ENDINGS, ".tsv", ".jsonl")


def ending_of(file: Path) -> str:
    """The ending that declares the layout, without that of the compression."""
    return (file.with_suffix("") if is_compressed(file) else file).suffix.lower()


def _files(name: str, what: str) -> tuple[Path, ...]:
    return Table.find(name, f"{what} (TREC, .json, .jsonl, .tsv, .csv or .parquet file)").files


def _require_entries(name: str, what: str, entries: list[_Entry]) -> None:
    if not entries:
        raise DataError(
            name,
            f"hold at least one {what}",
            "none: it is empty",
            "Check how the file was written.",
        )


def _require_once(name: str, entry: _Entry, seen: set[tuple[str, str]]) -> None:
    pair = entry.query, entry.document
    if pair in seen:
        raise DataError(
            name,
            "hold each pair of query and document once",
            f"{entry.document!r} twice for query {entry.query!r}",
            (
                "Keep the line with the highest score; runs of different systems are "
                "fitted one by one."
            ),
        )
    seen.add(pair)


def _as_run(entries: list[_Entry]) -> Run:
    queries = np.array([entry.query for entry in entries])
    documents = np.array([entry.document for entry in entries])
    scores = np.array([entry.value for entry in entries])
    return Run(queries, documents, scores)


def _entries(
    file: Path, what: str, names: tuple[str, ...], fields: int, value_field: int
) -> list[_Entry]:
    ending = ending_of(file)
    if ending == ".json":
        return list(_from_json(file, what))
    if ending == ".jsonl":
        return list(_from_json_lines(file, what, names))
    if ending in TABLE_ENDINGS:
        return list(_from_table(file, what, names))
    if ending == ".tsv":
        return list(_from_tsv(file, what, names))
    return list(_from_trec(file, what, fields, value_field))


def _from_trec(file: Path, what: str, fields: int, value_field: int) -> Iterator[_Entry]:
    """Yield `query Q0 document rank score tag`, or `query 0 document grade`."""
    for number, line in enumerate(lines_of(file), start=1):
        parts = line.split()
        if not parts:
            continue
        if len(parts) != fields:
            shape = _SHAPES[fields]
            raise DataError(
                f"{file}, line {number}",
                f"have {fields} columns ({shape})",
                len(parts),
                _remedy_for(parts),
            )
        yield _Entry(parts[0], parts[2], _number(file, f"line {number}", what, parts[value_field]))


def _remedy_for(parts: list[str]) -> str:
    """What to do with a line that has as many columns as another layout."""
    if len(parts) == _RUN_FIELDS:
        return "This looks like a run: exchange it and the judgements."
    if len(parts) == _QRELS_FIELDS and parts[-1].lstrip("-").isdigit():
        return "These look like judgements: give them as such, and the run in their place."
    return "Other layouts have other endings: .json, .jsonl, .tsv, .csv, .parquet."


def _from_tsv(file: Path, what: str, names: tuple[str, ...]) -> Iterator[_Entry]:
    """Yield the rows of a file with a header, as BEIR's qrels have it."""
    lines = [line for line in lines_of(file) if line]
    if not lines:
        return
    header = lines[0].split("\t")
    places = [header.index(name) for name in _chosen(file, header, what, names)]
    for number, line in enumerate(lines[1:], start=2):
        row = line.split("\t")
        if len(row) != len(header):
            raise DataError(
                f"{file}, line {number}",
                f"have {len(header)} columns as the header has",
                len(row),
                "Put a tab between all columns, and none inside them.",
            )
        query, document, value = [row[place] for place in places]
        yield _Entry(query, document, _number(file, f"line {number}", what, value))


def _from_table(file: Path, what: str, names: tuple[str, ...]) -> Iterator[_Entry]:
    table = Table.find(str(file))
    columns = _chosen(file, table.columns(), what, names)
    row = 0
    for batch in table.batches(columns):
        lists = [batch.rows.column(name).to_pylist() for name in columns]
        for query, document, value in zip(*lists, strict=True):
            row += 1
            if query is None or document is None:
                raise DataError(
                    f"{file}, row {row}",
                    "have a query and a document",
                    "none",
                    "Leave such rows out.",
                )
            if value is None and what == "grade":
                continue  # a row without a grade was not judged
            yield _Entry(str(query), str(document), _number(file, f"row {row}", what, value))


def _from_json(file: Path, what: str) -> Iterator[_Entry]:
    layout = f"{{query: {{document: {what}}}}}"
    remedy = f"Save it as {layout}."
    text = text_of(file)
    content = parse_json(str(file), text, remedy, float) if text.strip() else {}
    if isinstance(content, dict) and _MTEB_KEY in content:
        content = _mteb_predictions(file, content)
    if not isinstance(content, dict) or not all(isinstance(v, dict) for v in content.values()):
        raise DataError(file, f"be {layout}", "JSON of another layout", remedy)
    for query, documents in content.items():
        for document, value in documents.items():
            where = f"query {shown(query)}, document {shown(document)}"
            yield _Entry(query, document, _json_number(file, where, what, value))


def _from_json_lines(file: Path, what: str, names: tuple[str, ...]) -> Iterator[_Entry]:
    """Yield the objects of a file with one per line, as MTEB's datasets have their judgements."""
    for number, line in enumerate(lines_of(file), start=1):
        if not line.strip():
            continue
        where = f"line {number}"
        row = parse_json(f"{file}, {where}", line, "Write one object per line.", float)
        if not isinstance(row, dict):
            raise DataError(f"{file}, {where}", "be an object", shown(row))
        query, document, value = [row[name] for name in _chosen(file, row, what, names)]
        for part in (query, document):
            if isinstance(part, bool) or not isinstance(part, str | int):
                raise DataError(f"{file}, {where}", "have ids of text", shown(part))
        if value is None and what == "grade":
            continue  # not judged
        yield _Entry(str(query), str(document), _json_number(file, where, what, value))


def _mteb_predictions(file: Path, content: dict[str, Any]) -> Any:
    """The one split of a file `{"mteb_model_meta": ..., subset: {split: predictions}}`."""
    splits = {}
    for subset, by_split in content.items():
        if subset != _MTEB_KEY and isinstance(by_split, dict):
            for split, predictions in by_split.items():
                splits[f"{subset}/{split}"] = predictions
    if len(splits) != 1:
        raise DataError(
            file,
            "hold one subset and split",
            ", ".join(splits) or "none",
            "Save the one to calibrate as {query: {document: score}}.",
        )
    return next(iter(splits.values()))


def _chosen(file: Path, columns: Iterable[str], what: str, names: tuple[str, ...]) -> list[str]:
    """The columns of query, document and value, by their usual names."""
    columns = list(columns)
    chosen = []
    for role, wanted in (("query", QUERY_NAMES), ("document", DOCUMENT_NAMES), (what, names)):
        found = [name for name in wanted if name in columns]
        if not found:
            raise DataError(
                file, f"have a {role} column ({', '.join(wanted)})", listed(columns), "Rename it."
            )
        chosen.append(found[0])
    return chosen


def _number(file: Path, where: str, what: str, value: object) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]  # what is no number raises
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if not abs(number) <= LARGEST_SCORE:
        raise _not_a_number(file, where, what, value)
    return number


def _json_number(file: Path, where: str, what: str, value: object) -> float:
    if isinstance(value, str | bool):  # which `float` would accept
        raise _not_a_number(file, where, what, value)
    return _number(file, where, what, value)


def _not_a_number(file: Path, where: str, what: str, value: object) -> DataError:
    return DataError(
        f"{file}, {where}: the {what}",
        "be a finite number within +-1e30",
        shown(value),
        "Correct it, or leave it out.",
    )
