"""The report names a command that fits the wrong segments: it runs as printed, and fixes them."""

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import calibrank as cr
from calibrank.report.rows import rows_from_arrays
from calibrank.report.segments import segment_test
from tests.cli.conftest import Call, call  # noqa: F401  (a fixture)

ROWS = 3_000


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with unusual column names whose level differs by country, and by age in another."""
    folder = tmp_path_factory.mktemp("fit command")
    rng = np.random.default_rng(0)
    user = np.arange(ROWS) // 10
    country = np.array(["NL", "DE", "it's"])[user % 3]
    age = rng.uniform(0, 10, ROWS)
    scores = rng.normal(size=ROWS)
    shift = {"by country": 1.2 * (country == "NL"), "by age": 0.3 * age}
    for name, change in shift.items():
        liked = rng.random(ROWS) < 1 / (1 + np.exp(-(scores - 2 + change)))
        propensity = rng.uniform(0.7, 1, ROWS)
        observed = liked & (rng.random(ROWS) < propensity)
        table = {"who": user, "my score": scores, "stars": 1 + 4 * observed, "country": country}
        table |= {"age": age, "chance": propensity}
        pq.write_table(pa.table(table), folder / f"{name}.parquet")
    return folder


@pytest.mark.parametrize(
    ("name", "option"), [("by country", "--segment country"), ("by age", "--feature age")]
)
def test_the_printed_command_runs_and_its_map_is_right(
    tables: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: Call,  # noqa: F811  (the fixture)
    name: str,
    option: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    table = str(tables / f"{name}.parquet")
    options = [
        "--score",
        "my score",
        "--positive",
        "stars >= 4",
        "--user",
        "who",
    ]
    options += ["--propensity", "chance", "--segment", "country", "--segment", "age"]
    code, printed, _ = call("report", table, *options, "-o", "before.html", "--json")
    assert code == 0
    before = json.loads(printed)["segment_test"]
    assert before["deviating"] > 0
    assert option in before["command"]
    page = Path("before.html").read_text(encoding="utf-8")
    found = re.search(r'"command":\s*("calibrank fit (?:[^"\\]|\\.)*")', page)
    assert found
    command = shlex.split(json.loads(found[1]))
    assert command[0] == "calibrank"
    assert shlex.join(command) == before["command"]
    code, _, error = call(*command[1:])
    assert code == 0, error
    _, printed, _ = call(
        "report", table, *options, "--map", "map.json", "-o", "after.html", "--json"
    )
    after = json.loads(printed)
    assert after["segment_test"]["deviating"] < before["deviating"] / 2
    segments = [segment for table in after["segments"] for segment in table["segments"]]
    assert max(abs(each["global_predicted"] - each["predicted"]) for each in segments) > 0.05
    fitted = cr.load("map.json")
    assert (fitted.segment_columns or fitted.feature_columns)[0] in option


def test_columns_with_missing_numbers_are_not_features() -> None:
    values = np.array([1.0, np.nan, 2.0, 3.0])
    rows = rows_from_arrays([0.1, 0.2, 0.3, 0.4], [0, 1, 0, 1])
    rows = replace(rows, segments={"age": values})
    tables = [{"title": "age", "segments": [{"p_value": 0.001}]}]
    assert segment_test(tables, rows, "log.parquet")["command"] is None
