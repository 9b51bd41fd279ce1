"""Commands find a table once, and read the schema of each file and the map once."""

import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import calibrank as cr
from calibrank.anchoring.posterior import posterior_curve
from calibrank.tabular.read import Table
from tests.cli.running import run_here

pytest.importorskip("rich")

FILES = 3
# The schema, the metadata of a pass, and the rows of one row group.
OPENS_OF_A_PASS = 3


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A table of three files, one of random pairs, and a map with a level."""
    rng = np.random.default_rng(0)
    for name in [f"log/part-{number}.parquet" for number in range(FILES)] + ["random.parquet"]:
        scores = rng.normal(size=400)
        columns = {
            "score": scores,
            "label": (rng.random(400) < 1 / (1 + np.exp(-scores))).astype(np.int8),
            "item": rng.integers(0, 20, 400),
            "country": rng.choice(["NL", "DE"], 400),
        }
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table(columns), file)
        if name == "random.parquet":
            model = cr.Platt() + cr.Level("country")
            model.fit(scores, columns["label"], columns).save(tmp_path / "map.json")
    return tmp_path


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """How often schemas and tables were read, and files were opened, by name."""
    found: Counter[str] = Counter()

    def count(owner: Any, name: str, kind: str) -> None:
        original = getattr(owner, name)

        def counting(first: Any, *arguments: Any, **options: Any) -> Any:
            given = os.fspath(first) if isinstance(first, str | Path) else ""
            found[f"{kind} {Path(given).name}".strip()] += 1
            return original(first, *arguments, **options)

        monkeypatch.setattr(owner, name, counting)

    count(pq, "read_schema", "schema")
    for name in ("read_schema", "read_metadata", "ParquetFile"):
        count(pq, name, "open")
    count(Table, "find", "find")
    count(cr.CalibrationMap, "to_dict", "serialized")
    return found


def run(folder: Path, *arguments: str) -> None:
    code, _, errors = run_here(*[text.replace("DIR", str(folder)) for text in arguments])
    assert code == 0, errors


def most(counted: Counter[str], kind: str) -> int:
    return max((count for name, count in counted.items() if name.startswith(kind)), default=0)


@pytest.mark.parametrize(
    "arguments",
    [
        ["fit", "DIR/log", "--item", "item", "--method", "platt", "-o", "DIR/fitted.json"],
        ["fit", "DIR/log", "--log", "impressions", "--segment", "country", "-o", "DIR/fitted.json"],
        ["anchor", "DIR/map.json", "DIR/random.parquet", "-o", "DIR/anchored.json"],
        ["evaluate", "DIR/random.parquet", "--map", "DIR/map.json"],
    ],
    ids=["fit", "fit with levels", "anchor", "evaluate"],
)
def test_a_schema_is_read_once(folder: Path, counted: Counter[str], arguments: list[str]) -> None:
    run(folder, *arguments)
    assert most(counted, "schema") == 1
    assert most(counted, "open") <= OPENS_OF_A_PASS
    assert most(counted, "find") == 1


def test_apply_serializes_the_map_once(folder: Path, counted: Counter[str]) -> None:
    run(folder, "apply", "DIR/map.json", "DIR/log", "-o", "DIR/out")
    assert counted["serialized"] <= 1
    assert most(counted, "find") == 1
    # Once to find its columns, and once to write them.
    assert most(counted, "schema") <= 2
    assert len(list((folder / "out").iterdir())) == FILES


def test_the_curve_of_an_anchor_with_ranks_is_solved_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    solved = []

    def counting(*arguments: Any, **options: Any) -> Any:
        solved.append(1)
        return posterior_curve(*arguments, **options)

    # The package has the function under the name of the module.
    module = sys.modules["calibrank.anchoring.anchor"]
    monkeypatch.setattr(module, "posterior_curve", counting)
    table = pq.read_table(folder / "random.parquet")
    ranked = table.append_column("rank", pa.array(np.arange(len(table)) % 10 + 1))
    pq.write_table(ranked, folder / "random.parquet")
    options = ["--rank", "rank", "-o", "DIR/anchored.json"]
    run(folder, "anchor", "DIR/map.json", "DIR/random.parquet", *options)
    assert len(solved) == 1
