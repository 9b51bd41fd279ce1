"""Maps of version 1 are still read, and the documented vectors are those of the present version."""

import json

import numpy as np
import pytest

import calibrank as cr
from calibrank.maps.format import parse
from tests.golden.vectors import VECTORS, documents, version_1

FORMULAS = {"linear", "quadratic", "log", "log-quadratic", "softplus", "step", "rescale"}


@pytest.mark.parametrize("document", version_1(), ids=lambda each: each["map"]["method"])
def test_maps_of_version_1_predict_what_they_did(document: dict) -> None:
    fitted = parse("version 1", json.dumps(document["map"]))
    vectors = document["vectors"]
    rows = [{**each.get("segments", {}), **each.get("features", {})} for each in vectors]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    for name in fitted.level_columns:
        # A missing level was an unknown one then, and is refused now.
        columns[name] = ["unknown" if value is None else value for value in columns[name]]
    found = fitted.predict([each["score"] for each in vectors], columns or None)
    expected = [each["probability"] for each in vectors]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)
    assert parse("version 2", fitted.to_json()) == fitted


def test_a_map_of_version_1_has_no_recipe_after_anchoring() -> None:
    """The name of its method, with a segment, is none."""
    (document,) = [each["map"] for each in version_1() if each["map"]["kind"] == "grouped"]
    fitted = parse("version 1", json.dumps(document))
    columns = {name: ["NL", "DE"] * 9 for name in fitted.columns}
    anchored = cr.anchor(fitted, [0.0, 1.0] * 9, [0, 1, 1] * 6, columns)
    assert anchored.record.recipe is None


def test_the_documented_vectors_are_those_of_this_version() -> None:
    written = json.loads(VECTORS.read_text(encoding="utf-8"))
    present = documents()
    assert [each["map"] for each in written] == [each["map"] for each in present]
    for before, now in zip(written, present, strict=True):
        assert before["invalid"] == now["invalid"]
        found = [[vector["probability"] for vector in each["vectors"]] for each in (before, now)]
        np.testing.assert_allclose(*found, rtol=1e-12)
    curves = [each["map"]["curve"] for each in written]
    bases = {curve.get("basis", curve.get("kind"))["name"] for curve in curves if "basis" in curve}
    assert bases | {curve["kind"] for curve in curves} == FORMULAS | {"logistic", "piecewise"}
    terms = [term["kind"] for each in written for term in each["map"]["terms"]]
    assert set(terms) == {"level", "smooth", "position"}
