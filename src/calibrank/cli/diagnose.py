"""`calibrank diagnose`."""

from dataclasses import asdict, replace
from typing import Annotated

import typer
from rich.markup import escape

from calibrank.cli.console import (
    ItemOption,
    JsonOption,
    LabelOption,
    Loss,
    PropensityOption,
    ScoreOption,
    TableArgument,
    UserOption,
    WeightOption,
    choose_columns,
    console,
    describe_sensitivity,
    print_json,
    reading,
    require_share,
)
from calibrank.diagnosis import Diagnosis, Tone
from calibrank.diagnosis import diagnose as diagnose_table
from calibrank.tabular.aggregate import aggregate
from calibrank.tabular.profile import profile
from calibrank.tabular.read import Table
from calibrank.tabular.rules import Rules

_MARKS = {
    Tone.fine: "[green]fine[/]    ",
    Tone.note: "[cyan]note[/]    ",
    Tone.warning: "[yellow]warning[/] ",
}


def diagnose(
    table: TableArgument,
    score: ScoreOption = None,
    label: LabelOption = None,
    user: UserOption = None,
    propensity: PropensityOption = None,
    item: ItemOption = None,
    weight: WeightOption = None,
    loss: Annotated[
        Loss | None,
        typer.Option(
            help="How labels become evidence; ips where propensities are named, else naive."
        ),
    ] = None,
    negatives_kept: Annotated[
        float, typer.Option(help="The share of rows without a positive that TABLE holds.")
    ] = 1.0,
    json: JsonOption = False,
) -> None:
    """Say in words what a table can tell and what not, what is wrong with it, and what to collect.

    Example: calibrank diagnose scores.parquet --item item_id
    """
    require_share("--negatives-kept", negatives_kept)
    source = Table.find(table)
    if loss is None:
        loss = Loss.naive if propensity is None and item is None else Loss.ips
    who = source.resolve("user", user) if user else source.has("user")
    columns = choose_columns(
        source, score, label, loss, propensity, item, weight, who, negatives_kept
    )
    rules = Rules(skip=True)
    with reading(source, "Surveying") as progress:
        found = profile(source, replace(columns, item=columns.item or source.has("item")), progress)
    with reading(source, "Weighing") as progress:
        summed = aggregate(source, replace(columns, user=None), rules, progress)
    diagnosis = diagnose_table(found, summed, columns, rules.skipped, named_user=who is not None)
    if json:
        print_json(_plain(diagnosis))
        return
    _print(diagnosis)


def _plain(diagnosis: Diagnosis) -> dict[str, object]:
    fitted = diagnosis.fitted
    doubt = (
        None
        if fitted is None or fitted.record.sensitivity is None
        else asdict(fitted.record.sensitivity)
    )
    return {
        "findings": [asdict(finding) for finding in diagnosis.findings],
        "bands": [{"score": score, "preference": rate} for score, rate in diagnosis.bands],
        "sensitivity": doubt,
        "plan": [step._asdict() for step in diagnosis.planned],
    }


def _print(diagnosis: Diagnosis) -> None:
    for finding in diagnosis.findings:
        console.print(
            f"{_MARKS[finding.tone]}[bold]{finding.about}[/]: {escape(finding.words)}",
            highlight=False,
        )
    highest = max(*(rate for _, rate in diagnosis.bands), 1e-12)
    console.print("\n[bold]   score  mean Y/w by tenths of the table[/]")
    for score, rate in diagnosis.bands:
        console.print(
            f"{score:8.3g}  {rate:8.4f}  {'█' * round(rate / highest * 40)}", highlight=False
        )
    doubt = None if diagnosis.fitted is None else describe_sensitivity(diagnosis.fitted.record)
    if doubt is not None:
        console.print("\n" + doubt, highlight=False)
    if diagnosis.planned:
        console.print("\n[bold]random labels  expected ECE[/]")
        most = max(step.error for step in diagnosis.planned)
        for step in diagnosis.planned:
            bar = "█" * round(step.error / most * 40)
            console.print(f"{step.labels:13,}  {step.error:12.4f}  {bar}", highlight=False)
