"""Small linear algebra runs on one thread, and nothing else does."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import numpy as np
import pytest

import calibrank as cr
from calibrank._internal.blas import _function, _loaded, one_blas_thread


def threads() -> list[int]:
    return [int(_function(library, "get")()) for library in _loaded().values()]


@pytest.fixture
def two_threads() -> list[int]:
    libraries = _loaded().values()
    if not libraries:
        pytest.skip("this NumPy brings no OpenBLAS of its own")
    for library in libraries:
        _function(library, "set")(2)
    return threads()


def test_threads_are_limited_and_restored_even_if_nested_or_failing(two_threads: list[int]) -> None:
    with one_blas_thread():
        with one_blas_thread():
            assert set(threads()) == {1}
        assert set(threads()) == {1}
    assert threads() == two_threads
    with pytest.raises(KeyError), one_blas_thread():
        raise KeyError
    assert threads() == two_threads


def test_the_last_of_several_threads_restores_what_the_first_found(two_threads: list[int]) -> None:
    both = Barrier(2, timeout=60)

    @one_blas_thread()
    def work(_: int) -> None:
        both.wait()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, range(2)))
    assert threads() == two_threads


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot ask for loaded libraries")
def test_anchoring_uses_one_thread(two_threads: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    scores = np.linspace(-2, 2, 40)
    fitted = cr.Platt().fit(scores, np.arange(40) % 7 < np.arange(40) / 8)
    seen: list[int] = []
    solve = np.linalg.solve

    def spy(*args: Any) -> Any:
        seen.extend(threads())
        return solve(*args)

    monkeypatch.setattr(np.linalg, "solve", spy)
    cr.anchor(fitted, scores, np.arange(40) % 2)
    assert set(seen) == {1}
    assert threads() == two_threads
