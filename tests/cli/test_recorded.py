"""Every command that reads labels uses the recorded roles, and options win over them."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrank.tabular.columns import Roles
from tests.cli.conftest import Call
from tests.cli.running import one_line

WEIGHT = "Using weight column 'mass' (recorded by calibrank score)"
PROPENSITY = "Using propensity column 'relative_propensity' (recorded by calibrank score)"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=3_000)
    columns = {
        "user": rng.integers(0, 50, 3_000),
        "s": scores,
        "label": (rng.random(3_000) < 0.4 / (1 + np.exp(-scores))).astype("int8"),
        "relative_propensity": rng.uniform(0.5, 1, 3_000),
        "mass": np.ones(3_000),
        "probability": np.full(3_000, 0.2),
    }
    roles = {"score": "s", "weight": "mass", "relative_propensity": "relative_propensity"}
    written = pa.table(columns).replace_schema_metadata(Roles(roles, "calibrank score").metadata())
    pq.write_table(written, tmp_path / "t.parquet")
    return tmp_path / "t.parquet"


@pytest.mark.filterwarnings("ignore::calibrank.errors.FlatMapWarning")
@pytest.mark.parametrize("command", ["fit", "compare", "diagnose", "evaluate", "report"])
def test_recorded_columns_are_used_and_named(call: Call, table: Path, command: str) -> None:
    out = ["-o", table.parent / "out.html"] if command in ("fit", "report") else []
    if command == "report":
        assert call("fit", table, "-o", table.parent / "map.json")[0] == 0
        out += ["--map", table.parent / "map.json"]
    code, _, error = call(command, table, *out)
    assert code == 0, error
    assert WEIGHT in one_line(error)
    assert (PROPENSITY in one_line(error)) == (command != "evaluate")
    _, _, error = call(command, table, "--weight", "mass", *out)
    assert WEIGHT not in one_line(error)


def test_an_estimated_propensity_is_never_a_logged_one(call: Call, table: Path) -> None:
    options = ["--propensity", "relative_propensity", "--log", "policy"]
    code, _, error = call("diagnose", table, *options)
    assert code == 2
    assert "must have probabilities that your system logged, got 'relative_propensity'" in one_line(
        error
    )
