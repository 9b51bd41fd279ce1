"""Spark ML: an Estimator and its Model, which can be used in pipelines and saved with them."""

from __future__ import annotations

from typing import Any, Self

from pyspark import keyword_only
from pyspark.ml import Estimator, Model
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import HasLabelCol, HasOutputCol, HasWeightCol
from pyspark.ml.util import DefaultParamsReadable, DefaultParamsWritable
from pyspark.sql import DataFrame

from calibrank.curves import Calibrator
from calibrank.errors import DataError
from calibrank.maps import CalibrationMap
from calibrank.maps.format import parse
from calibrank.model import Model as CalibrationFormula
from calibrank.registry import EVIDENCE, find, parse_model
from calibrank.spark.aggregate import fit
from calibrank.spark.apply import transform


def _model_to_text(value: Any) -> str:
    """Return a model as its text, which the parameter holds and a saved pipeline stores."""
    return repr(parse_model(value if isinstance(value, str) else repr(value)))


def _map_to_json(value: Any) -> str:
    """Return a map as the JSON that `map.save` writes; given JSON is checked against its digest."""
    if isinstance(value, CalibrationMap):
        return value.to_json()
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
        self, *, map: Any = None, scoreCol: str = "score", outputCol: str = "probability"
    ) -> None:
        super().__init__()
        self._setDefault(scoreCol="score", outputCol="probability")
        self._set(**self._input_kwargs)

    def getMap(self) -> CalibrationMap:
        """Return the map."""
        if not self.isSet(self.map):
            raise DataError(
                "map", "be given", "none", "Fit a CalibrationEstimator, or pass map=..."
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
    """Fits a calibrator or a model with terms, `Gaussian()` by default: `calibrank.spark.fit`.

    The evidence is `evidence`: the name of `naive`, `ips` or `impressions`. Without it, `ips` with
    a propensity column and `naive` otherwise. Terms read the columns that they name.

    >>> from calibrank import Level, Platt
    >>> stage = CalibrationEstimator(calibrator=Platt() + Level("country"), scoreCol="x")
    >>> stage.getCalibrator()
    Platt() + Level('country')
    """

    calibrator = _param("calibrator", "the calibrator or model to fit, as text", _model_to_text)
    propensityCol = _param("propensityCol", "column of P(observed), in (0, 1]")
    evidence = _param("evidence", "how labels become evidence: naive, ips or impressions")

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
        outputCol: str = "probability",
    ) -> None:
        super().__init__()
        self._setDefault(
            calibrator="Gaussian()", scoreCol="score", labelCol="label", outputCol="probability"
        )
        given = {name: value for name, value in self._input_kwargs.items() if value is not None}
        self._set(**given)

    def getCalibrator(self) -> Calibrator | CalibrationFormula:
        """Return the calibrator or model."""
        return parse_model(self.getOrDefault(self.calibrator))

    def setCalibrator(self, value: Calibrator | CalibrationFormula | str) -> Self:
        return self._set(calibrator=value)

    def setLabelCol(self, value: str) -> Self:
        return self._set(labelCol=value)

    def setPropensityCol(self, value: str) -> Self:
        return self._set(propensityCol=value)

    def setWeightCol(self, value: str) -> Self:
        return self._set(weightCol=value)

    def setEvidence(self, value: str) -> Self:
        return self._set(evidence=value)

    def _fit(self, dataset: DataFrame) -> CalibrationModel:
        evidence = self._optional(self.evidence)
        fitted = fit(
            self.getCalibrator(),
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
