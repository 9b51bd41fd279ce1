"""Write files atomically: a reader sees the old file or the new one, never an incomplete one."""

import glob
import hashlib
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from calibrank.errors import DataError

# A temporary file that nothing has written to for this long was abandoned, wherever its process
# ran: containers and machines that share a folder do not see each other's processes.
_ABANDONED_AFTER = 24 * 3600.0

# File systems allow names of 255 bytes; the temporary name adds 50.
_LONGEST_NAME = 150

# Windows refuses to replace a file that another program has open, such as a virus scanner that
# has just seen it: wait this many seconds, in steps, before giving up.
_PATIENCE = 1.0
_STEPS = 10

# Links in these folders lead to open files of this process (/dev/stdout), whatever those are.
_OPEN_FILES = (Path("/dev"), Path("/proc"))


@contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """Yield a temporary path to write to, and rename it to `target` at the end.

    The file is flushed to disk before it is renamed. If the block raises, the temporary file is
    deleted and `target` stays as it was. A link is followed. A device or a pipe is written to,
    not replaced.
    """
    if _is_stream(target):
        with _copied_to(target) as partial:
            yield partial
        return
    target = Path(os.path.realpath(target))
    new = [folder for folder in target.parents if not folder.exists()]
    target.parent.mkdir(parents=True, exist_ok=True)
    _delete_abandoned(target)
    partial = _create_partial(target)
    try:
        yield partial
        # Windows flushes only handles that may write.
        with partial.open("r+b") as file:
            os.fsync(file.fileno())
        _replace(partial, target)
    except BaseException:
        partial.unlink(missing_ok=True)
        with suppress(OSError):  # another file is in it by now
            for folder in new:
                folder.rmdir()
        raise


def _replace(partial: Path, target: Path) -> None:
    for _ in range(_STEPS):
        try:
            partial.replace(target)
        except PermissionError:
            time.sleep(_PATIENCE / _STEPS)
        else:
            return
    partial.replace(target)


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write a file atomically; text is encoded as UTF-8."""
    write_all_atomic({path: content})


def write_all_atomic(contents: Mapping[Path, str | bytes]) -> None:
    """Write several files: all are complete beside their targets before the first is renamed.

    What is no file, a device or a pipe, is written to before that.
    """
    with ExitStack() as files:
        # The last to be entered is the first to end.
        for path in sorted(contents, key=_is_stream):
            content = contents[path]
            partial = files.enter_context(atomic_path(path))
            partial.write_bytes(content.encode() if isinstance(content, str) else content)


def _is_stream(target: Path) -> bool:
    """Whether `target` is a device or a pipe; a folder or a socket is an error."""
    try:
        mode = target.stat().st_mode
    except OSError:  # no such file yet; if there cannot be one, creating it will say so
        return False
    if stat.S_ISDIR(mode) or stat.S_ISSOCK(mode):
        found = "folder" if stat.S_ISDIR(mode) else "socket"
        raise DataError(target, "be a file to write", f"a {found}", "Name a file.")
    folder = target.absolute().parent
    is_open_file = any(root in (folder, *folder.parents) for root in _OPEN_FILES)
    return not stat.S_ISREG(mode) or (target.is_symlink() and is_open_file)


@contextmanager
def _copied_to(stream: Path) -> Iterator[Path]:
    """A temporary path whose content is written to a stream once it is complete."""
    import shutil  # noqa: PLC0415  (slow to load, and seldom needed)
    import tempfile  # noqa: PLC0415  (as well)

    with tempfile.TemporaryDirectory() as folder:
        partial = Path(folder) / stream.name
        yield partial
        with partial.open("rb") as content, stream.open("wb") as out:
            shutil.copyfileobj(content, out)


def _create_partial(target: Path) -> Path:
    """Create an empty file next to `target` under a name that nobody can foresee."""
    name = f"{_prefix(target)}{_machine()}-{os.getpid()}.{os.urandom(8).hex()}.partial"
    partial = target.parent / name
    # O_EXCL and O_NOFOLLOW: neither an existing file nor a link under this name is opened.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    try:
        os.close(os.open(partial, flags, 0o666))
    except OSError as error:
        # The name of the temporary file says nothing to whoever named the target.
        raise type(error)(error.errno, error.strerror, str(target)) from None
    if target.exists():
        # A private file stays private.
        partial.chmod(stat.S_IMODE(target.stat().st_mode))
    return partial


def _prefix(target: Path) -> str:
    return f".{os.fsencode(target.name)[:_LONGEST_NAME].decode(errors='ignore')}."


def _delete_abandoned(target: Path) -> None:
    """Delete temporary files of processes that were killed while they wrote `target`."""
    for partial in target.parent.glob(f"{glob.escape(_prefix(target))}*.partial"):
        parts = partial.name.removeprefix(_prefix(target)).split(".")
        if len(parts) == 3 and _is_abandoned(partial, parts[0]):
            partial.unlink(missing_ok=True)


def _is_abandoned(partial: Path, owner: str) -> bool:
    machine, _, process = owner.partition("-")
    if machine and machine == _machine() and process.isdecimal() and not _is_running(int(process)):
        return True
    try:
        age = time.time() - partial.lstat().st_mtime
    except FileNotFoundError:  # its writer has just finished
        return False
    return age > _ABANDONED_AFTER


def _machine() -> str:
    """A name for the machine and container, within which process ids are unique; "" if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        container = Path("/proc/self/ns/pid").readlink()
    except OSError:  # not Linux, or not allowed
        return ""
    return hashlib.sha256(f"{boot} {container}".encode()).hexdigest()[:12]


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)  # signal 0 only checks that the process exists
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):  # it belongs to another user, or is no process id
        return True
    return True
