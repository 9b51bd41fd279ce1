"""A disk that is full when files would be put in place: one line, nothing left, old files intact.

A command that writes otherwise than by `calibrank._internal.atomic` leaves a file here.
"""

import errno
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrank._internal import atomic
from tests.cli.running import run_here

RNG = np.random.default_rng(0)
SCORES = RNG.normal(size=200)
TABLE = {
    "user_id": np.arange(200) // 8,
    "item_id": np.arange(200) % 8 + RNG.integers(0, 3, 200),
    "score": SCORES,
    "label": (RNG.random(200) < 1 / (1 + np.exp(-SCORES))).astype(int),
}
FIT = "fit t.parquet --log impressions --method platt -o"
COMMANDS = {
    "fit": f"{FIT} out.json",
    "anchor": "anchor map.json t.parquet -o out.json",
    "apply": "apply map.json t.parquet -o out.parquet",
    "apply a folder": "apply map.json folder -o out",
    "report": "report t.parquet --map map.json -o out.html",
    "monitor": "monitor out --map map.json --add t.parquet --date 2026-01-02",
    "export": "export map.json --to json -o out.json",
    "search fit": "search fit run.trec qrels.txt -o out.json",
    "search apply": "search apply map.json run.trec -o out.trec",
    "search plan": "search plan map.json run.trec -o out.csv",
    "demo": "demo --pairs 1000 --out out",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    (folder / "folder").mkdir()
    for name in ("t.parquet", "folder/a.parquet", "folder/b.parquet"):
        pq.write_table(pa.table(TABLE), folder / name)
    documents = [(f"q{query}", f"d{rank}", rank) for query in range(12) for rank in range(10)]
    run = [f"{query} Q0 {name} {rank} {10 - rank} r\n" for query, name, rank in documents]
    qrels = [f"{query} 0 {name} {rank * 7 % 10 < 4:d}\n" for query, name, rank in documents]
    (folder / "run.trec").write_text("".join(run))
    (folder / "qrels.txt").write_text("".join(qrels))
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_is_left(command: str, files: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(files)
    if not Path("map.json").exists():
        assert run_here(*f"{FIT} map.json".split())[0] == 0
    before = {path: path.stat().st_mtime_ns for path in files.rglob("*") if path.is_file()}

    def full(_partial: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(target))

    monkeypatch.setattr(atomic, "_replace", full)
    code, _, error = run_here(*COMMANDS[command].split())
    assert code == 3, error
    assert "the output must fit on the disk, got: [Errno 28]" in error.splitlines()[-1]
    assert {path: path.stat().st_mtime_ns for path in files.rglob("*") if path.is_file()} == before
    assert not list(files.glob("out*"))
