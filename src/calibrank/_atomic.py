"""Write files atomically: a reader sees the old file or the new one, never an incomplete one."""

import glob
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """Yield a temporary path next to `target` to write to, and rename it to `target` at the end.

    The file is flushed to disk before it is renamed. If the block raises, the temporary file is
    deleted and `target` stays as it was.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    _delete_abandoned(target)
    # The process id keeps two processes that write the same target apart.
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
    """Write a file atomically; text is encoded as UTF-8."""
    encoded = content.encode() if isinstance(content, str) else content
    with atomic_path(path) as partial:
        partial.write_bytes(encoded)


def _delete_abandoned(target: Path) -> None:
    """Delete temporary files of processes that were killed while they wrote `target`."""
    for partial in target.parent.glob(f".{glob.escape(target.name)}.*.partial"):
        process = partial.name.split(".")[-2]
        if not _is_running(process):
            partial.unlink(missing_ok=True)


def _is_running(process: str) -> bool:
    try:
        os.kill(int(process), 0)  # signal 0 only checks that the process exists
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:  # it exists and belongs to another user
        return True
    return True
