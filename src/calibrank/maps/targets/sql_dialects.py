"""How SQL engines differ: names, numbers, strings, and the functions that maps need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from calibrank.errors import DataError

# The backslash first: the other replacements add more of them.
_ESCAPES = (("\\", "\\\\"), ("'", "\\'"), ("\n", "\\n"), ("\r", "\\r"))
# The digits of a whole number, and nothing for another one.
_WHOLE = "^(-?[0-9]+)([.]0*)?$"


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one engine writes names, numbers and the functions that maps need."""

    quote: str
    """The quotation mark of a name; doubled inside a name, it stands for itself."""
    as_double: str
    number: Callable[[float], str]
    least: str = "LEAST"
    greatest: str = "GREATEST"
    raises_on_underflow: bool = False
    """Whether a product that rounds to 0 is an error."""
    as_text: str = "CAST({} AS VARCHAR)"
    """The key of a level: text as it is, a whole number as its digits, a boolean as true or false.

    NULL where a number is not whole. Engines tell the type of a column when they plan a query.
    """
    has_escapes: bool = False
    """Whether a backslash in a string starts an escape sequence."""
    atanh: str | None = "ATANH"
    """The inverse hyperbolic tangent, where there is one."""
    bytewise: str = ""
    """What makes a comparison of texts one of their bytes, where it is none."""
    look_up: str = ""
    """The value of {key} in a long table, or {default}, where that is faster than CASE.

    {keys} and {values} are texts that {mark} and a comma divide: literals would be planned one by
    one. {k} and {v} are names that no column has.
    """

    def name(self, column: str) -> str:
        """The quoted name of a column."""
        return self.quote + column.replace(self.quote, 2 * self.quote) + self.quote

    def string(self, text: str) -> str:
        """A quoted string."""
        if "\0" in text:
            raise DataError(
                "a level", "have no character 0 in SQL", f"{text!r}", "Use transform or to_json."
            )
        if not self.has_escapes:
            return "'" + text.replace("'", "''") + "'"
        for plain, escaped in _ESCAPES:
            text = text.replace(plain, escaped)
        return f"'{text}'"


@dataclass(frozen=True, slots=True)
class _Spark(Dialect):
    def string(self, text: str) -> str:
        # Spark replaces ${...} by a setting, in strings too.
        return super(_Spark, self).string(text).replace("${", "\\u0024{")


@dataclass(frozen=True, slots=True)
class _BigQuery(Dialect):
    def name(self, column: str) -> str:
        return "`" + column.replace("\\", "\\\\").replace("`", "\\`") + "`"


@dataclass(frozen=True, slots=True)
class _ClickHouse(Dialect):
    def name(self, column: str) -> str:
        # Backslashes are escapes in names too.
        return '"' + column.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _with_exponent(number: float) -> str:
    """Every digit and an exponent."""
    # Without an exponent DuckDB reads a decimal, and SQLite may read an integer.
    text = repr(number).removesuffix(".0")
    return text if "e" in text else f"{text}e0"


def _with_suffix(number: float) -> str:
    return repr(number).removesuffix(".0") + "D"


DIALECTS: dict[str, Dialect] = {
    "spark": _Spark(
        "`",
        "DOUBLE({})",
        _with_suffix,
        # Without the decimal, a large number is written with an exponent.
        as_text=(
            "CASE WHEN typeof({}) RLIKE '^(float|double|decimal)' THEN NULLIF(regexp_extract("
            f"STRING(TRY_CAST(STRING({{}}) AS DECIMAL(38, 9))), '{_WHOLE}', 1), '') "
            "ELSE STRING({}) END"
        ),
        has_escapes=True,
        # A correlated subquery, which becomes a join; only an aggregate may be one.
        look_up=(
            "COALESCE((SELECT FIRST({v}.`1`) FROM (SELECT explode(arrays_zip(split({keys}, {mark}),"
            " CAST(split({values}, ',') AS ARRAY<DOUBLE>))) AS {v}) WHERE {v}.`0` = {key}), "
            "{default})"
        ),
    ),
    "duckdb": Dialect(
        '"',
        "{}::DOUBLE",
        _with_exponent,
        as_text=(
            "CASE WHEN regexp_matches(typeof({}), '^(FLOAT|DOUBLE|DECIMAL)') "
            f"THEN NULLIF(regexp_extract({{}}::VARCHAR, '{_WHOLE}', 1), '') "
            "ELSE {}::VARCHAR END"
        ),
        # A correlated subquery, which becomes a join.
        look_up=(
            "COALESCE((SELECT {v} FROM (SELECT unnest(string_split({keys}, {mark})) AS {k}, "
            "unnest(string_split({values}, ',')::DOUBLE[]) AS {v}) WHERE {k} = {key}), {default})"
        ),
    ),
    "postgresql": Dialect(
        '"',
        "{}::float8",
        _with_exponent,
        raises_on_underflow=True,
        # Without the decimal, a large number is written with an exponent.
        as_text=(
            "CASE WHEN pg_typeof({})::text IN ('real', 'double precision', 'numeric') "
            f"THEN substring({{}}::text::numeric::text FROM '{_WHOLE}') ELSE {{}}::text END"
        ),
        bytewise=' COLLATE "C"',
        # A constant that is searched by bisection: a subquery would be run for every row.
        look_up=(
            "COALESCE((jsonb_object(string_to_array({keys}, {mark}), string_to_array({values}, "
            "',')) ->> ({key}))::float8, {default})"
        ),
    ),
    # SQLite reads a misspelled "name" as a string, but reports a misspelled `name` as an error.
    # A cast would turn any string into a number. A unary plus removes the column's type instead:
    # strings then compare above every number, so they are outside the range of scores.
    "sqlite": Dialect(
        "`",
        "+{}",
        _with_exponent,
        least="MIN",
        greatest="MAX",
        # It has no booleans: they are 0 and 1.
        as_text=(
            "CASE WHEN typeof({}) <> 'real' THEN CAST({} AS TEXT) "
            "WHEN {} = CAST({} AS INTEGER) THEN CAST(CAST({} AS INTEGER) AS TEXT) END"
        ),
    ),
    "bigquery": _BigQuery(
        "`", "CAST({} AS FLOAT64)", _with_exponent, as_text="CAST({} AS STRING)", has_escapes=True
    ),
    "snowflake": Dialect('"', "CAST({} AS DOUBLE)", _with_exponent, has_escapes=True),
    "clickhouse": _ClickHouse(
        '"',
        "toFloat64({})",
        _with_exponent,
        # Numbers that are whole are written without decimals, and others must not be levels.
        as_text=(
            "CASE WHEN match(toTypeName({}), 'Float|Decimal') AND NOT match(toString({}), "
            "'^-?[0-9]+$') THEN NULL ELSE toString({}) END"
        ),
        has_escapes=True,
        atanh="atanh",  # in lower case alone, unlike the other functions
    ),
    "trino": Dialect('"', "CAST({} AS DOUBLE)", _with_exponent, atanh=None),
}
"""The engines `to_sql` writes for, by name."""
