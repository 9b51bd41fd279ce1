"""Run a grid of cells: each is saved atomically, and a rerun computes only what is missing."""

from __future__ import annotations

import json
import os
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

import calibrank
from calibrank._internal.atomic import atomic_path, write_atomic
from calibrank._internal.json import digest_of
from calibrank.data import Dataset, simulate
from calibrank.errors import DataError
from calibrank.experiment.cell import Cell, CellResult, run_cell
from calibrank.experiment.spec import Spec
from calibrank.experiment.statistics import SCHEMA
from calibrank.models import Training
from calibrank.models.checkpoints import delete_if_damaged, fingerprint
from calibrank.models.trainer import require_torch
from calibrank.registry import DATASETS, load_dataset

EXPERIMENT_DATASETS = ("synthetic", *DATASETS)
# The Parquet metadata key under which a cell's fingerprint is stored.
_FINGERPRINT_KEY = b"calibrank"
# Slow models are started first, so that no worker is still busy with one when the rest are done.
_SLOWEST_FIRST = ("NCF", "LightGCN", "CML", "UBPR", "BPR")

Progress = Callable[[Cell, BaseException | None], None]


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
                training = _training_of(spec, self.dataset, model)
                for split in spec.splits:
                    for seed in range(self.seeds):
                        cells.add(Cell(self.dataset, split, model, seed, *training))
        return sorted(cells, key=_start_order)

    def specs_for(self, cell: Cell) -> list[Spec]:
        """The specs that ask for a cell."""
        training = (cell.epochs, cell.settings)
        return [
            spec
            for spec in self.specs
            if cell.split in spec.splits
            and _training_of(spec, cell.dataset, cell.model) == training
        ]

    def fingerprint(self, cell: Cell) -> str:
        """A digest of everything that a cell's rows depend on."""
        content = {
            "version": calibrank.__version__,
            "cell": asdict(cell),
            "specs": [_content(spec) for spec in self.specs_for(cell)],
            "settings": repr(cell.configured(self.training)),
            "data": _data_digest(self.dataset, self.data),
        }
        # Through JSON and back, so that tuples and lists give the same digest.
        return digest_of(json.loads(json.dumps(content, default=dict)))

    def file(self, cell: Cell) -> Path:
        """Where a cell's rows are saved."""
        return self.out / "cells" / f"{cell.key}.parquet"

    def scores_file(self, cell: Cell) -> Path:
        """Where the scores of a cell with seed 0 are saved, for figures."""
        return self.out / "cells" / f"{cell.key}.npz"

    def failure_file(self, cell: Cell) -> Path:
        """Where the error of a failed cell is saved."""
        return self.out / "failed" / f"{cell.key}.json"

    def is_done(self, cell: Cell) -> bool:
        """Whether the cell has been saved with its present fingerprint."""
        file = self.file(cell)
        if not file.is_file():
            return False
        rows = _read_rows(file)
        if rows is None or not _is_intact(self.scores_file(cell)):
            return False  # damaged files are computed again
        metadata = rows.schema.metadata or {}
        return metadata.get(_FINGERPRINT_KEY) == self.fingerprint(cell).encode()


def run_grid(grid: Grid, jobs: int, progress: Progress) -> dict[Cell, str]:
    """Run the missing cells, `jobs` at a time; returns the errors of those that failed."""
    # Missing data or a missing package is reported once, here, not by every worker.
    _load(grid.dataset, grid.data)
    missing = [cell for cell in grid.cells() if not grid.is_done(cell)]
    if missing:
        require_torch()
    failed: dict[Cell, str] = {}
    for cell, error in _outcomes(grid, missing, jobs):
        progress(cell, error)
        if error is None:
            grid.failure_file(cell).unlink(missing_ok=True)
        else:
            failed[cell] = f"{type(error).__name__}: {error}"
            record = {"cell": asdict(cell), "error": failed[cell]}
            write_atomic(grid.failure_file(cell), json.dumps(record, indent=1))
    return failed


def collect(grid: Grid) -> pa.Table:
    """The rows of all finished cells, also written to `rows.parquet` and `rows.csv`."""
    files = [grid.file(cell) for cell in grid.cells() if grid.is_done(cell)]
    if not files:
        raise DataError(grid.out, "hold a finished cell", "none", f"See {grid.out / 'failed'}.")
    table = pa.concat_tables([pq.read_table(file, schema=SCHEMA) for file in files])
    with atomic_path(grid.out / "rows.parquet") as partial:
        pq.write_table(table, partial)
    with atomic_path(grid.out / "rows.csv") as partial:
        pc.write_csv(table, partial)
    return table


def _content(spec: Spec) -> dict[str, Any]:
    """What of a spec decides results: all but its explanations."""
    content = asdict(spec)
    for explanation in ("title", "why", "why_negatives"):
        del content[explanation]
    return content


def _read_rows(file: Path) -> pa.Table | None:
    """The rows of a cell; None if the file is damaged."""
    try:
        return pq.read_table(file, page_checksum_verification=True)
    except (pa.ArrowException, OSError):
        return None


def _is_intact(file: Path) -> bool:
    """Whether a file of scores is complete, or not there: only some cells have one."""
    if not file.exists():
        return True
    try:
        with ZipFile(file) as archive:
            return archive.testzip() is None
    except (BadZipFile, OSError, zlib.error):
        return False


def _training_of(spec: Spec, dataset: str, model: str) -> tuple[int, tuple[tuple[str, float], ...]]:
    return spec.epochs_for(dataset, model), spec.settings_for(dataset, model)


def _start_order(cell: Cell) -> tuple[object, ...]:
    speed = _SLOWEST_FIRST.index(cell.model)
    return speed, cell.seed, cell.split, cell.epochs, cell.settings


def _outcomes(
    grid: Grid, cells: list[Cell], jobs: int
) -> Iterator[tuple[Cell, BaseException | None]]:
    """Each cell as it finishes, with its error if it failed.

    A worker that is killed takes the others with it. Their cells are run once more, each alone, so
    that only the cell that has killed its worker fails.
    """
    # Cells run in parallel, so each worker uses one thread.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    waiting = deque(cells)
    again = deque[Cell]()
    while waiting:
        for cell, error in _until_killed(grid, waiting, jobs):
            if isinstance(error, BrokenExecutor):
                again.append(cell)
            else:
                yield cell, error
    while again:
        yield from _until_killed(grid, again, 1)


def _until_killed(
    grid: Grid, waiting: deque[Cell], jobs: int
) -> Iterator[tuple[Cell, BaseException | None]]:
    """Run the waiting cells in a new pool until all are done or one of its workers is killed."""
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        running: dict[Future[None], Cell] = {}
        is_broken = False
        while running or (waiting and not is_broken):
            # No more than there are workers: what has not started is not lost with them.
            while waiting and len(running) < jobs and not is_broken:
                try:
                    running[pool.submit(_run_and_save, grid, waiting[0])] = waiting[0]
                except BrokenExecutor:
                    is_broken = True
                else:
                    waiting.popleft()
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                error = future.exception()
                is_broken = is_broken or isinstance(error, BrokenExecutor)
                yield running.pop(future), error


def _run_and_save(grid: Grid, cell: Cell) -> None:
    dataset = _load(grid.dataset, grid.data)
    specs = grid.specs_for(cell)
    # The end of the fingerprint keeps checkpoints of changed specs apart.
    suffix = grid.fingerprint(cell)[-12:]
    checkpoint = grid.out / "cells" / f"{cell.key}.{suffix}.checkpoint"
    delete_if_damaged(checkpoint)
    _save(grid, cell, run_cell(cell, dataset, specs, grid.training, checkpoint))
    checkpoint.unlink(missing_ok=True)


def _save(grid: Grid, cell: Cell, result: CellResult) -> None:
    if cell.seed == 0 and result.scored is not None:
        result.scored.save(grid.scores_file(cell))
    digest = grid.fingerprint(cell)
    # The rows are saved last: their presence marks the cell as done.
    provenance = f"calibrank {calibrank.__version__}, {digest[:19]}"
    rows = [{**row, "provenance": provenance} for row in result.rows]
    schema = SCHEMA.with_metadata({_FINGERPRINT_KEY: digest.encode()})
    with atomic_path(grid.file(cell)) as partial:
        table = pa.Table.from_pylist(rows, schema)
        pq.write_table(table, partial, write_page_checksum=True)


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
