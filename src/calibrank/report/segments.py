"""Calibration by segment: bands of popularity and activity, and columns that were named; the worst first."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from calibrank._validation import Floats, add_up
from calibrank.report.ledger import Coded, Codes, Ledger
from calibrank.report.resampling import Clusters
from calibrank.report.user_sample import shortened

BANDS = 5
MOST = 30
"""Values of a column shown by name; the rest are one segment."""


def segment_tables(
    ledger: Ledger, probabilities: Floats, clusters: Clusters
) -> list[dict[str, Any]]:
    """One table a column, the one with the worst segment first."""
    tables = []
    for title, note, coded in _cuts(ledger):
        cells = coded.codes
        rows = _judged(ledger, probabilities, clusters, coded)
        if rows:
            tables.append(
                {"title": title, "note": note, "rows": rows, "values": len(np.unique(cells))}
            )
    return sorted(tables, key=lambda table: -table["rows"][0]["miss"])


def _cuts(ledger: Ledger) -> Iterator[tuple[str, str, Coded]]:
    if ledger.items is not None:
        note = "Bands of likes an item has among other users, so that a row's own label never chooses its band."
        yield "Popularity of the item", note, _bands(_popularity(ledger, ledger.items), "likes")
    if ledger.users is not None:
        rows = ledger.users.counts()[ledger.users.codes].astype(np.float64)
        yield "Activity of the user", "Bands of rows a user has in the table.", _bands(rows, "rows")
    for name, column in ledger.segments.items():
        if isinstance(column, Coded):
            yield name, "Values of the column.", _commonest(column)
        else:
            yield name, "Bands of about equally many rows.", _bands(column, "")


def _popularity(ledger: Ledger, items: Coded) -> Floats:
    """Likes of each row's item in the other folds."""
    folds = int(ledger.folds.max()) + 1
    liked = add_up(
        items.codes * folds + ledger.folds, ledger.labels, len(items.names) * folds
    ).reshape(-1, folds)
    return liked.sum(axis=1)[items.codes] - liked[items.codes, ledger.folds]


def _bands(values: Floats, unit: str) -> Coded:
    """About equally many rows a band; equal values are never parted."""
    known = values[~np.isnan(values)]
    edges = (
        np.unique(np.quantile(known, np.arange(1, BANDS) / BANDS, method="higher"))
        if len(known)
        else known
    )
    codes = np.searchsorted(edges, values, side="right")
    names = []
    for band in range(len(edges) + 1):
        inside = values[(codes == band) & ~np.isnan(values)]
        names.append(_band_name(inside, unit) if len(inside) else "")
    codes = np.where(np.isnan(values), len(names), codes).astype(np.intp)
    return Coded(codes, [*names, "(missing)"])


def _band_name(values: Floats, unit: str) -> str:
    low, high = (
        f"{end:,.0f}" if end == round(end) else f"{end:,.4g}"
        for end in (values.min(), values.max())
    )
    words = low if low == high else f"{low} to {high}"
    return f"{words} {unit}".strip()


def _commonest(column: Coded) -> Coded:
    if len(column.names) <= MOST:
        return column
    counts = column.counts()
    kept = np.argsort(-counts, kind="stable")[:MOST]
    places = np.full(len(counts), MOST)
    places[kept] = np.arange(MOST)
    rest = f"all {len(counts) - MOST:,} other values"
    return Coded(places[column.codes].astype(np.intp), [*(column.names[k] for k in kept), rest])


def _judged(
    ledger: Ledger, probabilities: Floats, clusters: Clusters, coded: Coded
) -> list[dict[str, Any]]:
    cells, size, evidence = coded.codes, len(coded.names), ledger.evidence
    positive, total, predicted = (
        clusters.sums(cells, mass, size)
        for mass in (evidence.positive, evidence.total, evidence.total * probabilities)
    )
    rows, mass = add_up(cells, None, size), total.sum(axis=0)
    observed = clusters.ratios(positive, total, rows)
    gap = clusters.ratios(positive, total, rows, predicted)
    users = _users_by(cells, size, ledger)
    found = [
        {
            "name": shortened(coded.names[cell]),
            "rows": int(rows[cell]),
            "users": None if users is None else int(users[cell]),
            "predicted": predicted[:, cell].sum() / mass[cell],
            "observed": [observed.value[cell], observed.low[cell], observed.high[cell]],
            "gap": [gap.value[cell], gap.low[cell], gap.high[cell]],
            "miss": max(gap.low[cell], -gap.high[cell], 0.0),
        }
        for cell in np.flatnonzero(mass > 0).tolist()
    ]
    return sorted(found, key=lambda row: (-row["miss"], -abs(row["gap"][0])))


def _users_by(cells: Codes, size: int, ledger: Ledger) -> Codes | None:
    if ledger.users is None:
        return None
    met = np.zeros((size, len(ledger.users.names)), dtype=bool)
    met[cells, ledger.users.codes] = True
    return met.sum(axis=1)
