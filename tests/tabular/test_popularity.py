"""Propensities from item popularity: commands, report and arrays use the same weighted counts."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import calibrank as cr
from calibrank.report.read_table import read_report_rows
from calibrank.tabular.aggregate import aggregate
from calibrank.tabular.columns import Columns
from calibrank.tabular.read import Table
from calibrank.tabular.rules import Rules

ROWS = 4_000


def weighted_table() -> dict[str, np.ndarray]:
    """A log in which weights and popularity are related, so that ignoring weights shows."""
    rng = np.random.default_rng(0)
    items = rng.integers(0, 30, ROWS)
    return {
        "score": rng.normal(size=ROWS),
        "label": (rng.random(ROWS) < 0.3).astype(np.int8),
        "item": items,
        "weight": np.where(items < 5, 7.0, 1.0) * rng.integers(0, 3, ROWS),
    }


def expected_propensity(rows: dict[str, np.ndarray]) -> np.ndarray:
    """By definition: (weight of positives / largest such weight) ** 0.5, at least 0.1."""
    counts = np.bincount(rows["item"], weights=rows["weight"] * rows["label"])
    return np.maximum((counts / counts.max()) ** 0.5, 0.1)[rows["item"]]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    pq.write_table(pa.table(weighted_table()), tmp_path / "log.parquet", row_group_size=500)
    return Table.find(str(tmp_path))


COLUMNS = Columns("score", "label", cr.ips, item="item", weight="weight")


def test_fit_counts_the_weights_of_positives(table: Table) -> None:
    rows = weighted_table()
    evidence = cr.ips(rows["label"], expected_propensity(rows), weights=rows["weight"])
    expected = cr.Summary.of(rows["score"], evidence)
    found = aggregate(table, COLUMNS, Rules(skip=False)).summary
    np.testing.assert_allclose(found.positive, expected.positive, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.total, expected.total, rtol=1e-12)


def test_report_counts_the_weights_of_positives(table: Table) -> None:
    rows = weighted_table()
    expected = cr.ips(rows["label"], expected_propensity(rows), weights=rows["weight"])
    found = read_report_rows(table, COLUMNS, Rules(skip=False)).evidence
    np.testing.assert_allclose(found.positive, expected.positive, rtol=1e-12)
    np.testing.assert_allclose(found.total, expected.total, rtol=1e-12)
