"""The package as a whole: what it loads, what it exports, that the demo runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import calibrank

HEAVY = (
    "torch",
    "pyspark",
    "pandas",
    "matplotlib",
    "onnx",
    "sklearn",
    "numba",
    "polars",
    "pyarrow",
    "typer",
    "rich",
    "onnxruntime",
)


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    wide = {**os.environ, "COLUMNS": "120"}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, cwd=cwd, env=wide
    )


def test_import_loads_nothing_heavy() -> None:
    code = f"import sys, calibrank, calibrank.export; print([m for m in {HEAVY!r} if m in sys.modules])"
    assert run("-c", code).stdout.strip() == "[]"


def test_all_is_what_is_exported() -> None:
    for name in calibrank.__all__:
        assert getattr(calibrank, name) is not None


def test_demo_runs_and_is_right(tmp_path: Path) -> None:
    pytest.importorskip("typer")
    pytest.importorskip("matplotlib")
    result = run(
        "-W", "error", "-m", "calibrank", "demo", "--pairs", "20000", "--out", "demo", cwd=tmp_path
    )
    assert result.returncode == 0, result.stderr
    assert "reloaded: the same probabilities" in result.stdout
    for method in ("MinMax", "Isotonic", "Gaussian", "GammaGaussian"):
        assert method in result.stdout
    for file in ("reliability.png", "functions.png", "map.json"):
        assert (tmp_path / "demo" / file).stat().st_size > 500
    assert calibrank.load(tmp_path / "demo" / "map.json").predict([0.0]) < 0.1


def test_an_expected_error_is_one_line_and_its_own_exit_code(tmp_path: Path) -> None:
    pytest.importorskip("typer")
    result = run("-m", "calibrank", "demo", "--pairs", "3", cwd=tmp_path)
    assert result.returncode == 3
    assert "pairs must be at least 10, got 3" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_missing_extra_is_the_install_command() -> None:
    code = "import importlib.util as u; real = u.find_spec; u.find_spec = lambda n: None if n == 'typer' else real(n); from calibrank.__main__ import main; main()"
    result = run("-c", code)
    assert result.returncode == 5
    assert (
        result.stderr.strip()
        == "calibrank: typer is not installed. Run: pip install 'calibrank[cli]'"
    )
