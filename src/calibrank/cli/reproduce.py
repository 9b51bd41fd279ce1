"""`calibrank reproduce`."""

from typing import TYPE_CHECKING, Any

from calibrank.cli import console
from calibrank.cli.parse import Given

if TYPE_CHECKING:
    from calibrank.experiment.cell import Cell
    from calibrank.experiment.outputs import Outputs
    from calibrank.experiment.runner import Grid
    from calibrank.experiment.statistics import Results


def reproduce(given: Given) -> int:
    """Run the experiments of a paper; finished cells are kept."""
    console.require_folder(given.out)
    if given.dataset == "synthetic":
        given.refuse("with --dataset synthetic", "data")
    # torch takes seconds to load: `--help` and wrong options must not wait for it.
    from calibrank.experiment.figures import load_scored  # noqa: PLC0415  (matplotlib)
    from calibrank.experiment.outputs import write_outputs  # noqa: PLC0415  (matplotlib)
    from calibrank.experiment.runner import Grid, collect  # noqa: PLC0415  (torch)
    from calibrank.experiment.spec import choose, find_folder, load_specs  # noqa: PLC0415  (torch)
    from calibrank.experiment.statistics import Results  # noqa: PLC0415  (torch)
    from calibrank.models import Training  # noqa: PLC0415  (torch)

    folder = find_folder(given.name)
    specs = choose(load_specs(folder), given.spec or None, given.model or None)
    about: dict[str, Any] = {"out": str(given.out)}
    failed: dict[Cell, str] = {}
    scored = {}  # result rows hold metrics only, so of them there are no scores to draw
    if given.from_rows:
        results = Results.read(given.from_rows)
    else:
        training = Training(given.epochs, device=given.device)
        data = None if given.data is None else str(given.data)
        out = given.out / given.dataset
        grid = Grid(given.dataset, data, specs, given.seeds, training, out)
        failed = _run(grid, given.jobs)
        results = Results(collect(grid))
        scored = {each.name: load_scored(grid, each) for each in specs}
        about = {"out": str(out), "failed": {cell.key: why for cell, why in failed.items()}}
    written = write_outputs(folder, specs, results, given.out, scored)
    for cell, reason in failed.items():
        console.say(f"failed: {cell.key}: {reason}", "red")
    _print(results, written, about)
    # Rows of the other cells are complete, but a script must notice that some are missing.
    return 4 if failed else 0


def _run(grid: "Grid", jobs: int) -> dict["Cell", str]:
    """Compute the cells that are missing; returns those that failed, with the reason."""
    from calibrank.experiment.runner import run_grid  # noqa: PLC0415  (torch)

    cells = grid.cells()
    with console.progress_bar(grid.dataset, len(cells)) as advance:
        advance(sum(grid.is_done(cell) for cell in cells))

        def on_finished(cell: "Cell", error: BaseException | None) -> None:
            advance(1, f"{cell.key} {'failed' if error else 'done'}")

        return run_grid(grid, jobs, on_finished)


def _print(results: "Results", written: "Outputs", about: dict[str, Any]) -> None:
    unfit = int(results.where(metric="failed").table.num_rows)
    about |= {
        "rows": results.table.num_rows,
        "fits_without_optimum": unfit,
        "published_numbers": len(written.compared),
        "published_numbers_met": sum(each.met for each in written.compared),
    }
    console.answer(about)
    if "failed" in about:
        rows = f"{about['out']}/rows.parquet ({results.table.num_rows:,}), rows.csv"
        console.show(f"[bold]Rows:[/] {console.shown(rows)}")
    if unfit:
        console.show(f"{unfit:,} fits have no finite optimum: see rows with metric 'failed'.")
    folders = sorted({str(path.parent) for path in written.figures})
    lists = {"Tables": ", ".join(map(str, written.tables)), "Summary": written.summary}
    lists["Figures"] = f"{', '.join(folders)} ({len(written.figures)} files)"
    for name, files in lists.items():
        console.show(f"[bold]{name}:[/] {console.shown(files)}")
    if written.agreement:
        console.show(written.agreement)
