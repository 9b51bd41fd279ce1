"""What every engine of tables, and a saved file, must give for a map that reads columns."""

import sqlite3
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa

import calibrank as cr
from calibrank.export import to_sql
from tests.checks import check_map


def check_engines(fitted: cr.CalibrationMap, rows: pa.Table, expected: np.ndarray) -> None:
    """Dataframes, DuckDB and SQLite give the expected probabilities."""
    for frame in (rows, rows.to_pandas(), pl.from_arrow(rows)):
        result = np.asarray(fitted.transform(frame)["probability"])
        np.testing.assert_allclose(result, expected, rtol=1e-9)
    lazy = fitted.transform(pl.from_arrow(rows).lazy()).collect()["probability"].to_numpy()
    np.testing.assert_allclose(lazy, expected, rtol=1e-9)
    query = "SELECT " + to_sql(fitted, "duckdb") + " AS p FROM rows"  # noqa: S608  (what we test)
    np.testing.assert_allclose(duckdb.sql(query).fetchnumpy()["p"], expected, rtol=1e-9)
    database = sqlite3.connect(":memory:")
    names = ", ".join([f"`{name}`" for name in rows.column_names])
    database.execute(f"CREATE TABLE t ({names})")
    values = list(zip(*rows.to_pydict().values(), strict=True))
    places = ", ".join("?" * rows.num_columns)
    database.executemany(f"INSERT INTO t VALUES ({places})", values)  # noqa: S608  (what we test)
    query = "SELECT " + to_sql(fitted, "sqlite") + " FROM t"  # noqa: S608  (what we test)
    found = [row[0] for row in database.execute(query)]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def check_saved(fitted: cr.CalibrationMap, folder: Path) -> None:
    """A saved map is read back equal, and keeps the public laws."""
    fitted.save(folder / "map.json")
    assert cr.load(folder / "map.json") == fitted
    check_map(fitted, examples=3)
