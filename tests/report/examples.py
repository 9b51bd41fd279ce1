"""Names and tables that the tests of the report share."""

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

HOSTILE = (
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "{{7*7}}",
    "{{style}}",
    "\u202eevil\u2028line\u2029",
    "שלום 👩‍🚀",
    "<!--<script>",
    "&lt;b&gt; ' \\ ]]>",
)
"""Names that would break a page which treats them as markup, code or a template."""


def data_of(page: str) -> dict[str, Any]:
    """The JSON data embedded in a page."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found[1])


def write_result_rows(folder: Path) -> None:
    """Write rows as `calibrank reproduce` does: two seeds, and other negatives for one method."""
    rows = []
    for seed in range(2):
        for method, loss in (("MinMax", "none"), ("Gaussian", "naive"), ("Gaussian", "ips")):
            for metric, value in (("ECE", 0.1), ("LogLoss", 0.5), ("failed", 1.0)):
                rows.append((method, loss, 21, seed, metric, value + 0.01 * seed))
        rows.append(("Gaussian", "ips", 100, seed, "ECE", 0.9))
        rows.append(("", "", 0, seed, "NDCG@5", 0.6))
    names = ("method", "loss", "negatives", "seed", "metric", "value")
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    constant = {
        "dataset": "coat",
        "spec": "trained",
        "split": "random",
        "model": "BPR",
        "provenance": "calibrank 0.1.0, x",
    }
    for name, value in constant.items():
        columns[name] = [value] * len(rows)
    columns["propensity"] = ["popularity" if method else "" for method in columns["method"]]
    folder.mkdir(parents=True)
    pq.write_table(pa.table(columns), folder / "rows.parquet")
