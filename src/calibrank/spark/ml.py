"""Spark ML: an Estimator and its Model, which can be used in pipelines and saved with them."""

from __future__ import annotations

import json
from dataclasses import asdict, is_dataclass
from typing import Any, Self

from pyspark import keyword_only
from pyspark.ml import Estimator, Model
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import HasLabelCol, HasOutputCol, HasWeightCol
from pyspark.ml.util import DefaultParamsReadable, DefaultParamsWritable
from pyspark.sql import DataFrame

from calibrank._internal.json import Fields, digest_of
from calibrank.curves import Calibrator, Gaussian, Segments
from calibrank.errors import DataError
from calibrank.maps import CalibrationMap
from calibrank.maps.format import parse
from calibrank.registry import CALIBRATORS, EVIDENCE, find
from calibrank.spark.aggregate import fit
from calibrank.spark.apply import transform

_CALIBRATOR_TYPES: dict[str, type[Calibrator]] = {
    name: type(member) for name, member in CALIBRATORS.items()
}


def _calibrator_to_json(value: Any) -> str:
    """Return a calibrator as JSON, which the parameter holds and a saved pipeline stores."""
    if isinstance(value, str):
        _calibrator_from_json(value)  # only to check it
        return value
    is_known = type(value) in _CALIBRATOR_TYPES.values()
    if not is_known or not is_dataclass(value) or isinstance(value, type):
        names = ", ".join(_CALIBRATOR_TYPES)
        raise DataError(f"calibrator must be one of {names}, got {value!r}.")
    return json.dumps({"name": type(value).__name__, "settings": asdict(value)})


def _calibrator_from_json(text: str) -> Calibrator:
    fields = Fields.parse("calibrator", text)
    fields.only("name", "settings")
    name = fields.text("name")
    if name not in _CALIBRATOR_TYPES:
        names = ", ".join(_CALIBRATOR_TYPES)
        raise DataError(f"calibrator must be one of {names}, got {name!r}.")
    settings = dict(fields.child("settings").values)
    for key, value in settings.items():
        if isinstance(value, list):
            settings[key] = tuple(value)  # JSON has no tuples
    try:
        return _CALIBRATOR_TYPES[name](**settings)
    except TypeError as error:
        raise DataError(f"calibrator, settings must be those of {name}: {error}.") from None


def _map_to_json(value: Any) -> str:
    """Return a map as the JSON that `map.save` writes; given JSON is checked against its digest."""
    if isinstance(value, CalibrationMap):
        content = value.to_dict()
        return json.dumps({**content, "digest": digest_of(content)}, allow_nan=False)
    parse("map", str(value))
    return str(value)


def _param(name: str, doc: str, converter: Any = TypeConverters.toString) -> Any:
    # As pyspark.ml declares its own parameters.
    return Param(Params._dummy(), name, doc, typeConverter=converter)


class _Columns(HasOutputCol):
    """The columns that an Estimator and its Model share."""

    _input_kwargs: dict[str, Any]  # the keyword arguments, set by `keyword_only`

    scoreCol = _param("scoreCol", "column of ranking scores")

    def setScoreCol(self, value: str) -> Self:
        return self._set(scoreCol=value)

    def setOutputCol(self, value: str) -> Self:
        return self._set(outputCol=value)


class CalibrationModel(Model, _Columns, DefaultParamsReadable[Any], DefaultParamsWritable):
    """A fitted map as a Spark ML transformer.

    It is saved with the map as JSON, and the map's digest is checked when it is loaded.

    >>> from calibrank import Platt
    >>> model = CalibrationModel(map=Platt().fit([-1.0, 0.0, 1.0, 2.0], [0, 1, 0, 1]))
    >>> model.getMap().method
    'Platt'
    """

    map = _param("map", "the fitted map, as JSON", _map_to_json)

    @keyword_only
    def __init__(
        self,
        *,
        map: Any = None,
        scoreCol: str = "score",
        outputCol: str = "probability",
    ) -> None:
        super().__init__()
        self._setDefault(scoreCol="score", outputCol="probability")
        self._set(**self._input_kwargs)

    def getMap(self) -> CalibrationMap:
        """Return the map."""
        if not self.isSet(self.map):
            raise DataError(
                "map must be given, got none. Fit a CalibrationEstimator, or pass map=..."
            )
        return parse("map", self.getOrDefault(self.map))

    def _transform(self, dataset: DataFrame) -> DataFrame:
        score = self.getOrDefault(self.scoreCol)
        return transform(self.getMap(), dataset, score=score, to=self.getOutputCol())


class CalibrationEstimator(
    Estimator[CalibrationModel],
    _Columns,
    HasLabelCol,
    HasWeightCol,
    DefaultParamsReadable[Any],
    DefaultParamsWritable,
):
    """Fits a calibrator, `Gaussian()` by default, on a score and a label column.

    The evidence is `evidence`: the name of `naive`, `ips` or `impressions`. Without it, `ips` with
    a propensity column and `naive` otherwise. With `segmentCols`, the map is by segment
    (`calibrank.Segments`).

    >>> from calibrank import Platt
    >>> CalibrationEstimator(calibrator=Platt(), scoreCol="x").getCalibrator()
    Platt()
    """

    calibrator = _param("calibrator", "the calibrator to fit, as JSON", _calibrator_to_json)
    propensityCol = _param("propensityCol", "column of P(observed), in (0, 1]")
    evidence = _param("evidence", "how labels become evidence: naive, ips or impressions")
    segmentCols = _param(
        "segmentCols",
        "columns to fit by, each nested in the one before",
        TypeConverters.toListString,
    )

    @keyword_only
    def __init__(
        self,
        *,
        calibrator: Any = None,
        scoreCol: str = "score",
        labelCol: str = "label",
        propensityCol: str | None = None,
        weightCol: str | None = None,
        evidence: str | None = None,
        segmentCols: list[str] | None = None,
        outputCol: str = "probability",
    ) -> None:
        super().__init__()
        self._setDefault(
            calibrator=_calibrator_to_json(Gaussian()),
            scoreCol="score",
            labelCol="label",
            outputCol="probability",
        )
        given = {name: value for name, value in self._input_kwargs.items() if value is not None}
        self._set(**given)

    def getCalibrator(self) -> Calibrator:
        """Return the calibrator."""
        return _calibrator_from_json(self.getOrDefault(self.calibrator))

    def setCalibrator(self, value: Calibrator) -> Self:
        return self._set(calibrator=value)

    def setLabelCol(self, value: str) -> Self:
        return self._set(labelCol=value)

    def setPropensityCol(self, value: str) -> Self:
        return self._set(propensityCol=value)

    def setWeightCol(self, value: str) -> Self:
        return self._set(weightCol=value)

    def setEvidence(self, value: str) -> Self:
        return self._set(evidence=value)

    def setSegmentCols(self, value: list[str]) -> Self:
        return self._set(segmentCols=value)

    def _fit(self, dataset: DataFrame) -> CalibrationModel:
        evidence = self._optional(self.evidence)
        calibrator = self.getCalibrator()
        by = self._optional(self.segmentCols)
        fitted = fit(
            calibrator if by is None else Segments(tuple(by), calibrator),
            dataset,
            score=self.getOrDefault(self.scoreCol),
            label=self.getLabelCol(),
            propensity=self._optional(self.propensityCol),
            weight=self._optional(self.weightCol),
            evidence=None if evidence is None else find("evidence", EVIDENCE, evidence),
        )
        return self._copyValues(CalibrationModel(map=fitted))

    def _optional(self, param: Any) -> str | None:
        return self.getOrDefault(param) if self.isDefined(param) else None
