"""Atomic files: a reader sees the old file or the new one, never part of one."""

import glob
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """A path beside the target to write to; it takes the target's place, flushed to disk, only when all went well."""
    target.parent.mkdir(parents=True, exist_ok=True)
    for stale in target.parent.glob(f".{glob.escape(target.name)}.*.partial"):
        if not _is_running(stale.name.split(".")[-2]):
            stale.unlink(missing_ok=True)  # left by a run that was killed
    partial = target.parent / f".{target.name}.{os.getpid()}.partial"
    try:
        yield partial
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write a file whole or not at all: a reader sees the old one or the new one."""
    with atomic_path(path) as partial:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)


def _is_running(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:
        return True
    return True
