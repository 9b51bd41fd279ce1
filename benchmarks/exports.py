"""Accuracy of exported maps: the largest difference from `predict`, at extreme scores too.

Also the processor time of the SQL of a map with 100,000 levels in DuckDB, in plain joins.

python benchmarks/exports.py [--offset 1e6]
"""

import argparse
import sqlite3
import time

import duckdb
import numpy as np
import onnxruntime
import pyarrow as pa
import torch

import calibrank as cr
from calibrank.export import hard_scores, to_onnx, to_sql, to_torch
from calibrank.maps import LevelTerm

ROWS = 20_000
METHODS = (
    cr.Platt(),
    cr.Beta(),
    cr.Gaussian(),
    cr.Gamma(),
    cr.GammaGaussian(),
    cr.Isotonic(),
    cr.MinMax(),
)
TARGETS = ("duckdb", "sqlite", "onnx float64", "torch float64", "onnx float32", "torch float32")


def predict_duckdb(fitted: cr.CalibrationMap, scores: np.ndarray) -> np.ndarray:
    expression = to_sql(fitted, "duckdb")
    table = "(SELECT unnest(?) AS score)"
    query = f"SELECT {expression} AS p FROM {table}"  # noqa: S608  (what is tested)
    with duckdb.connect() as connection:
        return connection.execute(query, [scores.tolist()]).fetchnumpy()["p"]


def predict_sqlite(fitted: cr.CalibrationMap, scores: np.ndarray) -> np.ndarray:
    expression = to_sql(fitted, "sqlite")
    query = f"SELECT {expression} FROM (SELECT ? AS score)"  # noqa: S608  (what is tested)
    connection = sqlite3.connect(":memory:")
    rows = [connection.execute(query, [score]).fetchone() for score in scores.tolist()]
    return np.array([row[0] for row in rows])


def predict_onnx(fitted: cr.CalibrationMap, scores: np.ndarray) -> np.ndarray:
    model = to_onnx(fitted, str(scores.dtype)).SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return session.run(None, {"score": scores})[0]


def predict_torch(fitted: cr.CalibrationMap, scores: np.ndarray) -> np.ndarray:
    return to_torch(fitted, str(scores.dtype))(torch.from_numpy(scores)).numpy()


ENGINES = {
    "duckdb": predict_duckdb,
    "sqlite": predict_sqlite,
    "onnx": predict_onnx,
    "torch": predict_torch,
}


def largest_error(fitted: cr.CalibrationMap, target: str, scores: np.ndarray) -> str:
    engine, _, dtype = target.partition(" ")
    # The bound of 1e30 rounds up in float32, so scores stay below it.
    given = np.clip(scores, -9e29, 9e29).astype(dtype or "float64")
    try:
        probabilities = ENGINES[engine](fitted, given)
    except cr.DataError:
        return "refused"
    difference = probabilities - fitted.predict(given.astype(np.float64))
    return f"{np.abs(difference).max():.0e}"


def time_of(connection: duckdb.DuckDBPyConnection, query: str) -> float:
    """Processor seconds, the best of three."""
    times = []
    for _ in range(3):
        start = time.process_time()
        connection.execute(f"CREATE OR REPLACE TABLE result AS {query}")
        times.append(time.process_time() - start)
    return min(times)


def print_many_levels(*, slopes: bool, levels: int = 100_000, rows: int = 5_000_000) -> None:
    rng = np.random.default_rng(0)
    names = [f"item {number}" for number in range(levels)]
    intercepts = rng.normal(size=levels).tolist()
    ones = (1.0,) * levels
    of_levels = tuple(rng.uniform(0.5, 2, levels).tolist()) if slopes else ones
    keys = tuple((name,) for name in names)
    term = LevelTerm(("item",), keys, tuple(intercepts), of_levels, ones, (1,) * levels, (1.0,))
    curve = cr.Platt().fit(np.arange(9.0), np.arange(9) % 2)
    fitted = cr.CalibrationMap(curve.curve, curve.record, (term,))
    given = pa.table(  # noqa: F841  (read by DuckDB)
        {
            "item": pa.array(names).take(pa.array(rng.integers(0, levels, rows))),
            "score": rng.normal(size=rows),
        }
    )
    columns = {"item": names, "intercept": intercepts, "slope": of_levels}
    known = pa.table(columns)  # noqa: F841  (read by DuckDB)
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE scores AS SELECT * FROM given")
        connection.execute("CREATE TABLE levels AS SELECT * FROM known")
        log_odds = "slope * score + intercept" if slopes else "score + intercept"
        formula = f"1 / (1 + exp(-({log_odds}))) AS p"
        plain = f"SELECT {formula} FROM scores LEFT JOIN levels USING (item)"  # noqa: S608  (ours)
        sql = f"SELECT {to_sql(fitted, 'duckdb')} AS p FROM scores"  # noqa: S608  (our own map)
        join = time_of(connection, plain)
        map_time = time_of(connection, sql)
    what = "intercepts and slopes" if slopes else "intercepts"
    print(f"SQL of {levels:,} {what} on {rows:,} rows: {map_time / join:.1f} plain joins")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--offset", type=float, default=0.0, help="added to every score")
    offset = parser.parse_args().offset
    rng = np.random.default_rng(0)
    centered = rng.normal(size=ROWS)
    labels = rng.random(ROWS) < 1 / (1 + np.exp(1 - 2 * centered))
    scores = (centered + offset).astype(np.float32).astype(np.float64)
    ordinary = np.linspace(scores.min() - 1, scores.max() + 1, 2_000)
    print("| map | SQL characters |", " | ".join(TARGETS), "|")
    print("|---" * (len(TARGETS) + 2) + "|")
    for method in METHODS:
        fitted = method.fit(scores, labels)
        tested = np.concatenate([ordinary, hard_scores(fitted)])
        errors = [largest_error(fitted, target, tested) for target in TARGETS]
        characters = len(to_sql(fitted, "duckdb"))
        print(f"| {method.name} | {characters:,} |", " | ".join(errors), "|")
    for slopes in (False, True):
        print_many_levels(slopes=slopes)


if __name__ == "__main__":
    main()
