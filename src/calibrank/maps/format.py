"""Load saved maps: plain JSON data, checked; loading can never run code."""

from os import PathLike
from pathlib import Path

from calibrank._json import Fields, digest_of
from calibrank.errors import DataError
from calibrank.maps.calibration_map import FORMAT, VERSION, CalibrationMap
from calibrank.maps.logistic import LogisticMap
from calibrank.maps.record import FitRecord
from calibrank.maps.rescale import RescaleMap
from calibrank.maps.step import StepMap

_KINDS: dict[str, type[LogisticMap] | type[StepMap] | type[RescaleMap]] = {
    kind.kind: kind for kind in (LogisticMap, StepMap, RescaleMap)
}


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
    if not Path(path).is_file():
        raise DataError(
            f"{path} must be a saved map, got no such file. Make one with map.save or calibrank fit."
        )
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} must be JSON in UTF-8: {error}. Is it a table? The map comes first."
        ) from None
    return parse(str(path), text)


def parse(where: str, text: str) -> CalibrationMap:
    """Read a map from JSON text; `where` names it in errors."""
    fields = Fields.parse(where, text)
    if fields.text("format") != FORMAT:
        raise DataError(
            f"{where} must be a {FORMAT} document, got format {fields.text('format')!r}."
        )
    if fields.count("version") > VERSION:
        version = fields.count("version")
        raise DataError(
            f"{where} must be of version {VERSION} or older, got {version}. Upgrade calibrank."
        )
    content = {name: value for name, value in fields.values.items() if name != "digest"}
    if fields.text("digest") != digest_of(content):
        raise DataError(
            f"{where} must match its digest: it was changed after it was saved. Save the map again."
        )
    fields.only("format", "version", "kind", "method", "map", "record", "digest")
    kind = _KINDS.get(fields.text("kind"))
    if kind is None:
        raise DataError(
            f"{where}, kind must be one of {', '.join(_KINDS)}, got {fields.text('kind')!r}."
        )
    try:
        return kind.read(
            fields.text("method"), fields.child("map"), FitRecord.read(fields.child("record"))
        )
    except DataError as error:
        raise error if str(error).startswith(where) else DataError(f"{where}: {error}") from None
