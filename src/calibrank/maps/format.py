"""Load saved maps: plain JSON data that is checked field by field; loading never runs code."""

from __future__ import annotations

from os import PathLike

import numpy as np

from calibrank._internal.arguments import path_of, regular_file
from calibrank._internal.json import Fields, digest_of, read_document
from calibrank._internal.validation import LARGEST_SCORE
from calibrank.errors import DataError
from calibrank.maps.additive import AdditiveMap
from calibrank.maps.calibration_map import FORMAT, VERSION, CalibrationMap
from calibrank.maps.grouped import GroupedMap
from calibrank.maps.logistic import LogisticMap
from calibrank.maps.piecewise import PiecewiseMap
from calibrank.maps.record import FitRecord
from calibrank.maps.rescale import RescaleMap
from calibrank.maps.step import StepMap
from calibrank.maps.top import TopMap

KINDS: dict[str, type[CalibrationMap]] = {
    LogisticMap.kind: LogisticMap,
    StepMap.kind: StepMap,
    RescaleMap.kind: RescaleMap,
    PiecewiseMap.kind: PiecewiseMap,
    GroupedMap.kind: GroupedMap,
    AdditiveMap.kind: AdditiveMap,
    TopMap.kind: TopMap,
}
"""Every kind of map, by its name in JSON."""

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
        fitted = read_map(fields, FitRecord.read(fields.child("record")))
        _check_probabilities(fitted)
    except DataError as error:
        if str(error).startswith(where):
            raise
        # Errors of a map's constructor do not say which file they are about.
        raise DataError(f"{where}: {error}") from None
    return fitted


def _check_probabilities(fitted: CalibrationMap) -> None:
    """Refuse numbers that are finite one by one, but overflow in the formula."""
    points = np.array([-LARGEST_SCORE, *fitted.breakpoints, *fitted.span, LARGEST_SCORE])
    if not (np.abs(points) <= LARGEST_SCORE).all():
        raise DataError("the map's scores must lie within +-1e30. Save the map again.")
    points = np.unique(points)
    points = np.unique(np.concatenate([points, (points[1:] + points[:-1]) / 2]))
    with np.errstate(all="ignore"):
        values = np.concatenate([fitted.predict(points), *fitted.interval(points)])
    if not ((values >= 0) & (values <= 1)).all():
        raise DataError("the map's probabilities must lie in [0, 1], got NaN. Save the map again.")


def read_map(fields: Fields, record: FitRecord) -> CalibrationMap:
    """Rebuild a map of any kind from its kind, method and numbers."""
    name = fields.text("kind")
    if name not in KINDS:
        raise DataError(
            f"{fields.where}, kind must be one of {', '.join(KINDS)}, got {name!r}. "
            "If a newer calibrank wrote it, upgrade calibrank."
        )
    return KINDS[name].read(fields.text("method"), fields.child("map"), record)


def _check_document(fields: Fields) -> None:
    """Refuse documents of another format, of a later version, or changed since they were saved."""
    where = fields.where
    if fields.text("format") != FORMAT:
        raise DataError(
            f"{where} must be a {FORMAT} document, got format {fields.text('format')!r}."
        )
    version = fields.count("version")
    if version > VERSION:
        raise DataError(
            f"{where} must be of version {VERSION} or older, got {version}. Upgrade calibrank."
        )
    if version < 1:
        raise DataError(f"{where}, version must be 1 or more, got {version}. Save the map again.")
    content = {name: value for name, value in fields.values.items() if name != "digest"}
    if fields.text("digest") != digest_of(content):
        raise DataError(
            f"{where} must match its digest: it was changed after it was saved. Save the map again."
        )
    fields.only("format", "version", "kind", "method", "map", "record", "digest")
