"""Checks of what a fit to a table would rest on: weights, base rate, and labels to collect."""

from collections.abc import Iterator

from calibrank.anchoring import ExpectedError
from calibrank.diagnosis.distribution import label_deciles
from calibrank.diagnosis.finding import Finding, note, ok, warning
from calibrank.errors import Setting
from calibrank.evidence import Evidence, impressions, ips, naive
from calibrank.maps import CalibrationMap, Sensitivity, describe_range
from calibrank.metrics import LogLoss
from calibrank.propensity import propensity_bias
from calibrank.tabular.aggregate import Aggregate, Columns, propensity_model_for
from calibrank.tabular.profile import Profile

# Below this effective number of positives, or this fraction of them, weights dominate the fit.
_FEW_POSITIVES = 100
_LEAST_EFFECTIVE = 0.25

# Ratios of true to given propensities for which the bias of the risk is shown.
_PROPENSITY_FACTORS = (0.5, 2.0)

_TYPICAL_PLAN = 300
"""The number of random labels that the summary of a label plan is about."""


def check_weights(aggregated: Aggregate, columns: Columns) -> Iterator[Finding]:
    """How much inverse propensities reduce the effective number of positives, or of rows."""
    if columns.evidence is impressions:
        yield _check_effective_rows(aggregated)
        return
    positives = aggregated.positives
    if positives is None:
        return
    model, _ = propensity_model_for(columns)
    weights = positives.weights / model.propensity(positives.exposure)
    # Kish's effective sample size: as many rows of equal weight have the same variance.
    effective = float(weights.sum() ** 2 / (weights**2).sum())
    count = len(weights)
    largest = float(weights.max())
    message = f"{count:,} positives with weights up to {largest:.3g}; effective number"
    if effective > max(_FEW_POSITIVES, count * _LEAST_EFFECTIVE):
        yield ok("weights", f"{message} {effective:,.0f}.")
    else:
        yield warning(
            "weights",
            f"{message} only {effective:,.0f}: a few rows dominate. "
            "Raise the propensity clip, or collect more data.",
        )
    highest = max(rate for _, rate in label_deciles(aggregated.summary))
    if highest > 1:
        yield warning(
            "weights",
            f"For some scores the mean weighted label is {highest:.2f}, above 1: propensities are "
            "too small there, or too few unobserved pairs are in the table.",
        )


def propensity_biases(
    fitted: CalibrationMap, aggregated: Aggregate, columns: Columns
) -> dict[float, float]:
    """The bias of the map's risk (Proposition 2) by ratio of true to given propensities.

    Empty if the table has no inverse-propensity evidence.
    """
    if columns.evidence is not ips or aggregated.positives is None:
        return {}
    summary = aggregated.summary
    probabilities = fitted.predict(summary.scores)
    evidence = Evidence(summary.positive, summary.total)
    return {
        factor: propensity_bias(probabilities, evidence, factor) for factor in _PROPENSITY_FACTORS
    }


def check_propensities(
    fitted: CalibrationMap, aggregated: Aggregate, biases: dict[float, float]
) -> Iterator[Finding]:
    """How far wrong propensities would move the risk."""
    if not biases:
        return
    summary = aggregated.summary
    risk = LogLoss()(fitted.predict(summary.scores), Evidence(summary.positive, summary.total))
    cases = [f"by {bias:+.3f} if they were {factor:g} times" for factor, bias in biases.items()]
    yield note(
        "propensities",
        f"The inverse-propensity log loss of a {fitted.method} map is {risk:.3f}. It is unbiased "
        f"if the propensities are right, and off {' and '.join(cases)} the given ones.",
    )


def check_base_rate(columns: Columns, sensitivity: Sensitivity | None) -> Finding:
    """Whether the table identifies the base rate."""
    if columns.evidence is naive:
        return note(
            "base rate",
            "No propensities: labels are used as they are. This is correct if the pairs were shown "
            "at random.",
            (
                "If they come from a recommender's log, name ",
                Setting("item"),
                " or ",
                Setting("propensity"),
                ".",
            ),
        )
    if columns.evidence is impressions:
        return _check_impressions(columns)
    unidentified = "This log does not identify the base rate."
    if sensitivity is not None:
        unidentified = f"{unidentified} {describe_range(sensitivity)}".strip()
    return warning(
        "base rate",
        f"Base-rate source: assumed. {unidentified} "
        "Use labels of a few hundred randomly shown pairs or a known rate: "
        "anchor the map on either.",
    )


def _check_effective_rows(aggregated: Aggregate) -> Finding:
    rows = aggregated.summary.rows
    effective = aggregated.summary.effective_rows
    message = f"{rows:,} impressions, weighted by exposure; effective number"
    if effective > max(_FEW_POSITIVES, rows * _LEAST_EFFECTIVE):
        return ok("weights", f"{message} {effective:,.0f}.")
    return warning(
        "weights",
        f"{message} only {effective:,.0f}: a few rarely shown pairs dominate. Collect more data, "
        "or raise the smallest propensities.",
    )


def check_log(found: Profile, columns: Columns) -> Finding:
    """What the declared reading of label 0 assumes, and what the other readings would give.

    Nothing is inferred from the values: the same table may be either log.
    """
    likes = 0.0 if found.summary is None else float(found.summary.positive.sum())
    share = f"{likes / found.rows:.2%}"
    shown = (
        "If every row was shown and label 0 means not liked, declare ",
        Setting("log", "impressions"),
        f": the base rate then comes from the log, {share} before weighting by exposure.",
    )
    if columns.evidence is impressions:
        return note(
            "log",
            "Declared as impressions: label 0 means shown and not liked.",
            (
                "If label 0 means only that the pair is not in the log, use ",
                Setting("log", "interactions"),
                f": the {likes:,.0f} positives are then weighted; the base rate is not identified.",
            ),
        )
    if columns.evidence is naive:
        return note("log", "Read as it is: label 0 means not liked.", shown)
    return note(
        "log", "Read as a log of interactions: label 0 means unobserved, and may be liked.", shown
    )


def _check_impressions(columns: Columns) -> Finding:
    """What reading a table as impressions assumes about the base rate."""
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
    labels = f"{_TYPICAL_PLAN} labels of randomly shown pairs"
    if after >= before:
        return (), note(
            "labels to collect",
            f"{labels} would replace the assumption about exposure by a measurement. This log "
            "cannot tell how large the error is without them.",
        )
    return plan, note(
        "labels to collect",
        f"{labels} would reduce the expected ECE from about {before:.3f} to about {after:.3f}, "
        "averaged over the curves of the sensitivity band.",
    )
