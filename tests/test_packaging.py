"""What the package declares: extras that suffice, pinned versions, and builds on other systems."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]
# Packages whose module has another name.
MODULES = {"scikit-learn": "sklearn"}
# Imported only with an object of the library in hand.
BROUGHT_BY_THE_USER = {
    *("pandas", "duckdb", "implicit", "cornac", "recbole", "sentence_transformers"),
    "cuda",  # comes with torch for CUDA
}


def installed_by(requirements: list[str]) -> set[str]:
    """The modules that a list of requirements installs directly, through extras of our own."""
    modules = set()
    for text in requirements:
        requirement = Requirement(text)
        if requirement.name == "calibrank":
            for extra in requirement.extras:
                modules |= installed_by(EXTRAS[extra])
        else:
            modules.add(MODULES.get(requirement.name, requirement.name))
    return modules


def syntax_trees() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted((ROOT / "src").rglob("*.py")):
        yield path, ast.parse(path.read_text(encoding="utf-8"))


def imported(tree: ast.Module) -> Iterator[str]:
    """The top-level names of everything that a module imports, anywhere in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield str(node.module).split(".")[0]


def test_everything_imported_is_a_dependency_or_in_an_extra() -> None:
    declared = installed_by(PROJECT["project"]["dependencies"])
    for requirements in EXTRAS.values():
        declared |= installed_by(requirements)
    known = declared | BROUGHT_BY_THE_USER | sys.stdlib_module_names | {"calibrank"}
    unknown = {}
    for path, tree in syntax_trees():
        names = set(imported(tree)) - known
        if names:
            unknown[path.name] = names
    assert not unknown


def missing_extras() -> Iterator[tuple[str, str]]:
    """The package and the extra of every `MissingExtraError` that names them in the source."""
    for _, tree in syntax_trees():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            if getattr(node.func, "id", "") != "MissingExtraError":
                continue
            package, extra = node.args
            if isinstance(package, ast.Constant) and isinstance(extra, ast.Constant):
                yield package.value.split()[0], extra.value


def test_the_extra_that_an_error_recommends_installs_the_package() -> None:
    named = set(missing_extras())
    assert ("pyarrow", "cli") in named
    assert len(named) > 6
    for package, extra in named:
        assert MODULES.get(package, package) in installed_by(EXTRAS[extra])


def test_users_see_no_extra_for_developers() -> None:
    assert not {"dev", "docs", "test", "lint"} & set(EXTRAS)


def test_everything_developers_install_is_pinned() -> None:
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    pinned = {line.split("==")[0] for line in text.splitlines() if "==" in line}
    groups = PROJECT["dependency-groups"].values()
    wanted = [*PROJECT["project"]["dependencies"]]
    for requirements in [*EXTRAS.values(), *groups]:
        wanted += [each for each in requirements if isinstance(each, str)]
    names = {Requirement(each).name for each in wanted}
    assert names - {"calibrank"} <= pinned


def test_actions_are_pinned_by_hash() -> None:
    used = []
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        used += re.findall(r"uses: (\S+)", path.read_text(encoding="utf-8"))
    others = [each for each in used if not each.startswith("./")]
    assert len(others) > 10
    for action in others:
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action)


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The build hook, imported anew so that it sees the system a test pretends to run on."""
    pytest.importorskip("hatchling")
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.delitem(sys.modules, "hatch_build", raising=False)
    monkeypatch.delenv("CC", raising=False)

    def load(system: str) -> ModuleType:
        import importlib

        monkeypatch.setattr(sys, "platform", system)
        return importlib.import_module("hatch_build")

    return load


@pytest.mark.parametrize(
    ("target", "version", "machine", "expected"),
    [
        ("11.0", "15.6", "arm64", "macosx_11_0_arm64"),
        ("10.13", "15.6", "x86_64", "macosx_10_13_x86_64"),
        ("", "15.6.1", "arm64", "macosx_15_0_arm64"),
        ("12", "15.6", "arm64", "macosx_12_0_arm64"),
    ],
)
def test_a_macos_wheel_runs_on_the_oldest_system_it_was_compiled_for(
    hook, monkeypatch: pytest.MonkeyPatch, target, version, machine, expected
) -> None:
    build = hook("darwin")
    monkeypatch.setenv("MACOSX_DEPLOYMENT_TARGET", target)
    monkeypatch.setattr(build.platform, "mac_ver", lambda: (version, ("", "", ""), ""))
    monkeypatch.setattr(build.platform, "machine", lambda: machine)
    assert build._platform() == expected


def test_windows_compiles_without_flags_that_its_compilers_refuse(
    hook, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    build = hook("win32")
    commands = []

    def run(command, **_):
        commands.append(command)
        return type("Result", (), {"returncode": 1})()

    monkeypatch.setattr(build.subprocess, "run", run)
    monkeypatch.setenv("CC", r"C:\llvm\clang.exe --target=x86_64-pc-windows-msvc")
    (tmp_path / "Python.h").touch()
    monkeypatch.setattr(build.sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
    source = ROOT / "src" / "calibrank" / "_internal" / "native.c"
    problem = build.build(source, tmp_path / "lib.so")
    assert problem == r"C:\llvm\clang.exe failed on native.c"
    assert not {"-fPIC", "-lm"} & set(commands[0])
    assert commands[0][0] == r"C:\llvm\clang.exe"
    # The import library of the stable ABI, and the only name that Windows imports modules by.
    assert commands[0][-1] == "-lpython3"
    assert build.LIBRARY.endswith("_loops.pyd")
