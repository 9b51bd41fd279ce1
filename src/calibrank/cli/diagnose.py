"""`calibrank diagnose`."""

import warnings
from dataclasses import asdict, replace
from typing import Any

from calibrank.cli import console, options
from calibrank.cli.declared import (
    Log,
    choose_columns,
    choose_label,
    choose_weighting,
    find_user,
    without_users,
)
from calibrank.cli.failures import as_option
from calibrank.cli.rendering import bar, sensitivity_lines
from calibrank.cli.selection import FALLBACK, Method
from calibrank.curves import Calibrator
from calibrank.diagnosis import Diagnosis, Finding, Severity
from calibrank.diagnosis import diagnose as diagnose_table
from calibrank.errors import CalibrankError, FlatMapWarning, remedy_text
from calibrank.maps import Sensitivity
from calibrank.tabular.aggregate import Aggregate, aggregate
from calibrank.tabular.profile import profile
from calibrank.tabular.read import Table
from calibrank.tabular.rules import Rules

_MARKS = {
    Severity.ok: "[green]ok[/]      ",
    Severity.note: "[cyan]note[/]    ",
    Severity.warning: "[yellow]warning[/] ",
}


def diagnose(
    table: options.Table,
    score: options.Score = None,
    label: options.Label = None,
    user: options.User = None,
    propensity: options.Propensity = None,
    item: options.ItemForPopularity = None,
    weight: options.Weight = None,
    log_kind: options.Log = None,
    negatives_kept: options.NegativesKept = 1.0,
    json: options.Json = False,
) -> None:
    """Check a table before fitting: what it identifies, and which labels to collect.

    Example: calibrank diagnose scores.parquet --item item_id
    """
    log = Log(log_kind, propensity, item, user)
    source = Table.find(table)
    declared = choose_label(source, label)
    weighting = choose_weighting(source, log, declared, needs_weights=False)
    user_column = find_user(source, user)
    columns = choose_columns(
        source, score, declared, weighting, weight, item, user_column, negatives_kept
    )
    # Invalid rows are what a diagnosis is about: they are counted, never an error.
    rules = Rules(skip=True)
    with console.progress_bar(source, "Profiling") as progress:
        # Items are counted even if propensities do not come from them.
        profiled = replace(columns, item=columns.item or source.has("item"))
        found = profile(source, profiled, progress)
    with console.progress_bar(source, "Aggregating") as progress:
        # As in a fit: without --user, a row with a missing user counts.
        columns = columns if user is not None else without_users(columns)
        method = Method("auto")
        aggregated = aggregate(source, columns, rules, progress, method.folds)
    diagnosis = diagnose_table(
        found,
        aggregated,
        columns,
        rules.skipped,
        has_users=user_column is not None,
        calibrator=_chosen(method, aggregated),
    )
    if json:
        console.print_json(_as_json(diagnosis))
        return
    _print_diagnosis(diagnosis)


def _chosen(method: Method, aggregated: Aggregate) -> Calibrator:
    """The method that a fit would choose; where none can be fitted, the diagnosis says why."""
    try:
        with warnings.catch_warnings():
            # The checks of the scores report this.
            warnings.simplefilter("ignore", FlatMapWarning)
            return method.fit(aggregated)[0]
    except CalibrankError:
        return FALLBACK


def _as_json(diagnosis: Diagnosis) -> dict[str, Any]:
    sensitivity = diagnosis.sensitivity
    deciles = []
    for score, rate in diagnosis.deciles:
        deciles.append({"score": score, "preference": rate})
    return {
        "findings": [
            {"subject": each.subject, "severity": each.severity, "message": _message(each)}
            for each in diagnosis.findings
        ],
        "deciles": deciles,
        "sensitivity": None if sensitivity is None else _sensitivity_json(sensitivity),
        "label_plan": [step._asdict() for step in diagnosis.label_plan],
        "propensity_bias": [
            {"factor": factor, "bias": bias} for factor, bias in diagnosis.propensity_bias.items()
        ],
    }


def _sensitivity_json(sensitivity: Sensitivity) -> dict[str, Any]:
    return {**asdict(sensitivity), "is_informative": sensitivity.is_informative}


def _message(finding: Finding) -> str:
    return f"{finding.message} {remedy_text(finding.remedy, as_option)}".strip()


def _print_diagnosis(diagnosis: Diagnosis) -> None:
    for finding in diagnosis.findings:
        mark = _MARKS[finding.severity]
        message = console.shown(_message(finding))
        text = f"{mark}[bold]{console.shown(finding.subject)}[/]: {message}"
        console.screen.print(text, highlight=False)
    _print_deciles(diagnosis)
    if diagnosis.sensitivity is not None:
        console.screen.print("\n" + sensitivity_lines(diagnosis.sensitivity), highlight=False)
    if diagnosis.label_plan:
        _print_label_plan(diagnosis)


def _print_deciles(diagnosis: Diagnosis) -> None:
    rates = [rate for _, rate in diagnosis.deciles]
    # Not 0, by which bars are divided.
    highest = max(*rates, 1e-12)
    console.screen.print(
        "\n[bold]Weighted mean label by tenths of the table, lowest scores first[/]"
    )
    console.screen.print("[bold]   score  mean label[/]")
    for score, rate in diagnosis.deciles:
        console.screen.print(f"{score:8.3g}  {rate:10.4f}  {bar(rate, highest)}", highlight=False)


def _print_label_plan(diagnosis: Diagnosis) -> None:
    console.screen.print(
        "\n[bold]Expected calibration error after labelling randomly shown pairs[/]"
    )
    console.screen.print("[bold]   labels  expected ECE[/]")
    largest = max(step.error for step in diagnosis.label_plan)
    for step in diagnosis.label_plan:
        line = f"{step.labels:9,}  {step.error:12.4f}  {bar(step.error, largest)}"
        console.screen.print(line, highlight=False)
