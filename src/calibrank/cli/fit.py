"""`calibrank fit`."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from calibrank.anchoring import with_sampling_range
from calibrank.cli import console, options
from calibrank.cli.declared import Log, choose_columns, say_choice, without_users
from calibrank.cli.position import with_examination
from calibrank.cli.rendering import base_rate_lines, probability_table, sensitivity_lines
from calibrank.cli.selection import Method
from calibrank.cli.terms import choose_terms, fit_terms, print_terms, with_term_columns
from calibrank.composition import refusal
from calibrank.diagnosis import attach_sensitivity
from calibrank.errors import FitError
from calibrank.maps import CalibrationMap, describe_selection
from calibrank.metrics import ConstantLogLoss, LogLoss
from calibrank.metrics.misfit import misfit
from calibrank.metrics.panel import HEADLINE
from calibrank.model import Model
from calibrank.summary import Summary
from calibrank.tabular.aggregate import aggregate
from calibrank.tabular.read import Table
from calibrank.tabular.rules import Rules


def fit(
    table: str,
    score: str | None,
    label: str | None,
    item: str | None,
    user: str | None,
    propensity: str | None,
    weight: str | None,
    position: str | None,
    log_kind: options.LogKind | None,
    negatives_kept: float,
    on_bad_rows: options.OnBadRows,
    method: str,
    segment: list[str] | None,
    feature: list[str] | None,
    out: Path,
    json: bool,
) -> None:
    """Fit a calibration map to a table of scores and labels of any size."""
    # All options are checked before the table is read, which may take minutes.
    log = Log(log_kind, propensity, item, user, position)
    console.require_output(out, table)
    source = Table.find(table)
    console.require_output(out, *source.files)
    rules = console.rules_for(on_bad_rows)
    columns = choose_columns(source, log, score, label, weight, item, user, negatives_kept)
    say_choice(source, "score", score, columns.score)
    if columns.label_rule is None:
        say_choice(source, "label", label, columns.label)
    chosen = Method(method)
    if not (chosen.selector or columns.exposure or position):
        console.require_unused(f"with --method {method}", {"--user": user})
    terms = choose_terms(source, segment, feature)
    if terms and method == "minmax":
        raise refusal("MinMax", "terms, another base rate")
    if position is not None:
        columns = with_examination(source, columns, rules)
    columns = columns if chosen.selector else without_users(columns)
    columns = with_term_columns(columns, terms)
    # Sums by level are taken in the first pass; other terms need the rows.
    alone = len(terms) == 1 and bool(columns.segments)
    first = columns if alone else replace(columns, segments=(), features={})
    with console.progress_bar(source, "Reading") as progress:
        aggregated = aggregate(source, first, rules, progress, chosen.folds, chosen.distinct_scores)
    if columns.needs_exposure:
        console.say(f"Using {aggregated.exposure}")
    calibrator, fitted = chosen.fit(aggregated)
    if (fitted.record.loss or 0.0) < 0:
        raise FitError(
            "the log loss",
            "be 0 or more",
            f"{fitted.record.loss:.4f}: positives weigh more than the rows they are among, so "
            "that rows and weights do not stand for all pairs",
            "Add or weight negatives (--negatives-kept), or raise small propensities.",
        )
    if log_kind is options.LogKind.policy:
        fitted = with_sampling_range(fitted, aggregated.summary)
    fitted = attach_sensitivity(fitted, calibrator, aggregated, columns)
    saved = fitted
    if terms:
        model = Model(calibrator, tuple(terms))
        saved = fit_terms(model, fitted, source, columns, aggregated, rules)
    out.parent.mkdir(parents=True, exist_ok=True)
    saved.save(out)
    console.report_skipped(rules)
    if json:
        console.print_json(_as_json(saved, aggregated.summary, out, rules))
        return
    _print(fitted, saved, aggregated.summary, out)


def _as_json(fitted: CalibrationMap, summary: Summary, out: Path, rules: Rules) -> dict[str, Any]:
    about = {"out": str(out), **fitted.to_dict(), "misfit": None, "skipped": rules.skipped}
    if fitted.terms:
        # The summary has scores alone; the loss was computed with the columns.
        loss = fitted.record.loss
        return {**about, "metrics": {} if loss is None else {LogLoss().name: loss}}
    probabilities = fitted.predict(summary.scores)
    metrics = {metric.name: metric(probabilities, summary.evidence) for metric in HEADLINE}
    return {**about, "misfit": misfit(probabilities, summary)._asdict(), "metrics": metrics}


def _print(fitted: CalibrationMap, saved: CalibrationMap, summary: Summary, out: Path) -> None:
    """Print the caveat first, then the map, and what the log leaves open."""
    record = saved.record
    console.state(base_rate_lines(record))
    if record.sensitivity is not None:
        console.show(sensitivity_lines(record.sensitivity))
    rate = summary.positive.sum() / summary.total.sum()
    console.state(
        f"[bold]{console.shown(saved.method)}[/] fitted on {summary.rows:,} rows with "
        f"{summary.kind} evidence: scores {summary.low:.4g} to {summary.high:.4g}, mean label "
        f"{rate:.2%} after weighting."
    )
    if summary.kind == "impressions":
        console.state(f"Effective number of impressions: {summary.effective_rows:,.0f}.")
    if record.selection is not None:
        console.state(f"[bold]Method:[/] {describe_selection(record.selection)}.")
    console.show(probability_table(saved))
    print_terms(saved)
    _print_losses(fitted, saved, summary)
    console.state(f"[bold]Saved:[/] {console.shown(out)}")


def _print_losses(fitted: CalibrationMap, saved: CalibrationMap, summary: Summary) -> None:
    """Print the losses on the rows of the fit, beside that of a constant, and a misfit."""
    probabilities = fitted.predict(summary.scores)
    losses = {"of a constant": ConstantLogLoss()(probabilities, summary.evidence)}
    losses["of the scores alone"] = LogLoss()(probabilities, summary.evidence)
    if saved.terms and saved.record.loss is not None:
        losses[f"with {', '.join(saved.columns)}"] = saved.record.loss
    parts = [f"{value:.4f} {console.shown(name)}" for name, value in losses.items()]
    console.state(
        f"Log loss on the rows of the fit: {', '.join(parts)}. For other rows, use calibrank "
        "evaluate."
    )
    shape = misfit(probabilities, summary)
    if shape.matters:
        console.state(f"[yellow]Misfit:[/] {shape.message}")
