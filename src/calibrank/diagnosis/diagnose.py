"""All checks of a table: a map is fitted to see what the table leaves open, and what to collect."""

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from calibrank._internal.validation import Floats, add_up
from calibrank.anchoring import ExpectedError, plan_labels, with_sensitivity
from calibrank.curves import Calibrator
from calibrank.diagnosis.table_checks import (
    Finding,
    Profile,
    check_lists,
    check_rows,
    check_scores,
    note,
    ok,
    warning,
)
from calibrank.errors import CalibrankError, FlatMapWarning, Setting
from calibrank.evidence import impressions, naive
from calibrank.maps import CalibrationMap, Sensitivity
from calibrank.metrics.pooled import misfit
from calibrank.summary import Summary
from calibrank.tabular.aggregate import Aggregate
from calibrank.tabular.columns import Columns
from calibrank.tabular.rows import propensity_model_for

# Below this effective number of positives, or this fraction of them, weights dominate the fit.
_FEW_POSITIVES = 100
_LEAST_EFFECTIVE = 0.25

# As many scores as `plan_labels` keeps of a population.
_POPULATION = 2_000
# The number of random labels that the summary of a label plan is about.
_TYPICAL_PLAN = 300
_DECILES = 10


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


def diagnose(
    found: Profile,
    aggregated: Aggregate,
    columns: Columns,
    skipped: Mapping[str, int],
    calibrator: Calibrator,
    *,
    has_users: bool,
) -> Diagnosis:
    """Check a table that was profiled and aggregated.

    `skipped` counts rows with an invalid value, by the role of its column. `calibrator` is the
    method of the fit whose sensitivity is reported.
    """
    fitted, fit_finding = _fit(aggregated, columns, calibrator)
    sensitivity = None if fitted is None else fitted.record.sensitivity
    deciles = tuple(label_deciles(aggregated.summary))
    findings = [
        *check_rows(found, skipped),
        _check_log(found, columns),
        *check_scores(found),
        check_lists(found, has_users=has_users),
        *_check_weights(aggregated, columns, max(rate for _, rate in deciles)),
        fit_finding,
        _check_base_rate(columns, sensitivity),
    ]
    plan: tuple[ExpectedError, ...] = ()
    if fitted is not None and sensitivity is not None:
        try:
            plan = tuple(plan_labels(fitted, score_quantiles(aggregated.summary, _POPULATION)))
            plan, plan_finding = check_label_plan(plan)
        except CalibrankError as error:
            text = f"The effect of random labels cannot be estimated: {error}"
            plan_finding = note("labels to collect", text)
        findings.append(plan_finding)
    return Diagnosis(tuple(findings), deciles, sensitivity, plan)


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
    """A map of the score with its sensitivity band, if propensities weighted its positives."""
    if aggregated.positives is None:
        return fitted
    model, assumption = propensity_model_for(columns)
    return with_sensitivity(
        fitted,
        calibrator,
        aggregated.summary,
        aggregated.positives,
        model,
        columns.evidence,
        assumption=assumption,
    )


def _check_weights(
    aggregated: Aggregate, columns: Columns, highest_rate: float
) -> Iterator[Finding]:
    """How much weights reduce the effective number of positives, or of impressions."""
    if columns.evidence is impressions:
        count = aggregated.summary.rows
        effective = aggregated.summary.effective_rows
        message = f"{count:,} impressions, weighted by exposure; effective number"
    elif aggregated.positives is not None:
        model, _ = propensity_model_for(columns)
        weights = aggregated.positives.weights / model.propensity(aggregated.positives.exposure)
        count = len(weights)
        # Kish's effective sample size: as many rows of equal weight have the same variance.
        effective = float(weights.sum() ** 2 / (weights**2).sum())
        message = f"{count:,} positives with weights up to {weights.max():.3g}; effective number"
    else:
        return
    if effective > max(_FEW_POSITIVES, count * _LEAST_EFFECTIVE):
        yield ok("weights", f"{message} {effective:,.0f}.")
    else:
        yield warning(
            "weights",
            f"{message} only {effective:,.0f}: a few rows dominate. Collect more data, or raise "
            "the smallest propensities.",
        )
    if highest_rate > 1:
        yield warning(
            "weights",
            f"For some scores the mean weighted label is {highest_rate:.2f}, above 1: propensities "
            "are too small there, or too few unobserved pairs are in the table.",
        )


def _check_log(found: Profile, columns: Columns) -> Finding:
    """What the declared reading of label 0 assumes, and what the other readings would give.

    Nothing is inferred from the values: the same table may be either log.
    """
    likes = float(found.summary.positive.sum())
    reading = "Read as it is: label 0 means not liked."
    other, kind = "label 0 means only that the pair is not in the log", "interactions"
    effect = f"the {likes:,.0f} positives are then weighted; the base rate is not identified"
    if columns.evidence is impressions:
        reading = "Declared as impressions: label 0 means shown and not liked."
    elif columns.evidence is not naive:
        reading = "Read as a log of interactions: label 0 means unobserved, and may be liked."
        other, kind = "every row was shown and label 0 means not liked", "impressions"
        effect = f"the base rate is then that of the log, {likes / found.rows:.2%} before weighting"
    return note("log", reading, (f"If {other}, declare ", Setting("log", kind), f": {effect}."))


def _check_base_rate(columns: Columns, sensitivity: Sensitivity | None) -> Finding:
    """Whether the table identifies the base rate."""
    if columns.evidence is naive:
        log = ("If they come from a recommender's log, name ", Setting("item"), " or ")
        return note(
            "base rate",
            "No propensities: labels are used as they are. This is correct if the pairs were shown "
            "at random.",
            (*log, Setting("propensity"), "."),
        )
    if columns.evidence is not impressions:
        known = "" if sensitivity is None else sensitivity.description
        text = f"Base-rate source: assumed. This log does not identify the base rate. {known}"
        return warning(
            "base rate",
            f"{text.strip()} Use labels of a few hundred randomly shown pairs or a known rate: "
            "anchor the map on either.",
        )
    if columns.propensity is not None and not columns.exposure:
        return ok(
            "base rate",
            "Read as impressions: every row was shown, with the given probability up to a factor. "
            "This identifies the base rate.",
        )
    counted = " and ".join(columns.exposure)
    return note(
        "base rate",
        "Read as impressions: every row was shown, and label 0 means not liked. The base rate is "
        f"identified if, given {counted}, whether a pair was shown does not depend on whether it "
        "is liked. Where users choose what they see, it comes out too high: about 100 labels of "
        "randomly shown pairs would test it (calibrank anchor).",
    )


def check_label_plan(plan: tuple[ExpectedError, ...]) -> tuple[tuple[ExpectedError, ...], Finding]:
    """The plan if it shows that labels help, and how much a few hundred of them would.

    The plan draws true curves from the sensitivity band. A narrow band makes labels look useless,
    but only under its assumption about exposure, so it is no reason not to collect them.
    """
    before = plan[0].error
    after = next(step.error for step in plan if step.labels == _TYPICAL_PLAN)
    is_useful = after < before
    effect = (
        "replace the assumption about exposure by a measurement. This log cannot tell how large "
        "the error is without them."
    )
    if is_useful:
        effect = (
            f"reduce the expected ECE from about {before:.3f} to about {after:.3f}, averaged over "
            "the curves of the sensitivity band."
        )
    text = f"{_TYPICAL_PLAN} labels of randomly shown pairs would {effect}"
    return plan if is_useful else (), note("labels to collect", text)


def label_deciles(summary: Summary) -> list[tuple[float, float]]:
    """Mean score and mean weighted label in each tenth of the mass, in order of scores."""
    mass = summary.total
    # Where the middle of each row's mass lies, from 0 to 1.
    position = (np.cumsum(mass) - mass / 2) / mass.sum()
    decile = np.minimum((position * _DECILES).astype(np.intp), _DECILES - 1)
    total = add_up(decile, mass, _DECILES)
    positive = add_up(decile, summary.positive, _DECILES)
    moment = add_up(decile, mass * summary.scores, _DECILES)
    occupied = total > 0
    scores = moment[occupied] / total[occupied]
    rates = positive[occupied] / total[occupied]
    return list(zip(scores.tolist(), rates.tolist(), strict=True))


def score_quantiles(summary: Summary, count: int) -> Floats:
    """`count` evenly spaced quantiles of the scores: a sample that represents all of them."""
    cumulative = np.cumsum(summary.total) / summary.total.sum()
    levels = (np.arange(count) + 0.5) / count
    # Rounding may leave the last value just below 1.
    rows = np.searchsorted(cumulative, levels).clip(max=len(cumulative) - 1)
    return summary.scores[rows]
