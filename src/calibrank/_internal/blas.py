"""Run the small linear algebra of a fit on one thread.

OpenBLAS, which the wheels of NumPy and SciPy bring along, gives some functions a thread per core
however small the matrix, and lets them wait actively. On a busy machine, or in a container with
fewer cores than its machine, a fit of a few hundred rows then takes several times as long.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

_lock = Lock()
# The limits of all blocks since the first that is active, and of those that have ended.
_limits: list[Any] = []
_ended: list[Any] = []


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit every loaded BLAS library to one thread; also a decorator of functions.

    A library that is loaded inside keeps its threads. Several blocks may be active at once: the
    last to end restores what the first found.
    """
    with _lock:
        controller = _controller(_has_scipy="scipy.linalg" in sys.modules)
        limit = controller.limit(limits=1, user_api="blas")
        _limits.append(limit)
    try:
        yield
    finally:
        with _lock:
            _ended.append(limit)
            if len(_ended) == len(_limits):
                for each in reversed(_limits):
                    each.restore_original_limits()
                _limits.clear()
                _ended.clear()


@cache
def _controller(*, _has_scipy: bool) -> Any:
    """The libraries loaded now; SciPy brings one of its own, and looking for them takes 1 ms."""
    from threadpoolctl import ThreadpoolController  # noqa: PLC0415  (slow to load)

    return ThreadpoolController()
