"""Engines of tables: each evaluates a map on rows of columns, and gives NaN where it gives null.

A row is a tuple of values, None for null. Columns have one of the kinds of `KINDS`.
"""

import math
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import calibrank as cr
from calibrank.export import DIALECTS, to_sql
from tests.engines import Server, numbers
from tests.optional import pipeline_package
from tests.spark_session import session

Kinds = dict[str, str]
"""The kind of each column by its name."""
Rows = Sequence[Sequence[Any]]
TableEngine = Callable[[cr.CalibrationMap, Kinds, Rows], np.ndarray]

KINDS = ("double", "integer", "boolean", "text", "decimal")
_ARROW = {
    "double": pa.float64(),
    "integer": pa.int64(),
    "boolean": pa.bool_(),
    "text": pa.string(),
    "decimal": pa.decimal128(18, 3),
}


def table(kinds: Kinds, rows: Rows) -> pa.Table:
    """The rows as an Arrow table, with their numbers in `row`."""
    columns = {"row": pa.array(range(len(rows)))}
    for place, (name, kind) in enumerate(kinds.items()):
        columns[name] = pa.array([row[place] for row in rows], _ARROW[kind])
    return pa.table(columns)


def duckdb(fitted: cr.CalibrationMap, kinds: Kinds, rows: Rows) -> np.ndarray:
    """SQL of DuckDB."""
    with pytest.importorskip("duckdb").connect() as connection:
        connection.register("t", table(kinds, rows))
        query = f"SELECT {to_sql(fitted, 'duckdb')} FROM t ORDER BY row"  # noqa: S608  (our own)
        return numbers([row[0] for row in connection.execute(query).fetchall()])


def translated(dialect: str) -> TableEngine:
    """SQL of an engine that does not run here: sqlglot reads it, and DuckDB runs what it writes."""

    def run(fitted: cr.CalibrationMap, kinds: Kinds, rows: Rows) -> np.ndarray:
        sqlglot = pytest.importorskip("sqlglot")
        query = f"SELECT {to_sql(fitted, dialect)} FROM t ORDER BY row"  # noqa: S608  (our own)
        with pytest.importorskip("duckdb").connect() as connection:
            connection.register("t", table(kinds, rows))
            (duck,) = sqlglot.transpile(query, read=dialect, write="duckdb")
            return numbers([row[0] for row in connection.execute(duck).fetchall()])

    run.__name__ = dialect
    return run


def sqlite(fitted: cr.CalibrationMap, kinds: Kinds, rows: Rows) -> np.ndarray:
    """SQL of SQLite, whose values have types of their own."""
    types = {"double": "REAL", "integer": "INTEGER", "text": "TEXT", "decimal": "REAL"}
    connection = sqlite3.connect(":memory:")
    names = [f"{DIALECTS['sqlite'].name(name)} {types[kind]}" for name, kind in kinds.items()]
    connection.execute(f"CREATE TABLE t ({', '.join(names)})")
    places = ", ".join("?" * len(kinds))
    values = [[float(v) if hasattr(v, "as_tuple") else v for v in row] for row in rows]
    connection.executemany(f"INSERT INTO t VALUES ({places})", values)  # noqa: S608  (our own)
    query = f"SELECT {to_sql(fitted, 'sqlite')} FROM t ORDER BY rowid"  # noqa: S608  (our own)
    return numbers([row[0] for row in connection.execute(query)])


def postgresql(server: Server) -> TableEngine:
    """SQL of PostgreSQL."""

    def run(fitted: cr.CalibrationMap, kinds: Kinds, rows: Rows) -> np.ndarray:
        types = {"double": "float8", "integer": "bigint", "decimal": "numeric(18, 3)"}
        quoted = DIALECTS["postgresql"].name
        names = [f"{quoted(name)} {types.get(kind, kind)}" for name, kind in kinds.items()]
        lines = []
        for place, row in enumerate(rows):
            lines.append("\t".join([str(place), *map(_copied, row)]) + "\n")
        answer = server.run(
            f"CREATE TEMP TABLE t (row integer, {', '.join(names)});\n"
            f"COPY t FROM STDIN;\n{''.join(lines)}\\.\n"
            f"SELECT {to_sql(fitted, 'postgresql')} FROM t ORDER BY row;\n"
        )
        answers = answer.removesuffix("\n").split("\n")
        return numbers([float(line) if line else None for line in answers])

    run.__name__ = "postgresql"
    return run


def _copied(value: Any) -> str:
    if value is None:
        return "\\N"
    return str(value).replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")


def clickhouse(fitted: cr.CalibrationMap, kinds: Kinds, rows: Rows) -> np.ndarray:
    """SQL of ClickHouse."""
    chdb = pipeline_package("chdb")
    types = {"double": "Float64", "integer": "Int64", "boolean": "Bool", "text": "String"}
    dialect = DIALECTS["clickhouse"]
    parts = []
    for place, row in enumerate(rows):
        values = [f"{place} AS row"]
        for (name, kind), value in zip(kinds.items(), row, strict=True):
            literal = "NULL" if value is None else dialect.string(str(value))
            wanted = types.get(kind, "Decimal(18, 3)")
            values.append(f"CAST({literal} AS Nullable({wanted})) AS {dialect.name(name)}")
        parts.append("SELECT " + ", ".join(values))
    source = " UNION ALL ".join(parts)
    expression = to_sql(fitted, "clickhouse")
    query = f"SELECT {expression} FROM ({source}) ORDER BY row"  # noqa: S608  (our own)
    lines = str(chdb.query(query, "TabSeparated")).splitlines()
    return np.array([math.nan if line == "\\N" else float(line) for line in lines])


def spark_sql(fitted: cr.CalibrationMap, kinds: Kinds, rows: Rows) -> np.ndarray:
    """SQL of Spark."""
    frame = session().createDataFrame(table(kinds, rows)).coalesce(1)
    found = frame.selectExpr("row", f"{to_sql(fitted, 'spark')} AS p").collect()
    return numbers([row["p"] for row in sorted(found)])


def spark_columns(fitted: cr.CalibrationMap, kinds: Kinds, rows: Rows) -> np.ndarray:
    """Columns of a Spark frame."""
    from calibrank import spark

    frame = session().createDataFrame(table(kinds, rows)).coalesce(1)
    found = spark.transform(fitted, frame).select("row", "probability").collect()
    return numbers([row["probability"] for row in sorted(found)])


def polars_lazy(fitted: cr.CalibrationMap, kinds: Kinds, rows: Rows) -> np.ndarray:
    """Expressions of a lazy polars frame."""
    polars = pytest.importorskip("polars")
    frame = polars.from_arrow(table(kinds, rows)).lazy()
    return numbers(fitted.transform(frame).collect()["probability"].to_list())


def duckdb_lazy(fitted: cr.CalibrationMap, kinds: Kinds, rows: Rows) -> np.ndarray:
    """Expressions of a DuckDB relation."""
    with pytest.importorskip("duckdb").connect() as connection:
        connection.register("t", table(kinds, rows))
        found = fitted.transform(connection.table("t")).order("row")
        return numbers([row[-1] for row in found.fetchall()])


SQL_AND_FRAMES: tuple[TableEngine, ...] = (
    duckdb,
    translated("trino"),
    sqlite,
    clickhouse,
    spark_sql,
    spark_columns,
    polars_lazy,
    duckdb_lazy,
)
"""Those that need no server."""
WITHOUT_DECIMALS: tuple[TableEngine, ...] = (translated("bigquery"), translated("snowflake"))
"""Those whose SQL cannot tell decimals from texts, as the documentation says."""
