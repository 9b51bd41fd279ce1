"""`calibrank reproduce`."""

from typing import Any

import pyarrow as pa

from calibrank.cli import console
from calibrank.cli.parse import Given
from calibrank.experiment.cell import Cell
from calibrank.experiment.figures import load_predictions
from calibrank.experiment.published import agreement_line
from calibrank.experiment.results import read_rows
from calibrank.experiment.runner import Grid, collect, run_grid
from calibrank.experiment.spec import choose, find_folder, load_specs
from calibrank.experiment.tables import write_outputs
from calibrank.models import Training


def reproduce(given: Given) -> int:
    """Run the experiments of a paper; finished cells are kept."""
    console.require_output(given.out, is_folder=True)
    if given.dataset == "synthetic":
        given.refuse("with --dataset synthetic", "data")
    folder = find_folder(given.name)
    specs = choose(load_specs(folder), given.spec or None, given.model or None)
    about: dict[str, Any] = {"out": str(given.out)}
    failed: dict[Cell, str] = {}
    predictions = {}  # result rows hold metrics only
    if given.from_rows:
        rows = pa.concat_tables([read_rows(file) for file in given.from_rows])
    else:
        training = Training(given.epochs, device=given.device)
        data = None if given.data is None else str(given.data)
        out = given.out / given.dataset
        grid = Grid(given.dataset, data, specs, given.seeds, training, out)
        failed = _run(grid, given.jobs)
        rows = collect(grid)
        predictions = {each.name: load_predictions(grid, each) for each in specs}
        about = {"out": str(out), "failed": {cell.key: why for cell, why in failed.items()}}
    compared = write_outputs(folder, specs, rows, given.out, predictions)
    for cell, reason in failed.items():
        console.say(f"failed: {cell.key}: {reason}", "red")
    about |= {
        "rows": rows.num_rows,
        "fits_without_optimum": rows["metric"].to_pylist().count("failed"),
        "published_numbers": len(compared),
        "published_numbers_met": sum(each.met for each in compared),
    }
    console.answer(about)
    unfit = f"{about['fits_without_optimum']:,} fits have no finite optimum"
    console.show(f"{rows.num_rows:,} rows; {unfit}: their metric is 'failed'.")
    written = f"{about['out']} (rows.parquet, tables.md, figures, and summary.md for all datasets)"
    console.show(f"[bold]Written:[/] {console.shown(written)}")
    if compared:
        console.show(agreement_line(compared).replace("**", ""))
    # Rows of the other cells are complete, but a script must notice that some are missing.
    return 4 if failed else 0


def _run(grid: Grid, jobs: int) -> dict[Cell, str]:
    """Compute the cells that are missing; returns those that failed, with the reason."""
    cells = grid.cells()
    with console.progress_bar(grid.dataset, len(cells)) as advance:
        advance(sum(grid.is_done(cell) for cell in cells))

        def on_finished(cell: Cell, error: BaseException | None) -> None:
            advance(1, f"{cell.key} {'failed' if error else 'done'}")

        return run_grid(grid, jobs, on_finished)
