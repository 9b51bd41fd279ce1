"""Commands under a limit of memory (`ulimit -v`): fewer threads, and a clear end if it is low."""

import ctypes
import os
import sys
import threading
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

# Of address space: with more than this nothing needs to be saved.
_AMPLE = 2 * 2**30
# What loading SciPy takes with one thread of OpenBLAS, and its first computations.
_FOR_SCIPY = 64 * 2**20

_STACK_BYTES = 2**20
# The number of this setting in glibc's malloc.h.
_M_ARENA_MAX = -8

# Every thread reserves a stack of 8 MiB and a heap of 64 MiB, used or not.
_FRUGAL = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "ARROW_IO_THREADS": "1",
    "CALIBRANK_THREADS": "1",
    # The others reserve large pieces at once.
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}


def adapt_to_limit() -> None:
    """Use little address space if the process may not have much."""
    limit = _limit()
    if limit is None or limit >= _AMPLE:
        return
    for name, value in _FRUGAL.items():
        os.environ.setdefault(name, value)
    threading.stack_size(_STACK_BYTES)
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # glibc alone has it
        libc.mallopt(_M_ARENA_MAX, 1)
    sys.meta_path.insert(0, _Guard(limit))


class _Guard(MetaPathFinder):
    """Refuses to load SciPy where OpenBLAS, which it loads, would wait forever for memory."""

    def __init__(self, limit: int) -> None:
        self._limit = limit

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "scipy" and self._limit - _used() < _FOR_SCIPY:
            raise MemoryError(f"a limit of {self._limit // 2**20} MiB, too low to load SciPy")
        return None


def _limit() -> int | None:
    """The limit of address space in bytes, if there is one."""
    try:
        import resource  # noqa: PLC0415  (not on Windows)
    except ImportError:
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def _used() -> int:
    """The address space of this process in bytes; 0 where it cannot be found out."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
