"""Run a grid of cells: each is saved atomically, and a rerun computes only what is missing."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import calibrank
from calibrank._internal.atomic import atomic_path, write_atomic
from calibrank._internal.json import digest_of
from calibrank.data import Dataset, simulate
from calibrank.errors import DataError
from calibrank.experiment.cell import Cell, run_cell
from calibrank.experiment.results import SCHEMA
from calibrank.experiment.spec import EXPERIMENT_DATASETS, Spec, configured
from calibrank.models import Training
from calibrank.models.checkpoints import delete_if_damaged, fingerprint
from calibrank.models.training import require_torch
from calibrank.registry import load_dataset

# The Parquet metadata key under which a cell's fingerprint is stored.
_FINGERPRINT_KEY = b"calibrank"
# Slow models are started first, so that no worker is still busy with one when the rest are done.
_SLOWEST_FIRST = ("NCF", "LightGCN", "CML", "UBPR", "BPR")

Progress = Callable[[Cell, BaseException | None], None]
Outcome = tuple[Cell, BaseException | None]


@dataclass(frozen=True, slots=True)
class Grid:
    """What to run and where its results go."""

    dataset: str
    data: str | None
    specs: tuple[Spec, ...]
    seeds: int
    training: Training
    out: Path

    def cells(self) -> list[Cell]:
        """Every cell that a spec asks for, slow models first."""
        cells = set()
        for spec in self.specs:
            for model in spec.models:
                settings = spec.settings_for(self.dataset, model)
                for split in spec.splits:
                    for seed in range(self.seeds):
                        cells.add(Cell(self.dataset, split, model, seed, settings))
        return sorted(cells, key=_start_order)

    def specs_for(self, cell: Cell) -> list[Spec]:
        """The specs that ask for a cell."""
        return [
            spec
            for spec in self.specs
            if cell.split in spec.splits
            and cell.model in spec.models
            and spec.settings_for(cell.dataset, cell.model) == cell.settings
        ]

    def fingerprint(self, cell: Cell) -> str:
        """A digest of everything that a cell's rows depend on."""
        content = {
            "version": calibrank.__version__,
            "cell": asdict(cell),
            "specs": [_content(spec) for spec in self.specs_for(cell)],
            "settings": repr(configured(cell.model, dict(cell.settings), self.training)),
            "data": _data_digest(self.dataset, self.data),
        }
        # Through JSON and back, so that tuples and lists give the same digest.
        return digest_of(json.loads(json.dumps(content)))

    def file(self, cell: Cell) -> Path:
        """Where a cell's rows are saved."""
        return self.out / "cells" / f"{cell.key}.parquet"

    def predictions_file(self, cell: Cell) -> Path:
        """Where the predictions of a cell with seed 0 are saved, for figures."""
        return self.out / "predictions" / f"{cell.key}.parquet"

    def failure_file(self, cell: Cell) -> Path:
        """Where the error of a failed cell is saved."""
        return self.out / "failed" / f"{cell.key}.json"

    def is_done(self, cell: Cell) -> bool:
        """Whether the cell has been saved, undamaged, with its present fingerprint."""
        files = [self.file(cell), self.predictions_file(cell)][: 2 - (cell.seed > 0)]
        tables = [read_intact(file) for file in files]
        expected = self.fingerprint(cell).encode()
        return all(
            table is not None and (table.schema.metadata or {}).get(_FINGERPRINT_KEY) == expected
            for table in tables
        )


def run_grid(grid: Grid, jobs: int, progress: Progress) -> dict[Cell, str]:
    """Run the missing cells, `jobs` at a time; returns the errors of those that failed."""
    # Missing data or a missing package is reported once, here, not by every worker.
    _load(grid.dataset, grid.data)
    missing = [cell for cell in grid.cells() if not grid.is_done(cell)]
    if missing:
        require_torch()
    failed: dict[Cell, str] = {}
    for cell, error in _outcomes(grid, missing, jobs):
        if isinstance(error, OSError):
            raise error  # of the disk, not of the cell: the others would fail, too
        progress(cell, error)
        if error is None:
            grid.failure_file(cell).unlink(missing_ok=True)
        else:
            failed[cell] = f"{type(error).__name__}: {error}"
            record = {"cell": asdict(cell), "error": failed[cell]}
            write_atomic(grid.failure_file(cell), json.dumps(record, indent=1))
    return failed


def collect(grid: Grid) -> pa.Table:
    """The rows of all finished cells, also written to `rows.parquet`."""
    files = [grid.file(cell) for cell in grid.cells() if grid.is_done(cell)]
    if not files:
        raise DataError(grid.out, "hold a finished cell", "none", f"See {grid.out / 'failed'}.")
    table = pa.concat_tables([pq.read_table(file, schema=SCHEMA) for file in files])
    with atomic_path(grid.out / "rows.parquet") as partial:
        pq.write_table(table, partial)
    return table


def read_intact(file: Path) -> pa.Table | None:
    """The table of a file; None if there is none, or if it is damaged."""
    try:
        return pq.read_table(file, page_checksum_verification=True)
    except (pa.ArrowException, OSError):
        return None


def _content(spec: Spec) -> dict[str, Any]:
    """What of a spec decides results: all but its explanations."""
    content = asdict(spec)
    for explanation in ("title", "why", "why_negatives"):
        del content[explanation]
    return content


def _start_order(cell: Cell) -> tuple[object, ...]:
    return _SLOWEST_FIRST.index(cell.model), cell.seed, cell.split, cell.settings


def _outcomes(grid: Grid, cells: Sequence[Cell], jobs: int) -> Iterator[Outcome]:
    """Each cell as it finishes, with its error if it failed.

    A worker that is killed takes the others with it. Their cells are run once more, each alone, so
    that only the cell that has killed its worker fails.
    """
    # Cells run in parallel, so each worker uses one thread.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    again = []
    for cell, error in _in_pool(grid, cells, jobs):
        if isinstance(error, BrokenExecutor):
            again.append(cell)
        else:
            yield cell, error
    for cell in again:
        yield from _in_pool(grid, [cell], 1)


def _in_pool(grid: Grid, cells: Sequence[Cell], jobs: int) -> Iterator[Outcome]:
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        running: dict[Future[None], Cell] = {}
        for cell in cells:
            try:
                running[pool.submit(_run_and_save, grid, cell)] = cell
            except BrokenExecutor as error:
                yield cell, error
        try:
            for future in as_completed(running):
                yield running[future], future.exception()
        finally:
            for future in running:
                future.cancel()


def _run_and_save(grid: Grid, cell: Cell) -> None:
    dataset = _load(grid.dataset, grid.data)
    digest = grid.fingerprint(cell)
    # The end of the fingerprint keeps checkpoints of changed specs apart.
    checkpoint = grid.out / "cells" / f"{cell.key}.{digest[-12:]}.checkpoint"
    delete_if_damaged(checkpoint)
    result = run_cell(cell, dataset, grid.specs_for(cell), grid.training, checkpoint)
    provenance = f"calibrank {calibrank.__version__}, {digest[:19]}"
    rows = [{**row, "provenance": provenance} for row in result.rows]
    tables = {grid.predictions_file(cell): pa.table(result.predictions)} if cell.seed == 0 else {}
    # The rows are saved last: their presence marks the cell as done.
    tables[grid.file(cell)] = pa.Table.from_pylist(rows, SCHEMA)
    for file, table in tables.items():
        table = table.replace_schema_metadata({_FINGERPRINT_KEY: digest.encode()})
        with atomic_path(file) as partial:
            pq.write_table(table, partial, write_page_checksum=True)
    checkpoint.unlink(missing_ok=True)


@lru_cache(maxsize=1)
def _load(name: str, data: str | None) -> Dataset:
    if name not in EXPERIMENT_DATASETS:
        names = ", ".join(EXPERIMENT_DATASETS)
        raise DataError("the dataset", f"be one of {names}", f"{name!r}")
    return simulate() if name == "synthetic" else load_dataset(name, data)


@lru_cache(maxsize=1)
def _data_digest(name: str, data: str | None) -> str:
    """A digest of the data themselves, which does not depend on the folder."""
    dataset = _load(name, data)
    return fingerprint(name, dataset.train.positives(), dataset.test)
