"""Calibration by fields: levels and smooth terms against MCGrad, boosted trees and probcal.

    python benchmarks/fields.py FOLDER [--score prediction] [--label label]

FOLDER has `train.parquet` and `test.parquet` with a model's probabilities, labels of 0 and 1, and
other columns, which are the fields. All methods are fitted on the first file, with their defaults,
and evaluated on the second. Differences are to the lowest log loss, with paired standard errors;
those of the mean field RCE come from 200 bootstrap samples of rows. Times are of
the processor, in seconds, the best of three.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import calibrank as cr
from calibrank.metrics import ECE, FieldRCE

RUNS = 3
SAMPLES = 200
Columns = dict[str, np.ndarray]


class Table:
    """One file: log odds of the model, labels and fields."""

    def __init__(self, path: Path, score: str, label: str) -> None:
        table = pq.read_table(path)
        self.probabilities = np.clip(table[score].to_numpy().astype(float), 1e-6, 1 - 1e-6)
        self.scores = np.log(self.probabilities / (1 - self.probabilities))
        self.labels = table[label].to_numpy().astype(float)
        names = [name for name in table.column_names if name not in (score, label)]
        self.fields: Columns = {name: table[name].to_numpy() for name in names}

    def matrix(self) -> np.ndarray:
        """Score and fields as numbers; text by its order."""
        columns = [self.scores]
        for values in self.fields.values():
            is_number = np.issubdtype(values.dtype, np.number)
            columns.append(values if is_number else np.unique(values, return_inverse=True)[1])
        return np.column_stack(columns)


Method = Callable[[Table, Table], np.ndarray]


def ours(*terms: type) -> Method:
    """A spline plus these terms of every field."""

    def method(train: Table, test: Table) -> np.ndarray:
        model: Any = cr.Spline()
        for name, values in train.fields.items():
            for term in terms:
                if term is cr.Level or np.issubdtype(values.dtype, np.number):
                    model = model + term(name)
        if not terms:
            return model.fit(train.scores, train.labels).predict(test.scores)
        fitted = model.fit(train.scores, train.labels, train.fields)
        return fitted.predict(test.scores, test.fields)

    return method


def both(train: Table, test: Table) -> np.ndarray:
    """A level per field, and smooth terms of copies of them: a column has one term in a model."""
    model: Any = cr.Spline()
    rows: list[Columns] = [dict(train.fields), dict(test.fields)]
    for name, values in train.fields.items():
        model = model + cr.Level(name)
        if np.issubdtype(values.dtype, np.number):
            model = model + cr.Smooth(f"{name} as a number")
            for given in rows:
                given[f"{name} as a number"] = given[name]
    fitted = model.fit(train.scores, train.labels, rows[0])
    return fitted.predict(test.scores, rows[1])


def raw(_: Table, test: Table) -> np.ndarray:
    return test.probabilities


def platt(train: Table, test: Table) -> np.ndarray:
    return cr.Platt().fit(train.scores, train.labels).predict(test.scores)


def boosted_trees(train: Table, test: Table) -> np.ndarray:
    from sklearn.ensemble import HistGradientBoostingClassifier

    trees = HistGradientBoostingClassifier(random_state=0).fit(train.matrix(), train.labels)
    return trees.predict_proba(test.matrix())[:, 1]


def boosted_trees_stopped(train: Table, test: Table) -> np.ndarray:
    from sklearn.ensemble import HistGradientBoostingClassifier

    trees = HistGradientBoostingClassifier(early_stopping=True, random_state=0)
    return trees.fit(train.matrix(), train.labels).predict_proba(test.matrix())[:, 1]


def mcgrad(train: Table, test: Table) -> np.ndarray:
    import pandas as pd
    from mcgrad import methods

    kinds: dict[str, list[str]] = {"numerical": [], "categorical": []}
    for name, values in train.fields.items():
        kind = "numerical" if np.issubdtype(values.dtype, np.floating) else "categorical"
        kinds[kind].append(name)
    names = {f"{kind}_feature_column_names": each or None for kind, each in kinds.items()}
    frame = pd.DataFrame({**train.fields, "p": train.probabilities, "y": train.labels})
    peer = methods.MCGrad()
    peer.fit(df_train=frame, label_column_name="y", prediction_column_name="p", **names)
    others = pd.DataFrame({**test.fields, "p": test.probabilities})
    return np.asarray(peer.predict(df=others, prediction_column_name="p", **names))


def mcgrad_numbers(train: Table, test: Table) -> np.ndarray:
    """The same, with whole numbers as numbers."""
    for table in (train, test):
        for name, values in table.fields.items():
            if np.issubdtype(values.dtype, np.integer):
                table.fields[name] = values.astype(float)
    return mcgrad(train, test)


def probcal(train: Table, test: Table) -> np.ndarray:
    """Shrunk offsets of the field with the lowest log loss in the first file: it takes one."""
    from probcal import SegmentedCalibrator, SplineCalibrator

    best = np.inf
    for name, values in train.fields.items():
        peer = SegmentedCalibrator(SplineCalibrator())
        peer.fit(train.probabilities, train.labels, segments=values)
        fitted = peer.predict_proba(train.probabilities, segments=values)
        loss = losses(fitted, train.labels).mean()
        if loss < best:
            best = loss
            found = peer.predict_proba(test.probabilities, segments=test.fields[name])
    return found


METHODS: dict[str, Method] = {
    "raw": raw,
    "Platt": platt,
    "Spline": ours(),
    "Spline + levels": ours(cr.Level),
    "Spline + smooth": ours(cr.Smooth),
    "Spline + both": both,
    "boosted trees": boosted_trees,
    "boosted trees, early stopping": boosted_trees_stopped,
    "MCGrad": mcgrad,
    "MCGrad, fields as numbers": mcgrad_numbers,
    "probcal, one field": probcal,
}


def losses(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    p = np.clip(probabilities, 1e-9, 1 - 1e-9)
    return -(labels * np.log(p) + (1 - labels) * np.log1p(-p))


def run(method: Method, folder: Path, score: str, label: str) -> tuple[np.ndarray, float]:
    seconds = []
    for _ in range(RUNS):
        train = Table(folder / "train.parquet", score, label)
        test = Table(folder / "test.parquet", score, label)
        start = time.process_time()
        probabilities = method(train, test)
        seconds.append(time.process_time() - start)
    return probabilities, min(seconds)


def field_rces(probabilities: np.ndarray, test: Table, samples: np.ndarray) -> np.ndarray:
    """The mean field RCE of all rows, and of each bootstrap sample."""
    metric = FieldRCE(*test.fields)
    values = []
    for rows in [np.arange(len(test.labels)), *samples]:
        columns = {name: each[rows] for name, each in test.fields.items()}
        values.append(metric(probabilities[rows], test.labels[rows], columns=columns))
    return np.array(values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--score", default="prediction")
    parser.add_argument("--label", default="label")
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    given = parser.parse_args()
    test = Table(given.folder / "test.parquet", given.score, given.label)
    rng = np.random.default_rng(0)
    samples = rng.integers(0, len(test.labels), (SAMPLES, len(test.labels)))
    found = {}
    for name in given.methods:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                p, seconds = run(METHODS[name], given.folder, given.score, given.label)
        except ImportError as error:
            print(f"{name}: not installed ({error.name})")
            continue
        found[name] = (p, losses(p, test.labels), field_rces(p, test, samples), seconds)
    best_loss = min((each[1] for each in found.values()), key=np.mean)
    best_rce = min((each[2] for each in found.values()), key=lambda values: values[0])
    print("method | log loss | above the lowest (se) | field RCE | above the lowest (se) | ECE | s")
    for name, (p, loss, rce, seconds) in found.items():
        more = loss - best_loss
        error = more.std() / np.sqrt(len(more))
        wider = rce - best_rce
        print(
            f"{name} | {loss.mean():.5f} | {more.mean():.5f} ({error:.5f}) | {rce[0]:.4f} | "
            f"{wider[0]:.4f} ({wider[1:].std():.4f}) | {ECE()(p, test.labels):.4f} | {seconds:.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
