"""Runs all checks of a table, and fits a map to see what the table leaves open."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace

from calibrank.anchoring import ExpectedError, plan_labels, with_sensitivity
from calibrank.curves import Calibrator, Gaussian
from calibrank.diagnosis.distribution import label_deciles, score_quantiles
from calibrank.diagnosis.finding import Finding, note, ok, warning
from calibrank.diagnosis.fit_checks import (
    check_base_rate,
    check_label_plan,
    check_log,
    check_propensities,
    check_weights,
    propensity_biases,
)
from calibrank.diagnosis.table_checks import check_lists, check_rows, check_scores, check_skipped
from calibrank.errors import CalibrankError, FlatMapWarning
from calibrank.maps import CalibrationMap, Sensitivity
from calibrank.metrics.misfit import misfit
from calibrank.tabular.aggregate import Aggregate
from calibrank.tabular.columns import Columns
from calibrank.tabular.profile import Profile
from calibrank.tabular.propensity import propensity_model_for

# As many scores as `plan_labels` keeps of a population.
_POPULATION = 2_000


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All findings about a table, and the numbers behind them."""

    findings: tuple[Finding, ...]
    deciles: tuple[tuple[float, float], ...]
    """Mean score and mean weighted label (Y/w) in each tenth of the table, by score."""
    sensitivity: Sensitivity | None
    """What the log leaves open; None if labels are not weighted or no fit exists."""
    label_plan: tuple[ExpectedError, ...]
    """The error to expect with some numbers of random labels; empty if it is unknown."""
    propensity_bias: Mapping[float, float]
    """The bias of the risk by ratio of true to given propensities; empty without propensities."""


def diagnose(
    found: Profile,
    aggregated: Aggregate,
    columns: Columns,
    skipped: Mapping[str, int],
    *,
    has_users: bool,
    calibrator: Calibrator | None = None,
) -> Diagnosis:
    """Check a table that was profiled and aggregated.

    `skipped` counts rows with an invalid value, by the role of its column. `calibrator` is the
    method of the fit whose sensitivity is reported, by default Gaussian.
    """
    fitted, fit_finding = _fit(aggregated, columns, calibrator or Gaussian())
    sensitivity = None if fitted is None else fitted.record.sensitivity
    findings = [
        *check_rows(found),
        check_log(found, columns),
        *check_skipped(skipped),
        *check_scores(found),
        *check_lists(found, has_users=has_users),
        *check_weights(aggregated, columns),
        fit_finding,
        check_base_rate(columns, sensitivity),
    ]
    biases: dict[float, float] = {}
    if fitted is not None:
        biases = propensity_biases(fitted, aggregated, columns)
        findings += check_propensities(fitted, aggregated, biases)
    plan: tuple[ExpectedError, ...] = ()
    if fitted is not None and sensitivity is not None:
        plan, plan_finding = _plan(fitted, aggregated)
        findings.append(plan_finding)
    deciles = tuple(label_deciles(aggregated.summary))
    return Diagnosis(tuple(findings), deciles, sensitivity, plan, biases)


def _fit(
    aggregated: Aggregate, columns: Columns, calibrator: Calibrator
) -> tuple[CalibrationMap | None, Finding]:
    """A fit with its sensitivity band, and whether it exists."""
    try:
        with warnings.catch_warnings():
            # The checks of the scores report this.
            warnings.simplefilter("ignore", FlatMapWarning)
            fitted = calibrator.fit_summary(aggregated.summary)
    except CalibrankError as error:
        return None, warning("fit", str(error))
    finding = ok("fit", f"A {calibrator.name} map can be fitted.")
    shape = misfit(fitted.predict(aggregated.summary.scores), aggregated.summary)
    if shape.matters:
        finding = warning("fit", f"A {calibrator.name} map can be fitted, but {shape.message}")
    return attach_sensitivity(fitted, calibrator, aggregated, columns), finding


def attach_sensitivity(
    fitted: CalibrationMap, calibrator: Calibrator, aggregated: Aggregate, columns: Columns
) -> CalibrationMap:
    """The map with its sensitivity band, if its positives were weighted by propensities."""
    if aggregated.positives is None:
        return fitted
    model, assumption = propensity_model_for(columns)
    # The band is that of the curve: terms move it as they move the probability.
    average = with_sensitivity(
        fitted.without_terms(),
        calibrator,
        aggregated.summary,
        aggregated.positives,
        model,
        columns.evidence,
        assumption=assumption,
    )
    return replace(fitted, record=average.record)


def _plan(
    fitted: CalibrationMap, aggregated: Aggregate
) -> tuple[tuple[ExpectedError, ...], Finding]:
    population = score_quantiles(aggregated.summary, _POPULATION)
    try:
        plan = tuple(plan_labels(fitted, population))
    except CalibrankError as error:
        return (), note(
            "labels to collect", f"The effect of random labels cannot be estimated: {error}"
        )
    return check_label_plan(plan)
