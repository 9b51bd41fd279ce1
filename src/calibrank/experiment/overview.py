"""All results of a reproduction as plain data for a report page, with the published numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from calibrank.errors import DataError
from calibrank.experiment.statistics import Results, Spread

Find = Callable[[str, str, str, str, str], float | None]
"""Finds a published number by metric, method, loss, dataset and model."""

METRICS = {
    "ECE": "ECE",
    "ReleasedMCE": "MCE",
    "LogLoss": "NLL",
    "Brier": "",
    "CalibrationInTheLarge": "",
    "ECE@5": "",
    "NDCG@5": "NDCG@5",
    "Recall@5": "Recall@5",
}
"""The metrics shown, with the paper's name for each; "" where the paper does not report it."""
_KEYS = ("dataset", "spec", "split", "metric", "method", "loss", "model")


def read_rows(folder: Path) -> pa.Table:
    """The rows that `calibrank reproduce` wrote for one dataset, or for each below the folder."""
    files = sorted([*folder.glob("rows.parquet"), *folder.glob("*/rows.parquet")])
    if not files:
        raise DataError(
            folder, "hold rows.parquet", "no such file", "Write it with calibrank reproduce."
        )
    return Results.read(files).table


def overview(rows: pa.Table, find: Find) -> dict[str, Any]:
    """The cells of every protocol: means over seeds with half their 95% intervals."""
    # Without threads, groups come in the order of the rows.
    grouped = _main_rows(rows).group_by([*_KEYS], use_threads=False)
    groups = grouped.aggregate([("value", "list")])
    protocols: dict[str, dict[str, Any]] = {}
    for group in groups.to_pylist():
        if group["metric"] not in METRICS:
            continue
        title = f"{group['dataset']}, {group['spec']}, {group['split']} split"
        protocol = protocols.setdefault(title, {"dataset": group["dataset"], "cells": []})
        protocol["cells"].append(_cell(group, find))
    return {
        "protocols": protocols,
        "rows": rows.num_rows,
        "failed": rows["metric"].to_pylist().count("failed"),
        "made_by": _versions(rows),
    }


def _cell(group: dict[str, Any], find: Find) -> list[Any]:
    """Metric, method, loss, model; mean, half interval, number of seeds; the published number."""
    key = [group["metric"], group["method"], group["loss"], group["model"]]
    paper_metric = METRICS[group["metric"]]
    published = None
    if paper_metric:
        published = find(
            paper_metric, group["method"], group["loss"], group["dataset"], group["model"]
        )
    spread = Spread.of(np.array(group["value_list"]))
    return [*key, spread.mean, spread.half, spread.seeds, published]


def _main_rows(rows: pa.Table) -> pa.Table:
    """The rows with each spec's own number of negatives and with popularity propensities."""
    propensities = rows["propensity"].to_pylist()
    kept = np.array([name in ("", "popularity") for name in propensities])
    negatives = np.array(rows["negatives"].to_pylist())
    # The number may differ by dataset, spec and loss; ranking rows have no loss and no number.
    names = [rows[name].to_pylist() for name in ("dataset", "spec", "loss")]
    protocols = np.array([" ".join(parts) for parts in zip(*names, strict=True)])
    for protocol in np.unique(protocols[kept]):
        members = kept & (protocols == protocol)
        # A sweep varies the number for a few methods only, so the spec's own is the most frequent.
        values, counts = np.unique(negatives[members], return_counts=True)
        kept &= ~members | (negatives == values[np.argmax(counts)])
    return rows.take(np.flatnonzero(kept))


def _versions(rows: pa.Table) -> list[str]:
    """The versions of calibrank that wrote the rows."""
    provenances = rows["provenance"].unique().to_pylist()
    return sorted({text.split(",")[0] for text in provenances if text})
