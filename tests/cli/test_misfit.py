"""A family of the wrong shape is reported by `fit` and `diagnose`."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.cli.conftest import Call
from tests.cli.running import one_line


def test_a_misfit_is_reported_with_its_size_and_remedy(call: Call, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=20_000)
    # A step at 1, which no Gaussian map can follow.
    labels = (rng.random(20_000) < np.where(scores > 1, 0.9, 0.1)).astype(int)
    table = tmp_path / "t.parquet"
    pq.write_table(pa.table({"score": scores, "label": labels}), table)
    arguments = [table, "--log", "impressions"]
    out = ["-o", tmp_path / "map.json"]
    remedy = "Use the method auto"
    gaussian = ["--method", "gaussian"]
    assert remedy in one_line(call("fit", *arguments, *out, *gaussian)[1])
    assert remedy not in one_line(call("fit", *arguments, *out, "--method", "isotonic")[1])
    found = json.loads(call("fit", *arguments, *out, *gaussian, "--json")[1])["misfit"]
    assert abs(found["largest_difference"]) > 0.2
    assert remedy in one_line(call("diagnose", *arguments)[1])
