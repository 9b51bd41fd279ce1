"""Load saved maps: plain JSON data that is checked field by field; loading never runs code."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

import numpy as np

from calibrank._internal.arguments import path_of, regular_file
from calibrank._internal.json import Fields, digest_of, kind_of, read_document
from calibrank._internal.validation import LARGEST_SCORE
from calibrank.errors import DataError
from calibrank.maps.calibration_map import FORMAT, VERSION, CalibrationMap
from calibrank.maps.checks import require
from calibrank.maps.curve import Curve
from calibrank.maps.level import LevelTerm
from calibrank.maps.logistic import LogisticCurve
from calibrank.maps.piecewise import PiecewiseCurve, RescaleCurve, StepCurve
from calibrank.maps.record import FitRecord
from calibrank.maps.targets.numpy import NumpyTarget
from calibrank.maps.term import PositionTerm, SmoothTerm, Term

CURVES: dict[str, type[Curve]] = {
    kind.kind: kind for kind in (LogisticCurve, StepCurve, RescaleCurve, PiecewiseCurve)
}
"""Every kind of curve, by its name in JSON."""

TERMS: dict[str, type[Term]] = {kind.kind: kind for kind in (LevelTerm, SmoothTerm, PositionTerm)}
"""Every kind of term, by its name in JSON."""

_NOT_A_MAP = "If it is a table, give a saved map in its place; if it is a map, save it again."


def load(path: str | PathLike[str]) -> CalibrationMap:
    """Read a map that `map.save(path)` wrote.

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
    version = _checked_version(fields)
    try:
        curve, terms = (_version_2 if version > 1 else _version_1)(fields)
        record = fields.child("record")
        if version == 1:
            named = {**record.values, "method": fields.text("method")}
            record = Fields(record.where, named)
        fitted = CalibrationMap(curve, record.build(FitRecord), terms)
        _check_probabilities(fitted)
    except DataError as error:
        if error.subject.startswith(where):
            raise
        # Errors of a map's constructor do not say which file they are about.
        raise error.within(where) from None
    return fitted


def _checked_version(fields: Fields) -> int:
    """Refuse documents of another format, of a later version, or changed since they were saved."""
    where, found = fields.where, fields.text("format")
    require(found == FORMAT, where, f"be a {FORMAT} document", f"format {found!r}")
    version = fields.count("version")
    if version > VERSION:
        raise DataError(where, f"be of version {VERSION} or older", version, "Upgrade calibrank.")
    if version < 1:
        raise DataError(f"{where}, version", "be 1 or more", version, "Save the map again.")
    content = {name: value for name, value in fields.values.items() if name != "digest"}
    if fields.text("digest") != digest_of(content):
        rule = "match its digest: it was changed after it was saved"
        raise DataError(where, rule, remedy="Save the map again.")
    parts = ("kind", "method", "map") if version == 1 else ("curve", "terms")
    fields.only("format", "version", *parts, "record", "digest")
    return version


def _check_probabilities(fitted: CalibrationMap) -> None:
    """Refuse numbers that are finite one by one, but overflow in the formula."""
    points = np.array(
        [-LARGEST_SCORE, *fitted.curve.breakpoints, *fitted.curve.span, LARGEST_SCORE]
    )
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


Parts = tuple[Curve, tuple[Term, ...]]


def _version_2(fields: Fields) -> Parts:
    """The curve and the terms of a document."""
    curve = fields.child("curve")
    terms = [kind_of(child, TERMS).from_fields(child) for child in fields.children("terms")]
    return kind_of(curve, CURVES).from_fields(curve), tuple(terms)


def _version_1(fields: Fields) -> Parts:
    """The same of a document of version 1, in which a map with terms holds a base map."""
    kind, content = fields.text("kind"), fields.child("map")
    if kind in CURVES:
        return _built(CURVES, kind, content.where, content.values), ()
    if kind not in _COLUMNS_1:
        known = ", ".join((*CURVES, *_COLUMNS_1))
        raise DataError(f"{content.where}, kind", f"be one of {known}", f"{kind!r}")
    content.only("base", *_COLUMNS_1[kind])
    base = content.child("base")
    curve, nested = _version_1(base)
    if nested:
        raise DataError(base.where, "be a map of scores alone", remedy="Fit the map again.")
    if kind == "grouped":
        return curve, (_grouped(content),)
    if kind == "additive":
        moved = curve.moved(content.number("intercept"), content.number("slope"))
        return moved, tuple(_additive(each) for each in content.children("terms"))
    own, _ = _version_1(content.child("top"))
    values = {
        "column": content.text("column"),
        "n": content.count("n"),
        "curve": own.content(),
        "by_rank": _smooth(content.child("term")).content() if content.holds("term") else None,
    }
    return curve, (_built(TERMS, "position", content.where, values),)


def _built(kinds: Mapping[str, Any], kind: str, where: str, values: Mapping[str, Any]) -> Any:
    """A part of the present version."""
    return kinds[kind].from_fields(Fields(where, {"kind": kind, **values}))


def _grouped(fields: Fields) -> Term:
    segments = fields.children("segments")
    return LevelTerm(
        columns=tuple(fields.texts("columns")),
        keys=tuple(tuple(each.texts("key")) for each in segments),
        intercepts=tuple(each.number("intercept") for each in segments),
        slopes=tuple(each.number("slope") for each in segments),
        errors=tuple(each.number("error") for each in segments),
        rows=tuple(each.count("rows") for each in segments),
        spreads=tuple(fields.numbers("spreads")),
    )


def _additive(fields: Fields) -> Term:
    if not fields.holds("categories"):
        return _smooth(fields)
    fields.only("column", "categories", "values")
    keys = tuple((category,) for category in fields.texts("categories"))
    zeros, ones = (0.0,) * len(keys), (1.0,) * len(keys)
    values, rows = tuple(fields.numbers("values")), (0,) * len(keys)
    return LevelTerm((fields.text("column"),), keys, values, ones, zeros, rows, (0.0,))


def _smooth(fields: Fields) -> Term:
    fields.only("column", "knots", "values")
    return _built(TERMS, "smooth", fields.where, {**fields.values, "errors": []})


# The fields beside the base of each kind of map with terms.
_COLUMNS_1 = {
    "grouped": ("columns", "segments", "spreads"),
    "additive": ("intercept", "slope", "terms"),
    "top": ("top", "column", "n", "term"),
}
