"""Load saved maps: plain JSON data that is checked field by field; loading never runs code."""

from __future__ import annotations

from os import PathLike

import numpy as np

from calibrank._internal.arguments import path_of, regular_file
from calibrank._internal.json import Fields, digest_of, kind_of, read_document
from calibrank._internal.validation import LARGEST_SCORE
from calibrank.errors import DataError
from calibrank.maps.calibration_map import FORMAT, VERSION, CalibrationMap
from calibrank.maps.curve import Curve
from calibrank.maps.level import LevelTerm
from calibrank.maps.logistic import LogisticCurve
from calibrank.maps.piecewise import PiecewiseCurve
from calibrank.maps.position import PositionTerm
from calibrank.maps.record import read_record
from calibrank.maps.rescale import RescaleCurve
from calibrank.maps.smooth import SmoothTerm
from calibrank.maps.step import StepCurve
from calibrank.maps.targets.numpy import NumpyTarget
from calibrank.maps.term import Term
from calibrank.maps.version_1 import upgraded

CURVES: dict[str, type[Curve]] = {
    kind.kind: kind for kind in (LogisticCurve, StepCurve, RescaleCurve, PiecewiseCurve)
}
"""Every kind of curve, by its name in JSON."""

TERMS: dict[str, type[Term]] = {kind.kind: kind for kind in (LevelTerm, SmoothTerm, PositionTerm)}
"""Every kind of term, by its name in JSON."""

_NOT_A_MAP = "If it is a table, give a saved map in its place; if it is a map, save it again."


def load(path: str | PathLike[str]) -> CalibrationMap:
    """Read a map that `map.save(path)` wrote; the same as `CalibrationMap.load`.

    >>> from calibrank import Platt
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "map.json"
    >>> fitted = Platt().fit([-1.0, 0.0, 1.0, 2.0], [0, 1, 0, 1])
    >>> fitted.save(path)
    >>> load(path) == fitted
    True
    """
    how_to_make = "Make one with map.save or calibrank fit."
    file = regular_file(path_of("path", path), "a saved map", how_to_make)
    return parse(str(path), read_document(file, _NOT_A_MAP))


def parse(where: str, text: str) -> CalibrationMap:
    """Read a map from JSON text; `where` names it in errors."""
    fields = Fields(where, Fields.parse(where, text, _NOT_A_MAP).values)
    _check_document(fields)
    try:
        fitted = _read_map(Fields(where, upgraded(fields)))
        _check_probabilities(fitted)
    except DataError as error:
        if error.subject.startswith(where):
            raise
        # Errors of a map's constructor do not say which file they are about.
        raise error.within(where) from None
    return fitted


def _check_probabilities(fitted: CalibrationMap) -> None:
    """Refuse numbers that are finite one by one, but overflow in the formula."""
    points = np.array([-LARGEST_SCORE, *fitted.breakpoints, *fitted.span, LARGEST_SCORE])
    if not (np.abs(points) <= LARGEST_SCORE).all():
        raise DataError("the map's scores", "lie within +-1e30", remedy="Save the map again.")
    points = np.unique(points)
    points = np.unique(np.concatenate([points, (points[1:] + points[:-1]) / 2]))
    alone = fitted.without_terms()
    with np.errstate(all="ignore"):
        values = np.concatenate([alone.predict(points), *alone.sampling_interval(points)])
        # The numbers of terms are bounded, so that sums are finite if the curve's log odds are.
        log_odds = fitted.curve.log_odds_on(NumpyTarget(), points) if fitted.terms else np.zeros(1)
    if not ((values >= 0) & (values <= 1)).all() or not np.isfinite(log_odds).all():
        raise DataError("the map's probabilities", "lie in [0, 1]", "NaN", "Save the map again.")


def _read_map(fields: Fields) -> CalibrationMap:
    """Rebuild a map from its curve, its terms and its record."""
    curve = fields.child("curve")
    terms = [kind_of(child, TERMS).from_fields(child) for child in fields.children("terms")]
    record = read_record(fields.child("record"))
    return CalibrationMap(kind_of(curve, CURVES).from_fields(curve), record, tuple(terms))


def _check_document(fields: Fields) -> None:
    """Refuse documents of another format, of a later version, or changed since they were saved."""
    where = fields.where
    if fields.text("format") != FORMAT:
        raise DataError(where, f"be a {FORMAT} document", f"format {fields.text('format')!r}")
    version = fields.count("version")
    if version > VERSION:
        raise DataError(where, f"be of version {VERSION} or older", version, "Upgrade calibrank.")
    if version < 1:
        raise DataError(f"{where}, version", "be 1 or more", version, "Save the map again.")
    content = {name: value for name, value in fields.values.items() if name != "digest"}
    if fields.text("digest") != digest_of(content):
        raise DataError(
            where,
            "match its digest: it was changed after it was saved",
            remedy="Save the map again.",
        )
    parts = ("kind", "method", "map") if version == 1 else ("curve", "terms")
    fields.only("format", "version", *parts, "record", "digest")
