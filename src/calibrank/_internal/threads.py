"""Threads for compiled loops, which run without Python's global interpreter lock."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import TypeVar

from calibrank.errors import DataError

Task = TypeVar("Task")
Result = TypeVar("Result")

# More threads than this gain little: the loops are bound by memory bandwidth.
_MOST_THREADS = 8

# Each thread holds a batch; more than this are a mistake.
_MOST_SET_THREADS = 1024

# Tasks in flight per worker: enough that no worker waits for the reader of the next task, few
# enough that the batches they hold stay small in memory.
_QUEUED_TASKS = 6


def thread_count() -> int:
    """The number of cores this process may use, at most 8; `CALIBRANK_THREADS` overrides it."""
    setting = os.environ.get("CALIBRANK_THREADS")
    if setting is None:
        return min(_available_cores(), _MOST_THREADS)
    is_number = setting.isascii() and setting.isdigit() and len(setting) < 5
    if not is_number or not 1 <= int(setting) <= _MOST_SET_THREADS:
        raise DataError(
            "CALIBRANK_THREADS", f"be a whole number from 1 to {_MOST_SET_THREADS}", f"{setting!r}"
        )
    return int(setting)


def _available_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def row_slices(rows: int) -> list[slice]:
    """Split rows into one contiguous slice per thread."""
    count = thread_count()
    edges = [rows * number // count for number in range(count + 1)]
    return [slice(start, stop) for start, stop in pairwise(edges) if stop > start]


def in_workers(function: Callable[[int, Task], None], tasks: Iterable[Task], workers: int) -> None:
    """Call function(worker, task) for every task; each worker runs its tasks in order.

    Tasks are assigned in turn, independent of speed, so each worker's sums are reproducible. Tasks
    are requested as workers become free, not all at once. The error raised is that of the first
    task that failed, or of the iterable itself.
    """
    with ExitStack() as stack:
        # One single-thread pool per worker keeps the order of its tasks.
        pools = [stack.enter_context(ThreadPoolExecutor(1)) for _ in range(workers)]
        running = deque[Future[None]]()
        try:
            for number, task in enumerate(tasks):
                if len(running) == _QUEUED_TASKS * workers:
                    running.popleft().result()
                worker = number % workers
                running.append(pools[worker].submit(function, worker, task))
            for future in running:
                future.result()
        except BaseException:
            for pool in pools:
                pool.shutdown(wait=False, cancel_futures=True)
            raise


def in_threads(function: Callable[[slice], Result], slices: Iterable[slice]) -> list[Result]:
    """Call the function on each slice, one thread per slice; return the results in order."""
    slices = list(slices)
    if len(slices) < 2:
        return [function(part) for part in slices]
    with ThreadPoolExecutor(len(slices) - 1) as pool:
        others = [pool.submit(function, part) for part in slices[1:]]
        # This thread keeps its core busy. If it waited, Linux would often start all others there.
        first = function(slices[0])
        return [first, *(other.result() for other in others)]


@contextmanager
def meanwhile(function: Callable[[], Result]) -> Iterator[Callable[[], Result]]:
    """Call a function in another thread, if there may be one; yields what waits for its result."""
    if thread_count() == 1:
        yield function
        return
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(function).result
