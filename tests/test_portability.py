"""What differs on Windows and macOS, simulated here or read from the source.

Windows decodes files in a local encoding, flushes only handles that may write, has no signal 0, and
refuses to replace a file that is open.
"""

import ast
import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import calibrank as cr
from calibrank._internal import atomic
from calibrank._internal.atomic import write_atomic

ROOT = Path(__file__).parents[1]
UNIX_ONLY = {"fcntl", "grp", "pty", "pwd", "resource", "termios"}
READERS_AND_WRITERS = {"open", "read_text", "write_text"}
# These open something else than a text file.
OTHER_OPEN = {"os", "tarfile", "zipfile"}
on_linux = pytest.mark.skipif(
    not Path("/proc/self/fd").is_dir(), reason="open files are listed in /proc"
)


def calls() -> Iterator[tuple[str, ast.Call, str]]:
    """Every call in the source that may read or write a text file, and where it is."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            function = node.func
            name = getattr(function, "attr", None) or getattr(function, "id", "")
            owner = getattr(getattr(function, "value", None), "id", "")
            if name in READERS_AND_WRITERS and owner not in OTHER_OPEN:
                yield f"{path.name}:{node.lineno}", node, name


def is_binary(call: ast.Call) -> bool:
    modes = [each for each in call.args if isinstance(each, ast.Constant)]
    modes += [each.value for each in call.keywords if each.arg == "mode"]
    return any("b" in str(mode.value) for mode in modes if isinstance(mode, ast.Constant))


def test_every_text_file_has_an_encoding() -> None:
    found = list(calls())
    assert len(found) > 10
    without = []
    for place, call, name in found:
        named = {each.arg for each in call.keywords}
        if "encoding" not in named and not (name == "open" and is_binary(call)):
            without.append(place)
    assert without == []


@pytest.mark.parametrize("folder", ["src", "tests"])
def test_modules_import_nothing_that_only_unix_has(folder: str) -> None:
    found = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = [alias.name for alias in getattr(node, "names", [])]
            module = getattr(node, "module", None)
            if isinstance(node, ast.Import | ast.ImportFrom) and UNIX_ONLY & {*names, module}:
                found.append(path.name)
    assert found == []


def test_only_handles_that_may_write_are_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fcntl = pytest.importorskip("fcntl")
    flushed = []

    def fsync(handle: int) -> None:
        if fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "Bad file descriptor")  # what Windows says
        flushed.append(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    cr.Platt().fit([0.0, 1.0, 2.0, 3.0], [0, 1, 0, 1]).save(tmp_path / "map.json")
    assert len(flushed) == 1


def test_processes_are_not_signalled_on_other_systems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On Windows os.kill(process, 0) interrupts the process instead of looking for it.
    def kill(*_: int) -> None:
        raise AssertionError("signalled a process")

    def no_proc(_: Path) -> Path:
        raise FileNotFoundError

    monkeypatch.setattr(os, "kill", kill)
    monkeypatch.setattr(Path, "readlink", no_proc)
    left = tmp_path / f".file.-{os.getppid()}.0123456789abcdef.partial"
    left.write_text("part of a file", encoding="utf-8")
    write_atomic(tmp_path / "file", "new")
    assert left.exists()


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replacing a file that this process has open fails; the list has the names of such files."""
    names: list[str] = []
    replace = Path.replace

    def replace_closed(source: Path, target: Path) -> Path:
        for path in (source, Path(target)):
            if str(path.resolve()) in open_files():
                names.append(path.name)
                raise PermissionError(errno.EACCES, "The process cannot access the file", str(path))
        return replace(source, target)

    monkeypatch.setattr(Path, "replace", replace_closed)
    monkeypatch.setattr(atomic, "_PATIENCE", 0.0)
    return names


def open_files() -> set[str]:
    links = [Path("/proc/self/fd") / each for each in os.listdir("/proc/self/fd")]  # noqa: PTH208
    opened = {os.path.realpath(link) for link in links}
    mapped = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    return opened | {line.split(maxsplit=5)[-1] for line in mapped}


@on_linux
def test_the_simulation_refuses_open_files(tmp_path: Path, refused: list[str]) -> None:
    write_atomic(tmp_path / "file", "old")
    with (tmp_path / "file").open("rb"), pytest.raises(PermissionError):
        write_atomic(tmp_path / "file", "new")
    assert set(refused) == {"file"}
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@on_linux
def test_maps_and_summaries_replace_the_files_they_were_loaded_from(
    tmp_path: Path, refused: list[str]
) -> None:
    scores, labels = np.arange(8.0), np.arange(8) % 2
    cr.Platt().fit(scores, labels).save(tmp_path / "map.json")
    cr.load(tmp_path / "map.json").save(tmp_path / "map.json")
    cr.Summary.of(scores, labels).save(tmp_path / "summary.npz")
    cr.Summary.load(tmp_path / "summary.npz").save(tmp_path / "summary.npz")
    assert refused == []


@on_linux
def test_a_model_replaces_the_files_it_was_loaded_from(tmp_path: Path, refused: list[str]) -> None:
    from calibrank.scorers import InnerProduct, SavedModel
    from calibrank.tables import Index

    scorer = InnerProduct(np.eye(3), np.eye(3), {})
    SavedModel(scorer, Index.of([1, 2, 3]), Index.of([1, 2, 3]), {}).save(tmp_path)
    loaded = SavedModel.load(tmp_path)
    loaded.save(tmp_path)
    assert refused == []


@on_linux
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_tables_are_written_over_older_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: list[str], kind: str
) -> None:
    pa = pytest.importorskip("pyarrow")
    pytest.importorskip("rich")
    from pyarrow import csv, parquet

    from calibrank.cli.app import main

    monkeypatch.chdir(tmp_path)
    cr.Platt().fit([0.0, 1.0, 2.0, 3.0], [0, 1, 0, 1]).save("map.json")
    table = pa.table({"score": [0.5, 1.5], "label": [0, 1]})
    if kind == "csv":
        csv.write_csv(table, "table.csv")
    else:
        parquet.write_table(table, "table.parquet")
    arguments = ["apply", "map.json", f"table.{kind}", "-o", f"out.{kind}"]
    for _ in range(2):
        monkeypatch.setattr(sys, "argv", ["calibrank", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
    assert refused == []


def test_a_file_that_another_program_reads_is_replaced_when_it_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = []
    replace = Path.replace

    def replace_at_third_attempt(source: Path, target: Path) -> Path:
        attempts.append(target)
        if len(attempts) < 3:
            raise PermissionError(errno.EACCES, "The process cannot access the file")
        return replace(source, target)

    monkeypatch.setattr(Path, "replace", replace_at_third_attempt)
    write_atomic(tmp_path / "file", "new")
    assert (tmp_path / "file").read_text(encoding="utf-8") == "new"
    assert len(attempts) == 3
