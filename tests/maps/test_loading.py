"""Loading checks every number of a curve, of terms and of the record, in linear time."""

import json
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import calibrank as cr
from calibrank._internal import json as documents
from calibrank._internal.json import digest_of, parse_json
from calibrank.maps import CalibrationMap, FitRecord, Sensitivity, StepCurve
from calibrank.maps.format import parse
from tests.maps.samples import gaussian_map, level_term, map_of, smooth_term

BAND = Sensitivity(0.1, 0.2, (), (0.0, 1.0), (-1.0, 0.0), (0.0, 1.0))
RECORD = FitRecord("ips", rows=10, positive=2.0, total=10.0, exact=True, sensitivity=BAND)
BAND_PATH = ("record", "sensitivity")


def changed(path: Sequence[str | int], value: Any) -> str:
    """A saved map with another value at a path, and the digest of that."""
    terms = (level_term("country"), smooth_term("x"))
    document = json.loads(CalibrationMap(gaussian_map().curve, RECORD, terms).to_json())
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    before = inner[path[-1]]
    # Numbers take the place of all numbers of a list.
    inner[path[-1]] = [value] * len(before) if isinstance(value, float) else value
    del document["digest"]
    return json.dumps({**document, "digest": digest_of(document)})


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ((*BAND_PATH, "scores"), [1.0, 0.0], "band must have increasing scores"),
        ((*BAND_PATH, "low"), [5.0, 5.0], "no lower end above the upper one"),
        ((*BAND_PATH, "low"), [None, 0.0], "low must be a list of finite numbers, got None"),
        ((*BAND_PATH, "exposure_factor"), None, "exposure_factor must be a finite number"),
        (("record", "rows"), None, "rows must be a whole number"),
        (("record", "iterations"), None, "iterations must be a whole number"),
        (("record", "base_rate"), -1, r"base_rate must lie in \(0, 1\), got -1"),
        (("record", "top_rate"), 1, r"top_rate must lie in \(0, 1\), got 1"),
        (("terms", 0, "typical"), None, "typical must be a finite number"),
        (("terms", 0, "errors"), 1e300, "the numbers of a level must lie within"),
        (("terms", 0, "spreads"), 1e300, "the numbers of a level must lie within"),
        (("terms", 0, "intercepts"), 1e300, "the numbers of a level must lie within"),
        (("terms", 1, "values"), 1e300, "the values of a smooth term must lie within"),
        (("terms", 1, "errors"), None, "errors must be a list of finite numbers"),
        (("curve", "covariance"), [1.0, 2.0], "covariance must be 3 x 3"),
        (("curve", "coefficients"), None, "coefficients must be a list of finite numbers"),
    ],
)
def test_a_number_that_is_not_valid_is_refused(
    path: Sequence[str | int], value: Any, message: str
) -> None:
    with pytest.raises(cr.DataError, match=message):
        parse("map.json", changed(path, value))


@pytest.mark.parametrize("knots", [(-1e300, 0.0), (0.0, 5e-324)])
def test_knots_of_a_smooth_term_are_bounded(knots: tuple[float, float]) -> None:
    with pytest.raises(cr.DataError, match="knots of a smooth term must lie within"):
        cr.maps.SmoothTerm("x", knots, (0.0, 1.0))


def test_intervals_of_many_steps_are_computed_once_per_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    special = pytest.importorskip("scipy.special")
    computed = 0
    original = special.betaincinv

    def counted(positives: np.ndarray, *rest: Any) -> np.ndarray:
        nonlocal computed
        computed += len(positives)
        return original(positives, *rest)

    monkeypatch.setattr(special, "betaincinv", counted)
    steps = 100_000
    edges = np.linspace(0, 1, steps - 1)
    values = np.linspace(0, 1, steps)
    curve = StepCurve(tuple(edges.tolist()), tuple(values.tolist()), (3.0,) * steps)
    map_of(curve).sampling_interval(edges)
    # Two ends per step, and a step may lie in two blocks.
    assert computed < 2.1 * steps


def test_many_keys_of_which_the_last_is_there_twice_are_refused_at_once() -> None:
    keys = [f'"{number}": 0' for number in [*range(200_000), 199_999]]
    with pytest.raises(cr.DataError, match="the key '199999' occurs twice"):
        parse_json("map.json", "{" + ", ".join(keys) + "}", "")


def test_a_map_that_could_not_be_loaded_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "LARGEST_DOCUMENT", 100)
    with pytest.raises(cr.DataError, match="a saved map must be JSON of at most 100 bytes"):
        gaussian_map().save(tmp_path / "map.json")
    assert not list(tmp_path.iterdir())


def test_scalar_leaves_no_memory_behind() -> None:
    fitted = map_of(gaussian_map().curve, smooth_term("x"))
    fitted.scalar()(0.1, {"x": 0.5})
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(500):
        fitted.scalar()(0.1, {"x": 0.5})
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 500 * 50
