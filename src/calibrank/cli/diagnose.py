"""`calibrank diagnose`."""

import warnings
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from calibrank._internal.validation import Floats
from calibrank.cli import console, options
from calibrank.cli.declared import Log, choose_columns, find_user, require_columns, without_users
from calibrank.cli.failures import as_option
from calibrank.cli.rendering import bar, sensitivity_lines
from calibrank.cli.selection import FALLBACK, Method
from calibrank.curves import Calibrator
from calibrank.diagnosis import Diagnosis, Finding, Severity, check_balance
from calibrank.diagnosis import diagnose as diagnose_table
from calibrank.errors import CalibrankError, FlatMapWarning, remedy_text
from calibrank.evidence import ips
from calibrank.maps import Sensitivity
from calibrank.tabular.aggregate import Aggregate, aggregate
from calibrank.tabular.columns import Columns
from calibrank.tabular.profile import profile
from calibrank.tabular.read import Table
from calibrank.tabular.rules import Rules

_MARKS = {
    Severity.ok: "[green]ok[/]      ",
    Severity.note: "[cyan]note[/]    ",
    Severity.warning: "[yellow]warning[/] ",
}


def diagnose(
    table: str,
    score: str | None,
    label: str | None,
    user: str | None,
    propensity: str | None,
    item: str | None,
    weight: str | None,
    log_kind: options.LogKind | None,
    negatives_kept: float,
    balance: list[str] | None,
    exposed: str | None,
    json: bool,
) -> None:
    """Check a table before fitting: what it identifies, and which labels to collect."""
    if propensity is None:
        unused = {"--balance": balance, "--exposed": exposed}
        console.require_unused("without --propensity", unused)
    log = Log(log_kind, propensity, item, user)
    source = Table.find(table)
    user_column = find_user(source, user)
    columns = choose_columns(
        source, log, score, label, weight, item, user_column, negatives_kept, needs_weights=False
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
    if propensity is not None and (balance or exposed):
        checks = _check_balance(source, columns, propensity, balance or [], exposed)
        diagnosis = replace(diagnosis, findings=(*diagnosis.findings, *checks))
    if json:
        console.print_json(_as_json(diagnosis))
        return
    _print_diagnosis(diagnosis)


def _check_balance(
    source: Table, columns: Columns, propensity: str, names: list[str], exposed: str | None
) -> list[Finding]:
    """Compare the columns of shown rows: in a log of interactions, those of positives."""
    require_columns(source, names, "balance")
    extra = require_columns(source, [] if exposed is None else [exposed], "exposed")
    positives_only = columns.evidence is ips and exposed is None
    read = [*dict.fromkeys([propensity, *names, *extra, columns.label])]
    parts: dict[str, list[Floats]] = {name: [] for name in read}
    for batch in source.batches(read):
        numbers = {name: batch.numbers(name).astype(np.float64) for name in read}
        used = np.isfinite(numbers[propensity]) & (numbers[propensity] > 0)
        for name in names:
            used &= np.isfinite(numbers[name])
        if positives_only:
            used &= numbers[columns.label] == 1
        for name in read:
            parts[name].append(numbers[name][used])
    values = {name: np.concatenate(each) for name, each in parts.items()}
    known = None if exposed is None else values[exposed]
    return list(check_balance(values[propensity], {name: values[name] for name in names}, known))


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
        console.show(text)
    _print_deciles(diagnosis)
    if diagnosis.sensitivity is not None:
        console.show("\n" + sensitivity_lines(diagnosis.sensitivity))
    if diagnosis.label_plan:
        _print_label_plan(diagnosis)


def _print_deciles(diagnosis: Diagnosis) -> None:
    rates = [rate for _, rate in diagnosis.deciles]
    # Not 0, by which bars are divided.
    highest = max(*rates, 1e-12)
    console.show("\n[bold]Weighted mean label by tenths of the table, lowest scores first[/]")
    console.show("[bold]   score  mean label[/]")
    for score, rate in diagnosis.deciles:
        console.show(f"{score:8.3g}  {rate:10.4f}  {bar(rate, highest)}")


def _print_label_plan(diagnosis: Diagnosis) -> None:
    console.show(
        "\n[bold]Expected calibration error after labelling randomly shown pairs[/], "
        "if the log has the right shape; with 30 labels, it was up to half more on real data"
    )
    console.show("[bold]   labels  expected ECE[/]")
    largest = max(step.error for step in diagnosis.label_plan)
    for step in diagnosis.label_plan:
        line = f"{step.labels:9,}  {step.error:12.4f}  {bar(step.error, largest)}"
        console.show(line)
