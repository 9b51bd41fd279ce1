"""`calibrank compare`."""

from typing import Any

import numpy as np
from rich import box
from rich.table import Table as RichTable

from calibrank.cli import console
from calibrank.cli.declared import choose_columns
from calibrank.cli.parse import Given, as_typed
from calibrank.curves import Calibrator, fit_without_each
from calibrank.errors import DataError, FitError
from calibrank.evidence import Evidence
from calibrank.metrics import (
    CalibrationIntercept,
    CalibrationInTheLarge,
    CalibrationSlope,
    ConstantLogLoss,
    LogLossGain,
)
from calibrank.metrics.panel import HEADLINE
from calibrank.registry import CALIBRATORS
from calibrank.summary import Summary
from calibrank.tabular.aggregate import summarize
from calibrank.tabular.read import Table

CONSTANT = ConstantLogLoss().name
GAIN = LogLossGain().name

# Short headings: the table must fit a terminal of 80 columns.
_HEADINGS = {
    GAIN: "gain",
    CalibrationInTheLarge().name: "pred/obs",
    CalibrationSlope().name: "slope",
    CalibrationIntercept().name: "intercept",
}

Result = dict[str, float | str]
"""Metrics by name, or the reason under "error"."""


def compare(given: Given) -> None:
    """Compare all calibration methods by cross-validation over users."""
    table = Table.find(given.table)
    rules = console.rules_for(given)
    # Folds by user: rows of one user are alike, and must not be on both sides.
    user = given.user or table.has("user")
    columns = choose_columns(table, given, given.item, user)
    kind = columns.evidence.__name__
    with console.reading(table, "Reading", rules) as progress:
        summaries = summarize(table, columns, rules, progress, folds=given.folds)
    results = {}
    for name, calibrator in CALIBRATORS.items():
        results[as_typed(name)] = _cross_validate(calibrator, summaries)
    about = {"evidence": kind, "folds": given.folds, "user": user}
    console.answer({**about, "methods": results, "skipped": rules.skipped})
    unit = f"user ({console.shown(user)})" if user else "row (there is no user column)"
    title = f"{given.folds}-fold cross-validation by {unit}, {kind} evidence"
    _print_comparison(results, title, weighted=kind != "naive")


def _cross_validate(calibrator: Calibrator, summaries: list[Summary]) -> Result:
    """Metrics over all held-out folds together, or the reason why there are none."""
    try:
        maps = fit_without_each(calibrator, summaries)
    except (FitError, DataError) as error:
        return {"error": str(error)}
    # Metrics of all folds at once: a mean over folds would weight small folds too much.
    predicted = []
    for fitted, held_out in zip(maps, summaries, strict=True):
        predicted.append(fitted.predict(held_out.scores))
    probabilities = np.concatenate(predicted)
    positive = np.concatenate([summary.positive for summary in summaries])
    total = np.concatenate([summary.total for summary in summaries])
    evidence = Evidence.trusted(positive, total, summaries[0].kind)
    return {metric.name: metric(probabilities, evidence) for metric in HEADLINE}


def _print_comparison(results: dict[str, Result], title: str, *, weighted: bool) -> None:
    fitted = {name: values for name, values in results.items() if "error" not in values}
    # With weighted labels above 1 the log loss has no lower bound, so its minimum means nothing.
    is_loss = all(float(values["LogLoss"]) >= 0 for values in fitted.values())
    console.show(_comparison_table(results, title, mark_best=is_loss))
    if fitted:
        console.show(_constant_line(fitted))
    if not is_loss:
        console.show(
            "[yellow]A negative log loss is not a loss:[/] the mean weighted label exceeds 1 for "
            "some scores, so no method is marked. Run calibrank diagnose."
        )
    if weighted:
        console.show(
            "[dim]Methods are evaluated with the weighted labels that they are fitted to. "
            "This compares the shapes of their curves; it does not test the base rate.[/]"
        )


def _constant_line(fitted: dict[str, Result]) -> str:
    """What a constant achieves, and which methods are worse."""
    constant = float(next(iter(fitted.values()))[CONSTANT])
    worse = [name for name, values in fitted.items() if float(values[GAIN]) < 0]
    line = (
        f"Log loss of the best constant (the base rate): [bold]{constant:.4f}[/]; gain: how much "
        "lower a method's is. Slope and intercept are ideally 1 and 0."
    )
    if worse:
        line += f" [yellow]Worse than this constant:[/] {', '.join(worse)}."
    return line


def _comparison_table(results: dict[str, Result], title: str, *, mark_best: bool) -> RichTable:
    # The constant is the same for every method: it has a line of its own.
    names = [metric.name for metric in HEADLINE if metric.name != CONSTANT]
    headings = ["method", *[_HEADINGS.get(name, name) for name in names]]
    settings: dict[str, Any] = {"box": box.SIMPLE_HEAD, "padding": (0, 1, 0, 0), "show_edge": False}
    table = console.table(*headings, title=title, **settings)
    table.columns[0].no_wrap = True
    fitted = {name: values for name, values in results.items() if "error" not in values}
    ranking = sorted(fitted, key=lambda name: fitted[name]["LogLoss"])
    for rank, name in enumerate(ranking):
        cells = [f"{fitted[name][metric]:.4f}" for metric in names]
        if rank == 0 and mark_best:
            table.add_row(f"{name} (best)", *cells, style="bold green")
        else:
            table.add_row(name, *cells)
    for name, values in results.items():
        if "error" in values:
            # The first clause states the rule that was broken; the rest would not fit a cell.
            table.add_row(name, console.shown(str(values["error"]).split(",")[0]), style="dim")
    return table
