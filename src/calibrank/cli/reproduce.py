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
from calibrank.cli.console import JsonOption, console, log, print_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from calibrank.experiment.cell import Cell
    from calibrank.experiment.runner import Grid
    from calibrank.experiment.statistics import Results

    Tell = Callable[[Cell, BaseException | None], None]


def reproduce(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A folder of specs, or its name under reproduce/.")
    ],
    dataset: Annotated[
        str, typer.Option(help="synthetic, coat, yahoo_r3, kuairec or kuairand.")
    ] = "synthetic",
    data: Annotated[
        Path | None, typer.Option(help="Folder of the dataset's files; fetched if allowed.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many times everything is repeated.")] = 10,
    out: Annotated[Path, typer.Option(help="Folder for rows, tables and figures.")] = Path(
        "results"
    ),
    jobs: Annotated[int, typer.Option(min=1, help="Cells at a time.")] = min(
        os.cpu_count() or 1, 8
    ),
    spec: Annotated[list[str] | None, typer.Option(help="Only this spec; may be repeated.")] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="Only this model; may be repeated.")
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Train for so many at most.")] = 200,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    json: JsonOption = False,
) -> None:
    """Run a paper's experiments: every cell lands whole, and a rerun does only what is missing.

    Example: calibrank reproduce aaai22 --dataset coat --data coat/ --seeds 10 --out results
    """
    from calibrank.experiment.runner import Grid, collect, run_grid  # noqa: PLC0415  (torch)
    from calibrank.experiment.spec import choose, find_folder, load_specs  # noqa: PLC0415  (torch)
    from calibrank.experiment.statistics import Results  # noqa: PLC0415  (torch)
    from calibrank.models import Training  # noqa: PLC0415  (torch)

    folder = find_folder(name)
    specs = choose(load_specs(folder), spec, model)
    training = Training(epochs, device=device)
    grid = Grid(dataset, None if data is None else str(data), specs, seeds, training, out / dataset)
    failed = _run(grid, jobs, run_grid)
    results = Results(collect(grid))
    paths = [*_tables(grid, results, folder), *_figures(grid, results)]
    unfit = results.where(metric="failed").table.num_rows
    for cell, words in failed.items():
        log.print(f"[red]failed:[/] {cell.key}: {words}", highlight=False, soft_wrap=True)
    if json:
        names = {cell.key: words for cell, words in failed.items()}
        print_json(
            {
                "out": str(grid.out),
                "rows": results.table.num_rows,
                "failed": names,
                "fits_without_optimum": unfit,
            }
        )
    else:
        console.print(
            f"[bold]Rows:[/] {grid.out / 'rows.parquet'} ({results.table.num_rows:,}), rows.csv"
        )
        if unfit:
            console.print(
                f"{unfit:,} fits have no finite optimum: rows with metric 'failed' say why."
            )
        console.print("[bold]Tables:[/] " + str(paths[0]))
        console.print(f"[bold]Figures:[/] {grid.out / 'figures'} ({len(paths) - 1} files)")
    if failed:
        raise typer.Exit(4)


def _run(
    grid: "Grid", jobs: int, run_grid: "Callable[[Grid, int, Tell], dict[Cell, str]]"
) -> dict["Cell", str]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("cells"),
    )
    times = (TimeElapsedColumn(), TimeRemainingColumn())
    cells = grid.cells()
    done = sum(grid.is_done(cell) for cell in cells)
    with Progress(*columns, *times, console=log, disable=not log.is_terminal) as bar:
        task = bar.add_task(grid.dataset, total=len(cells), completed=done)

        def tell(cell: "Cell", error: BaseException | None) -> None:
            bar.update(task, advance=1, description=f"{cell.key} {'failed' if error else 'done'}")

        return run_grid(grid, jobs, tell)


def _tables(grid: "Grid", results: "Results", folder: Path) -> list[Path]:
    from calibrank.experiment.tables import Published, write_tables  # noqa: PLC0415  (torch)

    path = grid.out / "tables.md"
    write_atomic(path, write_tables(grid, results, Published.load(folder / "published.csv")))
    return [path]


def _figures(grid: "Grid", results: "Results") -> list[Path]:
    from calibrank.experiment.figures import Figures  # noqa: PLC0415  (matplotlib)

    return [
        path
        for spec in grid.specs
        for path in Figures(grid, results.where(spec=spec.name), spec).save(
            grid.out / "figures" / spec.name
        )
    ]
