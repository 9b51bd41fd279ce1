"""Maps that version 1 of the format saved, as documents of the present one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calibrank._internal.json import Fields, kind_of
from calibrank.errors import DataError

_CURVES = ("logistic", "step", "rescale", "piecewise")


def upgraded(fields: Fields) -> Mapping[str, Any]:
    """The document as the present version would have saved it."""
    if fields.count("version") != 1:
        return fields.values
    kind = fields.text("kind")
    content = fields.child("map")
    curve, terms = _parts(kind, content)
    record = {**fields.child("record").values, "method": fields.text("method")}
    return {"curve": curve, "terms": terms, "record": record}


def _parts(kind: str, fields: Fields) -> tuple[Mapping[str, Any], list[dict[str, Any]]]:
    if kind in _CURVES:
        return {"kind": kind, **fields.values}, []
    if kind not in _TERMS:
        known = ", ".join((*_CURVES, *_TERMS))
        raise DataError(f"{fields.where}, kind", f"be one of {known}", f"{kind!r}")
    base = fields.child("base")
    curve, nested = _parts(base.text("kind"), base.child("map"))
    if nested:
        raise DataError(base.where, "be a map of scores alone", remedy="Fit the map again.")
    return _TERMS[kind](curve, fields)


def _grouped(
    curve: Mapping[str, Any], fields: Fields
) -> tuple[Mapping[str, Any], list[dict[str, Any]]]:
    fields.only("base", "columns", "segments", "spreads")
    segments = fields.children("segments")
    term = {
        "kind": "level",
        "columns": fields.texts("columns"),
        "keys": [each.texts("key") for each in segments],
        "intercepts": [each.number("intercept") for each in segments],
        "slopes": [each.number("slope") for each in segments],
        "errors": [each.number("error") for each in segments],
        "rows": [each.count("rows") for each in segments],
        "spreads": fields.numbers("spreads"),
        "typical": 0.0,
    }
    return curve, [term]


def _additive(
    curve: Mapping[str, Any], fields: Fields
) -> tuple[Mapping[str, Any], list[dict[str, Any]]]:
    fields.only("base", "intercept", "slope", "terms")
    children = fields.children("terms")
    terms = [_category(each) if each.holds("categories") else _smooth(each) for each in children]
    moved = _moved(curve, fields.number("intercept"), fields.number("slope"))
    return moved, terms


def _smooth(fields: Fields) -> dict[str, Any]:
    fields.only("column", "knots", "values")
    return {"kind": "smooth", **fields.values, "errors": []}


def _category(fields: Fields) -> dict[str, Any]:
    fields.only("column", "categories", "values")
    categories = fields.texts("categories")
    count = len(categories)
    return {
        "kind": "level",
        "columns": [fields.text("column")],
        "keys": [[category] for category in categories],
        "intercepts": fields.numbers("values"),
        "slopes": [1.0] * count,
        "errors": [0.0] * count,
        "rows": [0] * count,
        "spreads": [0.0],
        "typical": 0.0,
    }


def _top(
    curve: Mapping[str, Any], fields: Fields
) -> tuple[Mapping[str, Any], list[dict[str, Any]]]:
    fields.only("base", "top", "column", "n", "term")
    top = fields.child("top")
    own, _ = _parts(top.text("kind"), top.child("map"))
    by_rank = _smooth(fields.child("term")) if fields.holds("term") else None
    column, n = fields.text("column"), fields.count("n")
    term = {"kind": "position", "column": column, "n": n, "curve": own, "by_rank": by_rank}
    return curve, [term]


def _moved(curve: Mapping[str, Any], shift: float, slope: float) -> Mapping[str, Any]:
    """A curve with its log odds multiplied and shifted, which version 1 kept apart."""
    # Knows the kinds of curves, whose documents this module only rewrites otherwise.
    from calibrank.maps.format import CURVES  # noqa: PLC0415  (see above)

    fields = Fields("base", curve)
    return kind_of(fields, CURVES).from_fields(fields).moved(shift, slope).content()


_TERMS = {"grouped": _grouped, "additive": _additive, "top": _top}
