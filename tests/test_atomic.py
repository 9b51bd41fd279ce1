"""Atomic files."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from calibrank._atomic import atomic_path, write_atomic


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


def test_the_target_is_untouched_until_the_end(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomic(path, "old")
    with atomic_path(path) as partial:
        partial.write_text("new")
        assert partial.parent == path.parent
        assert path.read_text() == "old"
    assert path.read_text() == "new"


def test_files_of_killed_processes_are_deleted(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    killed = tmp_path / f".file.{ended.pid}.partial"
    running = tmp_path / f".file.{os.getppid()}.partial"
    other = tmp_path / f".other.{ended.pid}.partial"
    for path in (killed, running, other):
        path.write_text("part of a file")
    write_atomic(tmp_path / "file", "new")
    assert not killed.exists()
    assert running.exists()
    assert other.exists()
