"""`calibrank compare`."""

from typing import Annotated

import numpy as np
import typer
from rich import box
from rich.table import Table as RichTable

from calibrank.cli.columns import choose_columns
from calibrank.cli.console import (
    console,
    print_json,
    progress_bar,
    report_skipped,
    require_effect,
    require_one_propensity_source,
    rules_for,
    shown,
)
from calibrank.cli.declared import choose_label
from calibrank.cli.options import (
    BadRowsOption,
    ClicksOption,
    ImpressionsOption,
    ItemForPopularityOption,
    JsonOption,
    LabelOption,
    LogKind,
    LogOption,
    LossOption,
    OnBadRows,
    PositiveOption,
    PropensityOption,
    ScoreOption,
    SoftOption,
    TableArgument,
    UserOption,
    WeightOption,
    as_typed,
)
from calibrank.cli.recorded import choose_weighting
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

FoldsOption = Annotated[
    int,
    typer.Option(min=2, max=1000, help="Folds of users; each is evaluated by a fit on the others."),
]
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


def compare(
    table: TableArgument,
    score: ScoreOption = None,
    label: LabelOption = None,
    positive: PositiveOption = None,
    clicks: ClicksOption = None,
    impressions: ImpressionsOption = None,
    soft: SoftOption = False,
    user: UserOption = None,
    propensity: PropensityOption = None,
    item: ItemForPopularityOption = None,
    weight: WeightOption = None,
    log_kind: LogOption = None,
    loss: LossOption = None,
    folds: FoldsOption = 5,
    on_bad_rows: BadRowsOption = OnBadRows.error,
    json: JsonOption = False,
) -> None:
    """Compare all calibration methods by cross-validation over users.

    The method with the lowest log loss is marked. With --item, propensities are estimated from the
    whole table, held-out users included.

    Example: calibrank compare scores.parquet --user user_id --item item_id
    """
    require_one_propensity_source(propensity, item)
    require_effect(loss, propensity, item)
    source = Table.find(table)
    rules = rules_for(on_bad_rows)
    # Folds by user: rows of one user are alike, and must not be on both sides.
    user_column = user or source.has("user")
    declared = choose_label(source, label, positive, clicks, impressions, soft=soft)
    # Numbers of impressions say what the rows are.
    log_kind = LogKind.impressions if impressions is not None else log_kind
    weighting = choose_weighting(source, log_kind, loss, propensity, item, user)
    loss = weighting.loss
    columns = choose_columns(source, score, declared, weighting, item, weight, user_column)
    with progress_bar(source, "Reading") as progress:
        summaries = summarize(source, columns, rules, progress, folds=folds)
    report_skipped(rules)
    results = {}
    for name, calibrator in CALIBRATORS.items():
        results[as_typed(name)] = _cross_validate(calibrator, summaries)
    if json:
        about = {"loss": loss, "folds": folds, "user": user_column}
        print_json({**about, "methods": results, "skipped": rules.skipped})
        return
    unit = f"user ({shown(user_column)})" if user_column else "row (there is no user column)"
    title = f"{folds}-fold cross-validation by {unit}, {loss} evidence"
    _print_comparison(results, title, weighted=loss != "naive")


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


def _print_comparison(
    results: dict[str, Result],
    title: str,
    *,
    weighted: bool,
) -> None:
    fitted = {name: values for name, values in results.items() if "error" not in values}
    # With weighted labels above 1 the log loss has no lower bound, so its minimum means nothing.
    is_loss = all(float(values["LogLoss"]) >= 0 for values in fitted.values())
    console.print(_comparison_table(results, title, mark_best=is_loss))
    if fitted:
        console.print(_constant_line(fitted), highlight=False)
    if not is_loss:
        console.print(
            "[yellow]A negative log loss is not a loss:[/] the mean weighted label exceeds 1 for "
            "some scores, so no method is marked. Run calibrank diagnose."
        )
    if weighted:
        console.print(
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


def _comparison_table(
    results: dict[str, Result],
    title: str,
    *,
    mark_best: bool,
) -> RichTable:
    table = RichTable(
        title=title,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        show_edge=False,
    )
    table.add_column("method", no_wrap=True)
    # The constant is the same for every method: it has a line of its own.
    names = [metric.name for metric in HEADLINE if metric.name != CONSTANT]
    for name in names:
        table.add_column(_HEADINGS.get(name, name), justify="right")
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
            table.add_row(name, shown(str(values["error"]).split(",")[0]), style="dim")
    return table
