"""`calibrank diagnose`."""

from dataclasses import asdict, replace
from typing import Any

from calibrank.cli.columns import choose_columns, find_user
from calibrank.cli.console import (
    console,
    print_json,
    progress_bar,
    require_effect,
    require_fraction,
    require_one_propensity_source,
    shown,
)
from calibrank.cli.declared import choose_label
from calibrank.cli.options import (
    ClicksOption,
    ImpressionsOption,
    ItemForPopularityOption,
    JsonOption,
    LabelOption,
    LogKind,
    LogOption,
    NegativesKeptOption,
    OptionalLossOption,
    PositiveOption,
    PropensityKind,
    PropensityKindOption,
    PropensityOption,
    ScoreOption,
    SoftOption,
    TableArgument,
    UserOption,
    WeightOption,
)
from calibrank.cli.recorded import assumption_about, choose_weighting
from calibrank.cli.rendering import bar, sensitivity_lines
from calibrank.diagnosis import Diagnosis, Severity
from calibrank.diagnosis import diagnose as diagnose_table
from calibrank.maps import Sensitivity
from calibrank.tabular.aggregate import aggregate
from calibrank.tabular.profile import profile
from calibrank.tabular.read import Table
from calibrank.tabular.rules import Rules

_MARKS = {
    Severity.ok: "[green]ok[/]      ",
    Severity.note: "[cyan]note[/]    ",
    Severity.warning: "[yellow]warning[/] ",
}


def diagnose(
    table: TableArgument,
    score: ScoreOption = None,
    label: LabelOption = None,
    positive: PositiveOption = None,
    clicks: ClicksOption = None,
    impressions: ImpressionsOption = None,
    soft: SoftOption = False,
    user: UserOption = None,
    propensity: PropensityOption = None,
    propensity_kind: PropensityKindOption = PropensityKind.relative,
    item: ItemForPopularityOption = None,
    weight: WeightOption = None,
    log_kind: LogOption = None,
    loss: OptionalLossOption = None,
    negatives_kept: NegativesKeptOption = 1.0,
    json: JsonOption = False,
) -> None:
    """Check a table before fitting: what it identifies, what is wrong, which labels to collect.

    Example: calibrank diagnose scores.parquet --item item_id
    """
    require_fraction("--negatives-kept", negatives_kept)
    require_one_propensity_source(propensity, item)
    require_effect(loss, propensity, item)
    source = Table.find(table)
    declared = choose_label(source, label, positive, clicks, impressions, soft=soft)
    # Numbers of impressions say what the rows are.
    log_kind = LogKind.impressions if impressions is not None else log_kind
    weighting = choose_weighting(
        source, log_kind, loss, propensity, item, user, needs_weights=False
    )
    user_column = find_user(source, user)
    assumption = assumption_about(source, weighting.propensity, propensity_kind)
    columns = choose_columns(
        source, score, declared, weighting, item, weight, user_column, negatives_kept, assumption
    )
    # Invalid rows are what a diagnosis is about: they are counted, never an error.
    rules = Rules(skip=True)
    with progress_bar(source, "Profiling") as progress:
        # Items are counted even if propensities do not come from them.
        profiled = replace(columns, item=columns.item or source.has("item"))
        found = profile(source, profiled, progress)
    with progress_bar(source, "Aggregating") as progress:
        # Users matter to the profile only; without them a row with a missing user counts.
        user_of_exposure = columns.user if columns.user in columns.exposure else None
        aggregated = aggregate(source, replace(columns, user=user_of_exposure), rules, progress)
    diagnosis = diagnose_table(
        found, aggregated, columns, rules.skipped, has_users=user_column is not None
    )
    if json:
        print_json(_as_json(diagnosis))
        return
    _print_diagnosis(diagnosis)


def _as_json(diagnosis: Diagnosis) -> dict[str, Any]:
    sensitivity = diagnosis.sensitivity
    deciles = []
    for score, rate in diagnosis.deciles:
        deciles.append({"score": score, "preference": rate})
    return {
        "findings": [asdict(finding) for finding in diagnosis.findings],
        "deciles": deciles,
        "sensitivity": None if sensitivity is None else _sensitivity_json(sensitivity),
        "label_plan": [step._asdict() for step in diagnosis.label_plan],
        "propensity_bias": [
            {"factor": factor, "bias": bias} for factor, bias in diagnosis.propensity_bias.items()
        ],
    }


def _sensitivity_json(sensitivity: Sensitivity) -> dict[str, Any]:
    return {**asdict(sensitivity), "is_informative": sensitivity.is_informative}


def _print_diagnosis(diagnosis: Diagnosis) -> None:
    for finding in diagnosis.findings:
        mark = _MARKS[finding.severity]
        text = f"{mark}[bold]{shown(finding.subject)}[/]: {shown(finding.message)}"
        console.print(text, highlight=False)
    _print_deciles(diagnosis)
    if diagnosis.sensitivity is not None:
        console.print("\n" + sensitivity_lines(diagnosis.sensitivity), highlight=False)
    if diagnosis.label_plan:
        _print_label_plan(diagnosis)


def _print_deciles(diagnosis: Diagnosis) -> None:
    rates = [rate for _, rate in diagnosis.deciles]
    # Not 0, by which bars are divided.
    highest = max(*rates, 1e-12)
    console.print("\n[bold]Weighted mean label by tenths of the table, lowest scores first[/]")
    console.print("[bold]   score  mean label[/]")
    for score, rate in diagnosis.deciles:
        console.print(f"{score:8.3g}  {rate:10.4f}  {bar(rate, highest)}", highlight=False)


def _print_label_plan(diagnosis: Diagnosis) -> None:
    console.print("\n[bold]Expected calibration error after labelling randomly shown pairs[/]")
    console.print("[bold]   labels  expected ECE[/]")
    largest = max(step.error for step in diagnosis.label_plan)
    for step in diagnosis.label_plan:
        line = f"{step.labels:9,}  {step.error:12.4f}  {bar(step.error, largest)}"
        console.print(line, highlight=False)
