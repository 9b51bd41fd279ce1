"""`calibrank reproduce`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from calibrank.cli import console, options
from calibrank.registry import DATASETS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from calibrank.experiment.cell import Cell
    from calibrank.experiment.outputs import Outputs
    from calibrank.experiment.runner import Grid
    from calibrank.experiment.spec import Spec
    from calibrank.experiment.statistics import Results

_DATASETS_HELP = f"One of synthetic, {', '.join(DATASETS)}."
# Each process holds a copy of the dataset and a model, so not one per core on large machines.
_JOBS = min(os.cpu_count() or 1, 8)


def reproduce(
    name: str,
    dataset: str,
    data: Path | None,
    seeds: int,
    out: Path,
    jobs: int,
    spec: list[str] | None,
    model: list[str] | None,
    epochs: int,
    device: options.Device,
    from_rows: list[Path] | None,
    json: bool,
) -> int:
    """Run the experiments of a paper; finished cells are kept."""
    console.require_folder(out)
    if dataset == "synthetic":
        console.require_unused("with --dataset synthetic", {"--data": data})
    # torch takes seconds to load: `--help` and wrong options must not wait for it.
    from calibrank.experiment.figures import load_scored  # noqa: PLC0415  (matplotlib)
    from calibrank.experiment.outputs import write_outputs  # noqa: PLC0415  (matplotlib)
    from calibrank.experiment.runner import Grid, collect  # noqa: PLC0415  (torch)
    from calibrank.experiment.spec import choose, find_folder, load_specs  # noqa: PLC0415  (torch)
    from calibrank.experiment.statistics import Results  # noqa: PLC0415  (torch)
    from calibrank.models import Training  # noqa: PLC0415  (torch)

    folder = find_folder(name)
    specs = choose(load_specs(folder), spec, model)
    if from_rows:
        _from_rows(from_rows, folder, specs, out, json=json)
        return 0
    training = Training(epochs, device=device.value)
    data_folder = None if data is None else str(data)
    grid = Grid(dataset, data_folder, specs, seeds, training, out / dataset)
    failed = _run(grid, jobs)
    results = Results(collect(grid))
    scored = {each.name: load_scored(grid, each) for each in specs}
    written = write_outputs(folder, specs, results, out, scored)
    for cell, reason in failed.items():
        console.log.print(
            f"[red]failed:[/] {console.shown(cell.key)}: {console.shown(reason)}", soft_wrap=True
        )
    if json:
        console.print_json(
            {
                "out": str(grid.out),
                "failed": {cell.key: reason for cell, reason in failed.items()},
                **_as_json(results, written),
            }
        )
    else:
        rows = results.table.num_rows
        console.show(
            f"[bold]Rows:[/] {console.shown(grid.out / 'rows.parquet')} ({rows:,}), rows.csv"
        )
        _print_outputs(results, written)
    # Rows of the other cells are complete, but a script must notice that some are missing.
    return 4 if failed else 0


def _from_rows(
    files: list[Path], folder: Path, specs: "Sequence[Spec]", out: Path, *, json: bool
) -> None:
    from calibrank.experiment.outputs import write_outputs  # noqa: PLC0415  (matplotlib)
    from calibrank.experiment.statistics import Results  # noqa: PLC0415  (pyarrow)

    results = Results.read(files)
    # Rows hold metrics only, so there are no scores to draw.
    written = write_outputs(folder, specs, results, out, {})
    if json:
        console.print_json({"out": str(out), **_as_json(results, written)})
    else:
        _print_outputs(results, written)


def _run(grid: "Grid", jobs: int) -> dict["Cell", str]:
    """Compute the cells that are missing; returns those that failed, with the reason."""
    from calibrank.experiment.runner import run_grid  # noqa: PLC0415  (torch)

    cells = grid.cells()
    with console.counting_bar(len(cells), grid.dataset) as advance:
        advance(sum(grid.is_done(cell) for cell in cells))

        def on_finished(cell: "Cell", error: BaseException | None) -> None:
            advance(1, f"{cell.key} {'failed' if error else 'done'}")

        return run_grid(grid, jobs, on_finished)


def _as_json(results: "Results", written: "Outputs") -> dict[str, object]:
    return {
        "rows": results.table.num_rows,
        "fits_without_optimum": _fits_without_optimum(results),
        "published_numbers": len(written.compared),
        "published_numbers_met": sum(each.met for each in written.compared),
    }


def _print_outputs(results: "Results", written: "Outputs") -> None:
    unfit = _fits_without_optimum(results)
    if unfit:
        console.show(f"{unfit:,} fits have no finite optimum: see rows with metric 'failed'.")
    console.show(f"[bold]Tables:[/] {console.shown(', '.join(map(str, written.tables)))}")
    console.show(f"[bold]Summary:[/] {console.shown(written.summary)}")
    folders = sorted({str(path.parent) for path in written.figures})
    console.show(
        f"[bold]Figures:[/] {console.shown(', '.join(folders))} ({len(written.figures)} files)"
    )
    if written.agreement:
        console.show(written.agreement)


def _fits_without_optimum(results: "Results") -> int:
    return int(results.where(metric="failed").table.num_rows)
