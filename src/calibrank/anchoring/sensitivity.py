"""Fit with an assumed base rate, and report what the log leaves undetermined: the sensitivity band.

Propensities estimated from popularity are relative: the most exposed item gets 1 by definition. If
every propensity were really c times as large, with c below 1, all probabilities would be 1/c times
as large and the log would look the same. Two facts bound c: no propensity exceeds 1, so c is at
most 1; no probability exceeds 1, so c is at least the highest preference seen at any scores. The
power, the clip and the weight of negatives are assumptions too: each is varied, and the band covers
all alternatives.

Exposure also depends on the user and on preference itself, and a log without impressions cannot
show how strongly. As in Rosenbaum's bounds, a stated factor limits it: let e(s) be the mean
exposure of liked pairs at score s, and w(s) the one assumed. If e(s) / w(s) varies by a factor of
at most `EXPOSURE_FACTOR` over the scores, the base rate is at most that factor times the limit
above. The lower limit needs no assumption: at least the observed positives are liked. Where the
base rate becomes known (`to_base_rate`), exposure that depends on preference still makes the curve
too steep or too flat: the band then has every slope that `anchor` expects of a biased fit, from
none to twice as steep.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from calibrank._internal.arguments import instance
from calibrank._internal.logit import expit
from calibrank._internal.validation import (
    Floats,
    Numbers,
    column,
    is_probability,
    require,
    require_role,
    score_column,
    starts_of,
)
from calibrank.anchoring._alternatives import (
    AlternativeCurve,
    EvidenceOf,
    Positives,
    PropensityModel,
    ScoreGroups,
    cumulative_fractions,
)
from calibrank.anchoring.known_rate import clipped_log_odds, clipped_logit
from calibrank.curves.calibrator import Calibrator
from calibrank.evidence import ips, is_usable
from calibrank.maps import CalibrationMap, Sensitivity
from calibrank.summary import Summary

EXPOSURE_FACTOR = 10.0
"""How strongly exposure may depend on users and preference, beyond the assumed propensities.

Set on synthetic worlds (tests/laws/test_base_rate_range.py) before any range was computed on a
real log.
"""

_INNER_LEVELS = np.linspace(0.01, 0.99, 29)
_BAND_LEVELS = np.concatenate([[0.0, 0.002], _INNER_LEVELS, [0.998, 1.0]])
"""Quantiles of the scores at which the band is computed; denser in the tails."""


def fit_with_sensitivity(
    calibrator: Calibrator,
    scores: Numbers,
    labels: Numbers,
    exposure: Numbers,
    propensity_model: PropensityModel = PropensityModel(),  # noqa: B008  (frozen)
    *,
    weights: Numbers | None = None,
    scale_known: bool = False,
) -> CalibrationMap:
    """Fit with `ips` evidence and attach a sensitivity band to the map.

    The band is in `record.sensitivity`; `map.band(scores)` evaluates it. `exposure` is
    relative: 1 for what is seen most, such as an item's count over the highest count. If it is
    P(observed) itself, pass `PropensityModel(power=1, clip=0)` and `scale_known=True`. If negatives
    were sampled, pass `weights=undersampling_weights(labels, kept)`.

    >>> from calibrank import Platt
    >>> rng = np.random.default_rng(0)
    >>> scores, exposure = rng.normal(size=2000), rng.uniform(0.2, 1, 2000)
    >>> labels = rng.random(2000) < exposure * 0.3 / (1 + np.exp(-scores))
    >>> fitted = fit_with_sensitivity(Platt(), scores, labels, exposure)
    >>> low, high = fitted.band([0.0])
    >>> bool(low < fitted.predict([0.0]) < high)
    True
    """
    instance("calibrator", calibrator, Calibrator, "Use e.g. Gaussian().")
    instance("propensity_model", propensity_model, PropensityModel)
    instance("scale_known", scale_known, bool)
    array = score_column(scores)[0]
    labels = column("labels", labels, len(array))
    exposure = column("exposure", exposure, len(array))
    require(is_probability, "exposure", "lie in [0, 1]", exposure, "Divide by the highest.")
    is_positive = labels == 1
    if propensity_model.clip == 0:
        # Only positives are divided by their propensity, so only theirs must be above 0.
        exposure = np.where(is_positive, exposure, 1.0)
        remedy = "Set a clip, or correct the propensities."
        require(is_usable, "exposure", "be above 0 where the label is 1", exposure, remedy)
    row_weights = column("weights", np.ones(len(array)) if weights is None else weights, len(array))
    require_role("weight", "weights", row_weights)
    fit_weights = np.where(is_positive, row_weights, row_weights * propensity_model.negatives)
    propensity = propensity_model.propensity(exposure)
    summary = Summary.of(array, ips(labels, propensity, weights=fit_weights))
    fitted = calibrator.fit_summary(summary)
    positives = Positives(array[is_positive], exposure[is_positive], row_weights[is_positive])
    return with_sensitivity(
        fitted,
        calibrator,
        summary,
        positives,
        propensity_model,
        assumption="logged propensities" if scale_known else "relative propensities",
    )


def with_sensitivity(
    fitted: CalibrationMap,
    calibrator: Calibrator,
    summary: Summary,
    positives: Positives,
    propensity_model: PropensityModel,
    evidence_of: EvidenceOf = ips,
    *,
    assumption: str,
) -> CalibrationMap:
    """Attach a sensitivity band to a fitted map.

    `assumption` is one of `maps.sensitivity.ASSUMPTIONS`, and `evidence_of` the function that
    made the summary's evidence. A map whose base rate does not come from the log, or that learns
    nothing from labels, is returned as it is; `to_base_rate` moves a band that is there.
    """
    if fitted.record.base_rate_source != "assumed" or not calibrator.learns:
        return fitted
    groups = ScoreGroups.of(summary, positives.sample(), propensity_model, evidence_of)
    levels = cumulative_fractions(groups.total)
    scores = np.interp(_BAND_LEVELS, levels, groups.scores)
    scores = scores[starts_of(scores)]
    if len(scores) < 2:
        return fitted
    scale_known = assumption == "logged propensities"
    models = [("as chosen", propensity_model)]
    models += propensity_model.alternatives(scale_known=scale_known)
    curves = list(groups.curves(fitted, calibrator, models, scores))
    # A known scale of the propensities leaves no factor undetermined.
    factor = 1.0 if scale_known else EXPOSURE_FACTOR
    scales = [1.0 if scale_known else curve.smallest_scale / factor for curve in curves]
    band = _band(fitted, curves, scales, scores)
    sensitivity = replace(band, assumption=assumption, exposure_factor=factor)
    record = replace(fitted.record, sensitivity=sensitivity)
    return replace(fitted, record=record)


def _band(
    fitted: CalibrationMap, curves: list[AlternativeCurve], scales: list[float], scores: Floats
) -> Sensitivity:
    """The envelope of all alternatives and scales, widened by the sampling error of the fit."""
    # How far the confidence interval extends below and above the fit, in log odds.
    middle = clipped_log_odds(fitted.log_odds(scores))
    interval = fitted.sampling_interval(scores)
    below = np.maximum(middle - clipped_logit(interval.low), 0)
    above = np.maximum(clipped_logit(interval.high) - middle, 0)
    low = np.min([curve.log_odds for curve in curves], axis=0) - below
    raised_curves = []
    raised_rates = []
    for curve, scale in zip(curves, scales, strict=True):
        raised = np.minimum(expit(curve.log_odds + above) / scale, 1)
        raised_curves.append(clipped_logit(raised))
        raised_rate = (curve.alternative.rate + curve.rate_error) / scale
        raised_rates.append(min(raised_rate, 1.0))
    high = np.max(raised_curves, axis=0)
    lowered_rates = [curve.alternative.rate - curve.rate_error for curve in curves]
    return Sensitivity(
        low_rate=max(min(lowered_rates), 0.0),
        high_rate=max(raised_rates),
        alternatives=tuple(curve.alternative for curve in curves),
        scores=tuple(scores.tolist()),
        low=tuple(clipped_log_odds(low).tolist()),
        high=tuple(clipped_log_odds(high).tolist()),
    )
