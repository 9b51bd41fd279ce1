"""Logistic maps whose coefficients can be changed after the fit."""

from __future__ import annotations

from dataclasses import replace

from calibrank._internal.arguments import instance
from calibrank._internal.validation import Floats
from calibrank.errors import DataError
from calibrank.maps import CalibrationMap, LogisticMap


def require_logistic(fitted: CalibrationMap, purpose: str) -> LogisticMap:
    """The map itself if it is a logistic one; `purpose` completes "the map to be ..."."""
    instance("fitted", fitted, CalibrationMap, "Fit one, or read one with calibrank.load.")
    if not isinstance(fitted, LogisticMap):
        families = "Platt, Beta, Gaussian, Gamma, GammaGaussian"
        raise DataError(
            f"the map to be {purpose} must be a parametric one ({families}), got {fitted.method}."
        )
    return fitted


def with_coefficients(
    fitted: LogisticMap,
    solution: Floats,
    covariance: Floats,
) -> LogisticMap:
    """The map with other coefficients, the intercept first, and their covariance."""
    return replace(
        fitted,
        intercept=float(solution[0]),
        coefficients=tuple(solution[1:].tolist()),
        covariance=tuple(tuple(row) for row in covariance.tolist()),
    )
