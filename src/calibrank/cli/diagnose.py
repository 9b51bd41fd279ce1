"""`calibrank diagnose`."""

import warnings
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from calibrank._internal.validation import Floats
from calibrank.cli import console
from calibrank.cli.declared import choose_columns, find_user, require_columns, without_users
from calibrank.cli.failures import as_option
from calibrank.cli.parse import Given
from calibrank.cli.rendering import bar, sensitivity_lines
from calibrank.cli.selection import FALLBACK, Method
from calibrank.curves import Calibrator
from calibrank.diagnosis import Diagnosis, Finding, Severity, check_balance
from calibrank.diagnosis import diagnose as diagnose_table
from calibrank.errors import CalibrankError, FlatMapWarning, remedy_text
from calibrank.evidence import ips
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


def diagnose(given: Given) -> None:
    """Check a table before fitting: what it identifies, and which labels to collect."""
    table = Table.find(given.table)
    user = find_user(table, given.user)
    columns = choose_columns(table, given, given.item, user, needs_weights=False)
    # Invalid rows are what a diagnosis is about: they are counted, never an error.
    rules = Rules(skip=True)
    with console.reading(table, "Profiling") as progress:
        # Items are counted even if propensities do not come from them.
        profiled = replace(columns, item=columns.item or table.has("item"))
        found = profile(table, profiled, progress)
    with console.reading(table, "Aggregating") as progress:
        # As in a fit: without --user, a row with a missing user counts.
        columns = columns if given.user is not None else without_users(columns)
        method = Method("auto")
        aggregated = aggregate(table, columns, rules, progress, method.folds)
    diagnosis = diagnose_table(
        found,
        aggregated,
        columns,
        rules.skipped,
        has_users=user is not None,
        calibrator=_chosen(method, aggregated),
    )
    if given.balance or given.exposed:
        checks = _check_balance(table, columns, given)
        diagnosis = replace(diagnosis, findings=(*diagnosis.findings, *checks))
    console.answer(_as_json(diagnosis))
    _print_diagnosis(diagnosis)


def _check_balance(table: Table, columns: Columns, given: Given) -> list[Finding]:
    """Compare the columns of shown rows: in a log of interactions, those of positives."""
    names = require_columns(table, given.balance, "balance")
    extra = require_columns(table, [given.exposed] if given.exposed else [], "exposed")
    propensity = str(given.propensity)
    positives_only = columns.evidence is ips and not extra
    read = [*dict.fromkeys([propensity, *names, *extra, columns.label])]
    parts: dict[str, list[Floats]] = {name: [] for name in read}
    for batch in table.batches(read):
        numbers = {name: batch.numbers(name).astype(np.float64) for name in read}
        used = np.isfinite(numbers[propensity]) & (numbers[propensity] > 0)
        for name in names:
            used &= np.isfinite(numbers[name])
        if positives_only:
            used &= numbers[columns.label] == 1
        for name in read:
            parts[name].append(numbers[name][used])
    values = {name: np.concatenate(each) for name, each in parts.items()}
    known = values[given.exposed] if extra else None
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
    findings = []
    for each in diagnosis.findings:
        about = {"subject": each.subject, "severity": each.severity, "message": _message(each)}
        findings.append(about)
    ranged = diagnosis.sensitivity
    sensitivity = ranged and asdict(ranged) | {"is_informative": ranged.is_informative}
    return {
        "findings": findings,
        "deciles": [{"score": score, "preference": rate} for score, rate in diagnosis.deciles],
        "sensitivity": sensitivity,
        "label_plan": [step._asdict() for step in diagnosis.label_plan],
        "propensity_bias": [
            {"factor": factor, "bias": bias} for factor, bias in diagnosis.propensity_bias.items()
        ],
    }


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
