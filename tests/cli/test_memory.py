"""Commands under a limit of memory use few threads, and end where it is too low."""

import os
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from calibrank.cli import memory


@pytest.fixture
def restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, int]]]:
    """What is set for the whole process, restored; and the calls of mallopt."""
    calls: list[tuple[int, int]] = []
    libc = SimpleNamespace(mallopt=lambda *arguments: calls.append(arguments))
    monkeypatch.setattr("ctypes.CDLL", lambda _: libc)
    monkeypatch.setattr(sys, "meta_path", sys.meta_path.copy())
    for name in memory._FRUGAL:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    before = threading.stack_size()
    yield calls
    threading.stack_size(before)
    for name in memory._FRUGAL:
        os.environ.pop(name, None)


@pytest.mark.parametrize("limit", [None, 2**32])
def test_ample_memory_changes_nothing(
    restored: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch, limit: int | None
) -> None:
    monkeypatch.setattr(memory, "_limit", lambda: limit)
    finders = sys.meta_path.copy()
    memory.adapt_to_limit()
    assert "CALIBRANK_THREADS" not in os.environ
    assert sys.meta_path == finders
    assert restored == []


def test_little_memory_means_few_threads(
    restored: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_limit", lambda: 2**29)
    memory.adapt_to_limit()
    assert os.environ["CALIBRANK_THREADS"] == "1"
    assert os.environ["OMP_NUM_THREADS"] == "3"  # what is set already stays
    assert threading.stack_size() == 2**20
    assert restored == [(-8, 1)]


def test_scipy_is_not_loaded_where_it_would_wait_forever_for_memory() -> None:
    used = memory._used()
    with pytest.raises(MemoryError, match="MiB, too low to load SciPy"):
        memory._Guard(used + 2**20).find_spec("scipy")
    assert memory._Guard(used + 2**20).find_spec("numpy") is None
    assert memory._Guard(used + 2**30).find_spec("scipy") is None
