"""`calibrank diagnose`."""

import warnings
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from calibrank._internal.validation import Floats
from calibrank.cli import console
from calibrank.cli.declared import choose_columns, find_user, require_columns, without_users
from calibrank.cli.failures import as_option
from calibrank.cli.fit import Method
from calibrank.cli.parse import Given
from calibrank.cli.rendering import bar, sensitivity_lines
from calibrank.curves import Calibrator, Platt
from calibrank.diagnosis import Finding, check_balance
from calibrank.diagnosis import diagnose as diagnose_table
from calibrank.diagnosis.table_checks import profile
from calibrank.errors import CalibrankError, FlatMapWarning, remedy_text
from calibrank.evidence import ips
from calibrank.tabular.aggregate import Aggregate, aggregate
from calibrank.tabular.columns import Columns
from calibrank.tabular.read import Table
from calibrank.tabular.rules import Rules

_COLOURS = {"ok": "green", "note": "cyan", "warning": "yellow"}


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
    chosen = _chosen(method, aggregated)
    has_users = user is not None
    result = diagnose_table(found, aggregated, columns, rules.skipped, chosen, has_users=has_users)
    findings = list(result.findings)
    if given.balance or given.exposed:
        findings += _check_balance(table, columns, given)
    rows = []
    for each in findings:
        text = f"{each.message} {remedy_text(each.remedy, as_option)}".strip()
        rows.append({"subject": each.subject, "severity": each.severity, "message": text})
    ranged = result.sensitivity
    about: dict[str, Any] = {"findings": rows, "label_plan": result.label_plan}
    about["deciles"] = [{"score": score, "preference": rate} for score, rate in result.deciles]
    about["sensitivity"] = ranged and asdict(ranged) | {"is_informative": ranged.is_informative}
    console.answer(about)
    # What to worry about comes first.
    for row in sorted(rows, key=lambda row: row["severity"] != "warning"):
        mark = f"[{_COLOURS[row['severity']]}]{row['severity']:7}[/]"
        about_it = f"[bold]{console.shown(row['subject'])}[/]: {console.shown(row['message'])}"
        console.show(f"{mark} {about_it}")
    console.show("\n[bold]Weighted mean label by tenths of the table, lowest scores first[/]")
    rates = {f"{score:8.3g}": rate for score, rate in result.deciles}
    _print_bars("   score  mean label", rates)
    if ranged is not None:
        console.show("\n" + sensitivity_lines(ranged))
    if result.label_plan:
        console.show(
            "\n[bold]Expected calibration error after labelling randomly shown pairs[/], "
            "if the log has the right shape. With 30 labels it may be half as much again."
        )
        errors = {f"{step.labels:9,}": step.error for step in result.label_plan}
        _print_bars("   labels  expected ECE", errors)


def _print_bars(headings: str, values: dict[str, float]) -> None:
    """A line for each value, with a bar; the longest is that of the highest."""
    console.show(f"[bold]{headings}[/]")
    # Not 0, by which bars are divided.
    highest = max(*values.values(), 1e-12)
    for name, value in values.items():
        console.show(f"{name}  {value:10.4f}  {bar(value, highest)}")


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
        return Platt()
