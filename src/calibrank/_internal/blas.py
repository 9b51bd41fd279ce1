"""Run the small linear algebra of a fit on one thread.

OpenBLAS, which the wheels of NumPy and SciPy bring along, gives some functions a thread per core
however small the matrix, and lets them wait actively. On a busy machine, or in a container with
fewer cores than its machine, a fit of a few hundred rows then takes several times as long.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

# The folders in which wheels of Linux and macOS keep their libraries.
_FOLDERS = ("../{package}.libs", ".dylibs")
# The library's 64-bit integers have names of their own.
_SUFFIXES = ("64_", "")

_lock = Lock()
_libraries: dict[Path, ctypes.CDLL] = {}
_depth: dict[Path, int] = {}
_threads_before: dict[Path, int] = {}


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit every loaded OpenBLAS to one thread; also a decorator of functions.

    Another BLAS, or one that is loaded inside, keeps its threads. Several may be active at once:
    the last to end restores what the first found.
    """
    libraries = _loaded()
    with _lock:
        for path, library in libraries.items():
            _depth[path] = _depth.get(path, 0) + 1
            if _depth[path] == 1:
                _threads_before[path] = int(_function(library, "get")())
                _function(library, "set")(1)
    try:
        yield
    finally:
        with _lock:
            for path, library in libraries.items():
                _depth[path] -= 1
                if _depth[path] == 0:
                    _function(library, "set")(_threads_before[path])


def _loaded() -> dict[Path, ctypes.CDLL]:
    """The libraries that this process has loaded already; nothing is loaded to find out."""
    only_loaded = getattr(os, "RTLD_NOLOAD", None)
    if only_loaded is None:
        return {}
    for package, path in _candidates():
        if path in _libraries or package not in sys.modules:
            continue
        try:
            library = ctypes.CDLL(str(path), mode=only_loaded | os.RTLD_NOW)
            _function(library, "set")
        except (OSError, AttributeError):
            continue
        _libraries[path] = library
    return dict(_libraries)


@cache
def _candidates() -> tuple[tuple[str, Path], ...]:
    found: list[tuple[str, Path]] = []
    for package in ("numpy", "scipy"):
        spec = find_spec(package)
        if spec is None or spec.origin is None:
            continue
        for folder in _FOLDERS:
            libraries = Path(spec.origin).parent / folder.format(package=package)
            found += [(package, file) for file in sorted(libraries.glob("libscipy_openblas*"))]
    return tuple(found)


def _function(library: ctypes.CDLL, verb: str) -> Callable[..., Any]:
    for suffix in _SUFFIXES:
        name = f"scipy_openblas_{verb}_num_threads{suffix}"
        if hasattr(library, name):
            function: Callable[..., Any] = getattr(library, name)
            return function
    raise AttributeError(f"no function to {verb} the number of threads")
