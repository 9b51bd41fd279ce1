"""`calibrank reproduce`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from calibrank._atomic import write_atomic
from calibrank.cli.console import console, log, print_json, shown
from calibrank.cli.options import JsonOption
from calibrank.registry import DATASETS

if TYPE_CHECKING:
    from calibrank.experiment.cell import Cell
    from calibrank.experiment.runner import Grid
    from calibrank.experiment.statistics import Results

_DATASETS_HELP = f"One of synthetic, {', '.join(DATASETS)}."
# Each process holds a copy of the dataset and a model, so not one per core on large machines.
_JOBS = min(os.cpu_count() or 1, 8)

NameArgument = Annotated[
    str,
    typer.Argument(metavar="NAME", help="A folder of specs, or its name under reproduce/."),
]
DataOption = Annotated[
    Path | None,
    typer.Option(help="Folder of the dataset's files; downloaded if its licence allows it."),
]
SeedsOption = Annotated[
    int,
    typer.Option(min=1, help="Number of repetitions."),
]
OutOption = Annotated[
    Path,
    typer.Option(help="Folder for result rows, tables and figures."),
]
JobsOption = Annotated[
    int,
    typer.Option(min=1, help="Number of parallel processes."),
]
SpecOption = Annotated[
    list[str] | None,
    typer.Option(help="Run only this spec; may be repeated."),
]
ModelOption = Annotated[
    list[str] | None,
    typer.Option(help="Run only this model; may be repeated."),
]
EpochsOption = Annotated[
    int,
    typer.Option(min=1, help="Maximum number of training epochs."),
]


def reproduce(
    name: NameArgument,
    dataset: Annotated[str, typer.Option(help=_DATASETS_HELP)] = "synthetic",
    data: DataOption = None,
    seeds: SeedsOption = 10,
    out: OutOption = Path("results"),
    jobs: JobsOption = _JOBS,
    spec: SpecOption = None,
    model: ModelOption = None,
    epochs: EpochsOption = 200,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    json: JsonOption = False,
) -> None:
    """Run the experiments of a paper. Finished cells are kept: a rerun computes only the others.

    Example: calibrank reproduce aaai22 --dataset coat --data coat/ --seeds 10 --out results
    """
    # torch takes seconds to load: `--help` and wrong options must not wait for it.
    from calibrank.experiment.runner import Grid, collect  # noqa: PLC0415  (torch)
    from calibrank.experiment.spec import choose, find_folder, load_specs  # noqa: PLC0415  (torch)
    from calibrank.experiment.statistics import Results  # noqa: PLC0415  (torch)
    from calibrank.models import Training  # noqa: PLC0415  (torch)

    folder = find_folder(name)
    specs = choose(load_specs(folder), spec, model)
    training = Training(epochs, device=device)
    data_folder = None if data is None else str(data)
    grid = Grid(dataset, data_folder, specs, seeds, training, out / dataset)
    failed = _run(grid, jobs)
    results = Results(collect(grid))
    tables = _write_tables(grid, results, folder)
    figures = _draw_figures(grid, results)
    for cell, reason in failed.items():
        log.print(
            f"[red]failed:[/] {shown(cell.key)}: {shown(reason)}", highlight=False, soft_wrap=True
        )
    if json:
        print_json(_as_json(grid, results, failed))
    else:
        _print_outputs(grid, results, tables, figures)
    # Rows of the other cells are complete, but a script must notice that some are missing.
    if failed:
        raise typer.Exit(4)


def _run(grid: "Grid", jobs: int) -> dict["Cell", str]:
    """Compute the cells that are missing; returns those that failed, with the reason."""
    from calibrank.experiment.runner import run_grid  # noqa: PLC0415  (torch)

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("cells"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    cells = grid.cells()
    done = sum(grid.is_done(cell) for cell in cells)
    with Progress(*columns, console=log, disable=not log.is_terminal) as bar:
        task = bar.add_task(shown(grid.dataset), total=len(cells), completed=done)

        def on_finished(cell: "Cell", error: BaseException | None) -> None:
            outcome = "failed" if error else "done"
            bar.update(task, advance=1, description=shown(f"{cell.key} {outcome}"))

        return run_grid(grid, jobs, on_finished)


def _as_json(
    grid: "Grid",
    results: "Results",
    failed: dict["Cell", str],
) -> dict[str, object]:
    return {
        "out": str(grid.out),
        "rows": results.table.num_rows,
        "failed": {cell.key: reason for cell, reason in failed.items()},
        "fits_without_optimum": _fits_without_optimum(results),
    }


def _print_outputs(
    grid: "Grid",
    results: "Results",
    tables: Path,
    figures: list[Path],
) -> None:
    rows = results.table.num_rows
    console.print(f"[bold]Rows:[/] {shown(grid.out / 'rows.parquet')} ({rows:,}), rows.csv")
    unfit = _fits_without_optimum(results)
    if unfit:
        console.print(f"{unfit:,} fits have no finite optimum: see rows with metric 'failed'.")
    console.print(f"[bold]Tables:[/] {shown(tables)}")
    console.print(f"[bold]Figures:[/] {shown(grid.out / 'figures')} ({len(figures)} files)")


def _fits_without_optimum(results: "Results") -> int:
    return int(results.where(metric="failed").table.num_rows)


def _write_tables(grid: "Grid", results: "Results", folder: Path) -> Path:
    from calibrank.experiment.tables import Published, write_tables  # noqa: PLC0415  (torch)

    path = grid.out / "tables.md"
    published = Published.load(folder / "published.csv")
    write_atomic(path, write_tables(grid, results, published))
    return path


def _draw_figures(grid: "Grid", results: "Results") -> list[Path]:
    from calibrank.experiment.figures import Figures  # noqa: PLC0415  (matplotlib)

    paths: list[Path] = []
    for spec in grid.specs:
        figures = Figures(grid, results.where(spec=spec.name), spec)
        paths += figures.save(grid.out / "figures" / spec.name)
    return paths
