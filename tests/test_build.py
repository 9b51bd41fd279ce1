"""Building the package, with and without a C compiler and Python's headers."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from calibrank._internal import native

ROOT = Path(__file__).parents[1]
HEADERS = [file.name for file in (ROOT / "src" / "calibrank" / "_internal").glob("native*.h")]

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
needs_library = pytest.mark.skipif(
    not native.READY, reason="calibrank was installed without a C compiler"
)


def build_wheel(folder: Path, path: str) -> Path:
    """Build a wheel from a copy of the source, with only the programs on `path` available."""
    source = folder / "source"
    ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.pyd")
    shutil.copytree(ROOT / "src", source / "src", ignore=ignored)
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    result = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=source,
        env={**os.environ, "PATH": path, "CC": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, unpacked."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("sdist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    (archive,) = folder.glob("*.tar.gz")
    # Python 3.11 has the filter since 3.11.4, and 3.14 asks for it.
    options = {"filter": "data"} if sys.version_info >= (3, 11, 4) else {}
    shutil.unpack_archive(archive, folder, **options)
    return archive.with_name(archive.name.removesuffix(".tar.gz"))


def test_the_sdist_builds_without_a_compiler(sdist: Path, tmp_path: Path) -> None:
    assert not list(sdist.rglob("*.so"))
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    environment = {**os.environ, "PATH": str(tmp_path), "CC": ""}
    subprocess.run(command, cwd=sdist, env=environment, capture_output=True, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("py3-none-any.whl")
    assert "calibrank/__init__.py" in zipfile.ZipFile(wheel).namelist()


def run_with(package: Path, code: str) -> list[str]:
    """Run code with calibrank from a folder; return the words that it prints."""
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(package)},
        capture_output=True,
        text=True,
        check=True,
    )
    return result.stdout.split()


def test_without_a_compiler_the_wheel_is_pure_python(tmp_path):
    pytest.importorskip("hatchling")
    wheel = build_wheel(tmp_path, str(tmp_path))
    assert wheel.name.endswith("py3-none-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "calibrank/_internal/native.py" in names
    assert "calibrank/_internal/native.c" in names
    assert {f"calibrank/_internal/{name}" for name in HEADERS} <= set(names)
    assert not [name for name in names if name.endswith(".so")]


@needs_compiler
def test_with_a_compiler_the_wheel_fits_every_python_from_3_11_on(tmp_path):
    pytest.importorskip("hatchling")
    wheel = build_wheel(tmp_path, os.environ["PATH"])
    assert "-cp311-abi3-" in wheel.name
    assert not wheel.name.endswith("-any.whl")
    installed = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(installed)
    code = "from calibrank._internal import native; print(native.READY, native.loops.__file__)"
    ready, library = run_with(installed, code)
    assert ready == "True"
    assert Path(library).parent == installed / "calibrank" / "_internal"
    # A damaged module is ignored.
    Path(library).write_text("not a library")
    assert run_with(installed, "from calibrank._internal import native; print(native.READY)") == [
        "False"
    ]


@needs_library
def test_numpy_gives_the_same_fit_without_the_library(tmp_path):
    code = """if True:
        import numpy as np, calibrank as cr
        from calibrank._internal import native
        rng = np.random.default_rng(0)
        scores = rng.normal(size=200_000).astype(np.float32)
        fitted = cr.Gaussian().fit(scores, rng.random(200_000) < 0.2)
        print(native.READY, *fitted.parameters.values())"""
    ignored = shutil.ignore_patterns("*.so", "*.pyd")
    shutil.copytree(ROOT / "src", tmp_path, dirs_exist_ok=True, ignore=ignored)
    compiled_ready, *compiled = run_with(ROOT / "src", code)
    numpy_ready, *plain = run_with(tmp_path, code)
    assert (compiled_ready, numpy_ready) == ("True", "False")
    expected = [float(value) for value in compiled]
    assert [float(value) for value in plain] == pytest.approx(expected, rel=1e-9)


@pytest.fixture
def hatch_build(monkeypatch):
    pytest.importorskip("hatchling")
    monkeypatch.syspath_prepend(str(ROOT))
    import hatch_build

    return hatch_build


def test_without_python_headers_the_build_says_so(hatch_build, tmp_path, monkeypatch):
    monkeypatch.setenv("CC", "cc")
    monkeypatch.setattr(hatch_build.sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
    problem = hatch_build.build(ROOT / hatch_build.SOURCE, tmp_path / "lib.so")
    assert problem == f"Python's headers are not in {tmp_path}"
    assert not list(tmp_path.iterdir())


def test_a_free_threaded_python_gets_numpy(hatch_build, tmp_path, monkeypatch):
    monkeypatch.setenv("CC", "cc")
    monkeypatch.setattr(
        hatch_build.sysconfig, "get_config_var", lambda name: int(name == "Py_GIL_DISABLED")
    )
    problem = hatch_build.build(ROOT / hatch_build.SOURCE, tmp_path / "lib.so")
    assert problem.startswith("this Python has no stable ABI (it is free-threaded")
    assert not list(tmp_path.iterdir())


@needs_compiler
def test_a_failed_build_is_reported_and_keeps_the_old_library(hatch_build, tmp_path, monkeypatch):
    source, library = tmp_path / "native.c", tmp_path / "lib.so"
    for name in ("native.c", *HEADERS):
        shutil.copy(ROOT / "src" / "calibrank" / "_internal" / name, tmp_path)
    monkeypatch.setenv("CC", "cc -pipe")
    assert not hatch_build.build(source, library)
    content = library.read_bytes()
    source.write_text("this is not C")
    assert hatch_build.build(source, library) == "cc failed on native.c"
    monkeypatch.setenv("CC", "no-such-compiler")
    assert hatch_build.build(source, library).startswith("no-such-compiler cannot be run")
    assert library.read_bytes() == content
    left = sorted(file.name for file in tmp_path.iterdir())
    assert left == sorted(["native.c", *HEADERS, "lib.so"])
