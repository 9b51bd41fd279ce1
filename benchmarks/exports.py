"""How far exported maps are from `predict`: the largest difference of a probability, ends and extreme scores included.

python benchmarks/exports.py [--offset 1e6]
"""

import argparse
import sqlite3

import duckdb
import numpy as np
import onnxruntime
import torch

import calibrank as cr
from calibrank.export import to_onnx, to_sql, to_torch
from calibrank.export.vectors import hard_scores

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


def answer(fitted: cr.CalibrationMap, target: str, scores: np.ndarray) -> np.ndarray:
    if target == "duckdb":
        with duckdb.connect() as connection:
            table = connection.execute(
                f"SELECT {to_sql(fitted, 'duckdb')} AS p FROM (SELECT unnest(?) AS score)",  # noqa: S608  (the expression under test)
                [scores.tolist()],
            )
            return table.fetchnumpy()["p"]
    if target == "sqlite":
        query = f"SELECT {to_sql(fitted, 'sqlite')} FROM (SELECT ? AS score)"  # noqa: S608  (the expression under test)
        connection = sqlite3.connect(":memory:")
        return np.array(
            [connection.execute(query, [score]).fetchone()[0] for score in scores.tolist()]
        )
    kind, dtype = target.split()
    if kind == "torch":
        return to_torch(fitted, dtype)(torch.from_numpy(scores)).numpy()
    model = to_onnx(fitted, dtype).SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return session.run(None, {"score": scores})[0]


def error(fitted: cr.CalibrationMap, target: str, scores: np.ndarray) -> str:
    given = np.clip(scores, -9e29, 9e29).astype(target.split()[1] if " " in target else "float64")
    try:
        difference = answer(fitted, target, given) - fitted.predict(given.astype(np.float64))
    except cr.DataError:
        return "refused"
    return f"{np.abs(difference).max():.0e}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--offset", type=float, default=0.0)
    offset = parser.parse_args().offset
    rng = np.random.default_rng(0)
    centred = rng.normal(size=20_000)
    labels = rng.random(20_000) < 1 / (1 + np.exp(1 - 2 * centred))
    scores = (centred + offset).astype(np.float32).astype(np.float64)
    asked = np.linspace(scores.min() - 1, scores.max() + 1, 2_000)
    print("| map | SQL characters |", " | ".join(TARGETS), "|")
    print("|---" * (len(TARGETS) + 2) + "|")
    for method in METHODS:
        fitted = method.fit(scores, labels)
        errors = [
            error(fitted, target, np.concatenate([asked, hard_scores(fitted)]))
            for target in TARGETS
        ]
        print(f"| {method.name} | {len(to_sql(fitted, 'duckdb')):,} |", " | ".join(errors), "|")


if __name__ == "__main__":
    main()
