"""Killed workers, damaged files and specs of the wrong type."""

import errno
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrank.errors import DataError
from calibrank.experiment import runner
from calibrank.experiment.spec import Spec
from calibrank.models import Training

SPEC = """
title = "t"
why = "w"
splits = ["random"]
models = ["BPR", "UBPR"]
methods = ["Platt"]
losses = ["ips"]
why_negatives = "w"
negatives = {default = {ips = 1}}
"""


class Pool:
    """Runs nothing; a cell that kills its worker breaks the pool, and with it what is running."""

    deadly: Any = ()
    started: Any = None

    def __init__(self, jobs: int, mp_context: Any) -> None:
        self.broken = False
        self.running: list[Future[None]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, _: Any, grid: Any, cell: Any) -> Future[None]:
        if self.broken:
            raise BrokenProcessPool
        self.started[cell] += 1
        future = Future[None]()
        if cell in self.deadly:
            self.broken = True
            future.set_exception(BrokenProcessPool())
        else:
            future.set_result(None)
        return future


@pytest.mark.parametrize("jobs", [1, 2, 3])
def test_only_the_cell_that_kills_its_worker_fails(
    monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    monkeypatch.setattr(runner, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr(Pool, "deadly", ("c", "e"))
    monkeypatch.setattr(Pool, "started", Counter())
    cells: Any = list("abcdefg")
    # The stand-in for a pool never looks at the grid, so there is none.
    outcomes = dict(runner._outcomes(None, cells, jobs))
    assert sorted(outcomes) == cells
    assert [cell for cell in cells if outcomes[cell] is not None] == ["c", "e"]
    assert Pool.started["c"] == 2


def test_a_full_disk_is_no_fault_of_a_cell(tmp_path: Path, monkeypatch: Any) -> None:
    """The run ends at once with the error, and the remaining cells do not start."""

    def full(_grid: Any, cell: Any, *_: Any) -> Iterator[Any]:
        try:
            yield cell, OSError(errno.ENOSPC, "No space left on device")
        finally:
            ended.append(cell)

    ended: list[Any] = []
    monkeypatch.setattr(runner, "_in_pool", lambda grid, cells, _: full(grid, cells[0]))
    monkeypatch.setattr(runner, "require_torch", lambda: None)
    (tmp_path / "s.toml").write_text(SPEC)
    spec = Spec.load(tmp_path / "s.toml")
    grid = runner.Grid("synthetic", None, (spec,), 1, Training(epochs=1), tmp_path / "out")
    with pytest.raises(OSError, match="No space left"):
        runner.run_grid(grid, 1, lambda *_: None)
    assert len(ended) == 1
    assert not (tmp_path / "out").exists()


def test_damaged_files_of_a_cell_are_recognized(tmp_path: Path) -> None:
    rows = tmp_path / "cell.parquet"
    pq.write_table(
        pa.table({"x": np.random.default_rng(0).random(500)}), rows, write_page_checksum=True
    )
    assert runner.read_intact(rows) is not None
    content = bytearray(rows.read_bytes())
    content[2000] ^= 1
    rows.write_bytes(content)
    assert runner.read_intact(rows) is None
    rows.write_bytes(content[:300])
    assert runner.read_intact(rows) is None
    assert runner.read_intact(tmp_path / "none.parquet") is None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('splits = "random"', "splits must be a list of strings"),
        ("models = [1]", "models must be a list of strings"),
        ("methods = []", "methods must name at least one"),
        ("title = 5", "title must be a string"),
        ('power = "x"', "power must be a finite number"),
        ("power = nan", "power must be a finite number"),
        ("clip = 0", "clip must lie in"),
        ("sweep = 5", "sweep must be a list of whole numbers"),
        ("sweep = [-1]", "sweep must be a list of whole numbers"),
        ("sweep = [1000001]", "sweep must be a whole number, 0 to 1,000,000"),
        ("negatives = 3", "negatives must be a JSON object"),
        ("negatives = {default = {ips = 1e9}}", "default, ips must be a whole number"),
        ("settings = {coat = 3}", "settings, coat must be a JSON object"),
        ('settings = {coat = {BPR = {dim = "x"}}}', "coat, BPR, dim must be a whole number"),
        ('settings = {coat = {UBPR = {propensity = "x"}}}', "propensity must be left out"),
        ('name = "x"', "must hold only title, .*, got field 'name'"),
    ],
)
def test_specs_of_the_wrong_type_are_refused(tmp_path: Path, line: str, message: str) -> None:
    key = line.split(" = ", maxsplit=1)[0]
    kept = [each for each in SPEC.splitlines() if each.split(" = ")[0] != key]
    path = tmp_path / "s.toml"
    path.write_text("\n".join(kept))
    if key in SPEC:
        path.write_text("\n".join([*kept, line]))
    else:
        path.write_text("\n".join([line, *kept]))
    with pytest.raises(DataError, match=message):
        Spec.load(path)


def test_a_spec_must_be_utf8(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_bytes(SPEC.encode() + b"# \xe9")
    with pytest.raises(DataError, match="must be TOML"):
        Spec.load(tmp_path / "s.toml")
