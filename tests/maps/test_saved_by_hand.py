"""Damaged files of maps, of both versions: each part is refused with its own reason."""

import json
from collections.abc import Callable
from typing import Any

import pytest

import calibrank as cr
from calibrank._internal.json import digest_of
from calibrank.maps import LogisticCurve, PiecewiseCurve, StepCurve
from calibrank.maps.basis import Linear, Log, LogQuadratic
from calibrank.maps.format import parse
from tests.golden.vectors import version_1
from tests.maps.samples import gaussian_map, map_of, smooth_term


def resaved(change: Callable[[dict[str, Any]], None], number: int = 0) -> str:
    """A map of version 1 with a change, and the digest of what it then holds."""
    document = version_1()[number]["map"]
    change(document)
    del document["digest"]
    return json.dumps({**document, "digest": digest_of(document)})


def place_of(kind: str) -> int:
    return next(i for i, each in enumerate(version_1()) if each["map"]["kind"] == kind)


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("logistic", {"format": "other"}, "must be a calibrank-map document, got format 'other'"),
        ("logistic", {"version": 3}, "must be of version 2 or older, got 3. Upgrade"),
        ("logistic", {"version": 0}, "version must be 1 or more, got 0"),
        ("logistic", {"more": 1}, "must hold only format, version, kind, method, map, record"),
        ("logistic", {"kind": "other"}, "kind must be one of logistic, step, .* got 'other'"),
        ("grouped", {"map": {"more": 1}}, "must hold only base, columns, segments, spreads"),
        ("additive", {"map": {"more": 1}}, "must hold only base, intercept, slope, terms"),
        ("top", {"map": {"more": 1}}, "must hold only base, top, column, n, term"),
    ],
)
def test_damaged_maps_of_version_1_are_refused(
    kind: str, change: dict[str, Any], message: str
) -> None:
    def apply(document: dict[str, Any]) -> None:
        inner = change.get("map")
        document.update({} if inner else change)
        document["map"].update(inner or {})

    with pytest.raises(cr.DataError, match=f"^map.json.*{message}"):
        parse("map.json", resaved(apply, place_of(kind)))


def test_fields_of_terms_of_version_1_are_checked() -> None:
    for place in (0, 1):

        def add(document: dict[str, Any], place: int = place) -> None:
            document["map"]["terms"][place]["more"] = 1

        with pytest.raises(cr.DataError, match="must hold only column, "):
            parse("map.json", resaved(add, place_of("additive")))

    def add_to_function_of_rank(document: dict[str, Any]) -> None:
        # The present version has this field.
        document["map"]["term"]["errors"] = []

    with pytest.raises(cr.DataError, match="must hold only column, knots, values"):
        parse("map.json", resaved(add_to_function_of_rank, place_of("top")))

    def nest(document: dict[str, Any]) -> None:
        inner = {key: document[key] for key in ("kind", "method", "map")}
        document["map"] = {**document["map"], "base": json.loads(json.dumps(inner))}

    with pytest.raises(cr.DataError, match="must be a map of scores alone"):
        parse("map.json", resaved(nest, place_of("grouped")))


def test_a_map_without_a_function_of_the_rank_is_read() -> None:
    def remove(document: dict[str, Any]) -> None:
        document["map"]["term"] = None

    (term,) = parse("map.json", resaved(remove, place_of("top"))).terms
    assert term.content()["by_rank"] is None


def test_a_changed_map_does_not_match_its_digest() -> None:
    document = json.loads(gaussian_map().to_json())
    document["curve"]["intercept"] += 0.1
    with pytest.raises(cr.DataError, match="must match its digest"):
        parse("map.json", json.dumps(document))


@pytest.mark.parametrize(
    ("curve", "message"),
    [
        (StepCurve((0.0, 1e31), (0.0, 0.5, 1.0), (1.0,) * 3), r"scores must lie within \+-1e30"),
        (
            PiecewiseCurve((0.0, 1.0), (-1e308, 1e308), (0.0, 0.0), (0.0, 0.0), (0.0, 0.0)),
            r"probabilities must lie in \[0, 1\], got NaN",
        ),
        (
            PiecewiseCurve((0.0,), (0.0,), (1e300, 0.0), (0.0,), (1e300, 0.0)),
            r"probabilities must lie in \[0, 1\], got NaN",
        ),
    ],
)
def test_numbers_that_overflow_together_are_refused(
    curve: StepCurve | PiecewiseCurve, message: str
) -> None:
    with pytest.raises(cr.DataError, match=f"^map.json: the map's {message}"):
        parse("map.json", map_of(curve).to_json())


def test_log_odds_of_a_map_with_terms_are_finite() -> None:
    """Infinite log odds are probabilities of 0 and 1, until a term is added."""
    steep = LogisticCurve(Linear(), 0.0, 1.0, 0.0, (1e300,), ((0.0, 0.0), (0.0, 0.0)))
    assert parse("map.json", map_of(steep).to_json()).predict(1e30) == 1.0
    with pytest.raises(cr.DataError, match=r"probabilities must lie in \[0, 1\]"):
        parse("map.json", map_of(steep, smooth_term("x")).to_json())


def test_scores_of_a_map_may_reach_the_limit() -> None:
    fitted = map_of(StepCurve((0.0, 1e29), (0.0, 0.5, 1.0), (1.0,) * 3))
    assert parse("map.json", fitted.to_json()) == fitted


@pytest.mark.parametrize("margin", [0.0, -0.1])
def test_a_logarithm_starts_below_the_range(margin: float) -> None:
    for kind in (Log, LogQuadratic):
        with pytest.raises(cr.DataError, match="margin must be above 0, got"):
            kind(margin)
