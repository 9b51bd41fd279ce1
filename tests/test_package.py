"""The package as a whole: what importing it loads, what it exports, how its commands end."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import calibrank
from calibrank import anchoring, curves, maps, metrics, registry, terms

OPTIONAL = (
    "torch",
    "pyspark",
    "pandas",
    "matplotlib",
    "onnx",
    "sklearn",
    "polars",
    "pyarrow",
    "rich",
    "onnxruntime",
)


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={**os.environ, "COLUMNS": "120"},
    )


def test_importing_calibrank_loads_no_optional_dependency() -> None:
    code = f"""if True:
        import sys
        import calibrank, calibrank.export
        print([name for name in {OPTIONAL!r} if name in sys.modules])"""
    result = run("-c", code)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "[]"


def ruff_order(name: str) -> tuple[int, list[str | int]]:
    """Constants and acronyms, then classes, then functions; numbers by value (ruff's RUF022)."""
    group = 0 if name.isupper() else 1 if name[0].isupper() else 2
    parts = re.split(r"(\d+)", name)
    return group, [int(part) if part.isdigit() else part for part in parts]


def test_all_is_sorted_as_ruff_sorts_it() -> None:
    assert calibrank.__all__ == sorted(calibrank.__all__, key=ruff_order)


def test_calibrators_terms_and_evidence_are_exported_and_the_rest_is_in_its_package() -> None:
    members = [
        *(type(member) for member in registry.CALIBRATORS.values()),
        *(terms.Group, terms.Level, terms.Position, terms.Smooth),
        *registry.EVIDENCE.values(),
    ]
    assert len(members) > 18
    for member in members:
        assert getattr(calibrank, member.__name__, None) is member
    for member in registry.METRICS.values():
        assert type(member).__module__.startswith("calibrank.metrics.")
    for package in (anchoring, curves, maps, metrics, terms):
        for name in package.__all__:
            assert getattr(calibrank, name, getattr(package, name)) is getattr(package, name)
    assert len(calibrank.__all__) < 55


def test_the_demo_runs_and_its_map_is_right(tmp_path: Path) -> None:
    pytest.importorskip("rich")
    pytest.importorskip("matplotlib")
    demo = ["-m", "calibrank", "demo", "--pairs", "20000", "--out", "demo"]
    result = run("-W", "error", *demo, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    for method in ("MinMax", "Isotonic", "Gaussian", "GammaGaussian"):
        assert method in result.stdout
    for file in ("reliability.png", "map.json"):
        assert (tmp_path / "demo" / file).stat().st_size > 500
    assert calibrank.load(tmp_path / "demo" / "map.json").predict([0.0]) < 0.1


def test_an_expected_error_is_one_line_with_its_own_exit_code(tmp_path: Path) -> None:
    pytest.importorskip("rich")
    result = run("-m", "calibrank", "demo", "--pairs", "3", cwd=tmp_path)
    assert result.returncode == 2
    assert "--pairs must be in the range 1000<=x<=100000000, got 3." in result.stderr
    assert "Traceback" not in result.stderr


def test_a_missing_extra_is_reported_by_its_install_command() -> None:
    code = """if True:
        import importlib.util
        find_spec = importlib.util.find_spec
        importlib.util.find_spec = lambda name: None if name == "rich" else find_spec(name)
        from calibrank.__main__ import main
        main()"""
    result = run("-c", code, "fit", "t.csv")
    assert result.returncode == 5
    expected = (
        "calibrank: rich is not installed. Run: pip install 'calibrank[cli]' "
        "(in a checkout: pip install '.[cli]')"
    )
    assert result.stderr.strip() == expected
