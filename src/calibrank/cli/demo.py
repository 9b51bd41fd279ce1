"""`calibrank demo`."""

from typing import TYPE_CHECKING

from rich.table import Table as RichTable

from calibrank.cli import console
from calibrank.cli.parse import Given

if TYPE_CHECKING:
    from calibrank.demo import Demo, Run


def demo(given: Given) -> int:
    """Compare every calibration method on synthetic data with known preferences."""
    console.require_folder(given.out)
    # matplotlib takes longer to load than most commands take to run.
    from calibrank import demo as demonstration  # noqa: PLC0415  (slow to load)

    with console.screen.status("Generating data and fitting every method ..."):
        result = demonstration.run_demo(given.pairs, given.seed)
    console.show(_introduction(result))
    console.show(_result_table(result))
    console.show(_conclusion(result))
    with console.screen.status("Drawing figures ..."):
        paths = demonstration.save_figures(result, given.out)
    map_file = given.out / "map.json"
    unchanged = demonstration.save_and_reload(result, map_file)
    console.show("[bold]Figures:[/] " + ", ".join(console.shown(path) for path in paths))
    outcome = "the same probabilities" if unchanged else "DIFFERENT probabilities"
    console.show(f"[bold]Map:[/] {console.shown(map_file)} (reloaded: {outcome})")
    return int(not unchanged)


def _introduction(result: "Demo") -> str:
    world = result.world
    observed = world.labels.mean()
    return (
        f"\n{len(world):,} synthetic user-item pairs. Users would like [bold]{world.base_rate:.1%}"
        f"[/] of them, but the log records only [bold]{observed:.1%}[/] as positive, because most "
        "pairs were never shown.\nEach method is fitted to the scores and that log, and evaluated "
        "against the true preferences of new pairs. Labels are used in three ways:\n"
        "  naive       as the log records them\n"
        "  UERM        weighted by the true propensities: unbiased empirical risk\n"
        "              minimization\n"
        "  popularity  weighted by propensities estimated from item popularity\n"
    )


def _result_table(result: "Demo") -> RichTable:
    from calibrank.demo import METRICS  # noqa: PLC0415  (matplotlib)

    # Short headings: the table must fit a terminal of 80 columns.
    title = "Against the true preferences (lower is better; mean pred/obs: closer to 1)"
    table = RichTable(title=title, title_justify="left")
    table.add_column("method")
    table.add_column("labels")
    for metric in METRICS:
        is_ratio = metric.name == "CalibrationInTheLarge"
        table.add_column("pred/obs" if is_ratio else metric.name, justify="right")
    # A method's name is printed once, beside the first of its runs.
    previous = ""
    for run in result.runs:
        if run.estimated or (run.starts_group and run.method != previous):
            table.add_section()
        repeated = run.method == previous and not run.estimated
        table.add_row("" if repeated else run.method, run.loss, *_cells(run, result))
        previous = run.method
    return table


def _cells(run: "Run", result: "Demo") -> list[str]:
    """The values of one run, the best of all runs with known propensities in bold."""
    from calibrank.demo import METRICS  # noqa: PLC0415  (matplotlib)

    cells = []
    for metric in METRICS:
        value = run.values[metric.name]
        is_best = not run.estimated and metric.better.loss(value) == result.lowest_loss(metric)
        cells.append(f"[bold green]{value:.4f}[/]" if is_best else f"{value:.4f}")
    return cells


def _conclusion(result: "Demo") -> str:
    unweighted = result.find("Gaussian", "naive").values
    weighted = result.find("Gaussian", "UERM").values
    estimated = result.runs[-1].values
    ratio = estimated["CalibrationInTheLarge"]
    return (
        f"\nGaussian calibration: ECE {unweighted['ECE']:.4f} with the labels as they are, "
        f"[bold]{weighted['ECE']:.4f}[/] with labels weighted by true propensities (UERM), "
        f"{estimated['ECE']:.4f} with propensities estimated from item popularity.\n"
        "Popularity shows which items are seen more often, but not how often, so the base rate "
        f"stays unknown: mean predicted over mean observed is {ratio:.2f}.\n"
        "Labels of a few hundred randomly shown pairs would determine it.\n"
    )
