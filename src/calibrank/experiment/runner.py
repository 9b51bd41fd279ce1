"""Running a grid of cells: each lands whole, a rerun does only what is missing, and nothing that fails is hidden."""

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

import calibrank
from calibrank._atomic import atomic_path, write_atomic
from calibrank._json import digest_of
from calibrank.data import Dataset
from calibrank.data.toy_dataset import simulate
from calibrank.errors import DataError
from calibrank.experiment.cell import Cell, Measured, Row, Scored, run_cell
from calibrank.experiment.spec import Spec
from calibrank.models import Training
from calibrank.models.checkpoints import fingerprint
from calibrank.registry import DATASETS, load_dataset
from calibrank.tables import Interactions

EXPERIMENT_DATASETS = ("synthetic", *DATASETS)
SCHEMA = pa.schema(
    [
        *(
            (name, pa.string())
            for name in ("dataset", "spec", "split", "model", "method", "loss", "propensity")
        ),
        *((name, pa.int64()) for name in ("negatives", "seed")),
        ("metric", pa.string()),
        ("value", pa.float64()),
        ("note", pa.string()),
        ("provenance", pa.string()),
    ]
)
_SEAL = b"calibrank"


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
        """Every cell that some spec asks for; the slowest models first, so that none is waited for at the end."""
        asked = {
            Cell(self.dataset, split, model, seed, *_training_of(spec, self.dataset, model))
            for spec in self.specs
            for split in spec.splits
            for model in spec.models
            for seed in range(self.seeds)
        }
        order = ("NCF", "LightGCN", "CML", "UBPR", "BPR")
        return sorted(
            asked,
            key=lambda cell: (
                order.index(cell.model),
                cell.seed,
                cell.split,
                cell.epochs,
                cell.settings,
            ),
        )

    def specs_for(self, cell: Cell) -> list[Spec]:
        """Specs that ask for a cell."""
        mine = cell.epochs, cell.settings
        asking = [spec for spec in self.specs if cell.split in spec.splits]
        return [spec for spec in asking if _training_of(spec, cell.dataset, cell.model) == mine]

    def fingerprint(self, cell: Cell) -> str:
        """A digest of all that a cell's rows depend on."""
        specs = [asdict(spec) for spec in self.specs_for(cell)]
        settings = repr((cell.recipe(), self.training))
        content = {
            "version": calibrank.__version__,
            "cell": asdict(cell),
            "specs": specs,
            "settings": settings,
        }
        content["data"] = _digest(self.dataset, self.data)
        return digest_of(json.loads(json.dumps(content, default=dict)))

    def file(self, cell: Cell) -> Path:
        """Where a cell's rows land."""
        return self.out / "cells" / f"{cell.key}.parquet"

    def failure(self, cell: Cell) -> Path:
        """Where a cell says why it failed."""
        return self.out / "failed" / f"{cell.key}.json"

    def is_done(self, cell: Cell) -> bool:
        """Whether this very cell has landed."""
        file = self.file(cell)
        return (
            file.is_file()
            and (pq.read_schema(file).metadata or {}).get(_SEAL) == self.fingerprint(cell).encode()
        )


def _training_of(spec: Spec, dataset: str, model: str) -> tuple[int, tuple[tuple[str, float], ...]]:
    return spec.epochs_for(dataset, model), spec.settings_for(dataset, model)


def run_grid(
    grid: Grid, jobs: int, progress: Callable[[Cell, BaseException | None], None]
) -> dict[Cell, str]:
    """Run what is missing, `jobs` cells at a time; cells that failed, and why."""
    _load(grid.dataset, grid.data)  # a missing file is told now, not by every worker
    missing = [cell for cell in grid.cells() if not grid.is_done(cell)]
    failed: dict[Cell, str] = {}
    for cell, error in _outcomes(grid, missing, jobs):
        progress(cell, error)
        if error is None:
            grid.failure(cell).unlink(missing_ok=True)
        else:
            failed[cell] = f"{type(error).__name__}: {error}"
            write_atomic(
                grid.failure(cell),
                json.dumps({"cell": asdict(cell), "error": failed[cell]}, indent=1),
            )
    return failed


def _outcomes(
    grid: Grid, cells: list[Cell], jobs: int
) -> Iterator[tuple[Cell, BaseException | None]]:
    """Each cell as it ends, with its error if it had one."""
    os.environ.setdefault(
        "OMP_NUM_THREADS", "1"
    )  # workers share the cores by cells, not by threads
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        running: dict[Future[None], Cell] = {pool.submit(_work, grid, cell): cell for cell in cells}
        while running:
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield running.pop(future), future.exception()


def _work(grid: Grid, cell: Cell) -> None:
    dataset = _load(grid.dataset, grid.data)
    checkpoint = grid.out / "cells" / f"{cell.key}.{grid.fingerprint(cell)[-12:]}.checkpoint"
    _write(grid, cell, run_cell(cell, dataset, grid.specs_for(cell), grid.training, checkpoint))
    checkpoint.unlink(missing_ok=True)


@lru_cache(maxsize=1)
def _load(name: str, data: str | None) -> Dataset:
    if name not in EXPERIMENT_DATASETS:
        raise DataError(
            f"the dataset must be one of {', '.join(EXPERIMENT_DATASETS)}, got {name!r}."
        )
    return simulate() if name == "synthetic" else load_dataset(name, data)


@lru_cache(maxsize=1)
def _digest(name: str, data: str | None) -> str:
    """Of the data themselves: another folder with the same content is the same dataset, and the other way round."""
    dataset = _load(name, data)
    return fingerprint(name, dataset.train.positives(), dataset.test)


def _write(grid: Grid, cell: Cell, measured: Measured) -> None:
    mark = grid.fingerprint(cell)
    provenance = f"calibrank {calibrank.__version__}, {mark[:19]}"
    rows: list[Row] = [{**row, "provenance": provenance} for row in measured.rows]
    if cell.seed == 0 and measured.scored is not None:
        _write_scored(scores_file(grid.out, cell), measured.scored)
    table = pa.Table.from_pylist(rows, SCHEMA.with_metadata({_SEAL: mark.encode()}))
    with atomic_path(grid.file(cell)) as partial:
        pq.write_table(table, partial)


def collect(grid: Grid) -> pa.Table:
    """The rows of every cell that has landed, also written as one Parquet and one CSV file."""
    files = [grid.file(cell) for cell in grid.cells() if grid.is_done(cell)]
    if not files:
        raise DataError(
            f"{grid.out} must hold a finished cell, got none. See {grid.out / 'failed'}."
        )
    table = pa.concat_tables([pq.read_table(file, schema=SCHEMA) for file in files])
    with atomic_path(grid.out / "rows.parquet") as partial:
        pq.write_table(table, partial)
    with atomic_path(grid.out / "rows.csv") as partial:
        pc.write_csv(table, partial)
    return table


def scores_file(out: Path, cell: Cell) -> Path:
    """Where the scores of a cell of the first seed lie, for figures."""
    return out / "cells" / f"{cell.key}.npz"


_COLUMNS = ("users", "items", "labels")
_NUMBERS = ("test_scores", "pair_scores", "propensity", "weights")


def _write_scored(path: Path, scored: Scored) -> None:
    logs = {"test": scored.test, "pair": scored.pairs}
    arrays: dict[str, Any] = {
        f"{n}_{c}": getattr(log, c) for n, log in logs.items() for c in _COLUMNS
    }
    arrays |= {name: getattr(scored, name) for name in _NUMBERS}
    with atomic_path(path) as partial, partial.open("wb") as file:
        np.savez_compressed(
            file, **arrays, sizes=np.array([scored.test.n_users, scored.test.n_items])
        )


def read_scored(path: Path) -> Scored:
    """Scores that a cell of the first seed left for figures."""
    with np.load(path) as arrays:
        sizes = arrays["sizes"].tolist()
        test, pairs = (
            Interactions(*(arrays[f"{name}_{column}"] for column in _COLUMNS), *sizes)
            for name in ("test", "pair")
        )
        return Scored(test=test, pairs=pairs, **{name: arrays[name] for name in _NUMBERS})
