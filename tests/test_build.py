"""Building the package: with a C compiler the loops come along, without one everything else does."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from calibrank import _native

ROOT = Path(__file__).parents[1]


def wheel(folder: Path, path: str) -> Path:
    """Build in a copy, with only some programs in reach."""
    source = folder / "source"
    shutil.copytree(
        ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.so")
    )
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    environment = {**os.environ, "PATH": path, "CC": ""}
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(
        command, cwd=source, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


def test_without_a_compiler_the_wheel_is_for_any_machine(tmp_path):
    pytest.importorskip("hatchling")
    built = wheel(tmp_path, str(tmp_path))
    assert built.name.endswith("py3-none-any.whl")
    names = zipfile.ZipFile(built).namelist()
    assert "calibrank/compiled.py" in names
    assert not [name for name in names if name.endswith(".so")]


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_with_a_compiler_the_wheel_holds_the_loops(tmp_path):
    pytest.importorskip("hatchling")
    built = wheel(tmp_path, os.environ["PATH"])
    assert built.name.startswith("calibrank-")
    assert "-py3-none-any" not in built.name
    zipfile.ZipFile(built).extractall(tmp_path / "installed")
    code = "from calibrank import _native; print(_native.READY, _native.LIBRARY)"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    said = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert said.stdout.split() == [
        "True",
        str(tmp_path / "installed" / "calibrank" / "libcalibrank.so"),
    ]


@pytest.mark.skipif(not _native.READY, reason="calibrank was installed without a C compiler")
def test_numpy_does_the_same_where_the_loops_are_missing(tmp_path):
    code = """if True:
        import numpy as np, calibrank as cr
        from calibrank import _native
        rng = np.random.default_rng(0)
        scores = rng.normal(size=200_000).astype(np.float32)
        fitted = cr.Gaussian().fit(scores, rng.random(200_000) < 0.2)
        print(_native.READY, *fitted.parameters.values())"""
    answers = []
    for ready in (True, False):
        package = ROOT / "src"
        if not ready:
            package = tmp_path
            shutil.copytree(
                ROOT / "src", tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.so")
            )
        environment = {**os.environ, "PYTHONPATH": str(package)}
        said = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        answers.append(said.stdout.split())
    assert [answer[0] for answer in answers] == ["True", "False"]
    assert [float(value) for value in answers[0][1:]] == pytest.approx(
        [float(v) for v in answers[1][1:]], rel=1e-9
    )


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_what_goes_wrong_is_said_and_nothing_is_lost(tmp_path, monkeypatch):
    pytest.importorskip("hatchling")
    monkeypatch.syspath_prepend(str(ROOT))
    import hatch_build

    source, library = tmp_path / "_native.c", tmp_path / "lib.so"
    shutil.copy(ROOT / "src" / "calibrank" / "_native.c", source)
    monkeypatch.setenv("CC", "cc -pipe")
    assert not hatch_build.build(source, library)
    whole = library.read_bytes()
    source.write_text("this is not C")
    assert hatch_build.build(source, library) == "cc failed on _native.c"
    monkeypatch.setenv("CC", "no-such-compiler")
    assert hatch_build.build(source, library).startswith("no-such-compiler cannot be run")
    assert library.read_bytes() == whole
    assert sorted(file.name for file in tmp_path.iterdir()) == ["lib.so", "_native.c"]
