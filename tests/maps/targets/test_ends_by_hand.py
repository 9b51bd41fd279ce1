"""What users of targets meet: dataframes, tensors, graphs and scripts, and their errors."""

import math
from typing import Any

import numpy as np
import polars as pl
import pytest

import calibrank as cr
from calibrank._internal.logit import expit
from calibrank.export import to_json, to_onnx, to_painless, to_sql, to_torch, to_vespa
from calibrank.maps import LevelTerm
from calibrank.maps.basis import Linear
from calibrank.maps.targets.target import ceilings, free_names, nested_choices, require_dtype
from tests.maps.samples import gaussian_map, level_term, logistic_map, map_of, smooth_term

torch = pytest.importorskip("torch")


def test_lazy_frames_read_levels_of_every_type() -> None:
    term = LevelTerm(
        ("a",),
        (("7",), ("true",), ("9007199254740991",), ("false",), ("-3",)),
        (1.0, 2.0, 3.0, 4.0, 5.0),
        (1.0,) * 5,
        (0.1,) * 5,
        (1,) * 5,
        (1.0,),
        -1.0,
    )
    fitted = map_of(gaussian_map().curve, term)
    base = float(gaussian_map().log_odds(0.5))
    columns: list[tuple[list[Any], list[float | None]]] = [
        (["7", "8", None], [1.0, -1.0, None]),
        ([7, 8, None], [1.0, -1.0, None]),
        ([7.0, -3.0, 2.5, None, 2.0**53, 2.0**53 - 1], [1.0, 5.0, None, None, None, 3.0]),
        ([-(2.0**53), math.inf, math.nan, -0.0], [None, None, None, -1.0]),
        ([True, False, None], [2.0, 4.0, None]),
    ]
    for values, added in columns:
        frame = pl.DataFrame({"a": values, "score": [0.5] * len(values)}).lazy()
        found = fitted.transform(frame).collect()
        assert found.columns == ["a", "score", "probability"]
        for one, more in zip(found["probability"].to_list(), added, strict=True):
            assert one == (None if more is None else pytest.approx(float(expit(base + more))))


def test_a_lazy_frame_gives_null_for_what_predict_refuses() -> None:
    fitted = map_of(gaussian_map().curve, smooth_term("x"))
    scores = [0.0, None, math.nan, 1e30, 1.1e30, -1.1e30, 0.0, 0.0]
    x = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, None, math.nan]
    found = fitted.transform(pl.DataFrame({"score": scores, "x": x}).lazy()).collect()
    is_null = [each is None for each in found["probability"].to_list()]
    assert is_null == [False, True, True, False, True, True, True, True]


def test_transform_names_what_is_wrong() -> None:
    fitted = map_of(gaussian_map().curve, smooth_term("x"))
    frame = pl.DataFrame({"score": [0.0], "x": [0.0], "p": [1.0]})
    with pytest.raises(cr.DataError, match=r"have a column 's', got .*Name it with score="):
        fitted.transform(frame, score="s")
    with pytest.raises(cr.DataError, match=r"have a column 'x', got .*The map needs it"):
        fitted.transform(frame.drop("x"))
    with pytest.raises(cr.DataError, match="not have a column 'p' already"):
        fitted.transform(frame, to="p")
    with pytest.raises(cr.DataError, match="frame must be a dataframe of pandas"):
        fitted.transform([0.0])
    with pytest.warns(cr.errors.ScoreShiftWarning) as found:
        gaussian_map().transform(pl.DataFrame({"score": np.full(1_000, 9.0)}))
    assert found[0].filename == __file__


@pytest.mark.parametrize("score", ["s", "_calibrank_0", "__calibrank"])
def test_free_names_are_new(score: str) -> None:
    names = free_names([score, "_calibrankx"])
    found = [next(names), next(names)]
    stem = "___calibrank" if score == "__calibrank" else "__calibrank"
    assert found == [f"{stem}_0", f"{stem}_1"]
    assert next(free_names(["s"])) == "_calibrank_0"


def test_ceilings_compare_as_the_edges_do() -> None:
    edges = [0.1, 0.5, 1 / 3, -0.1, 1e-50, 16_777_217.0]
    rounded = ceilings(edges, "float32")
    assert rounded.dtype == np.float32
    for edge, above in zip(edges, rounded, strict=True):
        assert float(above) >= edge
        assert float(np.nextafter(above, np.float32(-np.inf))) < edge
    np.testing.assert_array_equal(ceilings(edges, "float64"), edges)


@pytest.mark.parametrize("count", range(9))
def test_a_tree_of_choices_is_balanced(count: int) -> None:
    depths = nested_choices(
        list(range(count)), [0] * (count + 1), lambda _, below, above: 1 + max(below, above)
    )
    assert depths == count.bit_length()
    for score in np.arange(-0.5, count + 1, 0.5).tolist():
        leaf = nested_choices(
            list(range(count)),
            list(range(count + 1)),
            lambda edge, below, above, score=score: below if score < edge else above,
        )
        assert leaf == sum(edge <= score for edge in range(count))


def test_float32_is_for_ranges_and_terms_that_it_holds() -> None:
    narrow, wide = logistic_map(Linear(), 0.0, 9e-31), logistic_map(Linear(), 0.0, 1e-30)
    with pytest.raises(cr.DataError, match="range must be at least 1e-30 wide for float32"):
        require_dtype(narrow, "float32")
    assert require_dtype(wide, "float32") == "float32"
    assert require_dtype(narrow, "float64") == "float64"
    steep = wide.moved(301.0)
    with pytest.raises(cr.DataError, match=r"stay within 300\.0 for float32, got 300\."):
        require_dtype(wide.moved(301.1), "float32")
    assert require_dtype(steep, np.float32) == "float32"
    assert require_dtype(steep, torch.float64) == "float64"
    for wrong in ("float16", torch.float16, np.int32):
        with pytest.raises(cr.DataError, match="dtype must be float32 or float64"):
            require_dtype(steep, wrong)


def test_vespa_is_python_but_for_its_choice() -> None:
    fitted = gaussian_map()
    text = to_vespa(fitted, "s").replace("if (", "choice(").replace("&&", "and")

    def choice(condition: bool, first: float, second: float) -> float:
        return first if condition else second

    names = {"exp": math.exp, "log": math.log, "fabs": abs, "min": min, "max": max}
    names["choice"] = choice
    for score in (-9.0, -0.3, 0.0, 2.0, 30.0):
        found = eval(text, {**names, "s": score})  # noqa: S307  (our own text)
        assert found == pytest.approx(fitted.predict(score), rel=1e-12)


def test_shapes_of_a_graph_are_names_or_sizes() -> None:
    pytest.importorskip("onnx")
    model = to_onnx(gaussian_map(), "float64", ["rows", 1])
    (given,) = model.graph.input
    dimensions = given.type.tensor_type.shape.dim
    assert (dimensions[0].dim_param, dimensions[1].dim_value) == ("rows", 1)
    for shape in ([0], "rows", [""]):
        with pytest.raises(cr.DataError, match="shape"):
            to_onnx(gaussian_map(), shape=shape)  # type: ignore[arg-type]  # refused


def test_predictions_of_tensors_are_those_of_arrays() -> None:
    fitted = gaussian_map()
    scores = torch.tensor([[-2.0, 0.5, math.nan], [1e30, -1.1e30, 7.0]], dtype=torch.float64)
    found = fitted.predict(scores).numpy()
    assert np.isnan(found).tolist() == [[False, False, True], [False, True, False]]
    expected = fitted.predict(scores.numpy()[~np.isnan(found)])
    np.testing.assert_allclose(found[~np.isnan(found)], expected, rtol=1e-12)
    whole = fitted.predict(torch.tensor([1, 2]))
    assert whole.dtype == torch.float64
    np.testing.assert_allclose(whole.numpy(), fitted.predict([1.0, 2.0]))
    for wrong, message in [
        (torch.zeros(2, dtype=torch.complex64), "scores must be real numbers"),
        (torch.zeros(2).to_sparse(), "scores must be a dense tensor"),
    ]:
        with pytest.raises(cr.DataError, match=message):
            fitted.predict(wrong)


def test_a_scalar_with_terms_refuses_what_is_no_number() -> None:
    scalar = map_of(gaussian_map().curve, smooth_term("x"), level_term("c")).scalar()
    row = {"x": 0.5, "c": "NL"}
    assert scalar(1e30, row) == pytest.approx(1.0)
    for wrong, message in [
        (10**400, "scores must be finite"),
        ("a", "score must be a number, got 'a'"),
        (None, "score must be a number"),
        (np.zeros(2), "score must be a number"),
        (1.1e30, "within"),
    ]:
        with pytest.raises(cr.DataError, match=message):
            scalar(wrong, row)


@pytest.mark.parametrize("export", [to_onnx, to_torch, to_vespa, to_painless, to_json])
def test_only_a_map_is_exported(export: Any) -> None:
    pytest.importorskip("onnx")
    for other in (gaussian_map().curve, "map.json", None):
        with pytest.raises(cr.DataError, match="fitted must be of type CalibrationMap"):
            export(other)
    with pytest.raises(cr.DataError, match="fitted must be of type CalibrationMap"):
        to_sql(None, "duckdb")  # type: ignore[arg-type]  # refused
