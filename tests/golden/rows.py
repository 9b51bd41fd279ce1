"""Predictions, parameters and metrics of every calibrator with every kind of evidence.

The numbers are computed on `table.csv`, a small fixed table, and frozen in `rows.json`. When a
change of the numbers is intended, rewrite them from the root of the repository and review the diff:

    python -m tests.golden.rewrite
"""

import csv
import inspect
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import calibrank as cr
from calibrank.errors import FlatMapWarning
from calibrank.registry import CALIBRATORS, EVIDENCE, METRICS

FOLDER = Path(__file__).parent
TABLE = FOLDER / "table.csv"
ROWS = FOLDER / "rows.json"
SCORES = np.linspace(-4, 5, 19)
"""Where maps are evaluated: the table's scores lie between -2.2 and 2.9."""


def read_table() -> dict[str, np.ndarray]:
    """The columns user, score, label, propensity and weight."""
    with TABLE.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}


def evidence_of(kind: str, table: dict[str, np.ndarray]) -> cr.Evidence:
    constructor = EVIDENCE[kind]
    arguments = {"weights": table["weight"]}
    if "propensity" in inspect.signature(constructor).parameters:
        arguments["propensity"] = table["propensity"]
    return constructor(table["label"], **arguments)


def row_of(calibrator: cr.Calibrator, kind: str, table: dict[str, np.ndarray]) -> dict[str, Any]:
    """The frozen numbers of one fit."""
    evidence = evidence_of(kind, table)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FlatMapWarning)
        fitted = calibrator.fit(table["score"], evidence)
    interval = fitted.sampling_interval(SCORES)
    probabilities = fitted.predict(table["score"])
    users = table["user"].astype(int)
    metrics = {name: metric(probabilities, evidence, users) for name, metric in METRICS.items()}
    return {
        "parameters": fitted.parameters,
        "standard_errors": fitted.standard_errors,
        "probabilities": fitted.predict(SCORES).tolist(),
        "low": interval.low.tolist(),
        "high": interval.high.tolist(),
        "metrics": metrics,
    }


def compute_rows() -> dict[str, dict[str, Any]]:
    """One row per calibrator and kind of evidence."""
    table = read_table()
    rows = {}
    for name, calibrator in CALIBRATORS.items():
        for kind in EVIDENCE:
            rows[f"{name}/{kind}"] = row_of(calibrator, kind, table)
    return rows


def read_rows() -> dict[str, dict[str, Any]]:
    return json.loads(ROWS.read_text(encoding="utf-8"))


def write_rows(rows: dict[str, dict[str, Any]]) -> None:
    """One line per row, so that a diff shows which fits changed."""
    lines = [f"{json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items()]
    ROWS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
