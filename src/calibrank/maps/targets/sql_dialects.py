"""How SQL engines differ: names, numbers, strings, and the functions that maps need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from calibrank.errors import DataError

Escapes = tuple[tuple[str, str], ...]
"""Texts and what is written for them, in this order."""

# The backslash first: the other replacements add more of them.
_BACKSLASHES = (("\\", "\\\\"), ("'", "\\'"), ("\n", "\\n"), ("\r", "\\r"))
# The digits of a whole number, and nothing for another one.
_WHOLE = "^(-?[0-9]+)([.]0*)?$"
# Larger decimals stand for many whole numbers, and are no levels.
_MOST = "9007199254740992"
# The square of a smaller number may round to 0.
_TINY = 1e-120


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one engine writes names, numbers and the functions that maps need."""

    quote: str
    """The quotation mark of a name."""
    as_double: str
    number: Callable[[float], str]
    least: str = "LEAST"
    greatest: str = "GREATEST"
    as_text: str = "CAST({} AS VARCHAR)"
    """The key of a level: text as it is, a whole number as its digits, a boolean as true or false.

    NULL where a number is not whole, and of dates, lists and bytes. Engines tell the type of a
    column when they plan a query.
    """
    escapes: Escapes = (("'", "''"),)
    """How a string is written between quotation marks."""
    name_escapes: Escapes | None = None
    """How a name is; by default, a quotation mark inside is doubled."""
    atanh: str | None = "ATANH"
    """The inverse hyperbolic tangent, where there is one."""
    look_up: str = ""
    """The value of {key} in a long table, or {default}, where that is faster than CASE.

    {keys} and {values} are texts that {mark} and a semicolon divide: literals would be planned one
    by one. {k} and {v} are names that no column has. A template may also have the type of the keys,
    {kind}, a {condition} that {key} needs, and the {value} of the text {v}: its number or `pair`.
    """
    is_number: str = ""
    """Whether a column has numbers, where levels are looked up by type: numbers, or other texts."""
    pair: str = ""
    """A list of two numbers, which a comma divides in the text {v}."""
    scaled: str = ""
    """slope * {curve} + intercept, where `look_up` {found} the pair of slope and intercept."""

    def name(self, column: str) -> str:
        """The quoted name of a column."""
        doubled = ((self.quote, 2 * self.quote),)
        return self.quote + _escaped(column, self.name_escapes or doubled) + self.quote

    def string(self, text: str) -> str:
        """A quoted string."""
        if "\0" in text:
            raise DataError(
                "a level", "have no character 0 in SQL", f"{text!r}", "Use transform or to_json."
            )
        return f"'{_escaped(text, self.escapes)}'"


def _escaped(text: str, escapes: Escapes) -> str:
    for plain, written in escapes:
        text = text.replace(plain, written)
    return text


def _with_exponent(number: float) -> str:
    """Every digit and an exponent."""
    # Without an exponent DuckDB reads a decimal, and SQLite may read an integer.
    text = repr(number).removesuffix(".0")
    return text if "e" in text else f"{text}e0"


def _not_tiny(number: float) -> str:
    return _with_exponent(number if abs(number) > _TINY else 0.0)


def _with_suffix(number: float) -> str:
    return repr(number).removesuffix(".0") + "D"


def _whole(decimal: str, integer: str, text: str) -> str:
    """The text of a decimal column that is a whole number, otherwise NULL.

    Not the text of the decimal: this may be rounded, have an exponent, or be a negative zero.
    """
    return (
        f"CASE WHEN {integer} = {decimal} AND ABS({decimal}) < {_MOST} "
        f"THEN {text.format(integer)} END"
    )


DIALECTS: dict[str, Dialect] = {
    "spark": Dialect(
        "`",
        "DOUBLE({})",
        _with_suffix,
        as_text=(
            "CASE WHEN typeof({}) RLIKE '^(float|double|decimal)' THEN "
            + _whole(
                "TRY_CAST(STRING({}) AS DOUBLE)",
                "TRY_CAST(TRY_CAST(STRING({}) AS DOUBLE) AS BIGINT)",
                "STRING({})",
            )
            + " WHEN NOT typeof({}) RLIKE '^(date|timestamp|interval|binary|array|map|struct)' "
            "THEN STRING({}) END"
        ),
        # Spark replaces ${...} by a setting, in strings too.
        escapes=(*_BACKSLASHES, ("${", "\\u0024{")),
        # A correlated subquery, which becomes a join; only an aggregate may be one.
        look_up=(
            "COALESCE((SELECT FIRST({v}.`1`) FROM (SELECT explode(arrays_zip(split({keys}, {mark}),"
            " CAST(split({values}, ';') AS ARRAY<DOUBLE>))) AS {v}) WHERE {v}.`0` = {key}), "
            "{default})"
        ),
    ),
    "duckdb": Dialect(
        '"',
        "{}::DOUBLE",
        _with_exponent,
        as_text=(
            "CASE WHEN regexp_matches(typeof({}), '^(FLOAT|DOUBLE|DECIMAL)') THEN "
            + _whole(
                "TRY_CAST({}::VARCHAR AS DOUBLE)",
                "TRY_CAST(TRY_CAST({}::VARCHAR AS DOUBLE) AS BIGINT)",
                "{}::VARCHAR",
            )
            + " WHEN NOT regexp_matches(typeof({}), '^(DATE|TIME|INTERVAL|BLOB|STRUCT|MAP)|]$') "
            "THEN {}::VARCHAR END"
        ),
        # A correlated subquery, which becomes a join. The planner would split constant texts, and
        # is slow with the long lists that result: it leaves columns of a subquery alone.
        look_up=(
            "COALESCE((SELECT {value} FROM (SELECT unnest(string_split({k}, {mark})::{kind}[]) "
            "AS {k}, unnest(string_split({v}, ';')) AS {v} FROM (SELECT {keys} AS {k}, {values} "
            "AS {v})) WHERE {k} = {key} AND {condition}), {default})"
        ),
        is_number=(
            "regexp_matches(typeof({}), "
            "'^(FLOAT|DOUBLE|DECIMAL[(].*[)]|BIGINT|U?(INTEGER|SMALLINT|TINYINT))$')"
        ),
        pair="string_split({v}, ',')::DOUBLE[]",
        # What is found stands here once, so it is looked up once. A list comprehension, which could
        # name it, takes longer; in DuckDB 1.1 five times as long as the rest of the query.
        scaled="list_inner_product({found}, [{curve}, 1e0])",
    ),
    "postgresql": Dialect(
        '"',
        # A product that rounds to 0 is an error: scores closer to 0 than 1e-116 become 0.
        "({}::float8 + 1e-100 - 1e-100)",
        _not_tiny,
        # Without the decimal, a large number is written with an exponent.
        as_text=(
            "CASE WHEN pg_typeof({})::text IN ('real', 'double precision', 'numeric') "
            f"THEN CASE WHEN abs({{}}::text::numeric) < {_MOST} THEN "
            f"substring({{}}::text::numeric::text FROM '{_WHOLE}') END WHEN pg_typeof({{}})::text "
            "!~ '^(date|time|interval|bytea|json)|]$' THEN {}::text END"
        ),
        # A constant that is searched by bisection: a subquery would be run for every row.
        look_up=(
            "COALESCE((jsonb_object(string_to_array({keys}, {mark}), string_to_array({values}, "
            "';')) ->> ({key}))::float8, {default})"
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
            "CASE WHEN typeof({}) IN ('text', 'integer') THEN CAST({} AS TEXT) "
            f"WHEN {{}} = CAST({{}} AS INTEGER) AND ABS({{}}) < {_MOST} THEN "
            "CAST(CAST({} AS INTEGER) AS TEXT) END"
        ),
    ),
    "bigquery": Dialect(
        "`",
        "CAST({} AS FLOAT64)",
        _with_exponent,
        as_text="CAST({} AS STRING)",
        escapes=_BACKSLASHES,
        name_escapes=(("\\", "\\\\"), ("`", "\\`")),
    ),
    "snowflake": Dialect('"', "CAST({} AS DOUBLE)", _with_exponent, escapes=_BACKSLASHES),
    "clickhouse": Dialect(
        '"',
        "toFloat64({})",
        _with_exponent,
        as_text=(
            "CASE WHEN match(toTypeName({}), 'Float|Decimal') THEN "
            + _whole("toFloat64OrNull(toString({}))", "toInt64OrNull(toString({}))", "toString({})")
            + " WHEN NOT match(toTypeName({}), 'Date|Array|Tuple|Map') THEN toString({}) END"
        ),
        escapes=_BACKSLASHES,
        name_escapes=(("\\", "\\\\"), ('"', '\\"')),
        atanh="atanh",  # in lower case alone, unlike the other functions
    ),
    "trino": Dialect(
        '"',
        "CAST({} AS DOUBLE)",
        _with_exponent,
        as_text=(
            "CASE WHEN regexp_like(typeof({}), '(?i)^(real|double|decimal)') THEN "
            + _whole(
                "TRY_CAST(CAST({} AS VARCHAR) AS DOUBLE)",
                "TRY_CAST(TRY_CAST(CAST({} AS VARCHAR) AS DOUBLE) AS BIGINT)",
                "CAST({} AS VARCHAR)",
            )
            + " WHEN NOT regexp_like(typeof({}), '(?i)^(date|time|interval)') "
            "THEN CAST({} AS VARCHAR) END"
        ),
        atanh=None,
    ),
}
"""The engines `to_sql` writes for, by name."""
