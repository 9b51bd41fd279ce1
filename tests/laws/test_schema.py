"""Every saved map keeps the published JSON Schema, and the schema knows every field."""

import json
from dataclasses import replace
from importlib.resources import files
from typing import Any

import numpy as np
import pytest

import calibrank as cr
from calibrank.anchoring import undo_undersampling
from calibrank.maps import (
    Alternative,
    Anchoring,
    FitRecord,
    JudgementSource,
    Population,
    Selection,
    Sensitivity,
)
from calibrank.maps.format import CURVES, TERMS
from tests.golden.vectors import documents
from tests.members import CALIBRATORS, name

jsonschema = pytest.importorskip("jsonschema")

SCHEMA = json.loads((files("calibrank.maps") / "schema.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
RNG = np.random.default_rng(0)
SCORES = RNG.normal(size=600)
LABELS = (RNG.random(600) < 1 / (1 + np.exp(1 - SCORES))).astype(float)
COLUMNS = {
    "country": RNG.choice(["NL", "DE"], 600),
    "city": RNG.integers(0, 3, 600),
    "price": RNG.normal(size=600),
    "rank": RNG.integers(1, 20, 600),
    "query": RNG.integers(0, 30, 600),
}
TERM_MODELS = (
    cr.Platt() + cr.Level("country", "city"),
    cr.Gaussian() + cr.Smooth("price") + cr.Level("country"),
    cr.Platt() + cr.Group("query"),
)


def require_valid(fitted: cr.CalibrationMap) -> None:
    VALIDATOR.validate(json.loads(fitted.to_json()))


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("member", [*CALIBRATORS, cr.Auto(), *TERM_MODELS], ids=name)
def test_fitted_maps_keep_the_schema(member: Any) -> None:
    columns = COLUMNS if isinstance(member, cr.Model) else None
    require_valid(member.fit(SCORES, LABELS, columns))


def test_anchored_and_moved_maps_keep_the_schema() -> None:
    fitted = TERM_MODELS[0].fit(SCORES, LABELS, COLUMNS)
    require_valid(fitted.moved(0.5, 2.0))
    require_valid(cr.to_base_rate(cr.Platt().fit(SCORES, LABELS), 0.2, SCORES))
    require_valid(undo_undersampling(cr.Platt().fit(SCORES, LABELS), 0.1))
    labels = LABELS[:200]
    columns = {key: values[:200] for key, values in COLUMNS.items()}
    require_valid(cr.anchor(fitted, SCORES[:200], labels, columns))
    position = cr.Position("rank", n=3)
    plain = cr.Platt().fit(SCORES, LABELS)
    population = {"score": SCORES, "rank": COLUMNS["rank"]}
    anchored = cr.anchor(
        plain, SCORES[:200], labels, columns, population=population, terms=[position]
    )
    require_valid(anchored)


def test_records_with_everything_keep_the_schema() -> None:
    fitted = cr.Platt().fit(SCORES, LABELS)
    band = Sensitivity(
        0.1, 0.3, (Alternative("power 1", 0.2, None),), (0.0, 1.0), (-2.0, -1.0), (-1.0, 0.0)
    )
    source = JudgementSource("judge.qrels", "grade >= 2")
    population = Population(
        "judged documents of this run", None, 12, 5, (source,), (source,), (0.0, 1.0), 9.5
    )
    record = replace(
        fitted.record, sensitivity=band, population=population, date="2024-05-01", model_name="a"
    )
    require_valid(replace(fitted, record=record))


@pytest.mark.parametrize("document", documents(), ids=lambda each: each["map"]["record"]["method"])
def test_the_documented_maps_keep_the_schema(document: dict[str, Any]) -> None:
    VALIDATOR.validate(document["map"])


def test_the_schema_has_every_kind_and_every_field() -> None:
    kinds = {each["$ref"].rsplit("/", 1)[1] for each in SCHEMA["$defs"]["curve"]["oneOf"]}
    assert kinds == set(CURVES)
    assert {each["$ref"].rsplit("/", 1)[1] for each in SCHEMA["$defs"]["term"]["oneOf"]} == set(
        TERMS
    )
    parts = {
        "record": FitRecord,
        "anchoring": Anchoring,
        "sensitivity": Sensitivity,
        "selection": Selection,
        "population": Population,
        "judgement_source": JudgementSource,
    }
    for part, kind in parts.items():
        assert set(SCHEMA["$defs"][part]["properties"]) == set(kind.__slots__)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The place of every object in a document."""
    found = []
    if isinstance(value, dict):
        found.append(path)
    children = value.items() if isinstance(value, dict) else enumerate(value)
    for key, child in children:
        if isinstance(child, dict | list):
            found += _paths(child, (*path, key))
    return found


def test_a_key_more_is_an_error_everywhere() -> None:
    document = documents()[-1]["map"]
    for path in _paths(document):
        changed = json.loads(json.dumps(document))
        place = changed
        for key in path:
            place = place[key]
        place["unknown"] = 1
        assert not VALIDATOR.is_valid(changed), path
