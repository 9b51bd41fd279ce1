"""Maps as expressions of search engines: Vespa, Elasticsearch and OpenSearch, and Lucene."""

from __future__ import annotations

from typing import NamedTuple

from calibrank._internal.arguments import label
from calibrank.composition import refusal
from calibrank.maps.basis import Linear
from calibrank.maps.calibration_map import CalibrationMap, require_map
from calibrank.maps.logistic import LogisticCurve
from calibrank.maps.targets.script import Language, Script, ScriptTarget

VESPA = Language("exp", "log", "fabs", "min", "max", "if ({}, {}, {})")
PAINLESS = Language(
    "Math.exp", "Math.log", "Math.abs", "Math.min", "Math.max", "(({}) ? ({}) : ({}))"
)


class SigmoidParameters(NamedTuple):
    """A sigmoid of Lucene: 1 / (1 + exp(-alpha * (score - beta)))."""

    alpha: float
    beta: float


def to_vespa(fitted: CalibrationMap, score: str = "firstPhase") -> str:
    """The probability as a Vespa ranking expression of a feature or function.

    Scores that are not valid (NaN, beyond +-1e30) get 0, because a rank score must be a number.

    >>> from calibrank import MinMax
    >>> to_vespa(MinMax().fit([1.0, 2.0, 5.0], [0, 0, 1]), "bm25(title)")[:54]
    'if (bm25(title) >= -1e+30 && bm25(title) <= 1e+30, max'
    """
    return _expression(fitted, score, VESPA)


def to_painless(fitted: CalibrationMap, score: str = "_score") -> str:
    """The probability as a Painless expression, for `script_score` of Elasticsearch and OpenSearch.

    Scores that are not valid get 0: these engines refuse scores that are no number.

    >>> from calibrank import Platt
    >>> fitted = Platt().fit([-1.0, 0.0, 1.0, 2.0], [0, 1, 0, 1])
    >>> to_painless(fitted).startswith("((_score >= -1e+30 && _score <= 1e+30) ? ")
    True
    """
    return _expression(fitted, score, PAINLESS)


def to_lucene(fitted: CalibrationMap) -> SigmoidParameters:
    """The parameters of a sigmoid of the score, where the map is one (`Platt`, `Temperature`).

    >>> from calibrank import Platt
    >>> alpha, beta = to_lucene(Platt().fit([-1.0, 0.0, 1.0, 2.0], [0, 1, 0, 1]))
    >>> round(beta, 6)
    0.5
    """
    require_map(fitted)
    curve = fitted.curve
    is_sigmoid = isinstance(curve, LogisticCurve) and isinstance(curve.basis, Linear)
    if fitted.terms:
        raise refusal("terms", "a search engine")
    if not is_sigmoid:
        raise refusal("a curve that is no sigmoid", "Lucene")
    low, high = fitted.span
    below, above = fitted.log_odds([low, high]).tolist()
    alpha = (above - below) / (high - low)
    return SigmoidParameters(alpha, low - below / alpha)


def _expression(fitted: CalibrationMap, score: str, language: Language) -> str:
    require_map(fitted)
    if fitted.terms:
        raise refusal("terms", "a search engine")
    given = Script(label("score", score, "It is an expression of the engine."), language)
    return str(fitted.where_valid(ScriptTarget(language), given))
