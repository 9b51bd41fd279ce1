"""All numbers of a reproduction at once, as plain data for a page: means with intervals, published ones beside."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from calibrank.errors import DataError
from calibrank.experiment.statistics import Spread

Find = Callable[[str, str, str, str, str], float | None]
"""A published number by metric, method, loss, dataset and model."""

METRICS = {
    "ECE": "ECE",
    "ReleasedMCE": "MCE",
    "LogLoss": "NLL",
    "Brier": "",
    "CalibrationInTheLarge": "",
    "ECE of top 5": "",
    "NDCG@5": "NDCG@5",
    "Recall@5": "Recall@5",
}
"""Metrics shown, and how the paper calls them, if it has them."""
_KEYS = ("dataset", "spec", "split", "metric", "method", "loss", "model")


def read_rows(folder: Path) -> pa.Table:
    """The rows that `calibrank reproduce` wrote: of one dataset, or of every one below the folder."""
    files = sorted([*folder.glob("rows.parquet"), *folder.glob("*/rows.parquet")])
    if not files:
        raise DataError(
            f"{folder} must hold rows.parquet, got no such file. Write it with calibrank reproduce."
        )
    return pa.concat_tables([pq.read_table(file) for file in files])


def overview(rows: pa.Table, find: Find) -> dict[str, Any]:
    """Every protocol's cells, each the mean over seeds with half its 95 % interval."""
    groups = _main_rows(rows).group_by([*_KEYS], use_threads=False).aggregate([("value", "list")])
    protocols: dict[str, dict[str, Any]] = {}
    for row in groups.to_pylist():
        if row["metric"] not in METRICS:
            continue
        title = f"{row['dataset']}, {row['spec']}, {row['split']} split"
        cells = protocols.setdefault(title, {"dataset": row["dataset"], "cells": []})["cells"]
        printed = METRICS[row["metric"]]
        known = (
            find(printed, row["method"], row["loss"], row["dataset"], row["model"])
            if printed
            else None
        )
        spread = Spread.of(np.array(row["value_list"]))
        place = (row["metric"], row["method"], row["loss"], row["model"])
        cells.append([*place, spread.mean, spread.half, spread.seeds, known])
    provenance = sorted(
        {text.split(",")[0] for text in rows["provenance"].unique().to_pylist() if text}
    )
    return {
        "protocols": protocols,
        "rows": rows.num_rows,
        "failed": _failed(rows),
        "made_by": provenance,
    }


def _main_rows(rows: pa.Table) -> pa.Table:
    """Rows of each protocol's own number of negatives and propensity: sweeps over others are left aside."""
    kept = np.array([name in ("", "popularity") for name in rows["propensity"].to_pylist()])
    specs, negatives = (np.array(rows[name].to_pylist()) for name in ("spec", "negatives"))
    ranked = np.array([method == "" for method in rows["method"].to_pylist()])
    for spec in np.unique(specs[kept]):
        mine = kept & (specs == spec) & ~ranked
        # A sweep varies one spec's number for a few methods only, so its own is the commonest.
        values, counts = np.unique(negatives[mine], return_counts=True)
        if len(values):
            kept &= (specs != spec) | ranked | (negatives == values[np.argmax(counts)])
    return rows.take(np.flatnonzero(kept))


def _failed(rows: pa.Table) -> int:
    return sum(name == "failed" for name in rows["metric"].to_pylist())
