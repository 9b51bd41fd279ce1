"""`calibrank demo`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from calibrank.cli.console import console

if TYPE_CHECKING:
    from calibrank.demo import Demo


def demo(
    pairs: Annotated[int, typer.Option(help="User-item pairs in the world.")] = 200_000,
    seed: Annotated[int, typer.Option(help="Makes the world; the same seed, the same world.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the figures and the saved map.")] = Path(
        "demo"
    ),
) -> None:
    """Calibrate a synthetic model every way there is, and compare with the known truth.

    Example: calibrank demo --pairs 1000000 --out demo
    """
    # Not above: matplotlib takes longer to load than most commands take to run.
    from calibrank.demo import run_demo, save_and_reload, save_figures  # noqa: PLC0415  (matplotlib)

    with console.status("Building a world, fitting every method ..."):
        result = run_demo(pairs, seed)
    console.print(_summary(result))
    console.print(_table(result))
    console.print(_lesson(result))
    with console.status("Drawing ..."):
        paths = save_figures(result, out)
    saved = out / "map.json"
    same = save_and_reload(result, saved)
    console.print("[bold]Figures:[/] " + ", ".join(str(path) for path in paths))
    console.print(
        f"[bold]Map:[/] {saved}, reloaded: {'the same probabilities' if same else 'DIFFERENT'}"
    )
    if not same:
        raise typer.Exit(1)


def _summary(result: "Demo") -> str:
    world = result.world
    seen = world.labels.mean()
    return (
        f"\nA world of {len(world):,} user-item pairs. In truth [bold]{world.base_rate:.1%}[/] of them would be liked; "
        f"the log shows [bold]{seen:.1%}[/], because most were never seen.\nEach method learns from scores and that "
        "log; the test is the true preference on fresh draws.\n"
    )


def _table(result: "Demo") -> Table:
    from calibrank.demo import GUESSED, METRICS  # noqa: PLC0415  (matplotlib)

    table = Table(
        title="Against the true preference (lower is better; pred/obs: nearer 1)",
        title_justify="left",
    )
    table.add_column("method")
    table.add_column("loss")
    for metric in METRICS:
        table.add_column(
            "pred/obs" if metric.name == "CalibrationInTheLarge" else metric.name, justify="right"
        )
    learned = [run for run in result.runs if run.loss != GUESSED]
    best = {m.name: min(m.better.loss(run.values[m.name]) for run in learned) for m in METRICS}
    previous = ""
    for run in result.runs:
        starts_group = run.method in ("Histogram", "Temperature") and run.method != previous
        if starts_group or run.loss == GUESSED:
            table.add_section()
        cells = []
        for metric in METRICS:
            value = run.values[metric.name]
            top = run in learned and metric.better.loss(value) == best[metric.name]
            cells.append(f"[bold green]{value:.4f}[/]" if top else f"{value:.4f}")
        table.add_row(
            run.method if run.method != previous or run.loss == GUESSED else "", run.loss, *cells
        )
        previous = run.method
    return table


def _lesson(result: "Demo") -> str:
    biased, right = (result.find("Gaussian", loss).values for loss in ("naive", "UERM"))
    guessed = result.runs[-1].values
    return (
        f"\nGaussian calibration: ECE {biased['ECE']:.4f} from the log as it is, [bold]{right['ECE']:.4f}[/] with the "
        f"true propensities, {guessed['ECE']:.4f} with propensities guessed from popularity.\nPopularity ranks "
        "exposure but not its level, so the base rate stays unknown: predicted over observed is "
        f"{guessed['CalibrationInTheLarge']:.2f}. A few randomly shown items would settle it.\n"
    )
