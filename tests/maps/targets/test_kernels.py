"""CUDA kernels, compiled for the CPU where there is no GPU, and when they are used."""

import ctypes
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import calibrank as cr
from calibrank.export import hard_scores
from calibrank.maps.basis import Linear, Log, LogQuadratic, Quadratic, Softplus
from calibrank.maps.targets.script import kernel_source
from calibrank.maps.targets.target import UnsupportedOperationError
from tests.maps.samples import gaussian_map, logistic_map, min_max_map, step_map

MAPS = {
    "linear": logistic_map(Linear(), -2.0, 3.0),
    "quadratic": logistic_map(Quadratic(), -2.0, 3.0),
    "offset": logistic_map(Quadratic(), 1e6, 1e6 + 5.0),
    "log": logistic_map(Log(0.01), -2.0, 3.0),
    "log-quadratic": logistic_map(LogQuadratic(0.01), -2.0, 3.0),
    "softplus": logistic_map(Softplus(), -2.0, 3.0),
    "rescale": min_max_map(),
}


def compiled(source: str, dtype: str, folder: Path) -> Any:
    """The kernel as a function of arrays, by the C++ compiler of this machine."""
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        # A system part; .ci/run installs it.
        pytest.skip("no C++ compiler")
    kind = {"float32": "float", "float64": "double"}[dtype]
    code = f"""
        #include <cmath>
        using namespace std;
        #define __expf expf
        {source}
        extern "C" void run(const {kind} *scores, {kind} *result, long rows) {{
            for (long row = 0; row < rows; row++) result[row] = probability<{kind}>(scores[row]);
        }}
    """
    (folder / "kernel.cpp").write_text(code, encoding="utf-8")
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", "kernel.so", "kernel.cpp"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    library = ctypes.CDLL(str(folder / "kernel.so"))

    def evaluate(scores: np.ndarray) -> np.ndarray:
        result = np.empty_like(scores)
        library.run(
            ctypes.c_void_p(scores.ctypes.data),
            ctypes.c_void_p(result.ctypes.data),
            ctypes.c_long(len(scores)),
        )
        return result

    return evaluate


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("fitted", MAPS.values(), ids=MAPS.keys())
def test_kernels_agree_with_predict(fitted: cr.CalibrationMap, dtype: str, tmp_path: Path) -> None:
    is_single = dtype == "float32"
    evaluate = compiled(kernel_source(fitted, single=is_single), dtype, tmp_path)
    scores = hard_scores(fitted).clip(-9e29, 9e29).astype(dtype)
    expected = fitted.predict(scores.astype(np.float64))
    tolerance = 2e-6 if is_single else 1e-11
    np.testing.assert_allclose(evaluate(scores), expected, rtol=0, atol=tolerance)
    invalid = np.array([np.nan, np.inf, -np.inf, 1.1e30, -1.1e30], dtype=dtype)
    assert np.isnan(evaluate(invalid)).all()


def test_a_step_map_has_no_kernel() -> None:
    with pytest.raises(UnsupportedOperationError):
        kernel_source(step_map(3), single=True)


def test_a_kernel_is_used_where_it_is_fast_and_accurate(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from calibrank.maps.targets import torch as tensors

    monkeypatch.setattr(tensors, "_compiled", lambda source: source)

    def kernel(
        fitted: cr.CalibrationMap, dtype: Any, rows: int = 2**20, *, gpu: bool = True
    ) -> Any:
        scores: Any = SimpleNamespace(is_cuda=gpu, dtype=dtype, numel=lambda: rows)
        return tensors._kernel(fitted, scores)

    fitted = gaussian_map()
    assert kernel(fitted, torch.float32) == kernel_source(fitted, single=True)
    assert kernel(fitted, torch.float64) == kernel_source(fitted, single=False)
    assert kernel(fitted, torch.float32, gpu=False) is None
    assert kernel(fitted, torch.float32, rows=2**20 - 1) is None
    assert kernel(fitted, torch.bfloat16) is None
    assert kernel(step_map(3), torch.float64) is None
    steep = replace(fitted, curve=replace(fitted.curve, coefficients=(300.0, 300.0)))
    assert kernel(steep, torch.float32) is None
    assert kernel(steep, torch.float64) is not None
