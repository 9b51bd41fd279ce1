"""Atomic files."""

import os
import socket
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from calibrank._internal import atomic
from calibrank._internal.atomic import atomic_path, write_all_atomic, write_atomic
from calibrank.errors import DataError


@pytest.mark.parametrize("content", ["näïve", b"\x00\x01"])
def test_a_file_is_written_with_its_folders(tmp_path: Path, content: str | bytes) -> None:
    path = tmp_path / "new" / "folder" / "file"
    write_atomic(path, content)
    expected = content.encode() if isinstance(content, str) else content
    assert path.read_bytes() == expected
    assert list(path.parent.iterdir()) == [path]


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomic(path, "old")

    def fail_halfway() -> None:
        with atomic_path(path) as partial:
            partial.write_text("ne")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail_halfway()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_leaves_none_of_the_folders_that_it_made(tmp_path: Path) -> None:
    def write() -> None:
        with atomic_path(tmp_path / "out.csv" / "day" / "a.csv"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert not list(tmp_path.iterdir())


def test_of_several_files_all_are_written_or_none(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    write_all_atomic({first: "a", second: b"b"})
    assert (first.read_text(), second.read_text()) == ("a", "b")
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(OSError, match="file"):
        write_all_atomic({first: "new", second: "new", tmp_path / "file" / "third": "new"})
    assert (first.read_text(), second.read_text()) == ("a", "b")
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is a device of Linux")
def test_a_device_that_refuses_leaves_no_file_behind(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left"):
        write_all_atomic({tmp_path / "file": "a", Path("/dev/full"): "b", tmp_path / "other": "c"})
    assert not list(tmp_path.iterdir())


def test_the_target_is_untouched_until_the_end(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomic(path, "old")
    with atomic_path(path) as partial:
        partial.write_text("new")
        assert partial.parent == path.parent
        assert path.read_text() == "old"
    assert path.read_text() == "new"


def _abandon(folder: Path, name: str) -> Path:
    """Leave a temporary file behind, as a killed process does; returns it."""
    script = f"""
import os
from pathlib import Path
from calibrank._internal.atomic import atomic_path

with atomic_path(Path({str(folder / name)!r})) as partial:
    partial.write_text("part of a file")
    print(partial, flush=True)
    os._exit(9)
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return Path(done.stdout.strip())


def test_files_of_killed_processes_are_deleted(tmp_path: Path) -> None:
    killed = _abandon(tmp_path, "file")
    other = _abandon(tmp_path, "other")
    assert killed.exists()
    with atomic_path(tmp_path / "file") as running:
        write_atomic(tmp_path / "file", "new")
        assert running.exists()
    assert not killed.exists()
    assert other.exists()


def test_files_of_other_machines_are_deleted_only_after_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partial = _abandon(tmp_path, "file")
    # As seen from another container: the process id means nothing there.
    monkeypatch.setattr(atomic, "_machine", lambda: "elsewhere")
    write_atomic(tmp_path / "file", "new")
    assert partial.exists()
    monkeypatch.setattr(atomic, "_machine", lambda: "")  # as on Windows and macOS
    write_atomic(tmp_path / "file", "new")
    assert partial.exists()
    yesterday = time.time() - 25 * 3600
    os.utime(partial, (yesterday, yesterday))
    write_atomic(tmp_path / "file", "new")
    assert not partial.exists()


def test_files_with_similar_names_are_left_alone(tmp_path: Path) -> None:
    old = time.time() - 9 * 24 * 3600
    kept = [tmp_path / ".file.partial", tmp_path / ".file.a.b.c.partial", tmp_path / ".file.x"]
    for path in kept:
        path.write_text("mine")
        os.utime(path, (old, old))
    write_atomic(tmp_path / "file", "new")
    assert all(path.exists() for path in kept)


def test_threads_that_write_one_file_do_not_damage_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    contents = [str(number) * 200_000 for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda content: write_atomic(path, content), contents * 4))
    assert path.read_text() in contents
    assert list(tmp_path.iterdir()) == [path]


def test_a_planted_link_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    monkeypatch.setattr(atomic.os, "urandom", bytes)
    with atomic_path(tmp_path / "file") as partial:
        name = partial.name
        partial.write_text("x")
    (tmp_path / name).symlink_to(victim)
    with pytest.raises(FileExistsError):
        write_atomic(tmp_path / "file", "new")
    assert victim.read_text() == "precious"


def test_a_link_to_a_file_keeps_pointing_to_it(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_atomic(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_a_private_file_stays_private(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(0o600)
    write_atomic(path, "new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_device_is_written_to_and_stays_a_device() -> None:
    write_atomic(Path("/dev/null"), "content")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_a_pipe_gets_the_content(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(pipe.read_text)
        write_atomic(pipe, "content")
        assert read.result(timeout=10) == "content"
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert list(tmp_path.iterdir()) == [pipe]


def test_the_standard_output_is_written_to_wherever_it_leads(tmp_path: Path) -> None:
    script = (
        "from calibrank._internal.atomic import write_atomic; from pathlib import Path; "
        "print('before', flush=True); write_atomic(Path('/dev/stdout'), 'content')"
    )
    with (tmp_path / "out").open("ab") as out:
        subprocess.run([sys.executable, "-c", script], stdout=out, check=True)
    assert "content" in (tmp_path / "out").read_text()


def test_a_folder_or_a_socket_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="must be a file to write, got a folder"):
        write_atomic(tmp_path, "content")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        with pytest.raises(DataError, match="must be a file to write, got a socket"):
            write_atomic(tmp_path / "s", "content")


def test_names_of_any_length_are_written(tmp_path: Path) -> None:
    path = tmp_path / ("ä" * 127)
    write_atomic(path, "content")
    assert path.read_text() == "content"
