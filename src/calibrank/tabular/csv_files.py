"""Read and write CSV files as text, and convert columns to numbers where they are used as such."""

from __future__ import annotations

import gzip
import re
import warnings
from collections.abc import Iterator, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc

from calibrank._internal.validation import Floats
from calibrank.errors import CalibrankWarning, DataError
from calibrank.tabular.arrow import numbers_of

BLOCK_BYTES = 2**24
"""How much text is read, and made one batch, at a time."""

# Spellings of a missing number.
_MISSING = frozenset(
    ("", "-", "NA", "N/A", "n/a", "NaN", "nan", "-nan", "null", "NULL", "None", "#N/A", "<NA>")
)
_BOOLEANS = {"true": 1.0, "false": 0.0}

# A last cell that opens a quote and does not close it.
_UNCLOSED_CELL = re.compile(rb'(?:^|[,;|\t])"(?:[^"]|"")*$')
_LONGEST_LINE = 2**16

# As a number, 007 would lose its zeros and a number of 16 digits its last ones.
_LOSSY_NUMBER = r"^[+-]?0[0-9]|^[+-]?[0-9]{16,}$"


def ending_of(file: Path) -> str:
    """The ending of a name that says its format, such as .parquet or .csv.gz, in lower case."""
    endings = file.suffixes[-2:] if file.suffix.lower() == ".gz" else [file.suffix]
    return "".join(endings).lower()


def open_bytes(file: Path) -> IO[bytes]:
    """Open a file, unpacked if its name ends in .gz."""
    opened: Any = gzip.open if ending_of(file).endswith(".gz") else open
    return cast("IO[bytes]", opened(file, "rb"))


def delimiter_of(file: Path) -> str:
    """What separates cells: tabs in .tsv, otherwise the first of , ; tab | in the line of names."""
    if ending_of(file).startswith(".tsv"):
        return "\t"
    with open_bytes(file) as content:
        names = content.readline(_LONGEST_LINE)
    return next((sign for sign in ",;\t|" if sign.encode() in names), ",")


def csv_names(file: Path) -> list[str]:
    """Return the names of the columns."""
    with _open(file, None, block=2**20) as reader:
        try:
            return list(reader.schema.names)
        except UnicodeDecodeError:
            raise not_utf8(file, "other bytes in the names of its columns") from None


def csv_batches(file: Path, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, with those of the columns that it has, as text.

    An empty cell is null, and a quoted empty one is empty text. At the end, the file is searched
    for quotes that were not closed, which would have swallowed rows.
    """
    names = csv_names(file)
    chosen = [name for name in names if name in columns]
    rows = 0
    with _open(file, chosen or names[:1]) as reader:  # the number of rows still counts
        for batch in reader:
            rows += batch.num_rows
            yield batch
    _require_one_line_per_row(file, rows)


def numbers_of_text(column: pa.Array, where: str, first: int) -> Floats:
    """Return text as numbers, NaN where it is missing; `first` is the number of the first row."""
    try:
        numbers = column.cast(pa.float64())
        # Filling imports pandas.
        return numbers_of(numbers.fill_null(float("nan")) if numbers.null_count else numbers)
    except pa.ArrowInvalid:
        pass
    parsed = np.empty(len(column))
    for row, text in enumerate(column.fill_null("").to_pylist()):
        number = _number(text)
        if number is None:
            rule, remedy = "be a number", "Correct it, or leave the row out."
            raise DataError(f"{where}, row {first + row}", rule, f"{text[:40]!r}", remedy)
        parsed[row] = number
    return parsed


def values_of_text(column: pa.Array) -> pa.Array:
    """Return text as integers or floats if all of it is, as a table's reader would take it."""
    for kind in (pa.int64(), pa.float64()):
        try:
            return column.cast(kind)
        except pa.ArrowInvalid:
            continue
    return column


def is_number_column(file: Path, name: str) -> bool:
    """Whether the first cells of a column are numbers, none of which loses digits as one."""
    with _open(file, [name], block=2**20) as reader:
        head = next(iter(reader), None)
    if head is None:
        return False
    cells = head.column(name)
    if _compute().any(_compute().match_substring_regex(cells, _LOSSY_NUMBER)).as_py():
        return False
    return not pa.types.is_string(values_of_text(cells).type)


def lines_of(columns: Sequence[pa.Array], delimiter: str = ",") -> pa.Array:
    """Return rows as the lines of a CSV file; null is an empty cell, and empty text is quoted."""
    cells = [_cells(column, delimiter) for column in columns]
    lines = _compute().binary_join_element_wise(*cells, _text(delimiter))
    return _compute().binary_join_element_wise(lines, _text(""), _text("\n"))


def _text(value: str) -> pa.Scalar:
    return pa.scalar(value, pa.large_string())


def _cells(column: pa.Array, delimiter: str) -> pa.Array:
    text = column.cast(pa.large_string())
    if pa.types.is_string(column.type):
        quoted = _compute().match_substring_regex(text, rf'["{delimiter}\r\n]|^$')
        if _compute().any(quoted).as_py():
            inner = _compute().replace_substring(text, '"', '""')
            marks = _text('"')
            inner = _compute().binary_join_element_wise(marks, inner, marks, _text(""))
            text = _compute().if_else(quoted, inner, text)
    return text.fill_null("")


def _compute() -> Any:
    """Arrow's functions, which take long to load and which Parquet does not need."""
    from pyarrow import compute  # noqa: PLC0415  (slow to load)

    return compute


def _open(
    file: Path, columns: Sequence[str] | None, block: int = BLOCK_BYTES
) -> pc.CSVStreamingReader:
    if columns is None:
        convert = pc.ConvertOptions()
    else:
        convert = pc.ConvertOptions(
            column_types=dict.fromkeys(columns, pa.string()),
            include_columns=list(columns),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
    parse = pc.ParseOptions(delimiter=delimiter_of(file))
    return pc.open_csv(file, pc.ReadOptions(block_size=block), parse, convert)


def not_utf8(file: Path, found: str) -> DataError:
    """The error about text in another encoding, which is named where it is known."""
    encoding = "latin1"
    if is_utf16(file):
        found, encoding = "UTF-16", "utf16"
    return DataError(file, "be UTF-8 text", found, f"Convert it: iconv -f {encoding} -t utf8.")


def is_utf16(file: Path) -> bool:
    """Whether a file starts with the byte order mark of UTF-16."""
    with open_bytes(file) as content:
        return content.read(2) in (b"\xff\xfe", b"\xfe\xff")


def _number(text: str) -> float | None:
    """The number that a cell holds, NaN if it is missing, None if it is something else."""
    word = text.strip()
    if word in _MISSING:
        return float("nan")
    if word.lower() in _BOOLEANS:
        return _BOOLEANS[word.lower()]
    if not word.isascii() or "_" in word:  # Python reads 1_000 and the digits of other scripts
        return None
    try:
        return float(word)
    except ValueError:
        return None


def _require_one_line_per_row(file: Path, rows: int) -> None:
    breaks = 0
    end = b""
    with open_bytes(file) as content:
        while block := content.read(BLOCK_BYTES):
            if b"\0" in block:
                raise DataError(file, "be text", "a NUL byte in it: it is damaged, or no CSV file")
            breaks += block.count(b"\n")
            end = (end + block)[-_LONGEST_LINE:]
    last_line = end.rstrip().rpartition(b"\n")[2]
    if _UNCLOSED_CELL.search(last_line):
        raise DataError(file, "close its quotes", "an open one in the last line")
    if not end.endswith((b"\n", b"\r")):
        breaks += 1
        warnings.warn(
            f"{file} does not end with a line break: its last row may be cut off.",
            CalibrankWarning,
            stacklevel=2,
        )
    # The names of the columns are a line too.
    if breaks != rows + 1:
        _require_closed_quotes(file, rows)


def _require_closed_quotes(file: Path, rows: int) -> None:
    """Raise an error unless empty lines explain why there are fewer rows than lines."""
    lines = 0
    unclosed = 0
    # latin1 decodes anything; only quotes and line breaks matter.
    with TextIOWrapper(open_bytes(file), encoding="latin1") as content:
        for number, line in enumerate(content, 1):
            lines += line != "\n"
            if not unclosed and line.count('"') % 2:
                unclosed = number
    if lines != rows + 1:
        raise DataError(
            file,
            "have one row per line",
            (
                f"{rows:,} rows in {lines - 1:,} lines: the quote in line {unclosed} is not "
                "closed there"
            ),
            ("Remove it, or the line breaks in quoted cells, or save the table as Parquet."),
        )
