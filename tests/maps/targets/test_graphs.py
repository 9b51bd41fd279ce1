"""ONNX and torch graphs: shapes, dtypes, accuracy in float32, gradients, serialization."""

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import calibrank as cr
from calibrank.export import to_onnx, to_torch
from calibrank.maps import CalibrationMap
from tests import engines
from tests.maps.samples import step_map

exporters = pytest.mark.parametrize(
    "export", [to_onnx, to_torch], ids=lambda export: export.__name__
)
float32_engines = pytest.mark.parametrize(
    "engine",
    [engines.onnx("float32"), engines.torch("float32")],
    ids=lambda engine: engine.__name__,
)
METHODS = (cr.Gaussian(), cr.Gamma(), cr.GammaGaussian(), cr.Platt(), cr.MinMax(), cr.Isotonic())


@exporters
def test_other_dtypes_are_errors(export: Any, fitted: CalibrationMap) -> None:
    with pytest.raises(cr.DataError, match="dtype must be float32 or float64, got 'float16'"):
        export(fitted, "float16")
    with pytest.raises(cr.DataError, match=r"dtype must be float32 or float64, got float16\."):
        export(fitted, torch.float16)


@exporters
@pytest.mark.parametrize("dtype", [torch.float64, np.float64, np.dtype("float64")], ids=str)
def test_a_dtype_stands_for_its_name(export: Any, fitted: CalibrationMap, dtype: Any) -> None:
    export(fitted, dtype)


@exporters
def test_a_range_too_narrow_for_float32_is_an_error(export: Any) -> None:
    narrow = cr.MinMax().fit([0.0, 1e-35], [0, 1])
    message = r"at least 1e-30 wide for float32, got 1e-35\. Use dtype float64, sql or json"
    with pytest.raises(cr.DataError, match=message):
        export(narrow)
    export(narrow, "float64")


@pytest.mark.parametrize(("package", "export"), [("onnx", to_onnx), ("torch", to_torch)])
def test_a_missing_package_is_named_with_its_install_command(
    package: str, export: Any, fitted: CalibrationMap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    message = rf"{package} is not installed. Run: pip install 'calibrank\[{package}\]'"
    with pytest.raises(cr.MissingExtraError, match=message):
        export(fitted)


@float32_engines
@pytest.mark.parametrize("offset", [0.0, 100.0, 1e6, -1e8])
def test_float32_is_accurate_for_scores_with_a_large_offset(
    engine: engines.Engine, offset: float
) -> None:
    rng = np.random.default_rng(0)
    spread = max(1.0, abs(offset) * 1e-6)
    # Fitted in float64, so that neither end of the range is a float32.
    exact = rng.normal(size=3_000) * spread + offset
    labels = rng.random(3_000) < 1 / (1 + np.exp(-2 * (exact - offset) / spread))
    scores = exact.astype(np.float32)
    for method in METHODS:
        tested = method.fit(exact, labels)
        error = engine(tested, scores) - tested.predict(scores.astype(np.float64))
        assert np.abs(error).max() < 2e-6


def onnx_session(model: Any) -> Any:
    runtime = pytest.importorskip("onnxruntime")
    return runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_onnx_model_accepts_any_number_of_rows(dtype: str, fitted: CalibrationMap) -> None:
    tolerance = 1e-12 if dtype == "float64" else 1e-6
    for tested in (fitted, step_map(1), step_map(300)):
        flat = onnx_session(to_onnx(tested, dtype))
        table = onnx_session(to_onnx(tested, dtype, shape=("rows", "items")))
        for rows in (0, 1, 7, 1000):
            scores = np.random.default_rng(rows).normal(size=rows).astype(dtype)
            expected = tested.predict(scores)
            result = flat.run(None, {"score": scores})[0]
            np.testing.assert_allclose(result, expected, atol=tolerance)
            result = table.run(None, {"score": np.stack([scores, scores])})[0]
            np.testing.assert_allclose(result, np.stack([expected, expected]), atol=tolerance)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_onnx_model_returns_nan_for_nan(dtype: str, fitted: CalibrationMap) -> None:
    for tested in (fitted, step_map(1), step_map(300)):
        session = onnx_session(to_onnx(tested, dtype))
        assert np.isnan(session.run(None, {"score": np.array([np.nan], dtype=dtype)})[0]).all()


def test_a_torch_module_passes_gradients_to_the_layer_before_it(fitted: CalibrationMap) -> None:
    torch = pytest.importorskip("torch")
    for tested in (fitted, step_map(50)):
        layer = torch.nn.Linear(3, 1)
        model = torch.nn.Sequential(layer, to_torch(tested))
        rows = torch.randn(8, 3)
        expected = tested.predict(layer(rows).detach().numpy())
        np.testing.assert_allclose(model(rows).detach(), expected, atol=1e-6)
        model(rows).sum().backward()
        assert torch.isfinite(layer.weight.grad).all()
        assert bool((layer.weight.grad != 0).any()) == (tested is fitted)
        assert not list(to_torch(tested).parameters())


def test_a_torch_module_accepts_every_precision_and_keeps_nan(fitted: CalibrationMap) -> None:
    torch = pytest.importorskip("torch")
    scores = torch.linspace(-3, 3, 25)
    for tested in (fitted, step_map(50)):
        module = to_torch(tested)
        for converted in (scores.bfloat16(), scores.half(), scores.double()):
            assert torch.equal(module(converted), module(converted.float()))
        assert torch.isnan(module(torch.tensor([torch.nan]))).all()


def test_a_step_map_in_half_precision_is_an_error(fitted: CalibrationMap) -> None:
    torch = pytest.importorskip("torch")
    scores = torch.linspace(-3, 3, 25)
    assert torch.equal(to_torch(fitted).half()(scores), to_torch(fitted)(scores))
    with pytest.raises(AssertionError, match="must stay float32"):
        to_torch(step_map(50)).half()(scores)


@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore:The TorchScript type system:UserWarning"
)
@pytest.mark.parametrize(
    "method", [cr.Gaussian(), cr.GammaGaussian(), cr.Beta(), cr.Isotonic(), cr.MinMax()]
)
def test_a_torch_module_can_be_exported_scripted_traced_and_pickled(method: Any) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    tested = method.fit(rng.normal(size=500), rng.random(500) < 0.3)
    module = to_torch(tested)
    scores = torch.linspace(-5, 5, 77)
    example = (torch.zeros(2),)
    dynamic = ({0: torch.export.Dim.DYNAMIC},)
    copies = (
        torch.export.export(module, example, dynamic_shapes=dynamic).module(),
        torch.jit.script(module),
        torch.jit.trace(module, example),
        pickle.loads(pickle.dumps(module)),  # noqa: S301  (written by this test)
    )
    for copy in copies:
        assert torch.equal(copy(scores), module(scores))


def test_a_pickled_torch_module_does_not_need_calibrank(
    fitted: CalibrationMap, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    (tmp_path / "module.pickle").write_bytes(pickle.dumps(to_torch(fitted)))
    code = (
        "import pickle, sys, torch\n"
        "module = pickle.load(open('module.pickle', 'rb'))\n"
        "print(module(torch.tensor([0.5])).item(), 'calibrank' in sys.modules)\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    probability, loaded = done.stdout.split()
    assert float(probability) == pytest.approx(fitted.predict(0.5), abs=1e-6)
    assert loaded == "False"
