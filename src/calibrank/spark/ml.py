"""Spark ML: an Estimator and its Model, to stand in pipelines and be saved with them."""

import json
from dataclasses import asdict, is_dataclass
from typing import Any, Self

from pyspark import keyword_only
from pyspark.ml import Estimator, Model
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import HasLabelCol, HasOutputCol, HasWeightCol
from pyspark.ml.util import DefaultParamsReadable, DefaultParamsWritable
from pyspark.sql import DataFrame

from calibrank._json import Fields, digest_of
from calibrank.calibrators import Calibrator, Gaussian
from calibrank.errors import DataError
from calibrank.maps import CalibrationMap
from calibrank.maps.format import parse
from calibrank.registry import CALIBRATORS
from calibrank.spark.aggregate import fit
from calibrank.spark.apply import transform

_KINDS: dict[str, type[Calibrator]] = {name: type(member) for name, member in CALIBRATORS.items()}


def _calibrator_text(value: Any) -> str:
    """A calibrator as JSON, checked: what the parameter holds and a saved pipeline stores."""
    if isinstance(value, str):
        _calibrator(value)
        return value
    if type(value) not in _KINDS.values() or not is_dataclass(value) or isinstance(value, type):
        raise DataError(f"calibrator must be one of {', '.join(_KINDS)}, got {value!r}.")
    return json.dumps({"name": type(value).__name__, "settings": asdict(value)})


def _calibrator(text: str) -> Calibrator:
    fields = Fields.parse("calibrator", text)
    fields.only("name", "settings")
    kind = _KINDS.get(fields.text("name"))
    if kind is None:
        raise DataError(
            f"calibrator must be one of {', '.join(_KINDS)}, got {fields.text('name')!r}."
        )
    settings = fields.child("settings").values
    lists = {
        name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()
    }
    try:
        return kind(**lists)
    except TypeError as error:
        raise DataError(
            f"calibrator, settings must be those of {kind.__name__}: {error}."
        ) from None


def _map_text(value: Any) -> str:
    """A map as the JSON that `map.save` writes, checked against its digest."""
    if isinstance(value, CalibrationMap):
        content = value.to_dict()
        return json.dumps({**content, "digest": digest_of(content)}, allow_nan=False)
    parse("map", str(value))
    return str(value)


def _param(name: str, doc: str, converter: Any = TypeConverters.toString) -> Any:
    return Param(Params._dummy(), name, doc, typeConverter=converter)  # noqa: SLF001  (how Spark's own are made)


class _Columns(HasOutputCol):
    """The columns that an Estimator and its Model share."""

    _input_kwargs: dict[str, Any]  # what `keyword_only` leaves

    scoreCol = _param("scoreCol", "column of ranking scores")  # noqa: N815  (Spark's convention)

    def setScoreCol(self, value: str) -> Self:  # noqa: N802
        return self._set(scoreCol=value)

    def setOutputCol(self, value: str) -> Self:  # noqa: N802
        return self._set(outputCol=value)


class CalibrationModel(Model, _Columns, DefaultParamsReadable[Any], DefaultParamsWritable):
    """A fitted map as a Spark ML transformer; saved with its map as JSON, which is checked when it is loaded.

    >>> from calibrank import Platt
    >>> model = CalibrationModel(map=Platt().fit([-1.0, 0.0, 1.0, 2.0], [0, 1, 0, 1]))
    >>> model.getMap().method
    'Platt'
    """

    map = _param("map", "the fitted map, as JSON", _map_text)

    @keyword_only
    def __init__(
        self, *, map: Any = None, scoreCol: str = "score", outputCol: str = "probability"
    ) -> None:  # noqa: A002, N803
        super().__init__()
        self._setDefault(scoreCol="score", outputCol="probability")
        self._set(**self._input_kwargs)

    def getMap(self) -> CalibrationMap:  # noqa: N802
        """The map itself."""
        if not self.isSet(self.map):
            raise DataError(
                "map must be given, got none. Fit a CalibrationEstimator, or pass map=..."
            )
        return parse("map", self.getOrDefault(self.map))

    def _transform(self, dataset: DataFrame) -> DataFrame:
        score, to = self.getOrDefault(self.scoreCol), self.getOutputCol()
        return transform(self.getMap(), dataset, score=score, to=to)


class CalibrationEstimator(
    Estimator[CalibrationModel],
    _Columns,
    HasLabelCol,
    HasWeightCol,
    DefaultParamsReadable[Any],
    DefaultParamsWritable,
):
    """Fits a calibrator, `Gaussian()` by default, on a score and a label column; a propensity makes it unbiased.

    >>> from calibrank import Platt
    >>> CalibrationEstimator(calibrator=Platt(), scoreCol="x").getCalibrator()
    Platt()
    """

    calibrator = _param("calibrator", "what to fit, as JSON", _calibrator_text)
    propensityCol = _param("propensityCol", "column of P(observed), in (0, 1]")  # noqa: N815

    @keyword_only
    def __init__(
        self,
        *,
        calibrator: Any = None,
        scoreCol: str = "score",  # noqa: N803
        labelCol: str = "label",  # noqa: N803
        propensityCol: str | None = None,  # noqa: N803
        weightCol: str | None = None,  # noqa: N803
        outputCol: str = "probability",  # noqa: N803
    ) -> None:
        super().__init__()
        self._setDefault(
            calibrator=_calibrator_text(Gaussian()),
            scoreCol="score",
            labelCol="label",
            outputCol="probability",
        )
        self._set(
            **{name: value for name, value in self._input_kwargs.items() if value is not None}
        )

    def getCalibrator(self) -> Calibrator:  # noqa: N802
        """The calibrator itself."""
        return _calibrator(self.getOrDefault(self.calibrator))

    def setCalibrator(self, value: Calibrator) -> Self:  # noqa: N802
        return self._set(calibrator=value)

    def setLabelCol(self, value: str) -> Self:  # noqa: N802
        return self._set(labelCol=value)

    def setPropensityCol(self, value: str) -> Self:  # noqa: N802
        return self._set(propensityCol=value)

    def setWeightCol(self, value: str) -> Self:  # noqa: N802
        return self._set(weightCol=value)

    def _fit(self, dataset: DataFrame) -> CalibrationModel:
        fitted = fit(
            self.getCalibrator(),
            dataset,
            score=self.getOrDefault(self.scoreCol),
            label=self.getLabelCol(),
            propensity=self._optional(self.propensityCol),
            weight=self._optional(self.weightCol),
        )
        return self._copyValues(CalibrationModel(map=fitted))

    def _optional(self, param: Any) -> str | None:
        return self.getOrDefault(param) if self.isDefined(param) else None
