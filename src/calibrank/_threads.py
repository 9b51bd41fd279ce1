"""Threads for compiled loops, which run without Python's lock."""

import os
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from itertools import pairwise
from typing import TypeVar

from calibrank.errors import DataError

Result = TypeVar("Result")


def thread_count() -> int:
    """As many as cores this process may use, at most 8; `CALIBRANK_THREADS` overrides it."""
    given = os.environ.get("CALIBRANK_THREADS")
    if given is None:
        return min(
            len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count() or 1,
            8,
        )
    if not given.isdigit() or int(given) < 1:
        raise DataError(f"CALIBRANK_THREADS must be a whole number above 0, got {given!r}.")
    return int(given)


def shares(rows: int) -> list[slice]:
    """Rows cut into one share a thread."""
    count = thread_count()
    edges = [rows * part // count for part in range(count + 1)]
    return [slice(start, stop) for start, stop in pairwise(edges) if stop > start]


def in_workers(function: Callable[[int, Result], None], work: Iterable[Result], lanes: int) -> None:
    """Call function(lane, piece) for every piece of work, lanes side by side, each lane's pieces in order.

    Which piece goes to which lane does not depend on speed, so neither does what a lane adds up. The error that is
    raised is that of the first piece that failed, or of the work itself. Work is asked for as lanes come free, not all
    at once.
    """
    with ExitStack() as stack:
        pools = [stack.enter_context(ThreadPoolExecutor(1)) for _ in range(lanes)]
        running = deque[Future[None]]()
        try:
            for number, piece in enumerate(work):
                if len(running) == 6 * lanes:
                    running.popleft().result()
                running.append(pools[number % lanes].submit(function, number % lanes, piece))
            for one in running:
                one.result()
        except BaseException:
            for pool in pools:
                pool.shutdown(wait=False, cancel_futures=True)
            raise


def in_threads(function: Callable[[slice], Result], parts: Iterable[slice]) -> list[Result]:
    """The function's result for each part, in order."""
    parts = list(parts)
    if len(parts) == 1:
        return [function(parts[0])]
    with ThreadPoolExecutor(len(parts)) as pool:
        return list(pool.map(function, parts))
